//! The machine, and the host's operations on it.

use super::accelerator::{self, Accelerator};
use super::beliefs::destination_shift;
use super::blocks::Mix;
use super::drive::{Drive, Slot};
use super::fault::PcFault;
use super::load::Load;
use super::models::{Site, add_accelerator, add_tampered_drive, timing};
use super::poster::{self, Poster};
use super::removal::ENTRIES;
use super::shape::{self, Shape};
use super::sources::{Function, Rings};
use super::stack::{PcStack, Promises};
use super::step::PcStep;
use super::timers::Timers;
use super::told::Tunings;
use super::{accounts, audit, manage};
use crate::checkers::{
    Checker, Entries, Fairness, Isolation, Offline, Posted, Queues, Redirections, Refusals, Truth, Waits, Whereabouts,
};
use crate::coverage::Coverage;
use crate::server::poster::Poster as PostingFunction;
use crate::server::ringer::Ringer;
use crate::server::wire::WirePort;
use crate::server::{Config, FLIGHT_NS, Hardware, Host, Path, drive_config};
use crate::setbacks::Setbacks;
use crate::subject::{Build, Rig};
use hal::{CpuId, CpuSet, Regs as _};
use irq::RequestFlags;
use machine::fabric::ioapic::IoApic;
use machine::fabric::tamper::TamperConfig;
use machine::model::ModelId;
use machine::nvme::StorageKind;
use machine::time::Ps;
use machine::{Machine, Regs};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};

/// Requester of the stranger, which has no line.
const STRANGER_REQUESTER: u16 = 0x4300;
/// Work on the boot thread ends within this time, resets with their deadlines included.
const LIMIT: Ps = Ps::from_ns(20_000_000_000);
/// Address of the remapping table (VT-d, IRTA_REG): bits 63:12.
const IRTA: u32 = 0xb8;
const LOCAL_TIMER: u8 = 0xec;
const NOTIFICATION: u8 = 0xeb;
const DEVICE_LAST: u8 = 0xea;
/// The tick waits for locks, for an interrupt in progress, and for each manager's call, a vector of higher priority.
const TICK_WAIT_MAX: Ps = Ps::from_ns(400_000);
/// A completion submits the next command in its interrupt: the doorbell, the look behind it, the lines that they move.
const CARRIED_MAX: Ps = Ps::from_ns(5_000);
/// A notification harvests twice and once more, and may find a full queue each time.
const CARRIED_IN_A_NOTIFICATION: u64 = 3 * 31;
const INVALIDATION_FAILING_MAX: Ps = Ps::from_ns(20_000_000);
/// The greatest delay of a late message: half of the time that the stack expects.
const LATE_MAX: Ps = Ps::from_ns(15_000);
/// The greatest delay of a message that the stack expects.
const FLIGHT: Ps = Ps::from_ns(FLIGHT_NS);
/// An invalidation takes some 4 µs, and the previous one may still be under way.
const INVALIDATION_MAX: Ps = Ps::from_ns(60_000);

/// A PC.
pub struct PcRig {
    pub(super) hardware: Hardware,
    drives: Vec<Site>,
    pub(super) stranger: Regs,
    pub(super) accelerator: Option<ModelId>,
    poster: Option<ModelId>,
    pub(super) shape: Shape,
    delivery: Path,
    faults: Vec<PcFault>,
    seed: u64,
    stack: Option<Arc<PcStack>>,
}

