//! Where a fit begins: what the kernel states, and guesses from what was measured.

use super::DRIVE;
use super::cpu;
use super::facts::Fact;
use super::fit::of_base;
use super::gather::Measurement;
use super::shape::GUESS;
use super::write::{self, Own};
use crate::kinds::storage::IoEngine;
use crate::platform::Platform;
use std::collections::BTreeMap;

/// A value for each constant that the facts state, or that the fit should begin near.
pub(super) fn starts(
    measurements: &[Measurement],
    base: &Platform,
    facts: &[Fact],
    online: Option<u32>,
) -> BTreeMap<String, Own> {
    let mut starts = BTreeMap::new();
    for fact in facts {
        starts.insert(
            write::fact_key(fact),
            Own { value: fact.value, reason: format!("stated: {}", fact.reason), ..Own::default() },
        );
    }
    let mut guess = |key: String, value: f64| {
        starts.entry(key).or_insert_with(|| Own { value, reason: GUESS.to_owned(), ..Own::default() });
    };
    let of_drive = |name: &str| format!("drive.{DRIVE}.{name}");
    let least_clat = |direction: usize| {
        let clats = measurements.iter().filter_map(|measurement| measurement.clat_ns_of(direction));
        Some(clats.fold(f64::INFINITY, f64::min)).filter(|least| least.is_finite())
    };
    for (direction, name) in ["media_mean", "write_cached", "deallocate"].into_iter().enumerate() {
        if let Some(least) = least_clat(direction) {
            guess(of_drive(name), (least - SOFTWARE_NS).max(least / 2.0));
        }
    }
    // A rate a little above what was seen, so that the limit shows in the runs. It is seen where I/Os wait for each other;
    // elsewhere the drive may be as fast as the base's.
    let mut rate = |name: &str, of: &dyn Fn(&Measurement) -> Option<f64>, is_time: bool| {
        let each = measurements.iter().filter_map(|one| Some((of(one)? / one.drives().max(1) as f64, one)));
        let Some((seen, by)) = each.filter(|(rate, _)| *rate > 0.0).max_by(|a, b| a.0.total_cmp(&b.0)) else { return };
        let waits = |direction| {
            by.clat_ns_of(direction).zip(least_clat(direction)).is_some_and(|(clat, least)| clat > 2.0 * least)
        };
        let known = of_base(base, &of_drive(name)).filter(|_| !waits(0) && !waits(1));
        let start = if is_time { 1e9 / seen / 1.1 } else { seen * 1.1 };
        let start = known.map_or(start, |known| if is_time { start.min(known) } else { start.max(known) });
        guess(of_drive(name), start);
    };
    let written = |one: &Measurement, random: bool| {
        let is_so = !one.reads() && one.sections.iter().all(|section| section.pattern.random == random);
        (one.writes() && is_so).then(|| payload_bps(one))
    };
    rate("link", &|one| Some(payload_bps(one)), false);
    rate("fetch", &|one| Some(one.fio.iops()), true);
    rate("write_random", &|one| written(one, true), false);
    rate("write_sequential", &|one| written(one, false), false);
    let is_uring = |measurement: &Measurement| {
        measurement.sections.iter().any(|section| matches!(section.engine, IoEngine::IoUring { .. }))
    };
    let (submit, user, complete) = match measurements.iter().any(is_uring) {
        true => ("submit_uring", "user_uring", base.cpu.complete_uring.value),
        false => ("submit_aio", "user_aio", base.cpu.complete_aio.value),
    };
    if let Some([in_user, in_kernel]) = online.and_then(|cpus| cpu_ns_an_io(measurements, cpus)) {
        guess(format!("cpu.{user}"), in_user.max(50.0));
        guess(format!("cpu.{submit}"), (in_kernel - complete - INTERRUPT_NS).max(in_kernel / 4.0).max(50.0));
    }
    starts
}

/// Bytes a second that its I/Os moved. fio counts those that trims name as bandwidth; no link carries them.
fn payload_bps(measurement: &Measurement) -> f64 {
    measurement.fio.jobs.iter().flat_map(|job| &job.directions[..2]).map(|direction| direction.bandwidth_bps).sum()
}

/// CPU time of an I/O in user mode and in the kernel, of the measurement with the most I/Os that says it.
fn cpu_ns_an_io(measurements: &[Measurement], cpus: u32) -> Option<[f64; 2]> {
    let cpus_of = |measurement: &Measurement| measurement.cpus_of_shares(Some(cpus)).unwrap_or(cpus);
    let busy = |one: &&Measurement| one.cpu.is_some() && !cpu::has_other_work(one, cpus_of(one));
    let most = measurements.iter().filter(busy).max_by(|a, b| a.fio.iops().total_cmp(&b.fio.iops()))?;
    let [user, system, irq, _] = most.cpu?;
    Some([user, system + irq].map(|percent| percent / 100.0 * f64::from(cpus_of(most)) * 1e9 / most.fio.iops()))
}

/// What an interrupt takes, shared by the I/Os that it completes: about one.
const INTERRUPT_NS: f64 = 500.0;

/// What software adds to the media's time at depth 1: submission, interrupt, completion.
pub(super) const SOFTWARE_NS: f64 = 6_000.0;
