//! Directed schedules: agents that take turns at the points of the seam, so that a search can try every order.
//!
//! An agent is a thread between [`crate::begin_agent`] and [`crate::end_agent`], with the threads that it starts
//! meanwhile, and with the interrupts that its CPU takes on top of them. One agent has the turn. The others stand at
//! their next point of the seam, as a CPU does whose hypervisor runs another one: time passes, and interrupts that are on
//! are taken. The turn goes on at a [`Switch`] of the [`Schedule`], when its agent ends, and when its agent has reached no
//! point for [`PATIENCE`], or has had the turn for [`LONGEST`]: it may wait for one that stands. All other code of the machine runs freely.
//!
//! An agent's points count from 0, which is its begin. The same schedule gives the same run, so a longer schedule agrees
//! with its beginning up to the new switch. [`Turn`] says which points a run had, and so which switches can follow.

use crate::time::Ps;
use hal::ThreadId;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::str::FromStr;

/// An agent that reaches no point for this long loses its turn.
pub const PATIENCE: Ps = Ps::from_ns(10_000);
/// A turn ends after this long: an agent may also wait by looking again and again.
pub const LONGEST: Ps = Ps::from_ns(50_000);
/// An agent that stands looks this often whether it may go on.
pub(crate) const STEP: Ps = Ps::from_ns(50);
/// More agents than any search needs; each has a letter.
pub const AGENTS_MAX: u8 = 8;
/// Turns that a run notes.
const TURNS_MAX: usize = 10_000;

/// At its point `point`, before the access there, `agent` stops, and `next` goes on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Switch {
    /// Who has the turn.
    pub agent: u8,
    /// Number of its point.
    pub point: u32,
    /// Who has it from then on.
    pub next: u8,
}

/// Who begins, and every switch, in order. When an agent ends or waits, the next of `order` goes on.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Schedule {
    /// All agents; the first one begins.
    pub order: Vec<u8>,
    /// Preemptions.
    pub switches: Vec<Switch>,
}

/// As [`Schedule::from_str`] reads it: `ab,a7b,b12a` begins with agent a, and b is behind it; a stops at its point 7, and b
/// at its point 12.
impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = |agent: u8| char::from(b'a' + agent);
        self.order.iter().try_for_each(|&agent| write!(f, "{}", letter(agent)))?;
        let mut switches = self.switches.iter();
        switches.try_for_each(|at| write!(f, ",{}{}{}", letter(at.agent), at.point, letter(at.next)))
    }
}

/// A text that is no schedule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScheduleError(String);

impl fmt::Display for ScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: valid is the agents in order, then switches, such as ab,a7b,b12a", self.0)
    }
}

impl std::error::Error for ScheduleError {}

impl FromStr for Schedule {
    type Err = ScheduleError;

    fn from_str(text: &str) -> Result<Self, ScheduleError> {
        let wrong = || ScheduleError(text.into());
        let mut parts = text.split(',');
        let agent = |letter: char| (letter as u32).checked_sub('a' as u32).and_then(|agent| u8::try_from(agent).ok());
        let order: Option<Vec<u8>> = parts.next().unwrap_or_default().chars().map(agent).collect();
        let order = order.ok_or_else(wrong)?;
        let mut sorted = order.clone();
        sorted.sort_unstable();
        let is_complete = sorted.iter().zip(0..AGENTS_MAX).all(|(agent, expected)| *agent == expected);
        if order.is_empty() || order.len() > AGENTS_MAX.into() || !is_complete {
            return Err(wrong());
        }
        let known = |letter: Option<char>| letter.and_then(agent).filter(|agent| order.contains(agent));
        let switch = |part: &str| {
            let (from, to) = (known(part.chars().next())?, known(part.chars().next_back())?);
            let point = part.get(1..part.len() - 1)?.parse().ok()?;
            (from != to).then_some(Switch { agent: from, point, next: to })
        };
        let switches: Option<Vec<_>> = parts.map(switch).collect();
        Ok(Self { order, switches: switches.ok_or_else(wrong)? })
    }
}

/// Why a turn began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// The first one.
    Begin,
    /// A switch of the schedule.
    Switch,
    /// The agent before it had ended.
    Ended,
    /// The agent before it slept or waited.
    Waited,
}

/// One turn of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Turn {
    /// Whose.
    pub agent: u8,
    /// Why it began.
    pub cause: Cause,
    /// The first point at which it could have been stopped.
    pub from: u32,
    /// The first point that belongs to a later turn.
    pub to: u32,
    /// The agents that had not ended when it began, a bit each.
    pub alive: u8,
}

#[derive(Default)]
struct Agent {
    begun: Cell<bool>,
    ended: Cell<bool>,
    points: Cell<u32>,
    /// When it last reached a point, or got the turn.
    last: Cell<Ps>,
}

/// State of a directed schedule.
pub(crate) struct Turns {
    schedule: Schedule,
    agents: Vec<Agent>,
    switched: Cell<usize>,
    holder: Cell<u8>,
    /// When its turn began.
    since: Cell<Ps>,
    turns: RefCell<Vec<Turn>>,
    /// By thread.
    of: RefCell<Vec<Option<u8>>>,
    standing: RefCell<Vec<ThreadId>>,
}

impl Turns {
    pub(crate) fn new(schedule: Schedule) -> Self {
        let agents: Vec<_> = schedule.order.iter().map(|_| Agent::default()).collect();
        let holder = Cell::new(schedule.order.first().copied().unwrap_or(0));
        Self {
            schedule,
            agents,
            switched: Cell::new(0),
            holder,
            since: Cell::default(),
            turns: RefCell::default(),
            of: RefCell::default(),
            standing: RefCell::default(),
        }
    }

