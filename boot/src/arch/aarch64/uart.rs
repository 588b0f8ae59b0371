//! The console: a PL011 (Arm DDI 0183), transmitting by polling.
#![allow(unsafe_code)]

/// QEMU's virt machine, first UART.
pub(crate) const UART_BASE: usize = 0x0900_0000;
/// Data register.
const DR: usize = 0x000;
/// Flag register; bit 5: the transmit FIFO is full.
const FR: usize = 0x018;

/// Writes a byte to the console.
pub(crate) fn write_byte(byte: u8) {
    // SAFETY: the UART's registers, mapped as device memory for as long as the image runs.
    unsafe {
        while ((UART_BASE + FR) as *const u32).read_volatile() & 1 << 5 != 0 {
            core::hint::spin_loop();
        }
        ((UART_BASE + DR) as *mut u32).write_volatile(byte.into());
    }
}
