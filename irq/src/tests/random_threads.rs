//! Random interleavings of interrupts, threads, disable and enable, moves and free, against a specified state machine:
//! each activation has one ack, then one eoi; no line is unmasked before its threads are done; no interrupt is lost.

use super::threads::{Gate, wait_until};
use super::*;
use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
use hal::Hal as _;
use proptest::prelude::*;
use std::vec;

const CPUS: u32 = 3;
const LINES: u32 = 2;

/// One line in the hardware, as a GIC keeps it.
#[derive(Clone, Copy, Default, Debug)]
struct Wire {
    pending: bool,
    active: bool,
    enabled: bool,
    route: u32,
    acks: u32,
    ends: u32,
}

/// A GIC. With EOImode = 1, ack drops the priority and eoi deactivates. Otherwise eoi does both, on the CPU that took
/// the interrupt.
struct Gic {
    hal: HostHal,
    splits_eoi: bool,
    wires: Mutex<Vec<Wire>>,
    /// The line at whose priority each CPU runs.
    running: Mutex<Vec<Option<usize>>>,
}

impl Gic {
    fn wire<R>(&self, line: usize, f: impl FnOnce(&mut Wire) -> R) -> R {
        f(&mut self.wires.lock().unwrap()[line])
    }

    /// The line that `cpu` gets when it acknowledges.
    fn acknowledge(&self, cpu: u32) -> Option<usize> {
        let mut wires = self.wires.lock().unwrap();
        let ready = |wire: &Wire| wire.pending && wire.enabled && !wire.active && wire.route == cpu;
        let line = wires.iter().position(ready)?;
        (wires[line].pending, wires[line].active) = (false, true);
        let before = self.running.lock().unwrap()[cpu as usize].replace(line);
        assert_eq!(before, None, "CPU {cpu} is interrupted at the same priority");
        Some(line)
    }

    fn drop_priority(&self, line: usize) {
        let cpu = self.hal.cpu().index();
        let dropped = self.running.lock().unwrap()[cpu].take();
        assert_eq!(dropped, Some(line), "CPU {cpu} drops a priority that it does not run at");
        self.wire(line, |wire| wire.acks += 1);
    }
}

struct GicChip(Arc<Gic>);

impl GicChip {
    fn chip(self: &Arc<Self>) -> Arc<IrqChip> {
        let split = self.0.splits_eoi;
        let behaviour = ChipBehaviour { automasks_flow: split, eoi_threaded: split, ..ChipBehaviour::default() };
        let chip = IrqChip::of("GIC", self)
            .behaviour(behaviour)
            .eoi(Self::eoi)
            .mask(Self::mask, Self::unmask)
            .set_affinity(Self::set_affinity)
            .retrigger(Self::retrigger);
        when(split, chip, |chip| chip.ack(Self::ack)).build()
    }
    fn ack(&self, level: &Level<'_>) {
        self.0.drop_priority(level.hwirq().0 as usize);
    }
    fn eoi(&self, level: &Level<'_>) {
        let line = level.hwirq().0 as usize;
        if !self.0.splits_eoi {
            self.0.drop_priority(line);
        }
        self.0.wire(line, |wire| {
            assert!(wire.active, "the end of a line that is not active");
            wire.active = false;
            wire.ends += 1;
        });
    }
    fn mask(&self, level: &Level<'_>) {
        self.0.wire(level.hwirq().0 as usize, |wire| wire.enabled = false);
    }
    fn unmask(&self, level: &Level<'_>) {
        self.0.wire(level.hwirq().0 as usize, |wire| wire.enabled = true);
    }
    fn retrigger(&self, level: &Level<'_>) -> bool {
        self.0.wire(level.hwirq().0 as usize, |wire| wire.pending = true);
        true
    }
    fn set_affinity(&self, level: &Level<'_>, target: Target) -> Result<(), IrqError> {
        self.0.wire(level.hwirq().0 as usize, |wire| wire.route = target.cpu.0);
        Ok(())
    }
}

struct GicDomain(Arc<GicChip>);

