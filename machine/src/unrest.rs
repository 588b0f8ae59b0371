//! Unrest: a random schedule drawn from a seed, for checks that need every order in which things can happen.
//!
//! Without it the machine is kind: interrupts are taken at once, posted writes arrive on time, CPUs lose no time to a
//! hypervisor, and woken threads run on their last CPU. Software must not depend on any of that. With [`Unrest`] in
//! [`crate::MachineConfig`] every point of the seam may be disturbed, each [`Kind`] with its own chance. Hardware or a
//! scheduler may do all of this: order rules are kept (a register write is not overtaken by a later one to the same
//! device, nor by a read of it), waits are finite, and no interrupt is lost.
//!
//! Each kind draws from its own random stream. Models draw the same numbers as always, and switching a kind off
//! ([`Unrest::without`]) does not change the numbers of the other kinds. The same seed gives the same run.

pub mod turns;

use crate::event::ModelId;
use crate::random::Stream;
use crate::time::Ps;
use hal::ThreadId;
use std::array;
use std::cell::{Cell, RefCell};
use turns::{Schedule, Turns};

#[cfg(test)]
mod tests;

/// A kind of disturbance.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// A CPU is a little slower than it thought, at a point of the seam.
    Delay,
    /// A CPU stops for a long time: an exit to a hypervisor, a system management interrupt. Interrupts may be off
    /// then.
    Stall,
    /// Other agents act between two steps of a CPU that only owed time: at named work, posted writes and wake-ups.
    Interleave,
    /// The running thread is preempted, where that is allowed; it stays ready.
    Preempt,
    /// A posted register write arrives late, and delays later writes to the same model.
    LateWrite,
    /// A CPU takes an interrupt late although it could.
    LateAcceptance,
    /// An agent holds a cache line for longer during an update.
    SlowLine,
    /// A thread that was woken becomes ready late.
    StarvedThread,
    /// A woken thread goes to another CPU of its affinity than the scheduler would choose.
    MisplacedThread,
    /// A message or an inter-processor interrupt takes longer to reach its CPU. Messages of one path stay in order.
    LateMessage,
    /// A CPU's local timer, or the end of its thread's time slice, comes late.
    LateTimer,
    /// A plain store into memory of devices stays in its CPU's store buffer, and those behind it too: a device sees what
    /// was there before ([`crate::stores`]).
    SlowStore,
    /// A disable takes effect late in a GICv3, whose RWP says so until then; and a redistributor wakes late.
    LateDisable,
    /// A command of an ITS acts on a redistributor late, up to a SYNC that names that redistributor.
    LateCommand,
    /// A posted write to a function behind PCI Express waits for flow-control credits: far longer than other writes, and
    /// those behind it too (PCI Express Base Specification, "Flow Control": no bound is given).
    FarWrite,
    /// A reset of a virtio device, or of one of its queues, takes a while. Until its register says that it is over, the device
    /// goes on with what it has taken (VIRTIO 2.4.2, 2.6.1).
    LateReset,
    /// A device writes anything where drivers read nothing: the length of a used packed descriptor without WRITE (VIRTIO 2.8.5).
    ReservedField,
    /// A CPU is a little slower than it thought, just before it frees a lock. Who only tries the lock meanwhile does not get it.
    LateRelease,
    /// A CPU is a little slower than it thought, just behind an update of a word: others see it before the CPU does what comes
    /// next, be that a plain read or store.
    LateStep,
    /// The thread that starts another one stops just behind that. The new one may have run, and have gone to sleep, before its
    /// starter knows its number (a kernel's new thread is on another CPU's run queue before the call returns).
    LateStarter,
}

impl Kind {
    /// How many there are.
    pub const COUNT: usize = Self::ALL.len();

    /// All of them, in the order of [`Unrest::chances`].
    pub const ALL: [Self; 20] = [
        Self::Delay,
        Self::Stall,
        Self::Interleave,
        Self::Preempt,
        Self::LateWrite,
        Self::LateAcceptance,
        Self::SlowLine,
        Self::StarvedThread,
        Self::MisplacedThread,
        Self::LateMessage,
        Self::LateTimer,
        Self::SlowStore,
        Self::LateDisable,
        Self::LateCommand,
        Self::FarWrite,
        Self::LateReset,
        Self::ReservedField,
        Self::LateRelease,
        Self::LateStep,
        Self::LateStarter,
    ];

