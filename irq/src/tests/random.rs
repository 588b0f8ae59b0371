//! Random interleavings of all operations with arriving interrupts: none is lost, and none reaches a wrong handler.

use super::model::{Kind, Model, ModelDomain};
use super::*;
use core::cell::RefCell;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use proptest::prelude::*;
use std::rc::Rc;
use std::vec;

const CPUS: u32 = 3;
const LINES: u32 = 3;

#[derive(Clone, Debug)]
enum Op {
    Raise(u32),
    Take(u32),
    SetAffinity(u32, u32),
    Disable(u32),
    Enable(u32),
    Offline(u32),
    Online(u32),
    Housekeep(u32),
    /// Free the handler and request another.
    Replace(u32),
    /// Free the whole line and allocate it anew.
    Realloc(u32),
    Synchronize(u32),
}

fn op() -> impl Strategy<Value = Op> {
    let (line, cpu) = (0..LINES, 0..CPUS);
    prop_oneof![
        4 => line.clone().prop_map(Op::Raise),
        4 => cpu.clone().prop_map(Op::Take),
        3 => (line.clone(), 1u32..1 << CPUS).prop_map(|(line, cpus)| Op::SetAffinity(line, cpus)),
        1 => line.clone().prop_map(Op::Disable),
        2 => line.clone().prop_map(Op::Enable),
        1 => cpu.clone().prop_map(Op::Offline),
        1 => cpu.clone().prop_map(Op::Online),
        2 => cpu.prop_map(Op::Housekeep),
        1 => line.clone().prop_map(Op::Replace),
        1 => line.clone().prop_map(Op::Realloc),
        1 => line.prop_map(Op::Synchronize),
    ]
}

/// What a device and its driver know about each other.
#[derive(Default)]
struct Ledger {
    raised: AtomicU64,
    /// The value of `raised` when a handler last began.
    seen: AtomicU64,
}

struct Driver {
    irq: Irq,
    action: Arc<dyn Action>,
    live: Arc<AtomicBool>,
    ledger: Arc<Ledger>,
    depth: u32,
}

struct Rig {
    hal: HostHal,
    model: Arc<Model>,
    core: Arc<IrqCore<HostHal>>,
    domain: Arc<ModelDomain>,
    flow: Flow,
    drivers: Vec<Driver>,
    online: Rc<RefCell<CpuSet>>,
    taken: Rc<RefCell<u64>>,
    /// Interrupts of lines that have been freed since.
    lines_freed: u64,
}

impl Rig {
    fn new(kind: Kind, flow: Flow) -> Self {
        let hal = HostHal::manual(CPUS);
        let model = Model::new(hal, CPUS, LINES);
        let domain = Arc::new(ModelDomain::new(&model, kind));
        let mut core = IrqCore::new(hal, x86(CPUS, 64)).unwrap();
        core.set_root_chip(root_of(&domain));
        let mut rig = Self {
            hal,
            model,
            core: Arc::new(core),
            domain,
            flow,
            drivers: Vec::new(),
            online: Rc::new(RefCell::new(CpuSet::first(CPUS))),
            taken: Rc::default(),
            lines_freed: 0,
        };
        for index in 0..LINES {
            let driver = rig.start(index, Arc::default());
            rig.drivers.push(driver);
        }
        rig
    }

    fn start(&self, index: u32, ledger: Arc<Ledger>) -> Driver {
        let request = AllocRequest { index, ..on(CpuSet::first(CPUS)) };
        let irq = self.core.alloc_line(self.domain.clone(), &request, self.flow).unwrap();
        let (action, live) = self.install(irq, &ledger);
        Driver { irq, action, live, ledger, depth: 0 }
    }

    fn install(&self, irq: Irq, ledger: &Arc<Ledger>) -> (Arc<dyn Action>, Arc<AtomicBool>) {
        let live = Arc::new(AtomicBool::new(true));
        let (alive, book) = (live.clone(), ledger.clone());
        let action = handler(move |came| {
            assert!(alive.load(SeqCst), "delivered to a handler that was freed");
            assert_eq!(came, irq, "delivered to another line's handler");
            book.seen.store(book.raised.load(SeqCst), SeqCst);
            IrqReturn::Handled
        });
        self.core.request(irq, "test", RequestFlags::default(), action.clone()).unwrap();
        (action, live)
    }

