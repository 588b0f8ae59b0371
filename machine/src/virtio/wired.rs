//! A device on the MMIO transport behind a PCI function: the registers in its BAR 0, and an MSI-X vector for each of the
//! device's wires. The transport knows nothing of it: its wires end here.
//!
//! | region | |
//! |---|---|
//! | [`REGION_REGISTERS`] | BAR 0: the registers of [`VirtioMmio`] |
//! | [`REGION_MSIX`] | BAR 4: the MSI-X table at 0, the pending bits at [`PBA_OFFSET`] |
//! | [`REGION_CONFIG`] | PCI configuration space |

use super::device::Device;
use super::mmio::{MmioConfig, MmioConfigError, VirtioMmio};
use super::signal::{Exits, Irqfd, Line, Trigger};
use crate::model::{Model, ModelId, Upstream};
use crate::msix::{Msix, PBA_OFFSET};
use crate::pci::{self, BAR_64, Function};
use crate::world::World;
use spec::virtio::wired;

/// BAR 0: the device's registers.
pub const REGION_REGISTERS: u8 = 0;
/// BAR 4: MSI-X.
pub const REGION_MSIX: u8 = 1;
/// PCI configuration space.
pub const REGION_CONFIG: u8 = 2;

/// Event of the function: a wire has changed. Argument: the vector, and in bit 0 whether it is asserted.
const WIRE: u32 = 1 << 21;

const FUNCTION: Function = Function {
    vendor: wired::PCI_VENDOR,
    device: wired::PCI_DEVICE,
    class: wired::PCI_CLASS,
    bars: [BAR_64, 0, 0, 0, BAR_64, 0],
    msix_bar: 4,
    table_offset: 0,
    pending_offset: PBA_OFFSET,
};

/// What distinguishes one such function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WiredConfig {
    /// Shown in traces and faults.
    pub name: String,
    /// The number that this model has on its machine.
    pub me: ModelId,
    /// The bus or IOMMU that takes its messages.
    pub upstream: ModelId,
    /// PCI requester id.
    pub requester: u16,
    /// Wires, and MSI-X vectors: 1 to 2048. They are edges; more than one makes the device offer VIRTIO_F_MULTI_IRQ.
    pub vectors: u16,
}

/// The function.
pub struct VirtioWired<D> {
    config: WiredConfig,
    device: VirtioMmio<D>,
    msix: Msix,
    sent: u64,
}

impl<D: Device> VirtioWired<D> {
    /// After power-on.
    ///
    /// # Errors
    /// [`MmioConfigError::Lines`].
    pub fn new(config: WiredConfig, device: D) -> Result<Self, MmioConfigError> {
        let line = |vector: u16| {
            let released = u64::from(vector) << 1;
            Line { controller: config.me, code: WIRE, asserted: released | 1, released, trigger: Trigger::Edge }
        };
        let transport = MmioConfig {
            name: config.name.clone(),
            lines: (0..config.vectors).map(line).collect(),
            multi_irq: config.vectors > 1,
            exits: Exits::default(),
            irqfd: Irqfd::default(),
        };
        let device = VirtioMmio::new(transport, device)?;
        Ok(Self { device, msix: Msix::new(config.vectors), config, sent: 0 })
    }

    /// A wire goes up: an edge. While MSI-X is off or the vector masked, it stays pending.
    fn rise(&mut self, world: &mut World<'_>, vector: u16) {
        if !self.msix.is_enabled() || self.msix.is_masked(vector) {
            return self.msix.set_pending(vector);
        }
        self.sent += 1;
        let (address, data) = self.msix.message(vector);
        world.upstream(self.config.upstream, Upstream::Message { requester: self.config.requester, address, data });
    }

    fn send_pending(&mut self, world: &mut World<'_>) {
        while let Some(vector) = self.msix.take_unmasked_pending() {
            self.rise(world, vector);
        }
    }
}

impl<D: Device> Model for VirtioWired<D> {
    fn name(&self) -> &str {
        &self.config.name
    }

    fn event(&mut self, world: &mut World<'_>, code: u32, arg: u64) {
        match code {
            WIRE if arg & 1 == 1 => self.rise(world, (arg >> 1) as u16),
            WIRE => {}
            _ => self.device.event(world, code, arg),
        }
    }

    fn read(&mut self, world: &mut World<'_>, region: u8, offset: u32, width_bytes: u8) -> u64 {
        match region {
            REGION_REGISTERS => self.device.read(world, 0, offset, width_bytes),
            REGION_MSIX => self.msix.read(offset).into(),
            _ => FUNCTION.read(&self.msix, offset).into(),
        }
    }

    fn write(&mut self, world: &mut World<'_>, region: u8, offset: u32, width_bytes: u8, value: u64) {
        match region {
            REGION_REGISTERS => return self.device.write(world, 0, offset, width_bytes, value),
            REGION_MSIX => self.msix.write(offset, value as u32),
            _ => pci::write(&mut self.msix, offset, value as u32),
        }
        self.send_pending(world);
    }

    /// `msis`: messages sent; then those of the transport and the device.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        [("msis", self.sent)].into_iter().chain(self.device.counters()).collect()
    }

    fn as_any(&mut self) -> &mut dyn core::any::Any {
        self
    }
}
