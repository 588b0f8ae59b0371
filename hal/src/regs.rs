/// A window of device registers: an MMIO region, or a CPU's own model-specific registers (offset = MSR number).
///
/// Widths are the access widths on the bus. Offsets are bytes from the window's start. An access outside the window
/// panics: it is a bug of the driver, not of the device.
///
/// A write is ordered after every earlier store of its CPU to memory, so that the device sees those stores when the
/// write reaches it. On a weakly ordered CPU the implementation issues the barrier.
pub trait Regs: Send + Sync {
    /// Reads 32 bits. A point: a read waits for every posted write before it.
    fn read32(&self, offset: u32) -> u32;
    /// Writes 32 bits, posted. Owed.
    fn write32(&self, offset: u32, value: u32);
    /// Reads 64 bits. A point.
    fn read64(&self, offset: u32) -> u64;
    /// Writes 64 bits, posted. Owed.
    fn write64(&self, offset: u32, value: u64);

    /// Reads 8 bits. A point. Windows of controllers without narrow registers need not implement the narrow accesses.
    fn read8(&self, offset: u32) -> u8 {
        panic!("8-bit read of {offset:#x} in a window that has no narrow registers")
    }
    /// Writes 8 bits, posted. Owed.
    fn write8(&self, offset: u32, value: u8) {
        panic!("8-bit write of {value:#x} to {offset:#x} in a window that has no narrow registers")
    }
    /// Reads 16 bits. A point.
    fn read16(&self, offset: u32) -> u16 {
        panic!("16-bit read of {offset:#x} in a window that has no narrow registers")
    }
    /// Writes 16 bits, posted. Owed.
    fn write16(&self, offset: u32, value: u16) {
        panic!("16-bit write of {value:#x} to {offset:#x} in a window that has no narrow registers")
    }
}