impl PcRig {
    pub(super) fn build(delivery: Path, build: &mut Build<'_, PcFault>) -> Self {
        let (config, shape, drives) = shape::machine(delivery, build);
        let slow = build.faults.iter().any(PcFault::outlasts_patience);
        let model = |index| {
            let hidden_coalescing = config.hidden_coalescing;
            let storage = StorageKind::Tags;
            let queues = Config { queues: shape.queues.into(), hidden_coalescing, ..config.clone() };
            let drive = drive_config(&queues, index);
            let timing = timing(drive.timing, slow);
            machine::nvme::Config { storage, timing, ..drive }
        };
        let (hardware, (drives, stranger, [accelerator, poster])) =
            Hardware::with(&config, |machine, iommu, credits| {
                let seed = build.seed;
                let drives: Vec<_> = (0..drives)
                    .map(|index| {
                        let config = TamperConfig {
                            seed: seed ^ u64::from(index),
                            longest: LATE_MAX,
                            // Without a remapping entry to free, a repeated message goes to its first target: for no
                            // longer than the stack expects messages to take.
                            storm_messages_max: if delivery == Path::Plain { 20 } else { 1000 },
                            ..TamperConfig::default()
                        };
                        add_tampered_drive(machine, iommu, credits, config, model(index))
                    })
                    .collect();
                let stranger = machine.add_model(|_| Box::new(Ringer::new(iommu, STRANGER_REQUESTER)));
                let plan = shape.accelerator.as_ref();
                let accelerator = plan.map(|plan| add_accelerator(machine, iommu, credits, plan));
                let function = || PostingFunction::new(iommu, poster::REQUESTER);
                let poster = shape.poster.then(|| machine.add_model(|_| Box::new(function())));
                (drives, Regs::Model { model: stranger, region: 0 }, [accelerator, poster])
            });
        let (faults, seed) = (build.faults.clone(), build.seed);
        Self { hardware, drives, stranger, accelerator, poster, shape, delivery, faults, seed, stack: None }
    }

    pub(super) fn up(&self) -> &Arc<PcStack> {
        self.stack.as_ref().expect("the stack is up")
    }

    fn host(&self) -> &Arc<Host> {
        &self.up().host
    }

    /// Runs `body` on CPU 0 until it has ended.
    fn boot<R: Send + 'static>(&mut self, body: impl FnOnce(&Arc<PcStack>) -> R + Send + 'static) -> R {
        let stack = self.up().clone();
        match self.hardware.machine.run_boot(LIMIT, move || body(&stack)) {
            Ok(value) => value,
            Err(why) => panic!("{why}"),
        }
    }

    pub(super) fn site(&self, index: u32) -> &Site {
        &self.drives[index as usize % self.drives.len()]
    }

    /// One CPU may serve all queues.
    fn tick_wait_max(&self) -> Ps {
        let Shape { carried, queues, .. } = self.shape;
        let queues = if carried > 0 { self.drives.len() as u64 * u64::from(queues) } else { 0 };
        TICK_WAIT_MAX + Ps(CARRIED_MAX.0 * CARRIED_IN_A_NOTIFICATION * queues)
    }

    /// The bound does not hold for an invalidation queue that keeps failing: the driver tries again with interrupts off, up to its
    /// deadline.
    fn unless_invalidation_fails(&self, bound: Ps) -> Ps {
        if self.invalidations_fail() { bound.max(INVALIDATION_FAILING_MAX) } else { bound }
    }

    fn invalidations_fail(&self) -> bool {
        self.faults.iter().any(|fault| matches!(fault, PcFault::FailedInvalidation { .. }))
    }
}

impl Rig for PcRig {
    type Step = PcStep;
    type Fault = PcFault;
    type Stack = PcStack;

    fn machine(&mut self) -> &mut Machine {
        &mut self.hardware.machine
    }

    fn bring_up(&mut self) {
        if self.shape.leftovers {
            let ioapic = self.hardware.models.ioapic;
            self.hardware.machine.with_model(ioapic, IoApic::leave_open).expect("it is there");
        }
        let host = self.hardware.bring_up();
        let models: Vec<_> = self.drives.iter().map(|site| site.drive).collect();
        let (delivery, poster, seed) = (self.delivery, self.poster, self.seed);
        let Shape { queues, entries, managed, mix, calls, timers: has_timers, tuned, linger_ns, deeds_percent, .. } =
            self.shape;
        let setbacks = self.hardware.setbacks().clone();
        let ringer = self.hardware.models.ringer;
        let sent = self.hardware.machine.with_model(ringer, |ringer: &mut Ringer| ringer.sent()).expect("the ringer");
        let rings = Arc::new(Rings::new(host.ringer, sent, linger_ns, (seed, deeds_percent)));
        let accelerator = self.accelerator.zip(self.shape.accelerator.clone());
        let kind = (self.hardware.has_threads(), self.faults.iter().any(PcFault::is_command));
        let promises = Promises::under(&self.faults, delivery);
        let boot = move || {
            let numbers = AtomicU64::new(1);
            let accelerator = accelerator
                .map(|(model, plan)| Accelerator::bring_up(&host, model, &plan, &numbers, (kind, &setbacks)));
            let timers = has_timers.then(|| Timers::bring_up(&host, &numbers));
            let poster = poster.map(|model| Poster::bring_up(&host, model, &numbers));
            let stack = bring_up(
                host,
                delivery,
                &models,
                (queues, entries, managed),
                (promises, &setbacks),
                (seed, mix, calls),
                (rings, numbers, accelerator, timers, poster),
            );
            manage::begin_deeds(&stack);
            *stack.tunings.lock().expect("one host thread") = tuned.then(|| Tunings::begin(&stack));
            stack
        };
        let stack = self.hardware.machine.run_boot(LIMIT, boot).expect("the drives come up");
        for drive in self.faults.iter().filter_map(PcFault::liar) {
            let drive = &stack.drives[drive as usize % stack.drives.len()];
            stack.loads_of(drive).iter().for_each(|load| load.distrusted.store(true, Relaxed));
        }
        self.stack = Some(stack);
    }

