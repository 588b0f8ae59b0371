//! The controllers: the state that each keeps of a line, and what it refuses.

use super::super::{Ops, when};
use super::rules::{CPUS, Rules, Traits};
use crate::*;
use alloc::sync::Arc;
use alloc::vec::Vec;
use hal::Hal as _;
use hal::host::HostHal;
use std::sync::Mutex;
use std::thread::ThreadId;

/// What kind of controller it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Ack clears a request, and lines can be masked: a GPIO block, an 8259 without priorities.
    Simple,
    /// A GIC with EOImode = 0: eoi drops the priority and deactivates, on the CPU that took the interrupt.
    Together,
    /// A GIC with EOImode = 1: ack drops the priority, and eoi deactivates on any CPU.
    Split,
    /// The same, but a thread may not give the eoi.
    SplitHere,
    /// Any CPU may give the eoi, as with a PLIC's completion.
    Late,
    /// A GIC's LPIs: they have an eoi and no active state.
    Lpi,
}

impl Kind {
    pub(super) fn ops(self) -> Ops {
        let base = Ops { mask: true, set_affinity: true, retrigger: true, set_type: true, ..Ops::default() };
        match self {
            Self::Simple => Ops { ack: true, ..base },
            Self::SplitHere => Ops { ack: true, eoi: true, ends_in_halves: true, ..base },
            Self::Together => Ops { eoi: true, ..base },
            Self::Split => {
                let halves = Ops { automasks_flow: true, ends_in_halves: true, eoi_threaded: true, ..base };
                Ops { ack: true, eoi: true, ..halves }
            }
            Self::Late => Ops { eoi: true, eoi_threaded: true, ..base },
            Self::Lpi => Ops { eoi: true, oneshot_safe: true, ..base },
        }
    }

    pub(super) fn traits(self, oneshot: bool) -> Traits {
        let ops = self.ops();
        let (automasks, late_end) = (ops.automasks_flow, ops.eoi_threaded);
        Traits { acks: ops.ack, oneshot: oneshot && !ops.oneshot_safe, automasks, late_end }
    }

    fn has_active(self) -> bool {
        matches!(self, Self::Together | Self::Split | Self::SplitHere | Self::Late)
    }
}

/// One line on one controller. A private line has one of these per CPU.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Wire {
    /// An edge that no CPU has acknowledged.
    pub(super) latch: bool,
    /// Raised levels, one bit per device.
    pub(super) levels: u32,
    pub(super) enabled: bool,
    pub(super) active: bool,
    pub(super) route: usize,
}

impl Wire {
    fn is_ready(&self) -> bool {
        self.enabled && !self.active && (self.latch || self.levels != 0)
    }
}

pub(super) struct Lines {
    /// By line. A private line has one entry per CPU, other lines only the first.
    pub(super) wires: Vec<[Wire; CPUS]>,
    /// The line at whose priority each CPU runs.
    running: [Option<usize>; CPUS],
}

pub(super) struct Controller {
    pub(super) kind: Kind,
    hal: HostHal,
    /// The test's host thread. Other host threads belong to lines.
    main: ThreadId,
    pub(super) private: Option<usize>,
    pub(super) lines: Mutex<Lines>,
    /// The rules by line: the first controller's lines, then the second's.
    pub(super) rules: Arc<Vec<Mutex<Rules>>>,
    /// The number of the controller's first line in that order.
    pub(super) first: usize,
}

impl Controller {
    pub(super) fn new(
        kind: Kind,
        hal: HostHal,
        count: usize,
        private: Option<usize>,
        rules: &Arc<Vec<Mutex<Rules>>>,
        first: usize,
    ) -> Arc<Self> {
        let lines = Lines { wires: (0..count).map(|_| Default::default()).collect(), running: [None; CPUS] };
        let main = std::thread::current().id();
        Arc::new(Self { kind, hal, main, private, lines: Mutex::new(lines), rules: rules.clone(), first })
    }

    fn slot(&self, line: usize) -> usize {
        if self.private == Some(line) { self.hal.cpu().index() } else { 0 }
    }

    pub(super) fn wire<R>(&self, line: usize, f: impl FnOnce(&mut Wire) -> R) -> R {
        let slot = self.slot(line);
        f(&mut self.lines.lock().unwrap().wires[line][slot])
    }

    fn rule<R>(&self, line: usize, f: impl FnOnce(&mut Rules, Option<usize>) -> R) -> R {
        let cpu = (std::thread::current().id() == self.main).then(|| self.hal.cpu().index());
        f(&mut self.rules[self.first + line].lock().unwrap(), cpu)
    }

    fn ready(&self, lines: &Lines, line: usize, cpu: usize) -> bool {
        let wire = &lines.wires[line][if self.private == Some(line) { cpu } else { 0 }];
        (self.private == Some(line) || wire.route == cpu) && wire.is_ready()
    }

