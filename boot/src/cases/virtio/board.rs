//! A device that the command line describes, on a board whose wires are MSI-X vectors. Its registers are BAR 0 of a
//! PCI function, moved to the address on the command line. Vector v stands for the v-th interrupt of the device.

use super::{find, text};
use crate::arch::Registers;
use crate::cases::pci::Bus;
use crate::cases::{Fixture, Options};
use crate::kernel::Bare;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use drivers::message::MessageDomain;
use drivers::pci::{MsixCapability, MsixTable};
use drivers::virtio::RegisterWrites;
use drivers::virtio::discovery::{Line, MmioDevice, from_command_line};
use hal::{CpuId, CpuSet};
use irq::{Action, AllocRequest, Irq, RequestFlags, RequesterId};
use spec::virtio::{DeviceId, wired};

/// The board's wires.
struct Board<'a> {
    system: &'a Fixture,
    requester: RequesterId,
    messages: Arc<MessageDomain<Bare, MsixTable<Registers>>>,
    /// The interrupt that vector 0 stands for.
    first: u32,
}

impl<'a> Board<'a> {
    /// Sets the board up for the device that the command line describes.
    fn new(system: &'a Fixture, device: &MmioDevice) -> Result<Self, String> {
        let bridge = system.platform.pcie.as_ref().ok_or("firmware tells of no PCIe configuration space")?;
        let mut bus = Bus::new(bridge);
        let function = bus.find(wired::PCI_CLASS).ok_or("no function with virtio registers on bus 0")?;
        bus.region_at(&function, 0, device.base)?;
        let capability = MsixCapability::find(&function.config).map_err(text)?;
        let table = MsixTable::enable(function.config, bus.region(&function, capability.table_bar)?, capability);
        let domain = system.messages(&mut bus, &function)?;
        let messages = Arc::new(MessageDomain::new(Bare, table, domain).map_err(text)?);
        let first = device.lines.first().ok_or("a device without interrupts")?.number;
        Ok(Self { system, requester: function.requester, messages, first })
    }

    /// Makes a wire a line with this handler.
    fn connect(&self, wire: &Line, cpu: CpuId, handler: Arc<dyn Action>) -> Result<Irq, String> {
        let request = AllocRequest::fixed(
            self.requester,
            wire.number.checked_sub(self.first).ok_or("the board has no such wire")?,
            CpuSet::of(cpu),
        );
        let core = &self.system.core;
        let line = core.alloc_line(self.messages.clone(), &request, self.system.message_flow()).map_err(text)?;
        core.request(line, format!("wire{}", wire.number), RequestFlags::default(), handler).map_err(text)?;
        Ok(line)
    }
}

/// The block device that the command line describes (`virtio_mmio.device=…`), with an interrupt for each of its queues.
///
/// # Errors
/// The error.
pub(in crate::cases) fn described_block(system: &Fixture, options: &Options) -> Result<(), String> {
    let described = from_command_line(&system.platform.command_line).map_err(text)?;
    let device = described.first().ok_or("the command line describes no virtio device")?;
    let board = Board::new(system, device)?;
    // Another program serves the registers, and QEMU may pass writes on without waiting for it.
    let found = find(&described, DeviceId::BLOCK, RegisterWrites::Posted)?;
    let connect = |wire: &Line, cpu, handler| board.connect(wire, cpu, handler);
    super::block(system, found.first().ok_or("no virtio block device")?, &connect, options)
}
