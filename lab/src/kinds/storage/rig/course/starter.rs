//! Begins and ends the jobs of an experiment with phases, in the order in which fio's main loop (`run_threads`) does.

use super::random::{Seeds, Use};
use super::run::CourseParts;
use super::{Course, End};
use crate::kinds::storage::Storage;
use crate::kinds::storage::load::{EndsOthers, Load, Start};
use crate::kinds::storage::rig::job::{Job, JobParts};
use crate::kinds::storage::rig::tally::Latencies;
use crate::run::SetupError;
use hal::{Affinity, Hal as _, ThreadId, ThreadSpec, Threads as _};
use machine::SimHal;
use std::sync::{Arc, Mutex, MutexGuard};

/// A job that waits, runs or has ended.
struct Entry {
    start: Start,
    delay_ns: u64,
    exits_on_error: bool,
    exit_what: EndsOthers,
    ramp_ns: u64,
    /// What it is given if it is stopped: see [`crate::kinds::storage::load::Ends`].
    stand_in_ns: Option<u64>,
    together_ns: Option<u64>,
    begun_ns: Option<u64>,
    /// Taken when it begins.
    parts: Option<JobParts>,
    thread: Option<ThreadId>,
    /// Why it must end.
    stop: Option<End>,
    has_ended: bool,
}

impl Entry {
    /// Ends the job unless it has begun.
    fn never_begins(&mut self) {
        let Some(parts) = &self.parts else { return };
        let now_ns = SimHal.now_ns();
        let mut counts = parts.counts.lock().expect("the machine stands still");
        (counts.started_ns, counts.ended_ns, counts.end) = (Some(now_ns), Some(now_ns), Some(End::Stopped));
        self.has_ended = true;
    }

    /// When it has had what it is given, by the machine's clock; none of one that runs to its own end, or waits.
    fn served_ns(&self) -> Option<u64> {
        Some(self.begun_ns?.saturating_add(self.stand_in_ns?))
    }

    /// When it may be stopped with others of its phase.
    fn yields_ns(&self) -> Option<u64> {
        Some(self.begun_ns?.saturating_add(self.together_ns?))
    }
}

/// What has happened to a phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// Its first job begins; its ramp is so long.
    Begins(u32, u64),
}

/// The jobs of an experiment with phases.
pub(crate) struct Starter {
    jobs: Mutex<Vec<Entry>>,
    /// The beginning of the run.
    genesis_ns: u64,
    /// `exitall` of any job.
    exitall: bool,
    /// I/Os of a phase from which on its jobs no longer wait for each other.
    together_ios: u64,
}

impl Starter {
    /// The jobs of an experiment with phases, each with its load.
    pub(crate) fn new(storage: &Storage, seed: u64) -> Self {
        let entry = |(index, load): (usize, &Load)| Entry {
            start: load.start.clone(),
            delay_ns: delay_ns(load, index as u64 + 1, seed),
            exits_on_error: load.ends.exits_on_error,
            exit_what: load.ends.exit_what,
            ramp_ns: load.ends.ramp_ns,
            stand_in_ns: load.ends.stand_in_ns,
            together_ns: load.ends.together_ns,
            begun_ns: None,
            parts: None,
            thread: None,
            stop: None,
            has_ended: false,
        };
        let loads = || storage.jobs.iter().filter_map(|job| job.load.as_deref());
        let exitall = loads().any(|load| load.ends.exitall);
        let jobs = Mutex::new(loads().enumerate().map(entry).collect());
        Self { jobs, genesis_ns: SimHal.now_ns(), exitall, together_ios: storage.together_ios }
    }

    /// When the run began.
    pub(super) fn genesis_ns(&self) -> u64 {
        self.genesis_ns
    }

    /// The next job, in the order of the plan.
    pub(crate) fn add(&self, parts: JobParts) {
        let index = parts.index as usize;
        self.jobs()[index].parts = Some(parts);
    }

    /// Begins all jobs whose time has come. `latencies`: where those of a phase are counted. The machine stands still.
    ///
    /// # Errors
    /// A job's buffers do not fit the machine's memory, or it cannot run anywhere.
    pub(crate) fn release(
        &self,
        course: &CourseParts,
        latencies: impl Fn(u32) -> Arc<Mutex<Latencies>>,
    ) -> Result<Vec<Event>, SetupError> {
        let now_ns = SimHal.now_ns() - self.genesis_ns;
        let mut events = Vec::new();
        for index in self.startable(now_ns) {
            let (mut parts, phase, ramp_ns) = {
                let mut jobs = self.jobs();
                let phase = jobs[index].start.phase;
                let is_first = jobs.iter().all(|job| job.start.phase != phase || job.parts.is_some());
                let ramp_ns = jobs.iter().filter(|job| job.start.phase == phase).map(|job| job.ramp_ns).max();
                let parts = jobs[index].parts.take().expect("it waits");
                (parts, phase, is_first.then_some(ramp_ns.unwrap_or(0)))
            };
            if let Some(ramp_ns) = ramp_ns {
                events.push(Event::Begins(phase, ramp_ns));
            }
            parts.latencies = latencies(phase);
            let affinity = Affinity::Set(parts.plan.cpus.clone());
            let job = Course::new(Job::new(parts).map_err(SetupError::Memory)?, course);
            let spec = ThreadSpec { name: "job", affinity, urgent: false };
            let thread = SimHal.spawn(spec, Box::new(move || job.run())).map_err(SetupError::Spawn)?;
            let entry = &mut self.jobs()[index];
            (entry.thread, entry.begun_ns) = (Some(thread), Some(SimHal.now_ns()));
        }
        Ok(events)
    }

