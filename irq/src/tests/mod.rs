//! The core against chips that log every call, and against a small model of devices and LAPICs.

mod chains;
mod changes;
mod flows;
mod lifecycle;
mod model;
mod random;
mod random_flows;
mod random_threads;
mod refusals;
mod stress;
mod threads;
mod unlocked;
mod wide;
mod wired;

use crate::*;
use alloc::string::{String, ToString as _};
use alloc::sync::Arc;
use alloc::vec::Vec;
use hal::host::HostHal;
use hal::{CpuId, CpuSet};
use std::sync::Mutex;

pub(super) const CPU0: CpuId = CpuId(0);
pub(super) const CPU1: CpuId = CpuId(1);

/// The calls of chips and handlers, in order.
#[derive(Clone, Default)]
pub(super) struct Log(Arc<Mutex<Vec<&'static str>>>);

impl Log {
    pub(super) fn add(&self, what: &'static str) {
        self.0.lock().unwrap().push(what);
    }

    pub(super) fn has(&self, what: &str) -> bool {
        self.0.lock().unwrap().contains(&what)
    }

    /// The calls since the last look.
    pub(super) fn take(&self) -> Vec<&'static str> {
        core::mem::take(&mut self.0.lock().unwrap())
    }
}

/// A chip that obeys, and logs every call.
pub(super) struct LogChip {
    pub(super) ops: Ops,
    pub(super) log: Log,
    /// The answer of `is_pending`.
    pub(super) pending: Mutex<bool>,
    /// Number of moves that it still accepts.
    pub(super) accepts: Mutex<u32>,
    /// The CPU to which it moves nothing.
    pub(super) refuses: Mutex<Option<CpuId>>,
    /// The answer of `settles`; also whether the chip deactivates.
    pub(super) forgets: Mutex<bool>,
    /// Number of retriggers that it still refuses.
    pub(super) is_busy: Mutex<u32>,
    /// Whether the chip can be pointed at a first target.
    pub(super) activates: Mutex<bool>,
    /// An eoi begins and ends, and takes a while.
    pub(super) ends_slowly: Mutex<bool>,
}

impl LogChip {
    pub(super) fn new(ops: Ops, log: Log) -> Self {
        Self {
            ops,
            log,
            pending: Mutex::new(false),
            accepts: Mutex::new(u32::MAX),
            refuses: Mutex::new(None),
            forgets: Mutex::new(true),
            activates: Mutex::new(true),
            is_busy: Mutex::new(0),
            ends_slowly: Mutex::new(false),
        }
    }
}

/// The operations of a test's chip, and its behaviour.
#[derive(Clone, Copy, Default)]
pub(super) struct Ops {
    pub(super) ack: bool,
    pub(super) eoi: bool,
    pub(super) mask: bool,
    pub(super) set_affinity: bool,
    pub(super) retrigger: bool,
    pub(super) is_pending: bool,
    pub(super) set_type: bool,
    pub(super) state: bool,
    pub(super) nmi: bool,
    pub(super) moves_on_ack: bool,
    pub(super) forwards: bool,
    pub(super) automasks_flow: bool,
    pub(super) ends_in_halves: bool,
    pub(super) eoi_threaded: bool,
    pub(super) oneshot_safe: bool,
    pub(super) forgets_masked: bool,
}

impl Ops {
    pub(super) fn behaviour(self) -> ChipBehaviour {
        let Self { moves_on_ack, forwards, automasks_flow, ends_in_halves, .. } = self;
        let Self { eoi_threaded, oneshot_safe, forgets_masked, .. } = self;
        ChipBehaviour {
            moves_on_ack,
            forwards,
            automasks_flow,
            ends_in_halves,
            eoi_threaded,
            oneshot_safe,
            forgets_masked,
        }
    }
}

type Builder<C> = IrqChipBuilder<C>;

/// Adds the operation to the chip if it `has` it.
pub(super) fn when<C>(has: bool, chip: Builder<C>, operation: impl FnOnce(Builder<C>) -> Builder<C>) -> Builder<C> {
    if has { operation(chip) } else { chip }
}

