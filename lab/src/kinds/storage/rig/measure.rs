//! The counters of a server at one moment, and their difference between two moments.

use super::block::Places;
use super::course::End;
use super::hardware::Hardware;
use super::host::{Looks, StorageHost};
use super::meter::SharedMeter;
use super::tally::{Counts, JobCounts, Latencies, OPS, Tally};
use super::turns;
use crate::kinds::storage::Storage;
use crate::kinds::storage::detail::{self, Details, ThreadDetail};
use crate::kinds::storage::{Direction, Drive, Stages, StorageOutcome};
use crate::outcome::{Interrupts, Latency};
use crate::plan::Plan;
use crate::run::Counted;
use crate::run::pcie::{self, PcieCounters};
use crate::run::span::{Counters, Span, counter};
use drivers::nvme::CompletionCounters;
use std::sync::Arc;

/// Every cumulative counter, at one moment.
pub(crate) struct Snapshot {
    drives: Vec<Counters>,
    pcie: PcieCounters,
    queues: CompletionCounters,
    looks: Looks,
    places: Places,
    notifications: u64,
    empty_notifications: u64,
    dispatched: u64,
}

impl Snapshot {
    /// Reads the counters now.
    pub(crate) fn take(hardware: &mut Hardware, host: &StorageHost) -> Self {
        // The drivers come first: a query of a driver may let the machine run on a little.
        let (queues, looks) = host.completion_counters();
        let posted = host.pc.posted_statistics();
        let dispatched = host.device_interrupts();
        let Hardware { machine, drives, pcie, .. } = hardware;
        Self {
            drives: drives.iter().map(|site| machine.with_any_model(site.model, |model| model.counters())).collect(),
            pcie: pcie.count(machine),
            queues,
            looks,
            places: host.places(),
            notifications: posted.notifications,
            empty_notifications: posted.empty_notifications,
            dispatched,
        }
    }
}

/// I/Os that the jobs saw completed, MSIs and notifications so far, for the timeline.
pub(crate) fn activity(hardware: &mut Hardware, host: &StorageHost, tally: &Tally) -> Vec<(&'static str, u64)> {
    let msis = hardware.drives.iter().map(|site| {
        let counters = hardware.machine.with_any_model(site.model, |model| model.counters());
        counter(&counters, "msis")
    });
    let msis = msis.sum();
    let ios = tally.ios();
    vec![("ios", ios), ("msis", msis), ("notifications", host.pc.posted_statistics().notifications)]
}

/// The difference between two snapshots.
pub(crate) struct Measured<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) storage: &'a Storage,
    pub(crate) hardware: &'a Hardware,
    pub(crate) span: &'a Span,
    pub(crate) start: &'a Snapshot,
    pub(crate) end: &'a Snapshot,
}

