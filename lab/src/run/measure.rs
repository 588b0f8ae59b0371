//! What a server has counted at one moment, and what happened between two.

use crate::outcome::{
    CpuTime, Drive, Engine, Fault, Interrupts, Latency, Outcome, Server, ServerKind, Stages, Timeline,
};
use crate::plan::Plan;
use crate::run::hardware::Hardware;
use crate::run::job::{JobCounts, Latencies, Tally};
use crate::run::system::{Looks, System};
use drivers::nvme::CompletionCounters;
use machine::model::ModelId;
use machine::time::Ps;
use machine::{CpuTimes, EngineCounters};

type Counters = Vec<(&'static str, u64)>;

/// Everything that counts for ever, at one moment.
pub(crate) struct Snapshot {
    at: Ps,
    drives: Vec<Counters>,
    ports: Vec<Counters>,
    iommus: Vec<Counters>,
    dispatch_busy: Vec<Ps>,
    cpus: Vec<CpuTimes>,
    queues: CompletionCounters,
    looks: Looks,
    notifications: u64,
    empty_notifications: u64,
    dispatched: u64,
    engine: EngineCounters,
}

impl Snapshot {
    /// Counts now.
    pub(crate) fn take(hardware: &mut Hardware, system: &System) -> Self {
        // First what drivers know, since asking them may let the machine run on a little.
        let (queues, looks) = system.completion_counters();
        let (notifications, empty_notifications) = system.notifications();
        let dispatched = system.device_interrupts();
        let Hardware { machine, drives, ports, iommus, dispatches, .. } = hardware;
        let mut counters = |id: ModelId| machine.with_any_model(id, |model| model.counters());
        Self {
            drives: drives.iter().map(|site| counters(site.model)).collect(),
            ports: ports.iter().map(|&port| counters(port)).collect(),
            iommus: iommus.iter().map(|&iommu| counters(iommu)).collect(),
            dispatch_busy: dispatches.iter().map(machine::fabric::dispatch::Dispatch::busy).collect(),
            at: machine.now(),
            cpus: machine.cpu_times(),
            engine: machine.engine_counters(),
            queues,
            looks,
            notifications,
            empty_notifications,
            dispatched,
        }
    }

    /// I/Os, MSIs and notifications so far, for the timeline.
    pub(crate) fn activity(hardware: &mut Hardware, system: &System) -> [u64; 3] {
        let mut sum = [0; 2];
        for site in &hardware.drives {
            let counters = hardware.machine.with_any_model(site.model, |model| model.counters());
            sum[0] += value(&counters, "completions");
            sum[1] += value(&counters, "msis");
        }
        [sum[0], sum[1], system.notifications().0]
    }
}

/// The counter called `name`.
///
/// # Panics
/// When the model has none: lab and machine then disagree about a name.
fn value(counters: &Counters, name: &str) -> u64 {
    let found = counters.iter().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("no counter {name} among {counters:?}")).1
}

/// What happened between two snapshots.
struct Span<'a> {
    start: &'a Snapshot,
    end: &'a Snapshot,
}

