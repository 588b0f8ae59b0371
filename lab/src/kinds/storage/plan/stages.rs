//! Which jobs run to their own end, which are stopped after a simulated span, and what begins when.
//!
//! Jobs that end by themselves run to that end, the shortest first, up to [`COMMANDS_MAX`] commands together. Every other job runs for the
//! simulated span, which stands for its runtime. All jobs of a file that has stages share [`SPANS_MAX`] such spans.
//!
//! A paced job needs longer than the span for a few I/Os, and one with an end of its own may need longer too. Those that are stopped
//! run beside them until they have had what they need (`rig/course/starter.rs`): they do so on the server that is meant.

use crate::input::{InputError, Warning};
use crate::kinds::storage::Storage;
use crate::kinds::storage::load::{DIRECTIONS, Load};
use crate::kinds::storage::rig::RUN_NS_MAX;
use crate::plan::Spans;
use crate::platform::{Platform, Unit};
use crate::setting::Setting;
use std::collections::{BTreeMap, BTreeSet};

use super::IoEngine;
use super::turn::commands;

/// Commands that are simulated to their jobs' own ends, of all jobs together: about a second of host time. A long I/O is many.
const COMMANDS_MAX: u64 = 200_000;
/// Spans that the phases of one run take together.
const SPANS_MAX: u64 = 8;
/// The least I/Os that a paced job is given.
const PACED_IOS_MIN: f64 = 200.0;
/// A span that has so many pauses of a job that thinks has what its whole runtime has.
const CYCLES_MIN: u64 = 4;
/// Else it has at most so many of them, and no longer than this, but one in any case.
const CYCLES_MAX: u64 = 8;
const CYCLES_NS: u64 = 4_000_000_000;
/// The longest time between pauses that is simulated.
const CYCLE_NS_MAX: u64 = Spans::WHOLE_MAX_NS;
/// What an I/O at depth 1 is taken to last where pauses are counted in I/Os.
const IO_NS: u64 = 100_000;
/// The shortest simulated span of a phase, ramp included.
const SPAN_MIN_NS: u64 = 200_000;

/// Settles how each job of `storage` begins and ends.
///
/// # Errors
/// A job waits for a section that does not exist.
pub(super) fn settle(
    storage: &mut Storage,
    platform: &Platform,
    spans: &Spans,
    warnings: &mut Vec<Warning>,
) -> Result<(), InputError> {
    number_phases(storage)?;
    storage.verify_data |= storage.jobs.iter().filter_map(|job| job.load.as_ref()).any(|load| load.verify.checks);
    let mut own_end = own_ends(storage, platform);
    warn_of_cut_ends(storage, platform, &own_end, warnings);
    let runtimes = storage.jobs.iter().filter_map(|job| job.load.as_ref()?.ends.runtime_ns);
    let longest_ns = runtimes.max().unwrap_or(0);
    let has_stages = storage.jobs.iter().any(|job| {
        job.load.as_ref().is_some_and(|load| {
            let start = &load.start;
            start.phase > 0
                || start.delay_ns.1 > 0
                || start.wait_for.is_some()
                || load.ends_by_share()
                || load.ends_by_check()
                || is_short(load, spans, longest_ns)
        })
    });
    let has_own_ends = own_end.contains(&true);
    stop_the_paced(storage, &mut own_end);
    let whole_ns = spans.ramp_ns + spans.measured_ns;
    let mut phases = Phase::all(storage, &own_end, whole_ns).into_values();
    storage.staged = has_stages || has_own_ends || phases.any(|phase| phase.wanted_ns[1] > whole_ns);
    let factor = common_factor(storage, &own_end, spans);
    if factor.is_none() {
        warn_of_runtimes(storage, spans, warnings);
    }
    if !storage.staged {
        drop_plain(storage);
        // All are counted from the end of the simulated ramp on, and none from a ramp of its own, which is a part of its time then.
        for ends in storage.jobs.iter_mut().filter_map(|job| Some(&mut job.load.as_mut()?.ends)) {
            let ramp_ns = std::mem::take(&mut ends.ramp_ns);
            ends.runtime_ns = ends.runtime_ns.map(|ns| ns.saturating_add(ramp_ns));
        }
        return Ok(());
    }
    stop(storage, &own_end, (spans, factor), warnings);
    bring_delays_forward(storage, warnings);
    Ok(())
}

