//! Which jobs run to their own end, which are stopped after a simulated span, and what begins when.
//!
//! Jobs that end by themselves run to that end, the shortest first, up to [`IOS_MAX`] I/Os together. Every other job runs for the simulated span, which
//! stands for its runtime. All jobs of a file that has stages share [`SPANS_MAX`] such spans.

use crate::input::{InputError, Warning};
use crate::kinds::storage::Storage;
use crate::kinds::storage::load::Load;
use crate::plan::Spans;

use super::IoEngine;

/// I/Os that are simulated to their jobs' own ends, of all jobs together: about a second of host time.
const IOS_MAX: u64 = 200_000;
/// Spans that the phases of one run take together.
const SPANS_MAX: u64 = 8;
/// The least I/Os that a paced job is given.
const PACED_IOS_MIN: f64 = 200.0;
/// The shortest simulated span of a phase, ramp included.
const SPAN_MIN_NS: u64 = 200_000;

/// Settles how each job of `storage` begins and ends.
///
/// # Errors
/// A job waits for a section that does not exist.
pub(super) fn settle(storage: &mut Storage, spans: &Spans, warnings: &mut Vec<Warning>) -> Result<(), InputError> {
    number_phases(storage)?;
    storage.verify_data |= storage.jobs.iter().filter_map(|job| job.load.as_ref()).any(|load| load.verify.checks);
    let own_end = own_ends(storage);
    warn_of_cut_ends(storage, &own_end, warnings);
    let has_stages = storage.jobs.iter().any(|job| {
        job.load.as_ref().is_some_and(|load| {
            let start = &load.start;
            start.phase > 0
                || start.delay_ns.1 > 0
                || start.wait_for.is_some()
                || load.ends_by_share()
                || load.ends_by_check()
                || is_short(load, spans)
        })
    });
    storage.staged = has_stages || own_end.contains(&true);
    if !storage.staged {
        drop_plain(storage);
        return Ok(());
    }
    let mut limited_phases: Vec<u32> = Vec::new();
    for (job, own) in storage.jobs.iter().zip(&own_end) {
        let phase = job.load.as_ref().map_or(0, |load| load.start.phase);
        if !own && !limited_phases.contains(&phase) {
            limited_phases.push(phase);
        }
    }
    let share = (limited_phases.len() as u64).div_ceil(SPANS_MAX).max(1);
    let whole_ns = spans.ramp_ns + spans.measured_ns;
    let span_ns = (whole_ns / share).max(SPAN_MIN_NS.min(whole_ns));
    let ramp_ns = (u128::from(span_ns) * u128::from(spans.ramp_ns) / u128::from(whole_ns.max(1))) as u64;
    let asked_ns = spans.asked_runtime_ns.map_or(0, |ns| ns + spans.asked_ramp_ns);
    let all_limited = !own_end.contains(&true);
    for (job, own) in storage.jobs.iter_mut().zip(own_end) {
        let directions = Load::directions(&job.pattern);
        let Some(load) = job.load.as_mut().filter(|_| !own) else { continue };
        let paced_ns = load.ios_per_second(directions).map_or(0, |rate| (PACED_IOS_MIN / rate * 1e9) as u64);
        let own_ns = load.ends.runtime_ns.map_or(u64::MAX, |ns| ns.saturating_add(load.ends.ramp_ns));
        load.ends.stand_in_ns = Some(span_ns.max(paced_ns).min(own_ns));
        load.ends.ramp_ns = if own_ns <= span_ns { load.ends.ramp_ns } else { ramp_ns };
        // A delay is shortened as the runtime is.
        if all_limited && asked_ns > span_ns && load.start.delay_ns.1 > 0 {
            let scaled = |ns: u64| (u128::from(ns) * u128::from(span_ns) / u128::from(asked_ns)) as u64;
            let meaning = "shortened as the runtime is".to_owned();
            let warning = Warning { place: job.source.clone(), key: "startdelay".into(), meaning };
            // The clones of a section follow each other.
            if warnings.last() != Some(&warning) {
                warnings.push(warning);
            }
            load.start.delay_ns = (scaled(load.start.delay_ns.0), scaled(load.start.delay_ns.1));
        }
    }
    Ok(())
}

