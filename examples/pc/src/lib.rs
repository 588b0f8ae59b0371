//! A whole PC in a foreign kernel: all the code that the kernel has to write.
//!
//! The kernel implements [`hal::Hal`], reads firmware's tables into a [`Firmware`], and calls [`bring_up`] on its boot
//! CPU. `systems` does the rest in the order that hardware demands. Messages of devices are posted where the remapping
//! units can post; `Pc::policy` tells where they are not posted, and why.
#![no_std]
extern crate alloc;

use alloc::sync::Arc;
use alloc::vec::Vec;
use drivers::apic::{ApicId, ApicMode};
use drivers::message::MessageSource;
use hal::{CpuSet, DmaExchange128, Hal};
use irq::{Action, AllocRequest, Flow, RequestFlags, RequesterId};
use systems::Handler;
use systems::pc::{Apics, Pc, PcBuilder, PcCpus, PcError};

/// Firmware's description of interrupts: ACPI's MADT and DMAR.
pub struct Firmware<R> {
    /// The model-specific registers of the local APICs, in x2APIC mode.
    pub apic: R,
    /// The id of each CPU's local APIC.
    pub apic_ids: Vec<u32>,
    /// Frequency of the local APICs' timers, in ticks per second.
    pub timer_hz: u64,
    /// The remapping units.
    pub units: Vec<R>,
}

/// Brings interrupts up. The kernel provides `start`: it connects the interrupt gates to `PcCpus::interrupt`, and has
/// each CPU call `PcCpus::start_cpu`.
///
/// # Errors
/// An error in the tables, or a part that does not come up.
pub fn bring_up<H: Hal>(
    hal: H,
    firmware: Firmware<H::Regs>,
    start: impl FnOnce(&Arc<PcCpus<H>>) -> Result<(), PcError>,
) -> Result<Pc<H>, PcError>
where
    H::Dma: DmaExchange128,
{
    let Firmware { apic, apic_ids, timer_hz, units } = firmware;
    let ids = apic_ids.into_iter().map(ApicId).collect();
    let apics = Apics { regs: apic, mode: ApicMode::X2Apic, ids, timer_hz };
    units.into_iter().fold(PcBuilder::new(hal, apics, 64), PcBuilder::unit).build(start)
}

/// Connects a driver to message 0 of its device, behind the first remapping unit. Dropping the guard removes the
/// handler and frees the line.
///
/// # Errors
/// The core refuses the request.
pub fn connect<H: Hal>(
    pc: &Pc<H>,
    device: RequesterId,
    messages: impl MessageSource + 'static,
    cpus: CpuSet,
    driver: Arc<dyn Action>,
) -> Result<Handler<H>, PcError>
where
    H::Dma: DmaExchange128,
{
    let domain = pc.message_domain(0, messages)?;
    let line = pc.line(Arc::new(domain), &AllocRequest::fixed(device, 0, cpus), Flow::Edge)?;
    Ok(line.request("driver", RequestFlags::default(), driver)?)
}