    fn stack(&self) -> Arc<PcStack> {
        self.up().clone()
    }

    fn checkers(&mut self) -> Vec<Box<dyn Checker>> {
        let host = self.host();
        let iommu = host.models.iommu;
        let descriptor = |cpu| Some(host.pc.posted()?.descriptor_address(CpuId(cpu)).expect("one a CPU").0);
        let addresses: Vec<u64> = (0..host.cpus()).filter_map(descriptor).collect();
        let Shape { storm, forced, .. } = self.shape;
        let mut checkers: Vec<Box<dyn Checker>> = vec![
            Box::new(
                Truth::new(storm, (forced, !self.faults.is_empty()), accounts::known_lines(self.up()))
                    .messages_keep(self.faults.iter().all(PcFault::keeps_messages)),
            ),
            Box::new(Offline::new(DEVICE_LAST, &addresses)),
            Box::new(Redirections),
            Box::new(Waits::new(
                &[LOCAL_TIMER],
                self.unless_invalidation_fails(self.tick_wait_max()),
                self.shape.calls,
            )),
        ];
        if self.faults.is_empty() {
            checkers.push(Box::new(Queues::new(forced, accounts::known_queues(self.up()))));
        }
        // A thread runs once more without an interrupt.
        if !forced {
            checkers.push(Box::new(Whereabouts::default()));
        }
        if self.delivery != Path::Plain {
            let table = Regs::Model { model: iommu, region: 0 }.read64(IRTA) & !0xfff;
            self.hardware.machine.watch_stores(table, 16 * ENTRIES);
            checkers.push(Box::new(Isolation::new(&[STRANGER_REQUESTER])));
            checkers.push(Box::new(Entries::new(
                iommu,
                table,
                destination_shift(),
                self.unless_invalidation_fails(INVALIDATION_MAX),
            )));
            if self.faults.is_empty() {
                checkers.push(Box::new(Refusals::new(FLIGHT + INVALIDATION_MAX)));
            }
        }
        if !addresses.is_empty() {
            checkers.push(Box::new(Posted::new(NOTIFICATION, &addresses)));
            // Each line has its vector there, and one that it has left.
            let accelerator = self.up().accelerator.as_ref().map_or(0, Accelerator::lines);
            let poster = self.up().poster.as_ref().map_or(0, Poster::lines);
            let vectors = 2 * (self.up().slots.len() + accelerator + poster + 1) as u32;
            checkers.push(Box::new(Fairness::new(NOTIFICATION, &addresses, vectors)));
        }
        checkers
    }

    fn start_load(&mut self) {
        let Shape { users, habit, carried, .. } = self.shape;
        let stack = self.up().clone();
        stack.start_users(self.seed, users, habit);
        let each = carried / stack.slots.len() as u64;
        if each > 0 {
            self.boot(move |stack| stack.loads().for_each(|load| load.carry(each, 8)));
        }
        if self.accelerator.is_some() {
            self.boot(|stack| accelerator::start_load(stack));
        }
    }

    fn apply(stack: &Arc<PcStack>, step: &PcStep) {
        manage::apply(stack, step);
    }

    fn inject(&mut self, fault: &PcFault) {
        self.strike(fault);
    }

    fn heal(&mut self, fault: &PcFault) {
        self.mend(fault);
    }

