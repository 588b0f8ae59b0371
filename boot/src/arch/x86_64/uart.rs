//! The console: a 16550 at COM1, transmitting by polling.

use super::{read_port, write_port};

/// COM1.
const BASE: u16 = 0x3f8;
/// Line status; bit 5: the transmitter takes a byte.
const LSR: u16 = BASE + 5;

/// Writes a byte to the console.
pub(crate) fn write_byte(byte: u8) {
    while read_port(LSR) & 1 << 5 == 0 {
        core::hint::spin_loop();
    }
    write_port(BASE, byte);
}
