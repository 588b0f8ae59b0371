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
use irq::{CoreConfig, IrqCore, IrqDomain, SystemHandler, Vector};

/// Makes a CPU look at its run queue.
const RESCHEDULE: Vector = Vector(0xfd);
const SPURIOUS: Vector = Vector(0xff);
/// The registers of a remapping unit, with those that lie where its capabilities say.
const UNIT_BYTES: u32 = 0x1000;
/// Entries of the remapping table.
const TABLE_ENTRIES: u32 = 256;

/// Everything.
pub(super) struct System {
    pub(super) core: Arc<IrqCore<Bare>>,
    pub(super) lapic: Arc<Lapic<Bare>>,
    /// Where the machine has one.
    pub(super) unit: Option<Arc<RemapUnit<Bare>>>,
    /// The domain of PCI messages.
    pub(super) pci: Arc<dyn IrqDomain>,
    pub(super) platform: &'static Platform,
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

    /// Interrupts of vectors that were no line's.
    pub(super) fn strays(&self) -> u64 {
        (0..self.platform.cpus()).map(|cpu| self.core.stray_vectors(hal::CpuId(cpu))).sum()
    }

    /// Device vectors that wait at this CPU, whose interrupts are off.
    pub(super) fn requested_here(&self) -> Vec<u8> {
        (0x20..=0xea).filter(|&vector| self.lapic.is_requested(Vector(vector))).collect()
    }
}

fn remapping_unit(base: u64) -> Result<Arc<RemapUnit<Bare>>, String> {
    let config = RemapConfig { table_entries: TABLE_ENTRIES, apic_mode: ApicMode::XApic };
    let unit = RemapUnit::new(Bare, Mmio::new(base as usize, UNIT_BYTES), config);
    unit.map(Arc::new).map_err(|error| format!("the remapping unit does not come up: {error}"))
}