/// The longest delay that is simulated: half of what a run may last.
const DELAY_NS_MAX: u64 = RUN_NS_MAX / 2;

/// A delay beyond the longest run would leave its job without an I/O: all delays are shortened alike.
fn bring_delays_forward(storage: &mut Storage, warnings: &mut Vec<Warning>) {
    let longest_ns = storage.jobs.iter().filter_map(|job| job.load.as_ref()).map(|load| load.start.delay_ns.1).max();
    let Some(longest_ns) = longest_ns.filter(|&ns| ns > DELAY_NS_MAX) else { return };
    let scaled = |ns: u64| (u128::from(ns) * u128::from(DELAY_NS_MAX) / u128::from(longest_ns)) as u64;
    for job in &mut storage.jobs {
        let Some(load) = job.load.as_mut().filter(|load| load.start.delay_ns.1 > 0) else { continue };
        load.start.delay_ns = (scaled(load.start.delay_ns.0), scaled(load.start.delay_ns.1));
        let meaning = format!("shortened with all others: the longest one is {} s here", DELAY_NS_MAX / 1_000_000_000);
        warnings.push(Warning { place: job.source.clone(), key: "startdelay".into(), meaning });
    }
}

/// Sets when the jobs are stopped that do not run to their own end.
fn stop(storage: &mut Storage, own_end: &[bool], (spans, factor): (&Spans, Option<f64>), warnings: &mut Vec<Warning>) {
    let whole_ns = spans.ramp_ns + spans.measured_ns;
    let limited_phases = Phase::all(storage, own_end, whole_ns).len() as u64;
    let share = limited_phases.div_ceil(SPANS_MAX).max(1);
    let span_ns = (whole_ns / share).max(SPAN_MIN_NS.min(whole_ns));
    let ramp_ns = (u128::from(span_ns) * u128::from(spans.ramp_ns) / u128::from(whole_ns.max(1))) as u64;
    let asked_ns = spans.asked_runtime_ns.map_or(0, |ns| ns + spans.asked_ramp_ns);
    let all_limited = !own_end.contains(&true);
    let phases = Phase::all(storage, own_end, span_ns);
    for (job, own) in storage.jobs.iter_mut().zip(own_end) {
        let directions = Load::directions(&job.pattern);
        let Some(load) = job.load.as_mut() else { continue };
        let uneven = phases.get(&load.start.phase).filter(|phase| phase.is_uneven(span_ns));
        if *own {
            // Its pace takes the time, so a part of it stands for the rest.
            let is_paced = load.ios_per_second(directions).is_some();
            load.ends.together_ns = uneven.filter(|_| is_paced).map(|_| span_ns + load.ends.ramp_ns);
            continue;
        }
        let (own_ns, wanted_ns) = (own_ns(load), wanted_ns(load, directions, job.iodepth, span_ns));
        let shared_ns = if own_ns <= span_ns { load.ends.ramp_ns } else { ramp_ns };
        // Beside jobs that run to their own end it counts when they do: their ramps are not shortened.
        // One that begins after their ramps needs none, and a longer ramp takes nothing of a runtime.
        let whole_ramp = uneven.and_then(|phase| phase.ramp_ns).filter(|&ns| load.start.delay_ns.0 < ns.max(1));
        let own_ramp_ns = load.ends.ramp_ns;
        load.ends.ramp_ns = whole_ramp.unwrap_or(shared_ns);
        let longer_ns = load.ends.ramp_ns.saturating_sub(shared_ns);
        let most_ns = own_ns.saturating_add(load.ends.ramp_ns.saturating_sub(own_ramp_ns));
        let least_ns = (span_ns + longer_ns).min(most_ns);
        load.ends.stand_in_ns = Some(match factor {
            Some(factor) => ((own_ns as f64 * factor) as u64).max(SPAN_MIN_NS),
            None => wanted_ns.max(least_ns),
        });
        load.ends.together_ns = uneven.filter(|_| factor.is_none()).map(|_| least_ns);
        // A delay is shortened as the runtime is.
        let stands_ns = uneven.map_or(span_ns, |phase| phase.wanted_ns[1]);
        if asked_ns <= stands_ns {
            continue;
        }
        let scaled = |ns: u64| match factor {
            Some(factor) => (ns as f64 * factor) as u64,
            None => (u128::from(ns) * u128::from(stands_ns) / u128::from(asked_ns)) as u64,
        };
        let mut tell = |key: &str, meaning: &str| {
            warnings.push(Warning { place: job.source.clone(), key: key.into(), meaning: meaning.to_owned() });
        };
        if all_limited && load.start.delay_ns.1 > 0 {
            tell("startdelay", SHORTENED);
            load.start.delay_ns = (scaled(load.start.delay_ns.0), scaled(load.start.delay_ns.1));
        }
        // What is judged over seconds is not within a span of milliseconds.
        let [bytes, ios] = [load.pace.bytes_min, load.pace.ios_min]
            .map(|least| least.iter().any(|&least| least > 0) && load.pace.cycle_ns >= stands_ns);
        let judged = [("steadystate", load.ends.steady.is_some()), ("rate_min", bytes), ("rate_iops_min", ios)];
        judged.into_iter().filter(|(_, is_judged)| *is_judged).for_each(|(key, _)| tell(key, NOT_JUDGED));
        // So many windows judge the depth as in the whole runtime.
        if let Some(target) = load.pace.target.as_mut().filter(|target| target.window_ns > WINDOW_MIN_NS) {
            tell("latency_window", SHORTENED);
            target.window_ns = scaled(target.window_ns).max(WINDOW_MIN_NS);
        }
    }
}

