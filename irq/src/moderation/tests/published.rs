//! The published controllers against traces that were derived by hand from their descriptions, defects included.

use super::plant::{Device, Load, Plant, RDMA, S};
use super::*;
use std::vec::Vec;

/// Feeds samples of a fixed number of events in sequence.
struct Feed {
    now_us: u64,
    events: u32,
}

impl Feed {
    /// Feeds one sample of interrupts `gap_us` apart, each with `completions`, and answers the step. Returns the
    /// level after it and whether it was programmed.
    fn sample(&mut self, controller: &mut dyn Controller, gap_us: u64, completions: u32) -> (usize, bool) {
        let mut programmed = false;
        for _ in 0..self.events {
            self.now_us += gap_us;
            let found = Found { completions, bytes: u64::from(completions) * 1_000, in_flight: None };
            programmed |= controller.interrupt(self.now_us * 1_000, found) == Next::Program;
        }
        if let Some(step) = controller.step() {
            assert_eq!(controller.programmed(self.now_us * 1_000, step.id, Outcome::Done(step.setting)), Next::Measure);
            // Measuring starts again here.
            let _ = controller.interrupt(self.now_us * 1_000, Found::default());
        }
        (controller.level(), programmed)
    }
}

fn feed(controller: &mut dyn Controller, events: u32) -> Feed {
    let _ = controller.interrupt(0, Found::default());
    Feed { now_us: 0, events }
}

fn five_levels() -> LevelTable {
    LevelTable::new(LevelTable::NET_DIM_RX).expect("sorted")
}

#[test]
fn irq_am_climbs_turns_and_reprograms_at_the_end() {
    let mut am = IrqAm::new(five_levels(), 10);
    let mut feed = feed(&mut am, 10);
    // The first sample has no predecessor. Level 0 is programmed nevertheless.
    assert_eq!(feed.sample(&mut am, 10, 2), (0, true));
    // 50 % more: better, one up. Twice as much: up again.
    assert_eq!(feed.sample(&mut am, 10, 3), (1, true));
    assert_eq!(feed.sample(&mut am, 10, 6), (2, true));
    // 16 % more counts as equal.
    assert_eq!(feed.sample(&mut am, 10, 7), (2, false));
    // Half: worse, turn and step down. Less still: turn and up.
    assert_eq!(feed.sample(&mut am, 10, 3), (1, true));
    assert_eq!(feed.sample(&mut am, 10, 2), (2, true));
    // The same completions by fewer events: better.
    assert_eq!(feed.sample(&mut am, 20, 4), (3, true));
    assert_eq!(feed.sample(&mut am, 40, 8), (4, true));
    // At the end of the table the level stays, and every sample programs it again.
    for _ in 0..3 {
        assert_eq!(feed.sample(&mut am, 40, 8), (4, true));
    }
    assert_eq!(am.view().counts.changes, 6);
}

#[test]
fn a_view_of_dim_has_a_sample_once_a_window_is_over() {
    let mut dim = RdmaDim::new(rdma_table());
    let mut feed = feed(&mut dim, 64);
    assert!(dim.view().sample.is_none());
    // A completion each 10 us.
    feed.sample(&mut dim, 10, 1);
    let sample = dim.view().sample.expect("a window is over");
    assert_eq!((sample.completions_per_s, sample.events_per_s), (100_000, 100_000), "{sample}");
}

#[test]
fn irq_am_goes_down_when_events_are_single() {
    let mut am = IrqAm::new(five_levels(), 10);
    let mut feed = feed(&mut am, 10);
    assert_eq!(feed.sample(&mut am, 10, 1), (0, true));
    assert_eq!(feed.sample(&mut am, 10, 2), (1, true));
    assert_eq!(feed.sample(&mut am, 5, 1), (0, true), "as many completions, more events: worse");
    assert_eq!(feed.sample(&mut am, 5, 3), (0, true), "better downwards, at the end");
}

#[test]
fn irq_am_at_depth_1_programs_after_every_sample() {
    let table = rdma_table();
    let load = Load { depth: 1, ..RDMA };
    let plant = Plant { table: &table, loads: &[(2 * S, load)], device: Device::Obeys, seed: 2 };
    let mut am = IrqAm::new(table.clone(), 64);
    plant.with(&mut am);
    let steps = am.view().counts.steps;
    assert!(steps > 1_000, "61,000 events a second make 960 samples: {steps} steps");
}

#[test]
fn irq_am_does_not_see_polled_completions() {
    let mut am = IrqAm::new(five_levels(), 10);
    let mut feed = feed(&mut am, 10);
    feed.sample(&mut am, 10, 2);
    let _ = am.polled(feed.now_us * 1_000, Found::completions(10_000));
    assert_eq!(feed.sample(&mut am, 10, 2), (0, true), "otherwise it would be better, and level 1");
}

#[test]
fn irq_am_survives_what_would_divide_by_zero() {
    let mut am = IrqAm::new(five_levels(), 4);
    for _ in 0..100 {
        if am.interrupt(7, Found::completions(u32::MAX)) == Next::Program {
            let step = am.step().expect("said so");
            let _ = am.programmed(7, step.id, Outcome::Failed);
        }
    }
    assert_eq!(am.level(), 0);
}

