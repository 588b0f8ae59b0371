//! A CPU whose lines find no vector elsewhere stays online, with everything as before ([`irq::IrqCore::cpu_offline`]).

use super::Host;
use super::quiet::{DEVICE_VECTORS, Silent};
use crate::verdict::violate;
use drivers::message::MessageDomain;
use hal::{CpuId, CpuSet, Hal as _};
use irq::{Action, AllocRequest, Flow, Irq, IrqError, IrqReturn, LineView, RequestFlags, RequesterId};
use machine::SimHal;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const CHECKER: &str = "refusals";
/// Vectors that are free elsewhere: so many lines move, and have to come back, before one is refused.
const FREE: usize = 3;
/// A vector that was left is given back within this time: flight, and invalidations.
const SETTLES_NS: u64 = 100_000;
/// Looks, that long apart, until lines have to be back.
const LOOKS: u32 = 5;

/// Counts its interrupts.
#[derive(Default)]
struct Count(AtomicU64);

impl Action for Count {
    fn handle(&self, _: Irq) -> IrqReturn {
        self.0.fetch_add(1, Relaxed);
        IrqReturn::Handled
    }
}

/// A managed line on each CPU, with a handler, and all other vectors taken by lines that never send.
pub(super) struct Crowd {
    host: Arc<Host>,
    domain: Arc<MessageDomain<SimHal, Silent>>,
    kept: Vec<(Irq, Arc<Count>)>,
    /// Of each CPU.
    silent: Vec<Vec<Irq>>,
    next: u32,
}

impl Crowd {
    /// Takes every vector that is free; there must be as many as no line has.
    ///
    /// # Panics
    /// If there are more or fewer.
    pub(super) fn gather(host: &Arc<Host>) -> Self {
        let domain = Arc::new(MessageDomain::new(SimHal, Silent, host.pc.vectors().clone()).expect("never posted"));
        let mut crowd = Self { host: host.clone(), domain, kept: Vec::new(), silent: Vec::new(), next: 0 };
        for cpu in (0..host.cpus()).map(CpuId) {
            crowd.keep(cpu);
        }
        let own = host.core().views();
        for cpu in (0..host.cpus()).map(CpuId) {
            let used = own.iter().filter(|line| line.effective.is_some_and(|target| target.cpu == cpu)).count() as u32;
            let taken = (used..DEVICE_VECTORS).map(|_| crowd.line(cpu));
            let taken: Result<Vec<_>, _> = taken.collect();
            crowd.silent.push(taken.unwrap_or_else(|error| panic!("CPU {cpu}: {error}")));
            assert!(crowd.line(cpu).is_err(), "CPU {cpu} has more vectors than there are");
        }
        crowd
    }

    fn line(&mut self, cpu: CpuId) -> Result<Irq, IrqError> {
        self.allocate(AllocRequest::fixed(RequesterId(0), self.next, CpuSet::of(cpu)))
    }

    fn managed(&mut self, cpus: CpuSet) -> Result<Irq, IrqError> {
        self.allocate(AllocRequest { managed: true, ..AllocRequest::fixed(RequesterId(0), self.next, cpus) })
    }

    fn allocate(&mut self, request: AllocRequest) -> Result<Irq, IrqError> {
        let line = self.host.core().alloc_line(self.domain.clone(), &request, Flow::Edge)?;
        self.next += 1;
        Ok(line)
    }

    fn keep(&mut self, cpu: CpuId) {
        let (line, count) = (self.managed(CpuSet::of(cpu)).expect("a vector is free"), Arc::new(Count::default()));
        self.host.core().request(line, "kept", RequestFlags::default(), count.clone()).expect("a new line");
        self.kept.push((line, count));
    }

    /// Tries to take each CPU offline.
    pub(super) fn refuse_offline(&mut self) {
        let cpus = self.host.cpus();
        for cpu in (0..cpus).map(CpuId) {
            if cpus > 1 {
                let roomy = CpuId((cpu.0 + 1) % cpus);
                self.make_room(roomy);
                // Later there is room on each CPU.
                if cpu == CpuId(0) {
                    self.refuse_managed(cpu, roomy);
                }
            }
            let before = self.host.core().views();
            let answer = self.host.offline_for(cpu, 0);
            let is_refused = match answer {
                Err(IrqError::NoVector { .. }) => cpus > 1,
                Err(IrqError::Cpu(refused, _)) => cpus == 1 && refused == cpu,
                _ => false,
            };
            if !is_refused {
                violate(CHECKER, format!("CPU {cpu} of {cpus} cannot go offline, and was told: {answer:?}"));
            }
            self.check_kept(cpu);
            self.check_same(cpu, &before);
        }
    }

    /// A managed line keeps a vector on each of its CPUs, so one of them that is full is reason enough.
    fn refuse_managed(&mut self, full: CpuId, roomy: CpuId) {
        let answer = self.managed(CpuSet::from_iter([full, roomy]));
        if !matches!(answer, Err(IrqError::NoVector { cpu, .. }) if cpu == full) {
            violate(CHECKER, format!("CPU {full} is full, and a managed line for it and CPU {roomy}: {answer:?}"));
        }
    }

    fn make_room(&mut self, cpu: CpuId) {
        let silent = &mut self.silent[cpu.index()];
        for line in silent.split_off(silent.len() - FREE) {
            self.host.core().free_line(line).expect("it has no handler");
        }
        self.settle();
    }

    /// Vectors that were left become free, and lines that were moved away come back.
    fn settle(&self) {
        SimHal.delay_ns(SETTLES_NS);
        self.host.on_every_cpu(|host| host.core().housekeep());
    }

    /// Nobody has to make a CPU look: the core has told each that has work of it.
    fn check_same(&self, cpu: CpuId, before: &[LineView]) {
        for _ in 0..LOOKS {
            SimHal.delay_ns(SETTLES_NS);
            if self.difference(before).is_none() {
                return;
            }
        }
        if let Some(text) = self.difference(before) {
            violate(CHECKER, format!("CPU {cpu} could not go offline, and is not as before: {text}"));
        }
    }

    fn difference(&self, before: &[LineView]) -> Option<String> {
        // A line may stay where it went, if that is one of its CPUs.
        let astray = |line: &LineView| line.effective.is_none_or(|target| !line.affinity.contains(target.cpu));
        let state = |line: &LineView| (astray(line), line.masked, line.disabled_depth, line.shutdown, line.move_wanted);
        before.iter().find_map(|then| match self.host.core().view(then.irq) {
            Some(now) if state(&now) == state(then) => None,
            now => Some(format!("{then}\nthen {now:?}")),
        })
    }

    /// The managed line of `cpu` was shut down, and is back: nobody has to bring it back.
    fn check_kept(&self, cpu: CpuId) {
        let (line, count) = &self.kept[cpu.index()];
        let view = self.host.core().view(*line).expect("it lives");
        if view.shutdown || view.masked {
            violate(CHECKER, format!("CPU {cpu} could not go offline, and its managed line is shut down:\n{view}"));
        }
        let before = count.0.load(Relaxed);
        self.host.core().retrigger(*line).expect("a local APIC can");
        for _ in 0..LOOKS {
            SimHal.delay_ns(SETTLES_NS);
            if count.0.load(Relaxed) != before {
                break;
            }
        }
        let came = count.0.load(Relaxed) - before;
        if came != 1 {
            violate(CHECKER, format!("CPU {cpu} could not go offline, and its managed line came {came} times for one"));
        }
    }
}