    /// The output of the chained controller: true if a line is raised and not masked.
    pub(super) fn raised(&self, after: usize) -> Option<usize> {
        let lines = self.lines.lock().unwrap();
        (after..lines.wires.len()).find(|&line| lines.wires[line][0].is_ready())
    }

    /// The line that `cpu` acknowledges, if any.
    pub(super) fn take(&self, cpu: usize, further: impl Fn(usize) -> bool) -> Option<usize> {
        let mut lines = self.lines.lock().unwrap();
        for (line, wires) in lines.wires.iter_mut().enumerate() {
            wires[0].levels = wires[0].levels & !4 | u32::from(further(line)) << 2;
        }
        if lines.running[cpu].is_some() {
            return None;
        }
        let line = (0..lines.wires.len()).find(|&line| self.ready(&lines, line, cpu))?;
        if self.kind != Kind::Simple {
            // A claim leaves no priority behind.
            lines.running[cpu] = Some(line).filter(|_| self.kind != Kind::Late);
            let wire = &mut lines.wires[line][if self.private == Some(line) { cpu } else { 0 }];
            (wire.latch, wire.active) = (false, self.kind.has_active());
        }
        drop(lines);
        self.rules[self.first + line].lock().unwrap().taken();
        Some(line)
    }

    fn drop_priority(&self, line: usize) {
        let cpu = self.hal.cpu().index();
        let dropped = self.lines.lock().unwrap().running[cpu].take();
        assert_eq!(dropped, Some(line), "CPU {cpu} drops a priority that it does not run at");
    }

    fn deactivate(&self, line: usize) {
        self.wire(line, |wire| {
            assert!(wire.active, "the end of a line that is not active");
            wire.active = false;
        });
    }
}

pub(super) struct Chip(pub(super) Arc<Controller>);

fn number(level: &Level<'_>) -> usize {
    level.hwirq().0 as usize
}

impl Chip {
    fn chip(self: &Arc<Self>) -> Arc<IrqChip> {
        let ops = self.0.kind.ops();
        let chip = IrqChip::of("MODEL", self)
            .behaviour(ops.behaviour())
            .mask(Self::mask, Self::unmask)
            .set_affinity(Self::set_affinity)
            .retrigger(Self::retrigger)
            .set_type(Self::set_type);
        let chip = when(ops.ack, chip, |chip| chip.ack(Self::ack));
        when(ops.eoi, chip, |chip| chip.eoi(Self::eoi)).build()
    }
    fn ack(&self, level: &Level<'_>) {
        let line = number(level);
        self.0.rule(line, |rules, cpu| rules.ack(cpu));
        match self.0.kind {
            Kind::Split | Kind::SplitHere => self.0.drop_priority(line),
            _ => self.0.wire(line, |wire| wire.latch = false),
        }
    }
    fn eoi(&self, level: &Level<'_>) {
        let line = number(level);
        self.0.rule(line, |rules, cpu| rules.eoi(cpu));
        match self.0.kind {
            Kind::Together => {
                self.0.drop_priority(line);
                self.0.deactivate(line);
            }
            Kind::Split | Kind::SplitHere | Kind::Late => self.0.deactivate(line),
            Kind::Lpi | Kind::Simple => self.0.drop_priority(line),
        }
    }
    fn mask(&self, level: &Level<'_>) {
        self.0.wire(number(level), |wire| wire.enabled = false);
        self.0.rule(number(level), |rules, _| rules.mask());
    }
    fn unmask(&self, level: &Level<'_>) {
        self.0.rule(number(level), |rules, _| rules.unmask());
        self.0.wire(number(level), |wire| wire.enabled = true);
    }
    fn set_type(&self, _: &Level<'_>, trigger: Trigger) -> Result<Option<Flow>, IrqError> {
        let flow = if trigger.is_level() { Flow::Level } else { Flow::Edge };
        Ok(Some(flow).filter(|_| self.0.kind == Kind::Simple))
    }
    fn retrigger(&self, level: &Level<'_>) -> bool {
        self.0.wire(number(level), |wire| wire.latch = true);
        true
    }
    fn set_affinity(&self, level: &Level<'_>, target: Target) -> Result<(), IrqError> {
        self.0.wire(number(level), |wire| wire.route = target.cpu.index());
        Ok(())
    }
}

pub(super) struct ModelDomain(pub(super) Arc<Chip>);

impl IrqDomain for ModelDomain {
    fn name(&self) -> &str {
        "MODEL"
    }
    fn parent(&self) -> Option<Arc<dyn IrqDomain>> {
        None
    }
    fn needs_identity(&self) -> bool {
        false
    }
    fn allocate(&self, request: &AllocRequest) -> Result<LevelData, IrqError> {
        Ok(LevelData { chip: self.0.chip(), hwirq: HardwareIrq(request.index.into()) })
    }
    fn activate(&self, level: &Level<'_>, target: Target) -> Result<(), IrqError> {
        self.0.set_affinity(level, target)
    }
    fn release(&self, _: HardwareIrq) {}
}