impl Measured<'_> {
    fn grown(&self, of: impl Fn(&Snapshot) -> u64) -> u64 {
        of(self.end) - of(self.start)
    }

    /// The busy share of the span, for a server that counts busy picoseconds.
    fn busy(&self, of: impl Fn(&Snapshot) -> u64) -> f64 {
        self.span.share(self.grown(of))
    }

    fn drive(&self, index: usize, ports: &[usize], jobs: &JobCounts) -> Drive {
        let drive = |name: &'static str| self.grown(|at| counter(&at.drives[index], name));
        let kind = self.plan.platform.drive(&self.storage.drives[index].model).expect("the plan was validated");
        let both = |first, second| {
            [self.start, self.end].map(|at| (counter(&at.drives[index], first), counter(&at.drives[index], second)))
        };
        Drive {
            name: self.storage.drives[index].name.clone(),
            ios: jobs.ios(),
            bytes: jobs.bytes(),
            errors: jobs.errors + jobs.wrong_data,
            msis: drive("msis"),
            link_busy: ["link_ps", "down_ps"]
                .map(|way| self.busy(|at| counter(&at.pcie.ports[ports[index]], way)))
                .into_iter()
                .fold(0.0, f64::max),
            link_held: self.busy(|at| counter(&at.pcie.ports[ports[index]], "order_ps")),
            // A slot's wait for the link counts as the link's time. The media also limit the rate of writes.
            media_busy: (self.span.share(self.span.stays_ps(both("media_slots", "media_slot_ps"))) / kind.slots.value)
                .max(self.span.share(self.span.worked_ps(both("media_write_ps", "media_write_end_ps")))),
        }
    }

    fn interrupts(&self, vectors: u64) -> Interrupts {
        Interrupts {
            vectors,
            msis: self.grown(|at| at.drives.iter().map(|drive| counter(drive, "msis")).sum()),
            notifications: self.grown(|at| at.notifications),
            empty_notifications: self.grown(|at| at.empty_notifications),
            dispatched: self.grown(|at| at.dispatched),
            handlers: self.grown(|at| at.queues.interrupts),
            empty_handlers: self.grown(|at| at.queues.empty_interrupts),
            reaped_by_interrupt: self.grown(|at| at.queues.interrupt_entries),
            reaped_by_poll: self.grown(|at| at.queues.entries - at.queues.interrupt_entries - at.queues.look_entries),
            reaped_by_check: self.grown(|at| at.queues.look_entries),
            overtaken_handlers: self.grown(|at| at.queues.overtaken_interrupts),
            looks: self.grown(|at| at.looks.looks),
            look_hits: self.grown(|at| at.looks.hits),
            // A snapshot may fall between a hit and its attempt at the lock.
            look_lock_failures: self.grown(|at| at.looks.hits).saturating_sub(self.grown(|at| at.queues.look_reaps)),
            remote_completions: self.grown(|at| at.places.elsewhere),
            local_completions: self.grown(|at| at.places.here + at.places.sent),
            sent_completions: self.grown(|at| at.places.sent),
            ipis: self.grown(|at| at.places.ipis),
            // The machine reports this value.
            longest_ns: None,
        }
    }

    /// Mean times of an I/O's stages. The counters of the drive and the fabric are divided by the completions. The
    /// rest of the measured latency is the time from MSI to handler.
    fn stages(&self, jobs: &JobCounts, latencies: &Latencies, completion_mean_ns: f64) -> Stages {
        let ios = jobs.ios().max(1) as f64;
        let user_ns = self.span.user_ns();
        let drive = |name: &'static str| {
            self.grown(|at| at.drives.iter().map(|drive| counter(drive, name)).sum()) as f64 / ios / 1000.0
        };
        let media_ns = drive("media_ps");
        let link_ns = drive("link_ps");
        let queue_ns = drive("fetch_wait_ps");
        let post_to_msi_ns = drive("message_wait_ps");
        let handler_to_application_ns = jobs.handover_ns as f64 / ios;
        let submit_ns = latencies.submission.mean();
        let known = media_ns + link_ns + queue_ns + post_to_msi_ns + handler_to_application_ns;
        // The completion latency begins at the driver's submission, so the submitting call is not in it.
        let msi_to_handler_ns = (completion_mean_ns - known).max(0.0);
        Stages {
            user_ns: user_ns as f64 / ios,
            submit_ns,
            queue_ns,
            media_ns,
            link_ns,
            post_to_msi_ns,
            msi_to_handler_ns,
            handler_to_application_ns,
        }
    }

    /// The outcome of the span; the tally must cover exactly this span.
    pub(crate) fn outcome(&self, host: &StorageHost, tally: &Tally) -> Counted<StorageOutcome> {
        let latencies = tally.latencies.lock().expect("the machine stands still");
        let completion = latencies.completion();
        let mut total = JobCounts::default();
        let mut by_drive: Vec<_> = self.storage.drives.iter().map(|_| JobCounts::default()).collect();
        let mut ends = Vec::new();
        for (job, counts) in self.storage.jobs.iter().zip(&tally.jobs) {
            let counts = counts.lock().expect("the machine stands still");
            total.add(&counts);
            ends.extend(counts.job_end(&job.name));
            if counts.by_target.is_empty() {
                by_drive[job.drive].add(&counts);
            } else {
                let drives = job.distinct_drives();
                drives.iter().enumerate().for_each(|(target, &drive)| by_drive[drive].add(&counts.of_target(target)));
            }
        }
        let port_of = |index: usize| self.hardware.pcie.port_index(self.hardware.drives[index].port);
        let ports: Vec<_> = (0..self.storage.drives.len()).map(port_of).collect();
        let details = self.details(tally);
        let drives = by_drive.iter().enumerate().map(|(index, jobs)| self.drive(index, &ports, jobs)).collect();
        Counted {
            interrupts: self.interrupts(host.vectors()),
            servers: pcie::servers(self.span, &self.start.pcie, &self.end.pcie),
            interrupt_table: host.pc.core.interrupts().to_string(),
            own: StorageOutcome {
                drives,
                completion_latency: Latency::from(&completion),
                directions: (0..OPS).map(|op| Direction::of(&total, &latencies, op)).collect(),
                submission_latency: Latency::from(&latencies.submission),
                ends,
                look: self.storage.check_queue,
                turns: turns::of(self.storage.jobs.iter().zip(&tally.jobs), self.storage.staged),
                stages: self.stages(&total, &latencies, completion.mean()),
                jobs: details.as_ref().map_or_else(Vec::new, Details::figures),
                details: details.map(Arc::new),
            },
        }
    }
}

