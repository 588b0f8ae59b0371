//! A Data Streaming Accelerator beside the drives: work queues with a load of fills, each with its line, and the line of its
//! errors. Source of expected words: Intel Data Streaming Accelerator Architecture Specification ("DSA").

mod audit;
mod early;
mod errors;
mod manage;
mod plan;
mod step;
mod stream;

pub(super) use audit::{audit, cover, describe, is_done, prove, settle, start_load};
pub(super) use manage::apply;
pub(super) use plan::{COMMAND_TIMEOUT_NS, Plan};
pub(super) use step::AcceleratorStep;

use super::beliefs::message;
use super::drive::{BindError, Domains, claim, free_line, install};
use super::guard::Guard;
use super::stack::PcStack;
use crate::checkers::beliefs::Comparison;
use crate::server::Host;
use crate::setbacks::Setbacks;
use crate::verdict::violate;
use drivers::dsa::{Config, Device, DsaError};
use errors::Errors;
use hal::{CpuSet, Hal as _};
use irq::{Action, AllocRequest, Belief, Flow, Irq, RequesterId};
use machine::dsa::{Dsa, REGION_CONFIG, REGION_PORTALS, REGION_REGISTERS};
use machine::memory::MEMORY_BASE;
use machine::model::ModelId;
use machine::{Regs, SimHal, inspect};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use stream::{Opening, Stream};

/// Its requester.
pub(super) const REQUESTER: u16 = 0x6a08;
/// Fills have numbers of their own, and so have errors.
const COMMAND: u64 = 1 << 59;
const ERROR: u64 = 1 << 58;
/// Bytes at the end of memory that nobody owns: fills that leave memory begin there.
const OUTSIDE_STRADDLE_BYTES: u64 = 64;
/// A PC's memory.
pub(super) const MEMORY_BYTES: usize = 8 << 20;
/// No command is kept waiting by another one for longer.
const BUSY_NS: u64 = 20_000_000;

// Registers (DSA, "GENCTRL", "GENSTS", "INTCAUSE", "SWERROR", "Table Offsets").
const GENCTRL: u32 = 0x88;
const GENSTS: u32 = 0x90;
const INTCAUSE: u32 = 0x98;
const SWERROR: u32 = 0xc0;
const TABLE_OFFSETS: u32 = 0x60;

fn memory_end() -> u64 {
    MEMORY_BASE + MEMORY_BYTES as u64
}

/// A work queue that is open, its line and its handler.
#[derive(Clone)]
struct Bound {
    opening: Arc<Opening>,
    queue: Arc<drivers::dsa::WorkQueue<SimHal>>,
    line: Irq,
    guard: Arc<Guard>,
}

/// A place for a work queue.
struct Place {
    index: u8,
    entry: u16,
    entries: u16,
    bytes_max: u32,
    stream: Arc<Stream>,
    bound: Mutex<Option<Bound>>,
    unposted: AtomicBool,
    busy: AtomicBool,
    /// Its close failed, or the shutdown of the device: until one succeeds, its driver keeps the queue, whose memory the device may
    /// write.
    kept: AtomicBool,
}

impl Place {
    fn bound(&self) -> Option<Bound> {
        self.bound.lock().expect("one host thread").clone()
    }

    fn set(&self, bound: Option<Bound>) -> Option<Bound> {
        std::mem::replace(&mut self.bound.lock().expect("one host thread"), bound)
    }
}

/// The device with its driver.
pub(super) struct Accelerator {
    model: ModelId,
    config: Config,
    fills: u64,
    domains: Domains,
    device: Mutex<Option<Arc<Device<SimHal>>>>,
    places: Vec<Place>,
    errors: Errors,
    /// Its commands may fail or be late.
    faulty: bool,
    /// One did. What hardware and driver have is known again when the device was shut down.
    broken: AtomicBool,
    /// It comes up for the first time.
    starting: AtomicBool,
    /// It is being shut down and brought up.
    restarting: AtomicBool,
    /// Commands of managers that were begun, and that are under way.
    begun: AtomicU32,
    under_way: AtomicU32,
}

