//! Where new lines go: to the online CPU of their affinity with most free vectors, the lowest number among equals, and there to
//! the lowest vector that is free. Managed lines keep a vector on each of their CPUs.

use super::Host;
use super::quiet::{DEVICE_VECTORS, Silent};
use crate::draw::Draw;
use crate::verdict::violate;
use drivers::message::MessageDomain;
use hal::{CpuId, CpuSet, Hal as _};
use irq::{AllocRequest, Flow, IrqDomain, IrqError, LineView, RequesterId};
use machine::SimHal;
use std::collections::BTreeSet;
use std::sync::Arc;
use systems::Line;

const CHECKER: &str = "places";
/// The first device vector.
const FIRST: u32 = 0x20;
/// Lines of one look.
const LINES: u32 = 6;
/// A vector that was left is given back within this time: flight, and invalidations.
const SETTLES_NS: u64 = 100_000;

/// The vectors of a CPU.
#[derive(Default)]
struct Cpu {
    used: BTreeSet<u32>,
    /// Managed lines that may come here, and those that are here.
    owed: u32,
    here: u32,
}

impl Cpu {
    fn room(&self, managed: bool) -> u32 {
        let kept = if managed { 0 } else { self.owed.saturating_sub(self.here) };
        (DEVICE_VECTORS - self.used.len() as u32).saturating_sub(kept)
    }
}

fn enter(cpus: &mut [Cpu], line: &LineView) {
    if line.managed {
        line.affinity.iter().for_each(|cpu| cpus[cpu.index()].owed += 1);
    }
    if let Some((cpu, identity)) = line.effective.and_then(|target| Some((target.cpu, target.identity?))) {
        if !cpus[cpu.index()].used.insert(identity.0) {
            violate(CHECKER, format!("two lines have vector {:#x} of CPU {cpu}", identity.0));
        }
        cpus[cpu.index()].here += u32::from(line.managed);
    }
}

/// Where a line of these CPUs must go.
fn expected(cpus: &[Cpu], allowed: &CpuSet, managed: bool) -> (CpuId, u32) {
    let room = |cpu: &CpuId| cpus[cpu.index()].room(managed);
    let most = allowed.iter().map(|cpu| room(&cpu)).max().expect("it names a CPU");
    let cpu = allowed.iter().find(|cpu| room(cpu) == most).expect("one has most");
    let vector = (FIRST..).find(|vector| !cpus[cpu.index()].used.contains(vector)).expect("one is free");
    (cpu, vector)
}

impl Host {
    /// Allocates lines that never send. Every CPU is online, and nothing is under way.
    pub(crate) fn check_places(self: &Arc<Self>, seed: u64) {
        check_spread(self.cpus());
        let domain: Arc<dyn IrqDomain> =
            Arc::new(MessageDomain::new(SimHal, Silent, self.pc.vectors().clone()).expect("never posted"));
        let before = self.core().views().len();
        for look in 0..2 {
            let lines = self.place(&domain, &mut Draw::new(seed, "places", look));
            for (index, line) in lines.into_iter().enumerate() {
                let irq = line.irq();
                if index.is_multiple_of(2) {
                    drop(line)
                } else {
                    line.free().expect("it has no handler")
                }
                if self.core().view(irq).is_some() {
                    violate(CHECKER, format!("line {irq} is there without its guard"));
                }
            }
            SimHal.delay_ns(SETTLES_NS);
            self.on_every_cpu(|host| host.core().housekeep());
        }
        let after = self.core().views().len();
        if before != after {
            violate(CHECKER, format!("there were {before} lines, and there are {after}"));
        }
        self.check_managed();
    }

    fn place(&self, domain: &Arc<dyn IrqDomain>, draw: &mut Draw) -> Vec<Line<SimHal>> {
        let mut cpus: Vec<_> = (0..self.cpus()).map(|_| Cpu::default()).collect();
        self.core().views().iter().for_each(|line| enter(&mut cpus, line));
        let place = |index: u32| {
            let mask = draw.within(1..=(1 << self.cpus()) - 1);
            let affinity: CpuSet = (0..self.cpus()).filter(|cpu| mask >> cpu & 1 != 0).map(CpuId).collect();
            let managed = draw.percent(25);
            let request = AllocRequest { managed, ..AllocRequest::fixed(RequesterId(0), index, affinity.clone()) };
            let line = match self.pc.line(domain.clone(), &request, Flow::Edge) {
                Ok(line) => line,
                Err(error) => violate(CHECKER, format!("a line on CPUs {affinity}: {error}")),
            };
            let expected = expected(&cpus, &affinity, managed);
            let view = self.core().view(line.irq()).expect("it was allocated");
            let is = view.effective.and_then(|target| Some((target.cpu, target.identity?.0)));
            if is != Some(expected) {
                let (cpu, vector) = expected;
                violate(CHECKER, format!("expected CPU {cpu}, vector {vector:#x} for CPUs {affinity}:\n{view}"));
            }
            enter(&mut cpus, &view);
            line
        };
        let lines = (0..LINES).map(place).collect();
        let nowhere = AllocRequest::fixed(RequesterId(0), LINES, CpuSet::of(CpuId(self.cpus())));
        match self.core().alloc_line(domain.clone(), &nowhere, Flow::Edge) {
            Err(IrqError::NoCpu(_)) => lines,
            other => violate(CHECKER, format!("a line on a CPU that does not exist: {other:?}")),
        }
    }

    /// A managed line keeps its CPUs.
    fn check_managed(&self) {
        for line in self.core().views().into_iter().filter(|line| line.managed) {
            match self.core().set_affinity(line.irq, &CpuSet::first(self.cpus())) {
                Err(IrqError::Managed(irq)) if irq == line.irq => {}
                other => violate(CHECKER, format!("a move of managed line {}: {other:?}", line.irq)),
            }
        }
    }
}

/// Queues are spread over CPUs in sets of neighbours, the larger ones first.
fn check_spread(count: u32) {
    let cpus = CpuSet::first(count);
    for queues in 1..=count {
        let mut next = 0;
        let mut set = |queue: u32| {
            let size = count / queues + u32::from(queue < count % queues);
            next += size;
            (next - size..next).map(CpuId).collect::<CpuSet>()
        };
        let expected: Vec<CpuSet> = (0..queues).map(&mut set).collect();
        if irq::spread(queues, &cpus) != Ok(expected) {
            violate(CHECKER, format!("{queues} queues are not spread over {count} CPUs as neighbours"));
        }
    }
    for queues in [0, count + 1] {
        if irq::spread(queues, &cpus) != Err(IrqError::Spread(queues, count)) {
            violate(CHECKER, format!("{queues} queues were spread over {count} CPUs"));
        }
    }
}
