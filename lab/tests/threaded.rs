//! A threaded interrupt behind a GIC: the accesses that a cycle costs, and the published gains.

mod common;

use common::plan;
use lab::input::Place;
use lab::interrupt::StopFlag;
use lab::kinds::threaded::{ThreadedOutcome, ThreadedVariant};
use lab::outcome::Outcome;
use lab::platform::Platform;
use lab::scenario::Request;
use lab::setting::Setting;
use lab::{published, reproduce, run, transfer};

fn outcome(scenario: &str, variant: ThreadedVariant, sets: &[&str]) -> Outcome {
    let plan = plan(scenario, sets);
    run::run_one(&plan.trial(variant).unwrap(), 1, false, &StopFlag::default()).unwrap().outcome
}

/// Exact counts per cycle, between two ends of the same run: what comes once, such as an interrupt of the scheduler, is in both. They
/// may differ only by the cycles that are under way at either end.
#[test]
fn accesses_of_a_cycle_are_those_of_the_kernel_that_was_measured() {
    // Polls of RWP: GICv3 until 5.18, since then, and GICv2, which has none. Of the raise, the mask and the unmask.
    let kernels = [
        ("gic-emag", "before 5.19", [1, 1, 1]),
        ("gic-altra", "since 5.19", [0, 1, 0]),
        ("gic-juno", "before 5.19", [0, 0, 0]),
    ];
    for (scenario, linux, [raise_polls, mask_polls, unmask_polls]) in kernels {
        for variant in ThreadedVariant::ALL {
            let ran = ["duration=10ms", "duration=20ms"].map(|duration| {
                let outcome = outcome(scenario, variant, &[duration, &format!("threaded.linux={linux}")]);
                assert_eq!(outcome.faults, []);
                outcome.threaded().unwrap().clone()
            });
            let between = |count: fn(&ThreadedOutcome) -> u64| count(&ran[1]) - count(&ran[0]);
            let cycles = between(|ran| ran.cycles);
            assert!(cycles > 1000, "{scenario} {variant}: {cycles}");
            let a_cycle = |count: fn(&ThreadedOutcome) -> u64, times: u64| {
                let (count, expected) = (between(count), times * cycles);
                assert!(count.abs_diff(expected) <= times, "{scenario} {variant}: {count}, not {expected}");
            };
            let masked = u64::from(variant.masks());
            let raise_polls = if variant == ThreadedVariant::Ours { 0 } else { raise_polls };
            let polls = raise_polls + masked * (mask_polls + unmask_polls);
            a_cycle(|ran| ran.accesses.raise_writes, 1);
            a_cycle(|ran| ran.accesses.mask_writes, masked);
            a_cycle(|ran| ran.accesses.unmask_writes, masked);
            a_cycle(|ran| ran.accesses.control_reads, polls);
            a_cycle(|ran| ran.accesses.distributor_reads, polls);
            a_cycle(|ran| ran.accesses.distributor_writes, 1 + 2 * masked);
            // Acknowledged, ended, nothing more found; and with EOImode 1 deactivated apart from the end.
            a_cycle(|ran| ran.accesses.interface, 4 - u64::from(variant == ThreadedVariant::MaskEoiMode0));
        }
    }
}

/// A newer kernel leaves less to gain: its mask and unmask make three accesses and not four.
#[test]
fn a_newer_kernel_leaves_three_quarters_of_the_accesses_to_gain() {
    let gain = |linux: &str, with: ThreadedVariant| {
        let sets = ["duration=10ms", &format!("threaded.linux={linux}")];
        let cycle = |variant| 1.0 / outcome("gic-emag", variant, &sets).threaded().unwrap().cycles as f64;
        cycle(ThreadedVariant::Mask) / cycle(with) - 1.0
    };
    let [before, since] = ["before 5.19", "since 5.19"].map(|linux| gain(linux, ThreadedVariant::EoiMode1));
    assert!(since < 0.82 * before && since > 0.7 * before, "{before} and {since}");
    // Ours raises without a poll on every kernel, so that it gains more where the kernel polls.
    assert!(gain("before 5.19", ThreadedVariant::Ours) > before + 0.05);
    assert!((gain("since 5.19", ThreadedVariant::Ours) - since).abs() < 0.002);
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
    assert!((polls(&slow[..1]) - 3.0).abs() < 0.01);
    assert!(polls(slow) > 6.0, "{}", polls(slow));
    let cycles = |sets| outcome("gic-emag", ThreadedVariant::EoiMode1, sets).threaded().unwrap().cycles;
    assert_eq!(cycles(slow), cycles(&slow[..1]));
}

