//! Adaptive moderation alone: a kernel keeps its own drivers and interrupts, and asks a controller how long its device
//! may gather completions.
//!
//! The driver tells the controller what each interrupt and each poll found. When the controller wants another level,
//! the driver queues its own deferred work (a workqueue, a softirq). The interrupt itself never touches the device's
//! registers or admin commands. The work then reports the device's actual setting to the controller, or its refusal.
//!
//! ```text
//! interrupt ─► Moderated::interrupt ─► true: queue work ─► Moderated::work(|setting| program the device)
//! ```
#![no_std]
extern crate alloc;

use alloc::boxed::Box;
use hal::{Hal, Lock};
use irq::moderation::{Algorithm, Controller, Found, LevelError, LevelTable, Next, Outcome, Setting, TuningView};

/// Levels of this example's device, from the lowest latency to the highest throughput. A real driver writes its own
/// table, with delays that its device can program and counts that its queues can hold.
pub const LEVELS: [Setting; 5] =
    [Setting::OFF, Setting::new(8, 4), Setting::new(16, 8), Setting::new(32, 16), Setting::new(64, 64)];

/// Number of interrupts in a sample.
const NR_EVENTS: u16 = 64;

/// One moderated device.
pub struct Moderated<H: Hal> {
    hal: H,
    controller: Lock<H, Box<dyn Controller>>,
}

impl<H: Hal> Moderated<H> {
    /// A device that starts at level 0. The driver must program that level before the first interrupt.
    ///
    /// # Errors
    /// [`LevelError`] when `levels` is empty or not sorted.
    pub fn new(hal: H, algorithm: Algorithm, levels: &[Setting]) -> Result<Self, LevelError> {
        let controller = algorithm.build(LevelTable::new(levels)?, NR_EVENTS)?;
        Ok(Self { hal, controller: Lock::new(hal, controller) })
    }

    /// Reports an interrupt that found `completions`, with `in_flight` I/Os before it. Returns true when work must be
    /// queued.
    #[must_use = "the level stays as it is unless the work is queued"]
    pub fn interrupt(&self, completions: u32, in_flight: u32) -> bool {
        let found = Found { in_flight: Some(in_flight), ..Found::completions(completions) };
        self.controller.lock().interrupt(self.hal.now_ns(), found) == Next::Program
    }

    /// Reports a poll that found completions. Polls count too: from interrupts alone the controller sees only half the
    /// load.
    #[must_use = "the level stays as it is unless the work is queued"]
    pub fn polled(&self, completions: u32, in_flight: u32) -> bool {
        let found = Found { in_flight: Some(in_flight), ..Found::completions(completions) };
        self.controller.lock().polled(self.hal.now_ns(), found) == Next::Program
    }

    /// Deadline for [`Self::elapsed`] if no interrupt comes first. Arm a timer for it, or check it in the tick.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.controller.lock().deadline_ns()
    }

    /// Call this when the deadline has passed.
    #[must_use = "the level stays as it is unless the work is queued"]
    pub fn elapsed(&self) -> bool {
        self.controller.lock().elapsed(self.hal.now_ns()) == Next::Program
    }

    /// The deferred work. `program` programs the device, and returns the setting that the device then has, or none
    /// when it refused. Returns true when the work must be queued once more.
    #[must_use = "the next step waits for it"]
    pub fn work(&self, program: impl FnOnce(Setting) -> Option<Setting>) -> bool {
        // Programs the device without the lock, because an admin command sleeps.
        let Some(step) = self.controller.lock().step() else { return false };
        let outcome = program(step.setting).map_or(Outcome::Failed, Outcome::Done);
        self.controller.lock().programmed(self.hal.now_ns(), step.id, outcome) == Next::Program
    }

    /// The state of the tuning, for people.
    pub fn view(&self) -> TuningView {
        self.controller.lock().view()
    }
}