    /// Its name in options and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Delay => "delay",
            Self::Stall => "stall",
            Self::Interleave => "interleave",
            Self::Preempt => "preempt",
            Self::LateWrite => "late-write",
            Self::LateAcceptance => "late-acceptance",
            Self::SlowLine => "slow-line",
            Self::StarvedThread => "starved-thread",
            Self::MisplacedThread => "misplaced-thread",
            Self::LateMessage => "late-message",
            Self::LateTimer => "late-timer",
            Self::SlowStore => "slow-store",
            Self::LateDisable => "late-disable",
            Self::LateCommand => "late-command",
            Self::FarWrite => "far-write",
            Self::LateReset => "late-reset",
            Self::ReservedField => "reserved-field",
            Self::LateRelease => "late-release",
            Self::LateStep => "late-step",
            Self::LateStarter => "late-starter",
        }
    }
}

/// How often, and how much.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Chance {
    /// Rate per 1,000 occasions; 0: never, and no number is drawn.
    pub per_mille: u32,
    /// Times are uniform from 1 ps to this. [`Kind::Interleave`], [`Kind::Preempt`] and [`Kind::MisplacedThread`] have
    /// none.
    pub longest: Ps,
}

/// A random schedule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unrest {
    /// Seed of its streams, independent of the machine's own seed.
    pub seed: u64,
    /// No disturbance before this time.
    pub from: Ps,
    /// No disturbance at this time or later: the machine is healed.
    pub until: Ps,
    /// Indexed by `Kind as usize`.
    pub chances: [Chance; Kind::COUNT],
    /// Agents that take turns.
    pub turns: Option<Schedule>,
}

impl Unrest {
    /// Some of everything, always: rather dense, so that a history of a millisecond meets each kind. Single delays stay
    /// below a few microseconds, except for stalls, starved threads, starters of threads, commands that nobody waits for (50 µs) and
    /// far writes (60 µs).
    pub fn new(seed: u64) -> Self {
        let chance = |per_mille, longest_ns| Chance { per_mille, longest: Ps::from_ns(longest_ns) };
        let of = |kind| match kind {
            Kind::Delay => chance(50, 500),
            Kind::Stall => chance(1, 50_000),
            Kind::Interleave => chance(300, 0),
            Kind::Preempt => chance(20, 0),
            Kind::LateWrite => chance(100, 1_000),
            Kind::LateAcceptance => chance(200, 1_000),
            Kind::SlowLine => chance(100, 500),
            Kind::StarvedThread => chance(20, 50_000),
            Kind::MisplacedThread => chance(100, 0),
            Kind::LateMessage => chance(200, 1_000),
            Kind::LateTimer => chance(100, 5_000),
            Kind::SlowStore => chance(100, 500),
            Kind::LateDisable => chance(200, 2_000),
            Kind::LateCommand => chance(200, 50_000),
            Kind::FarWrite => chance(5, 60_000),
            Kind::LateReset => chance(300, 50_000),
            // It has no length; one that is not 0 says that it strikes.
            Kind::ReservedField => chance(500, 1),
            Kind::LateRelease => chance(20, 500),
            Kind::LateStep => chance(20, 500),
            // Long enough for the new thread to be woken, to run and to sleep.
            Kind::LateStarter => chance(500, 50_000),
        };
        Self { seed, from: Ps(0), until: Ps::MAX, chances: Kind::ALL.map(of), turns: None }
    }

    /// No random disturbance: agents take turns as `schedule` says.
    pub fn directed(schedule: Schedule) -> Self {
        let chances = [Chance::default(); Kind::COUNT];
        Self { seed: 0, from: Ps(0), until: Ps::MAX, chances, turns: Some(schedule) }
    }

    /// The same schedule without one kind, for shrinking a failure.
    #[must_use]
    pub fn without(mut self, kind: Kind) -> Self {
        self.chances[kind as usize] = Chance::default();
        self
    }

    /// The same with one kind's chance replaced.
    #[must_use]
    pub fn with(mut self, kind: Kind, chance: Chance) -> Self {
        self.chances[kind as usize] = chance;
        self
    }
}

