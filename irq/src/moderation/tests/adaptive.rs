//! The promises of the default controller.

use super::plant::{Device, Load, MS, Plant, RDMA, Run, S};
use super::*;
use std::vec::Vec;

const SEEDS: [u64; 3] = [1, 0x5eed, 0xdead_beef_cafe];
const QD1: Load = Load { depth: 1, ..RDMA };
/// One read at a time from a device that answers at once. Moderation would hurt this shortest round most.
const QD1_QUICK: Load = Load { latency_ns: 6_000, ..QD1 };
const QD1_DRIVE: Load = Load { latency_ns: 80_000, ..QD1 };

/// Runs the loads. From `settle_ns` after its beginning each reaches 95 % of the best fixed level, with at most one
/// change of the level a second.
fn check(loads: &[(u64, Load)], settle_ns: u64, seed: u64) -> Run {
    let table = rdma_table();
    let plant = Plant { table: &table, loads, device: Device::Obeys, seed };
    let mut controller = adaptive();
    let run = plant.with(&mut controller);
    let mut from_ns = 0;
    for &(until_ns, load) in loads {
        let begin_ns = from_ns + settle_ns;
        let (ours, best) = (run.completions(begin_ns, until_ns), plant.best(begin_ns, until_ns));
        assert!(ours * 100 >= best * 95, "seed {seed}: {ours} of {best} under {load:?}\n{:?}", run.changes);
        let changes = run.changes_a_second(begin_ns, until_ns);
        assert!(changes <= 1, "seed {seed}: {changes} changes in a second under {load:?}\n{:?}", run.changes);
        from_ns = until_ns;
    }
    run
}

#[test]
fn deep_load_from_the_start_is_found_and_kept() {
    for seed in SEEDS {
        let run = check(&[(10 * S, RDMA)], S, seed);
        let late = run.changes.iter().filter(|&&(at, _)| at > S).count();
        assert_eq!(late, 0, "it neither slides back nor probes: {:?}", run.changes);
        assert!(run.level >= 5, "the levels from 16 µs up are the good ones, not {}", run.level);
    }
}

#[test]
fn deep_load_counts_from_its_first_moment_on() {
    let table = rdma_table();
    let plant = Plant { table: &table, loads: &[(10 * S, RDMA)], device: Device::Obeys, seed: 7 };
    let ours = plant.with(&mut adaptive()).completions;
    let best = plant.best(0, 10 * S);
    assert!(ours * 100 >= best * 95, "{ours} of {best}");
    let off = plant.fixed(0).completions;
    assert!(best * 100 >= off * 130, "the plant must have something to win: {best} over {off}");
}

#[test]
fn single_io_is_within_half_a_per_cent_of_no_moderation_search_included() {
    let table = rdma_table();
    for (seed, load) in SEEDS.into_iter().flat_map(|seed| [(seed, QD1), (seed, QD1_QUICK), (seed, QD1_DRIVE)]) {
        let plant = Plant { table: &table, loads: &[(10 * S, load)], device: Device::Obeys, seed };
        let (ours, off) = (plant.with(&mut adaptive()).completions, plant.fixed(0).completions);
        // Latency is time by completions: one in flight.
        assert!(off * 1_000 <= ours * 1_005, "seed {seed}: {ours} instead of {off} with {load:?}");
    }
}

/// Loads of these depths, four seconds each.
fn steps(depths: &[u32], load: Load) -> Vec<(u64, Load)> {
    (1..).zip(depths).map(|(index, &depth)| (index * 4 * S, Load { depth, ..load })).collect()
}

#[test]
fn load_steps_up_and_down_are_followed() {
    for seed in SEEDS {
        let run = check(&steps(&[1, 64, 1, 64, 4, 1, 64, 1], RDMA), S, seed);
        assert_eq!(run.level, 0, "{:?}", run.changes);
    }
}

#[test]
fn a_load_that_deepens_while_the_cpu_is_the_limit_shows_in_its_depth() {
    let knowing = Load { tells_depth: true, ..RDMA };
    for seed in SEEDS {
        check(&steps(&[4, 64, 4, 16, 1, 256], knowing), S, seed);
    }
    // Without the depth neither throughput nor completions an interrupt tell 4 from 64: the limit that the docs name.
    let table = rdma_table();
    let blind = steps(&[4, 64], RDMA);
    let plant = Plant { table: &table, loads: &blind, device: Device::Obeys, seed: 1 };
    assert_eq!(plant.with(&mut adaptive()).level, 0);
    // The controller does not stay wrong for ever.
    let blind = [(4 * S, Load { depth: 4, ..RDMA }), (24 * S, RDMA)];
    let plant = Plant { loads: &blind, ..plant };
    assert!(plant.with(&mut adaptive()).level >= 5);
}

