//! Lines of text to the machine's first serial port.

use core::fmt::{self, Write};
use spin::Mutex;

struct Console;

static CONSOLE: Mutex<Console> = Mutex::new(Console);

impl Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.bytes().for_each(crate::arch::write_byte);
        Ok(())
    }
}

/// Writes formatted text; [`println!`] calls it.
pub(crate) fn print(arguments: fmt::Arguments<'_>) {
    let were_on = metal::interrupts_off();
    // The console cannot fail.
    let _ = CONSOLE.lock().write_fmt(arguments);
    if were_on {
        metal::interrupts_on();
    }
}

/// A panic prints even while another CPU holds the console.
#[allow(unsafe_code)]
pub(crate) fn unlock_for_panic() {
    // SAFETY: the console has no state to corrupt; at worst lines mix.
    unsafe { CONSOLE.force_unlock() };
}

/// A line to the console.
#[macro_export]
macro_rules! println {
    ($($argument:tt)*) => { $crate::kernel::console::print(format_args!("{}\n", format_args!($($argument)*))) };
}
