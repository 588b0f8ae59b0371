//! Random histories of lines of every flow, on controllers of every kind, against the state machine of [`rules`]. They
//! include lines of a chained controller, private lines, and steps of other CPUs while a handler runs.

mod controller;
mod plan;
mod rules;

use super::threads::{Gate, wait_until};
use super::*;
use controller::{Chip, Controller, Kind, ModelDomain};
use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
use hal::Hal as _;
use plan::{CHILD, Handlers, LINES, Op, PRIVATE, Plan};
use proptest::prelude::*;
use rules::{CPUS, Rules, SHARED};
use std::collections::VecDeque;
use std::sync::OnceLock;

/// A handler and its thread.
struct Driver {
    action: Arc<dyn Action>,
    gate: Arc<Gate>,
    /// The raises up to the last time it began to serve; of a private line, by CPU.
    seen: Arc<[AtomicU32; CPUS]>,
    /// The CPU that its thread runs on.
    cpu: Arc<AtomicU32>,
}

struct World {
    hal: HostHal,
    core: Arc<IrqCore<HostHal>>,
    plan: Plan,
    gic: Arc<Controller>,
    gpio: Arc<Controller>,
    rules: Arc<Vec<Mutex<Rules>>>,
    irqs: OnceLock<[Option<Irq>; LINES]>,
    /// By line, in the order in which they are called.
    drivers: Mutex<[Vec<(usize, Driver)>; LINES]>,
    /// By line and device; of a private line, by CPU.
    raised: [[AtomicU32; CPUS]; LINES],
    /// The lines that each CPU has taken and not handled yet.
    taken: Mutex<[Option<usize>; CPUS]>,
    /// CPUs inside an interrupt.
    inside: Mutex<[bool; CPUS]>,
    /// Steps that run while handlers run.
    script: Mutex<VecDeque<Op>>,
}

impl World {
    fn new(plan: Plan, script: Vec<Op>) -> Arc<Self> {
        let hal = HostHal::manual(CPUS as u32);
        let rules = |line| {
            let oneshot = plan.handlers[line] == Handlers::Oneshot;
            Mutex::new(Rules::new(plan.flow(line), plan.kind_of(line).traits(oneshot)))
        };
        let rules = Arc::new((0..LINES).map(rules).collect::<Vec<_>>());
        let world = Arc::new(Self {
            hal,
            core: Arc::new(IrqCore::new(hal, x86(CPUS as u32, LINES as u32)).unwrap()),
            plan,
            gic: Controller::new(plan.kind, hal, CHILD, Some(PRIVATE), &rules, 0),
            gpio: Controller::new(Kind::Simple, hal, LINES - CHILD, None, &rules, CHILD),
            rules,
            irqs: OnceLock::new(),
            drivers: Mutex::default(),
            raised: Default::default(),
            taken: Mutex::default(),
            inside: Mutex::default(),
            script: Mutex::new(script.into()),
        });
        let irqs = core::array::from_fn(|line| plan.has(line).then(|| world.alloc(line)));
        world.irqs.set(irqs).unwrap();
        for line in (0..LINES).filter(|&line| plan.has(line)) {
            (0..plan.handlers_max(line)).for_each(|which| world.install(line, which));
        }
        world.percpu(|core, irq| core.enable_percpu(irq));
        world
    }

    fn alloc(&self, line: usize) -> Irq {
        let (controller, _) = self.controller(line);
        let domain = Arc::new(ModelDomain(Arc::new(Chip(controller.clone()))));
        let request = AllocRequest { index: (line - controller.first) as u32, ..on(CpuSet::first(CPUS as u32)) };
        let irq = self.core.alloc_line(domain, &request, self.plan.flow(line)).unwrap();
        if line != PRIVATE {
            self.core.set_type(irq, trigger(self.plan.level[line])).unwrap();
        }
        irq
    }

    fn percpu(&self, change: fn(&IrqCore<HostHal>, Irq) -> Result<(), IrqError>) {
        if let Some(irq) = self.irq(PRIVATE) {
            (0..CPUS as u32).for_each(|cpu| self.hal.on_cpu(CpuId(cpu), || change(&self.core, irq)).unwrap());
        }
    }

