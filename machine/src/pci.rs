//! A function's PCI configuration space: a type 0 header and the MSI-X capability.
//!
//! Base addresses are not programmable here: regions are told apart by number. Memory space and bus master are always
//! on, as firmware leaves a boot device.

use crate::msix::Msix;
use spec::msi::{MSIX_CAPABILITY_ID, MsixControl, MsixLocation, msix_capability};

/// Where the MSI-X capability stands.
pub const MSIX_CAPABILITY_OFFSET: u32 = 0x40;
/// Memory space and bus master enabled; capabilities list present.
const COMMAND_STATUS: u32 = 0x0010_0006;
/// A 64-bit memory BAR.
pub(crate) const BAR_64: u32 = 0x4;

/// What one function says of itself.
pub(crate) struct Function {
    pub(crate) vendor: u16,
    pub(crate) device: u16,
    pub(crate) class: u32,
    pub(crate) bars: [u32; 6],
    /// The BAR of table and pending bits.
    pub(crate) msix_bar: u8,
    pub(crate) table_offset: u32,
    pub(crate) pending_offset: u32,
}

impl Function {
    /// Reads 32 bits; zero where nothing is.
    pub(crate) fn read(&self, msix: &Msix, offset: u32) -> u32 {
        let location = |at: u32| MsixLocation::new().with_bar(self.msix_bar).with_offset_qwords(at / 8).into_bits();
        match offset {
            0x00 | 0x2c => u32::from(self.device) << 16 | u32::from(self.vendor),
            0x04 => COMMAND_STATUS,
            0x08 => self.class << 8,
            0x10..0x28 if offset.is_multiple_of(4) => self.bars[(offset as usize - 0x10) / 4],
            0x34 => MSIX_CAPABILITY_OFFSET,
            MSIX_CAPABILITY_OFFSET => u32::from(msix.control.into_bits()) << 16 | u32::from(MSIX_CAPABILITY_ID),
            _ if offset == MSIX_CAPABILITY_OFFSET + msix_capability::TABLE => location(self.table_offset),
            _ if offset == MSIX_CAPABILITY_OFFSET + msix_capability::PENDING => location(self.pending_offset),
            _ => 0,
        }
    }
}

/// Writes 32 bits: only enable and function mask can change.
pub(crate) fn write(msix: &mut Msix, offset: u32, value: u32) {
    if offset == MSIX_CAPABILITY_OFFSET {
        let control = MsixControl::from_bits((value >> 16) as u16);
        msix.control.set_enable(control.enable());
        msix.control.set_function_mask(control.function_mask());
    }
}
