//! An experiment on moderation on the machine: an initiator and a target of NVMe over RDMA, two hosts on one wire.

mod hosts;
mod initiator;
mod level;
mod target;
mod thief;

use crate::kinds::rdma::{Held, LevelChange, RdmaOutcome, SideOutcome};
use crate::kinds::rdma::{Moderated, Moderation, Rdma};
use crate::outcome::{Interrupts, Latency};
use crate::plan::Plan;
use crate::report::trace::Track;
use crate::run;
use crate::run::pcie::{Pcie, Site};
use crate::run::span::{Counters, Span, counter};
use crate::run::{Counted, Rig, RunError, boot, x86};
use drivers::rdma::CqCounters;
use hal::CpuSet;
use hosts::{HostParts, Initiators, Targets};
use initiator::Tally;
use level::Levels;
use machine::Machine;
use machine::model::ModelId;
use machine::rdma::{self as nic, Nic, Wire};
use machine::time::Ps;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// Two hosts with running threads.
pub struct RdmaRig {
    rdma: Rdma,
    machine: Machine,
    nics: [Site; 2],
    pcie: [Pcie; 2],
    initiators: Initiators,
    targets: Targets,
    tally: Tally,
    start_ns: u64,
    snapshots: Vec<Snapshot>,
}

/// Every cumulative counter, at one moment.
struct Snapshot {
    at_ns: u64,
    initiator: Side,
    target: Side,
}

/// One host's counters.
struct Side {
    queues: CqCounters,
    nic: Counters,
    programmed: u64,
}

impl Side {
    /// Entries of completion queues and events since `start`.
    fn since(&self, start: &Self) -> SideOutcome {
        let grown = |name: &'static str| counter(&self.nic, name) - counter(&start.nic, name);
        SideOutcome {
            completions: self.queues.completions - start.queues.completions,
            events: grown("events"),
            programmed: self.programmed - start.programmed,
            ..SideOutcome::default()
        }
    }
}

impl RdmaRig {
    pub(super) fn new(
        plan: &Plan,
        rdma: &Rdma,
        moderation: Moderation,
        seed: u64,
        traced: bool,
    ) -> Result<Self, RunError> {
        let mut machine = run::machine(plan, memory_bytes(rdma), seed, traced)?;
        let wire = Wire::default();
        let pair = ["initiator", "target"].map(|name| {
            let mut pcie = Pcie::new(&mut machine, &plan.platform, 1);
            let site = attach(&mut pcie, &mut machine, plan, rdma, &wire, name);
            (site, pcie)
        });
        let [(initiator, initiator_pcie), (target, target_pcie)] = pair;
        let count = rdma.initiators;
        let thieves: Vec<ModelId> = match rdma.theft_every_ns {
            Some(every_ns) => (0..count)
                .map(|cpu| {
                    machine.add_model(|_| Box::new(thief::Thief::new(cpu, x86::LOCAL_TIMER, Ps::from_ns(every_ns))))
                })
                .collect(),
            None => Vec::new(),
        };
        let at_target = match rdma.moderated {
            Moderated::Both => moderation,
            Moderated::Initiator => Moderation::None,
        };
        let hosts = [
            HostParts::new(&machine, 0..count, &initiator_pcie, initiator, rdma, moderation),
            HostParts::new(&machine, count..2 * count, &target_pcie, target, rdma, at_target),
        ];
        let soft: Arc<OnceLock<_>> = Arc::default();
        hosts::hang_entry(&mut machine, &hosts, soft.clone());
        let tally = Tally::default();
        let counts = tally.clone();
        let up = boot(&mut machine, move || hosts::set_up(hosts, &soft, &counts, seed))?;
        let (initiators, targets) = up;
        let start_ns = machine.now().as_ns();
        initiators.start(start_ns).map_err(RunError::Setup)?;
        for thief in thieves {
            machine.poke(thief, machine.now(), thief::BEGIN, 0);
        }
        Ok(Self {
            rdma: rdma.clone(),
            machine,
            nics: [initiator, target],
            pcie: [initiator_pcie, target_pcie],
            initiators,
            targets,
            tally,
            start_ns,
            snapshots: Vec::new(),
        })
    }

    fn snapshot(&mut self) -> Snapshot {
        // The drivers come first: a query of a driver may let the machine run on a little.
        let queues = [self.initiators.counters(), self.targets.counters()];
        let programmed = [self.initiators.levels(), self.targets.levels()].map(Levels::programmed);
        let mut nic = |end: usize| self.machine.with_any_model(self.nics[end].model, |nic| nic.counters());
        let nics = [nic(0), nic(1)];
        let at_ns = self.machine.now().as_ns();
        let [initiator, target] =
            [0, 1].map(|end| Side { queues: queues[end], nic: nics[end].clone(), programmed: programmed[end] });
        Snapshot { at_ns, initiator, target }
    }

    /// The levels of each queue of a host over the whole load.
    fn levels(&self, levels: &Levels) -> Vec<Vec<LevelChange>> {
        let since = |at_ns: u64| at_ns.saturating_sub(self.start_ns);
        let of = |log: Vec<(u64, usize)>| {
            log.into_iter().map(|(at, level)| LevelChange { from_ns: since(at), level: level as u32 }).collect()
        };
        levels.logs().into_iter().map(of).collect()
    }
}

