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
use crate::model::{Model, ModelId};
use crate::pci::{Bar, Function, Identity, MSIX_BAR_BYTES, MsixPlace, PBA_OFFSET, Place, Shell, Widths};
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

fn identity() -> Identity {
    Identity {
        vendor: wired::PCI_VENDOR,
        device: wired::PCI_DEVICE,
        class: wired::PCI_CLASS,
        bars: vec![
            Bar { reads: Widths::Any, writes: Widths::Any, ..Bar::new(0, wired::BAR_BYTES) },
            Bar::new(4, MSIX_BAR_BYTES),
        ],
        msix: MsixPlace { region: REGION_MSIX, table: 0, pending: PBA_OFFSET },
        capabilities: Vec::new(),
    }
}

/// The description of one such function.
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
    device: VirtioMmio<D>,
    pci: Shell,
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
        let place = Place { name: config.name, requester: config.requester, port: config.upstream };
        Ok(Self { device, pci: Shell::new(place, &identity(), config.vectors) })
    }

    /// A wire goes up: an edge. While MSI-X is off or the vector masked, it stays pending.
    fn rise(&mut self, world: &mut World<'_>, vector: u16) {
        if self.pci.is_enabled() {
            self.pci.signal(world, vector);
        } else {
            self.pci.pend(vector);
        }
    }
}

impl<D: Device> Function for VirtioWired<D> {
    fn shell(&self) -> &Shell {
        &self.pci
    }

    fn shell_mut(&mut self) -> &mut Shell {
        &mut self.pci
    }

    fn on_event(&mut self, world: &mut World<'_>, code: u32, arg: u64) {
        match code {
            WIRE if arg & 1 == 1 => self.rise(world, (arg >> 1) as u16),
            WIRE => {}
            _ => self.device.event(world, code, arg),
        }
    }

    fn read_bar(&mut self, world: &mut World<'_>, region: u8, offset: u32, width_bytes: u8) -> u64 {
        if region == REGION_REGISTERS { self.device.read(world, 0, offset, width_bytes) } else { 0 }
    }

    fn write_bar(&mut self, world: &mut World<'_>, region: u8, offset: u32, width_bytes: u8, value: u64) {
        if region == REGION_REGISTERS {
            self.device.write(world, 0, offset, width_bytes, value);
        }
    }

    /// `msis`: messages sent; then those of the transport and the device.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        [("msis", self.pci.message_counts().sent)].into_iter().chain(self.device.counters()).collect()
    }
}