    /// The jobs that begin now.
    fn startable(&self, now_ns: u64) -> Vec<usize> {
        let mut jobs = self.jobs();
        let mut running = jobs.iter().filter(|job| job.parts.is_none() && !job.has_ended).count();
        let mut begin = Vec::new();
        for index in 0..jobs.len() {
            let job = &jobs[index];
            if job.parts.is_none() || job.has_ended {
                continue;
            }
            if job.stop.is_some() {
                jobs[index].never_begins();
                continue;
            }
            if job.delay_ns > now_ns {
                continue;
            }
            if job.start.stonewall && running > 0 {
                break;
            }
            let waits = job.start.wait_for.as_ref().is_some_and(|section| {
                jobs.iter()
                    .enumerate()
                    .any(|(other, job)| other != index && job.start.section == *section && !job.has_ended)
            });
            if !waits {
                running += 1;
                begin.push(index);
            }
        }
        begin
    }

    /// The time at which a delay ends next, or what a job is given that is stopped with others, by the machine's clock.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        let now_ns = SimHal.now_ns();
        let jobs = self.jobs();
        let waiting = jobs.iter().filter(|job| job.parts.is_some() && !job.has_ended && job.delay_ns > 0);
        let together = jobs.iter().filter(|job| job.together_ns.is_some() && !job.has_ended);
        let given = together.flat_map(|job| [job.served_ns(), job.yields_ns()]).flatten();
        waiting.map(|job| self.genesis_ns + job.delay_ns).chain(given).filter(|&at_ns| at_ns > now_ns).min()
    }

    /// Stops the jobs of a phase that are stopped together, when each job has had what it is given or has ended. Once the phase
    /// has had as many I/Os as the plan allows, none waits for another. One that has not begun then still has its whole time: it
    /// begins when its delay is over, and nothing may run beside it any more.
    pub(crate) fn stop_together(&self, phase: u32, ios: u64) {
        let now_ns = SimHal.now_ns();
        let mut jobs = self.jobs();
        let is_over = |at_ns: Option<u64>| at_ns.is_some_and(|at_ns| at_ns <= now_ns);
        let is_served = |job: &Entry| job.start.phase != phase || job.has_ended || is_over(job.served_ns());
        if ios < self.together_ios && !jobs.iter().all(is_served) {
            return;
        }
        let mut threads = Vec::new();
        for job in jobs.iter_mut().filter(|job| job.start.phase == phase && !job.has_ended && job.stop.is_none()) {
            if job.begun_ns.is_none() {
                job.together_ns = job.stand_in_ns;
            } else if is_over(job.yields_ns()) {
                job.stop = Some(End::Span);
                threads.extend(job.thread);
            }
        }
        drop(jobs);
        threads.into_iter().for_each(|thread| SimHal.wake(thread));
    }

    /// A job has ended; its thread calls this. The machine's run stops, so that what waits for it can begin.
    pub(super) fn ended(&self, index: u32, end: End) {
        let threads = {
            let mut jobs = self.jobs();
            jobs[index as usize].has_ended = true;
            let own = &jobs[index as usize];
            let (what, group) = (own.exit_what, own.start.group);
            let mut threads = Vec::new();
            if self.exitall || own.exits_on_error && end.is_error() {
                for job in jobs.iter_mut().filter(|job| !job.has_ended) {
                    let is_meant = match what {
                        EndsOthers::Group => job.start.group == group,
                        EndsOthers::Stonewall => job.parts.is_none(),
                        EndsOthers::All => true,
                    };
                    if is_meant {
                        job.stop = Some(End::Stopped);
                        threads.extend(job.thread);
                    }
                }
            }
            threads
        };
        threads.into_iter().for_each(|thread| SimHal.wake(thread));
        machine::stop_run();
    }

    /// The phases of `open` all of whose jobs have ended.
    pub(crate) fn ended_phases(&self, open: &[u32]) -> Vec<u32> {
        let jobs = self.jobs();
        let is_over = |phase: &&u32| jobs.iter().all(|job| job.start.phase != **phase || job.has_ended);
        open.iter().filter(is_over).copied().collect()
    }

    /// True when every job has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.jobs().iter().all(|job| job.has_ended)
    }

    /// Ends every job. The machine stands still.
    pub(crate) fn stop(&self) {
        let threads: Vec<ThreadId> = {
            let mut jobs = self.jobs();
            for job in jobs.iter_mut().filter(|job| !job.has_ended) {
                job.stop = Some(End::Stopped);
                job.never_begins();
            }
            jobs.iter().filter(|job| !job.has_ended).filter_map(|job| job.thread).collect()
        };
        threads.into_iter().for_each(|thread| SimHal.wake(thread));
    }

    /// Why a job must end, if it must.
    pub(super) fn stopped_by(&self, index: u32) -> Option<End> {
        self.jobs()[index as usize].stop
    }

    pub(super) fn is_stopped(&self, index: u32) -> bool {
        self.stopped_by(index).is_some()
    }

    fn jobs(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.jobs.lock().expect("no panic while the jobs are held")
    }
}

/// The delay of a job, drawn from its bounds.
fn delay_ns(load: &Load, number: u64, seed: u64) -> u64 {
    let (least, most) = load.start.delay_ns;
    let seed = load.order.seed.wrapping_add(seed - 1);
    let fraction = Seeds::of(seed, number).stream(Use::Delay, false).fraction();
    least + ((most - least) as f64 * fraction) as u64
}
