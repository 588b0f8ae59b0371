//! A dearer step that made a run faster, and the coalescing behind it.
//!
//! A cost that is not the bottleneck can delay the handler, so that more completions share an interrupt. The interrupts
//! that are saved then relieve the bottleneck, and throughput rises. A reader must not take that for a gain of the
//! dearer part itself: the report names it.

use crate::input::Place;
use crate::interrupt::StopFlag;
use crate::outcome::{Headline, Outcome, Summary};
use crate::plan::{Plan, Spans};
use crate::platform::{Platform, Unit};
use crate::report::figure;
use crate::run::{self, RunError};
use crate::setting::Setting;

/// The relative gain from which a note is made: beyond what seeds differ by.
pub const NOISE: f64 = 0.01;

/// Costs of `plan` that are higher than in its platform's own file.
pub fn raised_costs(plan: &Plan) -> Vec<String> {
    let Some(own) = own_platform(plan) else { return Vec::new() };
    let own = own.constants();
    let is_raised = |name: &str, value: f64| own.iter().any(|(known, _, before)| known == name && value > before.value);
    let costs = plan.platform.constants().into_iter().filter(|(_, spec, _)| spec.unit == Unit::Time);
    costs.filter(|(name, _, now)| is_raised(name, now.value)).map(|(name, ..)| name).collect()
}

/// The constants of the plan's platform before anything was set. None for a platform that is not carried.
fn own_platform(plan: &Plan) -> Option<Platform> {
    Platform::load(&Setting::new(Place::file("platform"), "platform", &plan.platform.name)).ok()
}

/// Compares short runs of the plan's first seed with and without its raised costs.
///
/// # Errors
/// A run failed.
pub fn notes(plan: &Plan, stop: &StopFlag) -> Result<Vec<String>, RunError> {
    let raised = raised_costs(plan);
    let (Some(own), false) = (own_platform(plan), raised.is_empty()) else { return Ok(Vec::new()) };
    let mut now = plan.clone();
    now.seeds.truncate(1);
    let measured_ns = plan.spans.measured_ns.min(4_000_000);
    now.spans = Spans { ramp_ns: plan.spans.ramp_ns.min(1_000_000), measured_ns, ..plan.spans };
    let mut before = now.clone();
    for name in &raised {
        let value = own.constants().into_iter().find(|(known, ..)| known == name).map(|(.., constant)| constant.value);
        if let (Some((_, constant)), Some(value)) = (before.platform.get_mut(name), value) {
            constant.value = value;
        }
    }
    let outcomes = |plan: &Plan| -> Result<Vec<Outcome>, RunError> {
        Ok(run::run_all(plan, false, stop)?.into_iter().map(|run| run.outcome).collect())
    };
    let (before, now) = (outcomes(&before)?, outcomes(&now)?);
    let cause = format!("with {} raised", raised.join(", "));
    let pairs = before.iter().zip(&now).filter(|(before, now)| before.delivery == now.delivery);
    Ok(pairs.filter_map(|(before, now)| note(before, now, &format!("{}, {cause}", now.delivery))).collect())
}

/// The same for two outcomes, of which the second has a dearer step, named by `who`.
pub fn note(before: &Outcome, now: &Outcome, who: &str) -> Option<String> {
    let Headline { id, unit, name, .. } = before.section.measured().headline();
    let (before, now) = (Summary::over(std::slice::from_ref(before))?, Summary::over(std::slice::from_ref(now))?);
    note_of(&before, &now, who, (id, name), |value| figure::estimate(unit, crate::outcome::Estimate::of(&[value])))
}

/// The same for summaries over seeds.
fn note_of(
    before: &Summary,
    now: &Summary,
    who: &str,
    (id, name): (&str, &str),
    shown: impl Fn(f64) -> String,
) -> Option<String> {
    let both = |id: &str| Some((before.estimate(id)?.mean, now.estimate(id)?.mean));
    let (was, is) = both(id)?;
    if is <= was * (1.0 + NOISE) {
        return None;
    }
    let shared = [
        ("completions per handler", both("completions_per_interrupt")),
        ("completions per message sent", per_message(before, now, id, "msi")),
        ("completions per message handled", per_message(before, now, id, "interrupts")),
    ];
    let rise = |(was, is): (f64, f64)| is / was;
    let risen = shared.into_iter().filter_map(|(label, both)| Some((label, both?)));
    let most = risen.max_by(|a, b| rise(a.1).total_cmp(&rise(b.1))).filter(|(_, both)| rise(*both) > 1.0 + NOISE);
    let behind = most.map_or("no coalescing is behind it".into(), |(label, (was, is))| {
        format!("behind it, {label} rose from {was:.2} to {is:.2}")
    });
    let (was, is) = (shown(was), shown(is));
    Some(format!("Coalescing, {who}: {name} rose from {was} to {is}; {behind}."))
}

/// Completions for each message that the quantity `messages` counts: sharing before any handler.
fn per_message(before: &Summary, now: &Summary, id: &str, messages: &str) -> Option<(f64, f64)> {
    let ratio = |of: &Summary| Some(of.estimate(id)?.mean / of.estimate(messages)?.mean).filter(|r| r.is_finite());
    Some((ratio(before)?, ratio(now)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Estimate, Figure, Finding, Unit};

    fn summary(means: &[(&'static str, f64)]) -> Summary {
        let figure =
            |&(id, mean): &(&'static str, f64)| Figure { id, unit: Unit::Ratio, estimate: Estimate::of(&[mean]) };
        Summary {
            delivery: "posted".into(),
            seeds: vec![1],
            span_ns: 1,
            figures: means.iter().map(figure).collect(),
            bottleneck: Finding::of(&[]),
            steadiness: None,
            means: None,
            is_uneven: false,
            faults: Vec::new(),
        }
    }

    #[test]
    fn a_gain_is_told_with_the_coalescing_behind_it_or_without_any() {
        let told = |before: &[(&'static str, f64)], now: &[(&'static str, f64)]| {
            note_of(&summary(before), &summary(now), "posted", ("iops", "IOPS"), |v| v.to_string())
        };
        let name = "completions_per_interrupt";
        assert_eq!(told(&[("iops", 100.0), (name, 1.0)], &[("iops", 100.5), (name, 2.0)]), None, "noise");
        assert_eq!(
            told(&[("iops", 100.0), (name, 1.0)], &[("iops", 120.0), (name, 1.5)]).unwrap(),
            "Coalescing, posted: IOPS rose from 100 to 120; behind it, completions per handler rose from 1.00 to 1.50."
        );
        assert_eq!(
            told(&[("iops", 100.0)], &[("iops", 120.0)]).unwrap(),
            "Coalescing, posted: IOPS rose from 100 to 120; no coalescing is behind it."
        );
    }
}