impl Accelerator {
    /// Brings it up with all its queues; on the boot thread.
    pub(super) fn bring_up(
        host: &Arc<Host>,
        model: ModelId,
        plan: &Plan,
        numbers: &AtomicU64,
        ((threaded, faulty), setbacks): ((bool, bool), &Setbacks),
    ) -> Self {
        let place = |(number, queue): (u32, &drivers::dsa::QueueConfig)| {
            let (entries, bytes_max) = (queue.entries, queue.transfer_bytes_max);
            Place {
                index: queue.index,
                entry: queue.interrupt.expect("each has one"),
                entries,
                bytes_max,
                stream: Stream::new(plan.seed, number, (entries, bytes_max), host.cpus(), (threaded, faulty)),
                bound: Mutex::default(),
                unposted: AtomicBool::new(false),
                busy: AtomicBool::new(false),
                kept: AtomicBool::new(false),
            }
        };
        let queues = plan.config.groups.iter().flat_map(|group| &group.queues);
        let accelerator = Self {
            model,
            config: plan.config.clone(),
            fills: plan.fills,
            domains: Domains::new(host, model, [REGION_CONFIG, REGION_REGISTERS]),
            device: Mutex::default(),
            places: (0..).zip(queues).map(place).collect(),
            errors: Errors::new(model, Regs::Model { model, region: REGION_PORTALS }),
            faulty,
            broken: AtomicBool::new(false),
            restarting: AtomicBool::new(false),
            starting: AtomicBool::new(true),
            begun: AtomicU32::new(0),
            under_way: AtomicU32::new(0),
        };
        let device = setbacks.meet("the accelerator", || accelerator.new_device(accelerator.config.clone()));
        *accelerator.device.lock().expect("one host thread") = Some(Arc::new(device));
        let next = || accelerator.start_next(host, numbers);
        while setbacks.meet_mended("a queue of the accelerator", next, || accelerator.close_kept()) {}
        accelerator.starting.store(false, Relaxed);
        accelerator
    }

    /// Closes the queues that the device did not close in time.
    fn close_kept(&self) {
        for place in self.places.iter().filter(|place| place.kept.swap(false, Relaxed)) {
            if let Err(error) = self.command(|device| device.close_queue(place.index)) {
                violate("operations", format!("work queue {} does not close: {error}", place.index));
            }
            place.stream.let_go();
        }
    }

    fn device(&self) -> Option<Arc<Device<SimHal>>> {
        self.device.lock().expect("one host thread").clone()
    }

    fn new_device(&self, config: Config) -> Result<Device<SimHal>, DsaError> {
        let regs = |region| Regs::Model { model: self.model, region };
        Device::new(SimHal, regs(REGION_REGISTERS), regs(REGION_PORTALS), config)
    }

    /// Brings up whatever is not up.
    fn start(&self, host: &Host, numbers: &AtomicU64) -> Result<(), BindError> {
        while self.start_next(host, numbers)? {}
        Ok(())
    }

    /// Brings up what is not up first; false if all is up.
    fn start_next(&self, host: &Host, numbers: &AtomicU64) -> Result<bool, BindError> {
        let device = match self.device() {
            Some(device) => device,
            None => {
                let device = Arc::new(self.new_device(self.config.clone())?);
                *self.device.lock().expect("one host thread") = Some(device.clone());
                device
            }
        };
        if self.errors.line().is_none() {
            let action = self.errors.action(&device);
            let (line, guard) = self.connect(host, (0, false), "dsa", action, numbers)?;
            self.errors.set_line(Some((line, guard)));
        }
        let Some(place) = self.places.iter().find(|place| place.bound().is_none()) else { return Ok(false) };
        self.open(host, place, numbers).map(|()| true)
    }

    /// Opens a queue and gives it a line. The caller holds the place.
    fn open(&self, host: &Host, place: &Place, numbers: &AtomicU64) -> Result<(), BindError> {
        let opening = Opening::new(place.stream.clone());
        let queue = self.command(|device| device.open_queue(place.index, opening.clone()))?;
        opening.set_queue(&queue);
        let unposted = place.unposted.load(Relaxed);
        match self.connect(host, (place.entry, unposted), "wq", opening.clone(), numbers) {
            Ok((line, guard)) => {
                place.set(Some(Bound { opening: opening.clone(), queue, line, guard }));
                place.stream.attach(Some(opening));
                Ok(())
            }
            Err(error) => {
                self.close_queue(place, &opening)?;
                Err(error)
            }
        }
    }