/// Replays a load that the simulated machine ran at each level: interrupts a second and hundredths of completions an
/// interrupt, the last entry for all higher levels. Runs between two times. Returns the changes of the level.
fn feed(controller: &mut Adaptive, seen: &[(u64, u64)], from_ns: u64, until_ns: u64) -> Vec<(u64, usize)> {
    let (mut now_ns, mut random, mut changes) = (from_ns, 1u64, Vec::new());
    while now_ns < until_ns {
        let (events_per_s, gathered_x100) = seen[controller.level().min(seen.len() - 1)];
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        now_ns += S / events_per_s * (80 + (random >> 33) % 41) / 100;
        let completions = (gathered_x100 + (random >> 40) % 100) / 100;
        // Submitted less completed. A thread without a CPU submits nothing, however much work it has.
        let found = Found { completions: completions as u32, bytes: 0, in_flight: Some(2) };
        if controller.interrupt(now_ns, found) == Next::Program {
            let step = controller.step().expect("said so");
            changes.push((now_ns, step.level));
            let _ = controller.programmed(now_ns, step.id, Outcome::Done(step.setting));
        }
    }
    changes
}

/// The windows until the load counts as settled, if the time between two interrupts is `gap_ns` of the window's number.
fn windows_to_settle(gap_ns: impl Fn(u32) -> u64) -> u32 {
    let mut controller = adaptive();
    let (mut now_ns, mut windows, mut sample) = (0, 0, None);
    while windows == 0 || controller.view().phase == "settling" {
        // No two windows are quite the same, so that each is seen.
        now_ns += gap_ns(windows) + 11 * u64::from(windows);
        let _ = controller.interrupt(now_ns, Found { completions: 1, bytes: 0, in_flight: Some(2) });
        let latest = controller.view().sample;
        windows += u32::from(latest != sample);
        sample = latest;
        assert!(now_ns < 10 * S, "it never settles");
    }
    windows
}

#[test]
fn an_unsteady_load_is_waited_for_and_accepted_in_the_end() {
    assert_eq!(windows_to_settle(|_| 10_000), 2, "the second is like the first");
    assert_eq!(windows_to_settle(|window| if window < 4 { 5_000 << window } else { 100_000 }), 6);
    assert_eq!(windows_to_settle(|window| if window % 2 == 0 { 10_000 } else { 20_000 }), 8, "never steady");
}

/// Four reads in flight, where level 0 is the best, and 256, by the table of `scenarios/rdma-vm.toml`.
const FOUR: [(u64, u64); 5] = [(145_000, 136), (48_800, 401), (32_300, 406), (21_300, 406), (12_700, 406)];
const MANY: [(u64, u64); 5] = [(173_600, 119), (79_700, 371), (44_900, 732), (17_900, 2_005), (10_200, 3_588)];

#[test]
fn a_load_that_deepens_where_only_completions_an_interrupt_change_is_seen() {
    let table = [(1, 1), (8, 4), (16, 8), (32, 16), (64, 32)].map(|(us, count)| Setting::new(us, count));
    let table = LevelTable::new(table).expect("sorted");
    let mut controller = Adaptive::new(table, AdaptiveConfig::default());
    feed(&mut controller, &FOUR, 0, S);
    assert_eq!(controller.level(), 0);
    let idle = feed(&mut controller, &FOUR, S, 15 * S);
    assert!(idle.is_empty(), "nothing changes: {idle:?}");
    let changes = feed(&mut controller, &MANY, 15 * S, 35 * S);
    assert!(changes[0].0 < 15 * S + 150 * MS, "three windows: {changes:?}");
    assert!(controller.level() >= 3 && changes.iter().all(|&(at, _)| at < 16 * S), "{changes:?}");
    let changes = feed(&mut controller, &FOUR, 35 * S, 50 * S);
    assert!(controller.level() == 0 && changes.iter().all(|&(at, _)| at < 36 * S), "{changes:?}");
}

