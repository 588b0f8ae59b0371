//! Every named cost of a storage server, raised by factors: raising the bottleneck's cost never raises throughput, and
//! where raising another cost does, the report names the coalescing behind it.

mod common;

use common::{mean, outcomes, plan};
use lab::coalescing;
use lab::kinds::storage::StorageVariant::{self, Posted, Remapped};
use lab::kinds::storage::{DRIVE_LINK, DRIVE_MEDIA};
use lab::outcome::{Bottleneck, Outcome, ServerKind, Summary};
use lab::platform::Unit;

/// What single seeds of this span differ by.
const NOISE: f64 = 0.02;

/// Work that this scenario does not do.
const UNUSED: [&str; 8] = ["uring", "polled", "poll_look", "_look", "remote_", "context_", "register_", "media_floor"];

/// One point of a sweep.
struct Point {
    factor: f64,
    outcome: Outcome,
    summary: Summary,
}

fn point(delivery: StorageVariant, factor: f64, set: &str) -> Point {
    let plan = plan("emr-4-drives", &["ramp=400us", "duration=1ms", set]);
    let outcome = outcomes(&plan, delivery, 1).remove(0);
    let summary = Summary::over(std::slice::from_ref(&outcome)).expect("one run");
    Point { factor, outcome, summary }
}

/// Every cost that the scenario uses, its value and its unit's suffix.
fn costs() -> Vec<(String, f64, &'static str)> {
    let platform = plan("emr-4-drives", &[]).platform;
    let constants = platform.constants();
    let used = constants.iter().filter(|(name, spec, constant)| {
        spec.unit == Unit::Time && constant.value > 0.0 && !UNUSED.iter().any(|unused| name.contains(unused))
    });
    let times = used.map(|(name, _, constant)| (name.clone(), constant.value, "ns"));
    times.chain([("cpu.scale".into(), 1.0, "")]).collect()
}

/// True if `key` is a cost of the bottleneck.
fn is_cost_of(key: &str, bottleneck: Bottleneck) -> bool {
    let keys: &[&str] = match bottleneck {
        Bottleneck::MsiPath(ServerKind::RootPort) | DRIVE_LINK => &["fabric.ordering_stall"],
        Bottleneck::MsiPath(ServerKind::Remapping) => &["fabric.remap_service", "fabric.dispatch"],
        Bottleneck::MsiPath(ServerKind::Dispatch) => &["fabric.dispatch"],
        Bottleneck::MsiPath(ServerKind::PostedLine) => &["fabric.posted_update", "fabric.line_move"],
        Bottleneck::Cpu => &["cpu.scale"],
        DRIVE_MEDIA => &["drive.gen5.media_mean"],
        _ => &[],
    };
    keys.contains(&key)
}

/// Sweeps every cost by these factors, prints what happened, and checks each step.
fn sweep(factors: &[f64]) {
    for delivery in [Remapped, Posted] {
        let start = point(delivery, 1.0, "options.harvest_passes=2");
        for (key, value, suffix) in costs() {
            let most = if key == "cpu.scale" { 10.0 } else { f64::MAX };
            let mut before = Point { factor: 1.0, outcome: start.outcome.clone(), summary: start.summary.clone() };
            for &factor in factors.iter().filter(|&&factor| factor <= most) {
                let now = point(delivery, factor, &format!("{key}={}{suffix}", value * factor));
                check_step(delivery, &key, &before, &now);
                before = now;
            }
        }
    }
}

fn check_step(delivery: StorageVariant, key: &str, before: &Point, now: &Point) {
    let (was, is) = (mean(&before.summary, "iops"), mean(&now.summary, "iops"));
    let limit = before.summary.bottleneck.bottleneck;
    eprintln!(
        "{delivery}, {key} x{}: {:.3} M IOPS, {:.2} completions a handler, bottleneck {}",
        now.factor,
        is / 1e6,
        now.summary.estimate("completions_per_interrupt").map_or(0.0, |found| found.mean),
        now.summary.bottleneck,
    );
    if is <= was * (1.0 + NOISE) {
        return;
    }
    let step = format!("{delivery}, {key} x{} to x{}: {was:.0} to {is:.0} IOPS", before.factor, now.factor);
    assert!(!is_cost_of(key, limit), "{step} although {limit} is the bottleneck");
    let note = coalescing::note(&before.outcome, &now.outcome, key).unwrap_or_default();
    eprintln!("    {note}");
    assert!(note.contains("behind it, completions per"), "{step}: {note}");
}

/// By a factor of 10; with SWEEP=full, as `scripts/test --all` sets it, by 3, 10, 30 and 100.
#[test]
fn a_dearer_bottleneck_never_helps() {
    let is_full = std::env::var_os("SWEEP").is_some_and(|value| value == "full");
    sweep(if is_full { &[3.0, 10.0, 30.0, 100.0] } else { &[10.0] });
}
