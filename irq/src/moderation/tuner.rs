//! Connects a controller with its consumer: interrupt code delivers samples, a thread programs the levels.

use super::{Controller, Found, LevelTable, Next, Outcome, Setting, TuningView};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use hal::{Hal, KernelThreads, Lock, SpawnError, ThreadId, ThreadSpec, Threads, Word};

/// Whether a step waits for the thread: the hand-over between sampling code and the programming thread.
///
/// Nothing is lost. The first caller of `ask` since the last [`Handover::take`] learns that it must wake the thread,
/// and the thread takes until nothing is asked before it sleeps. Generic over the word, so that a model checker can
/// run it (`irq/tests/loom_moderation.rs`).
pub struct Handover<W>(W);

impl<W: Word> Default for Handover<W> {
    fn default() -> Self {
        Self(W::new(0))
    }
}

impl<W: Word> Handover<W> {
    /// Asks for the deferred work. True when the caller has to wake it.
    #[must_use]
    pub fn ask(&self) -> bool {
        self.0.swap(1) == 0
    }

    /// True when the work was asked for since the last call.
    pub fn take(&self) -> bool {
        self.0.swap(0) == 1
    }
}

/// Levels that are programmed anew, after resets, beside the thread that programs steps. In the end the device has the level that
/// is believed. Generic over the word, as [`Handover`].
pub struct Restores<W>(W);

impl<W: Word> Default for Restores<W> {
    fn default() -> Self {
        Self(W::new(0))
    }
}

impl<W: Word> Restores<W> {
    /// Programs the level in force into a device that has lost it, until that is in force behind it too.
    pub fn restore<S: PartialEq + Copy, O>(&self, in_force: impl Fn() -> S, program: impl Fn(S) -> O) -> O {
        loop {
            let setting = in_force();
            let outcome = program(setting);
            // Before the look: either that sees the thread's level, or the thread sees this.
            self.0.fetch_add(1);
            if in_force() == setting {
                return outcome;
            }
        }
    }

    /// The thread's step: programs a level, and puts it in force. True if a level was restored meanwhile: the device may have been
    /// given the one before last, and the thread is to restore too.
    #[must_use]
    pub fn step(&self, step: impl FnOnce()) -> bool {
        let before = self.0.load();
        step();
        self.0.load() != before
    }
}

/// A device, queue or vector that takes a level. Called in a thread, so that it may wait for a command to complete.
pub trait Moderated: Send + Sync {
    /// Programs `setting` into the device, and returns the setting that the device has now.
    fn program(&self, setting: Setting) -> Outcome;
}

/// A controller with its lock. Interrupts and polls feed it; a [`Programmer`] serves it.
pub struct Tuner<H: Hal> {
    hal: H,
    controller: Lock<H, Box<dyn Controller>>,
    handover: Handover<H::Word>,
    restores: Restores<H::Word>,
    /// 1 + the id of the programming thread. 0: none yet.
    thread: H::Word,
    threads: KernelThreads<H>,
}

impl<H: Hal> Tuner<H> {
    /// A tuner whose controller starts at its first level.
    pub fn new(hal: H, controller: Box<dyn Controller>) -> Self {
        Self {
            hal,
            controller: Lock::new(hal, controller),
            handover: Handover::default(),
            restores: Restores::default(),
            thread: H::Word::new(0),
            threads: KernelThreads::new(),
        }
    }

    /// An interrupt was served and found this much.
    pub fn interrupt(&self, found: Found) {
        let next = self.controller.lock().interrupt(self.hal.now_ns(), found);
        self.pass_on(next);
    }

    /// A poll without an interrupt found this much.
    pub fn polled(&self, found: Found) {
        let next = self.controller.lock().polled(self.hal.now_ns(), found);
        self.pass_on(next);
    }

    /// As [`Tuner::interrupt`], unless another CPU uses the controller at the moment. It then returns false, and the
    /// caller adds what it found to its next call. For controllers that many queues share.
    pub fn try_interrupt(&self, found: Found) -> bool {
        let Some(mut controller) = self.controller.try_lock() else { return false };
        let next = controller.interrupt(self.hal.now_ns(), found);
        drop(controller);
        self.pass_on(next);
        true
    }

    /// As [`Tuner::polled`], unless the controller is busy.
    pub fn try_polled(&self, found: Found) -> bool {
        let Some(mut controller) = self.controller.try_lock() else { return false };
        let next = controller.polled(self.hal.now_ns(), found);
        drop(controller);
        self.pass_on(next);
        true
    }

