//! Draws a random history: a controller, its lines and their handlers, and the steps.

use super::controller::Kind;
use super::rules::{CPUS, SHARED};
use crate::Flow;
use proptest::prelude::*;
use std::vec;

/// Lines of the first controller: two shared ones and, on a GIC, a private one.
pub(super) const PRIVATE: usize = 2;
/// The lines of the second controller follow those of the first.
pub(super) const CHILD: usize = 3;
pub(super) const LINES: usize = 4;

#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    /// A device of the line raises its interrupt.
    Raise(usize, usize),
    /// A CPU acknowledges the interrupt that its controller offers. Its flow has not begun yet.
    Take(usize),
    /// The CPU goes on to the line's flow.
    Deliver(usize),
    ThreadEnd(usize, usize),
    Disable(usize),
    Enable(usize),
    Move(usize, usize),
    Retrigger(usize),
    /// Changes between edge and level, if the controller supports both.
    SetType(usize, bool),
    /// Free a handler and request another.
    Replace(usize, usize),
    /// A CPU goes offline and comes back.
    Offline(usize),
    /// The line, or the line whose handler runs, moves to a CPU. It is raised and taken there.
    Collide(usize, usize),
    /// The line is disabled after a CPU has taken it and before its flow runs there.
    Overtake(usize, usize),
}

pub(super) fn op() -> impl Strategy<Value = Op> {
    let (line, cpu, which) = (0..LINES, 0..CPUS, 0..SHARED);
    let shared = (line.clone(), which);
    prop_oneof![
        6 => (line.clone(), cpu.clone()).prop_map(|(line, which)| Op::Raise(line, which)),
        6 => cpu.clone().prop_map(Op::Take),
        6 => cpu.clone().prop_map(Op::Deliver),
        5 => shared.clone().prop_map(|(line, which)| Op::ThreadEnd(line, which)),
        2 => line.clone().prop_map(Op::Disable),
        2 => line.clone().prop_map(Op::Enable),
        2 => (line.clone(), cpu.clone()).prop_map(|(line, cpu)| Op::Move(line, cpu)),
        1 => line.clone().prop_map(Op::Retrigger),
        1 => (line.clone(), any::<bool>()).prop_map(|(line, level)| Op::SetType(line, level)),
        1 => shared.prop_map(|(line, which)| Op::Replace(line, which)),
        1 => cpu.clone().prop_map(Op::Offline),
        4 => (line.clone(), cpu.clone()).prop_map(|(line, cpu)| Op::Collide(line, cpu)),
        3 => (line, cpu).prop_map(|(line, cpu)| Op::Overtake(line, cpu)),
    ]
}

/// The kind of a line's handlers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Handlers {
    /// One handler without a thread.
    Plain,
    /// Two handlers, each with a thread.
    Threaded,
    /// Two ONESHOT handlers, each with a thread that the line waits for.
    Oneshot,
    /// A controller's demultiplexer.
    Chained,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) kind: Kind,
    /// Level-triggered, by line.
    pub(super) level: [bool; LINES],
    pub(super) handlers: [Handlers; LINES],
}

pub(super) fn plan() -> impl Strategy<Value = Plan> {
    let kind =
        prop::sample::select(vec![Kind::Simple, Kind::Together, Kind::Split, Kind::SplitHere, Kind::Late, Kind::Lpi]);
    let handlers = || prop::sample::select(vec![Handlers::Plain, Handlers::Threaded, Handlers::Oneshot]);
    (kind, any::<[bool; LINES]>(), [handlers(), handlers(), handlers(), handlers()], any::<bool>()).prop_map(
        |(kind, mut level, mut handlers, chained)| {
            handlers[PRIVATE] = Handlers::Plain;
            level[PRIVATE] = false;
            if kind == Kind::Lpi {
                level[..CHILD].fill(false);
            } else if chained {
                (handlers[1], level[1]) = (Handlers::Chained, true);
            }
            Plan { kind, level, handlers }
        },
    )
}

impl Plan {
    pub(super) fn kind_of(&self, line: usize) -> Kind {
        if line == CHILD { Kind::Simple } else { self.kind }
    }

    pub(super) fn flow(&self, line: usize) -> Flow {
        match self.kind_of(line) {
            _ if line == PRIVATE => Flow::PerCpu,
            Kind::Simple if self.level[line] => Flow::Level,
            Kind::Simple => Flow::Edge,
            Kind::Split | Kind::SplitHere => Flow::Strict,
            Kind::Together | Kind::Late | Kind::Lpi => Flow::FastEoi,
        }
    }

    pub(super) fn has(&self, line: usize) -> bool {
        match line {
            PRIVATE => !matches!(self.kind, Kind::Simple | Kind::Lpi),
            CHILD => self.handlers[1] == Handlers::Chained,
            _ => true,
        }
    }

    pub(super) fn handlers_max(&self, line: usize) -> usize {
        if matches!(self.handlers[line], Handlers::Threaded | Handlers::Oneshot) { SHARED } else { 1 }
    }
}
