//! The core against chips that record what they are told, and against a small model of devices and LAPICs.

mod chains;
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

/// What chips and handlers did, in order.
#[derive(Clone, Default)]
pub(super) struct Log(Arc<Mutex<Vec<&'static str>>>);

impl Log {
    pub(super) fn add(&self, what: &'static str) {
        self.0.lock().unwrap().push(what);
    }

    pub(super) fn has(&self, what: &str) -> bool {
        self.0.lock().unwrap().contains(&what)
    }

    /// Everything since the last look.
    pub(super) fn take(&self) -> Vec<&'static str> {
        core::mem::take(&mut self.0.lock().unwrap())
    }
}

/// A chip that does what it is told to do, and says so.
pub(super) struct LogChip {
    pub(super) ops: ChipOps,
    pub(super) log: Log,
    /// What `is_pending` says.
    pub(super) pending: Mutex<bool>,
    /// How many moves more it accepts.
    pub(super) accepts: Mutex<u32>,
    /// What `settles` says, and whether it deactivates.
    pub(super) forgets: Mutex<bool>,
}

impl LogChip {
    pub(super) fn new(ops: ChipOps, log: Log) -> Self {
        Self { ops, log, pending: Mutex::new(false), accepts: Mutex::new(u32::MAX), forgets: Mutex::new(true) }
    }
}

impl IrqChip for LogChip {
    fn name(&self) -> &'static str {
        "LOG"
    }
    fn provides(&self) -> ChipOps {
        self.ops
    }
    fn ack(&self, _: &Level<'_>) {
        self.log.add("ack");
    }
    fn eoi(&self, _: &Level<'_>) {
        self.log.add("eoi");
    }
    fn mask(&self, _: &Level<'_>) {
        self.log.add("mask");
    }
    fn unmask(&self, _: &Level<'_>) {
        self.log.add("unmask");
    }
    fn set_affinity(&self, _: &Level<'_>, _: Target) -> Result<(), IrqError> {
        self.log.add("set_affinity");
        let mut accepts = self.accepts.lock().unwrap();
        *accepts = accepts.checked_sub(1).ok_or(IrqError::Hardware("LOG", "it refuses"))?;
        Ok(())
    }
    fn retrigger(&self, _: &Level<'_>) -> bool {
        self.log.add("retrigger");
        true
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
    fn deactivate(&self, _: HardwareIrq) -> Result<(), IrqError> {
        self.log.add("deactivate");
        if *self.forgets.lock().unwrap() { Ok(()) } else { Err(IrqError::Hardware("LOG", "it forgets nothing")) }
    }
    fn settles(&self, _: HardwareIrq) -> bool {
        *self.forgets.lock().unwrap()
    }
    fn release(&self, _: HardwareIrq) {
        self.log.add("release");
    }
}

/// A root domain of one chip.
pub(super) struct LogDomain(pub(super) Arc<LogChip>);

impl IrqDomain for LogDomain {
    fn name(&self) -> &str {
        "VECTOR"
    }
    fn parent(&self) -> Option<&dyn IrqDomain> {
        None
    }
    fn allocate(&self, request: &AllocRequest) -> Result<LevelData, IrqError> {
        Ok(LevelData { chip: self.0.clone(), hwirq: HardwareIrq(request.index.into()) })
    }
    fn activate(&self, _: &Level<'_>, _: Target) -> Result<(), IrqError> {
        Ok(())
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

pub(super) const ALL_OPS: ChipOps = ChipOps {
    ack: true,
    eoi: true,
    mask: true,
    set_affinity: true,
    retrigger: true,
    compose_message: false,
    write_message: false,
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
};

pub(super) fn on(affinity: CpuSet) -> AllocRequest {
    AllocRequest { requester: RequesterId(0), index: 0, affinity, managed: false, delivery: Delivery::Fixed }
}

/// Two CPUs unless the configuration is changed, one chip.
pub(super) struct Bench {
    pub(super) hal: HostHal,
    pub(super) core: Arc<IrqCore<HostHal>>,
    pub(super) domain: LogDomain,
    pub(super) log: Log,
}

impl Bench {
    pub(super) fn new(ops: ChipOps) -> Self {
        Self::with(ops, |_| ())
    }

    pub(super) fn with(ops: ChipOps, change: impl FnOnce(&mut CoreConfig)) -> Self {
        let log = Log::default();
        let chip = Arc::new(LogChip::new(ops, log.clone()));
        let mut config = CoreConfig::x86(2, 8);
        change(&mut config);
        let hal = HostHal::manual(config.cpus);
        let mut core = IrqCore::new(hal, config).unwrap();
        core.set_root_chip(chip.clone());
        Self { hal, core: Arc::new(core), domain: LogDomain(chip), log }
    }

    pub(super) fn alloc(&self, flow: Flow) -> Irq {
        self.core.alloc_line(&self.domain, &on(CpuSet::of(CPU0)), flow).unwrap()
    }

    /// A line whose handler logs, and is started; the log is empty.
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

    /// The line interrupts where it is delivered.
    pub(super) fn fire(&self, irq: Irq) {
        let target = self.core.view(irq).unwrap().effective.unwrap();
        self.vector(target);
    }

    pub(super) fn vector(&self, target: Target) {
        self.hal.interrupt(target.cpu, || self.core.handle_vector(target.vector.unwrap()));
    }

    pub(super) fn said(&self) -> String {
        self.log.take().join(" ")
    }
}
