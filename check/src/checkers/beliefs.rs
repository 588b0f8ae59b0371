//! What drivers believe is what the hardware holds.
//!
//! Drivers and core give their belief while they hold its lock; the models give what they hold at that instant. So
//! nothing may differ, except what is on its way: a posted register write, and a disable that has not taken effect
//! everywhere. Most of that arrives within microseconds. A difference is therefore a failure if it is there at every look
//! over [`LOOKS_NS`].
//!
//! A write that waits for credits is on its way for longer, and a looking thread that runs only at one point of a cycle, say
//! while a line is masked, meets one at every look. So the last look pushes posted writes ([`Comparison::arrived`]).
//!
//! Some beliefs may not even be early: a driver promises that an interrupt is masked, or goes to its new CPU, once its
//! operation has returned. It reads a register back for that, or waits for a SYNC, before the core believes it. Such a place
//! fails at the first look ([`Comparison::promised`]), where no fault keeps a write or a command away ([`Promises`]).

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

/// Whether drivers can keep what they promise on return.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Promises {
    /// Nothing is faulty.
    Kept,
    /// Hardware may refuse what keeps them.
    Loose,
}

impl Promises {
    /// Those of a history with faults, or without.
    pub fn under_faults(faulty: bool) -> Self {
        if faulty { Self::Loose } else { Self::Kept }
    }
}

/// One look at beliefs and hardware. Nothing is allocated while they agree.
pub struct Comparison {
    differences: Vec<Difference>,
    /// The first promise that is broken, and the number of its place.
    broken: Option<(&'static str, u64)>,
    promises: Promises,
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

    /// The operation that made software believe so has returned only when `what` number `which` was `true` of the hardware:
    /// there is nothing to wait for. To be called under the lock of the belief.
    #[inline]
    pub fn promised(&mut self, what: &'static str, which: u64, is_true: bool) {
        if !is_true && self.promises == Promises::Kept {
            self.broken.get_or_insert((what, which));
        }
    }

    fn judge(&self) {
        if let Some((what, which)) = self.broken {
            violate("beliefs", format!("{what} {which:#x}: the operation returned before the hardware had done it"));
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
/// With a failure of this checker when a place never agrees, or when a promise is broken at any look.
pub fn compare(promises: Promises, look: impl Fn(&mut Comparison)) {
    let looked = |is_last| {
        let mut now = Comparison { differences: Vec::new(), broken: None, promises, is_last };
        look(&mut now);
        now.judge();
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

/// Looks once, and judges only what is promised.
///
/// # Panics
/// As [`compare`], for a broken promise.
pub fn glance(promises: Promises, look: impl Fn(&mut Comparison)) {
    if promises == Promises::Kept {
        let mut now = Comparison { differences: Vec::new(), broken: None, promises, is_last: false };
        look(&mut now);
        now.judge();
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
            let caught = catch_unwind(AssertUnwindSafe(|| {
                compare(Promises::Kept, |now| look(looks.fetch_add(1, Relaxed), now))
            }));
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

    #[test]
    fn a_promise_is_broken_at_any_look() {
        let (text, looks) = says(|look, now| {
            now.same("route", 1, 9_u8, 0_u8);
            now.promised("mask", 3, look < 2);
        });
        assert_eq!(text.as_deref(), Some("mask 0x3: the operation returned before the hardware had done it"));
        assert_eq!(looks, 3);
    }

    #[test]
    fn a_glance_judges_promises_alone_and_none_under_faults() {
        let look = |now: &mut Comparison| {
            now.same("route", 1, 1_u8, 0_u8);
            now.promised("mask", 3, false);
        };
        glance(Promises::under_faults(true), look);
        assert!(catch_unwind(|| glance(Promises::under_faults(false), look)).is_err());
        glance(Promises::Kept, |now| now.same("route", 1, 1_u8, 0_u8));
    }
}
