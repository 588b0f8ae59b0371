//! Adaptive moderation alone: a kernel keeps its own drivers and interrupts, and asks a controller how long its device
//! may gather completions.
//!
//! The driver tells the controller what each interrupt and each poll found. When the controller wants another level,
//! the driver queues its own deferred work (a workqueue, a softirq): the device's registers or admin commands are never
//! touched in the interrupt. What the device made of it is told back, a refusal too.
//!
//! ```text
//! interrupt ─► Moderated::interrupt ─► true: queue work ─► Moderated::work(|setting| program the device)
//! ```
#![no_std]
extern crate alloc;

use alloc::boxed::Box;
use hal::{Hal, Lock};
use irq::moderation::{Algorithm, Controller, Found, LevelError, LevelTable, Next, Outcome, Setting, TuningView};

/// What the device of this example can do, from the lowest latency to the highest throughput. A driver writes its own:
/// delays that its device can program, and counts that its queues can hold.
pub const LEVELS: [Setting; 5] =
    [Setting::OFF, Setting::new(8, 4), Setting::new(16, 8), Setting::new(32, 16), Setting::new(64, 64)];

/// Interrupts that make a sample.
const NR_EVENTS: u16 = 64;

/// One moderated device.
pub struct Moderated<H: Hal> {
    hal: H,
    controller: Lock<H, Box<dyn Controller>>,
}

impl<H: Hal> Moderated<H> {
    /// A device that is to begin at level 0, which the driver programs before its first interrupt.
    ///
    /// # Errors
    /// [`LevelError`] when `levels` is empty or not sorted.
    pub fn new(hal: H, algorithm: Algorithm, levels: &[Setting]) -> Result<Self, LevelError> {
        let controller = algorithm.build(LevelTable::new(levels)?, NR_EVENTS)?;
        Ok(Self { hal, controller: Lock::new(hal, controller) })
    }

    /// An interrupt found `completions` of the `in_flight` that there were. True: queue the work.
    #[must_use = "the level stays as it is unless the work is queued"]
    pub fn interrupt(&self, completions: u32, in_flight: u32) -> bool {
        let found = Found { in_flight: Some(in_flight), ..Found::completions(completions) };
        self.controller.lock().interrupt(self.hal.now_ns(), found) == Next::Program
    }

    /// A poll found them. They count too: a controller that sees interrupts alone decides on half of the truth.
    #[must_use = "the level stays as it is unless the work is queued"]
    pub fn polled(&self, completions: u32, in_flight: u32) -> bool {
        let found = Found { in_flight: Some(in_flight), ..Found::completions(completions) };
        self.controller.lock().polled(self.hal.now_ns(), found) == Next::Program
    }

    /// When [`Self::elapsed`] wants to be called if no interrupt comes: arm a timer for it, or look in the tick.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.controller.lock().deadline_ns()
    }

    /// The deadline is there.
    #[must_use = "the level stays as it is unless the work is queued"]
    pub fn elapsed(&self) -> bool {
        self.controller.lock().elapsed(self.hal.now_ns()) == Next::Program
    }

    /// The deferred work: `program` tells the device, and returns what the device has then; none when it refused.
    /// True: queue it once more.
    #[must_use = "the next step waits for it"]
    pub fn work(&self, program: impl FnOnce(Setting) -> Option<Setting>) -> bool {
        // The device is told without the lock: an admin command sleeps.
        let Some(step) = self.controller.lock().step() else { return false };
        let outcome = program(step.setting).map_or(Outcome::Failed, Outcome::Done);
        self.controller.lock().programmed(self.hal.now_ns(), step.id, outcome) == Next::Program
    }

    /// The state of the tuning, for people.
    pub fn view(&self) -> TuningView {
        self.controller.lock().view()
    }
}
