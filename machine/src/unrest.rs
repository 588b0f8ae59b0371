//! Unrest: a schedule that a seed draws, for checks that want to see every order in which things can happen.
//!
//! Without it the machine is kind: interrupts are taken at once, posted writes arrive at their time, CPUs lose no time
//! to a hypervisor, woken threads run where they did last. Software must be right without all of that. With
//! [`Unrest`] in [`crate::MachineConfig`] every point of the seam may be disturbed, each [`Kind`] with a chance of its
//! own. All of it is what hardware or a scheduler may do: order rules are kept (a register write is not overtaken by a
//! later one to the same device, nor by a read of it), waits are finite, and no interrupt is lost.
//!
//! Numbers come from streams of their own, one a kind: models draw what they always draw, and a kind that is switched
//! off ([`Unrest::without`]) leaves the others' numbers as they were. The same seed is the same run.

use crate::core::Core;
use crate::event::{Event, cpu_event};
use crate::model::ModelId;
use crate::observe::Fact;
use crate::random::Stream;
use crate::time::Ps;
use hal::{CpuId, ThreadId};
use sched::State as ThreadState;
use std::array;
use std::cell::{Cell, RefCell};

#[cfg(test)]
mod tests;

/// What a disturbance is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// A CPU is a little slower than it thought, at a point of the seam.
    Delay,
    /// A CPU stands for long: an exit to a hypervisor, a system management interrupt. Interrupts may be off meanwhile.
    Stall,
    /// What others do comes between two steps of a CPU that only owed time: at named work, posted writes and wake-ups.
    Interleave,
    /// The running thread is preempted, where that is allowed; it stays ready.
    Preempt,
    /// A posted register write arrives late, and with it what follows to the same model.
    LateWrite,
    /// A CPU takes an interrupt late although it could.
    LateAcceptance,
    /// Somebody holds a cache line for longer when he updates it.
    SlowLine,
    /// A thread that was woken becomes ready late.
    StarvedThread,
    /// A thread that was woken goes to another CPU of its affinity than the scheduler would choose.
    MisplacedThread,
    /// A message or an inter-processor interrupt takes longer to its CPU. Messages of one path stay in order.
    LateMessage,
    /// A CPU's local timer, or the end of its thread's time slice, comes late.
    LateTimer,
}

impl Kind {
    /// How many there are.
    pub const COUNT: usize = Self::ALL.len();

    /// All of them, in the order of [`Unrest::chances`].
    pub const ALL: [Self; 11] = [
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
    ];

    /// As options and reports call it.
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
        }
    }
}

/// How often, and how much.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Chance {
    /// Of 1,000 occasions; 0: never, and no number is drawn.
    pub per_mille: u32,
    /// Times are uniform from 1 ps to this. [`Kind::Interleave`], [`Kind::Preempt`] and [`Kind::MisplacedThread`] have
    /// none.
    pub longest: Ps,
}

/// A random schedule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unrest {
    /// Of its streams; the machine's own seed has no part in them.
    pub seed: u64,
    /// Nothing is disturbed before.
    pub from: Ps,
    /// Nor at this time and later: the machine is healed.
    pub until: Ps,
    /// By `Kind as usize`.
    pub chances: [Chance; Kind::COUNT],
}

impl Unrest {
    /// Some of everything, always: rather dense, so that a history of a millisecond meets each kind. Single delays stay
    /// below a microsecond, except for stalls and starved threads (50 µs).
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
        };
        Self { seed, from: Ps(0), until: Ps::MAX, chances: Kind::ALL.map(of) }
    }

    /// The same without one kind, for shrinking.
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

/// The schedule of a machine as it goes on.
pub(crate) struct State {
    config: Unrest,
    streams: [RefCell<Stream>; Kind::COUNT],
    counts: [Cell<u64>; Kind::COUNT],
    /// Until when posted writes are on their way, by model.
    writes_until: RefCell<Vec<Ps>>,
    /// Threads whose waking is under way.
    starved: RefCell<Vec<ThreadId>>,
}

impl State {
    pub(crate) fn new(config: Unrest) -> Self {
        Self {
            streams: array::from_fn(|kind| RefCell::new(Stream::new(config.seed, kind as u64))),
            counts: Default::default(),
            writes_until: RefCell::default(),
            starved: RefCell::default(),
            config,
        }
    }

    /// A number if a disturbance of this kind happens now.
    fn draw(&self, kind: Kind, now: Ps) -> Option<u64> {
        let Chance { per_mille, .. } = self.config.chances[kind as usize];
        if per_mille == 0 || now < self.config.from || now >= self.config.until {
            return None;
        }
        let number = self.streams[kind as usize].borrow_mut().next();
        // The low half decides, the high half says how.
        let happens = (u64::from(number as u32) * 1000) >> 32 < per_mille.into();
        happens.then(|| {
            self.counts[kind as usize].set(self.counts[kind as usize].get() + 1);
            number >> 32
        })
    }

    /// For how long, if it happens now.
    fn late(&self, kind: Kind, now: Ps) -> Option<Ps> {
        let longest = self.config.chances[kind as usize].longest;
        let number = self.draw(kind, now)?;
        Some(Ps(1 + ((u128::from(number) * u128::from(longest.0)) >> 32) as u64))
    }

    pub(crate) fn counts(&self) -> [u64; Kind::COUNT] {
        array::from_fn(|kind| self.counts[kind].get())
    }
}