impl Measured<'_> {
    /// What the threads measured, if they did.
    fn details(&self, tally: &Tally) -> Option<Details> {
        if tally.meters.is_empty() {
            return None;
        }
        let end_ns = self.span.end_ns();
        let detail = |((meter, counts), job): ((&SharedMeter, &Counts), &crate::kinds::storage::JobPlan)| {
            let detail = meter.lock().expect("the machine stands still").take_detail(end_ns);
            let counts = counts.lock().expect("the machine stands still");
            // A job that begins or ends within the span is measured over its own time, as fio measures it.
            let span_ns = counts.ran_ns().unwrap_or(detail.span_ns).max(1);
            ThreadDetail {
                errors: counts.errors,
                error_number: counts.end.map_or(0, End::error_number),
                steady: counts.steady.clone(),
                target: job.load.as_ref().and_then(|load| load.pace.target),
                depth: counts.depth.unwrap_or(job.iodepth),
                span_ns,
                weight: self.weight(job, counts.end, span_ns),
                ..detail
            }
        };
        let mut threads: Vec<ThreadDetail> =
            tally.meters.iter().zip(&tally.jobs).zip(&self.storage.jobs).map(detail).collect();
        if tally.cpu_ns.is_empty() {
            let ios: Vec<u64> = threads.iter().map(ThreadDetail::total_ios).collect();
            let shares = self.shared_cpus(&ios);
            threads.iter_mut().zip(shares).for_each(|(thread, cpu_ns)| thread.set_cpu(cpu_ns));
        } else {
            threads.iter_mut().zip(&tally.cpu_ns).for_each(|(thread, cpu_ns)| thread.set_cpu(*cpu_ns));
        }
        Some(Details { threads, groups: detail::groups(&self.storage.reporting) })
    }

    /// How many times its own span a thread stands for. Threads of one phase are shortened alike.
    fn weight(&self, job: &crate::kinds::storage::JobPlan, end: Option<End>, span_ns: u64) -> f64 {
        let runtime_ns = job.load.as_ref().and_then(|load| load.ends.runtime_ns).filter(|_| end == Some(End::Span));
        let has_phases = self.storage.jobs.iter().flat_map(|job| &job.load).any(|load| load.start.phase > 0);
        runtime_ns.filter(|_| has_phases).map_or(1.0, |ns| (ns as f64 / span_ns as f64).max(1.0))
    }

    /// The time of each CPU in the application and the kernel, divided among the threads that may run on it by their `ios`.
    pub(super) fn shared_cpus(&self, ios: &[u64]) -> Vec<[u64; 2]> {
        let mut shares = vec![[0; 2]; ios.len()];
        let every = self.storage.jobs.iter().flat_map(|job| job.cpus.iter()).collect();
        for times in self.span.cpus(&every) {
            let here = |thread: &usize| self.storage.jobs[*thread].cpus.contains(hal::CpuId(times.cpu));
            let users: Vec<usize> = (0..ios.len()).filter(here).collect();
            let all: u64 = users.iter().map(|&thread| ios[thread]).sum();
            for thread in users {
                let share = ios[thread] as f64 / all.max(1) as f64;
                let spent_ns = [times.user_ns, times.system_ns + times.irq_ns];
                for (sum, ns) in shares[thread].iter_mut().zip(spent_ns) {
                    *sum += (ns as f64 * share) as u64;
                }
            }
        }
        shares
    }
}

impl Direction {
    fn of(jobs: &JobCounts, latencies: &Latencies, op: usize) -> Self {
        Self { ios: jobs.by_op[op], bytes: jobs.bytes_by_op[op], latency: Latency::from(&latencies.by_op[op]) }
    }
}
