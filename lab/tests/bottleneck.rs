//! If the finder names a bottleneck, halving its cost raises IOPS.
//!
//! The converse does not hold for the MSI path: it limits MSIs, and anything that lets more completions share one MSI
//! (for example a faster link) raises IOPS too.

mod common;

use common::{mean, summary};
use lab::kinds::storage::DRIVE_LINK;
use lab::kinds::storage::StorageVariant::{self, Posted, Remapped};
use lab::outcome::{Bottleneck, ServerKind, Summary};

const SHORT: [&str; 2] = ["ramp=1ms", "duration=3ms"];

fn run(delivery: StorageVariant, sets: &[&str]) -> Summary {
    summary("emr-4-drives", delivery, &[&SHORT, sets].concat(), 1)
}

/// IOPS of `now` over those of `before`.
fn ratio(before: &Summary, now: &Summary) -> f64 {
    mean(now, "iops") / mean(before, "iops")
}

#[test]
fn where_it_is_the_msi_path_halving_it_helps() {
    let before = run(Remapped, &[]);
    assert_eq!(before.bottleneck.bottleneck, Bottleneck::MsiPath(ServerKind::Remapping), "{}", before.bottleneck);
    let constants = common::plan("emr-4-drives", &[]).platform.fabric;
    let half = |key: &str, ns: f64| format!("fabric.{key}={}ns", ns / 2.0);
    // The unit is held while the dispatch unit delivers, so its cost includes both.
    let (remap, dispatch) = (constants.remap_service.ps() as f64 / 1e3, constants.dispatch.ps() as f64 / 1e3);
    let now = run(Remapped, &[&half("remap_service", remap), &half("dispatch", dispatch)]);
    assert!(ratio(&before, &now) > 1.1, "{:.3} times, now {}", ratio(&before, &now), now.bottleneck);
}

#[test]
fn where_it_is_the_drive_link_doubling_it_helps() {
    for sets in [&["job.bs=16k"][..], &[]] {
        let before = run(Posted, sets);
        assert_eq!(before.bottleneck.bottleneck, DRIVE_LINK, "{sets:?}: {}", before.bottleneck);
        let now = run(Posted, &[sets, &["drive.gen5.link=26.6GB/s"]].concat());
        assert!(ratio(&before, &now) > 1.05, "{:.3} times, now {}", ratio(&before, &now), now.bottleneck);
    }
}

#[test]
fn where_it_is_the_cpu_halving_its_costs_helps() {
    let slow = run(Posted, &["cpu.scale=2"]);
    assert_eq!(slow.bottleneck.bottleneck, Bottleneck::Cpu, "{}", slow.bottleneck);
    let now = run(Posted, &["cpu.scale=1"]);
    assert!(ratio(&slow, &now) > 1.2, "{:.3} times, now {}", ratio(&slow, &now), now.bottleneck);
    let other = run(Posted, &["cpu.scale=2", "drive.gen5.link=26.6GB/s"]);
    assert!(ratio(&slow, &other) < 1.03, "twice the link: {:.3} times", ratio(&slow, &other));
}

#[test]
fn where_it_is_none_nothing_of_it_helps() {
    let before = run(Remapped, &["job.iodepth=4"]);
    assert_eq!(before.bottleneck.bottleneck, Bottleneck::None, "{}", before.bottleneck);
    for other in ["drive.gen5.link=26.6GB/s", "fabric.remap_service=28ns", "cpu.scale=0.5"] {
        let now = run(Remapped, &["job.iodepth=4", other]);
        assert!(ratio(&before, &now) < 1.05, "{other}: {:.3} times", ratio(&before, &now));
    }
}
