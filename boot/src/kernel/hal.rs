//! The seam on real registers.

use super::threads;
use crate::arch::{self, Registers};
use hal::{
    Affinity, AtomicWord, CpuId, DmaError, Hal, HeapDma, IrqState, SpawnError, ThreadBody, ThreadId, ThreadSpec,
    Threads, Work,
};

/// This machine.
#[derive(Clone, Copy)]
pub(crate) struct Bare;

impl Hal for Bare {
    type Word = AtomicWord;
    type Regs = Registers;
    type Dma = HeapDma;

    fn dma_alloc(self, len_bytes: usize, align_bytes: usize) -> Result<HeapDma, DmaError> {
        HeapDma::new(len_bytes, align_bytes)
    }

    #[inline]
    fn now_ns(self) -> u64 {
        arch::CLOCK.now_ns()
    }

    #[inline]
    fn cpu(self) -> CpuId {
        CpuId(arch::cpu())
    }

    #[inline]
    fn irq_save(self) -> IrqState {
        metal::irq_save()
    }

    #[inline]
    fn irq_restore(self, state: IrqState) {
        if state.were_on {
            threads::enable();
        }
    }

    fn relax_on(self, word: &AtomicWord, seen: u64, deadline_ns: u64) {
        // The CPU that would change it may be waiting for this one.
        if !metal::relax_on(word, seen) && self.now_ns() < deadline_ns {
            threads::yield_if_possible();
        }
    }

    fn delay_ns(self, duration_ns: u64) {
        arch::CLOCK.delay_ns(duration_ns);
    }

    fn wait_for_interrupt(self) {
        metal::interrupts_off();
        metal::wait_for_interrupt();
    }

    #[inline]
    fn work(self, _work: Work, _count: u32) {}
}

impl Threads for Bare {
    fn spawn(self, spec: ThreadSpec, body: ThreadBody) -> Result<ThreadId, SpawnError> {
        threads::spawn(&spec, body)
    }

    fn current_thread(self) -> ThreadId {
        threads::current().expect("an idle CPU runs no thread")
    }

    fn park(self) {
        threads::park();
    }

    fn wake(self, thread: ThreadId) {
        threads::wake(thread);
    }

    fn set_affinity(self, thread: ThreadId, affinity: &Affinity) -> Result<(), SpawnError> {
        threads::set_affinity(thread, affinity)
    }

    fn yield_now(self) {
        threads::yield_if_possible();
    }
}
