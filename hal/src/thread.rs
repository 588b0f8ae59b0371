//! Threads, for kernels that have them.

use crate::{CpuId, CpuSet, Hal};
use alloc::boxed::Box;
use core::fmt;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

/// The services that threaded code needs, in addition to [`Hal`].
pub trait Threads: Hal {
    /// Starts a thread.
    ///
    /// # Errors
    /// [`SpawnError`] when the affinity names no CPU of this world, or there is no room for another thread.
    fn spawn(self, spec: ThreadSpec, body: ThreadBody) -> Result<ThreadId, SpawnError>;

    /// The running thread. In an interrupt handler, it is the interrupted thread.
    fn current_thread(self) -> ThreadId;

    /// Sleeps until [`Threads::wake`]. Returns at once if a wake came since the last `park`. A point. Must not be
    /// called from an interrupt.
    fn park(self);

    /// Ends the next or current [`Threads::park`] of `thread`. Owed; may be called from interrupt context.
    fn wake(self, thread: ThreadId);

    /// Lets `thread` run on `affinity` only, from its next [`Threads::wake`] on; until then it stays where it is, unless it
    /// waits for a CPU that is offline. Owed; may be called from interrupt context.
    ///
    /// # Errors
    /// [`SpawnError::NoCpu`] when the affinity names no CPU of this world; the old one stays.
    fn set_affinity(self, thread: ThreadId, affinity: &Affinity) -> Result<(), SpawnError>;

    /// Lets other threads of this CPU run. A point.
    fn yield_now(self);
}

/// The functions of [`Threads`] as values, for code that uses threads without the bound.
#[expect(missing_docs, reason = "each field is the function of the trait by that name")]
pub struct ThreadOps<H> {
    pub spawn: fn(H, ThreadSpec, ThreadBody) -> Result<ThreadId, SpawnError>,
    pub current_thread: fn(H) -> ThreadId,
    pub park: fn(H),
    pub wake: fn(H, ThreadId),
    pub set_affinity: fn(H, ThreadId, &Affinity) -> Result<(), SpawnError>,
    pub yield_now: fn(H),
}

impl<H: Threads> ThreadOps<H> {
    /// The functions of `H`.
    pub const OF: &'static Self = &Self {
        spawn: H::spawn,
        current_thread: H::current_thread,
        park: H::park,
        wake: H::wake,
        set_affinity: H::set_affinity,
        yield_now: H::yield_now,
    };
}

/// The threads of a kernel that may have none. They are unknown until code with the bound `H: Threads` makes them
/// known.
///
/// Code that starts a thread calls [`KernelThreads::know`]; code that only wakes a thread looks here. Both are
/// ordinary loads and stores, free on the machine.
pub struct KernelThreads<H>(AtomicPtr<ThreadOps<H>>);

impl<H: Hal> KernelThreads<H> {
    /// No threads known.
    pub const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// Makes the kernel's threads known, and returns them.
    pub fn know(&self) -> &'static ThreadOps<H>
    where
        H: Threads,
    {
        self.0.store(ptr::from_ref(ThreadOps::OF).cast_mut(), Ordering::Release);
        ThreadOps::OF
    }

    /// The kernel's threads; none before [`KernelThreads::know`].
    #[inline]
    pub fn get(&self) -> Option<&'static ThreadOps<H>> {
        // SAFETY: the pointer is null or `ThreadOps::OF`, which is never written and lives for ever.
        #[allow(unsafe_code)]
        unsafe {
            self.0.load(Ordering::Acquire).as_ref()
        }
    }

    /// As [`Threads::wake`]. A caller with a thread's id implies that the threads are known; otherwise there is none
    /// to wake.
    #[inline]
    pub fn wake(&self, hal: H, thread: ThreadId) {
        if let Some(threads) = self.get() {
            (threads.wake)(hal, thread);
        }
    }
}

impl<H: Hal> Default for KernelThreads<H> {
    fn default() -> Self {
        Self::new()
    }
}

/// A thread's number; never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ThreadId(pub u32);

/// The function that a thread runs.
pub type ThreadBody = Box<dyn FnOnce() + Send>;

/// The CPUs on which a thread may run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Affinity {
    /// On any CPU.
    Any,
    /// On this CPU only.
    Cpu(CpuId),
    /// On these CPUs only.
    Set(CpuSet),
}

/// The properties of a thread to start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ThreadSpec {
    /// The name that traces show.
    pub name: &'static str,
    /// The CPUs on which it may run.
    pub affinity: Affinity,
    /// True if it runs before every thread that is not urgent, as interrupt threads do (SCHED_FIFO).
    pub urgent: bool,
}

/// Why a thread could not be started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SpawnError {
    /// The affinity names no CPU of this world, which has this many.
    NoCpu(CpuSet, u32),
    /// No room for another thread; this many exist.
    Exhausted(u32),
}

impl fmt::Display for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCpu(set, count) => {
                write!(f, "thread affinity {set} has no CPU of 0 to {}", count.saturating_sub(1))
            }
            Self::Exhausted(count) => write!(f, "no room for another thread beside {count}"),
        }
    }
}

impl core::error::Error for SpawnError {}
