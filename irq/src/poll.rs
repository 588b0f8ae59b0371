//! Budgeted polling with weights: irq-poll (Linux lib/irq_poll.c) as a pure state machine.
//!
//! A driver's interrupt finds work, masks itself and [`schedule`](PollList::schedule)s its instance. The CPU's
//! deferred work then polls all scheduled instances in turn, each for at most its weight, until a budget of
//! completions or of time is spent:
//!
//! ```text
//! begin ─► next ─► Poll(id, weight): poll the queue ─► polled ─► Requeued: it had a full weight of work, to the tail
//!            ▲  │                                        │   └─► Complete: re-enable its interrupt, and look once more
//!            │  ├─► Spent: queue the deferred work again │
//!            │  └─► Idle: done                           │
//!            └───────────────────────────────────────────┘
//! ```
//!
//! After `Complete` the caller re-enables the interrupt and then looks at the queue once more: a completion that came
//! before the re-enabling may have raised no interrupt. If the look finds something, the caller masks and schedules
//! again.
//!
//! A list belongs to one CPU. It is called there with interrupts off. [`SoftPoll`] does that: it runs every CPU's list
//! at the end of its interrupts. Not implemented: handing a list on when its CPU goes offline.

mod soft;

pub use soft::{Polled, SoftId, SoftPoll};

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;
use hal::CpuId;

/// An instance of a list: the queue or device that one driver polls.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PollId(pub u32);

/// The bounds of one run of the deferred work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PollConfig {
    /// Completions.
    pub budget: u32,
    /// Time, in nanoseconds.
    pub time_ns_max: u64,
}

impl Default for PollConfig {
    /// As Linux: 256 completions; or 2 ms, where Linux ends when its tick has moved on (1 to 10 ms).
    fn default() -> Self {
        Self { budget: 256, time_ns_max: 2_000_000 }
    }
}

/// Why a list refused a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PollError {
    /// A budget of 0 would never poll.
    Budget,
    /// A weight of 0 would never end.
    Weight,
    /// The list has no such instance; it has only this many.
    NoInstance(PollId, usize),
    /// This instance was not handed out for polling.
    NotPolled(PollId),
    /// This CPU has no list; there are only this many lists.
    NoCpu(CpuId, usize),
}

impl fmt::Display for PollError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Budget => write!(f, "a budget of 0 completions; at least 1 is needed"),
            Self::Weight => write!(f, "a weight of 0 completions; at least 1 is needed"),
            Self::NoInstance(id, count) => write!(f, "no poll instance {} among the {count} of this list", id.0),
            Self::NotPolled(id) => write!(f, "poll instance {} reports work but was not handed out", id.0),
            Self::NoCpu(cpu, count) => write!(f, "no poll list for CPU {cpu} among the {count}"),
        }
    }
}

impl core::error::Error for PollError {}

/// The result of a request to be polled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "after Raise the deferred work must be queued"]
pub enum Scheduled {
    /// The instance is on the list, and the caller must queue the deferred work.
    Raise,
    /// The instance is on the list. The deferred work runs or is queued already.
    Queued,
    /// The instance is disabled; the list ignored the request.
    Disabled,
}

/// The next turn of the deferred work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// Poll this instance for at most so many completions, then report to [`PollList::polled`].
    Poll(PollId, u32),
    /// The budget or the time is spent and instances wait: queue the deferred work again.
    Spent,
    /// No instance waits.
    Idle,
}

/// The place of an instance after its turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a completed instance gets no further turn until its interrupt is re-enabled"]
pub enum After {
    /// At the tail of the list.
    Requeued,
    /// Off the list: re-enable its interrupt, then look once more.
    Complete,
    /// Off the list because it was disabled meanwhile; its interrupt stays masked.
    Disabled,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Off,
    Listed,
    /// Being polled. `again` is set if it was scheduled meanwhile.
    Polled {
        again: bool,
    },
}

#[derive(Clone, Copy, Debug)]
struct Instance {
    weight: u32,
    state: State,
    disabled: bool,
}

/// One CPU's list.
#[derive(Debug)]
pub struct PollList {
    config: PollConfig,
    instances: Vec<Instance>,
    queue: VecDeque<PollId>,
    /// The instance that is handed out and not reported yet.
    polled: Option<PollId>,
    left: u32,
    deadline_ns: u64,
    /// This run has had a turn: the first is had however late it comes, or a limit that a stall exceeds would keep instances
    /// from ever being polled.
    has_polled: bool,
    /// The deferred work is queued or runs.
    raised: bool,
    overruns: u64,
}

impl PollList {
    /// An empty list.
    ///
    /// # Errors
    /// [`PollError::Budget`] when the budget is 0.
    pub fn new(config: PollConfig) -> Result<Self, PollError> {
        if config.budget == 0 {
            return Err(PollError::Budget);
        }
        Ok(Self {
            config,
            instances: Vec::new(),
            queue: VecDeque::new(),
            polled: None,
            left: 0,
            deadline_ns: 0,
            has_polled: false,
            raised: false,
            overruns: 0,
        })
    }

