//! A drive's driver as managers see it: a controller that can go and come, and queues with their lines.

use super::guard::Guard;
use super::load::{Load, disrupt};
use crate::checkers::queues;
use crate::checkers::truth::marks;
use crate::mark::Mark;
use crate::server::{Host, requester};
use crate::setbacks::Setbacks;
use crate::verdict::violate;
use drivers::dsa::DsaError;
use drivers::message::MessageDomain;
use drivers::nvme::{self, Controller, NvmeError, QueueConfig, QueuePair};
use drivers::pci::{MsixCapability, MsixTable};
use hal::CpuSet;
use irq::{Action, AllocRequest, Flow, Irq, IrqDomain, IrqError, RequestFlags, RequesterId};
use machine::model::ModelId;
use machine::nvme::{REGION_CONFIG, REGION_CONTROLLER, REGION_MSIX};
use machine::{Regs, SimHal};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// Of a drive: configuration space, MSI-X table.
const REGIONS: [u8; 2] = [REGION_CONFIG, REGION_MSIX];
/// An admin command takes some 5 µs here, so a drive that does not answer is noticed soon.
const ADMIN_TIMEOUT_NS: u64 = 2_000_000;
/// The same, where commands are to be in flight for longer: more than the doorbell of an admin command may be late.
const IMPATIENT_NS: u64 = 100_000;

/// Why a queue could not be bound.
#[derive(Debug)]
pub(super) enum BindError {
    Nvme(NvmeError),
    Dsa(DsaError),
    Irq(IrqError),
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nvme(error) => error.fmt(f),
            Self::Dsa(error) => error.fmt(f),
            Self::Irq(error) => error.fmt(f),
        }
    }
}

impl From<NvmeError> for BindError {
    fn from(error: NvmeError) -> Self {
        Self::Nvme(error)
    }
}

impl From<DsaError> for BindError {
    fn from(error: DsaError) -> Self {
        Self::Dsa(error)
    }
}

impl From<IrqError> for BindError {
    fn from(error: IrqError) -> Self {
        Self::Irq(error)
    }
}

/// A queue pair with its line and its handler.
#[derive(Clone)]
pub(super) struct Bound {
    pub(super) pair: Arc<QueuePair<SimHal>>,
    pub(super) line: Irq,
    pub(super) guard: Arc<Guard>,
}

/// A place for a queue of a drive.
pub(super) struct Slot {
    pub(super) drive: usize,
    vector: AtomicU16,
    share: CpuSet,
    pub(super) load: Arc<Load>,
    bound: Mutex<Option<Bound>>,
    /// Its line is not posted.
    pub(super) unposted: AtomicBool,
    /// Operations that cannot run beside another are for one manager at a time.
    busy: AtomicBool,
}

/// The right to change a slot.
pub(super) struct Claim<'a>(&'a AtomicBool);

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.0.store(false, Relaxed);
    }
}

/// Takes the right if it is free.
pub(super) fn claim(flag: &AtomicBool) -> Option<Claim<'_>> {
    (!flag.swap(true, Relaxed)).then(|| Claim(flag))
}

impl Slot {
    pub(super) fn new(drive: usize, vector: u16, share: CpuSet, load: Arc<Load>) -> Self {
        let (unposted, busy) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { drive, vector: vector.into(), share, load, bound: Mutex::default(), unposted, busy }
    }

    fn vector(&self) -> u16 {
        self.vector.load(Relaxed)
    }

    /// It gets the next one of so many entries of the drive's MSI-X table.
    pub(super) fn turn_vector(&self, count: u16) {
        self.vector.store(self.vector() % count + 1, Relaxed);
    }

    pub(super) fn claim(&self) -> Option<Claim<'_>> {
        claim(&self.busy)
    }

    pub(super) fn busy(&self) -> &AtomicBool {
        &self.busy
    }

    /// The queue that is bound here now.
    pub(super) fn bound(&self) -> Option<Bound> {
        self.bound.lock().expect("one host thread").clone()
    }

    /// Looks for entries without an interrupt; returns how many there were.
    pub(super) fn poll(&self, bound: &Bound) -> usize {
        let found = bound.pair.poll(usize::MAX);
        queues::polled(self.load.index(), found);
        found
    }

    /// Looks for a few entries, as an application does that does not wait for the interrupt.
    pub(super) fn poll_few(&self, most: usize) {
        let Some(_claim) = self.claim() else { return };
        let Some(bound) = self.bound() else { return };
        let found = bound.pair.poll(most);
        queues::polled(self.load.index(), found);
        if found > most {
            violate("queues", format!("a poll for at most {most} entries took {found}"));
        }
    }

    fn set(&self, bound: Option<Bound>) -> Option<Bound> {
        std::mem::replace(&mut self.bound.lock().expect("one host thread"), bound)
    }
}

