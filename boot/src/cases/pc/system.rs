//! Core and drivers, brought up on this machine's local APICs and its remapping unit.

use crate::arch::{LAPIC, Platform, TIMER_VECTOR};
use crate::cases::pci::{Bus, Function};
use crate::cases::{count, expect};
use crate::kernel::cpu::{self, Exception};
use crate::kernel::mmio::Mmio;
use crate::kernel::{self, Bare, threads};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use drivers::apic::{ApicId, ApicMode, Lapic, VectorDomain};
use drivers::message::MessageSource;
use drivers::posting::{PostingBlock, PostingCapability, PostingDomain};
use drivers::vtd::{RemapConfig, RemapDomain, RemapUnit};
use hal::{CpuId, Hal};
use irq::posted::{PostedConfig, PostedMsi, Statistics};
use irq::{CoreConfig, Flow, IrqCore, IrqDomain, SystemHandler, Vector};
use spin::Once;

/// Makes a CPU look at its run queue.
const RESCHEDULE: Vector = Vector(0xfd);
const SPURIOUS: Vector = Vector(0xff);
/// The registers of a remapping unit, with those that lie where its capabilities say.
const UNIT_BYTES: u32 = 0x1000;
/// Entries of the remapping table.
const TABLE_ENTRIES: u32 = 256;

/// Everything.
pub(in crate::cases) struct System {
    pub(in crate::cases) core: Arc<IrqCore<Bare>>,
    lapic: Arc<Lapic<Bare>>,
    /// Where the machine has one.
    pub(super) unit: Option<Arc<RemapUnit<Bare>>>,
    /// The domain of PCI messages that nobody posts.
    pci: Arc<dyn IrqDomain>,
    /// The CPUs' posted descriptors.
    posted: Arc<PostedMsi<Bare>>,
    /// A device that can post is to.
    wants_posting: bool,
    posting: Once<Posting>,
    pub(in crate::cases) platform: &'static Platform,
}

/// A function that can post, and the domain of its lines if it is to.
struct Posting {
    block: Arc<PostingBlock<Bare>>,
    domain: Option<Arc<PostingDomain<Bare>>>,
}

impl System {
    /// Brings up everything, on all CPUs. With `wants_posting` devices post by themselves.
    ///
    /// # Errors
    /// What did not come up.
    pub(super) fn new(platform: &'static Platform, wants_posting: bool) -> Result<Self, String> {
        let ids = platform.apic_ids.iter().copied().map(ApicId).collect();
        let lapic = Lapic::new(Bare, LAPIC, ApicMode::XApic, ids).map_err(|error| error.to_string())?;
        let lapic = Arc::new(lapic);
        let root = VectorDomain::new(Bare, lapic.clone());
        let chip = root.chip().clone();
        let vectors: Arc<dyn IrqDomain> = Arc::new(root);
        let unit = platform.vtd.map(remapping_unit).transpose()?;
        let pci = match &unit {
            Some(unit) => Arc::new(RemapDomain::remapped(unit.clone(), lapic.clone(), vectors)),
            None => vectors,
        };
        let mut core = IrqCore::new(Bare, CoreConfig::x86(platform.cpus(), 64)).map_err(|error| error.to_string())?;
        core.set_root_chip(chip);
        let mut set = |vector, short, long, handler: SystemHandler<Bare>| {
            core.set_system_vector(vector, short, long, handler).map_err(|error| error.to_string())
        };
        let end = lapic.clone();
        let tick = move |_: &IrqCore<Bare>| {
            end.eoi();
            threads::tick();
        };
        set(Vector(TIMER_VECTOR), "LOC", "Local timer interrupts", Arc::new(tick))?;
        let end = lapic.clone();
        set(RESCHEDULE, "RES", "Rescheduling interrupts", Arc::new(move |_| end.eoi()))?;
        set(SPURIOUS, "SPU", "Spurious interrupts", Arc::new(|_| {}))?;
        let config = PostedConfig::default();
        let destinations: Vec<u32> =
            platform.apic_ids.iter().map(|&id| ApicMode::XApic.destination_field(ApicId(id))).collect();
        let posted = PostedMsi::new(Bare, config, &destinations).map_err(|error| error.to_string())?;
        let posted = Arc::new(posted);
        let (end, served) = (lapic.clone(), posted.clone());
        let notified = move |core: &IrqCore<Bare>| _ = served.handle(|vector| _ = core.dispatch(vector), || end.eoi());
        set(config.notification_vector, "PMN", "Posted MSI notification event", Arc::new(notified))?;
        let core = Arc::new(core);
        let (entry, kicks) = (core.clone(), lapic.clone());
        cpu::set_entry(
            move |Exception::Interrupt(vector)| entry.handle_vector(Vector(vector)),
            move |cpu| kicks.send(cpu, RESCHEDULE).unwrap_or_else(|why| panic!("no IPI to CPU {cpu}: {why}")),
        );
        lapic.enable(SPURIOUS);
        let others = lapic.clone();
        kernel::start_cpus(move || others.enable(SPURIOUS))?;
        Ok(Self { core, lapic, unit, pci, posted, wants_posting, posting: Once::new(), platform })
    }

