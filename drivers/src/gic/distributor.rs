//! Distributor code that both versions share.

use super::GicError;
use super::frame::Frame;
use hal::{Hal, Regs};
use spec::gic::{IntId, Priority, gicd};

/// Time limit for a write to take effect, or for a redistributor to wake. Hardware takes microseconds.
pub(super) const TIMEOUT_NS: u64 = 10_000_000;
const POLL_NS: u64 = 100;

/// Every byte of a word of priorities.
const ORDINARY: u32 = Priority::DEFAULT.0 as u32 * 0x0101_0101;

/// Polls until `done` is true: at once, then at intervals.
pub(super) fn wait<H: Hal>(hal: H, what: &'static str, done: impl Fn() -> bool) -> Result<(), GicError> {
    let mut deadline_ns = None;
    while !done() {
        let now_ns = hal.now_ns();
        if now_ns >= *deadline_ns.get_or_insert(now_ns.saturating_add(TIMEOUT_NS)) {
            return Err(GicError::Timeout(what, TIMEOUT_NS));
        }
        hal.delay_ns(POLL_NS);
    }
    Ok(())
}

/// Disables and deactivates all interrupts that firmware or an earlier kernel left enabled or active, and gives every
/// one the ordinary priority. Handles the 32 interrupts of `frame` from `first` on.
pub(super) fn reset<R: Regs>(frame: &Frame<'_, R>, first: IntId) {
    let bank = first.0 / 32;
    frame.strobe(gicd::ICENABLER.get(bank), u32::MAX);
    frame.strobe(gicd::ICACTIVER.get(bank), u32::MAX);
    for word in 0..8 {
        let register = first.0 / 4 + word;
        // INTIDs 1020 to 1023 are special: they are not interrupts and have no priority.
        if register < gicd::IPRIORITYR.count() {
            frame.write(gicd::IPRIORITYR.get(register), ORDINARY);
        }
    }
}