/// A consumer that knows only its posted I/Os has as many under way as before when the CPU is the limit.
#[test]
fn a_load_that_deepens_unseen_is_found_by_looking_again() {
    let table = [(1, 1), (8, 4), (16, 8), (32, 16), (64, 32)].map(|(us, count)| Setting::new(us, count));
    let table = LevelTable::new(table).expect("sorted");
    let mut controller = Adaptive::new(table, AdaptiveConfig::default());
    feed(&mut controller, &FOUR, 0, S);
    let looks = feed(&mut controller, &FOUR, S, 40 * S);
    let away: u64 = looks.windows(2).filter(|pair| pair[0].1 > 0).map(|pair| pair[1].0 - pair[0].0).sum();
    assert!(controller.level() == 0 && (1..=12).contains(&looks.len()), "{looks:?}");
    assert!(away < 39 * S / 100, "a per cent of the time: {looks:?}");
    let unseen = [FOUR[0], MANY[1], MANY[2], MANY[3], MANY[4]];
    let changes = feed(&mut controller, &unseen, 40 * S, 57 * S);
    assert!(controller.level() >= 3, "within the time between two looks: {changes:?}");
}

#[test]
fn looking_again_from_level_0_costs_a_single_io_nothing_to_speak_of() {
    let table = rdma_table();
    for seed in SEEDS {
        let plant = Plant { table: &table, loads: &[(60 * S, QD1)], device: Device::Obeys, seed };
        let ours = plant.with(&mut adaptive());
        let off = plant.fixed(0).completions(S, 60 * S);
        assert!(off * 1_000 <= ours.completions(S, 60 * S) * 1_002, "seed {seed}: of {off}");
        let later = ours.changes.iter().filter(|&&(at, _)| at > S).count();
        assert!((1..=30).contains(&later), "at most one in two seconds: {:?}", ours.changes);
    }
}

#[test]
fn a_window_counts_what_polls_found() {
    let mut controller = adaptive();
    // A poll finds half of each step's ten completions. A window takes 64 such polls.
    for step in 1..=80 {
        let now_ns = step * MS;
        assert_eq!(controller.interrupt(now_ns, Found::completions(5)), Next::Measure);
        assert_eq!(controller.polled(now_ns, Found::completions(5)), Next::Measure);
    }
    let sample = controller.view().sample.expect("80 ms is longer than a window");
    assert!((9_000..=11_000).contains(&sample.completions_per_s), "{sample}");
    assert_eq!((sample.events_per_s, sample.completions_per_event_x100), (1_000, 500));
}

#[test]
fn polled_completions_count() {
    for polled_pct in [20, 50, 90] {
        check(&[(6 * S, Load { polled_pct, ..RDMA })], S, 3);
    }
}

#[test]
fn polling_that_comes_and_goes_is_followed() {
    check(&[(4 * S, RDMA), (8 * S, Load { polled_pct: 80, ..RDMA }), (12 * S, RDMA)], S, 3);
}

#[test]
fn thefts_of_the_cpu_move_nothing() {
    for (seed, every_ms) in SEEDS.into_iter().flat_map(|seed| [(seed, 2), (seed, 5), (seed, 13), (seed, 100)]) {
        let deep = Load { theft_every_ns: every_ms * MS, ..RDMA };
        let run = check(&[(10 * S, deep)], S, seed);
        assert!(run.changes.iter().all(|&(at, _)| at < S), "{every_ms} ms: {:?}", run.changes);
        let single = Load { theft_every_ns: every_ms * MS, ..QD1 };
        let run = check(&[(10 * S, single)], S, seed);
        assert_eq!(run.level, 0);
        assert!(run.changes.iter().all(|&(at, _)| at < S), "{every_ms} ms: {:?}", run.changes);
    }
}

#[test]
fn thefts_that_begin_under_way_do_not_slide_back() {
    for seed in SEEDS {
        let thefts = Load { theft_every_ns: 5 * MS, ..RDMA };
        let run = check(&[(4 * S, RDMA), (8 * S, thefts), (12 * S, RDMA)], S, seed);
        let from_one: Vec<_> = run.changes.iter().filter(|&&(at, _)| at > S).collect();
        assert!(from_one.len() <= 2, "{from_one:?}");
    }
}

