//! The seam: everything that interrupt and driver code asks of its world.
//!
//! [`Hal`] is implemented three times: by the simulated machine (zero-sized, found through a thread-local), by the
//! bare-metal images (real registers) and by whoever embeds Campanile. It is narrow on purpose: on hardware each call
//! compiles to the bare instruction, on the machine each call is a *point of the seam* at which simulated time passes
//! and other agents act.
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
pub use thread::{Affinity, SpawnError, ThreadBody, ThreadId, ThreadSpec};
pub use word::Word;
pub use work::Work;

/// What the code asks of its world.
///
/// `Copy` and free of state of its own, so that drivers keep a value of it instead of a reference.
pub trait Hal: Copy + Send + Sync + 'static {
    /// A 64-bit word that several agents write.
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

    /// The CPU this runs on. Stable only while interrupts or preemption are off.
    fn cpu(self) -> CpuId;

    /// Turns interrupts off on this CPU and returns what they were. A point when they were on.
    fn irq_save(self) -> IrqState;

    /// Restores what [`Hal::irq_save`] returned. A point when it turns them on: pending interrupts are taken here.
    fn irq_restore(self, state: IrqState);

    /// Waits until `word` no longer reads `seen`, or until `deadline_ns` (`u64::MAX`: none) has passed. A point.
    /// May return early; the caller looks again. Interrupts stay as they are.
    fn relax_on(self, word: &Self::Word, seen: u64, deadline_ns: u64);

    /// Lets `duration_ns` pass busily, for registers that can only be polled. A point.
    fn delay_ns(self, duration_ns: u64);

    /// Turns interrupts on and waits for one; returns after it was handled. A point.
    fn wait_for_interrupt(self);

    /// Asks `cpu` to look at its run queue (a reschedule IPI). Owed.
    fn kick(self, cpu: CpuId);

    /// Starts a thread.
    ///
    /// # Errors
    /// [`SpawnError`] when the affinity names no CPU of this world.
    fn spawn(self, spec: ThreadSpec, body: ThreadBody) -> Result<ThreadId, SpawnError>;

    /// The running thread. An interrupt handler sees the thread that it interrupted.
    fn current_thread(self) -> ThreadId;

    /// Sleeps until [`Hal::wake`], or returns at once when one came since the last `park`. A point. Threads only.
    fn park(self);

    /// Ends the next or current [`Hal::park`] of `thread`. Owed; may be called from interrupt context.
    fn wake(self, thread: ThreadId);

    /// Lets `thread` run on `affinity` only, from its next [`Hal::wake`] on; until then it stays where it is. Owed; may
    /// be called from interrupt context.
    ///
    /// # Errors
    /// [`SpawnError::NoCpu`] when the affinity names no CPU of this world; the old one stays.
    fn set_affinity(self, thread: ThreadId, affinity: &Affinity) -> Result<(), SpawnError>;

    /// Lets other threads of this CPU run. A point.
    fn yield_now(self);

    /// Names `count` units of work that was just done. Free on hardware, owed on the machine, whose platform file
    /// says what a unit costs.
    fn work(self, work: Work, count: u32);
}
