//! Every schedule of a few agents, with at most so many preemptions.
//!
//! Preemption bounding (Musuvathi and Qadeer, "Iterative Context Bounding for Systematic Testing of Multithreaded
//! Programs"): first every order without a preemption, then one preemption at each point, then two. The turn also passes
//! when an agent ends or waits; that counts as none. A run says which points it had, and a further switch can only come at
//! one of those behind the last. Where an agent waits for a lock that another holds, its turn ends after a few points, so
//! schedules that differ only inside a critical section are few. There is no other reduction: plain reads of shared words
//! are no points, so the machine cannot tell that two steps are independent.

use crate::run::Run;
use crate::verdict::Failure;
use machine::unrest::turns::{Cause, Schedule, Switch, Turn};
use serde::Serialize;

/// Preemptions of a schedule, unless the caller asks for another number.
pub const BOUND: usize = 2;

/// What is known of a set of operations.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Explored {
    /// Points of each agent where none is preempted.
    pub points: Vec<u32>,
    /// Schedules that were run, by their number of preemptions.
    pub run: Vec<u64>,
    /// Schedules that the budget left out, by their number of preemptions from one on. If it left some out, their continuations are
    /// not known and not counted.
    pub cut: Vec<u64>,
    /// Schedules in which a fault struck.
    pub struck: u64,
    /// Over the digests of all runs.
    pub digest: u64,
    /// The first schedule that failed.
    #[serde(skip)]
    pub failure: Option<(Schedule, Failure)>,
}

impl Explored {
    /// All schedules that were run.
    pub fn schedules(&self) -> u64 {
        self.run.iter().sum()
    }

    /// True if no schedule within the bound was left out.
    pub fn is_complete(&self) -> bool {
        self.cut.iter().all(|cut| *cut == 0)
    }
}

/// A run that can be continued.
struct Parent {
    schedule: Schedule,
    turns: Vec<Turn>,
}

impl Parent {
    /// Every switch that can follow its last one, in order.
    fn switches(&self) -> impl Iterator<Item = Switch> {
        let last = self.turns.iter().rposition(|turn| turn.cause == Cause::Switch).unwrap_or(0);
        let agents = self.schedule.order.len() as u8;
        self.turns[last.min(self.turns.len())..].iter().flat_map(move |turn| {
            let others = move || (0..agents).filter(|next| *next != turn.agent && turn.alive & 1 << next != 0);
            let switch = move |point, next| Switch { agent: turn.agent, point, next };
            (turn.from..turn.to).flat_map(move |point| others().map(move |next| switch(point, next)))
        })
    }

    fn with(&self, switch: Switch) -> Schedule {
        let mut schedule = self.schedule.clone();
        schedule.switches.push(switch);
        schedule
    }
}

/// Every order of `agents` agents.
fn orders(agents: u8) -> Vec<Schedule> {
    let mut orders: Vec<Vec<u8>> = vec![Vec::new()];
    for _ in 0..agents {
        let longer = |order: &Vec<u8>| -> Vec<Vec<u8>> {
            let free = (0..agents).filter(|agent| !order.contains(agent));
            free.map(|agent| order.iter().copied().chain([agent]).collect()).collect()
        };
        orders = orders.iter().flat_map(longer).collect();
    }
    orders.into_iter().map(|order| Schedule { order, switches: Vec::new() }).collect()
}