    fn irq(&self, line: usize) -> Option<Irq> {
        self.irqs.get().and_then(|irqs| irqs[line])
    }

    fn rules<R>(&self, line: usize, f: impl FnOnce(&mut Rules) -> R) -> R {
        let mut rules = self.rules[line].lock().unwrap();
        let result = f(&mut rules);
        let broken = rules.broken.take();
        drop(rules);
        if let Some(broken) = broken {
            panic!("line {line}, {:?}: {broken}", self.plan);
        }
        result
    }

    /// The line's controller, and its number there.
    fn controller(&self, line: usize) -> (&Arc<Controller>, usize) {
        if line < CHILD { (&self.gic, line) } else { (&self.gpio, line - CHILD) }
    }

    fn raise(&self, line: usize, which: usize) {
        let (controller, number) = self.controller(line);
        if line == PRIVATE {
            self.raised[line][which].fetch_add(1, SeqCst);
            controller.lines.lock().unwrap().wires[number][which].latch = true;
            return;
        }
        let which = which % self.plan.handlers_max(line);
        self.raised[line][which].fetch_add(1, SeqCst);
        let level = self.is_level(line);
        controller.wire(number, |wire| if level { wire.levels |= 1 << which } else { wire.latch = true });
    }

    fn is_level(&self, line: usize) -> bool {
        match self.plan.kind_of(line) {
            Kind::Simple => self.rules(line, |rules| rules.flow == Flow::Level),
            _ => self.plan.level[line],
        }
    }

    fn install(self: &Arc<Self>, line: usize, which: usize) {
        let Some(irq) = self.irq(line) else { return };
        self.rules(line, |rules| rules.handlers += 1);
        let handlers = self.plan.handlers[line];
        let (gate, seen, cpu) = (Arc::<Gate>::default(), Arc::<[AtomicU32; CPUS]>::default(), Arc::default());
        // Interrupts before the handler was installed are not owed to it.
        (0..CPUS).for_each(|index| seen[index].store(self.raised[line][index].load(SeqCst), SeqCst));
        let flags = RequestFlags {
            shared: self.plan.handlers_max(line) > 1,
            oneshot: handlers == Handlers::Oneshot,
            ..RequestFlags::default()
        };
        let action = match handlers {
            Handlers::Chained => {
                let world = Arc::downgrade(self);
                let demultiplexer = move |_: &_| world.upgrade().unwrap().demultiplex();
                let chained = self.core.request_chained(irq, "chained", Arc::new(demultiplexer));
                chained.unwrap()
            }
            Handlers::Plain => {
                let (world, seen) = (self.clone(), seen.clone());
                let action = handler(move |_| world.primary(line, which, None, &seen));
                self.core.request(irq, "plain", flags, action.clone()).unwrap();
                action
            }
            Handlers::Threaded | Handlers::Oneshot => {
                let (world, serves) = (self.clone(), handlers == Handlers::Threaded);
                let primary = handler({
                    let (gate, seen) = (gate.clone(), seen.clone());
                    move |_| world.primary(line, which, Some((&gate, serves)), &seen)
                });
                let (world, gate, seen, cpu) = (self.clone(), gate.clone(), seen.clone(), Arc::clone(&cpu));
                let thread = handler(move |_| world.thread(line, which, (&gate, !serves), &seen, &cpu));
                self.core.request_threaded(irq, "threaded", flags, Some(primary.clone()), thread).unwrap();
                primary
            }
        };
        self.drivers.lock().unwrap()[line].push((which, Driver { action, gate, seen, cpu }));
        if handlers != Handlers::Chained && self.is_level(line) {
            // The last driver may have left the device's wire raised.
            self.serve(line, which);
        }
    }

    /// Takes the device's wire down.
    fn serve(&self, line: usize, which: usize) {
        let (controller, number) = self.controller(line);
        controller.wire(number, |wire| wire.levels &= !(1 << which));
    }