/// A warning where jobs are simulated for longer than the duration that is set, or none of them for so long.
pub(super) fn other_duration(storage: &Storage, spans: &Spans, duration: &Setting) -> Option<Warning> {
    if !storage.staged {
        return None;
    }
    let loads = || storage.jobs.iter().filter_map(|job| job.load.as_ref());
    let counted_ns = |load: &Load| Some(load.ends.stand_in_ns?.saturating_sub(load.ends.ramp_ns));
    let meaning = match loads().filter_map(|load| counted_ns(load)).max() {
        None => "has no effect: each job runs to its own end".to_owned(),
        Some(ns) if ns > spans.measured_ns => {
            let thinks = storage.jobs.iter().any(|job| {
                let cycle_ns = job.load.as_ref().and_then(|load| cycle_ns(load, job.iodepth));
                cycle_ns.is_some_and(|ns| ns > spans.measured_ns)
            });
            let has = if thinks { "a job that thinks has its pauses" } else { "a paced job has its 200 I/Os" };
            format!("not kept: {} are simulated, in which {has}", Unit::Time.format(ns as f64))
        }
        _ => return None,
    };
    Some(Warning { place: duration.place.clone(), key: duration.key.clone(), meaning })
}

const SHORTENED: &str = "shortened as the runtime is";
const NOT_JUDGED: &str =
    "not judged: the simulated span is too short; --set duration=runtime simulates the runtime, up to 10 s";

/// The shortest window of a latency target that a window is shortened to: some tens of I/Os one at a time.
const WINDOW_MIN_NS: u64 = 1_000_000;

/// What the jobs of a phase need, some of which are stopped.
struct Phase {
    /// The shortest and the longest time that those are given that are stopped.
    wanted_ns: [u64; 2],
    /// The longest ramp of those that run to their own end, if there are any.
    ramp_ns: Option<u64>,
}

impl Phase {
    /// The phases of jobs that are stopped, after `span_ns` or when a paced one has its I/Os.
    fn all(storage: &Storage, own_end: &[bool], span_ns: u64) -> BTreeMap<u32, Self> {
        let mut phases: BTreeMap<u32, Self> = BTreeMap::new();
        let jobs = || storage.jobs.iter().zip(own_end).filter_map(|(job, own)| Some((job, job.load.as_deref()?, *own)));
        for (job, load, _) in jobs().filter(|(.., own)| !own) {
            let ns = wanted_ns(load, Load::directions(&job.pattern), job.iodepth, span_ns);
            let phase = phases.entry(load.start.phase).or_insert(Self { wanted_ns: [ns; 2], ramp_ns: None });
            let [least_ns, most_ns] = phase.wanted_ns;
            phase.wanted_ns = [least_ns.min(ns), most_ns.max(ns)];
        }
        for (_, load, _) in jobs().filter(|(.., own)| *own) {
            if let Some(phase) = phases.get_mut(&load.start.phase) {
                phase.ramp_ns = phase.ramp_ns.max(Some(load.ends.ramp_ns));
            }
        }
        phases
    }

