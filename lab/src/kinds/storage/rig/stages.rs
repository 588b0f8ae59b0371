//! The course of an experiment with phases: each phase is measured from its first job's beginning, or the end of its
//! ramp, to its last job's end.

use super::StorageRig;
use super::buckets::Buckets;
use super::course::{CourseParts, End, Event, Starter};
use super::measure::{Measured, Snapshot};
use super::tally::{Counts, Latencies, Tally};
use crate::interrupt::StopFlag;
use crate::kinds::storage::StorageOutcome;
use crate::outcome::Timeline;
use crate::run::span::{Moment, Span};
use crate::run::{RunError, Stage};
use hal::Hal as _;
use machine::time::Ps;
use machine::{RunEnd, SimHal};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// The longest simulated time of a run with phases or ends.
pub(crate) const RUN_NS_MAX: u64 = 600_000_000_000;
/// How long jobs have to end after they were told to.
const LAST_IOS_NS: u64 = 2_000_000_000;
/// Between two looks for Ctrl-C.
const LOOK_NS: u64 = 50_000_000;

/// A phase that is being measured.
struct Open {
    phase: u32,
    start: Option<(Snapshot, Moment)>,
    /// When its ramp ends.
    counts_from_ns: Option<u64>,
    ramp_ns: u64,
    /// Its I/Os over time, since the end of its ramp.
    buckets: Buckets,
}

impl StorageRig {
    /// Runs phase after phase. The last stage is the whole run.
    pub(super) fn run_phases(
        &mut self,
        starter: &Arc<Starter>,
        course: &CourseParts,
        stop: &StopFlag,
    ) -> Result<Vec<Stage<StorageOutcome>>, RunError> {
        let whole = self.moment();
        let limit_ns = SimHal.now_ns() + RUN_NS_MAX;
        let latencies: Mutex<BTreeMap<u32, Arc<Mutex<Latencies>>>> = Mutex::default();
        let of_phase = |phase: u32| {
            let new = || Arc::new(Mutex::new(Latencies::new()));
            latencies.lock().expect("one thread").entry(phase).or_insert_with(new).clone()
        };
        let (mut open, mut stages): (Vec<Open>, Vec<Stage<StorageOutcome>>) = (Vec::new(), Vec::new());
        let mut told_ns = None;
        while !starter.is_over() {
            for event in starter.release(course, of_phase).map_err(RunError::Setup)? {
                let Event::Begins(phase, ramp_ns) = event;
                let counts_from_ns = (ramp_ns > 0).then(|| SimHal.now_ns() + ramp_ns);
                let buckets = Buckets::new(SimHal.now_ns(), self.ios_of(phase));
                open.push(Open { phase, start: Some(self.moment()), counts_from_ns, ramp_ns, buckets });
            }
            if starter.is_over() {
                break;
            }
            let now_ns = SimHal.now_ns();
            let next_ns = |open: &Open| open.counts_from_ns.unwrap_or(open.buckets.next_ns());
            let next_ns = open.iter().map(next_ns).chain(starter.next_ns()).min();
            let until_ns = next_ns.unwrap_or(u64::MAX).min(now_ns + LOOK_NS);
            let end = self.hardware.machine.run_until(Ps::from_ns(until_ns));
            let now_ns = SimHal.now_ns();
            for at in &mut open {
                let ios = self.ios_of(at.phase);
                match at.counts_from_ns {
                    Some(ns) if ns > now_ns => {}
                    Some(_) => {
                        at.counts_from_ns = None;
                        at.start = Some(self.moment());
                        at.buckets = Buckets::new(now_ns, ios);
                    }
                    None => at.buckets.look(now_ns, ios),
                }
                if at.counts_from_ns.is_none() {
                    starter.stop_together(at.phase, ios);
                }
            }
            let phases: Vec<u32> = open.iter().map(|open| open.phase).collect();
            for phase in starter.ended_phases(&phases) {
                let index = open.iter().position(|open| open.phase == phase).expect("it is open");
                let Open { start, ramp_ns, buckets, .. } = open.remove(index);
                let latencies = latencies.lock().expect("one thread").remove(&phase).expect("it has begun");
                self.latencies.push(latencies.clone());
                let mut stage = self.stage(Some(phase), start.expect("it has begun"), latencies);
                stage.timeline = self.timeline(phase, ramp_ns, buckets, &stage.span);
                stages.push(stage);
            }
            let is_stuck = !matches!(end, RunEnd::Time | RunEnd::Quiet) && !starter.is_over();
            if is_stuck || told_ns.is_some_and(|told_ns| now_ns > told_ns + LAST_IOS_NS) {
                return Err(RunError::Stuck { at_ns: now_ns, end });
            }
            if told_ns.is_none() && (stop.is_set() || now_ns >= limit_ns) {
                told_ns = Some(now_ns);
                starter.stop();
            }
        }
        let all = self.all_latencies();
        let whole = self.stage(None, whole, all);
        stages.push(whole);
        Ok(stages)
    }

