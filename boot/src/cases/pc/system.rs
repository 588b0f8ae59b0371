//! Brings up core and drivers on this machine's local APICs and its remapping unit.

use crate::arch::{self, LAPIC, Platform, X2APIC};
use crate::cases::pci::{Bus, Function};
use crate::cases::{count, expect};
use crate::kernel::cpu::{self, Exception};
use crate::kernel::{self, Bare, threads};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use drivers::apic::{ApicId, ApicMode};
use drivers::message::MessageSource;
use drivers::posting::{PostingBlock, PostingCapability, PostingDomain};
use drivers::vtd::{Fault, RemapUnit};
use hal::{Hal as _, Lock};
use irq::{Flow, IrqCore, IrqDomain};
use spin::Once;
use systems::pc::{Apics, Path, Pc, PcBuilder, PcCpus, PcError, Tick, TickEoi};

/// Length of a remapping unit's registers, including those whose offset its capabilities give.
const UNIT_BYTES: u32 = 0x1000;
/// Lines of devices.
const LINES: u32 = 64;
/// Faults that are kept; further ones are left out.
pub(super) const FAULTS_MAX: usize = 64;

/// Keeps a fault, without allocating.
fn note(faults: &mut Vec<Fault>, fault: Fault) {
    if faults.len() < faults.capacity() {
        faults.push(fault);
    }
}

/// The parts of a PC that the cases use.
pub(in crate::cases) struct PcFixture {
    pub(in crate::cases) pc: Pc<Bare>,
    pub(in crate::cases) core: Arc<IrqCore<Bare>>,
    /// True if a device that can post must post.
    wants_posting: bool,
    posting: Once<Posting>,
    faults: Arc<Lock<Bare, Vec<Fault>>>,
    pub(in crate::cases) platform: &'static Platform,
}

/// A function that can post, and the domain of its lines if it must post.
struct Posting {
    block: Arc<PostingBlock<Bare>>,
    domain: Option<Arc<PostingDomain<Bare>>>,
}

/// Connects the kernel's interrupts, kicks and timer to the PC, and starts all CPUs.
fn start(cpus: &Arc<PcCpus<Bare>>) -> Result<(), String> {
    let (entry, kicks, timers, others) = (cpus.clone(), cpus.clone(), cpus.clone(), cpus.clone());
    cpu::set_entry(
        move |Exception::Interrupt(vector)| entry.interrupt(vector),
        move |cpu| kicks.kick(cpu).unwrap_or_else(|why| panic!("no IPI to CPU {cpu}: {why}")),
    );
    cpu::set_timer_with(move |wait_ns| match wait_ns {
        Some(wait_ns) => timers.tick_at(Bare.now_ns() + wait_ns),
        None => timers.no_tick(),
    });
    cpus.start_cpu().map_err(|error| error.to_string())?;
    kernel::start_cpus(move || others.start_cpu().unwrap_or_else(|why| panic!("CPU {}: {why}", Bare.cpu())))
}

/// Errors of the bring-up.
struct Failed(String);

impl From<PcError> for Failed {
    fn from(error: PcError) -> Self {
        Self(error.to_string())
    }
}

impl PcFixture {
    /// Brings up everything, on all CPUs. With `wants_posting` devices post by themselves; with `x2apic` the local APICs
    /// change to that mode.
    ///
    /// # Errors
    /// The part that did not come up.
    pub(super) fn new(platform: &'static Platform, wants_posting: bool, x2apic: bool) -> Result<Self, String> {
        let ids = platform.apic_ids.iter().copied().map(ApicId).collect();
        let (regs, mode) = if x2apic { (X2APIC, ApicMode::X2Apic) } else { (LAPIC, ApicMode::XApic) };
        let apics = Apics { regs, mode, ids, timer_hz: arch::timer_hz() };
        let tick = Tick { eoi: TickEoi::First, runs_unarmed: true, run: Arc::new(|_| threads::tick()) };
        // The line of a unit's fault event takes the records, so the faults are noted there.
        let faults = Arc::new(Lock::new(Bare, Vec::with_capacity(FAULTS_MAX)));
        let noted = faults.clone();
        let observer = move |_, fault| note(&mut noted.lock(), fault);
        let builder = PcBuilder::new(Bare, apics, LINES).wish(Path::Posted).devices_post().tick(tick);
        let builder = builder.observe_faults(Arc::new(observer));
        let builder = if x2apic { builder.switch_to_x2apic() } else { builder };
        let units = platform.vtd.map(|base| arch::window(base as usize, UNIT_BYTES));
        let builder = units.into_iter().fold(builder, PcBuilder::unit);
        let pc = builder.build(|cpus| start(cpus).map_err(Failed)).map_err(|Failed(why)| why)?;
        Ok(Self { core: pc.core().clone(), pc, wants_posting, posting: Once::new(), faults, platform })
    }

    /// The remapping unit, if the machine has one.
    pub(super) fn unit(&self) -> Option<&Arc<RemapUnit<Bare>>> {
        self.pc.units()[0].remapping()
    }

    /// True if the remapping unit posts messages.
    pub(super) fn posts(&self) -> bool {
        self.pc.policy().units.iter().any(|unit| unit.path == Path::Posted)
    }