    fn raise(&self, line: u32) {
        self.drivers[line as usize].ledger.raised.fetch_add(1, SeqCst);
        self.model.raise(line);
    }

    fn take(&self, cpu: u32) -> bool {
        let cpu = CpuId(cpu);
        let took = self.online.borrow().contains(cpu) && self.model.take(cpu, |vector| self.core.handle_vector(vector));
        *self.taken.borrow_mut() += u64::from(took);
        took
    }

    /// From now on other CPUs run `script` at every point where this CPU could be interrupted.
    fn hook(&self, script: Vec<(u32, u32)>) {
        let ledgers: Vec<_> = self.drivers.iter().map(|driver| driver.ledger.clone()).collect();
        let (model, core, online, taken) =
            (self.model.clone(), self.core.clone(), self.online.clone(), self.taken.clone());
        let script = RefCell::new(script.into_iter());
        self.hal.set_interrupt_hook(move || {
            let Some((line, cpu)) = script.borrow_mut().next() else { return };
            ledgers[line as usize].raised.fetch_add(1, SeqCst);
            model.raise(line);
            if online.borrow().contains(CpuId(cpu)) && model.take(CpuId(cpu), |vector| core.handle_vector(vector)) {
                *taken.borrow_mut() += 1;
            }
        });
    }

    fn apply(&mut self, op: &Op) {
        let core = self.core.clone();
        match *op {
            Op::Raise(line) => self.raise(line),
            Op::Take(cpu) => _ = self.take(cpu),
            Op::SetAffinity(line, cpus) => {
                let cpus: CpuSet = (0..CPUS).filter(|cpu| cpus & 1 << cpu != 0).map(CpuId).collect();
                let irq = self.drivers[line as usize].irq;
                let expected =
                    if cpus.and(&self.online.borrow()).is_empty() { Err(IrqError::NoCpu(irq)) } else { Ok(()) };
                assert_eq!(core.set_affinity(irq, &cpus), expected);
            }
            Op::Disable(line) => {
                core.disable(self.drivers[line as usize].irq).unwrap();
                self.drivers[line as usize].depth += 1;
            }
            Op::Enable(line) => {
                let driver = &mut self.drivers[line as usize];
                let expected = if driver.depth == 0 { Err(IrqError::NotDisabled(driver.irq)) } else { Ok(()) };
                driver.depth = driver.depth.saturating_sub(1);
                assert_eq!(core.enable(driver.irq), expected);
            }
            Op::Offline(cpu) => self.offline(CpuId(cpu)),
            Op::Online(cpu) => {
                let offline = !self.online.borrow().contains(CpuId(cpu));
                assert_eq!(core.cpu_online(CpuId(cpu)).is_ok(), offline);
                self.online.borrow_mut().insert(CpuId(cpu));
            }
            Op::Housekeep(cpu) => self.housekeep(cpu),
            Op::Replace(line) => self.replace(line as usize),
            Op::Realloc(line) => self.realloc(line),
            Op::Synchronize(line) => core.synchronize(self.drivers[line as usize].irq).unwrap(),
        }
    }

    fn offline(&mut self, cpu: CpuId) {
        let possible = self.online.borrow().contains(cpu) && self.online.borrow().len() > 1;
        // The CPU never takes an interrupt again, even at the last point that would turn interrupts on.
        let before = self.online.borrow().clone();
        if possible {
            self.online.borrow_mut().remove(cpu);
        }
        let gone = self.hal.on_cpu(cpu, || self.core.cpu_offline());
        assert_eq!(gone.is_ok(), possible, "{gone:?}");
        if possible {
            self.model.reset(cpu);
        } else {
            *self.online.borrow_mut() = before;
        }
    }

    fn housekeep(&self, cpu: u32) {
        if self.online.borrow().contains(CpuId(cpu)) {
            self.hal.advance_ns(600_000);
            self.hal.on_cpu(CpuId(cpu), || self.core.housekeep());
        }
    }