impl IrqDomain for GicDomain {
    fn name(&self) -> &str {
        "GIC"
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

#[derive(Clone, Debug)]
enum Op {
    Raise(u32),
    /// A CPU acknowledges. The line's flow has not begun yet.
    Acknowledge(u32),
    /// The CPU goes on to the line's flow.
    Deliver(u32),
    /// A thread of the line is done.
    ThreadEnd(u32, u32),
    Disable(u32),
    Enable(u32),
    SetAffinity(u32, u32),
    /// A CPU goes offline and comes back.
    Offline(u32),
    /// Free a handler and request another.
    Replace(u32, u32),
}

fn op() -> impl Strategy<Value = Op> {
    let (line, cpu) = (0..LINES, 0..CPUS);
    prop_oneof![
        6 => line.clone().prop_map(Op::Raise),
        6 => cpu.clone().prop_map(Op::Acknowledge),
        6 => cpu.clone().prop_map(Op::Deliver),
        5 => (line.clone(), 0..2u32).prop_map(|(line, which)| Op::ThreadEnd(line, which)),
        2 => line.clone().prop_map(Op::Disable),
        2 => line.clone().prop_map(Op::Enable),
        2 => (line.clone(), cpu.clone()).prop_map(|(line, cpu)| Op::SetAffinity(line, cpu)),
        1 => cpu.prop_map(Op::Offline),
        1 => (line, 0..2u32).prop_map(|(line, which)| Op::Replace(line, which)),
    ]
}

/// One threaded handler and its counts.
struct Driver {
    gate: Arc<Gate>,
    thread: Arc<dyn Action>,
    /// Raises that the thread knew of when it last began.
    seen: Arc<AtomicU32>,
    /// Calls of the thread that are over.
    ended: Arc<AtomicU32>,
}

/// The specified state of a line.
#[derive(Default, Debug)]
struct Expected {
    depth: u32,
    /// Threads at work, a bit each.
    working: u32,
    /// Its mask in the hardware.
    masked: bool,
    /// Taken, and its eoi not given yet. The flow gives it, or the threads do when they are done.
    active: bool,
    raised: u32,
}

struct Rig {
    hal: HostHal,
    gic: Arc<Gic>,
    core: IrqCore<HostHal>,
    irqs: Vec<Irq>,
    drivers: Vec<[Driver; 2]>,
    expected: Vec<Expected>,
    /// The lines that each CPU has acknowledged and not handled yet.
    taken: Vec<Option<usize>>,
    raised: Arc<Vec<AtomicU32>>,
}

impl Rig {
    fn new(splits_eoi: bool) -> Self {
        let hal = HostHal::manual(CPUS);
        let gic = Arc::new(Gic {
            hal,
            splits_eoi,
            wires: Mutex::new(vec![Wire::default(); LINES as usize]),
            running: Mutex::new(vec![None; CPUS as usize]),
        });
        let core = IrqCore::new(hal, x86(CPUS, LINES)).unwrap();
        let domain = Arc::new(GicDomain(Arc::new(GicChip(gic.clone()))));
        let flow = if splits_eoi { Flow::Strict } else { Flow::FastEoi };
        let alloc =
            |index| core.alloc_line(domain.clone(), &AllocRequest { index, ..on(CpuSet::first(CPUS)) }, flow).unwrap();
        let irqs: Vec<Irq> = (0..LINES).map(alloc).collect();
        let raised = Arc::new((0..LINES).map(|_| AtomicU32::new(0)).collect::<Vec<_>>());
        let driver = |line: usize| [0, 1].map(|_| install(&core, irqs[line], &raised, line));
        let drivers = (0..LINES as usize).map(driver).collect();
        let expected = (0..LINES).map(|_| Expected::default()).collect();
        Self { hal, gic, core, irqs, drivers, expected, taken: vec![None; CPUS as usize], raised }
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Raise(line) => {
                self.raised[line as usize].fetch_add(1, SeqCst);
                self.expected[line as usize].raised += 1;
                self.gic.wire(line as usize, |wire| wire.pending = true);
            }
            Op::Acknowledge(cpu) => {
                if self.taken[cpu as usize].is_none()
                    && let Some(line) = self.gic.acknowledge(cpu)
                {
                    self.taken[cpu as usize] = Some(line);
                    self.expected[line].active = true;
                }
            }
            Op::Deliver(cpu) => self.deliver(cpu),
            Op::ThreadEnd(line, which) => self.end_thread(line as usize, which as usize),
            Op::Disable(line) => {
                // This does not wait: the line's threads need this test to end.
                self.core.disable_nosync(self.irqs[line as usize]).unwrap();
                self.expected[line as usize].depth += 1;
                self.expected[line as usize].masked = true;
            }
            Op::Enable(line) => self.enable(line as usize),
            Op::SetAffinity(line, cpu) => {
                self.core.set_affinity(self.irqs[line as usize], &CpuSet::of(CpuId(cpu))).unwrap();
            }
            Op::Offline(cpu) => {
                if self.taken[cpu as usize].is_none() {
                    self.hal.on_cpu(CpuId(cpu), || self.core.cpu_offline()).unwrap();
                    self.core.cpu_online(CpuId(cpu)).unwrap();
                }
            }
            Op::Replace(line, which) => self.replace(line as usize, which as usize),
        }
        (0..LINES as usize).for_each(|line| self.check(line));
    }

    fn deliver(&mut self, cpu: u32) {
        let Some(line) = self.taken[cpu as usize].take() else { return };
        let begun: Vec<u32> = self.drivers[line].iter().map(|driver| driver.gate.begun()).collect();
        let irq = self.irqs[line];
        self.hal.interrupt(CpuId(cpu), || self.core.handle_exception(|core| assert!(core.handle_irq(irq))));
        let expected = &mut self.expected[line];
        if expected.depth > 0 {
            // The interrupt cannot run: it stays pending, and is ended at once.
            expected.active = false;
            return;
        }
        expected.working = 0b11;
        expected.active = self.gic.splits_eoi;
        expected.masked |= !self.gic.splits_eoi;
        for (driver, begun) in self.drivers[line].iter().zip(begun) {
            wait_until(|| driver.gate.begun() != begun);
        }
    }

    fn end_thread(&mut self, line: usize, which: usize) {
        if self.expected[line].working & 1 << which == 0 {
            return;
        }
        let left = self.expected[line].working & !(1 << which);
        self.drivers[line][which].gate.open();
        wait_until(|| self.core.view(self.irqs[line]).unwrap().threads_working == left.count_ones());
        self.ended(line, left);
    }

    /// The threads of `line` that still work.
    fn ended(&mut self, line: usize, left: u32) {
        let expected = &mut self.expected[line];
        expected.working = left;
        if left == 0 {
            expected.active &= !self.gic.splits_eoi;
            expected.masked = expected.depth > 0;
        }
    }

    fn enable(&mut self, line: usize) {
        let (irq, expected) = (self.irqs[line], &mut self.expected[line]);
        if expected.depth == 0 {
            assert_eq!(self.core.enable(irq), Err(IrqError::NotDisabled(irq)));
            return;
        }
        self.core.enable(irq).unwrap();
        expected.depth -= 1;
        expected.masked = expected.depth > 0 || (expected.masked && expected.working != 0);
    }

    fn replace(&mut self, line: usize, which: usize) {
        let works = self.expected[line].working & 1 << which != 0;
        let Driver { gate, thread, ended, .. } = &self.drivers[line][which];
        let before = ended.load(SeqCst);
        if works {
            gate.open();
        }
        self.core.free(self.irqs[line], thread).unwrap();
        assert_eq!(ended.load(SeqCst) - before, u32::from(works), "free waits for the thread");
        assert_eq!(Arc::strong_count(thread), 1, "the core still holds the handler");
        if works {
            let left = self.expected[line].working & !(1 << which);
            self.ended(line, left);
        }
        self.drivers[line][which] = install(&self.core, self.irqs[line], &self.raised, line);
    }

    fn check(&self, line: usize) {
        let (wire, expected) = (self.gic.wire(line, |wire| *wire), &self.expected[line]);
        let view = self.core.view(self.irqs[line]).unwrap();
        let taken = self.taken.contains(&Some(line));
        assert_eq!(wire.active, expected.active, "line {line}: {wire:?}, {expected:?}\n{view}");
        assert_eq!(!wire.enabled, expected.masked, "line {line}: {wire:?}, {expected:?}\n{view}");
        assert_eq!(view.masked, expected.masked);
        assert_eq!(view.threads_working, expected.working.count_ones());
        assert_eq!(wire.acks, wire.ends + u32::from(wire.active && !taken), "line {line}: {wire:?}");
        assert_eq!(view.flow_masked, wire.active && !taken);
    }

    /// Heals all faults. Then every raised interrupt must have been handled.
    fn settle(&mut self) {
        for line in 0..LINES {
            (0..self.expected[line as usize].depth).for_each(|_| self.apply(&Op::Enable(line)));
        }
        for _ in 0..4 {
            for cpu in 0..CPUS {
                (0..2 * LINES).for_each(|_| {
                    self.apply(&Op::Deliver(cpu));
                    (0..LINES).for_each(|line| (0..2).for_each(|which| self.apply(&Op::ThreadEnd(line, which))));
                    self.apply(&Op::Acknowledge(cpu));
                });
            }
        }
        for (line, drivers) in self.drivers.iter().enumerate() {
            let wire = self.gic.wire(line, |wire| *wire);
            assert!(!wire.pending && !wire.active && wire.enabled, "line {line}: {wire:?}");
            for driver in drivers {
                assert_eq!(
                    driver.seen.load(SeqCst),
                    self.expected[line].raised,
                    "an interrupt of line {line} was lost"
                );
                self.core.free(self.irqs[line], &driver.thread).unwrap();
            }
            self.core.free_line(self.irqs[line]).unwrap();
        }
    }
}

fn install(core: &IrqCore<HostHal>, irq: Irq, raised: &Arc<Vec<AtomicU32>>, line: usize) -> Driver {
    let (gate, seen, ended) = (Arc::<Gate>::default(), Arc::<AtomicU32>::default(), Arc::<AtomicU32>::default());
    let thread = handler({
        let (gate, seen, ended, raised) = (gate.clone(), seen.clone(), ended.clone(), raised.clone());
        move |_| {
            let now = raised[line].load(SeqCst);
            gate.pass();
            seen.store(now, SeqCst);
            ended.fetch_add(1, SeqCst);
            IrqReturn::Handled
        }
    });
    // What came before it was there is not owed to it.
    seen.store(raised[line].load(SeqCst), SeqCst);
    let flags = RequestFlags { shared: true, oneshot: true, ..RequestFlags::default() };
    core.request_threaded(irq, "test", flags, None, thread.clone()).unwrap();
    Driver { gate, thread, seen, ended }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, max_shrink_iters: 2048, ..ProptestConfig::default() })]

    #[test]
    fn every_activation_is_ended_once_and_no_interrupt_lost(
        ops in prop::collection::vec(op(), 1..60),
        splits_eoi: bool,
    ) {
        let mut rig = Rig::new(splits_eoi);
        for op in &ops {
            rig.apply(op);
        }
        rig.settle();
    }
}
