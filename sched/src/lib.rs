//! One small scheduler, shared by the simulated machine and the bare-metal images.
//!
//! It is a pure state machine. It records which threads are ready on which CPU, and chooses who runs next. The caller
//! switches stacks, sends the kicks and supplies the time. The caller also locks: every change takes `&mut self`.
//!
//! - Each CPU has a queue of urgent and one of normal threads. Urgent ones run first and until they park (SCHED_FIFO);
//!   normal ones take turns of one time slice (SCHED_RR). A preempted thread keeps its place and the rest of its slice.
//! - A woken thread goes to its last CPU if that is idle, else to an idle CPU that its affinity allows, else to its last
//!   CPU, or if that is offline to another that its affinity allows. Of several CPUs it takes the first behind its last one,
//!   round. There is no work stealing: a queued thread moves only when its CPU goes offline. A scheduler that is given a
//!   [`Topology`] places, wakes and moves threads as Linux does instead, as long as their last CPU is online.
//! - A CPU with nothing to run idles *on the stack of the thread that ran last*. That stack is lent: the thread, when
//!   woken, is queued there and nowhere else until the CPU has given the stack back (see
//!   [`Scheduler::lent_to_idle`]). A caller whose CPUs run in parallel holds its lock from [`Scheduler::pick`] until it
//!   stands on the new stack.
//!
//! Only [`Scheduler::new`] and [`Scheduler::spawn`] allocate. Picks and wakes take constant time, apart from the
//! search of the idle mask (one word for 64 CPUs).
#![no_std]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod mask;
mod placement;
mod queue;
mod scheduler;
mod topology;

pub use scheduler::{Choice, Scheduler, State};
pub use topology::Topology;
