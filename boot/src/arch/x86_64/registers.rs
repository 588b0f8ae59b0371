//! Register windows, all memory-mapped. The local APIC's too: QEMU's TCG has no x2APIC mode before version 9.

use crate::kernel::mmio::Mmio;
use hal::Regs;

/// A window of registers.
pub(crate) use crate::kernel::mmio::Mmio as Registers;

/// The local APIC of the CPU that looks (SDM 11.4.1).
pub(crate) const LAPIC: Registers = Mmio::new(0xfee0_0000, 0x1000);

impl Regs for Mmio {
    fn read32(&self, offset: u32) -> u32 {
        self.read(offset)
    }
    fn write32(&self, offset: u32, value: u32) {
        self.write(offset, value);
    }
    fn read64(&self, offset: u32) -> u64 {
        self.read(offset)
    }
    fn write64(&self, offset: u32, value: u64) {
        self.write(offset, value);
    }
    fn read8(&self, offset: u32) -> u8 {
        self.read(offset)
    }
    fn write8(&self, offset: u32, value: u8) {
        self.write(offset, value);
    }
    fn read16(&self, offset: u32) -> u16 {
        self.read(offset)
    }
    fn write16(&self, offset: u32, value: u16) {
        self.write(offset, value);
    }
}
