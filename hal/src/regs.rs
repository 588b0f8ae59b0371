/// A window of device registers: an MMIO region, or a CPU's own model-specific registers (offset = MSR number).
///
/// Widths are the access widths on the bus. Offsets are bytes from the window's start. An access outside the window
/// panics: it is a bug of the driver, not of the device.
///
/// A write is ordered after every earlier store of its CPU to memory, so that a device that it wakes sees them: on a
/// weakly ordered CPU the implementation issues the barrier.
pub trait Regs: Send + Sync {
    /// Reads 32 bits. A point: a read waits for every posted write before it.
    fn read32(&self, offset: u32) -> u32;
    /// Writes 32 bits, posted. Owed.
    fn write32(&self, offset: u32, value: u32);
    /// Reads 64 bits. A point.
    fn read64(&self, offset: u32) -> u64;
    /// Writes 64 bits, posted. Owed.
    fn write64(&self, offset: u32, value: u64);
}