impl Span<'_> {
    fn ps(&self) -> u64 {
        (self.end.at - self.start.at).0.max(1)
    }

    fn grown(&self, of: impl Fn(&Snapshot) -> u64) -> u64 {
        of(self.end) - of(self.start)
    }

    /// What share of the span a server that counts busy picoseconds was busy.
    fn busy(&self, of: impl Fn(&Snapshot) -> u64) -> f64 {
        self.grown(of) as f64 / self.ps() as f64
    }

    fn drive(&self, plan: &Plan, index: usize, ports: &[usize], jobs: &JobCounts) -> Drive {
        let counter = |name: &'static str| self.grown(|at| value(&at.drives[index], name));
        let kind = plan.platform.drive(&plan.drives[index].model).expect("the plan was validated");
        Drive {
            name: plan.drives[index].name.clone(),
            ios: jobs.ios,
            bytes: jobs.bytes,
            errors: jobs.errors + jobs.wrong_data,
            msis: counter("msis"),
            link_busy: self.busy(|at| value(&at.ports[ports[index]], "link_ps")),
            link_held: self.busy(|at| value(&at.ports[ports[index]], "order_ps")),
            // A slot that waits for the link is the link's affair.
            media_busy: counter("media_ps") as f64 / self.ps() as f64 / kind.slots.value,
        }
    }

    fn interrupts(&self, vectors: u64) -> Interrupts {
        Interrupts {
            vectors,
            msis: self.grown(|at| at.drives.iter().map(|drive| value(drive, "msis")).sum()),
            notifications: self.grown(|at| at.notifications),
            empty_notifications: self.grown(|at| at.empty_notifications),
            dispatched: self.grown(|at| at.dispatched),
            handlers: self.grown(|at| at.queues.interrupts),
            empty_handlers: self.grown(|at| at.queues.empty_interrupts),
            reaped_by_interrupt: self.grown(|at| at.queues.interrupt_entries),
            reaped_by_poll: self.grown(|at| at.queues.entries - at.queues.interrupt_entries - at.queues.check_entries),
            reaped_by_check: self.grown(|at| at.queues.check_entries),
            overtaken_handlers: self.grown(|at| at.queues.overtaken_interrupts),
            looks: self.grown(|at| at.looks.looks),
            look_hits: self.grown(|at| at.looks.hits),
            // A snapshot may fall between a hit and its attempt at the lock.
            look_lock_failures: self.grown(|at| at.looks.hits).saturating_sub(self.grown(|at| at.queues.checks)),
            remote_completions: self.grown(|at| at.queues.remote),
            local_completions: self.grown(|at| at.queues.local()),
            // The machine knows.
            longest_ns: None,
        }
    }

    fn cpu(&self, cpu: usize) -> CpuTime {
        let part = |of: fn(&CpuTimes) -> Ps| self.grown(|at| of(&at.cpus[cpu]).0) / 1000;
        let [user_ns, system_ns, irq_ns] =
            [part(|times| times.user), part(|times| times.system), part(|times| times.irq)];
        // A charge that began before the span ends is counted whole, so the parts may exceed it by one charge.
        let idle_ns = (self.ps() / 1000).saturating_sub(user_ns + system_ns + irq_ns);
        CpuTime { cpu: cpu as u32, user_ns, system_ns, irq_ns, idle_ns }
    }

    fn servers(&self) -> Vec<Server> {
        let server = |kind, index: usize, busy| Server { kind, index: index as u32, busy };
        let ports = (0..self.end.ports.len()).map(|index| {
            let counter = |name: &'static str| self.busy(|at| value(&at.ports[index], name));
            server(ServerKind::RootPort, index, counter("order_ps") + counter("blocked_ps"))
        });
        let remapping = (0..self.end.iommus.len()).map(|index| {
            let counter = |name: &'static str| self.busy(|at| value(&at.iommus[index], name));
            server(ServerKind::Remapping, index, counter("remap_ps") + counter("hold_ps"))
        });
        let posted = (0..self.end.iommus.len()).map(|index| {
            let busy = self.busy(|at| value(&at.iommus[index], "post_ps"));
            server(ServerKind::PostedLine, index, busy)
        });
        let dispatch = (0..self.end.dispatch_busy.len())
            .map(|index| server(ServerKind::Dispatch, index, self.busy(|at| at.dispatch_busy[index].0)));
        ports.chain(remapping).chain(posted).chain(dispatch).collect()
    }

    /// Mean times of an I/O's stages. What the drive and the fabric counted is per completion; what is left of the
    /// measured latency is the wait in the submission queue.
    fn stages(&self, jobs: &JobCounts, latencies: &Latencies) -> Stages {
        let ios = jobs.ios.max(1) as f64;
        let user_ns: u64 = (0..self.end.cpus.len()).map(|cpu| self.cpu(cpu).user_ns).sum();
        let drive = |name: &'static str| {
            self.grown(|at| at.drives.iter().map(|drive| value(drive, name)).sum()) as f64 / ios / 1000.0
        };
        let media_ns = drive("media_ps");
        let link_ns = drive("link_ps");
        let queue_ns = drive("fetch_wait_ps");
        let post_to_msi_ns = drive("message_wait_ps");
        let handler_to_application_ns = jobs.handover_ns as f64 / ios;
        let submit_ns = latencies.submission.mean();
        let known = media_ns + link_ns + queue_ns + post_to_msi_ns + handler_to_application_ns;
        // The completion latency begins at the driver's submission, so the submitting call is not in it.
        let msi_to_handler_ns = (latencies.completion.mean() - known).max(0.0);
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
}

/// The outcome of a span: `start` and `end` bracket it, `counts` are the jobs' own of just that span.
pub(crate) fn outcome(
    plan: &Plan,
    hardware: &Hardware,
    system: &System,
    [start, end]: [&Snapshot; 2],
    tally: &Tally,
    timeline: Timeline,
) -> Outcome {
    let span = Span { start, end };
    let latencies = tally.latencies.lock().expect("the machine stands still");
    let mut total = JobCounts::default();
    let mut by_drive: Vec<_> = plan.drives.iter().map(|_| JobCounts::default()).collect();
    for (job, counts) in plan.jobs.iter().zip(&tally.jobs) {
        let counts = counts.lock().expect("the machine stands still");
        total.add(&counts);
        by_drive[job.drive].add(&counts);
    }
    let port_of = |index: usize| {
        let port = hardware.drives[index].port;
        hardware.ports.iter().position(|&known| known == port).expect("every drive's port is listed")
    };
    let ports: Vec<_> = (0..plan.drives.len()).map(port_of).collect();
    let used: hal::CpuSet = plan.jobs.iter().flat_map(|job| job.cpus.iter()).collect();
    let drives = by_drive.iter().enumerate().map(|(index, jobs)| span.drive(plan, index, &ports, jobs)).collect();
    Outcome {
        span_ns: span.ps() / 1000,
        drives,
        interrupts: span.interrupts(system.vectors()),
        cpus: used.iter().map(|cpu| span.cpu(cpu.index())).collect(),
        completion_latency: Latency::from(&latencies.completion),
        submission_latency: Latency::from(&latencies.submission),
        servers: span.servers(),
        faults: faults(hardware),
        interrupt_table: system.interrupt_table(),
        timeline,
        stages: span.stages(&total, &latencies),
        engine: Engine {
            events: span.grown(|at| at.engine.events),
            switches: span.grown(|at| at.engine.switches),
            host_ns: 0,
            digest: end.engine.digest,
        },
        ..Outcome::default()
    }
}

fn faults(hardware: &Hardware) -> Vec<Fault> {
    let (records, dropped) = hardware.machine.faults();
    let mut faults: Vec<Fault> = records
        .into_iter()
        .map(|record| Fault {
            kind: record.kind.into(),
            requester: record.requester as u16,
            count: record.count,
            text: record.text,
        })
        .collect();
    if dropped > 0 {
        let text = "more kinds of faults than are kept apart".into();
        faults.push(Fault { kind: "not kept".into(), requester: 0, count: dropped, text });
    }
    faults
}