    fn replace(&mut self, line: usize) {
        let Driver { irq, action, live, ledger, .. } = &self.drivers[line];
        self.core.free(*irq, action).unwrap();
        live.store(false, SeqCst);
        // Interrupts for the old driver are not owed to the new one.
        ledger.seen.store(ledger.raised.load(SeqCst), SeqCst);
        let (action, live) = self.install(*irq, ledger);
        let driver = &mut self.drivers[line];
        (driver.action, driver.live, driver.depth) = (action, live, 0);
    }

    fn realloc(&mut self, line: u32) {
        let Driver { irq, action, live, ledger, .. } = &self.drivers[line as usize];
        let (irq, ledger) = (*irq, ledger.clone());
        self.core.free(irq, action).unwrap();
        live.store(false, SeqCst);
        ledger.seen.store(ledger.raised.load(SeqCst), SeqCst);
        self.core.free_line(irq).unwrap();
        self.lines_freed += 1;
        // The handler did not run for interrupts in between. The new line starts with nothing owed.
        let driver = self.start(line, ledger.clone());
        ledger.seen.store(ledger.raised.load(SeqCst), SeqCst);
        self.drivers[line as usize] = driver;
    }

    fn counted(&self) -> u64 {
        let cpus = || (0..CPUS).map(CpuId);
        let lines = (0..64).map(Irq).flat_map(|irq| cpus().map(move |cpu| (irq, cpu)));
        let strays: u64 = cpus().map(|cpu| self.core.stray_vectors(cpu)).sum();
        strays + lines.map(|(irq, cpu)| self.core.count(irq, cpu)).sum::<u64>()
    }

    /// Heals all faults. Then every raised interrupt must have been handled.
    fn settle(&mut self) {
        self.hal.clear_interrupt_hook();
        (0..CPUS).for_each(|cpu| _ = self.core.cpu_online(CpuId(cpu)));
        *self.online.borrow_mut() = CpuSet::first(CPUS);
        for driver in &mut self.drivers {
            (0..core::mem::take(&mut driver.depth)).for_each(|_| self.core.enable(driver.irq).unwrap());
        }
        self.drain();
        self.expect_all_seen();
        // A deferred move may still wait for the next interrupt.
        for _ in 0..3 {
            (0..LINES).for_each(|line| self.raise(line));
            self.drain();
            self.expect_all_seen();
        }
        for driver in &self.drivers {
            let view = self.core.view(driver.irq).unwrap();
            assert!(!view.masked && !view.pending && !view.move_wanted && view.retired.is_empty(), "{view}");
            assert!(view.affinity.contains(view.effective.unwrap().cpu), "{view}");
        }
        if self.lines_freed == 0 {
            assert_eq!(self.counted(), *self.taken.borrow(), "every interrupt taken is in one count");
        }
        self.end();
    }

    fn drain(&self) {
        for cpu in (0..8).flat_map(|_| 0..CPUS) {
            while self.take(cpu) {}
            self.housekeep(cpu);
        }
    }

    fn expect_all_seen(&self) {
        for Driver { irq, ledger, .. } in &self.drivers {
            assert_eq!(ledger.seen.load(SeqCst), ledger.raised.load(SeqCst), "an interrupt of line {irq} was lost");
        }
    }

    /// Frees all lines. Then every vector must be free.
    fn end(&self) {
        for Driver { irq, action, .. } in &self.drivers {
            self.core.free(*irq, action).unwrap();
            self.core.free_line(*irq).unwrap();
        }
        (0..2 * CPUS).for_each(|cpu| self.housekeep(cpu % CPUS));
        assert_eq!(self.core.matrix.lock().in_use(), (0, 0), "a vector leaked");
    }
}

fn root_of(domain: &ModelDomain) -> Arc<IrqChip> {
    domain.parent().unwrap().allocate(&on(CpuSet::new())).unwrap().chip
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2048, ..ProptestConfig::default() })]

    #[test]
    fn no_interrupt_is_lost_or_misdelivered(
        ops in prop::collection::vec(op(), 1..60),
        script in prop::collection::vec((0..LINES, 0..CPUS), 0..100),
        maskable: bool,
        moves_on_ack: bool,
        flow in prop_oneof![Just(Flow::Edge), Just(Flow::FastEoi)],
    ) {
        let mut rig = Rig::new(Kind { maskable, moves_on_ack }, flow);
        rig.hook(script);
        for op in &ops {
            rig.apply(op);
        }
        rig.settle();
    }
}
