//! Adaptive moderation of a controller's interrupts (features 08h and 09h).
//!
//! Feature 08h covers all I/O queues of a controller, so all of them feed one tuner: with their interrupts, and with
//! entries that polls and checks found. The programmer's thread sets the feature by an admin command. A vector that
//! feature 09h excludes is not coalesced and feeds nothing. The admin queue feeds nothing either, because the device
//! never coalesces it (Base 5.27.1.6).

use super::{Coalescing, CoalescingThreshold, CoalescingTime, Controller, FeatureValueError, QueuePair};
use alloc::sync::Arc;
use hal::{Hal, Lock, Word};
use irq::moderation::{Found, Moderated, Outcome, Setting, Tuner};

/// Levels for [`irq::moderation::LevelTable::new`] in the steps of 100 µs that feature 08h has.
pub const COALESCING_LEVELS: [Setting; 5] =
    [Setting::OFF, Setting::new(100, 4), Setting::new(100, 8), Setting::new(100, 16), Setting::new(200, 32)];

impl Coalescing {
    /// The nearest value that is not below `setting`: the time is rounded up to 100 µs.
    ///
    /// # Errors
    /// [`FeatureValueError`] beyond 25,500 µs or 256 entries.
    pub fn nearest(setting: Setting) -> Result<Self, FeatureValueError> {
        if setting.delay_us == 0 || setting.completions <= 1 {
            return Ok(Self::OFF);
        }
        let us = setting.delay_us.checked_next_multiple_of(CoalescingTime::STEP_US).unwrap_or(u32::MAX);
        let entries = u16::try_from(setting.completions).unwrap_or(u16::MAX);
        Ok(Self { time: CoalescingTime::from_us(us)?, threshold: CoalescingThreshold::entries(entries)? })
    }

    /// As a level.
    pub fn setting(self) -> Setting {
        Setting::new(self.time.us(), self.threshold.get().into())
    }
}

/// The link of a queue to its controller's tuner.
pub(super) struct QueueTuning<H: Hal> {
    /// 1 when there is a tuner. A queue without one only pays for reading this word.
    on: H::Word,
    /// Commands submitted ever; written under the submission lock.
    submitted: H::Word,
    side: Lock<H, Side<H>>,
}

struct Side<H: Hal> {
    tuner: Option<Arc<Tuner<H>>>,
    /// Entries found while another queue's interrupt held the controller. The next report includes them.
    carried: u32,
}

impl<H: Hal> QueueTuning<H> {
    pub(super) fn new(hal: H) -> Self {
        let side = Side { tuner: None, carried: 0 };
        Self { on: H::Word::new(0), submitted: H::Word::new(0), side: Lock::new(hal, side) }
    }

    pub(super) fn attach(&self, tuner: Option<Arc<Tuner<H>>>) {
        self.on.set(tuner.is_some().into());
        *self.side.lock() = Side { tuner, carried: 0 };
    }

    pub(super) fn submitted(&self, ever: u64) {
        self.submitted.set(ever);
    }

    /// Reports `taken` entries, found by an interrupt or without one. `completed_ever` counts all completions
    /// of the queue.
    #[inline]
    pub(super) fn found(&self, taken: usize, completed_ever: u64, interrupt: bool) {
        if self.on.get() != 0 {
            self.feed(taken, completed_ever, interrupt);
        }
    }

    #[cold]
    fn feed(&self, taken: usize, completed_ever: u64, interrupt: bool) {
        let under_way = self.submitted.get().saturating_sub(completed_ever) + taken as u64;
        let mut side = self.side.lock();
        let Side { tuner: Some(tuner), carried } = &mut *side else { return };
        let completions = carried.saturating_add(taken as u32);
        let found = Found { completions, bytes: 0, in_flight: u32::try_from(under_way).ok() };
        let fed = if interrupt { tuner.try_interrupt(found) } else { tuner.try_polled(found) };
        *carried = if fed { 0 } else { completions };
    }
}

impl<H: Hal> Controller<H> {
    /// Connects every I/O queue, existing and future, to `tuner`, except those whose vector feature 09h excludes. Start an
    /// [`irq::moderation::Programmer`] with it and this controller.
    pub fn tune(&self, tuner: Arc<Tuner<H>>) {
        self.set_tuner(tuner);
        self.all_pairs().iter().for_each(|pair| self.attach_tuner(pair));
    }
}

impl<H: Hal> QueuePair<H> {
    /// Whether it feeds a tuner.
    pub fn is_tuned(&self) -> bool {
        self.tuning.on.get() != 0
    }
}

/// Sets feature 08h by an admin command, and reads the resulting value by a second one. Without an answer to that, the value is the
/// one that the device took.
impl<H: Hal> Moderated for Controller<H> {
    fn program(&self, setting: Setting) -> Outcome {
        let Ok(wanted) = Coalescing::nearest(setting) else { return Outcome::Failed };
        match self.set_coalescing(wanted) {
            Ok(()) => Outcome::Done(self.coalescing().unwrap_or(wanted).setting()),
            Err(_) => Outcome::Failed,
        }
    }
}