/// Where a function's lines come from. Both share one MSI-X table; each vector belongs to only one of them.
#[derive(Clone)]
pub(super) struct Domains {
    posted: Arc<MessageDomain<SimHal, MsixTable<Regs>>>,
    unposted: Arc<MessageDomain<SimHal, MsixTable<Regs>>>,
}

impl Domains {
    /// Switches MSI-X of this function on. Regions: its configuration space, its MSI-X table.
    pub(super) fn new(host: &Host, model: ModelId, [config, table]: [u8; 2]) -> Self {
        let region = |region| Regs::Model { model, region };
        let capability = MsixCapability::find(&region(config)).expect("MSI-X");
        let table = || MsixTable::enable(region(config), region(table), capability);
        let domain = |parent| Arc::new(MessageDomain::new(SimHal, table(), parent).expect("PCI messages"));
        Self { posted: domain(host.pci()), unposted: domain(host.unposted()) }
    }

    /// The domain of lines that are posted where that is possible, or of those that never are.
    pub(super) fn one(&self, unposted: bool) -> Arc<dyn IrqDomain> {
        if unposted { self.unposted.clone() } else { self.posted.clone() }
    }
}

/// A drive.
pub(super) struct Drive {
    pub(super) index: u32,
    pub(super) model: ModelId,
    queues: u16,
    /// Entries of each queue.
    entries: u16,
    managed: bool,
    admin_timeout_ns: u64,
    controller: Mutex<Option<Arc<Controller<SimHal>>>>,
    /// Controllers whose device did not stop. It may still write to their queues.
    unstopped: Mutex<Vec<Arc<Controller<SimHal>>>>,
    domains: Mutex<Domains>,
    /// It is plugged in.
    pub(super) present: AtomicBool,
    /// Something went wrong with it that only a reset cures.
    pub(super) broken: AtomicBool,
    /// One manager at a time takes the whole drive.
    pub(super) busy: AtomicBool,
    /// A manager sets its coalescing.
    setting: AtomicBool,
    /// How often one did.
    settings: AtomicU64,
}

