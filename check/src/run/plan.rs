//! The steps and faults of a history, drawn.

use super::directed::Directed;
use super::{COMPARABLE, MANAGERS_MAX};
use crate::draw::{Draw, Knobs};
use crate::history::{Event, Recipe};
use crate::subject::Subject;

/// Faults in a hundred that are of a rare kind ([`Subject::is_rare`]).
const RARE_PERCENT: u64 = 12;

pub(super) struct Step<T> {
    pub(super) number: u32,
    pub(super) manager: u32,
    pub(super) at_ns: u64,
    pub(super) what: T,
}

pub(super) struct Fault<T> {
    pub(super) number: u32,
    pub(super) kind: &'static str,
    pub(super) from_ns: u64,
    pub(super) until_ns: u64,
    pub(super) what: T,
}

/// Everything that is drawn except the machine.
pub(super) struct Plan<S: Subject> {
    pub(super) steps: Vec<Step<S::Step>>,
    pub(super) faults: Vec<Fault<S::Fault>>,
    pub(super) managers: u32,
    pub(super) span_ns: u64,
    /// See [`crate::subject::Build::comparable`].
    pub(super) comparable: bool,
    /// In place of the above.
    pub(super) directed: Option<Directed<S::Step>>,
}

pub(super) fn draw<S: Subject>(subject: &S, recipe: &Recipe, knobs: &mut Knobs) -> Plan<S> {
    let span_ns = 1000 * knobs.number_with("span_us", 50..=20_000, 50, |draw| draw.time_ns(300, 3_000));
    let managers = knobs.number("managers", 1..=u64::from(MANAGERS_MAX)) as u32;
    let comparable = knobs.number_with(COMPARABLE, 0..=1, 0, |_| 0) == 1;
    // `--keep` shrinks their number and leaves the numbers of the others as they are.
    let fixed = |knobs: &mut Knobs, name, most, draw: fn(&mut Draw) -> u64| {
        let count = knobs.number_with(name, 0..=most, most, draw);
        u32::try_from(count).unwrap_or(u32::MAX)
    };
    let steps = fixed(knobs, "steps", 400, |draw| if draw.percent(10) { 0 } else { draw.time_ns(2, 60) });
    let faults = fixed(knobs, "faults", 20, |draw| if draw.percent(50) { 0 } else { draw.within(1..=4) });
    let draw_step = |index: u32| {
        let number = faults + 1 + index;
        let mut draw = Draw::new(recipe.seed_of_event(number, "steps"), "step", index);
        let (at_ns, manager) = (draw.below(span_ns), draw.below(managers.into()) as u32);
        let at_ns = recipe.at.get(&number).map_or(at_ns, |&at_ns| at_ns.min(span_ns));
        Step { number, manager, at_ns, what: subject.draw_step(&mut draw) }
    };
    let has_removals = subject.draw_removal(&mut Draw::new(0, "removal", 0)).is_some();
    let draw_count = |draw: &mut Draw| if draw.percent(75) { 0 } else { draw.within(1..=3) };
    let removals = if has_removals { fixed(knobs, "removals", 8, draw_count) } else { 0 };
    let draw_apart = |first: u32, kind, index: u32, what: &dyn Fn(&mut Draw) -> Option<S::Step>| {
        let number = first + index;
        let mut draw = Draw::new(recipe.seed_of_event(number, "steps"), kind, index);
        let (at_ns, manager) = (draw.below(span_ns), draw.below(managers.into()) as u32);
        let at_ns = recipe.at.get(&number).map_or(at_ns, |&at_ns| at_ns.min(span_ns));
        Some(Step { number, manager, at_ns, what: what(&mut draw)? })
    };
    let draw_removal = |index| draw_apart(faults + steps + 1, "removal", index, &|draw| subject.draw_removal(draw));
    let has_beside = subject.draw_beside(&mut Draw::new(0, "beside", 0)).is_some();
    let draw_count = |draw: &mut Draw| if draw.percent(30) { 0 } else { draw.time_ns(1, 15) };
    let beside = if has_beside { fixed(knobs, "beside", 60, draw_count) } else { 0 };
    let draw_beside =
        |index| draw_apart(faults + steps + removals + 1, "beside", index, &|draw| subject.draw_beside(draw));
    let wanted = Subject::fault_kinds(subject).iter().copied().filter(|kind| is_wanted(recipe, kind));
    let (rare, common): (Vec<_>, Vec<_>) = wanted.partition(|kind| subject.is_rare(kind));
    let draw_kind = |seed, index, draw: &mut Draw| {
        let mut apart = Draw::new(seed, "rare fault", index);
        let is_rare = !rare.is_empty() && (common.is_empty() || apart.percent(RARE_PERCENT));
        if is_rare { *apart.pick(&rare) } else { *draw.pick(&common) }
    };
    // What takes many faults of a kind, or that one and no other beside it, is seldom drawn otherwise.
    let is_one_kind = knobs.chance("one_kind", 30);
    let draw_fault = |index: u32| {
        let number = index + 1;
        let seed = recipe.seed_of_event(number, "faults");
        let mut draw = Draw::new(seed, "fault", index);
        let own = draw_kind(seed, index, &mut draw);
        let first = recipe.seed_of_event(1, "faults");
        let kind = if is_one_kind { draw_kind(first, 0, &mut Draw::new(first, "fault", 0)) } else { own };
        let from_ns = draw.below(span_ns);
        let from_ns = recipe.at.get(&number).map_or(from_ns, |&at_ns| at_ns.min(span_ns));
        let until_ns = from_ns + draw.time_ns(1_000, span_ns.max(2_000));
        Fault { number, kind, from_ns, until_ns, what: subject.draw_fault(kind, &mut draw) }
    };
    let happens = |step: &Step<_>| recipe.keeps(step.number) && (!comparable || subject.is_comparable(&step.what));
    let drawn_apart = (0..removals).filter_map(draw_removal).chain((0..beside).filter_map(draw_beside));
    let drawn_steps = (0..steps).map(draw_step).chain(drawn_apart);
    let mut steps: Vec<_> = drawn_steps.filter(happens).collect();
    steps.sort_by_key(|step| (step.at_ns, step.number));
    let drawn = if rare.is_empty() && common.is_empty() { 0 } else { faults };
    let faults = (0..drawn).map(draw_fault).filter(|fault| recipe.keeps(fault.number)).collect();
    Plan { steps, faults, managers, span_ns, comparable, directed: None }
}

fn is_wanted(recipe: &Recipe, kind: &str) -> bool {
    recipe.faults.as_ref().is_none_or(|wanted| wanted.contains(kind))
}

impl<S: Subject> Plan<S> {
    pub(super) fn events(&self) -> Vec<Event> {
        let faults = self.faults.iter().map(|fault| Event {
            number: fault.number,
            at_ns: fault.from_ns,
            until_ns: Some(fault.until_ns),
            manager: None,
            text: fault.what.to_string(),
        });
        let steps = self.steps.iter().map(|step| Event {
            number: step.number,
            at_ns: step.at_ns,
            until_ns: None,
            manager: Some(step.manager),
            text: step.what.to_string(),
        });
        let operations = self.directed.iter().flat_map(|directed| &directed.operations);
        let operations = (0..).zip(operations).map(|(agent, operation)| Event {
            number: agent + 1,
            at_ns: 0,
            until_ns: None,
            manager: Some(agent),
            text: operation.to_string(),
        });
        let mut events: Vec<_> = faults.chain(steps).chain(operations).collect();
        events.sort_by_key(|event| (event.at_ns, event.number));
        events
    }
}
