//! The console: a PL011 (Arm DDI 0183), transmitting by polling.

use super::window;
use hal::Regs;
use metal::Registers;

/// QEMU's virt machine, first UART.
pub(crate) const UART: Registers = window(0x0900_0000, 0x1000);
/// Data register.
const DR: u32 = 0x000;
/// Flag register; bit 5: the transmit FIFO is full.
const FR: u32 = 0x018;

/// Writes a byte to the console.
pub(crate) fn write_byte(byte: u8) {
    while UART.read32(FR) & 1 << 5 != 0 {
        core::hint::spin_loop();
    }
    UART.write32(DR, byte.into());
}
