//! The promises of the default moderation controller, on the machine: the latency of single reads, the throughput of
//! the best fixed level, a stable level. The published controllers run beside it, with their faults.

use lab::interrupt::StopFlag;
use lab::kinds::rdma::RdmaOutcome;
use lab::outcome::Outcome;
use lab::run::run_one;
use lab::scenario::Request;
use std::collections::BTreeMap;

/// The highest level of the scenarios' table.
const TOP: u32 = 4;

/// One run of a carried scenario with settings over it.
fn run(scenario: &str, sets: &[&str], moderation: &str) -> Outcome {
    let request = Request {
        input: scenario.into(),
        deliveries: Some(vec![moderation.into()]),
        sets: sets.iter().map(ToString::to_string).collect(),
        ..Request::default()
    };
    let plan = request.plan().expect("a scenario");
    let outcome = run_one(&plan.trials()[0], 1, false, &StopFlag::default()).expect("it runs").outcome;
    assert!(outcome.faults.is_empty(), "{moderation}: {:?}", outcome.faults);
    outcome
}

fn rdma(outcome: &Outcome) -> &RdmaOutcome {
    outcome.rdma().expect("an experiment on moderation")
}

fn iops(outcome: &Outcome) -> f64 {
    rdma(outcome).ios as f64 * 1e9 / outcome.span_ns as f64
}

/// The highest rate of all fixed levels, with the same settings but a short ramp.
fn best(scenario: &str, sets: &[&str]) -> f64 {
    let short = [sets, &["ramp=5ms", "duration=60ms"]].concat();
    (0..=TOP).map(|level| iops(&run(scenario, &short, &format!("level {level}")))).fold(0.0, f64::max)
}

/// Ours: at least 95 % of the best fixed level, at most one change of the level a second.
fn check(scenario: &str, sets: &[&str], best: f64) -> Outcome {
    let ours = run(scenario, sets, "adaptive");
    assert!(iops(&ours) >= 0.95 * best, "{scenario}: {} of {best}\n{:?}", iops(&ours), rdma(&ours).levels);
    let seconds = (ours.span_ns as f64 / 1e9).ceil() as u64;
    assert!(rdma(&ours).initiator.levels.changes <= seconds, "{scenario}: {:?}", rdma(&ours).levels);
    ours
}

#[test]
fn a_load_deep_from_the_start_is_found_and_held() {
    let spans = ["ramp=300ms", "duration=200ms"];
    let best = best("rdma-deep", &[]);
    let ours = check("rdma-deep", &spans, best);
    assert_eq!(rdma(&ours).initiator.levels.changes, 0, "{:?}", rdma(&ours).levels);
    let off = iops(&run("rdma-deep", &["ramp=5ms", "duration=60ms"], "no moderation"));
    assert!(best > 1.4 * off, "there is something to win: {best} over {off}");
    // irq-am waits for a change of 20 %, programs level 0 for ever, and gains nothing. At both hosts each is the other's
    // change.
    let alone = ["ramp=30ms", "duration=100ms", "rdma.nr_events=64", "rdma.moderated=initiator"];
    let published = run("rdma-deep", &alone, "irq-am");
    let programmed = rdma(&published).initiator.programmed;
    assert!(rdma(&published).levels.len() == 1 && programmed > 100, "{programmed}, {:?}", rdma(&published).levels);
    assert!(iops(&published) < 1.05 * off);
}

#[test]
fn single_reads_are_within_half_a_per_cent_of_no_moderation() {
    let spans = ["ramp=150ms", "duration=150ms"];
    let mean = |moderation| rdma(&run("rdma-qd1", &spans, moderation)).latency.mean_ns;
    let (off, ours, published, dim) = (mean("no moderation"), mean("adaptive"), mean("irq-am"), mean("net_dim"));
    assert!(ours <= 1.005 * off, "{ours} ns instead of {off}");
    // Each of its samples ends by programming a level.
    assert!(published > 1.001 * off, "{published} ns instead of {off}");
    assert!(dim > 1.5 * off, "it starts at level 1, and stays: {dim} ns instead of {off}");
}