    fn settle(&mut self) {
        let whole_load = self.shape.habit.own_queue;
        self.boot(move |stack| audit::settle(stack, whole_load));
    }

    fn is_done(&self) -> bool {
        self.up().is_done()
    }

    fn found(&self) -> u64 {
        self.up().loads().fold(0, |sum, load| sum.wrapping_add(load.found()))
    }

    fn prove(&mut self) {
        let absent = if self.up().promises.stale { 0 } else { self.shape.absent };
        let Shape { gone, full, .. } = self.shape;
        let full = full || self.faults.iter().any(PcFault::may_keep_ids);
        self.boot(move |stack| audit::prove(stack, absent, gone, full));
    }

    fn audit(&mut self) {
        if self.faults.is_empty() {
            let mut faults = self.hardware.machine.faults().0;
            // The checker of refusals has judged these.
            faults.retain(|fault| fault.kind != "interrupt request refused: entry not present");
            assert!(faults.is_empty(), "the machine recorded faults, and none was injected: {faults:?}");
        }
        let (seed, &Shape { leaks, count_lines, .. }) = (self.seed, &self.shape);
        let count_lines = count_lines.filter(|_| !self.invalidations_fail());
        self.boot(move |stack| audit::audit(stack, leaks, count_lines, seed));
    }

    fn cover(&mut self, coverage: &mut Coverage) {
        audit::cover(self.up(), coverage);
    }

    fn describe(&self) -> String {
        self.stack.as_ref().map(|stack| audit::describe(stack)).unwrap_or_default()
    }
}

/// What interrupts beside the drives, and the numbers that are given to handlers.
type Sources = (Arc<Rings>, AtomicU64, Option<Accelerator>, Option<Timers>, Option<Poster>);

/// Brings the drives and the sources up, on the boot thread.
fn bring_up(
    host: Arc<Host>,
    delivery: Path,
    models: &[ModelId],
    (queues, entries, managed): (u16, u16, bool),
    (promises, setbacks): (Promises, &Setbacks),
    (seed, mix, calls): (u64, Mix, bool),
    (rings, numbers, accelerator, timers, poster): Sources,
) -> Arc<PcStack> {
    let cpus = CpuSet::first(host.cpus());
    let bring_up = |(&model, index)| {
        Drive::bring_up(&host, model, index, (queues, entries, managed), (promises.impatient, setbacks))
    };
    let drives: Vec<_> = models.iter().zip(0..).map(bring_up).collect();
    let mut slots = Vec::new();
    for drive in 0..drives.len() {
        let shares = irq::spread(queues.into(), &cpus).expect("at least a CPU a queue");
        for (vector, share) in (1..).zip(shares) {
            let calls = if calls { Arc::downgrade(&host) } else { Weak::new() };
            let load = Load::new(seed, slots.len() as u32, mix, calls);
            slots.push(Slot::new(drive, vector, share, load));
        }
    }
    let ring_line = host.ringer_line();
    host.core().request(ring_line, "rings", RequestFlags::default(), rings.clone()).expect("a new line");
    let pin_line = host.pin_line();
    let port = WirePort(Regs::Model { model: host.models.wire, region: 0 });
    let functions: Vec<_> = (0..2).map(|number| Arc::new(Function::new(port, number))).collect();
    let shared = RequestFlags { shared: true, ..RequestFlags::default() };
    for function in &functions {
        host.core().request(pin_line, "function", shared, function.clone()).expect("shared");
    }
    let stack = PcStack {
        host,
        delivery,
        drives,
        slots,
        rings,
        ring_line,
        functions,
        pin_line,
        numbers,
        accelerator,
        timers,
        poster,
        hotplug: AtomicBool::new(false),
        promises,
        lines_freed: AtomicBool::new(false),
        ending: AtomicBool::new(false),
        proving: AtomicBool::new(false),
        users_left: AtomicU32::new(0),
        absent: AtomicU32::new(0),
        returning: AtomicBool::new(false),
        tunings: Mutex::default(),
        seen: Mutex::default(),
    };
    for slot in &stack.slots {
        let drive = stack.drive_of(slot);
        let mend = || drive.drop_half_made(stack.slots.iter().filter_map(Slot::bound)).expect("the drive resets");
        setbacks.meet_mended("a queue", || drive.bind(&stack.host, slot, &stack.numbers), mend);
    }
    Arc::new(stack)
}