    /// I/Os that the jobs of a phase have counted.
    fn ios_of(&self, phase: u32) -> u64 {
        let jobs = self.storage.jobs.iter().zip(&self.tally.jobs);
        let own = jobs.filter(|(job, _)| job.load.as_ref().is_some_and(|load| load.start.phase == phase));
        own.map(|(_, counts)| counts.lock().expect("the machine stands still").ios()).sum()
    }

    /// True if every job of a phase runs to its own end: a longer span would change nothing.
    fn ends_itself(&self, phase: u32) -> bool {
        let mut own = self.storage.jobs.iter().filter_map(|job| job.load.as_ref());
        own.all(|load| load.start.phase != phase || load.ends.stand_in_ns.is_none())
    }

    /// What is known of a phase over its span.
    fn timeline(&self, phase: u32, ramp_ns: u64, buckets: Buckets, span: &Span) -> Timeline {
        let stands_for_ns = self.stands_for_ns(phase, span.ps() / 1000);
        Timeline { stands_for_ns, is_phase: true, ..buckets.timeline(ramp_ns, self.ends_itself(phase)) }
    }

    /// The time that a phase stands for, which lasted `span_ns`: the longest runtime of its jobs that were stopped, or what it
    /// lasted. None if a job was stopped that has no runtime.
    fn stands_for_ns(&self, phase: u32, span_ns: u64) -> Option<u64> {
        let jobs = self.storage.jobs.iter().zip(&self.tally.jobs);
        let stopped = jobs.filter_map(|(job, counts)| {
            let ends = job.load.as_ref().filter(|load| load.start.phase == phase).map(|load| load.ends.runtime_ns)?;
            (counts.lock().expect("the machine stands still").end == Some(End::Span)).then_some(ends)
        });
        let runtimes: Option<Vec<u64>> = stopped.collect();
        Some(runtimes?.into_iter().fold(span_ns, u64::max))
    }

    fn moment(&mut self) -> (Snapshot, Moment) {
        let snapshot = Snapshot::take(&mut self.hardware, &self.host);
        (snapshot, Moment::of(&self.hardware.machine))
    }

    /// What happened since `start`, of one phase or of all.
    fn stage(
        &mut self,
        phase: Option<u32>,
        (start, began): (Snapshot, Moment),
        latencies: Arc<Mutex<Latencies>>,
    ) -> Stage<StorageOutcome> {
        let (end, now) = self.moment();
        let span = Span { start: began, end: now };
        let none = Counts::default();
        let is_meant = |job: &crate::kinds::storage::JobPlan| {
            phase.is_none_or(|phase| job.load.as_ref().is_some_and(|load| load.start.phase == phase))
        };
        let jobs = self.storage.jobs.iter().zip(&self.tally.jobs);
        // Those that never begin have no phase; their ends are told with the others.
        let never_begun = |counts: &Counts| counts.lock().expect("the machine stands still").ran_ns() == Some(0);
        let counts_of = |(job, counts): (_, &Counts)| match is_meant(job) || never_begun(counts) {
            true => counts.clone(),
            false => none.clone(),
        };
        let jobs = jobs.map(counts_of).collect();
        // Threads are measured apart over the whole run.
        let has_one = self.storage.jobs.iter().flat_map(|job| &job.load).all(|load| load.start.phase == 0);
        let meters = if phase.is_none() || has_one { self.tally.meters.clone() } else { Vec::new() };
        let cpu_ns = if phase.is_none() { std::mem::take(&mut self.cpu_ns) } else { Vec::new() };
        let tally = Tally { jobs, latencies, meters, cpu_ns };
        let measured = Measured {
            plan: &self.plan,
            storage: &self.storage,
            hardware: &self.hardware,
            span: &span,
            start: &start,
            end: &end,
        };
        let counted = measured.outcome(&self.host, &tally);
        if phase.is_some() && !has_one {
            let ios: Vec<u64> =
                tally.jobs.iter().map(|job| job.lock().expect("the machine stands still").ios()).collect();
            let shares = measured.shared_cpus(&ios);
            self.cpu_ns.resize(shares.len(), [0; 2]);
            let sums = self.cpu_ns.iter_mut().flatten();
            sums.zip(shares.into_iter().flatten()).for_each(|(sum, ns)| *sum += ns);
        }
        let mut names: Vec<&str> = Vec::new();
        for load in self.storage.jobs.iter().filter(|job| is_meant(job)).filter_map(|job| job.load.as_ref()) {
            if !names.contains(&load.start.section.as_str()) {
                names.push(&load.start.section);
            }
        }
        Stage { name: names.join(", "), span, timeline: Timeline::default(), counted }
    }

    fn all_latencies(&mut self) -> Arc<Mutex<Latencies>> {
        let mut all = Latencies::new();
        for latencies in std::mem::take(&mut self.latencies) {
            all.add(&latencies.lock().expect("the machine stands still"));
        }
        Arc::new(Mutex::new(all))
    }
}
