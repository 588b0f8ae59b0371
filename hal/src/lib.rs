//! The seam: everything that interrupt and driver code asks of its world.
//!
//! The seam is divided by what a kernel can give:
//! - [`Hal`] is what every driver needs: registers, DMA memory, shared words, a clock, the CPU and its interrupts.
//! - [`Threads`] is for kernels that have threads. Code that starts a thread has the bound `H: Threads`: threaded
//!   interrupt handlers, the threads of polling and moderation. A kernel without threads implements [`Hal`] alone, and
//!   such code does not compile there. Everything else works, in both kinds of kernel. Code that only wakes a thread
//!   which others have started does not need the bound ([`KernelThreads`]).
//!
//! Both traits are implemented by the simulated machine (zero-sized, found through a thread-local), by the bare-metal
//! images (real registers) and by whoever embeds Campanile, who finds the parts for real hardware in the crate `metal`
//! and a whole implementation in `examples/seam`. They are narrow on purpose: on hardware each call compiles
//! to the bare instruction, on the machine each call is a *point of the seam* at which simulated time passes and other
//! agents act.
//!
//! Three kinds of call, told apart in the docs of each:
//! - **free**: costs nothing and lets nobody else act ([`Word::get`], [`Word::set`], [`Hal::now_ns`]);
//! - **owed**: adds to a debt of time that the next point settles ([`Hal::work`], a posted register write);
//! - **point**: settles the debt; everything another agent could have changed in the meantime has then changed.
#![no_std]
extern crate alloc;
#[cfg(feature = "host")]
extern crate std;

mod cpu;
mod dma;
mod heap;
#[cfg(feature = "host")]
pub mod host;
mod lock;
mod published;
mod regs;
mod thread;
mod word;
mod work;

pub use cpu::{CpuId, CpuSet, IrqState};
pub use dma::{DeviceAddress, Dma, DmaError, DmaExchange128};
pub use heap::{AtomicWord, HeapDma};
pub use lock::{Lock, LockGuard};
pub use published::Published;
pub use regs::Regs;
pub use thread::{Affinity, KernelThreads, SpawnError, ThreadBody, ThreadId, ThreadOps, ThreadSpec, Threads};
pub use word::Word;
pub use work::Work;

/// The services that every driver needs.
///
/// `Copy` and free of state of its own, so that drivers keep a value of it instead of a reference.
pub trait Hal: Copy + Send + Sync + 'static {
    /// A 64-bit word that several agents read and write.
    type Word: Word;
    /// A window of device registers.
    type Regs: Regs;
    /// Memory that a device reads and writes.
    type Dma: Dma<Word = Self::Word>;

    /// Memory of `len_bytes` that devices can address, zeroed, aligned to `align_bytes` (a power of two).
    ///
    /// # Errors
    /// [`DmaError`] when the length is zero, the alignment is no power of two, or memory has run out.
    fn dma_alloc(self, len_bytes: usize, align_bytes: usize) -> Result<Self::Dma, DmaError>;

    /// Monotonic time in nanoseconds. Free; includes the debt.
    fn now_ns(self) -> u64;

    /// The CPU that runs this code. Stable only while interrupts or preemption are off.
    fn cpu(self) -> CpuId;

    /// Turns interrupts off on this CPU and returns their former state. A point if they were on.
    fn irq_save(self) -> IrqState;

    /// Restores the state from [`Hal::irq_save`]. A point if it turns interrupts on: pending ones are taken here.
    fn irq_restore(self, state: IrqState);

    /// Waits until `word` no longer reads `seen`, or until `deadline_ns` (`u64::MAX`: none) has passed. A point.
    /// May return early; the caller looks again. Interrupts stay as they are.
    fn relax_on(self, word: &Self::Word, seen: u64, deadline_ns: u64);

    /// Waits for `duration_ns` without sleeping, for registers that can only be polled. A point.
    fn delay_ns(self, duration_ns: u64);

    /// Turns interrupts on and waits for one; returns after it was handled. A point.
    fn wait_for_interrupt(self);

    /// Reports `count` units of work that was just done. Free on hardware. Owed on the machine, whose platform file
    /// gives the cost of a unit.
    fn work(self, work: Work, count: u32);
}