impl Drive {
    /// The right to set its coalescing. It does not keep a reset away.
    pub(super) fn claim_setting(&self) -> Option<Claim<'_>> {
        claim(&self.setting).inspect(|_| _ = self.settings.fetch_add(1, Relaxed))
    }

    /// No manager changes what its controller is set to.
    pub(super) fn is_settled(&self) -> bool {
        !self.busy.load(Relaxed) && self.settings().is_some()
    }

    /// How often a manager has set its coalescing; none while one does.
    pub(super) fn settings(&self) -> Option<u64> {
        (!self.setting.load(Relaxed)).then(|| self.settings.load(Relaxed))
    }

    /// Brings the controller up; on a CPU of the machine.
    pub(super) fn bring_up(
        host: &Host,
        model: ModelId,
        index: u32,
        (queues, entries, managed): (u16, u16, bool),
        (impatient, setbacks): (bool, &Setbacks),
    ) -> Self {
        let drive = Self {
            index,
            model,
            queues,
            entries,
            managed,
            admin_timeout_ns: if impatient { IMPATIENT_NS } else { ADMIN_TIMEOUT_NS },
            controller: Mutex::default(),
            unstopped: Mutex::default(),
            domains: Mutex::new(Domains::new(host, model, REGIONS)),
            present: AtomicBool::new(true),
            broken: AtomicBool::new(false),
            busy: AtomicBool::new(false),
            setting: AtomicBool::new(false),
            settings: AtomicU64::new(0),
        };
        setbacks.meet("a drive", || drive.start());
        drive
    }

    /// The function is there anew.
    pub(super) fn find(&self, host: &Host) {
        *self.domains.lock().expect("one host thread") = Domains::new(host, self.model, REGIONS);
    }

    /// A new controller.
    pub(super) fn start(&self) -> Result<(), NvmeError> {
        let regs = Regs::Model { model: self.model, region: REGION_CONTROLLER };
        let admin_timeout_ns = self.admin_timeout_ns;
        let config = nvme::Config { queue_pairs: self.queues, admin_timeout_ns, ..Default::default() };
        let controller = Arc::new(Controller::new(SimHal, regs, config)?);
        *self.controller.lock().expect("one host thread") = Some(controller);
        Ok(())
    }

    /// Its controller, if it has one.
    pub(super) fn controller(&self) -> Option<Arc<Controller<SimHal>>> {
        self.controller.lock().expect("one host thread").clone()
    }

    /// Takes its controller down; an error when the device does not stop.
    pub(super) fn stop(&self) -> Result<(), NvmeError> {
        let Some(controller) = self.controller.lock().expect("one host thread").take() else { return Ok(()) };
        let down = controller.shutdown();
        if down.is_err() {
            self.unstopped.lock().expect("one host thread").push(controller);
        }
        down
    }

    /// Resets the drive, which did not answer the creation of a queue: the reset makes that queue too. Deletes it.
    pub(super) fn drop_half_made(&self, bound: impl Iterator<Item = Bound>) -> Result<(), NvmeError> {
        let controller = self.controller().ok_or(NvmeError::Stopped)?;
        controller.reset()?;
        let wanted: Vec<_> = bound.map(|bound| bound.pair).collect();
        let half_made = |pair: &Arc<QueuePair<SimHal>>| !wanted.iter().any(|other| Arc::ptr_eq(pair, other));
        let made = (1..=self.queues).filter_map(|qid| controller.queue_pair(qid));
        made.filter(half_made).try_for_each(|pair| controller.delete_queue_pair(pair.qid()))
    }

    /// Creates a queue and gives it a line. The caller holds the slot.
    pub(super) fn bind(&self, host: &Host, slot: &Slot, numbers: &AtomicU64) -> Result<(), BindError> {
        let controller = self.controller().ok_or(NvmeError::Stopped)?;
        let config = QueueConfig { entries: self.entries, vector: Some(slot.vector()), transfer_bytes_max: 16 << 10 };
        let pair = controller.create_queue_pair(config, slot.load.clone())?;
        queues::opened(slot.load.index(), self.model, pair.qid());
        match self.connect(host, slot, pair.clone(), numbers) {
            Ok(()) => {
                slot.load.attach(Some(&pair));
                Ok(())
            }
            Err(error) => {
                disrupt(&[&slot.load], || controller.delete_queue_pair(pair.qid()))?;
                Err(error.into())
            }
        }
    }

    /// Gives a queue pair a line and its handler.
    fn connect(
        &self,
        host: &Host,
        slot: &Slot,
        pair: Arc<QueuePair<SimHal>>,
        numbers: &AtomicU64,
    ) -> Result<(), IrqError> {
        let request = AllocRequest {
            managed: self.managed,
            ..AllocRequest::fixed(RequesterId(requester(self.index)), slot.vector().into(), slot.share.clone())
        };
        let domain = self.domains.lock().expect("one host thread").one(slot.unposted.load(Relaxed));
        let line = match host.core().alloc_line(domain.clone(), &request, Flow::Edge) {
            // The queue's own CPUs are offline: any CPU will do.
            Err(IrqError::NoCpu(_)) => {
                let request = AllocRequest { affinity: CpuSet::first(host.cpus()), ..request };
                host.core().alloc_line(domain, &request, Flow::Edge)?
            }
            line => line?,
        };
        let name = format!("nvme{}q{}", self.index, slot.vector());
        let guard = install(host, line, name, (pair.clone(), Some(slot.load.index())), numbers)?;
        slot.set(Some(Bound { pair, line, guard }));
        Ok(())
    }

    /// Asks for a message that the drive does not have. It must be refused, and what the levels behind it have given by then is
    /// given back: whoever counts them next finds them.
    pub(super) fn ask_too_much(&self, host: &Host) {
        let domain = self.domains.lock().expect("one host thread").one(false);
        let request = AllocRequest::fixed(RequesterId(requester(self.index)), u32::MAX, CpuSet::first(host.cpus()));
        match host.core().alloc_line(domain, &request, Flow::Edge) {
            Err(IrqError::Exhausted(..)) => {}
            other => violate("refusals", format!("a message that drive {} does not have: {other:?}", self.index)),
        }
    }

    /// Frees a slot's line, and gives its queue pair a new one. The caller holds the slot.
    pub(super) fn reconnect(&self, host: &Host, slot: &Slot, numbers: &AtomicU64) -> Result<(), IrqError> {
        let Some(bound) = slot.set(None) else { return Ok(()) };
        free_line(host, bound.line, &bound.guard)?;
        self.connect(host, slot, bound.pair.clone(), numbers)?;
        // Completions in between had no line, so the driver looks for them itself.
        slot.poll(&bound);
        Ok(())
    }

    /// The drive is gone: its commands end. The answer of its driver. No device can write to the queues' memory any more.
    pub(super) fn lose(&self) -> Result<(), NvmeError> {
        let controller = self.controller.lock().expect("one host thread").take().ok_or(NvmeError::Gone)?;
        controller.shutdown()
    }

    /// Frees the line of a slot whose queue went with the drive. The caller holds the slot.
    pub(super) fn release(&self, host: &Host, slot: &Slot) -> Result<(), IrqError> {
        slot.load.attach(None);
        slot.set(None).map_or(Ok(()), |bound| free_line(host, bound.line, &bound.guard))
    }

    /// Deletes a queue with its commands in flight, and frees its line. The caller holds the slot.
    pub(super) fn unbind(&self, host: &Host, slot: &Slot, lines_first: bool) -> Result<(), BindError> {
        let Some(bound) = slot.set(None) else { return Ok(()) };
        slot.load.attach(None);
        if lines_first {
            free_line(host, bound.line, &bound.guard)?;
        }
        let deleted = match self.controller() {
            Some(controller) => disrupt(&[&slot.load], || controller.delete_queue_pair(bound.pair.qid())),
            None => Ok(()),
        };
        if !lines_first {
            free_line(host, bound.line, &bound.guard)?;
        }
        Ok(deleted?)
    }
}

