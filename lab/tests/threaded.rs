//! A threaded interrupt behind a GIC: the accesses that a cycle costs, and the published gains.

mod common;

use common::plan;
use lab::interrupt::StopFlag;
use lab::kinds::threaded::Accesses;
use lab::kinds::threaded::ThreadedVariant;
use lab::outcome::Outcome;
use lab::scenario::Request;
use lab::{published, reproduce, run};

fn outcome(scenario: &str, variant: ThreadedVariant, sets: &[&str]) -> Outcome {
    let plan = plan(scenario, sets);
    run::run_one(&plan.trial(variant).unwrap(), 1, false, &StopFlag::default()).unwrap().outcome
}

/// Exact counts per cycle. They may differ only by the cycles that are under way at the beginning and the end.
#[test]
fn a_mask_is_two_writes_and_a_poll_and_eoimode_1_makes_none_of_them() {
    for (scenario, polls) in [("gic-emag", 1), ("gic-altra", 1), ("gic-juno", 0)] {
        for variant in ThreadedVariant::ALL {
            let outcome = outcome(scenario, variant, &["duration=10ms"]);
            let threaded = outcome.threaded().unwrap();
            assert!(threaded.cycles > 1000, "{scenario} {variant}: {}", threaded.cycles);
            let a_cycle = |count: u64, times: u64| {
                let expected = times * threaded.cycles;
                assert!(count.abs_diff(expected) <= times, "{scenario} {variant}: {count}, not {expected}");
            };
            let masked = u64::from(variant == ThreadedVariant::Mask);
            let Accesses {
                distributor_reads,
                control_reads,
                distributor_writes,
                mask_writes,
                unmask_writes,
                raise_writes,
                interface,
            } = threaded.accesses;
            a_cycle(raise_writes, 1);
            a_cycle(mask_writes, masked);
            a_cycle(unmask_writes, masked);
            a_cycle(control_reads, masked * polls);
            a_cycle(distributor_reads, masked * polls);
            a_cycle(distributor_writes, 1 + 2 * masked);
            // Acknowledged, ended, nothing more found; and deactivated apart from the end.
            a_cycle(interface, 4 - masked);
            assert_eq!(outcome.faults, []);
        }
    }
}

/// If the distributor is slow to disable a line, it is polled more often. EOImode 1 is not affected.
#[test]
fn only_the_mask_waits_for_rwp() {
    let slow = &["duration=4ms", "gic.write_pending=2us"];
    let polls = |sets: &[&str]| {
        let outcome = outcome("gic-emag", ThreadedVariant::Mask, sets);
        let threaded = outcome.threaded().unwrap();
        threaded.accesses.control_reads as f64 / threaded.cycles as f64
    };
    assert!((polls(&slow[..1]) - 1.0).abs() < 0.01);
    assert!(polls(slow) > 4.0, "{}", polls(slow));
    let cycles = |sets| outcome("gic-emag", ThreadedVariant::EoiMode1, sets).threaded().unwrap().cycles;
    assert_eq!(cycles(slow), cycles(&slow[..1]));
}

#[test]
fn the_fitted_gains_are_within_a_point() {
    let rows = published::select(&["L-eM".into(), "L-Al".into()]).unwrap();
    let plans = reproduce::plans(&rows).unwrap();
    let outcomes = reproduce::run_plans(&plans, &rows, &StopFlag::default()).complete().unwrap();
    let compared = reproduce::compare(&rows, &outcomes);
    assert_eq!(compared.len(), 2);
    for row in compared {
        let error = row.error_percent.unwrap();
        assert!(error.abs() < 1.0, "{}: {} against {:?}", row.id, row.value, row.published);
    }
}

#[test]
fn every_iteration_has_a_rate() {
    let outcome = outcome("gic-altra", ThreadedVariant::Mask, &["duration=10ms", "threaded.iterations=7"]);
    let rates = &outcome.threaded().unwrap().rates;
    assert_eq!(rates.len(), 7);
    let mean = rates.iter().sum::<f64>() / 7.0;
    let counted = outcome.threaded().unwrap().cycles as f64 * 1e9 / outcome.span_ns as f64;
    assert!((mean / counted - 1.0).abs() < 0.001, "{mean} over the iterations, {counted} over the span");
}

/// With other interrupts on the CPU the iterations differ. The accesses per cycle stay the same, and the gain nearly
/// so.
#[test]
fn a_neighbour_spreads_the_rates_and_leaves_the_accesses() {
    let rates = |variant, neighbour: &[&str]| {
        let outcome = outcome("gic-emag", variant, &[&["duration=10ms"], neighbour].concat());
        let threaded = outcome.threaded().unwrap();
        let masks = if variant == ThreadedVariant::Mask { threaded.cycles } else { 0 };
        assert!(threaded.accesses.mask_writes.abs_diff(masks) <= 1, "{:?}", threaded.accesses);
        assert!(threaded.accesses.raise_writes.abs_diff(threaded.cycles) <= 1, "{:?}", threaded.accesses);
        assert_eq!(outcome.faults, []);
        let extreme = |of: fn(f64, f64) -> f64| threaded.rates.iter().copied().reduce(of).unwrap();
        (threaded.rates.iter().sum::<f64>(), extreme(f64::max) / extreme(f64::min) - 1.0)
    };
    let gain = |neighbour: &[&str]| {
        let [mask, eoimode1] = ThreadedVariant::ALL.map(|variant| rates(variant, neighbour));
        (eoimode1.0 / mask.0 - 1.0, mask.1.min(eoimode1.1))
    };
    let (alone, busy) = (gain(&[]), gain(&["threaded.neighbour=50us"]));
    assert!(alone.1 < 0.001, "nothing varies: {}", alone.1);
    assert!(busy.1 > 0.002, "{}", busy.1);
    assert!((alone.0 - busy.0).abs() < 0.02, "{} beside {}", busy.0, alone.0);
}

#[test]
fn what_cannot_run_is_refused() {
    let refused = |scenario: &str, set: &str| {
        let request = Request { sets: vec![set.into()], ..Request::of(scenario) };
        request.plan().unwrap_err().to_string()
    };
    let few = refused("gic-emag", "threaded.iterations=500");
    assert!(few.contains("leaves too few cycles to each; valid: at most one for each 100 us"), "{few}");
    let none = refused("gic-emag", "threaded.iterations=0");
    assert!(none.contains("is out of bounds; valid: a whole number, from 1 to 1000"), "{none}");
    let version = refused("gic-juno", "gic.version=4");
    assert!(version.contains("from 2 to 3"), "{version}");
    let request = Request { platform: Some("emr".into()), ..Request::of("gic-emag") };
    let no_gic = request.plan().unwrap_err().to_string();
    assert!(no_gic.contains("`emr` has no GIC; valid: one with [gic]"), "{no_gic}");
}
