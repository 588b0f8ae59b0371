//! What both versions' distributors have in common.

use super::GicError;
use super::frame::Frame;
use hal::{Hal, Regs};
use spec::gic::{IntId, Priority, gicd};

/// How long a write may take to become effective, or a redistributor to wake: hardware takes microseconds.
pub(super) const TIMEOUT_NS: u64 = 10_000_000;
const POLL_NS: u64 = 100;

/// Every byte of a word of priorities.
const ORDINARY: u32 = Priority::DEFAULT.0 as u32 * 0x0101_0101;

/// Looks until `done`, at once and then every now and again.
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

/// Disables and deactivates what firmware or a former kernel left, and gives everything the ordinary priority: 32
/// interrupts of `frame`, the first of which is `first`.
pub(super) fn reset<R: Regs>(frame: &Frame<'_, R>, first: IntId) {
    let bank = first.0 / 32;
    frame.strobe(gicd::ICENABLER.get(bank), u32::MAX);
    frame.strobe(gicd::ICACTIVER.get(bank), u32::MAX);
    for word in 0..8 {
        let register = first.0 / 4 + word;
        // 1020 to 1023 are no interrupts, and have no priority.
        if register < gicd::IPRIORITYR.count() {
            frame.write(gicd::IPRIORITYR.get(register), ORDINARY);
        }
    }
}