    /// A line of one entry of the device's MSI-X table, with its handler.
    fn connect(
        &self,
        host: &Host,
        (entry, unposted): (u16, bool),
        name: &str,
        action: Arc<dyn Action>,
        numbers: &AtomicU64,
    ) -> Result<(Irq, Arc<Guard>), BindError> {
        let request = AllocRequest::fixed(RequesterId(REQUESTER), entry.into(), CpuSet::first(host.cpus()));
        let domain = self.domains.one(unposted);
        let line = host.core().alloc_line(domain, &request, Flow::Edge)?;
        let guard = install(host, line, format!("{name}{entry}"), (action, None), numbers)?;
        Ok((line, guard))
    }

    /// Closes a queue and frees its line. The caller holds the place.
    fn close(&self, host: &Host, place: &Place, lines_first: bool) -> Result<(), BindError> {
        let Some(Bound { opening, queue, line, guard }) = place.set(None) else { return Ok(()) };
        drop(queue);
        let stream = &place.stream;
        stream.closing.fetch_add(1, Relaxed);
        stream.attach(None);
        let free = |wanted: bool| if wanted { free_line(host, line, &guard) } else { Ok(()) };
        let freed = free(lines_first);
        let closed = self.close_queue(place, &opening);
        let freed = freed.and(free(!lines_first));
        stream.closing.fetch_sub(1, Relaxed);
        closed?;
        Ok(freed?)
    }

    /// Has the driver close a queue whose fills go nowhere any more.
    fn close_queue(&self, place: &Place, opening: &Opening) -> Result<(), DsaError> {
        let closed = self.command(|device| device.close_queue(place.index));
        check_all_ended(place, "closed");
        place.kept.store(closed.is_err(), Relaxed);
        match closed {
            Ok(()) if self.state_of(place) != 0 => {
                violate("operations", format!("work queue {} is closed, and the device has it enabled", place.index));
            }
            Ok(()) => place.stream.let_go(),
            Err(_) => check_kept(opening),
        }
        closed
    }

    /// A command of the driver. Another manager's may be under way; other errors have no excuse but memory that has run out, and
    /// faults.
    fn command<T>(&self, give: impl Fn(&Device<SimHal>) -> Result<T, DsaError>) -> Result<T, DsaError> {
        let Some(device) = self.device() else { return Err(DsaError::Gone) };
        let end_ns = SimHal.now_ns() + BUSY_NS;
        loop {
            let (result, alone) = self.give(|| give(&device));
            match result {
                Err(DsaError::Busy) if !alone && SimHal.now_ns() < end_ns => SimHal.delay_ns(2_000),
                Err(error @ DsaError::Dma(_)) => return Err(error),
                // `setbacks` judges it.
                Err(error @ (DsaError::Timeout(..) | DsaError::Command(..))) if self.starting.load(Relaxed) => {
                    return Err(error);
                }
                Err(error) if !self.is_explained(&error) => {
                    violate("operations", format!("the accelerator's driver: {error}, and no fault explains it"));
                }
                Err(error) => {
                    self.broken.store(true, Relaxed);
                    return Err(error);
                }
                result => return result,
            }
        }
    }

    /// A command that failed leaves a queue that is the driver's alone, or the device's.
    fn is_explained(&self, error: &DsaError) -> bool {
        let is_kept = |index| self.places.iter().any(|place| place.index == index && place.kept.load(Relaxed));
        match *error {
            DsaError::Command(..) | DsaError::Timeout(..) => self.faulty,
            DsaError::Open(index) => is_kept(index),
            _ => false,
        }
    }

    /// Gives a command, and tells whether no other was under way meanwhile.
    fn give<T>(&self, give: impl FnOnce() -> T) -> (T, bool) {
        let begun = self.begun.fetch_add(1, Relaxed) + 1;
        let others = self.under_way.fetch_add(1, Relaxed);
        let result = give();
        self.under_way.fetch_sub(1, Relaxed);
        (result, others == 0 && self.begun.load(Relaxed) == begun)
    }

