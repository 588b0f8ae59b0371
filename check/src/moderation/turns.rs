//! A polled instance, with marks for the checker round each of its turns.

use irq::poll::Polled;
use std::sync::Arc;

/// Marks of this subject's own: an instance in the high half, a number in the low one.
///
/// A turn begins: its weight.
pub(crate) const BEGUN: u32 = 0x200;
/// It ended: completions.
pub(crate) const ENDED: u32 = 0x201;
/// The interrupt was armed again; the number says whether something had come before.
pub(crate) const REARMED: u32 = 0x202;
/// An interrupt is about to schedule it.
pub(crate) const WANTED: u32 = 0x203;
/// The interrupt has scheduled it.
pub(crate) const LISTED: u32 = 0x204;

/// Records a mark.
pub(super) fn mark(tag: u32, instance: u32, number: u32) {
    machine::mark(tag, u64::from(instance) << 32 | u64::from(number));
}

/// An instance that marks its turns.
pub(super) struct Turns {
    pub(super) instance: u32,
    pub(super) inner: Arc<dyn Polled>,
}

impl Polled for Turns {
    fn poll(&self, weight: u32) -> u32 {
        mark(BEGUN, self.instance, weight);
        let work = self.inner.poll(weight);
        mark(ENDED, self.instance, work);
        work
    }

    fn rearm(&self) -> bool {
        let again = self.inner.rearm();
        mark(REARMED, self.instance, again.into());
        again
    }

    fn in_flight(&self) -> Option<u32> {
        self.inner.in_flight()
    }
}
