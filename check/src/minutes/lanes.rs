//! What time is spent on, and who gets the next piece of it.

use super::unit::{Set, Unit};
use crate::metamorphic::FAMILIES;
use crate::run::{Run, Scenario};
use crate::single::Case;
use crate::systematic::Task;
use crate::touched;
use crate::{about, about::Focus};
use serde::Serialize;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Shares of a scenario's time. What the searches of small machines do not need falls to random histories.
const RANDOM: f64 = 6.0;
const ORDERS: f64 = 2.0;
/// This search is through within a second or two, and a minute must see its end.
const FAULTS: f64 = 4.0;
/// The share of a family of forms, if there were as many families as scenarios.
const FORMS: f64 = 1.0;

/// Preemptions and schedules of a set of operations, one round after the other.
const ROUNDS: [(usize, u64); 3] = [(1, 8), (2, 64), (2, 1024)];

/// How many times as many schedules a small machine gets that is about what is touched.
const ABOUT: u64 = 8;
/// How many times its share the orders of a scenario get that has such a machine.
const ABOUT_SHARE: f64 = 4.0;

/// How much of the last histories' news a further one forgets.
const MEMORY: f64 = 0.99;
/// How many times its share a scenario gets while every history reaches something new.
const GROWTH: f64 = 2.0;

/// What a part of the time went to.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Spent {
    /// The scenario, or the family of forms.
    pub on: &'static str,
    /// "random", "orders", "faults" or "forms".
    pub search: &'static str,
    /// Time of workers: measured on this machine.
    pub seconds: f64,
    /// Histories, sets of operations in a round, machines with a fault, or histories in all forms.
    pub units: u64,
    /// The search of small machines is through.
    pub complete: bool,
}

