//! The seam in a foreign kernel: [`hal::Hal`] on nothing but `core`, `alloc` and `metal`.
//!
//! This is the minimum that a kernel must provide to run `irq/` and `drivers/`: one CPU, memory mapped one to one, no
//! threads. A kernel that has threads implements [`hal::Threads`] too.
//!
//! [`Bare`] is that seam on hardware, made of the parts in `metal`: some forty lines, to copy and to change. The
//! kernel only has to add the clock's rate and the windows of registers.
//!
//! [`Seam`] is the same for a host's user mode, which can neither turn interrupts off nor halt. The tests of the other
//! examples run on it. A [`Seam`] is a reference to the kernel's own state. Nothing is global, so a test can have many
//! kernels.
#![no_std]

mod bare;

pub use bare::{Bare, CLOCK};

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use hal::{AtomicWord, CpuId, DmaError, Hal, HeapDma, IrqState, Word, Work};
use metal::Mmio;

/// Nanoseconds that each read of the clock adds, so that a poll with a deadline ends.
const LOOK_NS: u64 = 20;

/// The kernel's state for its one CPU.
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

    /// True while the CPU takes interrupts.
    pub fn interrupts_on(self) -> bool {
        !self.0.interrupts_off.load(Ordering::Relaxed)
    }

    /// Runs an interrupt handler as hardware does: interrupts are off during the handler, and on again after it.
    ///
    /// # Panics
    /// When interrupts are off: the CPU would not have taken the interrupt.
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
    type Regs = Mmio;
    type Dma = HeapDma;

    fn dma_alloc(self, len_bytes: usize, align_bytes: usize) -> Result<HeapDma, DmaError> {
        HeapDma::new(len_bytes, align_bytes)
    }

    fn now_ns(self) -> u64 {
        self.0.clock_ns.fetch_add(LOOK_NS, Ordering::Relaxed)
    }

    fn cpu(self) -> CpuId {
        CpuId(0)
    }

    fn irq_save(self) -> IrqState {
        IrqState { were_on: !self.0.interrupts_off.swap(true, Ordering::Acquire) }
    }

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

    fn wait_for_interrupt(self) {
        self.irq_restore(IrqState { were_on: true });
        core::hint::spin_loop();
    }

    fn work(self, _work: Work, _count: u32) {}
}
