//! The seam on real registers.

use super::threads;
use crate::arch::{self, Registers};
use hal::{
    Affinity, AtomicWord, CpuId, DmaError, Hal, HeapDma, IrqState, SpawnError, ThreadBody, ThreadId, ThreadSpec, Word,
    Work,
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
        arch::now_ns()
    }

    #[inline]
    fn cpu(self) -> CpuId {
        CpuId(arch::cpu())
    }

    #[inline]
    fn irq_save(self) -> IrqState {
        IrqState { were_on: arch::interrupts_off() }
    }

    #[inline]
    fn irq_restore(self, state: IrqState) {
        if state.were_on {
            threads::enable();
        }
    }

    fn relax_on(self, word: &AtomicWord, seen: u64, deadline_ns: u64) {
        // The clock costs more than a look.
        for _ in 0..64 {
            if word.load() != seen {
                return;
            }
            core::hint::spin_loop();
        }
        // The one that would write it may wait for this CPU.
        if self.now_ns() < deadline_ns {
            threads::yield_if_possible();
        }
    }

    fn delay_ns(self, duration_ns: u64) {
        let end_ns = self.now_ns() + duration_ns;
        while self.now_ns() < end_ns {
            core::hint::spin_loop();
        }
    }

    fn wait_for_interrupt(self) {
        arch::interrupts_off();
        arch::wait_for_interrupt();
    }

    fn kick(self, cpu: CpuId) {
        super::cpu::kick(cpu);
    }

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

    #[inline]
    fn work(self, _work: Work, _count: u32) {}
}