    fn see(&self, line: usize, which: usize, seen: &[AtomicU32; CPUS]) {
        let which = if line == PRIVATE { self.hal.cpu().index() } else { which };
        seen[which].store(self.raised[line][which].load(SeqCst), SeqCst);
    }

    fn primary(
        self: &Arc<Self>,
        line: usize,
        which: usize,
        thread: Option<(&Gate, bool)>,
        seen: &[AtomicU32; CPUS],
    ) -> IrqReturn {
        let cpu = self.hal.cpu().index();
        let is = |driver: Option<&(usize, Driver)>| driver.is_none_or(|&(other, _)| other == which);
        let (first, last) = {
            let drivers = &self.drivers.lock().unwrap()[line];
            (is(drivers.first()), is(drivers.last()))
        };
        if first {
            self.wait_for_threads(line);
        }
        self.rules(line, |rules| rules.begin(cpu, first));
        if thread.is_none_or(|(_, serves)| serves) && line != PRIVATE {
            self.serve(line, which);
        }
        if thread.is_none() {
            self.see(line, which, seen);
        }
        let next = self.script.lock().unwrap().pop_front();
        if let Some(op) = next {
            let own = |op| if let Op::Collide(_, to) = op { Op::Collide(line, to) } else { op };
            self.apply(&own(op), true);
        }
        self.rules(line, |rules| rules.end(cpu, thread.map(|_| which), last));
        if thread.is_some() { IrqReturn::WakeThread } else { IrqReturn::Handled }
    }

    /// Runs the thread function on its own host thread. The test waits for its begin or its end.
    fn thread(
        &self,
        line: usize,
        which: usize,
        (gate, serves): (&Gate, bool),
        seen: &[AtomicU32; CPUS],
        cpu: &AtomicU32,
    ) -> IrqReturn {
        if serves {
            self.serve(line, which);
        }
        self.see(line, which, seen);
        cpu.store(self.hal.cpu().0, SeqCst);
        gate.pass();
        IrqReturn::Handled
    }

    /// Threads that were woken have begun.
    fn wait_for_threads(&self, line: usize) {
        let threads = self.rules(line, |rules| rules.threads);
        for (which, driver) in &self.drivers.lock().unwrap()[line] {
            wait_until(|| driver.gate.is_passed() != threads[*which].busy);
        }
    }

    fn demultiplex(self: &Arc<Self>) -> IrqReturn {
        let cpu = self.hal.cpu().index();
        self.rules(1, |rules| rules.begin(cpu, true));
        let mut handled = IrqReturn::None;
        for number in 0..LINES - CHILD {
            if self.gpio.raised(number) == Some(number) {
                self.rules(CHILD + number, Rules::taken);
                self.flow(CHILD + number, cpu);
                handled = IrqReturn::Handled;
            }
        }
        self.rules(1, |rules| rules.end(cpu, None, true));
        handled
    }

    fn flow(&self, line: usize, cpu: usize) {
        self.rules(line, |rules| rules.enter(cpu));
        assert!(self.core.handle_irq(self.irq(line).unwrap()));
        self.wait_for_threads(line);
        self.rules(line, |rules| rules.leave(cpu));
    }

