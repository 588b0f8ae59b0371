//! The drive's identity in PCI configuration space.

use super::{Config, REGION_MSIX};
use crate::pci::{Bar, Identity, MSIX_BAR_BYTES, MsixPlace, PBA_OFFSET};
use spec::nvme::registers::DOORBELLS;

/// Vendor id, with the device id that of QEMU's NVMe controller: a pair that operating systems know as emulated.
pub(super) const VENDOR: u16 = 0x1b36;

impl Config {
    /// Bytes of BAR 0: registers and doorbells; 16 KiB at least.
    pub fn bar_bytes(&self) -> u32 {
        let doorbells = (u32::from(self.io_queues_max) + 1) * 2 * (4 << self.doorbell_stride);
        (DOORBELLS + doorbells).next_power_of_two().max(0x4000)
    }
}

/// Mass storage, non-volatile memory, NVM Express I/O controller (PCIe 3.2, CC); table and pending bits in BAR 4.
pub(super) fn identity(config: &Config) -> Identity {
    Identity {
        vendor: VENDOR,
        device: 0x0010,
        class: 0x01_08_02,
        bars: vec![Bar::new(0, config.bar_bytes()), Bar::new(4, MSIX_BAR_BYTES)],
        msix: MsixPlace { region: REGION_MSIX, table: 0, pending: PBA_OFFSET },
        capabilities: Vec::new(),
    }
}
