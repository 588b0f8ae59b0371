//! Threaded interrupts: the threads of a line.
//!
//! The primary handler runs in the interrupt and says [`IrqReturn::WakeThread`]; the rest runs in a thread. With
//! ONESHOT the line does not interrupt again before its threads are done: it is masked, or, where the controller can
//! ([`crate::ChipBehaviour::automasks_flow`], [`crate::ChipBehaviour::eoi_threaded`]), its end is left to the last thread.
//!
//! ```text
//! interrupt   ack, primary handler: WakeThread ──┐ (end left to the thread)
//! thread                                         └ thread function … last one: eoi, unmask if masked
//! ```

use crate::delivery::IrqCore;
use crate::handover::{Finished, Next, THREADS_MAX};
use crate::line::{Installed, Line, LineState};
use crate::request::RELAX_NS;
use crate::{Action, Irq, IrqError, IrqReturn};
use alloc::boxed::Box;
use alloc::sync::Arc;
use hal::{Affinity, Hal, ThreadId, ThreadOps, ThreadSpec, Threads, Word, Work};

/// The thread of one handler.
#[derive(Clone, Copy)]
pub(crate) struct IrqThread {
    /// Its place in the hand-over.
    pub(crate) number: u8,
    pub(crate) id: ThreadId,
    /// The line is held back until it is done.
    pub(crate) oneshot: bool,
}

/// The handler of a line that has a thread only.
pub(crate) struct DefaultPrimary;

impl Action for DefaultPrimary {
    fn handle(&self, _: Irq) -> IrqReturn {
        IrqReturn::WakeThread
    }
}

/// Forced threading: handler and thread function run in one thread, one after the other.
pub(crate) struct Both {
    pub(crate) primary: Arc<dyn Action>,
    pub(crate) thread: Arc<dyn Action>,
}

impl Action for Both {
    fn handle(&self, irq: Irq) -> IrqReturn {
        match self.primary.handle(irq) {
            IrqReturn::WakeThread => self.thread.handle(irq),
            done => done,
        }
    }
}

/// Takes the lowest free thread number of the line.
pub(crate) fn number(state: &mut LineState) -> Result<u8, IrqError> {
    let number = state.thread_numbers.trailing_ones();
    if number == THREADS_MAX {
        return Err(IrqError::Exhausted("interrupt threads of the line", THREADS_MAX));
    }
    state.thread_numbers |= 1 << number;
    Ok(number as u8)
}

impl<H: Threads> IrqCore<H> {
    /// Makes every handler that is requested from now on run in a thread, if it can (Linux's `threadirqs`).
    pub fn force_threads(&mut self) {
        self.forced = Some(self.threads.know());
    }
}

impl<H: Hal> IrqCore<H> {
    /// Starts a thread that runs `function` whenever it is wanted. It may not be wanted before its id is known.
    pub(crate) fn start_thread(
        &self,
        threads: &'static ThreadOps<H>,
        irq: Irq,
        number: u8,
        affinity: Affinity,
        function: Arc<dyn Action>,
    ) -> Result<ThreadId, IrqError> {
        let (hal, lines) = (self.hal, self.lines.clone());
        let body = move || {
            let line = &lines[irq.0 as usize];
            loop {
                match line.handover.next(number) {
                    Next::Run => finish(line, number, function.handle(irq) != IrqReturn::None),
                    Next::Sleep => (threads.park)(hal),
                    Next::Leave => break,
                }
            }
            drop(function);
            line.handover.leave(number);
        };
        let spec = ThreadSpec { name: "irq", affinity, urgent: true };
        (threads.spawn)(hal, spec, Box::new(body)).map_err(|_| IrqError::NoThread(irq))
    }

    /// Ends a thread that no interrupt can want any more, and waits for it.
    pub(crate) fn stop_thread(&self, line: &Line<H>, thread: IrqThread) {
        line.handover.dismiss(thread.number);
        self.threads.wake(self.hal, thread.id);
        self.wait_for_threads(line, |line| !line.handover.is_leaving(thread.number));
        let mut state = line.state.lock();
        state.thread_numbers &= !(1 << thread.number);
        state.thread_ids.retain(|id| *id != thread.id);
    }

    /// Waits until `done`, which the threads of the line bring about.
    pub(crate) fn wait_for_threads(&self, line: &Line<H>, done: impl Fn(&Line<H>) -> bool) {
        while !done(line) {
            // They may have to run on this CPU, and rank as this thread does.
            if let Some(threads) = self.threads.get() {
                (threads.yield_now)(self.hal);
            }
            let word = line.handover.word();
            let seen = word.get();
            if !done(line) {
                self.hal.relax_on(word, seen, self.hal.now_ns().saturating_add(RELAX_NS));
            }
        }
    }

    /// The primary handlers of `woken`, bits by place in the list, want their threads.
    #[cold]
    pub(crate) fn wake_threads(&self, line: &Line<H>, actions: &[Installed], woken: u64) {
        for (index, action) in actions.iter().enumerate() {
            if woken & 1 << index != 0
                && let Some(thread) = action.thread
                && line.handover.want(1 << thread.number, thread.oneshot) != 0
            {
                self.hal.work(Work::ThreadWake, 1);
                self.threads.wake(self.hal, thread.id);
            }
        }
    }

    /// Moves the line's threads to the CPU that the line is delivered to.
    pub(crate) fn follow(&self, state: &LineState) {
        let (Some(target), Some(threads)) = (state.target(), self.threads.get()) else { return };
        for thread in state.entries.iter().filter_map(|entry| entry.installed.thread) {
            // The CPU is one of this world: the core has just pointed the line at it.
            _ = (threads.set_affinity)(self.hal, thread.id, &Affinity::Cpu(target.cpu));
        }
    }
}

/// The thread has run its function. The last thread that held the line releases it.
fn finish<H: Hal>(line: &Line<H>, number: u8, handled: bool) {
    let mut state = line.state.lock();
    if !handled {
        state.unhandled += 1;
        state.storm.note_unhandled();
    }
    // An interrupt in progress finds the line not held at its end, and lets it go itself.
    if line.handover.finish(number) == Finished::Last && !state.is_running() {
        state.release();
    }
}
