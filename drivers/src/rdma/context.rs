//! Contexts in which completion queues are polled after their events.

use super::completion::{CompletionQueue, Missed};
use alloc::boxed::Box;
use alloc::sync::Arc;
use hal::{Hal, KernelThreads, SpawnError, ThreadId, ThreadSpec, Threads, Word};
use irq::moderation::Handover;
use irq::poll::{SoftId, SoftPoll};

/// Completions of a turn at the end of an interrupt (Linux `IB_POLL_BUDGET_IRQ`): the weight for
/// [`SoftPoll::add`].
pub const BUDGET_SOFT: u32 = 256;
/// Completions of a turn in a thread (Linux `IB_POLL_BUDGET_WORKQUEUE`).
pub const BUDGET_WORKQUEUE: u32 = 65_536;

/// The context in which a completion queue is polled after its event.
pub enum CqContext<H: Hal> {
    /// At the end of the interrupt. The queue is added to the list as a [`irq::poll::Polled`].
    SoftPoll(Arc<SoftPoll<H>>, SoftId),
    /// In a thread.
    Workqueue(Arc<Worker<H>>),
}

impl<H: Hal> CqContext<H> {
    pub(super) fn schedule(&self) {
        match self {
            Self::SoftPoll(list, id) => list.schedule(*id),
            Self::Workqueue(worker) => worker.schedule(),
        }
    }
}

/// A thread that polls one completion queue.
pub struct Worker<H: Hal> {
    hal: H,
    queue: Arc<CompletionQueue<H>>,
    asked: Handover<H::Word>,
    stopped: H::Word,
    /// The thread, + 1.
    thread: H::Word,
    threads: KernelThreads<H>,
}

impl<H: Hal> Worker<H> {
    /// Starts the thread, which arms the queue.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(hal: H, spec: ThreadSpec, queue: Arc<CompletionQueue<H>>) -> Result<Arc<Self>, SpawnError>
    where
        H: Threads,
    {
        let word = || H::Word::new(0);
        let threads = KernelThreads::new();
        threads.know();
        let worker =
            Arc::new(Self { hal, queue, asked: Handover::default(), stopped: word(), thread: word(), threads });
        let body = worker.clone();
        let thread = hal.spawn(spec, Box::new(move || body.run()))?;
        worker.thread.set(u64::from(thread.0) + 1);
        worker.schedule();
        Ok(worker)
    }

    /// Wakes the thread to poll.
    pub fn schedule(&self) {
        let thread = self.thread.get();
        if self.asked.ask() && thread != 0 {
            self.threads.wake(self.hal, ThreadId((thread - 1) as u32));
        }
    }

    /// Ends the thread after its turn.
    pub fn stop(&self) {
        self.stopped.set(1);
        self.schedule();
    }

    fn run(&self)
    where
        H: Threads,
    {
        // The first turn is the start's, not an event's.
        let mut interrupted = false;
        while self.stopped.load() == 0 {
            if !self.asked.take() {
                self.hal.park();
                continue;
            }
            let mut again = self.turn(interrupted);
            while again {
                self.hal.yield_now();
                again = self.turn(false);
            }
            interrupted = true;
            // Other threads of the CPU come between two turns, even when the next event is there already (a kernel's
            // worker: `cond_resched` after each work item).
            self.hal.yield_now();
        }
    }

    /// One turn. True if another must follow.
    fn turn(&self, interrupted: bool) -> bool {
        let done = self.queue.poll_for_tuning(BUDGET_WORKQUEUE, interrupted);
        done >= BUDGET_WORKQUEUE || self.queue.arm() == Missed::Yes
    }
}
