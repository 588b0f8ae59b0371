//! Adaptive interrupt moderation: which delay and how many completions a device may gather into one interrupt.
//!
//! A [`Controller`] is a pure state machine. It is told what each interrupt and each poll found, with the time, and
//! says now and then [`Next::Program`]. Whoever embeds it then queues deferred work, outside the interrupt; the work
//! asks [`Controller::step`] for the level, programs the device, and reports with [`Controller::programmed`] what
//! became of it. Nothing here reads a clock, waits, or allocates after construction.
//!
//! ```text
//! interrupt, poll ──► Controller ── Next::Program ──► deferred work: step() ─► device
//!                         ▲                                                      │
//!                         └──────────── programmed(Done | Failed) ◄──────────────┘
//! ```
//!
//! Behind the one interface stand [`Adaptive`], which is ours and the default, and three published ones to compare
//! with: [`IrqAm`] (RFC "irq-am", 2018), [`RdmaDim`] and [`NetDim`] (Linux lib/dim). Those behave as published,
//! faults included; the docs of each name them.
//!
//! ```
//! use campanile_irq::moderation::{Algorithm, Found, LevelTable, Next, Outcome};
//!
//! let table = LevelTable::new(LevelTable::RDMA_DIM)?;
//! let mut controller = Algorithm::Adaptive.build(table, 64)?;
//! // In the interrupt, with what it found and the time:
//! if controller.interrupt(4_300, Found::completions(1)) == Next::Program {
//!     // In deferred work:
//!     if let Some(step) = controller.step() {
//!         let _ = controller.programmed(5_000, step.id, Outcome::Done(step.setting));
//!     }
//! }
//! assert_eq!(controller.level(), 0);
//! # Ok::<(), campanile_irq::moderation::LevelError>(())
//! ```
//!
//! A [`Tuner`] is that with the lock and the thread: interrupts and polls feed it, a [`Programmer`] programs.

mod adaptive;
mod dim;
mod irq_am;
mod level;
mod program;
mod sample;
mod search;
#[cfg(test)]
mod tests;
mod tuner;
mod view;

pub use adaptive::{Adaptive, AdaptiveConfig};
pub use dim::{NetDim, RdmaDim};
pub use irq_am::IrqAm;
pub use level::{LevelError, LevelTable, Setting};
pub use program::{Outcome, Step};
pub use sample::{Found, Sample};
pub use tuner::{Handover, Moderated, Programmer, Served, Tuner, Tuning};
pub use view::{Counts, TuningView};

use alloc::boxed::Box;
use core::fmt;

/// What the caller has to do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a step that is never programmed is counted as late"]
pub enum Next {
    /// Nothing; the controller measures.
    Measure,
    /// Queue the deferred work that calls [`Controller::step`]. Said once a step.
    Program,
}

/// Decides on the level of moderation of one device, queue or vector, whatever the consumer's table stands for.
///
/// Times are of one monotonic clock, in nanoseconds. A time before the last one is taken as the same instant.
pub trait Controller: Send {
    /// An interrupt was served and found this much, which may be nothing.
    fn interrupt(&mut self, now_ns: u64, found: Found) -> Next;

    /// Somebody looked without an interrupt and found this much.
    fn polled(&mut self, now_ns: u64, found: Found) -> Next;

    /// When [`Controller::elapsed`] wants to be called if nothing else is; none when it need not be.
    fn deadline_ns(&self) -> Option<u64>;

    /// Time has passed without an interrupt or a poll.
    fn elapsed(&mut self, now_ns: u64) -> Next;

    /// The step to program now; none when it has been withdrawn. Who asks takes it, and answers.
    fn step(&self) -> Option<Step>;

    /// What became of step `id`. An answer to a step that nobody waits for is counted and otherwise ignored.
    fn programmed(&mut self, now_ns: u64, id: u32, outcome: Outcome) -> Next;

    /// The level in effect, as far as the controller knows. At first 0 (net_dim: 1), which the consumer programs before
    /// it calls anything else.
    fn level(&self) -> usize;

    /// The state of the tuning, for people.
    fn view(&self) -> TuningView;
}

/// The controllers, by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Algorithm {
    /// [`Adaptive`].
    #[default]
    Adaptive,
    /// [`IrqAm`].
    IrqAm,
    /// [`RdmaDim`].
    RdmaDim,
    /// [`NetDim`].
    NetDim,
}

impl Algorithm {
    /// All of them, ours first.
    pub const ALL: [Self; 4] = [Self::Adaptive, Self::IrqAm, Self::RdmaDim, Self::NetDim];

    /// A controller over `table`. `nr_events` interrupts make a sample; the two of lib/dim always take 64.
    ///
    /// # Errors
    /// [`LevelError::Events`] when `nr_events` is 0.
    pub fn build(self, table: LevelTable, nr_events: u16) -> Result<Box<dyn Controller>, LevelError> {
        if nr_events == 0 {
            return Err(LevelError::Events);
        }
        Ok(match self {
            Self::Adaptive => {
                Box::new(Adaptive::new(table, AdaptiveConfig { nr_events: nr_events.into(), ..Default::default() }))
            }
            Self::IrqAm => Box::new(IrqAm::new(table, nr_events)),
            Self::RdmaDim => Box::new(RdmaDim::new(table)),
            Self::NetDim => Box::new(NetDim::new(table)),
        })
    }

    /// Its name, as people write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Adaptive => "adaptive",
            Self::IrqAm => "irq-am",
            Self::RdmaDim => "rdma_dim",
            Self::NetDim => "net_dim",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