/// Runs every schedule with at most `bound` preemptions, those with fewer first, and stops at the first that fails. If
/// there are more than `budget`, those of the last number of preemptions are taken evenly from all.
pub fn explore(agents: u8, bound: usize, budget: u64, mut run: impl FnMut(&Schedule) -> Run) -> Explored {
    let mut explored = Explored::default();
    let mut level = orders(agents);
    for preemptions in 0..=bound {
        explored.run.push(0);
        let mut parents = Vec::new();
        for schedule in level {
            let result = run(&schedule);
            explored.run[preemptions] += 1;
            explored.struck += u64::from(!result.struck.is_empty());
            explored.digest = (explored.digest.rotate_left(5) ^ result.digest).wrapping_mul(0x517c_c1b7_2722_0a95);
            if preemptions == 0 && explored.points.is_empty() {
                let points = |agent| result.turns.iter().filter(|turn| turn.agent == agent).map(|turn| turn.to).max();
                explored.points = (0..agents).map(|agent| points(agent).unwrap_or(0)).collect();
            }
            if let Some(failure) = result.failure {
                explored.failure = Some((schedule, failure));
                return explored;
            }
            // A switch that did not take place is one to an agent that had ended meanwhile.
            if result.switched == schedule.switches.len() && preemptions < bound {
                parents.push(Parent { schedule, turns: result.turns });
            }
        }
        if preemptions == bound {
            break;
        }
        level = continue_within(&parents, budget.saturating_sub(explored.schedules()), &mut explored.cut);
        if level.is_empty() {
            break;
        }
    }
    explored
}

/// The continuations of all parents; if there are more than `room`, that many, evenly from all.
fn continue_within(parents: &[Parent], room: u64, cut: &mut Vec<u64>) -> Vec<Schedule> {
    let total: u64 = parents.iter().map(|parent| parent.switches().count() as u64).sum();
    cut.push(total.saturating_sub(room));
    let all = parents.iter().flat_map(|parent| parent.switches().map(move |switch| (parent, switch)));
    let taken = total.min(room);
    let is_taken = |index: u64| {
        let share = |index: u64| u128::from(index) * u128::from(taken) / u128::from(total.max(1));
        share(index) != share(index + 1)
    };
    let chosen = (0..).zip(all).filter(|(index, _)| is_taken(*index));
    chosen.map(|(_, (parent, switch))| parent.with(switch)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two agents of three points each, that never wait.
    fn run(schedule: &Schedule) -> Run {
        let mut run = Run { switched: schedule.switches.len(), ..Run::default() };
        let mut points = [1, 1];
        let mut alive = 3_u8;
        let mut holder = schedule.order[0];
        let mut cause = Cause::Begin;
        let mut switches = schedule.switches.iter().peekable();
        while alive != 0 {
            let from = points[usize::from(holder)];
            let stop = switches.next_if(|switch| switch.agent == holder);
            let to = stop.map_or(4, |switch| switch.point + 1);
            points[usize::from(holder)] = to;
            run.turns.push(Turn { agent: holder, cause, from, to, alive });
            cause = if stop.is_some() { Cause::Switch } else { Cause::Ended };
            if stop.is_none() {
                alive &= !(1 << holder);
            }
            holder = 1 - holder;
        }
        run
    }

    #[test]
    fn the_schedules_are_as_many_as_there_are() {
        let explored = explore(2, 2, u64::MAX, run);
        // Two orders; a stop at each of three points of who begins; then one at each point of the other agent.
        assert_eq!((explored.run.clone(), explored.is_complete()), (vec![2, 6, 18], true));
        assert_eq!(explored.points, [4, 4]);
        let cut = explore(2, 2, 15, run);
        assert_eq!((cut.run, cut.cut), (vec![2, 6, 7], vec![0, 11]));
    }

    #[test]
    fn every_order_of_three_is_there() {
        let mut all = orders(3);
        all.dedup();
        assert_eq!(all.len(), 6);
    }

    #[test]
    fn the_first_failure_has_the_fewest_preemptions() {
        let fails = |schedule: &Schedule| {
            let failure = || Failure::new(crate::verdict::Kind::Correctness, "test", machine::time::Ps(0), "wrong");
            let hit = schedule.switches.iter().any(|at| (at.agent, at.point) == (1, 2));
            Run { failure: hit.then(failure), ..run(schedule) }
        };
        let (schedule, _) = explore(2, 2, u64::MAX, fails).failure.expect("it is found");
        assert_eq!(schedule.to_string(), "ba,b2a");
    }
}