#[test]
fn without_an_answer_the_published_ones_stop_for_good() {
    for algorithm in [Algorithm::IrqAm, Algorithm::RdmaDim, Algorithm::NetDim] {
        let mut controller = algorithm.build(five_levels(), 64).expect("64 events");
        let mut programs = 0;
        for event in 0..64_000u64 {
            // Ever more completions.
            let found = Found { completions: 1 + event as u32 / 100, bytes: event, in_flight: None };
            programs += u32::from(controller.interrupt(event * 5_000, found) == Next::Program);
        }
        assert_eq!(programs, 1, "{algorithm}");
    }
}

#[test]
fn rdma_dim_climbs_turns_at_the_end_and_falls_to_zero() {
    let mut dim = RdmaDim::new(rdma_table());
    let mut feed = feed(&mut dim, 64);
    assert_eq!(feed.sample(&mut dim, 10, 1), (0, false), "the first");
    // Half as many events, the same completions: the ratio doubles.
    let mut completions = 1;
    for level in 1..=8 {
        completions += 1;
        let wanted = (level, true);
        assert_eq!(feed.sample(&mut dim, 10, completions), wanted, "{completions} are over 10 % more");
    }
    // Better still, but the table ends here: the controller turns.
    assert_eq!(feed.sample(&mut dim, 10, 12), (8, false));
    // Better again: the controller steps in its new direction, away from the best level.
    assert_eq!(feed.sample(&mut dim, 10, 15), (7, true));
    // Equal, with many completions per event: stay. Worse: turn and step up.
    assert_eq!(feed.sample(&mut dim, 10, 15), (7, false));
    assert_eq!(feed.sample(&mut dim, 10, 3), (8, true));
    // Equal, with 3 completions per event, at most half the level: go to level 0.
    assert_eq!(feed.sample(&mut dim, 10, 3), (0, true));
}

#[test]
fn net_dim_starts_at_1_parked_and_parks_at_the_end() {
    let mut dim = NetDim::new(five_levels());
    let mut feed = feed(&mut dim, 64);
    // Any rate is better than none. The controller leaves, to the left because its level is above 0.
    assert_eq!(feed.sample(&mut dim, 10, 10), (0, true));
    assert_eq!(dim.view().phase, "going left");
    // Equal is not better: turn right, and step.
    assert_eq!(feed.sample(&mut dim, 10, 10), (1, true));
    for (completions, level) in [(12, 2), (14, 3), (16, 4)] {
        assert_eq!(feed.sample(&mut dim, 10, completions), (level, true));
    }
    assert_eq!(feed.sample(&mut dim, 10, 20), (4, false), "the end");
    assert_eq!(dim.view().phase, "parking on top");
    // A change below 10 % does not wake the controller, a larger one does.
    assert_eq!(feed.sample(&mut dim, 10, 20), (4, false));
    assert_eq!(feed.sample(&mut dim, 10, 21), (4, false));
    assert_eq!(feed.sample(&mut dim, 10, 30), (3, true));
}

#[test]
fn net_dim_parks_one_step_below_a_level_that_was_worse() {
    let mut dim = NetDim::new(five_levels());
    let mut feed = feed(&mut dim, 64);
    assert_eq!(feed.sample(&mut dim, 10, 10), (0, true));
    // Three steps right, of which the last is worse: turn, and one step left.
    for (completions, level) in [(10, 1), (12, 2), (14, 3), (10, 2)] {
        assert_eq!(feed.sample(&mut dim, 10, completions), (level, true));
    }
    assert_eq!(dim.view().phase, "going left");
    // Better there than above: the top, after several steps one way and one back.
    assert_eq!((feed.sample(&mut dim, 10, 14), dim.view().phase), ((2, false), "parking on top"));
}

#[test]
fn net_dim_parks_tired_after_ten_steps_and_leaves_after_ten_samples() {
    let mut dim = NetDim::new(five_levels());
    let mut feed = feed(&mut dim, 64);
    // Each sample is over 10 % below the last: worse every time, so the controller turns every time.
    let falling = [100, 85, 72, 61, 52, 44, 37, 31, 26, 22];
    let levels: Vec<_> = falling.map(|completions| feed.sample(&mut dim, 10, completions).0).into();
    assert_eq!(levels, [0, 1, 0, 1, 0, 1, 0, 1, 0, 1]);
    assert_eq!(feed.sample(&mut dim, 10, 18), (1, false));
    for _ in 0..9 {
        assert_eq!((feed.sample(&mut dim, 10, 90), dim.view().phase), ((1, false), "parking tired"));
    }
    assert_eq!((feed.sample(&mut dim, 10, 90), dim.view().phase), ((0, true), "going left"));
}

#[test]
fn every_algorithm_runs_the_deep_load_and_ours_is_not_behind() {
    let table = rdma_table();
    let plant = Plant { table: &table, loads: &[(3 * S, RDMA)], device: Device::Obeys, seed: 9 };
    let completions = Algorithm::ALL.map(|algorithm| {
        let mut controller = algorithm.build(table.clone(), 64).expect("64 events");
        plant.with(controller.as_mut()).completions(S, 3 * S)
    });
    let [ours, others @ ..] = completions;
    assert!(others.iter().all(|&other| ours * 100 >= other * 98), "{completions:?}");
    assert!(completions.iter().all(|&count| count > 0));
}