    /// Prints what the CPUs took of the remapping unit's notifications.
    fn tell_notifications(&self) {
        let seen = self.pc.statistics();
        count("notifications_taken", seen.notifications);
        count("empty_notifications", seen.empty_notifications);
        count("harvests", seen.passes);
        count("vectors_dispatched", seen.vectors);
    }

    /// The domain of a function's messages. At most one function can post.
    ///
    /// # Errors
    /// The function must post and cannot.
    pub(in crate::cases) fn messages(&self, bus: &mut Bus, function: &Function) -> Result<Arc<dyn IrqDomain>, String> {
        let pci = self.pc.pci(0).map_err(|error| error.to_string())?;
        let capability = match PostingCapability::find(&function.config) {
            Ok(capability) => capability,
            Err(why) if self.wants_posting => return Err(why.to_string()),
            Err(_) => return Ok(pci),
        };
        let bar = bus.region(function, capability.bar)?;
        let block = self.pc.posting_block(bar, capability).map_err(|error| error.to_string())?;
        let domain = || self.pc.posting_domain(0, block.clone()).map(Arc::new).map_err(|error| error.to_string());
        let domain = if self.wants_posting { Some(domain()?) } else { None };
        self.posting.call_once(|| Posting { block, domain: domain.clone() });
        Ok(domain.map_or(pci, |domain| domain))
    }

    /// Starts posting on the function that must post. `table` is its MSI-X table.
    ///
    /// # Errors
    /// The table has no entries for notifications.
    pub(in crate::cases) fn start_messages(&self, table: &impl MessageSource) -> Result<(), String> {
        let Some(Posting { domain: Some(domain), .. }) = self.posting.get() else { return Ok(()) };
        domain.start(self.platform.cpus(), table).map_err(|error| error.to_string())
    }

    /// The flow of PCI message lines.
    pub(in crate::cases) fn message_flow(&self) -> Flow {
        Flow::Edge
    }

    /// Number of interrupts whose vector had no line.
    pub(in crate::cases) fn strays(&self) -> u64 {
        self.pc.strays()
    }

    /// Device vectors that are pending at this CPU, whose interrupts are off.
    pub(in crate::cases) fn requested_here(&self) -> Vec<u32> {
        self.pc.requested_here().into_iter().map(|vector| vector.0.into()).collect()
    }

    /// Takes this CPU offline.
    ///
    /// # Errors
    /// The CPU stays online.
    pub(in crate::cases) fn stop_cpu(&self) -> Result<(), String> {
        self.pc.stop_cpu().map(|_| ()).map_err(|error| format!("CPU {} cannot go: {error}", Bare.cpu()))
    }

    /// Brings this CPU back.
    ///
    /// # Errors
    /// An error of the core.
    pub(in crate::cases) fn start_cpu(&self) -> Result<(), String> {
        self.pc.start_cpu().map_err(|error| format!("CPU {} cannot come back: {error}", Bare.cpu()))
    }
    /// Begins or ends a section of QEMU's trace. This machine's trace has no sections.
    pub(in crate::cases) fn mark(&self) {}

    /// Prints what the device has posted or sent, and what the CPUs received. No interrupt may bypass the descriptors.
    ///
    /// # Errors
    /// The device has recorded a fault, or has sent a message that it should have posted.
    fn check_posting(&self) -> Result<(), String> {
        let Some(Posting { block, domain }) = self.posting.get() else { return Ok(()) };
        let counts = block.counts();
        if let Some(fault) = block.take_fault() {
            return Err(format!("{} posting faults; the first: {fault:?}", counts.faults));
        }
        if domain.is_none() {
            count("messages_sent", counts.direct);
            return expect("requests posted", counts.posts, 0);
        }
        let seen = self.pc.statistics();
        count("posts", counts.posts);
        count("notifications_sent", counts.notifications);
        count("notifications_taken", seen.notifications);
        count("empty_notifications", seen.empty_notifications);
        count("vectors_dispatched", seen.vectors);
        expect("posting faults", counts.faults, 0)?;
        expect("interrupts past the descriptors", counts.direct, 0)?;
        // Notifications that reach QEMU together are one interrupt to the CPU.
        let taken = seen.notifications;
        if taken <= counts.notifications { Ok(()) } else { Err(format!("{taken} notifications taken")) }
    }

    /// True if the remapping unit has blocked a request since the last [`Self::take_faults`].
    pub(super) fn has_faults(&self) -> bool {
        !self.faults.lock().is_empty()
    }

    /// The requests that the remapping unit has blocked since the last call, oldest first; at most [`FAULTS_MAX`].
    pub(super) fn take_faults(&self) -> Vec<Fault> {
        core::mem::replace(&mut *self.faults.lock(), Vec::with_capacity(FAULTS_MAX))
    }

    /// Checks that the remapping unit has blocked no request, and that a posting device has posted.
    ///
    /// # Errors
    /// The last blocked request, or the missing posts.
    pub(in crate::cases) fn check(&self) -> Result<(), String> {
        self.check_posting()?;
        let Some(unit) = self.unit() else { return Ok(()) };
        if self.posts() {
            self.tell_notifications();
        }
        let mut faults = self.take_faults();
        // Records whose event has not come yet.
        unit.take_faults(|fault| note(&mut faults, fault));
        count("remapping_faults", faults.len() as u64);
        let blocked = faults.len();
        faults
            .last()
            .map_or(Ok(()), |fault| Err(format!("the remapping unit blocked {blocked} messages; the last: {fault}")))
    }
}