impl LogChip {
    pub(super) fn chip(self: &Arc<Self>) -> Arc<IrqChip> {
        let ops = self.ops;
        let chip = IrqChip::of("LOG", self).behaviour(ops.behaviour());
        let chip = when(ops.ack, chip, |chip| chip.ack(Self::ack));
        let chip = when(ops.eoi, chip, |chip| chip.eoi(Self::eoi));
        let chip = when(ops.mask, chip, |chip| chip.mask(Self::mask, Self::unmask));
        let chip = when(ops.set_affinity, chip, |chip| chip.set_affinity(Self::set_affinity));
        let chip = when(ops.retrigger, chip, |chip| chip.retrigger(Self::retrigger));
        let chip = when(ops.is_pending, chip, |chip| chip.is_pending(Self::is_pending));
        let chip = when(ops.set_type, chip, |chip| chip.set_type(Self::set_type));
        let chip = when(ops.state, chip, |chip| chip.state(Self::state, Self::set_state));
        let chip = when(ops.nmi, chip, |chip| chip.nmi(Self::nmi_setup, Self::nmi_teardown));
        chip.build()
    }
    fn ack(&self, _: &Level<'_>) {
        self.log.add("ack");
    }
    fn eoi(&self, _: &Level<'_>) {
        if *self.ends_slowly.lock().unwrap() {
            self.log.add("end begun");
            std::thread::sleep(core::time::Duration::from_millis(20));
        }
        self.log.add("eoi");
    }
    fn mask(&self, _: &Level<'_>) {
        self.log.add("mask");
    }
    fn unmask(&self, _: &Level<'_>) {
        self.log.add("unmask");
    }
    fn set_affinity(&self, _: &Level<'_>, to: Target) -> Result<(), IrqError> {
        self.log.add("set_affinity");
        if *self.refuses.lock().unwrap() == Some(to.cpu) {
            return Err(IrqError::Hardware("LOG", "it refuses this CPU"));
        }
        let mut accepts = self.accepts.lock().unwrap();
        *accepts = accepts.checked_sub(1).ok_or(IrqError::Hardware("LOG", "it refuses"))?;
        Ok(())
    }
    fn retrigger(&self, _: &Level<'_>) -> bool {
        self.log.add("retrigger");
        let mut busy = self.is_busy.lock().unwrap();
        let left = busy.checked_sub(1);
        *busy = left.unwrap_or(0);
        left.is_none()
    }
    fn set_type(&self, _: &Level<'_>, trigger: Trigger) -> Result<Option<Flow>, IrqError> {
        self.log.add("set_type");
        Ok(Some(if trigger.is_level() { Flow::Level } else { Flow::Edge }))
    }
    fn nmi_setup(&self, _: &Level<'_>) -> Result<(), IrqError> {
        self.log.add("nmi_setup");
        Ok(())
    }
    fn nmi_teardown(&self, _: &Level<'_>) {
        self.log.add("nmi_teardown");
    }
    fn state(&self, _: &Level<'_>, _: IrqChipState) -> Result<bool, IrqError> {
        Ok(*self.pending.lock().unwrap())
    }
    fn set_state(&self, _: &Level<'_>, _: IrqChipState, value: bool) -> Result<(), IrqError> {
        *self.pending.lock().unwrap() = value;
        Ok(())
    }
    fn is_pending(&self, _: &Level<'_>, _: Target) -> bool {
        *self.pending.lock().unwrap()
    }
    pub(super) fn deactivate(&self) -> Result<(), IrqError> {
        self.log.add("deactivate");
        if *self.forgets.lock().unwrap() { Ok(()) } else { Err(IrqError::Hardware("LOG", "it forgets nothing")) }
    }
    pub(super) fn settles(&self) -> bool {
        *self.forgets.lock().unwrap()
    }
    pub(super) fn release(&self) {
        self.log.add("release");
    }
}

/// A root domain of one chip.
pub(super) struct LogDomain(pub(super) Arc<LogChip>);

impl IrqDomain for LogDomain {
    fn name(&self) -> &str {
        "VECTOR"
    }
    fn parent(&self) -> Option<Arc<dyn IrqDomain>> {
        None
    }
    fn allocate(&self, request: &AllocRequest) -> Result<LevelData, IrqError> {
        Ok(LevelData { chip: self.0.chip(), hwirq: HardwareIrq(request.index.into()) })
    }
    fn activate(&self, _: &Level<'_>, _: Target) -> Result<(), IrqError> {
        if *self.0.activates.lock().unwrap() { Ok(()) } else { Err(IrqError::Hardware("LOG", "it points nowhere")) }
    }
    fn deactivate(&self, _: HardwareIrq) -> Result<(), IrqError> {
        self.0.deactivate()
    }
    fn settles(&self, _: HardwareIrq) -> bool {
        self.0.settles()
    }
    fn release(&self, _: HardwareIrq) {
        self.0.release();
    }
}

