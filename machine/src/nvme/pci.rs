//! The drive's PCI configuration space: a type 0 header and the MSI-X capability.
//!
//! Base addresses are not programmable here: regions are told apart by number. Memory space and bus master are always
//! on, as firmware leaves a boot drive.

use super::msix::{Msix, PBA_OFFSET};
use spec::msi::{MSIX_CAPABILITY_ID, MsixControl, MsixLocation, msix_capability};

/// Where the MSI-X capability stands.
pub const MSIX_CAPABILITY_OFFSET: u32 = 0x40;
/// Vendor id, with [`DEVICE`] that of QEMU's NVMe controller: a pair that operating systems know as emulated.
pub(super) const VENDOR: u16 = 0x1b36;
/// Device id.
const DEVICE: u16 = 0x0010;
/// Mass storage, non-volatile memory, NVM Express I/O controller (PCIe 3.2, CC).
const CLASS: u32 = 0x01_08_02;
/// Memory space and bus master enabled; capabilities list present.
const COMMAND_STATUS: u32 = 0x0010_0006;
/// A 64-bit memory BAR.
const BAR_64: u32 = 0x4;
/// The BAR of table and pending bits.
const MSIX_BAR: u8 = 4;

/// Reads 32 bits; zero where nothing is.
pub(super) fn read(msix: &Msix, offset: u32) -> u32 {
    let location = |at: u32| MsixLocation::new().with_bar(MSIX_BAR).with_offset_qwords(at / 8).into_bits();
    match offset {
        0x00 => u32::from(DEVICE) << 16 | u32::from(VENDOR),
        0x04 => COMMAND_STATUS,
        0x08 => CLASS << 8,
        0x10 | 0x20 => BAR_64,
        0x2c => u32::from(DEVICE) << 16 | u32::from(VENDOR),
        0x34 => MSIX_CAPABILITY_OFFSET,
        MSIX_CAPABILITY_OFFSET => u32::from(msix.control.into_bits()) << 16 | u32::from(MSIX_CAPABILITY_ID),
        _ if offset == MSIX_CAPABILITY_OFFSET + msix_capability::TABLE => location(0),
        _ if offset == MSIX_CAPABILITY_OFFSET + msix_capability::PENDING => location(PBA_OFFSET),
        _ => 0,
    }
}

/// Writes 32 bits: only enable and function mask can change.
pub(super) fn write(msix: &mut Msix, offset: u32, value: u32) {
    if offset == MSIX_CAPABILITY_OFFSET {
        let control = MsixControl::from_bits((value >> 16) as u16);
        msix.control.set_enable(control.enable());
        msix.control.set_function_mask(control.function_mask());
    }
}
