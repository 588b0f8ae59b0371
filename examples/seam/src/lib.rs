//! The seam in somebody else's kernel: a [`Hal`] on nothing but `core` and `alloc`.
//!
//! What a kernel has to bring for `irq/` and `drivers/` to run in it, at its smallest: one CPU, memory mapped one to
//! one, no threads. Each place where a real kernel has an instruction or a service of its own says so. The other
//! examples use this seam, or any other: they are generic over [`Hal`].
//!
//! Its value is a reference to the kernel's own state, so there is nothing global, and a test can have many kernels.
#![no_std]

mod registers;

pub use registers::MmioRegs;

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use hal::{
    Affinity, AtomicWord, CpuId, DmaError, Hal, HeapDma, IrqState, SpawnError, ThreadBody, ThreadId, ThreadSpec, Word,
    Work,
};

/// What a look at the clock takes here, in nanoseconds, so that a poll with a deadline ends.
const LOOK_NS: u64 = 20;

/// What the kernel keeps for its one CPU.
#[derive(Default)]
pub struct Kernel {
    /// RFLAGS.IF or DAIF.I, inverted.
    interrupts_off: AtomicBool,
    /// The time stamp counter, or CNTVCT_EL0, in nanoseconds.
    clock_ns: AtomicU64,
}

/// The seam of one [`Kernel`].
#[derive(Clone, Copy)]
pub struct Seam(&'static Kernel);

impl Seam {
    /// The seam of `kernel`.
    pub const fn new(kernel: &'static Kernel) -> Self {
        Self(kernel)
    }

    /// Whether the CPU takes interrupts.
    pub fn interrupts_on(self) -> bool {
        !self.0.interrupts_off.load(Ordering::Relaxed)
    }

    /// Runs an interrupt's handler as hardware enters it: with interrupts off, and on again at its return.
    ///
    /// # Panics
    /// When interrupts are off: the CPU would not have taken it.
    pub fn interrupt<R>(self, handler: impl FnOnce() -> R) -> R {
        let before = self.irq_save();
        assert!(before.were_on, "an interrupt came while interrupts were off");
        let result = handler();
        self.irq_restore(before);
        result
    }
}

impl Hal for Seam {
    type Word = AtomicWord;
    type Regs = MmioRegs;
    type Dma = HeapDma;

    // With an IOMMU that translates, the mapping is made here too.
    fn dma_alloc(self, len_bytes: usize, align_bytes: usize) -> Result<HeapDma, DmaError> {
        HeapDma::new(len_bytes, align_bytes)
    }

    // RDTSC, or CNTVCT_EL0.
    fn now_ns(self) -> u64 {
        self.0.clock_ns.fetch_add(LOOK_NS, Ordering::Relaxed)
    }

    // A per-CPU variable behind GS or TPIDR_EL1.
    fn cpu(self) -> CpuId {
        CpuId(0)
    }

    // CLI, or MSR DAIFSet.
    fn irq_save(self) -> IrqState {
        IrqState { were_on: !self.0.interrupts_off.swap(true, Ordering::Acquire) }
    }

    // STI, or MSR DAIFClr: what waits is taken there.
    fn irq_restore(self, state: IrqState) {
        self.0.interrupts_off.store(!state.were_on, Ordering::Release);
    }

    fn relax_on(self, word: &AtomicWord, seen: u64, deadline_ns: u64) {
        while word.get() == seen && self.now_ns() < deadline_ns {
            core::hint::spin_loop();
        }
    }

    fn delay_ns(self, duration_ns: u64) {
        let end_ns = self.now_ns().saturating_add(duration_ns);
        while self.now_ns() < end_ns {
            core::hint::spin_loop();
        }
    }

    // STI; HLT, or MSR DAIFClr; WFI.
    fn wait_for_interrupt(self) {
        self.irq_restore(IrqState { were_on: true });
        core::hint::spin_loop();
    }

    // A reschedule IPI; there is no other CPU.
    fn kick(self, _cpu: CpuId) {}

    // The kernel's own threads. This one has none, so what needs one (threaded handlers, say) is refused with a reason.
    fn spawn(self, _spec: ThreadSpec, _body: ThreadBody) -> Result<ThreadId, SpawnError> {
        Err(SpawnError::Exhausted(1))
    }

    fn current_thread(self) -> ThreadId {
        ThreadId(0)
    }

    fn park(self) {}

    fn wake(self, _thread: ThreadId) {}

    fn set_affinity(self, _thread: ThreadId, _affinity: &Affinity) -> Result<(), SpawnError> {
        Ok(())
    }

    fn yield_now(self) {}

    // Work costs what it costs on hardware; only the simulated machine has to be told.
    fn work(self, _work: Work, _count: u32) {}
}