/// The NIC of one host.
fn attach(pcie: &mut Pcie, machine: &mut Machine, plan: &Plan, rdma: &Rdma, wire: &Wire, name: &str) -> Site {
    let platform = &plan.platform;
    let kind = platform.nic.as_ref().expect("the plan was validated");
    let count = rdma.initiators as u16;
    let config = nic::Config {
        name: format!("NIC of the {name}"),
        queue_pairs: count,
        completion_queues: count,
        event_queues: count,
        // One memory region for the data of each thread.
        memory_regions: rdma.initiators as u8,
        timing: nic::Timing {
            service: Ps(kind.service.ps()),
            latency: Ps(kind.latency.ps()),
            link_bytes_per_second: kind.link.whole(),
        },
        moderation: rdma.answer,
        ..nic::Config::default()
    };
    // The port's link carries only messages.
    pcie.attach_numbered(machine, platform, kind.link.whole(), |id, port, requester| {
        let config = nic::Config { requester, ..config };
        Box::new(Nic::new(id, port, wire, config).expect("the plan's bounds are the NIC's"))
    })
}

/// Queues and buffers of both ends, with room for the tables.
fn memory_bytes(rdma: &Rdma) -> usize {
    let a_slot = 4096 + 2 * rdma.block_bytes as usize;
    let threads = 2 * rdma.initiators as usize;
    threads * ((rdma.depth_max() as usize + 64) * a_slot + (1 << 20)) + (64 << 20)
}

impl Rig for RdmaRig {
    type Outcome = RdmaOutcome;

    fn machine(&mut self) -> &mut Machine {
        &mut self.machine
    }

    fn cpus(&self) -> CpuSet {
        CpuSet::first(self.rdma.initiators)
    }

    fn activity(&mut self) -> Vec<(&'static str, u64)> {
        let counters = self.machine.with_any_model(self.nics[0].model, |nic| nic.counters());
        vec![("ios", self.tally.ios()), ("events", counter(&counters, "events"))]
    }

    fn begin(&mut self) {
        self.tally.reset();
        let snapshot = self.snapshot();
        self.snapshots = vec![snapshot];
    }

    fn end(&mut self) {
        let snapshot = self.snapshot();
        self.snapshots.push(snapshot);
    }

    fn outcome(&self, _span: &Span) -> Counted<RdmaOutcome> {
        let [start, end] = &self.snapshots[..] else { unreachable!("a run begins and ends") };
        let span_ns = (start.at_ns - self.start_ns)..(end.at_ns - self.start_ns);
        let top = self.rdma.levels.last() as u32;
        let side = |of: fn(&Snapshot) -> &Side, levels: &Levels| {
            let logs = self.levels(levels);
            (SideOutcome { levels: Held::over(&logs, top, &span_ns), ..of(end).since(of(start)) }, logs)
        };
        let (initiator, logs) = side(|at| &at.initiator, self.initiators.levels());
        let (target, _) = side(|at| &at.target, self.targets.levels());
        let queues = logs.len() as u32;
        let msis = counter(&end.initiator.nic, "msis") - counter(&start.initiator.nic, "msis");
        Counted {
            interrupts: Interrupts { vectors: queues.into(), msis, dispatched: msis, ..Interrupts::default() },
            servers: Vec::new(),
            interrupt_table: self.initiators.interrupt_table(),
            own: RdmaOutcome {
                queues,
                ios: self.tally.ios(),
                errors: self.tally.errors(),
                latency: self.tally.latency(|histogram| Latency::from(histogram)),
                initiator,
                target,
                levels: logs.into_iter().next().unwrap_or_default(),
                level_count: top + 1,
                end_ns: span_ns.end,
                begin_ns: span_ns.start,
                tuning: self.initiators.tuning(),
            },
        }
    }

    fn track(&self, model: ModelId) -> Option<Track> {
        self.pcie[0].track(model)
    }

    fn policy(&self) -> Option<String> {
        Some(self.initiators.policy())
    }

    fn lines(&self) -> Vec<irq::LineView> {
        self.initiators.lines()
    }
}

impl Held {
    /// The changes and the time at level `top` in a span since the start of the load, over all queues.
    fn over(logs: &[Vec<LevelChange>], top: u32, span_ns: &Range<u64>) -> Self {
        let within = |change: &&LevelChange| span_ns.contains(&change.from_ns);
        // The first entry of a log is the level that the queue began with.
        let changes = logs.iter().map(|log| log.iter().skip(1).filter(within).count() as u64).sum();
        let shares = logs.iter().map(|log| share_at(log, top, span_ns.start, span_ns.end));
        Self { changes, top_share: shares.sum::<f64>() / logs.len().max(1) as f64 }
    }
}

/// The share of a span in which a queue had a level.
fn share_at(log: &[LevelChange], level: u32, begin_ns: u64, end_ns: u64) -> f64 {
    let ends = log.iter().skip(1).map(|change| change.from_ns).chain([u64::MAX]);
    let at_level = log.iter().zip(ends).filter(|(change, _)| change.level == level);
    let overlap = |from: u64, to: u64| to.min(end_ns).saturating_sub(from.max(begin_ns));
    let ns: u64 = at_level.map(|(change, end)| overlap(change.from_ns, end)).sum();
    ns as f64 / (end_ns - begin_ns).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_at_a_level_counts_the_span_alone() {
        let log = [(0, 0), (100, 2), (150, 1), (180, 2)].map(|(from_ns, level)| LevelChange { from_ns, level });
        assert_eq!(share_at(&log, 2, 0, 200), 0.35);
        assert_eq!(share_at(&log, 2, 120, 200), 50.0 / 80.0);
        assert_eq!(share_at(&log, 0, 120, 200), 0.0);
    }
}