/// One controller in the loop, which is told the depth. No completion queue knows the depth, and two controllers in one
/// loop mistake each other's search for the load's change; what they promise is in
/// [`two_hosts_with_a_controller_each_follow_within_a_second`].
const ALONE_AND_TOLD_ALL: [&str; 2] = ["rdma.moderated=initiator", "rdma.tells=all"];

#[test]
fn two_hosts_with_a_controller_each_follow_within_a_second() {
    let ours = run("rdma-steps", &[], "adaptive");
    let levels = &rdma(&ours).levels;
    // The scenario's depths, each for a second, and the levels that are within 5 % of the best.
    for (second, depth, good) in
        [(0, 1, 0..=0), (1, 128, 3..=4), (2, 1, 0..=0), (3, 64, 2..=4), (4, 4, 0..=0), (5, 256, 3..=4)]
    {
        let end_ns = (second + 1) * 1_000_000_000;
        let held = levels.iter().rev().find(|change| change.from_ns < end_ns).map_or(0, |change| change.level);
        assert!(good.contains(&held), "depth {depth}: level {held}\n{levels:?}");
    }
}

/// A sequence in which each depth follows each other depth once.
const DEPTHS: [u32; 13] = [1, 4, 1, 32, 1, 256, 4, 32, 4, 256, 32, 256, 1];
/// Duration of each depth.
const STEP_NS: u64 = 450_000_000;
/// Time after which the level must have followed.
const FOLLOWED_NS: u64 = 340_000_000;

#[test]
fn every_step_of_the_load_is_followed_within_half_a_second() {
    let fixed = |depth: u32, level: u32| {
        let depth = format!("rdma.depth={depth}");
        let spans = ["ramp=5ms", "duration=30ms"];
        iops(&run("rdma-deep", &[&ALONE_AND_TOLD_ALL[..], &spans, &[&depth]].concat(), &format!("level {level}")))
    };
    let rates = |depth| (depth, (0..=TOP).map(|level| fixed(depth, level)).collect::<Vec<_>>());
    let rates: BTreeMap<u32, Vec<f64>> = [1, 4, 32, 256].map(rates).into();
    let steps = (0..).zip(DEPTHS).map(|(index, depth)| format!("{depth} from {} ms", index * STEP_NS / 1_000_000));
    let depths = format!("rdma.depth={}", steps.collect::<Vec<_>>().join(", ").replace(" from 0 ms", ""));
    let duration = format!("duration={}ms", DEPTHS.len() as u64 * STEP_NS / 1_000_000);
    let ours = run("rdma-steps", &[&ALONE_AND_TOLD_ALL[..], &[&depths, "ramp=0ns", &duration]].concat(), "adaptive");
    let levels = &rdma(&ours).levels;
    for (index, depth) in (0..).zip(DEPTHS) {
        let (followed_ns, end_ns) = (index * STEP_NS + FOLLOWED_NS, (index + 1) * STEP_NS);
        let held = levels.iter().rev().find(|change| change.from_ns <= followed_ns).map_or(0, |change| change.level);
        let rates = &rates[&depth];
        let best = rates.iter().copied().fold(0.0, f64::max);
        assert!(rates[held as usize] >= 0.95 * best, "step {index} to {depth}: level {held} of {rates:?}\n{levels:?}");
        let later = levels.iter().filter(|change| (followed_ns..end_ns).contains(&change.from_ns)).count();
        assert_eq!(later, 0, "step {index} to {depth}: {levels:?}");
        // Single reads need no delay, so they get none.
        assert!(depth > 1 || held == 0, "step {index}: level {held}\n{levels:?}");
    }
}