    /// Adds an instance that is polled for at most `weight` completions per turn. Only this method allocates.
    ///
    /// # Errors
    /// [`PollError::Weight`] when the weight is 0.
    pub fn add(&mut self, weight: u32) -> Result<PollId, PollError> {
        if weight == 0 {
            return Err(PollError::Weight);
        }
        let id = PollId(self.instances.len() as u32);
        self.instances.push(Instance { weight, state: State::Off, disabled: false });
        self.queue.reserve(self.instances.len() - self.queue.len());
        Ok(id)
    }

    fn instance(&mut self, id: PollId) -> Result<&mut Instance, PollError> {
        let count = self.instances.len();
        self.instances.get_mut(id.0 as usize).ok_or(PollError::NoInstance(id, count))
    }

    /// Requests a poll of `id`; its interrupt should be masked. A second request has no effect, except that an
    /// instance that is just being polled gets another turn.
    ///
    /// # Errors
    /// [`PollError::NoInstance`].
    pub fn schedule(&mut self, id: PollId) -> Result<Scheduled, PollError> {
        let instance = self.instance(id)?;
        if instance.disabled {
            return Ok(Scheduled::Disabled);
        }
        match instance.state {
            State::Off => {
                instance.state = State::Listed;
                self.queue.push_back(id);
            }
            State::Listed => {}
            State::Polled { .. } => instance.state = State::Polled { again: true },
        }
        Ok(if core::mem::replace(&mut self.raised, true) { Scheduled::Queued } else { Scheduled::Raise })
    }

    /// The deferred work begins.
    pub fn begin(&mut self, now_ns: u64) {
        self.left = self.config.budget;
        self.deadline_ns = now_ns.saturating_add(self.config.time_ns_max);
        self.has_polled = false;
        self.raised = true;
    }

    /// Returns what to do now. It repeats the same turn until the caller reports it. After [`Turn::Spent`] and
    /// [`Turn::Idle`] the deferred work ends.
    pub fn next(&mut self, now_ns: u64) -> Turn {
        if let Some(id) = self.polled {
            return Turn::Poll(id, self.instances[id.0 as usize].weight);
        }
        let Some(&id) = self.queue.front() else {
            self.raised = false;
            return Turn::Idle;
        };
        if self.left == 0 || self.has_polled && now_ns >= self.deadline_ns {
            return Turn::Spent;
        }
        self.queue.pop_front();
        self.has_polled = true;
        self.polled = Some(id);
        let instance = &mut self.instances[id.0 as usize];
        instance.state = State::Polled { again: false };
        Turn::Poll(id, instance.weight)
    }

    /// Reports that instance `id` was polled and did this much `work`. More work than its weight is a fault of the
    /// driver: it is counted, and taken from the budget.
    ///
    /// # Errors
    /// [`PollError::NoInstance`]; [`PollError::NotPolled`] when it was not its turn.
    pub fn polled(&mut self, id: PollId, work: u32) -> Result<After, PollError> {
        let instance = self.instance(id)?;
        let State::Polled { again } = instance.state else { return Err(PollError::NotPolled(id)) };
        let (weight, disabled) = (instance.weight, instance.disabled);
        let requeue = !disabled && (again || work >= weight);
        instance.state = if requeue { State::Listed } else { State::Off };
        if requeue {
            self.queue.push_back(id);
        }
        self.polled = None;
        self.left = self.left.saturating_sub(work);
        self.overruns += u64::from(work > weight);
        Ok(match (disabled, requeue) {
            (true, _) => After::Disabled,
            (_, true) => After::Requeued,
            _ => After::Complete,
        })
    }

    /// Takes `id` off the list until [`PollList::enable`]. Returns false while it is being polled: the end of its turn
    /// then returns [`After::Disabled`].
    ///
    /// # Errors
    /// [`PollError::NoInstance`].
    pub fn disable(&mut self, id: PollId) -> Result<bool, PollError> {
        let instance = self.instance(id)?;
        instance.disabled = true;
        if instance.state == State::Listed {
            instance.state = State::Off;
            self.queue.retain(|&listed| listed != id);
        }
        Ok(self.instance(id)?.state == State::Off)
    }

    /// Allows `id` to be scheduled again. Requests made meanwhile were ignored, so the caller looks at the queue.
    ///
    /// # Errors
    /// [`PollError::NoInstance`].
    pub fn enable(&mut self, id: PollId) -> Result<(), PollError> {
        self.instance(id)?.disabled = false;
        Ok(())
    }

    /// Turns that did more than their weight.
    pub fn overruns(&self) -> u64 {
        self.overruns
    }
}

#[cfg(test)]
mod tests;