    /// Its lines, the queues' first, each with its entry of the MSI-X table; none where there is none now.
    pub(super) fn line(&self, number: usize) -> Option<Irq> {
        match self.places.get(number) {
            Some(place) => place.bound().map(|bound| bound.line),
            None => self.errors.line().map(|(line, _)| line),
        }
    }

    /// One manager at a time takes the handler of that line.
    pub(super) fn busy(&self, number: usize) -> &AtomicBool {
        self.places.get(number).map_or(&self.errors.busy, |place| &place.busy)
    }

    /// How many lines it has at most.
    pub(super) fn lines(&self) -> usize {
        self.places.len() + 1
    }

    /// Lines that exist now.
    pub(super) fn lines_now(&self) -> usize {
        (0..self.lines()).filter(|&number| self.line(number).is_some()).count()
    }

    /// The entry of the MSI-X table of this line, if it is its own.
    fn entry_of(&self, irq: Irq) -> Option<u16> {
        let number = (0..self.lines()).find(|&number| self.line(number) == Some(irq))?;
        Some(self.places.get(number).map_or(0, |place| place.entry))
    }

    /// Whose messages this line takes.
    pub(super) fn requester_of(&self, irq: Irq) -> Option<u16> {
        self.entry_of(irq).map(|_| REQUESTER)
    }

    /// The line's message is in the device's table.
    pub(super) fn compare_message(&self, belief: &Belief<'_>, handle: Option<u64>, now: &mut Comparison) {
        let Some(entry) = self.entry_of(belief.irq) else { return };
        now.arrived(self.model);
        let held = inspect(self.model, |dsa: &Dsa, _| dsa.msix_entry(entry)).flatten();
        message(belief, u64::from(REQUESTER) << 16 | u64::from(entry), held, handle, now);
    }

    fn held(&self, offset: u32) -> u32 {
        inspect(self.model, |dsa: &Dsa, _| dsa.held(offset)).unwrap_or(u32::MAX)
    }

    /// Registers and tables are what the configuration stands for, and open queues are enabled.
    pub(super) fn compare(&self, now: &mut Comparison) {
        if self.restarting.load(Relaxed) || self.broken.load(Relaxed) || self.device().is_none() {
            return;
        }
        now.arrived(self.model);
        now.same("accelerator's control register", GENCTRL.into(), 0b11_u32, self.held(GENCTRL));
        now.same("accelerator's state", GENSTS.into(), 1_u32, self.held(GENSTS) & 0b11);
        for (offset, word) in plan::words(&self.config, self.tables()) {
            now.same("accelerator's table", offset.into(), word, self.held(offset));
        }
        for place in self.places.iter().filter(|place| !place.busy.load(Relaxed)) {
            let is_open = u32::from(place.bound().is_some());
            now.same("state of work queue", place.index.into(), is_open, self.state_of(place));
        }
    }

    /// DSA, "Work Queue Configuration Table": the state is in bits 31:30 of bytes 24 to 27; 1 is enabled.
    fn state_of(&self, place: &Place) -> u32 {
        self.held(self.tables()[1] + 32 * u32::from(place.index) + 24) >> 30
    }

    fn tables(&self) -> [u32; 2] {
        let offsets = self.held(TABLE_OFFSETS);
        [(offsets & 0xffff) << 8, (offsets >> 16) << 8]
    }
}

/// The queue has given up all that it had accepted.
fn check_all_ended(place: &Place, how: &str) {
    if let Some(tag) = place.stream.owed() {
        violate("commands", format!("work queue {} is {how}, and fill {tag:#x} has not ended", place.index));
    }
}

/// Its driver still has a queue that the device may not have let go of.
fn check_kept(opening: &Opening) {
    if opening.queue().is_none() {
        violate("commands", "a command failed that ends a work queue, whose memory its driver has freed");
    }
}

/// The accelerator of this stack.
fn of(stack: &PcStack) -> Option<&Accelerator> {
    stack.accelerator.as_ref()
}

/// Takes the right to change each of these, or none.
fn claim_all<'a>(flags: impl Iterator<Item = &'a AtomicBool>) -> Option<Vec<super::drive::Claim<'a>>> {
    flags.map(claim).collect()
}