    fn apply(self: &Arc<Self>, op: &Op, nested: bool) {
        match *op {
            Op::Raise(line, which) if self.plan.has(line) && self.plan.handlers[line] != Handlers::Chained => {
                self.raise(line, which);
            }
            Op::Take(cpu) => self.take(cpu),
            Op::Deliver(cpu) => self.deliver(cpu),
            Op::ThreadEnd(line, which) => self.end_thread(line, which),
            Op::Replace(line, which) if !nested => self.replace(line, which),
            Op::Offline(cpu) if !nested && self.taken.lock().unwrap()[cpu].is_none() => {
                self.hal.on_cpu(CpuId(cpu as u32), || self.core.cpu_offline()).unwrap();
                self.core.cpu_online(CpuId(cpu as u32)).unwrap();
            }
            Op::Collide(line, cpu) | Op::Overtake(line, cpu) => {
                self.apply(&Op::Deliver(cpu), nested);
                self.apply(&Op::Move(line, cpu), nested);
                self.apply(&Op::Raise(line, cpu), nested);
                self.apply(&Op::Take(cpu), nested);
                if matches!(op, Op::Overtake(..)) {
                    self.apply(&Op::Disable(line), nested);
                }
                self.apply(&Op::Deliver(cpu), nested);
            }
            Op::Disable(line) | Op::Enable(line) | Op::Move(line, _) | Op::Retrigger(line) | Op::SetType(line, _) => {
                if let Some(irq) = self.irq(line).filter(|_| line != PRIVATE) {
                    self.manage(line, irq, op);
                }
            }
            _ => {}
        }
        (0..LINES).for_each(|line| self.rules(line, Rules::rest));
    }

    fn take(&self, cpu: usize) {
        if self.taken.lock().unwrap()[cpu].is_none() && !self.inside.lock().unwrap()[cpu] {
            let chained = self.plan.has(CHILD);
            let taken = self.gic.take(cpu, |line| chained && line == 1 && self.gpio.raised(0).is_some());
            self.taken.lock().unwrap()[cpu] = taken;
        }
    }

    fn deliver(&self, cpu: usize) {
        let Some(line) = self.taken.lock().unwrap()[cpu].take() else { return };
        self.inside.lock().unwrap()[cpu] = true;
        self.hal.interrupt(CpuId(cpu as u32), || self.core.handle_exception(|_| self.flow(line, cpu)));
        self.inside.lock().unwrap()[cpu] = false;
    }

    fn manage(&self, line: usize, irq: Irq, op: &Op) {
        match *op {
            Op::Disable(_) => {
                self.rules(line, |rules| rules.depth += 1);
                // This does not wait: the line's threads need this test to end.
                self.core.disable_nosync(irq).unwrap();
            }
            Op::Enable(_) if self.rules(line, |rules| rules.depth) == 0 => {
                assert_eq!(self.core.enable(irq), Err(IrqError::NotDisabled(irq)));
            }
            Op::Enable(_) => {
                self.rules(line, |rules| rules.depth -= 1);
                self.core.enable(irq).unwrap();
            }
            Op::Move(_, cpu) if line != CHILD => {
                self.core.set_affinity(irq, &CpuSet::of(CpuId(cpu as u32))).unwrap();
            }
            Op::Retrigger(_) => self.core.retrigger(irq).unwrap(),
            Op::SetType(_, level)
                if self.plan.kind_of(line) == Kind::Simple && self.plan.handlers[line] != Handlers::Chained =>
            {
                self.set_type(line, irq, level);
            }
            _ => {}
        }
    }

    /// Changes the trigger of the line and of its device. The device signals its pending raises by the new trigger.
    fn set_type(&self, line: usize, irq: Irq, level: bool) {
        self.core.set_type(irq, trigger(level)).unwrap();
        self.rules(line, |rules| rules.flow = if level { Flow::Level } else { Flow::Edge });
        let (controller, number) = self.controller(line);
        controller.wire(number, |wire| wire.levels = 0);
        for (which, driver) in &self.drivers.lock().unwrap()[line] {
            if driver.seen[*which].load(SeqCst) != self.raised[line][*which].load(SeqCst) {
                controller.wire(number, |wire| if level { wire.levels |= 1 << which } else { wire.latch = true });
            }
        }
    }

    fn end_thread(&self, line: usize, which: usize) {
        let busy = |rules: &mut Rules| rules.threads[which].busy && !rules.freeing;
        if !self.plan.has(line) || !self.rules(line, busy) {
            return;
        }
        let (gate, cpu) = {
            let drivers = self.drivers.lock().unwrap();
            let (_, driver) = drivers[line].iter().find(|(other, _)| *other == which).unwrap();
            (driver.gate.clone(), driver.cpu.load(SeqCst) as usize)
        };
        // The call takes the line's lock, which it cannot while its CPU is in an interrupt.
        if self.inside.lock().unwrap()[cpu] {
            return;
        }
        let begun = gate.begun();
        let again = self.rules(line, |rules| rules.finish(which));
        let working = self.rules(line, |rules| rules.threads.iter().filter(|thread| thread.busy).count());
        gate.open();
        let irq = self.irq(line).unwrap();
        wait_until(|| match again {
            true => gate.begun() != begun,
            false => self.core.view(irq).unwrap().threads_working as usize == working,
        });
    }

