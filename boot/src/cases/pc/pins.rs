//! Devices on pins of the I/O APICs, which ACPI describes.

use super::Fixture;
use crate::arch;
use crate::cases::Options;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use drivers::ioapic::PinWiring;
use drivers::virtio::RegisterWrites;
use drivers::virtio::discovery::{Line, MmioDevice, Trigger, from_acpi};
use hal::{CpuId, CpuSet};
use irq::{Action, AllocRequest, Flow, Irq, IrqDomain, RequestFlags, RequesterId};
use spec::virtio::DeviceId;

/// Pins of an I/O APIC (82093AA).
const PINS: u32 = 24;
/// Length of its registers up to the one for EOIs, a multiple of 8.
const IO_APIC_BYTES: u32 = 0x48;
/// Pins without a remapping unit have no requester.
const NO_REQUESTER: RequesterId = RequesterId(0);

/// The pins of all I/O APICs, by global system interrupt.
struct Pins<'a> {
    system: &'a Fixture,
    domains: Vec<(Range<u32>, Arc<dyn IrqDomain>)>,
}

fn is_level(line: &Line) -> bool {
    line.trigger != Some(Trigger::Edge)
}

impl<'a> Pins<'a> {
    /// Sets the I/O APICs up for these devices. Their interrupts are active high.
    fn new(system: &'a Fixture, described: &[MmioDevice]) -> Result<Self, String> {
        let level =
            |gsi| described.iter().flat_map(|device| &device.lines).any(|line| line.number == gsi && is_level(line));
        let domain = |io_apic: &arch::IoApic| {
            let pins = io_apic.first..io_apic.first + PINS;
            let wiring: Vec<_> = pins.clone().map(|gsi| PinWiring { level: level(gsi), active_low: false }).collect();
            let regs = arch::window(io_apic.base, IO_APIC_BYTES);
            let domain = system.pc.io_apic(0, regs, &wiring).map_err(|error| error.to_string())?;
            Ok((pins, Arc::new(domain) as Arc<dyn IrqDomain>))
        };
        let domains = system.platform.io_apics.iter().map(domain).collect::<Result<_, String>>()?;
        Ok(Self { system, domains })
    }

    /// Makes a device's interrupt a line with this handler.
    fn connect(&self, wire: &Line, cpu: CpuId, handler: Arc<dyn Action>) -> Result<Irq, String> {
        let found = self.domains.iter().find(|(pins, _)| pins.contains(&wire.number));
        let (pins, domain) = found.ok_or_else(|| format!("no I/O APIC has interrupt {}", wire.number))?;
        let request = AllocRequest::fixed(NO_REQUESTER, wire.number - pins.start, CpuSet::of(cpu));
        let flow = if is_level(wire) { Flow::FastEoi } else { Flow::Edge };
        let core = &self.system.core;
        let line = core.alloc_line(domain.clone(), &request, flow).map_err(|error| error.to_string())?;
        let requested = core.request(line, format!("gsi{}", wire.number), RequestFlags::default(), handler);
        requested.map_err(|error| error.to_string())?;
        Ok(line)
    }
}

/// The block device on the MMIO transport that the DSDT describes, with one interrupt or several.
///
/// # Errors
/// The first failure.
pub(super) fn virtio_block(system: &Fixture, options: &Options) -> Result<(), String> {
    let described = from_acpi(system.platform.dsdt).map_err(|error| error.to_string())?;
    let pins = Pins::new(system, &described)?;
    // QEMU emulates the registers.
    let found = crate::cases::virtio::find(&described, DeviceId::BLOCK, RegisterWrites::AtOnce)?;
    let connect = |wire: &Line, cpu, handler| pins.connect(wire, cpu, handler);
    crate::cases::virtio::block(system, found.first().ok_or("no virtio block device")?, &connect, options)
}