    /// The domain of a function's messages. One function may be able to post.
    ///
    /// # Errors
    /// It is to post and cannot.
    pub(in crate::cases) fn messages(&self, bus: &mut Bus, function: &Function) -> Result<Arc<dyn IrqDomain>, String> {
        let capability = match PostingCapability::find(&function.config) {
            Ok(capability) => capability,
            Err(why) if self.wants_posting => return Err(why.to_string()),
            Err(_) => return Ok(self.pci.clone()),
        };
        let bar = bus.region(function, capability.bar)?;
        let block = PostingBlock::new(bar, capability, self.posted.clone()).map_err(|error| error.to_string())?;
        let block = Arc::new(block);
        let notification = PostedConfig::default().notification_vector;
        let domain = || PostingDomain::new(block.clone(), self.lapic.clone(), notification, self.pci.clone());
        let domain = self.wants_posting.then(|| Arc::new(domain()));
        self.posting.call_once(|| Posting { block, domain: domain.clone() });
        Ok(domain.map_or(self.pci.clone(), |domain| domain))
    }

    /// Lets the function post that is to, whose MSI-X table this is.
    ///
    /// # Errors
    /// The table has no entries for notifications.
    pub(in crate::cases) fn start_messages(&self, table: &impl MessageSource) -> Result<(), String> {
        let Some(Posting { domain: Some(domain), .. }) = self.posting.get() else { return Ok(()) };
        domain.start(self.platform.cpus(), table).map_err(|error| error.to_string())
    }

    /// The flow of their lines.
    pub(in crate::cases) fn message_flow(&self) -> Flow {
        Flow::Edge
    }

    /// Interrupts of vectors that were no line's.
    pub(in crate::cases) fn strays(&self) -> u64 {
        (0..self.platform.cpus()).map(|cpu| self.core.stray_vectors(CpuId(cpu))).sum()
    }

    /// Device vectors that wait at this CPU, whose interrupts are off.
    pub(in crate::cases) fn requested_here(&self) -> Vec<u32> {
        let cpu = Bare.cpu();
        let posted = |vector| self.posted.descriptor(cpu).is_some_and(|descriptor| descriptor.is_pending(vector));
        let waits = |vector| self.lapic.is_requested(vector) || posted(vector);
        (0x20..=0xea).filter(|&vector| waits(Vector(vector))).map(u32::from).collect()
    }

    /// What a CPU that goes does behind `IrqCore::cpu_offline`.
    ///
    /// # Errors
    /// None.
    pub(in crate::cases) fn leave(&self, _cpu: CpuId) -> Result<(), String> {
        self.posted.cpu_offline();
        Ok(())
    }

    /// What a CPU that comes back does before `IrqCore::cpu_online`: nothing, here.
    ///
    /// # Errors
    /// None.
    pub(in crate::cases) fn come_back(&self) -> Result<(), String> {
        Ok(())
    }

    /// Begins or ends a stretch of QEMU's trace; on this machine none is cut out.
    pub(in crate::cases) fn mark(&self) {}

    /// Prints what the device has posted or sent, and what the CPUs saw of it. Nothing may have gone past the descriptors.
    ///
    /// # Errors
    /// The device has recorded a fault, or sent what it should have posted.
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
        let cpus = (0..self.platform.cpus()).map(|cpu| self.posted.statistics(CpuId(cpu)));
        let sum = |value: fn(&Statistics) -> u64| cpus.clone().map(|cpu| value(&cpu)).sum::<u64>();
        let taken = sum(|cpu| cpu.notifications);
        count("posts", counts.posts);
        count("notifications_sent", counts.notifications);
        count("notifications_taken", taken);
        count("empty_notifications", sum(|cpu| cpu.empty_notifications));
        count("vectors_dispatched", sum(|cpu| cpu.vectors));
        expect("posting faults", counts.faults, 0)?;
        expect("interrupts past the descriptors", counts.direct, 0)?;
        // Those that QEMU was told of together are one to the CPU.
        if taken <= counts.notifications { Ok(()) } else { Err(format!("{taken} notifications taken")) }
    }

    /// The remapping unit has blocked nothing, and what posts has posted.
    ///
    /// # Errors
    /// The last of what it has blocked, or what was not posted.
    pub(in crate::cases) fn check(&self) -> Result<(), String> {
        self.check_posting()?;
        let Some(unit) = &self.unit else { return Ok(()) };
        let mut faults = 0;
        let mut last = None;
        unit.take_faults(|fault| {
            faults += 1;
            last = Some(fault);
        });
        count("remapping_faults", faults);
        last.map_or(Ok(()), |fault| Err(format!("the remapping unit blocked {faults} messages; the last: {fault:?}")))
    }
}

fn remapping_unit(base: u64) -> Result<Arc<RemapUnit<Bare>>, String> {
    let config = RemapConfig { table_entries: TABLE_ENTRIES, apic_mode: ApicMode::XApic };
    let unit = RemapUnit::new(Bare, Mmio::new(base as usize, UNIT_BYTES), config);
    unit.map(Arc::new).map_err(|error| format!("the remapping unit does not come up: {error}"))
}
