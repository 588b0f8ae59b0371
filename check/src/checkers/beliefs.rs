//! What drivers believe is what the hardware holds.
//!
//! Drivers and core give their belief while they hold its lock; the models give what they hold at that instant. So
//! nothing may differ, except what is on its way: a posted register write, and a disable that has not taken effect
//! everywhere. Most of that arrives within microseconds. A difference is therefore a failure if it is there at every look
//! over [`LOOKS_NS`].
//!
//! A write that waits for credits is on its way for longer, and a looking thread that runs only at one point of a cycle, say
//! while a line is masked, meets one at every look. So the last look pushes posted writes ([`Comparison::arrived`]).

use crate::verdict::violate;
use hal::Hal as _;
use machine::model::ModelId;
use machine::{SimHal, push_writes};

/// Times between looks. In all longer than a write is on its way, and shorter than most lies last: a line that is moved
/// while it is masked is soon unmasked. So many that a belief which changes all the time is seen in agreement once.
const LOOKS_NS: [u64; 8] = [500, 1_000, 1_500, 2_000, 3_000, 4_000, 6_000, 8_000];

/// A place of the hardware that does not hold what software believes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Difference {
    what: &'static str,
    which: u64,
    believed: u128,
    held: u128,
}

/// One look at beliefs and hardware. Nothing is allocated while they agree.
pub struct Comparison {
    differences: Vec<Difference>,
    is_last: bool,
}

impl Comparison {
    /// Software believes that `what` number `which` is `believed`; the hardware holds `held`.
    #[inline]
    pub fn same(&mut self, what: &'static str, which: u64, believed: impl Into<u128>, held: impl Into<u128>) {
        let (believed, held) = (believed.into(), held.into());
        if believed != held {
            self.differences.push(Difference { what, which, believed, held });
        }
    }

    /// At the last look, waits until the posted writes to `model` have arrived. To be called under the lock of the belief
    /// that is compared next, so that nobody writes again before the comparison.
    #[inline]
    pub fn arrived(&self, model: ModelId) {
        if self.is_last {
            push_writes(model);
        }
    }
}

/// Looks until each place has agreed once. On a thread of the machine, with interrupts on.
///
/// # Panics
/// With a failure of this checker when a place never agrees.
pub fn compare(look: impl Fn(&mut Comparison)) {
    let looked = |is_last| {
        let mut now = Comparison { differences: Vec::new(), is_last };
        look(&mut now);
        now.differences
    };
    let mut left = looked(false);
    for (number, ns) in LOOKS_NS.into_iter().enumerate() {
        if left.is_empty() {
            return;
        }
        SimHal.delay_ns(ns);
        let now = looked(number + 1 == LOOKS_NS.len());
        left.retain_mut(|old| {
            let still = now.iter().find(|new| (new.what, new.which) == (old.what, old.which));
            still.inspect(|new| *old = **new).is_some()
        });
    }
    if let Some(Difference { what, which, believed, held }) = left.first() {
        violate("beliefs", format!("{what} {which:#x}: software believes {believed:#x}, the hardware holds {held:#x}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Failure;
    use machine::time::Ps;
    use machine::{Machine, MachineConfig};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    /// The text of the failure, and the looks that it took.
    fn says(look: impl Fn(u32, &mut Comparison) + Send + 'static) -> (Option<String>, u32) {
        let mut machine = Machine::new(MachineConfig { memory_bytes: 4096, ..MachineConfig::default() });
        let body = move || {
            let looks = AtomicU32::new(0);
            let caught = catch_unwind(AssertUnwindSafe(|| compare(|now| look(looks.fetch_add(1, Relaxed), now))));
            let text = caught.err().map(|why| why.downcast::<Failure>().expect("a failure").text);
            (text, looks.into_inner())
        };
        machine.run_boot(Ps::from_ns(1_000_000), body).expect("it ends")
    }

    #[test]
    fn what_agrees_needs_one_look() {
        assert_eq!(says(|_, now| now.same("mask", 1, true, true)), (None, 1));
    }

    #[test]
    fn what_is_on_its_way_arrives() {
        assert_eq!(says(|look, now| now.same("mask", 1, 1_u8, look.min(1))), (None, 2));
    }

    #[test]
    fn different_places_may_take_turns() {
        assert_eq!(says(|look, now| now.same("mask", u64::from(look % 2), 0_u8, 1_u8)), (None, 2));
    }

    #[test]
    fn what_never_agrees_is_wrong() {
        let (text, looks) = says(|_, now| now.same("mask", 2, true, false));
        assert_eq!(text.as_deref(), Some("mask 0x2: software believes 0x1, the hardware holds 0x0"));
        assert_eq!(looks, 1 + LOOKS_NS.len() as u32);
    }
}