/// A job without a runtime that takes more I/Os to its end than are simulated says so.
fn warn_of_cut_ends(storage: &Storage, own_end: &[bool], warnings: &mut Vec<Warning>) {
    for (job, _) in storage.jobs.iter().zip(own_end).filter(|(_, own)| !**own) {
        let Some(load) = job.load.as_ref().filter(|load| load.ends.runtime_ns.is_none()) else { continue };
        let Some(ios) = load.own_ios(Load::directions(&job.pattern)) else { continue };
        let meaning = format!(
            "the job would end after {ios} I/Os; a simulated span stands for it, since jobs run to their ends up to {IOS_MAX} \
             I/Os together",
        );
        let warning = Warning { place: job.source.clone(), key: "size".into(), meaning };
        // The clones of a section follow each other.
        if warnings.last() != Some(&warning) {
            warnings.push(warning);
        }
    }
}

/// True if the runtime of a job ends before the simulated span does. A plain job fills the span.
fn is_short(load: &Load, spans: &Spans) -> bool {
    let own_ns = load.ends.runtime_ns.map_or(u64::MAX, |ns| ns.saturating_add(load.ends.ramp_ns));
    own_ns < spans.ramp_ns + spans.measured_ns && !load.is_plain()
}

/// The jobs that run to their own end: those with the fewest I/Os, as many as [`IOS_MAX`] allows together.
fn own_ends(storage: &Storage) -> Vec<bool> {
    let ios = |job: &super::JobPlan| job.load.as_ref()?.own_ios(Load::directions(&job.pattern));
    let mut ending: Vec<(u64, usize)> =
        storage.jobs.iter().enumerate().filter_map(|(index, job)| Some((ios(job)?, index))).collect();
    ending.sort_unstable();
    let (mut own_end, mut together) = (vec![false; storage.jobs.len()], 0u64);
    for (ios, index) in ending {
        together = together.saturating_add(ios);
        own_end[index] = together <= IOS_MAX;
    }
    own_end
}

/// A plain job needs no description of its load.
fn drop_plain(storage: &mut Storage) {
    for job in &mut storage.jobs {
        let is_plain = job.load.as_ref().is_some_and(|load| load.is_plain());
        if is_plain && job.engine != IoEngine::Null {
            job.load = None;
        }
    }
}

/// Numbers the phases: each `stonewall` begins one, and so does a section that waits for another.
fn number_phases(storage: &mut Storage) -> Result<(), InputError> {
    let sections: Vec<String> =
        storage.jobs.iter().filter_map(|job| job.load.as_ref()).map(|load| load.start.section.clone()).collect();
    let mut phases = 0;
    let mut last: Option<(String, u32)> = None;
    let mut walled = 0;
    for (index, job) in storage.jobs.iter_mut().enumerate() {
        let Some(load) = &mut job.load else { continue };
        // Sections may have the same name: the first thread of each begins it.
        let is_clone = load.files.clone > 0;
        let start = &mut load.start;
        if let Some((_, phase)) = last.as_ref().filter(|(section, _)| is_clone && *section == start.section) {
            start.phase = *phase;
            continue;
        }
        if start.stonewall && index > 0 {
            phases += 1;
            walled = phases;
            start.phase = phases;
        } else if let Some(section) = &start.wait_for {
            if !sections.contains(section) {
                let valid = "the name of a section of this file";
                return Err(InputError::value(&job.source, "wait_for", section, "is no section", valid));
            }
            phases += 1;
            start.phase = phases;
        } else {
            start.phase = walled;
        }
        last = Some((start.section.clone(), start.phase));
    }
    Ok(())
}