impl Core {
    /// A point of the seam: the running CPU may lose time, or its thread the CPU.
    #[cold]
    #[inline(never)]
    pub(crate) fn disturb(&self, unrest: &State) {
        if self.on_console() || self.dead.get() {
            return;
        }
        for kind in [Kind::Delay, Kind::Stall] {
            if let Some(by) = unrest.late(kind, self.local_now()) {
                self.tell_of_unrest(kind, by);
                self.cpu().owe(by.0, self.kernel_account());
            }
        }
        if self.is_preemptible() && unrest.draw(Kind::Preempt, self.local_now()).is_some() {
            self.tell_of_unrest(Kind::Preempt, Ps(0));
            self.pass_debt();
            // An interrupt may have done so already.
            if self.is_preemptible() {
                self.give_way();
            }
        }
    }

    /// A step that only owes time: others may come before the next one.
    #[inline]
    pub(crate) fn owed_point(&self) {
        if let Some(unrest) = &self.unrest {
            self.interleave(unrest);
        }
    }

    #[cold]
    #[inline(never)]
    fn interleave(&self, unrest: &State) {
        let happens = !self.on_console() && !self.dead.get();
        if happens && unrest.draw(Kind::Interleave, self.local_now()).is_some() {
            self.settle();
        }
    }

    fn is_preemptible(&self) -> bool {
        let cpu = self.cpu();
        let runs_thread = || self.threads.sched.borrow().current(cpu.id).is_some();
        cpu.irq_on.get() && cpu.depth.get() == 0 && !cpu.in_idle_loop.get() && runs_thread()
    }

    /// When a posted write arrives that the running CPU makes now.
    #[inline]
    pub(crate) fn write_arrival(&self, model: ModelId, order: u32) -> Ps {
        let at = self.local_now();
        match &self.unrest {
            None => self.posted_writes.arrival(model, order, at),
            Some(unrest) => self.late_arrival(unrest, model, order, at),
        }
    }

    #[cold]
    #[inline(never)]
    fn late_arrival(&self, unrest: &State, model: ModelId, order: u32, at: Ps) -> Ps {
        let late = unrest.late(Kind::LateWrite, at);
        if let Some(by) = late {
            self.tell_of_unrest(Kind::LateWrite, by);
        }
        let mut writes_until = unrest.writes_until.borrow_mut();
        if writes_until.len() <= model.0 as usize {
            writes_until.resize(model.0 as usize + 1, Ps(0));
        }
        let until = &mut writes_until[model.0 as usize];
        *until = self.posted_writes.arrival(model, order, (at + late.unwrap_or_default()).max(*until));
        *until
    }

    /// A read pushes the writes before it, which may be late: how long that takes.
    #[inline]
    pub(crate) fn push_writes(&self, model: ModelId) -> Ps {
        let Some(unrest) = &self.unrest else { return Ps(0) };
        let writes_until = unrest.writes_until.borrow();
        writes_until.get(model.0 as usize).map_or(Ps(0), |until| until.saturating_sub(self.local_now()))
    }

    /// How much later something happens that is not a CPU's own.
    #[inline]
    pub(crate) fn late(&self, kind: Kind) -> Ps {
        self.unrest.as_ref().map_or(Ps(0), |unrest| self.lateness(unrest, kind))
    }

    #[cold]
    #[inline(never)]
    fn lateness(&self, unrest: &State, kind: Kind) -> Ps {
        let Some(by) = unrest.late(kind, self.now()) else { return Ps(0) };
        self.tell(|| Fact::Disturbed { cpu: None, kind, by });
        by
    }

    /// Whether a thread that is to be woken will be so only later.
    #[cold]
    #[inline(never)]
    pub(crate) fn starve(&self, unrest: &State, thread: ThreadId) -> bool {
        if unrest.starved.borrow().contains(&thread) {
            // It is the same park that both end.
            return true;
        }
        if self.threads.sched.borrow().state(thread) != ThreadState::Parked {
            return false;
        }
        let Some(by) = unrest.late(Kind::StarvedThread, self.local_now()) else { return false };
        self.tell_of_unrest(Kind::StarvedThread, by);
        unrest.starved.borrow_mut().push(thread);
        self.push(self.local_now() + by, Event::for_cpu(CpuId(0), cpu_event::WAKE, thread.0.into()));
        true
    }

    /// The waking of a starved thread takes place.
    pub(crate) fn starved_wakes(&self, thread: ThreadId) {
        let Some(unrest) = &self.unrest else { return };
        unrest.starved.borrow_mut().retain(|&other| other != thread);
        let (kicked, state) = self.wake_in_scheduler(thread);
        match (kicked, state) {
            (Some(cpu), _) => self.kick_from_nowhere(cpu),
            (None, ThreadState::Ready(cpu)) => self.arm_slice(&self.cpus[cpu.index()]),
            _ => {}
        }
    }

    /// Where the scheduler is made to put a thread that is woken.
    #[cold]
    #[inline(never)]
    pub(crate) fn misplacement(&self, unrest: &State, thread: ThreadId) -> Option<CpuId> {
        if self.threads.sched.borrow().state(thread) != ThreadState::Parked {
            return None;
        }
        let number = unrest.draw(Kind::MisplacedThread, self.now())?;
        self.tell(|| Fact::Disturbed { cpu: None, kind: Kind::MisplacedThread, by: Ps(0) });
        Some(CpuId((number % u64::from(self.config.cpus)) as u32))
    }

    fn tell_of_unrest(&self, kind: Kind, by: Ps) {
        self.tell_of_cpu(|cpu| Fact::Disturbed { cpu: Some(cpu), kind, by });
    }
}