/// The pieces of work of one search.
enum Work {
    Random(&'static dyn Scenario, Set),
    Orders(&'static dyn Scenario, Arc<[Task]>, Vec<Turn>),
    Faults(&'static dyn Scenario, Arc<[Case]>),
    /// The index of a family.
    Forms(usize),
}

/// One search of one scenario or family.
struct Lane {
    work: Work,
    /// Its share, in relation to others.
    weight: f64,
    spent: Duration,
    /// Pieces that were given out, and those that came back.
    taken: u64,
    done: u64,
    /// The share of the last histories that reached something new.
    news: f64,
    /// Transitions that were seen, with the order of magnitude of how often a history saw them.
    seen: BTreeSet<(String, u32)>,
}

impl Lane {
    fn new(work: Work, weight: f64) -> Self {
        Self { work, weight, spent: Duration::ZERO, taken: 0, done: 0, news: 1.0, seen: BTreeSet::new() }
    }

    fn pieces(&self) -> Option<u64> {
        match &self.work {
            Work::Random(..) | Work::Forms(_) => None,
            Work::Orders(_, _, order) => Some(order.len() as u64),
            Work::Faults(_, cases) => Some(cases.len() as u64),
        }
    }

    fn is_open(&self) -> bool {
        self.pieces().is_none_or(|pieces| self.taken < pieces)
    }

    /// Pieces that are under way count with the time that such a piece takes.
    fn claim(&self) -> f64 {
        let piece = self.spent.as_secs_f64() / self.done.max(1) as f64;
        let spent = self.spent.as_secs_f64() + piece * (self.taken - self.done) as f64;
        let grows = if matches!(self.work, Work::Random(..)) { 1.0 + GROWTH * self.news } else { 1.0 };
        spent / (self.weight * grows)
    }

    /// The next piece.
    fn take(&mut self, seed: u64) -> Unit {
        let number = self.taken;
        self.taken += 1;
        match &self.work {
            Work::Random(scenario, set) => {
                let set = if number.is_multiple_of(2) { *set } else { &[] };
                Unit::History(*scenario, seed.wrapping_add(number), set)
            }
            Work::Orders(scenario, tasks, order) => {
                let Turn { task, round } = order[number as usize];
                let (bound, budget) = ROUNDS[round];
                Unit::Orders { scenario: *scenario, tasks: tasks.clone(), task, bound, budget }
            }
            Work::Faults(scenario, cases) => {
                Unit::Faults { scenario: *scenario, cases: cases.clone(), case: number as usize }
            }
            Work::Forms(family) => Unit::Forms(*family, seed.wrapping_add(number)),
        }
    }

    fn learn(&mut self, run: &Run) {
        let places = run.coverage.iter().filter(|(_, times)| *times > 0);
        let mut is_new = false;
        for (transition, times) in places {
            is_new |= self.seen.insert((transition.to_owned(), times.ilog2()));
        }
        self.news = MEMORY * self.news + (1.0 - MEMORY) * f64::from(u8::from(is_new));
    }
}

/// The tasks of a scenario, each in each round, so that its machines get the same number of schedules, and those that are about
/// what is touched many times as many: the first seconds reach each machine, and one with few operations is soon in a later round.
/// Each begins elsewhere with another `seed`.
fn in_turns(tasks: &[Task], seed: u64, is_about: impl Fn(usize) -> bool) -> Vec<Turn> {
    let mut machines: Vec<Vec<Turn>> = Vec::new();
    for own in (0..tasks.len()).collect::<Vec<_>>().chunk_by(|&one, &other| tasks[one].bench == tasks[other].bench) {
        let begin = (seed % own.len() as u64) as usize;
        let turns = |round| own[begin..].iter().chain(&own[..begin]).map(move |&task| Turn { task, round });
        // The few schedules of the first round show that a machine runs; what is touched is worth more at once.
        let first = usize::from(is_about(tasks[own[0]].bench));
        // The last one first.
        machines.push((first..ROUNDS.len()).flat_map(turns).rev().collect());
    }
    let mut given = vec![0; machines.len()];
    let mut order = Vec::new();
    while let Some(next) = (0..machines.len()).filter(|&it| !machines[it].is_empty()).min_by_key(|&it| given[it]) {
        let turn = machines[next].pop().expect("it is not empty");
        let times = if is_about(tasks[turn.task].bench) { 1 } else { ABOUT };
        given[next] += ROUNDS[turn.round].1 * times;
        order.push(turn);
    }
    order
}

/// The machines and faults of a scenario, those first that are about what is touched. Each part begins elsewhere with another
/// `seed`.
fn in_order(cases: Vec<Case>, seed: u64, is_about: impl Fn(usize) -> bool) -> Vec<Case> {
    let (mut first, mut rest): (Vec<_>, Vec<_>) = cases.into_iter().partition(|case| is_about(case.bench));
    for part in [&mut first, &mut rest] {
        let begin = seed % part.len().max(1) as u64;
        part.rotate_left(begin as usize);
    }
    first.append(&mut rest);
    first
}

/// A task in a round.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Turn {
    task: usize,
    round: usize,
}

/// The searches of the small machines of a scenario, which may have none.
fn small(scenario: &'static dyn Scenario, focus: Option<Focus>, weight: f64, seed: u64) -> impl Iterator<Item = Lane> {
    let names = scenario.benches();
    let is_about = |bench: usize| focus.is_some_and(|focus| focus.benches.contains(&names[bench].name()));
    let (tasks, cases) = (Task::all(scenario), in_order(scenario.singles(), seed, is_about));
    let order = in_turns(&tasks, seed, is_about);
    let share = if (0..names.len()).any(is_about) { ABOUT_SHARE } else { 1.0 };
    let orders =
        (!tasks.is_empty()).then(|| Lane::new(Work::Orders(scenario, tasks.into(), order), ORDERS * share * weight));
    let faults = (!cases.is_empty()).then(|| Lane::new(Work::Faults(scenario, cases.into()), FAULTS * weight));
    orders.into_iter().chain(faults)
}

/// All searches.
pub(super) struct Lanes {
    lanes: Vec<Lane>,
    seed: u64,
}

impl Lanes {
    /// The searches of these scenarios. `all`: small machines and forms too, not random histories alone.
    pub(super) fn new(scenarios: &[&'static dyn Scenario], touched: &[String], all: bool, seed: u64) -> Self {
        let mut lanes = Vec::new();
        let weight = |name: &str| f64::from(touched::weight(name, touched));
        for &scenario in scenarios {
            let weight = weight(scenario.name());
            let focus = about::focus(scenario.name(), touched);
            let set = focus.map_or(&[][..], |focus| focus.set);
            lanes.push(Lane::new(Work::Random(scenario, set), RANDOM * weight));
            if all {
                lanes.extend(small(scenario, focus, weight, seed));
            }
        }
        let is_there = |name: &str| scenarios.iter().any(|scenario| scenario.name() == name);
        let share = FORMS * scenarios.len() as f64 / FAMILIES.len() as f64;
        for (index, family) in FAMILIES.iter().enumerate() {
            if all && family.forms.iter().all(|(name, _)| is_there(name)) {
                let most = family.forms.iter().map(|(name, _)| weight(name)).fold(1.0, f64::max);
                lanes.push(Lane::new(Work::Forms(index), share * most));
            }
        }
        Self { lanes, seed }
    }

    /// The next piece of work, and whose it is: of the search that has had the least of its share.
    pub(super) fn next(&mut self) -> Option<(usize, Unit)> {
        let open = self.lanes.iter_mut().enumerate().filter(|(_, lane)| lane.is_open());
        let (index, lane) = open.min_by(|(_, one), (_, other)| one.claim().total_cmp(&other.claim()))?;
        Some((index, lane.take(self.seed)))
    }

    /// A piece of `lane` is done.
    pub(super) fn done(&mut self, lane: usize, took: Duration, run: Option<&Run>) {
        let lane = &mut self.lanes[lane];
        lane.spent += took;
        lane.done += 1;
        if let Some(run) = run {
            lane.learn(run);
        }
    }

    /// What the time went to.
    pub(super) fn spent(&self) -> Vec<Spent> {
        let of = |lane: &Lane| {
            let (on, search) = match &lane.work {
                Work::Random(scenario, _) => (scenario.name(), "random"),
                Work::Orders(scenario, ..) => (scenario.name(), "orders"),
                Work::Faults(scenario, _) => (scenario.name(), "faults"),
                Work::Forms(family) => (FAMILIES[*family].name, "forms"),
            };
            let complete = lane.pieces() == Some(lane.done);
            Spent { on, search, seconds: lane.spent.as_secs_f64(), units: lane.done, complete }
        };
        self.lanes.iter().map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives out pieces that take `piece_ms` each, `count` of them, and returns what they went to.
    fn divide(lanes: &mut Lanes, count: u64, piece_ms: u64) -> Vec<Spent> {
        for _ in 0..count {
            let (lane, _) = lanes.next().expect("random histories do not end");
            lanes.done(lane, Duration::from_millis(piece_ms), None);
        }
        lanes.spent()
    }

    fn seconds(spent: &[Spent], on: &str, search: &str) -> f64 {
        spent.iter().filter(|spent| spent.on == on && spent.search == search).map(|spent| spent.seconds).sum()
    }

    #[test]
    fn each_search_has_its_share_until_it_is_through() {
        let scenarios: [&'static dyn Scenario; 2] = [&crate::gic::V2, &crate::gic::V3];
        let mut lanes = Lanes::new(&scenarios, &[], true, 1);
        let spent = divide(&mut lanes, 400, 10);
        let [random, orders, faults] = ["random", "orders", "faults"].map(|search| seconds(&spent, "gicv2", search));
        // Nothing was learned, so random histories count as those that grow.
        assert!((random / orders / (3.0 * RANDOM / ORDERS) - 1.0).abs() < 0.2, "{random} {orders}");
        // Through, or served by its share.
        assert!(faults > orders && faults < random, "{spent:?}");
        assert!(spent.iter().any(|spent| spent.search == "forms" && spent.units > 0), "{spent:?}");
        let spent = divide(&mut lanes, 40_000, 10);
        assert!(spent.iter().filter(|spent| spent.search == "faults").all(|spent| spent.complete), "{spent:?}");
        let cases = scenarios[0].singles().len() as u64;
        let faults = spent.iter().find(|spent| spent.on == "gicv2" && spent.search == "faults").expect("it is there");
        assert_eq!(faults.units, cases);
    }

    #[test]
    fn every_small_machine_is_reached_at_once_and_each_task_once_a_round() {
        let tasks = Task::all(&crate::gic::V3);
        let machines = tasks.iter().map(|task| task.bench).collect::<BTreeSet<_>>();
        for seed in [1, 77] {
            let order = in_turns(&tasks, seed, |_| false);
            let first: BTreeSet<_> = order[..machines.len()].iter().map(|turn| tasks[turn.task].bench).collect();
            assert_eq!(first, machines);
            let all = (0..tasks.len()).flat_map(|task| (0..ROUNDS.len()).map(move |round| Turn { task, round }));
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(all));
            // The machine with the fewest operations is in its second round while the others are in their first.
            let second = order.iter().position(|turn| turn.round == 1).expect("there is one");
            assert!(second < tasks.len() / 2, "{second} of {}", tasks.len());
        }
        assert_ne!(in_turns(&tasks, 1, |_| false), in_turns(&tasks, 77, |_| false));
    }

    #[test]
    fn small_machines_come_first_that_are_about_what_is_touched() {
        let scenario: &'static dyn Scenario = &crate::pc::PLAIN;
        let touched = ["drivers/src/hpet.rs".to_owned()];
        let focus = about::focus(scenario.name(), &touched).expect("it has timers");
        let is_about = |bench: usize| scenario.benches()[bench].name() == focus.benches[0];
        let tasks = Task::all(scenario);
        let own = tasks.iter().filter(|task| is_about(task.bench)).count();
        let order = in_turns(&tasks, 1, is_about);
        // In its second round before the largest machine is through its first.
        let place = |round, about| {
            order.iter().position(|turn| turn.round == round && is_about(tasks[turn.task].bench) == about)
        };
        assert!(place(1, true) < place(1, false), "{:?} {:?}", place(1, true), place(1, false));
        assert!(place(1, true) < Some(4 * own), "{:?} of {own}", place(1, true));
        assert_eq!(place(0, true), None, "it begins with the second round");
        let shares = [&[][..], &touched].map(|touched| {
            let spent = divide(&mut Lanes::new(&[scenario], touched, true, 1), 400, 10);
            seconds(&spent, "pc-plain", "orders") / seconds(&spent, "pc-plain", "random")
        });
        assert!(shares[1] > 3.0 * shares[0], "{shares:?}");
        let cases = in_order(scenario.singles(), 1, is_about);
        assert!(is_about(cases[0].bench) && !is_about(cases.last().expect("many").bench));
        let mut lanes = Lanes::new(&[scenario], &touched, false, 1);
        let sets = [(); 2].map(|()| match lanes.next() {
            Some((_, Unit::History(_, _, set))) => set,
            _ => panic!("a random history"),
        });
        assert_eq!(sets, [focus.set, &[]]);
    }

    #[test]
    fn what_is_touched_gets_most_and_the_others_something() {
        let scenarios: [&'static dyn Scenario; 2] = [&crate::gic::V2, &crate::gic::V3];
        let mut lanes = Lanes::new(&scenarios, &["drivers/src/gic/v2.rs".to_owned()], false, 1);
        let spent = divide(&mut lanes, 500, 10);
        let [v2, v3] = ["gicv2", "gicv3"].map(|on| seconds(&spent, on, "random"));
        assert!((v2 / v3 - 4.0).abs() < 0.2, "{v2} {v3}");
    }

    #[test]
    fn a_scenario_that_still_grows_gets_more() {
        let scenarios: [&'static dyn Scenario; 2] = [&crate::gic::V2, &crate::gic::V3];
        let mut lanes = Lanes::new(&scenarios, &[], false, 1);
        for _ in 0..2_000 {
            let (lane, unit) = lanes.next().expect("random histories do not end");
            // The first one sees the same again and again.
            let mut run = Run::default();
            let times = if unit.scenario() == "gicv2" { 1 } else { 1 << (lanes.lanes[lane].done % 60) };
            run.coverage.add("seen", times);
            lanes.done(lane, Duration::from_millis(1), Some(&run));
            lanes.lanes[1].seen.clear();
        }
        let spent = lanes.spent();
        let [v2, v3] = ["gicv2", "gicv3"].map(|on| seconds(&spent, on, "random"));
        assert!(v3 / v2 > 2.0, "{v2} {v3}");
    }
}