/// A handler that is a closure.
pub(super) struct Handler<F>(pub(super) F);

impl<F: Fn(Irq) -> IrqReturn + Send + Sync> Action for Handler<F> {
    fn handle(&self, irq: Irq) -> IrqReturn {
        (self.0)(irq)
    }
}

pub(super) fn handler(f: impl Fn(Irq) -> IrqReturn + Send + Sync + 'static) -> Arc<dyn Action> {
    Arc::new(Handler(f))
}

pub(super) const ALL_OPS: Ops = Ops {
    ack: true,
    eoi: true,
    mask: true,
    set_affinity: true,
    retrigger: true,
    is_pending: true,
    set_type: false,
    state: false,
    nmi: false,
    moves_on_ack: false,
    forwards: false,
    automasks_flow: false,
    ends_in_halves: false,
    eoi_threaded: false,
    oneshot_safe: false,
    forgets_masked: false,
};

/// The identities of an x86 system: 256 vectors. Devices use those between the exceptions and the notification's 0xeb.
pub(super) const VECTORS: IdentitySpace = IdentitySpace {
    first: Identity(0x20),
    last: Identity(0xff),
    device_first: Identity(0x20),
    device_last: Identity(0xea),
};

pub(super) fn x86(cpus: u32, lines_max: u32) -> CoreConfig {
    CoreConfig { identities: Some(VECTORS), ..CoreConfig::new(cpus, lines_max) }
}

pub(super) fn identities(config: &mut CoreConfig) -> &mut IdentitySpace {
    config.identities.as_mut().unwrap()
}

pub(super) fn on(affinity: CpuSet) -> AllocRequest {
    AllocRequest::fixed(RequesterId(0), 0, affinity)
}

/// Two CPUs unless the configuration is changed, one chip.
pub(super) struct Bench {
    pub(super) hal: HostHal,
    pub(super) core: Arc<IrqCore<HostHal>>,
    pub(super) domain: Arc<LogDomain>,
    pub(super) log: Log,
}

impl Bench {
    pub(super) fn new(ops: Ops) -> Self {
        Self::with(ops, |_| ())
    }

    pub(super) fn with(ops: Ops, change: impl FnOnce(&mut CoreConfig)) -> Self {
        Self::build(ops, change, |_| ())
    }

    /// Every handler that can runs in a thread.
    pub(super) fn forced(ops: Ops) -> Self {
        Self::build(ops, |_| (), IrqCore::force_threads)
    }

    fn build(ops: Ops, change: impl FnOnce(&mut CoreConfig), set_up: impl FnOnce(&mut IrqCore<HostHal>)) -> Self {
        let log = Log::default();
        let chip = Arc::new(LogChip::new(ops, log.clone()));
        let mut config = x86(2, 8);
        change(&mut config);
        let hal = HostHal::manual(config.cpus);
        let mut core = IrqCore::new(hal, config).unwrap();
        core.set_root_chip(chip.chip());
        set_up(&mut core);
        Self { hal, core: Arc::new(core), domain: Arc::new(LogDomain(chip)), log }
    }

    pub(super) fn alloc(&self, flow: Flow) -> Irq {
        self.core.alloc_line(self.domain.clone(), &on(CpuSet::of(CPU0)), flow).unwrap()
    }

    /// A started line whose handler logs. The log is empty.
    pub(super) fn line(&self, flow: Flow) -> Irq {
        let irq = self.alloc(flow);
        let log = self.log.clone();
        self.request(irq, move |_| {
            log.add("handle");
            IrqReturn::Handled
        });
        self.log.take();
        irq
    }

    pub(super) fn request(&self, irq: Irq, f: impl Fn(Irq) -> IrqReturn + Send + Sync + 'static) -> Arc<dyn Action> {
        let action = handler(f);
        self.core.request(irq, "test", RequestFlags::default(), action.clone()).unwrap();
        action
    }

    /// The line interrupts the CPU that it is delivered to.
    pub(super) fn fire(&self, irq: Irq) {
        let target = self.core.view(irq).unwrap().effective.unwrap();
        self.vector(target);
    }

    pub(super) fn vector(&self, target: Target) {
        self.hal.interrupt(target.cpu, || self.core.handle_vector(target.identity.unwrap()));
    }

    pub(super) fn said(&self) -> String {
        self.log.take().join(" ")
    }
}