#[test]
fn a_load_that_deepens_while_the_cpu_is_the_limit_is_followed() {
    // Level 0 is the best for up to five reads, and gives the same rate with five as with 256. Level 2 is best for
    // sixteen.
    let best = best("rdma-deep", &["rdma.depth=256", "rdma.moderated=initiator"]);
    for from in [5, 16] {
        let depth = format!("rdma.depth={from}, 256 from 450 ms");
        check("rdma-steps", &[&ALONE_AND_TOLD_ALL[..], &[&depth, "ramp=800ms", "duration=50ms"]].concat(), best);
    }
    // A controller that is told what was posted cannot see this: as many are on the wire as before. It stays where it
    // is until it looks again, 16 s later.
    let told = ["rdma.moderated=initiator", "rdma.depth=5, 256 from 450 ms", "ramp=800ms", "duration=50ms"];
    let ours = run("rdma-steps", &told, "adaptive");
    assert!(rdma(&ours).initiator.levels.top_share == 0.0 && iops(&ours) < 0.75 * best, "{}", iops(&ours));
}

#[test]
fn thefts_of_the_cpu_move_nothing() {
    // The thefts are the same at every fixed level, because they depend on the seed alone.
    let spans = ["ramp=250ms", "duration=150ms"];
    let level = |level: u32| iops(&run("rdma-thefts", &spans, &format!("level {level}")));
    let best = (0..=TOP).map(level).fold(0.0, f64::max);
    let ours = check("rdma-thefts", &spans, best);
    assert_eq!(rdma(&ours).initiator.levels.changes, 0, "{:?}", rdma(&ours).levels);
    let published = run("rdma-thefts", &["ramp=100ms", "duration=300ms"], "rdma_dim");
    assert!(
        rdma(&published).initiator.levels.changes > 10,
        "a theft reads as a worse level: {:?}",
        rdma(&published).levels
    );
}

#[test]
fn a_programmer_that_is_slow_or_late_moves_nothing_it_should_not() {
    let best = best("rdma-deep", &[]);
    // Within the bound of 100 ms the search only takes longer.
    let slow = ["rdma.program_takes=20ms", "ramp=400ms", "duration=100ms"];
    check("rdma-deep", &slow, best);
    // Beyond the bound every step is late. The controller believes a step when it is done, and asks again a second
    // later.
    let late = run("rdma-deep", &["rdma.program_takes=150ms", "ramp=0ns", "duration=1s"], "adaptive");
    let state = rdma(&late).tuning.as_ref().expect("a controller has a state");
    assert!(!state.contains(" late 0 ") && state.contains(" strays 0 "), "{state}");
    assert!(rdma(&late).initiator.levels.changes <= 4, "{:?}", rdma(&late).levels);
}

#[test]
fn completions_found_by_polling_count() {
    let best = best("rdma-mixed", &[]);
    let spans = ["ramp=300ms", "duration=200ms"];
    check("rdma-mixed", &spans, best);
    // rdma_dim does not count these completions. It mistakes their variation for the load's: hundreds of changes a
    // second.
    let alone = [&spans[..], &["rdma.moderated=initiator"]].concat();
    let published = run("rdma-mixed", &alone, "rdma_dim");
    assert!(
        rdma(&published).initiator.levels.changes > 50 && iops(&published) < 0.9 * best,
        "{:?}",
        rdma(&published).levels
    );
}

#[test]
fn a_nic_that_rounds_is_judged_by_what_it_does_and_one_that_refuses_is_left_alone() {
    let rounds = "rdma.answer=rounds 50 us or 8";
    let best = best("rdma-deep", &[rounds]);
    check("rdma-deep", &[rounds, "ramp=300ms", "duration=200ms"], best);
    let refused = run("rdma-deep", &["rdma.answer=refuses", "ramp=200ms", "duration=100ms"], "adaptive");
    let off = run("rdma-deep", &["ramp=5ms", "duration=60ms"], "no moderation");
    assert!(iops(&refused) > 0.99 * iops(&off));
    let state = rdma(&refused).tuning.as_ref().expect("a controller has a state");
    assert!(state.contains("at level 0 of 0 to 4") && !state.contains("failed 0"), "{state}");
}

