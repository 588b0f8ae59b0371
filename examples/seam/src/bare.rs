//! The seam of a kernel without threads, on hardware.

use hal::{AtomicWord, CpuId, DmaError, Hal, HeapDma, IrqState, Work};
use metal::{Clock, Registers};

/// The kernel sets its rate at boot: [`Clock::set_rate`].
pub static CLOCK: Clock = Clock::new();

/// The CPU that this runs on. Devices find memory at the CPU's own addresses.
#[derive(Clone, Copy, Debug)]
pub struct Bare;

impl Hal for Bare {
    type Word = AtomicWord;
    type Regs = Registers;
    type Dma = HeapDma;

    // With an IOMMU that translates, the mapping is made here too.
    fn dma_alloc(self, len_bytes: usize, align_bytes: usize) -> Result<HeapDma, DmaError> {
        HeapDma::new(len_bytes, align_bytes)
    }

    fn now_ns(self) -> u64 {
        CLOCK.now_ns()
    }

    // This kernel has one CPU. With several, the number is a per-CPU variable behind GS or TPIDR_EL1.
    fn cpu(self) -> CpuId {
        CpuId(0)
    }

    fn irq_save(self) -> IrqState {
        metal::irq_save()
    }

    fn irq_restore(self, state: IrqState) {
        metal::irq_restore(state);
    }

    fn relax_on(self, word: &AtomicWord, seen: u64, deadline_ns: u64) {
        while !metal::relax_on(word, seen) && self.now_ns() < deadline_ns {}
    }

    fn delay_ns(self, duration_ns: u64) {
        CLOCK.delay_ns(duration_ns);
    }

    fn wait_for_interrupt(self) {
        metal::interrupts_off();
        metal::wait_for_interrupt();
    }

    // On hardware work takes its own time; only the simulated machine needs this call.
    fn work(self, _work: Work, _count: u32) {}
}
