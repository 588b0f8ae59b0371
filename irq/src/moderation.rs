//! Adaptive interrupt moderation: the delay and the number of completions that a device may gather into one interrupt.
//!
//! A [`Controller`] is a pure state machine. Its embedder reports what each interrupt and each poll found, with the
//! time. At times the controller answers [`Next::Program`]. The embedder then queues deferred work, outside the
//! interrupt. The work asks [`Controller::step`] for the level, programs the device, and reports the result with
//! [`Controller::programmed`]. Nothing here reads a clock, waits, or allocates after construction.
//!
//! ```text
//! interrupt, poll ──► Controller ── Next::Program ──► deferred work: step() ─► device
//!                         ▲                                                      │
//!                         └──────────── programmed(Done | Failed) ◄──────────────┘
//! ```
//!
//! Four controllers share this interface. [`Adaptive`] is our own and the default. Three published ones serve for
//! comparison: [`IrqAm`] (RFC "irq-am", 2018), [`RdmaDim`] and [`NetDim`] (Linux lib/dim). They behave as published,
//! faults included; the docs of each name the faults.
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
//! A [`Tuner`] adds a lock and a thread: interrupts and polls feed it, and a [`Programmer`] programs the device.

mod adaptive;
mod change;
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
pub use tuner::{Handover, Moderated, Programmer, Restores, Served, Tuner, Tuning};
pub use view::{Counts, TuningView};

use alloc::boxed::Box;
use core::fmt;

/// The caller's next step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a step that is never programmed is counted as late"]
pub enum Next {
    /// None: the controller measures.
    Measure,
    /// Queue the deferred work that calls [`Controller::step`]. Returned once per step.
    Program,
}

/// Decides the level of moderation of one device, queue or vector, whichever the consumer's table describes.
///
/// Times come from one monotonic clock, in nanoseconds. A time before the last one counts as the same instant.
pub trait Controller: Send {
    /// An interrupt was served and found these completions, possibly none.
    fn interrupt(&mut self, now_ns: u64, found: Found) -> Next;

    /// A poll without an interrupt found this much.
    fn polled(&mut self, now_ns: u64, found: Found) -> Next;

    /// When to call [`Controller::elapsed`] if nothing else is called before; none if no call is needed.
    fn deadline_ns(&self) -> Option<u64>;

    /// Time has passed without an interrupt or a poll.
    fn elapsed(&mut self, now_ns: u64) -> Next;

    /// The step to program now; none when it was withdrawn. The caller takes the step and must answer it.
    fn step(&self) -> Option<Step>;

    /// The outcome of step `id`. An answer to a step that the controller does not wait for is only counted.
    fn programmed(&mut self, now_ns: u64, id: u32, outcome: Outcome) -> Next;

    /// The level in effect, as far as the controller knows. It starts at 0 (net_dim: 1). The consumer programs this
    /// first level before any other call.
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

    /// Builds a controller over `table`. `nr_events` interrupts make a sample; the two lib/dim controllers always take
    /// 64.
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