    fn replace(self: &Arc<Self>, line: usize, which: usize) {
        let Some(irq) = self.irq(line).filter(|_| line != PRIVATE) else { return };
        let driver = {
            let mut drivers = self.drivers.lock().unwrap();
            let Some(index) = drivers[line].iter().position(|(other, _)| *other == which) else { return };
            drivers[line].remove(index).1
        };
        self.free(line, irq, which, driver);
        self.install(line, which);
    }

    /// Frees the handler, which waits for its thread.
    fn free(&self, line: usize, irq: Irq, which: usize, driver: Driver) {
        let runs = self.rules(line, |rules| {
            rules.freeing = true;
            rules.handlers -= 1;
            let mut runs = 0;
            while rules.threads[which].busy {
                rules.finish(which);
                runs += 1;
            }
            runs
        });
        (0..runs).for_each(|_| driver.gate.open());
        self.core.free(irq, &driver.action).unwrap();
        self.rules(line, |rules| {
            rules.freeing = false;
            // The first handler of a line starts it anew.
            rules.depth *= u32::from(rules.handlers > 0);
        });
    }

    /// Heals all faults. Then every raised interrupt must have been handled.
    fn settle(self: &Arc<Self>) {
        self.script.lock().unwrap().clear();
        for line in (0..LINES).filter(|&line| self.plan.has(line) && line != PRIVATE) {
            (0..self.rules(line, |rules| rules.depth)).for_each(|_| self.apply(&Op::Enable(line), false));
        }
        for cpu in (0..4 * LINES).flat_map(|_| 0..CPUS) {
            self.apply(&Op::Deliver(cpu), false);
            for line in 0..LINES {
                (0..SHARED).for_each(|which| self.apply(&Op::ThreadEnd(line, which), false));
            }
            self.apply(&Op::Take(cpu), false);
        }
        self.percpu(|core, irq| core.disable_percpu(irq));
        for line in (0..LINES).rev().filter(|&line| self.plan.has(line)) {
            let (controller, number) = self.controller(line);
            for wire in &controller.lines.lock().unwrap().wires[number] {
                assert!(!wire.latch && !wire.active && wire.levels == 0, "line {line}: {wire:?}, {:?}", self.plan);
            }
            let irq = self.irq(line).unwrap();
            let drivers = core::mem::take(&mut self.drivers.lock().unwrap()[line]);
            for (which, driver) in drivers {
                let devices = if line == PRIVATE { 0..CPUS } else { which..which + 1 };
                for device in devices.filter(|_| self.plan.handlers[line] != Handlers::Chained) {
                    let (seen, raised) = (&driver.seen[device], &self.raised[line][device]);
                    assert_eq!(seen.load(SeqCst), raised.load(SeqCst), "line {line} lost one, {:?}", self.plan);
                }
                self.free(line, irq, which, driver);
            }
            self.core.free_line(irq).unwrap();
        }
        self.hal.join_all();
    }
}

fn trigger(level: bool) -> Trigger {
    if level { Trigger::LevelHigh } else { Trigger::EdgeRising }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2048, max_shrink_iters: 4096, ..ProptestConfig::default() })]

    #[test]
    fn every_flow_keeps_to_its_state_machine(
        plan in plan::plan(),
        ops in prop::collection::vec(plan::op(), 1..80),
        script in prop::collection::vec(plan::op(), 0..40),
    ) {
        let world = World::new(plan, script);
        ops.iter().for_each(|op| world.apply(op, false));
        world.settle();
    }
}