#[test]
fn the_fitted_gains_are_within_a_point() {
    let rows = published::select(published::rows().unwrap(), &["L-eM".into(), "L-Al".into()]).unwrap();
    let plans = reproduce::plans(&rows).unwrap();
    let outcomes = reproduce::run_plans(&plans, &rows, &StopFlag::default()).complete().unwrap();
    let compared = reproduce::compare(&rows, &outcomes);
    assert_eq!(compared.len(), 2);
    for row in compared {
        let error = row.error_percent.unwrap();
        assert!(error.abs() < 1.0, "{}: {} against {:?}", row.id, row.value, row.published);
    }
}

/// Where the distributor is nearer than the CPU interface, the deactivation costs more than the mask that it saves.
#[test]
fn eoimode_1_loses_where_the_distributor_is_near() {
    let cycles = |variant, distributor: &str| {
        let sets = ["duration=10ms", &format!("gic.distributor={distributor}")];
        outcome("gic-juno", variant, &sets).threaded().unwrap().cycles as f64
    };
    let gain = |distributor| {
        cycles(ThreadedVariant::EoiMode1, distributor) / cycles(ThreadedVariant::MaskEoiMode0, distributor) - 1.0
    };
    // GICC_DIR is an access of 80 ns, mask and unmask two to the distributor.
    assert!(gain("160ns") > 0.04, "{}", gain("160ns"));
    assert!(gain("30ns") < -0.003, "{}", gain("30ns"));
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
        let masks = if variant.masks() { threaded.cycles } else { 0 };
        assert!(threaded.accesses.mask_writes.abs_diff(masks) <= 1, "{:?}", threaded.accesses);
        assert!(threaded.accesses.raise_writes.abs_diff(threaded.cycles) <= 1, "{:?}", threaded.accesses);
        assert_eq!(outcome.faults, []);
        let extreme = |of: fn(f64, f64) -> f64| threaded.rates.iter().copied().reduce(of).unwrap();
        (threaded.rates.iter().sum::<f64>(), extreme(f64::max) / extreme(f64::min) - 1.0)
    };
    let gain = |neighbour: &[&str]| {
        let [mask, eoimode1] =
            [ThreadedVariant::Mask, ThreadedVariant::EoiMode1].map(|variant| rates(variant, neighbour));
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

/// A constant that one row fits by construction says something only where it is tried: on the other boards it misses.
#[test]
fn the_constant_of_one_board_misses_the_others() {
    let load = |name: &str| Platform::load(&Setting::new(Place::option("platform"), "", name)).unwrap();
    let boards = ["emag", "altra", "juno"].map(load);
    let short = ["ramp=100us".to_owned(), "duration=4ms".to_owned()];
    let fits = transfer::transfer(&boards, &short, &StopFlag::default()).unwrap();
    let fitted: Vec<_> = fits.iter().map(|fit| (fit.platform.as_str(), fit.row.as_str(), fit.given.len())).collect();
    assert_eq!(fitted, [("emag", "L-eM", 3), ("altra", "L-Al", 3)]);
    for fit in &fits {
        for given in &fit.given {
            let error = given.same - given.published;
            let is_own = given.row == fit.row;
            assert_eq!(is_own, error.abs() < 0.2, "{} on {}: {error}", fit.key, given.platform);
            assert!(!is_own || given.same == given.scaled, "a board has the speed of its own core");
        }
    }
    let emr = [load("emr"), load("spr")];
    let refused = transfer::transfer(&emr, &[], &StopFlag::default()).unwrap_err().to_string();
    assert!(refused.starts_with("no platform has exactly one free constant and one fitted row: emr has"), "{refused}");
}