/// Installs the first handler of a line, which is freed again if that fails. `load`: that of its queue, if it is a drive's.
pub(super) fn install(
    host: &Host,
    line: Irq,
    name: String,
    (action, load): (Arc<dyn Action>, Option<u64>),
    numbers: &AtomicU64,
) -> Result<Arc<Guard>, IrqError> {
    marks::allocated(line);
    let guard = Guard::open(numbers, action, load);
    marks::installing(line);
    match host.core().request(line, name, RequestFlags::default(), guard.clone()) {
        Ok(()) => Ok(guard),
        Err(error) => {
            guard.close();
            host.core().free_line(line)?;
            Err(error)
        }
    }
}

/// Takes the handler off a line, and frees the line.
pub(super) fn free_line(host: &Host, line: Irq, guard: &Arc<Guard>) -> Result<(), IrqError> {
    let action: Arc<dyn Action> = guard.clone();
    host.core().free(line, &action)?;
    guard.close();
    marks::removed(line);
    marks::claim(host.core(), line, false);
    if host.unit().is_some()
        && let Some(view) = host.core().view(line)
    {
        Mark::EntryFreed.of(view.levels[1].hwirq.0);
    }
    host.core().free_line(line)
}

/// Takes a slot's handler off its line and installs another for the same queue pair. The caller holds the slot.
pub(super) fn replace_handler(host: &Host, slot: &Slot, numbers: &AtomicU64) -> Result<(), IrqError> {
    let Some(bound) = slot.bound() else { return Ok(()) };
    let action: Arc<dyn Action> = bound.guard.clone();
    host.core().free(bound.line, &action)?;
    bound.guard.close();
    marks::removed(bound.line);
    marks::claim(host.core(), bound.line, false);
    let guard = Guard::open(numbers, bound.pair.clone(), Some(slot.load.index()));
    marks::installing(bound.line);
    let flags = RequestFlags { start_disabled: true, ..RequestFlags::default() };
    slot.set(Some(Bound { guard: guard.clone(), ..bound.clone() }));
    host.core().request(bound.line, "again", flags, guard)?;
    host.core().enable(bound.line)?;
    slot.poll(&bound);
    Ok(())
}