    /// True if its jobs do not need the same time. They are stopped together then: else some would run beside nothing.
    fn is_uneven(&self, span_ns: u64) -> bool {
        let [least_ns, most_ns] = self.wanted_ns;
        self.ramp_ns.is_some() || (most_ns > span_ns && least_ns < most_ns)
    }
}

/// The simulated time that a job needs which is stopped: `span_ns`, or what a paced one takes to its I/Os or to some of its pauses, up to
/// its runtime.
fn wanted_ns(load: &Load, directions: [bool; DIRECTIONS], iodepth: u32, span_ns: u64) -> u64 {
    let rate = load.ios_per_second(directions);
    let paced_ns = rate.map_or(0, |rate| (PACED_IOS_MIN / rate * 1e9) as u64);
    let cycle_ns = cycle_ns(load, iodepth).filter(|&ns| ns > span_ns / CYCLES_MIN && ns <= CYCLE_NS_MAX);
    let cycles_ns = cycle_ns.map_or(0, |ns| span_ns + ns * (CYCLES_NS / ns).clamp(1, CYCLES_MAX));
    span_ns.max(paced_ns).max(cycles_ns).min(own_ns(load))
}

/// The time from one pause of a job that thinks to the next; none if it does not.
fn cycle_ns(load: &Load, iodepth: u32) -> Option<u64> {
    let pace = &load.pace;
    let pause_ns = pace.think_ns.max(pace.think_spin_ns);
    if pause_ns == 0 {
        return None;
    }
    let blocks = pace.think_blocks.map(|blocks| u64::from(blocks) * IO_NS / u64::from(iodepth).max(1));
    let every = (pace.think_every_ns > 0).then_some(pace.think_every_ns);
    Some(pause_ns + blocks.into_iter().chain(every).min()?)
}

/// The runtime of a job, ramp included; the longest time without one.
fn own_ns(load: &Load) -> u64 {
    load.ends.runtime_ns.map_or(u64::MAX, |ns| ns.saturating_add(load.ends.ramp_ns))
}

/// A job that its runtime ends, at its pace, is stopped where those beside it are: the time that is simulated is one for all.
fn stop_the_paced(storage: &Storage, own_end: &mut [bool]) {
    let phase_of = |job: &super::JobPlan| job.load.as_ref().map(|load| load.start.phase);
    let is_stopped = |(job, own): (&super::JobPlan, &bool)| phase_of(job).filter(|_| !own);
    let stopped: BTreeSet<u32> = storage.jobs.iter().zip(&*own_end).filter_map(is_stopped).collect();
    for (job, own) in storage.jobs.iter().zip(own_end) {
        let Some(load) = job.load.as_ref() else { continue };
        *own &= !(stopped.contains(&load.start.phase) && load.ends_by_pace(Load::directions(&job.pattern)));
    }
}

/// A job without a runtime that takes more I/Os to its end than are simulated says so.
fn warn_of_cut_ends(storage: &Storage, platform: &Platform, own_end: &[bool], warnings: &mut Vec<Warning>) {
    for (job, _) in storage.jobs.iter().zip(own_end).filter(|(_, own)| !**own) {
        let Some(load) = job.load.as_ref().filter(|load| load.ends.runtime_ns.is_none()) else { continue };
        let Some(ios) = load.own_ios(Load::directions(&job.pattern)) else { continue };
        let (each, counted) = match commands(job, storage, platform) {
            1 => (String::new(), "I/Os"),
            commands => (format!(" of {commands} commands"), "commands"),
        };
        let verified = if load.verify.after { ", and it has no read that verifies" } else { "" };
        let meaning = format!(
            "the job would end after {ios} I/Os{each}; a simulated span stands for it, since jobs run to their ends up to \
             {COMMANDS_MAX} {counted} together{verified}",
        );
        let ends = &load.ends;
        let is_counted = ends.number_ios > 0 && ends.number_ios.saturating_mul(ends.loops.max(1)) <= ios;
        let key = match () {
            () if load.replay.is_some() => "read_iolog",
            () if is_counted => "number_ios",
            () if ends.io_size.is_some() => "io_size",
            () => "size",
        };
        warnings.push(Warning { place: job.source.clone(), key: key.into(), meaning });
    }
}

