//! Core and drivers, brought up on this machine's local APICs and its remapping unit.

use crate::arch::{LAPIC, Platform, TIMER_VECTOR};
use crate::kernel::cpu::{self, Exception};
use crate::kernel::mmio::Mmio;
use crate::kernel::{self, Bare, threads};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use drivers::apic::{ApicId, ApicMode, Lapic, VectorDomain};
use drivers::vtd::{RemapConfig, RemapDomain, RemapUnit};
use hal::CpuId;
use irq::{CoreConfig, Flow, IrqCore, IrqDomain, SystemHandler, Vector};

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
    /// The domain of PCI messages.
    pci: Arc<dyn IrqDomain>,
    pub(in crate::cases) platform: &'static Platform,
}

impl System {
    /// Brings up everything, on all CPUs.
    ///
    /// # Errors
    /// What did not come up.
    pub(super) fn new(platform: &'static Platform) -> Result<Self, String> {
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
        let core = Arc::new(core);
        let (entry, kicks) = (core.clone(), lapic.clone());
        cpu::set_entry(
            move |Exception::Interrupt(vector)| entry.handle_vector(Vector(vector)),
            move |cpu| kicks.send(cpu, RESCHEDULE).unwrap_or_else(|why| panic!("no IPI to CPU {cpu}: {why}")),
        );
        lapic.enable(SPURIOUS);
        let others = lapic.clone();
        kernel::start_cpus(move || others.enable(SPURIOUS))?;
        Ok(Self { core, lapic, unit, pci, platform })
    }

    /// The domain of PCI messages.
    ///
    /// # Errors
    /// None: there always is one.
    pub(in crate::cases) fn messages(&self) -> Result<Arc<dyn IrqDomain>, String> {
        Ok(self.pci.clone())
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
        (0x20..=0xea).filter(|&vector| self.lapic.is_requested(Vector(vector))).map(u32::from).collect()
    }

    /// What a CPU that goes does behind `IrqCore::cpu_offline`: nothing, here.
    ///
    /// # Errors
    /// None.
    pub(in crate::cases) fn leave(&self, _cpu: CpuId) -> Result<(), String> {
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

    /// The remapping unit has blocked nothing.
    ///
    /// # Errors
    /// The last of what it has.
    pub(in crate::cases) fn check(&self) -> Result<(), String> {
        let Some(unit) = &self.unit else { return Ok(()) };
        let mut faults = 0;
        let mut last = None;
        unit.take_faults(|fault| {
            faults += 1;
            last = Some(fault);
        });
        crate::cases::count("remapping_faults", faults);
        last.map_or(Ok(()), |fault| Err(format!("the remapping unit blocked {faults} messages; the last: {fault:?}")))
    }
}

fn remapping_unit(base: u64) -> Result<Arc<RemapUnit<Bare>>, String> {
    let config = RemapConfig { table_entries: TABLE_ENTRIES, apic_mode: ApicMode::XApic };
    let unit = RemapUnit::new(Bare, Mmio::new(base as usize, UNIT_BYTES), config);
    unit.map(Arc::new).map_err(|error| format!("the remapping unit does not come up: {error}"))
}
