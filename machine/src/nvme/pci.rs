//! The drive's identity in PCI configuration space.

use crate::msix::PBA_OFFSET;
use crate::pci::{BAR_64, Function};

/// Vendor id, with the device id that of QEMU's NVMe controller: a pair that operating systems know as emulated.
pub(super) const VENDOR: u16 = 0x1b36;

/// Mass storage, non-volatile memory, NVM Express I/O controller (PCIe 3.2, CC); table and pending bits in BAR 4.
pub(super) const FUNCTION: Function = Function {
    vendor: VENDOR,
    device: 0x0010,
    class: 0x01_08_02,
    bars: [BAR_64, 0, 0, 0, BAR_64, 0],
    msix_bar: 4,
    table_offset: 0,
    pending_offset: PBA_OFFSET,
};