/// The draws of one kind. Most come to nothing, so it looks ahead to the next that does, and counts down to it.
struct Draws {
    chance: Chance,
    stream: RefCell<Stream>,
    /// So many more come to nothing.
    misses: Cell<u32>,
    /// The number behind them.
    hit: Cell<u64>,
    /// Those that happened.
    count: Cell<u64>,
}

impl Draws {
    fn new(chance: Chance, stream: Stream) -> Self {
        let this =
            Self { chance, stream: RefCell::new(stream), misses: Cell::new(0), hit: Cell::new(0), count: Cell::new(0) };
        if chance.per_mille > 0 {
            this.look_ahead();
        }
        this
    }

    /// The low half of a number decides, the high half says how.
    fn look_ahead(&self) {
        let mut stream = self.stream.borrow_mut();
        let happens = |number: u64| (u64::from(number as u32) * 1000) >> 32 < self.chance.per_mille.into();
        let mut misses = 0;
        let hit = loop {
            let number = stream.next();
            if happens(number) {
                break number;
            }
            misses += 1;
        };
        self.misses.set(misses);
        self.hit.set(hit >> 32);
    }

    #[inline]
    fn draw(&self) -> Option<u64> {
        if let Some(left) = self.misses.get().checked_sub(1) {
            self.misses.set(left);
            return None;
        }
        let number = self.hit.get();
        self.count.set(self.count.get() + 1);
        self.look_ahead();
        Some(number)
    }
}

/// State of the schedule while the machine runs.
pub(crate) struct State {
    from: Ps,
    until: Ps,
    draws: [Draws; Kind::COUNT],
    /// By model, the time until which posted writes are in flight.
    writes_until: RefCell<Vec<Ps>>,
    /// Threads whose waking is delayed.
    starved: RefCell<Vec<ThreadId>>,
    /// Agents that take turns.
    pub(crate) turns: Option<Turns>,
}

impl State {
    pub(crate) fn new(config: Unrest) -> Self {
        Self {
            from: config.from,
            until: config.until,
            draws: array::from_fn(|kind| Draws::new(config.chances[kind], Stream::new(config.seed, kind as u64))),
            writes_until: RefCell::default(),
            starved: RefCell::default(),
            turns: config.turns.map(Turns::new),
        }
    }

    /// Returns a random number if a disturbance of this kind happens now.
    #[inline]
    pub(crate) fn draw(&self, kind: Kind, now: Ps) -> Option<u64> {
        let draws = &self.draws[kind as usize];
        if draws.chance.per_mille == 0 || now < self.from || now >= self.until {
            return None;
        }
        draws.draw()
    }

    /// Returns the duration if a disturbance of this kind happens now.
    #[inline]
    pub(crate) fn late(&self, kind: Kind, now: Ps) -> Option<Ps> {
        let longest = self.draws[kind as usize].chance.longest;
        let number = self.draw(kind, now)?;
        Some(Ps(1 + ((u128::from(number) * u128::from(longest.0)) >> 32) as u64))
    }

    /// Posted writes to `model` that are on their way arrive before one that `arrival` places, from `earliest` on.
    /// Returns when that one arrives.
    pub(crate) fn after_writes(&self, model: ModelId, earliest: Ps, arrival: impl FnOnce(Ps) -> Ps) -> Ps {
        let mut writes_until = self.writes_until.borrow_mut();
        if writes_until.len() <= model.0 as usize {
            writes_until.resize(model.0 as usize + 1, Ps(0));
        }
        let until = &mut writes_until[model.0 as usize];
        *until = arrival(earliest.max(*until));
        *until
    }

    /// The time until which posted writes to `model` are in flight.
    pub(crate) fn writes_until(&self, model: ModelId) -> Ps {
        self.writes_until.borrow().get(model.0 as usize).copied().unwrap_or_default()
    }

    /// True while the waking of this thread is delayed.
    pub(crate) fn is_starved(&self, thread: ThreadId) -> bool {
        self.starved.borrow().contains(&thread)
    }

    /// Delays the waking of this thread.
    pub(crate) fn starve(&self, thread: ThreadId) {
        self.starved.borrow_mut().push(thread);
    }

    /// The thread is woken now.
    pub(crate) fn end_starving(&self, thread: ThreadId) {
        self.starved.borrow_mut().retain(|&other| other != thread);
    }

    pub(crate) fn counts(&self) -> [u64; Kind::COUNT] {
        array::from_fn(|kind| self.draws[kind].count.get())
    }
}