#[test]
fn a_table_of_levels_that_cannot_be_is_an_error_of_the_input() {
    let error = |levels: &str| {
        let sets = vec![format!("rdma.levels={levels}")];
        Request { input: "rdma-deep".into(), sets, ..Request::default() }.plan().expect_err("refused").to_string()
    };
    assert!(error("").contains("the table of levels is empty"), "{}", error(""));
    let unsorted = error("16 us or 8, 8 us or 8");
    assert!(unsorted.contains("must exceed the one below it"), "{unsorted}");
}

#[test]
fn equal_seeds_give_equal_runs_of_two_hosts() {
    let short = ["ramp=1ms", "duration=3ms", "rdma.theft_every=2ms", "rdma.polled=30 %"];
    let run = |scenario| run(scenario, &short, "rdma_dim");
    let (first, second) = (run("rdma-deep"), run("rdma-deep"));
    assert_eq!((first.engine.digest, &first.section), (second.engine.digest, &second.section));
    assert_ne!(first.engine.digest, run("rdma-nine-levels").engine.digest);
}

#[test]
fn the_depth_that_is_asked_for_is_under_way() {
    // Little's law: the rate times the mean latency.
    for depth in [1, 16, 128, 256] {
        for moderation in ["no moderation", "level 4"] {
            let depths = format!("rdma.depth={depth}");
            let outcome = run("rdma-deep", &[&depths, "ramp=5ms", "duration=40ms"], moderation);
            let under_way = iops(&outcome) * rdma(&outcome).latency.mean_ns / 1e9;
            let error = under_way / f64::from(depth) - 1.0;
            assert!(error.abs() < 0.02, "{moderation}: {under_way:.2} reads under way instead of {depth}");
        }
    }
}

#[test]
fn the_targets_queues_are_moderated_too() {
    let spans = ["ramp=10ms", "duration=40ms"];
    let per_event = |sets: &[&str], moderation| {
        let outcome = run("rdma-deep", &[&spans, sets].concat(), moderation);
        let target = &rdma(&outcome).target;
        target.completions as f64 / target.events as f64
    };
    let off = per_event(&[], "no moderation");
    assert!(off < 1.5 && per_event(&[], "level 4") > 10.0 * off);
    // A target whose queues stay as they are gets a capsule at a time, and finds few.
    assert!(per_event(&["rdma.moderated=initiator"], "level 4") < 3.0 * off);
    // With one read under way both hosts program level 0 again and again.
    let single = run("rdma-qd1", &spans, "irq-am");
    let RdmaOutcome { initiator, target, .. } = rdma(&single);
    assert!(initiator.programmed.min(target.programmed) > 20, "{initiator:?} {target:?}");
}

/// The cost of a level that is programmed for nothing, and the case where moderation loses.
#[test]
fn single_reads_pay_for_every_level_that_is_programmed() {
    let spans = ["ramp=50ms", "duration=100ms"];
    let mean = |sets: &[&str], moderation| rdma(&run("rdma-qd1", &[&spans, sets].concat(), moderation)).latency.mean_ns;
    let off = mean(&[], "no moderation");
    let [cheap, dear] = ["nic.program=0ns", "nic.program=20us"].map(|program| mean(&[program], "irq-am") / off);
    assert!(cheap < 1.005 && dear > 1.02, "{cheap} {dear}");
    // Waiting for a fourth completion that never comes costs the whole period, at either host.
    assert!(mean(&[], "level 1") > off + 2.0 * 7_000.0);
}

#[test]
fn a_controller_is_told_what_it_was_set_to() {
    let told = |tells: &str| {
        let tells = format!("rdma.tells={tells}");
        let outcome = run("rdma-deep", &[&tells, "ramp=10ms", "duration=60ms"], "adaptive");
        rdma(&outcome).tuning.clone().expect("a controller has a state")
    };
    assert!(!told("nothing").contains("in flight"), "{}", told("nothing"));
    assert!(told("all").contains(", 128.00 in flight"), "{}", told("all"));
    // Of 128 reads under way few are on the wire: completed ones wait for the application.
    assert!(!told("posted").contains("128.00 in flight") && told("posted").contains("in flight"), "{}", told("posted"));
}