#[test]
fn a_device_that_is_the_limit_is_left_near_the_lowest_latency() {
    let slow = Load { spacing_ns: 9_000, ..RDMA };
    for seed in SEEDS {
        // All levels perform alike here, within the scatter of the samples.
        let level = check(&[(6 * S, slow)], S, seed).level;
        assert!(rdma_table().setting(level).delay_us <= 2, "level {level}");
    }
}

#[test]
fn a_rate_too_low_to_matter_is_not_searched() {
    let rare = Load { latency_ns: 500_000, ..QD1 };
    let table = rdma_table();
    let plant = Plant { table: &table, loads: &[(5 * S, rare)], device: Device::Obeys, seed: 5 };
    let mut controller = adaptive();
    assert!(plant.with(&mut controller).changes.is_empty());
    assert_eq!(controller.view().counts.steps, 0);
}

#[test]
fn a_quiet_end_of_a_load_leads_back_to_level_0_with_the_clock_alone() {
    let table = rdma_table();
    let plant = Plant { table: &table, loads: &[(3 * S, RDMA)], device: Device::Obeys, seed: 5 };
    let mut controller = adaptive();
    assert!(plant.with(&mut controller).level >= 5);
    let mut now_ns = 3 * S;
    while now_ns < 6 * S {
        now_ns = controller.deadline_ns().expect("it measures").max(now_ns + 1);
        if controller.elapsed(now_ns) == Next::Program {
            let step = controller.step().expect("said so");
            let _ = controller.programmed(now_ns, step.id, Outcome::Done(step.setting));
        }
    }
    assert_eq!(controller.level(), 0);
}

#[test]
fn other_tables_depths_and_devices_come_to_rest_near_their_best() {
    let coarse = [Setting::OFF, Setting::new(100, 8), Setting::new(100, 32), Setting::new(200, 64)];
    let tables = [LevelTable::RDMA_DIM.to_vec(), LevelTable::NET_DIM_RX.to_vec(), coarse.to_vec()];
    let kinds = [(0, 0, 6_000), (30, 7 * MS, 3_000)];
    for levels in tables {
        let table = LevelTable::new(levels).expect("sorted");
        for (depth, latency_ns) in [1, 3, 16, 1_024].into_iter().flat_map(|depth| [(depth, 3_000), (depth, 80_000)]) {
            for (polled_pct, theft_every_ns, event_ns) in kinds {
                let load = Load { depth, latency_ns, polled_pct, theft_every_ns, event_ns, ..RDMA };
                let plant = Plant { table: &table, loads: &[(4 * S, load)], device: Device::Obeys, seed: 17 };
                let run = plant.with(&mut Adaptive::new(table.clone(), AdaptiveConfig::default()));
                let (ours, best) = (run.completions(2 * S, 4 * S), plant.best(2 * S, 4 * S));
                assert!(ours * 100 >= best * 95, "{ours} of {best} under {load:?}\n{:?}", run.changes);
                assert!(run.changes.iter().all(|&(at, _)| at < 2 * S), "under {load:?}: {:?}", run.changes);
            }
        }
    }
}

/// Levels above 0 gather, and gain half of the throughput. Then a third of the load goes. If what is left comes one by one, the
/// delay goes before the next search is due; if it still gathers, the delay stays until then.
#[test]
fn a_load_that_falls_to_single_completions_loses_its_delay_at_once() {
    for (gathers, level) in [(false, 0), (true, 1)] {
        let mut controller = adaptive();
        let (mut now_ns, mut turn) = (0, 0);
        let mut interrupt = |controller: &mut Adaptive, gathers: bool, spacing_ns: u64| {
            now_ns += spacing_ns;
            turn += 1;
            let completions = 1 + u32::from(gathers && turn % 2 == 0);
            if controller.interrupt(now_ns, Found::completions(completions)) == Next::Program {
                let step = controller.step().expect("said so");
                let _ = controller.programmed(now_ns, step.id, Outcome::Done(step.setting));
            }
            now_ns
        };
        while controller.view().phase != "holding" || controller.level() == 0 {
            let gathers = controller.level() > 0;
            assert!(interrupt(&mut controller, gathers, 4_300) < 4 * S, "{}", controller.view());
        }
        assert_eq!(controller.level(), 1);
        let end_ns = interrupt(&mut controller, true, 4_300) + 100 * MS;
        while interrupt(&mut controller, gathers, if gathers { 6_450 } else { 4_300 }) < end_ns {}
        assert_eq!((controller.level(), controller.view().counts.searches), (level, 1), "{}", controller.view());
    }
}