/// True if the runtime of a job ends before the simulated span does. A plain job fills the span, unless others run for longer.
fn is_short(load: &Load, spans: &Spans, longest_ns: u64) -> bool {
    let least_ns = spans.measured_ns.min(longest_ns);
    match load.is_plain() {
        true => load.ends.runtime_ns.is_some_and(|ns| ns < least_ns),
        false => own_ns(load) < spans.ramp_ns + spans.measured_ns,
    }
}

/// What the times of a file with delays are shortened by, so that the same jobs run at the same time as in the file. None where a simulated
/// span stands for the runtime of each.
fn common_factor(storage: &Storage, own_end: &[bool], spans: &Spans) -> Option<f64> {
    let loads = || storage.jobs.iter().filter_map(|job| job.load.as_deref());
    let whole_ns = spans.ramp_ns + spans.measured_ns;
    let (shortest_ns, longest_ns) = (loads().map(own_ns).min()?, loads().map(own_ns).max()?);
    let is_meant = !own_end.contains(&true) && loads().any(|load| load.start.delay_ns.1 > 0);
    let wanted_ns = Phase::all(storage, own_end, whole_ns).into_values().map(|phase| phase.wanted_ns[1]).max()?;
    let is_shortened = shortest_ns > wanted_ns && shortest_ns < longest_ns && longest_ns < u64::MAX;
    let shortened = |ns: u64, spans: u64| (wanted_ns * spans) as f64 / ns as f64;
    (is_meant && is_shortened).then(|| shortened(shortest_ns, 1).min(shortened(longest_ns, SPANS_MAX)))
}

/// Of jobs with unlike runtimes the span has those alone that all have.
fn warn_of_runtimes(storage: &Storage, spans: &Spans, warnings: &mut Vec<Warning>) {
    let runtime_ns = |job: &super::JobPlan| {
        let load = job.load.as_ref()?;
        Some((load.start.phase, load.ends.runtime_ns.filter(|&ns| ns > spans.measured_ns)?))
    };
    let mut longest: BTreeMap<u32, u64> = BTreeMap::new();
    for (phase, ns) in storage.jobs.iter().filter_map(runtime_ns) {
        let most_ns = longest.entry(phase).or_default();
        *most_ns = ns.max(*most_ns);
    }
    for job in &storage.jobs {
        let Some((phase, ns)) = runtime_ns(job).filter(|(phase, ns)| *ns < longest[phase]) else { continue };
        let [own, most] = [ns, longest[&phase]].map(|ns| Unit::Time.format(ns as f64));
        let meaning = format!(
            "{own}, and others run for {most}: the simulated span stands for the time in which all of them run; --set \
             duration=runtime simulates its end too, up to 10 s"
        );
        warnings.push(Warning { place: job.source.clone(), key: "runtime".into(), meaning });
    }
}

/// The jobs that run to their own end: those with the fewest commands, as many as [`COMMANDS_MAX`] allows together.
fn own_ends(storage: &Storage, platform: &Platform) -> Vec<bool> {
    let cost = |job: &super::JobPlan| {
        let ios = job.load.as_ref()?.own_ios(Load::directions(&job.pattern))?;
        Some(ios.saturating_mul(commands(job, storage, platform)))
    };
    let mut ending: Vec<(u64, usize)> =
        storage.jobs.iter().enumerate().filter_map(|(index, job)| Some((cost(job)?, index))).collect();
    ending.sort_unstable();
    let (mut own_end, mut together) = (vec![false; storage.jobs.len()], 0u64);
    for (commands, index) in ending {
        together = together.saturating_add(commands);
        own_end[index] = together <= COMMANDS_MAX;
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