    /// Time has passed: see [`Controller::elapsed`].
    pub fn elapsed(&self) {
        let next = self.controller.lock().elapsed(self.hal.now_ns());
        self.pass_on(next);
    }

    fn pass_on(&self, next: Next) {
        if next == Next::Program && self.handover.ask() {
            self.wake();
        }
    }

    /// Wakes the programming thread, if it has been started.
    fn wake(&self) {
        let thread = self.thread.get();
        if thread != 0 {
            self.threads.wake(self.hal, ThreadId((thread - 1) as u32));
        }
    }

    /// The deferred work: programs what the controller wants until it wants nothing.
    pub fn work(&self, device: &dyn Moderated) {
        while self.turn(device) {}
    }

    /// Programs one level, if the controller wants one. False if it has asked for nothing.
    fn turn(&self, device: &dyn Moderated) -> bool {
        if !self.handover.take() {
            return false;
        }
        let Some(step) = self.controller.lock().step() else { return true };
        let is_restored = self.restores.step(|| {
            let outcome = device.program(step.setting);
            let next = self.controller.lock().programmed(self.hal.now_ns(), step.id, outcome);
            // This thread is awake already.
            let _ = next == Next::Program && self.handover.ask();
        });
        if is_restored {
            let _ = self.restore(device);
        }
        true
    }

    /// Programs the level in force into a device that has lost it: after a reset. The thread may be programming another one
    /// meanwhile. In the end the device has the level that the controller believes. In a thread.
    pub fn restore(&self, device: &dyn Moderated) -> Outcome {
        self.restores.restore(|| self.view().setting, |setting| device.program(setting))
    }

    /// The state of the tuning, for people.
    pub fn view(&self) -> TuningView {
        self.controller.lock().view()
    }
}

/// The charge of a [`Programmer`]: a tuner and the device behind it.
pub type Served<H> = (Arc<Tuner<H>>, Arc<dyn Moderated>);

/// The thread that programs levels.
pub struct Programmer<H: Hal> {
    hal: H,
    served: Vec<Served<H>>,
    stopped: H::Word,
}

impl<H: Threads> Programmer<H> {
    /// Programs the first level of each, then starts the thread that programs the later ones.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(hal: H, spec: ThreadSpec, served: Vec<Served<H>>) -> Result<Arc<Self>, SpawnError> {
        let programmer = Arc::new(Self { hal, served, stopped: H::Word::new(0) });
        for (tuner, device) in &programmer.served {
            // A device that refuses the first level keeps its setting, which is no moderation.
            let _ = device.program(tuner.view().setting);
        }
        let body = programmer.clone();
        let thread = hal.spawn(spec, Box::new(move || body.run()))?;
        for (tuner, _) in &programmer.served {
            tuner.threads.know();
            tuner.thread.set(u64::from(thread.0) + 1);
        }
        // Serves the steps that were asked for before the tuners knew their thread.
        hal.wake(thread);
        Ok(programmer)
    }

    fn run(&self) {
        while self.stopped.load() == 0 {
            // Each has one turn a round: one that wants levels again and again does not keep the others waiting.
            let turns = self.served.iter().filter(|(tuner, device)| tuner.turn(&**device)).count();
            if turns == 0 {
                self.hal.park();
            }
        }
    }

    /// Ends the thread at its next wake. Levels stay as they are.
    pub fn stop(&self) {
        self.stopped.set(1);
        if let Some((tuner, _)) = self.served.first() {
            tuner.wake();
        }
    }

    /// The state of every tuning, for people, in the order of the start.
    pub fn views(&self) -> Vec<TuningView> {
        self.served.iter().map(|(tuner, _)| tuner.view()).collect()
    }
}

/// The tuning of a consumer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tuning {
    /// The controller.
    pub algorithm: super::Algorithm,
    /// The levels.
    pub table: LevelTable,
    /// Number of interrupts in a sample.
    pub nr_events: u16,
}

impl Tuning {
    /// A tuner for one consumer.
    ///
    /// # Errors
    /// [`super::LevelError`] when a sample has no events.
    pub fn tuner<H: Hal>(&self, hal: H) -> Result<Arc<Tuner<H>>, super::LevelError> {
        Ok(Arc::new(Tuner::new(hal, self.algorithm.build(self.table.clone(), self.nr_events)?)))
    }
}