    fn agent(&self, agent: u8) -> &Agent {
        &self.agents[usize::from(agent)]
    }

    /// The agent that this thread works for, unless the thread stands: its interrupts are then nobody's.
    pub(crate) fn agent_of(&self, thread: ThreadId) -> Option<u8> {
        let agent = self.of.borrow().get(thread.0 as usize).copied().flatten();
        agent.filter(|_| !self.standing.borrow().contains(&thread))
    }

    /// A thread works for the agent of the thread that started it.
    pub(crate) fn inherit(&self, thread: ThreadId, from: ThreadId) {
        let agent = self.of.borrow().get(from.0 as usize).copied().flatten();
        agent.into_iter().for_each(|agent| self.assign(thread, agent));
    }

    fn assign(&self, thread: ThreadId, agent: u8) {
        let mut of = self.of.borrow_mut();
        let index = thread.0 as usize;
        if of.len() <= index {
            of.resize(index + 1, None);
        }
        of[index] = Some(agent);
    }

    /// This thread is agent `agent` from now on. False if the schedule has no such agent.
    pub(crate) fn begin(&self, thread: ThreadId, agent: u8, now: Ps) -> bool {
        if usize::from(agent) >= self.agents.len() {
            return false;
        }
        self.assign(thread, agent);
        self.agent(agent).begun.set(true);
        if self.has_begun() {
            self.pass_to(self.holder.get(), Cause::Begin, now);
        }
        true
    }

    fn has_begun(&self) -> bool {
        self.agents.iter().all(|agent| agent.begun.get())
    }

    /// The agent of this thread has ended.
    pub(crate) fn end(&self, thread: ThreadId, now: Ps) {
        let Some(agent) = self.agent_of(thread) else { return };
        self.of.borrow_mut().iter_mut().filter(|of| **of == Some(agent)).for_each(|of| *of = None);
        self.agent(agent).ended.set(true);
        if self.holder.get() == agent
            && let Some(next) = self.behind(agent)
        {
            self.pass_to(next, Cause::Ended, now);
        }
    }

    /// The next agent behind this one that has not ended.
    fn behind(&self, agent: u8) -> Option<u8> {
        let order = &self.schedule.order;
        let place = order.iter().position(|other| *other == agent)?;
        let behind = order.iter().cycle().skip(place + 1).take(order.len());
        behind.copied().find(|&other| !self.agent(other).ended.get())
    }

    fn pass_to(&self, next: u8, cause: Cause, now: Ps) {
        self.holder.set(next);
        self.since.set(now);
        let agent = self.agent(next);
        agent.last.set(now);
        let mut turns = self.turns.borrow_mut();
        self.close(&mut turns);
        if turns.len() < TURNS_MAX {
            let alive = (0..).zip(&self.agents).filter(|(_, agent)| !agent.ended.get()).map(|(bit, _)| 1 << bit).sum();
            let from = agent.points.get();
            turns.push(Turn { agent: next, cause, from, to: from, alive });
        }
    }

    fn close(&self, turns: &mut [Turn]) {
        if let Some(last) = turns.last_mut() {
            last.to = self.agent(last.agent).points.get();
        }
    }

    /// The agent reaches its next point.
    pub(crate) fn reach(&self, agent: u8, now: Ps) {
        let this = self.agent(agent);
        let point = this.points.get();
        this.points.set(point + 1);
        if self.holder.get() != agent || !self.has_begun() {
            return;
        }
        this.last.set(now);
        let planned = self.schedule.switches.get(self.switched.get());
        if let Some(switch) = planned.filter(|switch| (switch.agent, switch.point) == (agent, point)) {
            self.switched.set(self.switched.get() + 1);
            if !self.agent(switch.next).ended.get() {
                self.pass_to(switch.next, Cause::Switch, now);
            }
        }
    }

    /// Whether the agent may go on. Takes the turn from one that waits for too long.
    pub(crate) fn may_go(&self, agent: u8, now: Ps) -> bool {
        if !self.has_begun() {
            return false;
        }
        // A thread that it started may still stand on its way out.
        if self.agent(agent).ended.get() {
            return true;
        }
        let holder = self.holder.get();
        if holder != agent
            && (now > self.agent(holder).last.get() + PATIENCE || now > self.since.get() + LONGEST)
            && let Some(next) = self.behind(holder)
        {
            self.pass_to(next, Cause::Waited, now);
        }
        self.holder.get() == agent
    }

    pub(crate) fn stand(&self, thread: ThreadId) {
        self.standing.borrow_mut().push(thread);
    }

    pub(crate) fn end_standing(&self, thread: ThreadId) {
        self.standing.borrow_mut().retain(|other| *other != thread);
    }

    /// The turns so far, and how many switches took place.
    pub(crate) fn report(&self) -> (Vec<Turn>, usize) {
        let mut turns = self.turns.borrow_mut();
        self.close(&mut turns);
        (turns.clone(), self.switched.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_is_read_as_it_is_written() {
        for text in ["ab", "ba,b0a", "ab,a7b,b12a", "cab,c3b"] {
            assert_eq!(text.parse::<Schedule>().expect(text).to_string(), text);
        }
        for text in ["", "aa", "b", "ab,a7", "ab,ab", "ab,a7c", "ab,a7a", "ab,", "ab,é", "AB"] {
            let error = text.parse::<Schedule>().expect_err(text).to_string();
            assert!(error.ends_with("such as ab,a7b,b12a"), "{error}");
        }
    }
}
