use super::region::{self, Held};
use super::*;
use crate::plan::Plan;
use crate::scenario::Request;
use crate::setting::Setting;
use std::collections::BTreeMap;

/// Rows whose relative errors are linear in the constants' logarithms, or whatever the function says.
struct Formula<F>(F);

impl<F: Fn(&[f64]) -> Result<Vec<f64>, CalibrateError> + Sync> Model for Formula<F> {
    fn errors(&self, steps: &[f64]) -> Result<Vec<f64>, CalibrateError> {
        (self.0)(steps)
    }
}

const WIDE: [f64; 2] = [-region::LOG_MAX, region::LOG_MAX];

#[test]
fn the_interval_of_two_constants_is_the_analytic_one() {
    // Row 0 sees the product of the constants, row 1 their ratio; row 0 starts 1 % high.
    let model = Formula(|x: &[f64]| Ok(vec![1.01 * (x[0] + x[1]).exp() - 1.0, (x[0] - x[1]).exp() - 1.0]));
    let region = region::find(&model, &[WIDE; 2], "test").unwrap().unwrap();
    let (up, down) = ((1.02f64 / 1.01).ln(), 0.98f64.ln());
    let [low, high] = &region.alone[0];
    let is_near = |found: f64, wanted: f64| found.abs() <= wanted.abs() && (found - wanted).abs() < 0.0011;
    assert!(is_near(high.step, up) && high.held == Held::Row(0), "{high:?}");
    assert!(is_near(low.step, down) && low.held == Held::Row(1), "{low:?}");
    // x0 is half of product and ratio: from (ln(0.98/1.01) + ln 0.98)/2 to (ln(1.02/1.01) + ln 1.02)/2.
    let wanted = [f64::midpoint((0.98f64 / 1.01).ln(), down), f64::midpoint(up, 1.02f64.ln())];
    let joint = region.joint(0);
    for (found, wanted) in joint.iter().zip(wanted) {
        assert!(found.abs() <= wanted.abs() && found.abs() >= 0.88 * wanted.abs(), "{joint:?} against {wanted}");
    }
    assert!(region.points.len() > POINTS_MIN, "{} points", region.points.len());
    let slopes = region.slopes(1);
    assert!((slopes[0] - 1.0).abs() < 0.03 && (slopes[1] + 1.0).abs() < 0.03, "{slopes:?}");
    assert_eq!(Some(region), region::find(&model, &[WIDE; 2], "test").unwrap(), "the same each time");
}

#[test]
fn every_point_of_a_curved_region_is_inside() {
    let errors = |x: &[f64]| vec![0.5 * x[0] + 4.0 * x[1] * x[1], x[1] - 3.0 * x[0] * x[0]];
    let model = Formula(|x: &[f64]| Ok(errors(x)));
    let region = region::find(&model, &[WIDE; 2], "test").unwrap().unwrap();
    assert!(region.points.len() > POINTS_MIN && region.tried >= region.points.len() - 1);
    assert!(region.points.iter().flat_map(|point| errors(point)).all(|error| error.abs() <= TOLERANCE));
}

#[test]
fn a_constant_that_no_row_holds_is_said_to_be_free() {
    let model = Formula(|x: &[f64]| Ok(vec![x[0]]));
    let region = region::find(&model, &[WIDE, [-0.1, WIDE[1]]], "test").unwrap().unwrap();
    let [low, high] = &region.alone[1];
    assert_eq!((low.held, high.held, low.step, high.step), (Held::Nothing, Held::Nothing, -0.1, WIDE[1]));
    assert!(region.joint(1)[1] > 1.3, "predictions carry it: {:?}", region.joint(1));
}

#[test]
fn a_run_that_fails_bounds_the_region() {
    let model = Formula(|x: &[f64]| match x[0] {
        x if x > 0.3 => Err(CalibrateError::NoFigure("X1".into())),
        x => Ok(vec![0.01 * x]),
    });
    let region = region::find(&model, &[WIDE], "test").unwrap().unwrap();
    let [low, high] = &region.alone[0];
    assert_eq!((low.held, high.held), (Held::Nothing, Held::Failure));
    assert!((0.28..=0.3).contains(&high.step), "{high:?}");
    assert!(region.points.iter().all(|point| point[0] <= 0.3));
}

#[test]
fn without_constants_the_region_is_its_centre_and_outside_there_is_none() {
    let model = Formula(|_: &[f64]| Ok(vec![0.01]));
    let region = region::find(&model, &[], "test").unwrap().unwrap();
    assert_eq!((region.points.len(), region.tried), (1, 0));
    let outside = Formula(|_: &[f64]| Ok(vec![0.01, 0.021]));
    assert_eq!(region::find(&outside, &[WIDE], "test").unwrap(), None);
    let nan = Formula(|_: &[f64]| Ok(vec![f64::NAN]));
    assert_eq!(region::find(&nan, &[WIDE], "test").unwrap(), None);
}

#[test]
fn ctrl_c_ends_a_search() {
    let left = std::sync::atomic::AtomicI32::new(9);
    let model = Formula(|x: &[f64]| match left.fetch_sub(1, std::sync::atomic::Ordering::Relaxed) {
        1.. => Ok(vec![x[0]]),
        _ => Err(CalibrateError::Stopped),
    });
    assert!(matches!(region::find(&model, &[WIDE], "test"), Err(CalibrateError::Stopped)));
}

#[test]
fn a_fit_keeps_what_it_has_when_it_is_stopped_and_steps_round_failed_runs() {
    let runs = std::sync::atomic::AtomicU32::new(0);
    let model = |most: u32| {
        let runs = &runs;
        runs.store(0, std::sync::atomic::Ordering::Relaxed);
        Formula(move |x: &[f64]| match runs.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            run if run >= most => Err(CalibrateError::Stopped),
            _ if x.first().is_some_and(|&x| x > 0.02) => Err(CalibrateError::NoFigure("X1".into())),
            _ => Ok(vec![(x.first().unwrap_or(&0.0) + 0.3).exp() - 1.0]),
        })
    };
    let whole = fit::fit(&model(u32::MAX), 1, fit::GOOD_ENOUGH).unwrap();
    assert!((whole.steps[0] + 0.3).abs() < 0.01 && !whole.interrupted && whole.rounds > 0, "{:?}", whole.steps);
    let stopped = fit::fit(&model(4), 1, fit::GOOD_ENOUGH).unwrap();
    assert!(stopped.interrupted && stopped.rounds == 1, "{}", stopped.rounds);
    assert!(matches!(fit::fit(&model(0), 1, fit::GOOD_ENOUGH), Err(CalibrateError::Stopped)));
    let none = fit::fit(&model(u32::MAX), 0, fit::GOOD_ENOUGH).unwrap();
    assert_eq!((none.rounds, none.before == none.after), (0, true));
}

/// A platform like eMAG with other constants free, and its row.
fn board(free: &[&str]) -> (Platform, Vec<published::Row>) {
    let mut platform = Platform::load(&Setting::new(Place::option("test"), "", "emag")).unwrap();
    let keys: Vec<String> = platform.constants().into_iter().map(|(key, ..)| key).collect();
    for key in keys {
        platform.get_mut(&key).unwrap().1.fit = free.contains(&key.as_str());
    }
    let rows = published::rows().unwrap().into_iter().filter(|row| row.platform == "emag" && row.usage == Usage::Fit);
    (platform, rows.take(1).collect())
}

#[test]
fn more_constants_than_rows_are_refused() {
    let (platform, rows) = board(&["gic.distributor", "cpu.irq_entry"]);
    let error = refit(&platform, &rows, &StopFlag::default()).unwrap_err().to_string();
    let wanted = "calibrate: `emag` has more free constants (2) than rows to fit (1); valid: at most 1 constant with \
                  fit = true";
    assert_eq!(error, wanted);
}

#[test]
fn a_platform_without_free_constants_shows_its_rows() {
    let (platform, rows) = board(&[]);
    let found = refit(&platform, &rows, &StopFlag::default()).unwrap();
    assert_eq!((found.constants.len(), found.rounds, found.rows.len(), found.interrupted), (0, 0, 1, false));
    assert_eq!(found.rows[0].before.to_bits(), found.rows[0].after.to_bits());
}

#[test]
fn a_board_is_pinned_by_its_row_the_same_each_time() {
    let (platform, rows) = board(&["gic.distributor"]);
    let found = refit(&platform, &rows, &StopFlag::default()).unwrap();
    let held = found.constants[0].held.as_ref().expect("its row is fitted");
    assert_eq!(held.by, [rows[0].id.clone(), rows[0].id.clone()]);
    assert!(found.points > POINTS_MIN && held.rows[0].1 > 0.0, "a dearer access makes the gain greater: {held:?}");
    let text = |found: &Calibration| serde_json::to_string(found).unwrap();
    assert_eq!(text(&found), text(&refit(&platform, &rows, &StopFlag::default()).unwrap()), "the same bytes");
}

#[test]
fn a_calibration_that_is_stopped_at_once_has_nothing() {
    let (platform, rows) = board(&["gic.distributor"]);
    let stop = StopFlag::default();
    stop.set();
    assert!(matches!(refit(&platform, &rows, &stop), Err(CalibrateError::Stopped)));
}

/// The latency law, on the values that a region is judged by: with N in flight, N = IOPS x latency at each point.
#[test]
fn littles_law_holds_at_every_point() {
    const IN_FLIGHT: f64 = 16.0;
    let scenario = "emr-low-qd4";
    let mut plan = Request::of(scenario).plan().unwrap();
    plan.seeds.truncate(1);
    let plans: BTreeMap<String, Plan> = BTreeMap::from([(scenario.to_owned(), plan)]);
    let row = |id: &str, quantity: &str| published::Row {
        id: id.into(),
        platform: "emr".into(),
        scenario: "a test".into(),
        delivery: "remapped".into(),
        against: None,
        quantity: quantity.into(),
        published: None,
        unit: "1/s".into(),
        usage: Usage::Predict,
        scenarios: vec![scenario.into()],
        formula: None,
        source: "a test".into(),
        place: Place::line("rows.csv", 2),
    };
    let rows = vec![row("X1", "iops"), row("X2", "clat"), row("X3", "slat")];
    let platform = Platform::load(&Setting::new(Place::option("test"), "", "emr")).unwrap();
    let family = rows::Family::of(&platform).unwrap();
    let stop = StopFlag::default();
    let at = |steps: &[f64]| {
        let group = Rows { rows: rows.clone(), plans: plans.clone(), constants: &family.constants, stop: &stop };
        group.values(&group.outcomes(steps).unwrap()).unwrap()
    };
    let centre = vec![0.0; family.constants.len()];
    let slower: Vec<f64> = centre.iter().map(|_| 0.3).collect();
    for steps in [&centre, &slower] {
        let [iops, clat, slat] = at(steps)[..] else { panic!("three rows") };
        let in_flight = iops * (clat * 1e-6 + slat * 1e-9);
        assert!((in_flight / IN_FLIGHT - 1.0).abs() < 0.02, "{in_flight} in flight");
    }
}

#[test]
fn a_drive_is_never_faster_than_its_smallest_time() {
    let mut plan = Request::of("emr-4-drives").plan().unwrap();
    let of = |plan: &Plan| plan.platform.drive("gen5").map(|drive| (drive.media_floor.value, drive.media_mean.value));
    let (floor, mean) = of(&plan).unwrap();
    let candidate = |key: &str| Candidate { key: key.to_owned(), home: 0.0, follower: None };
    let [mean_moved, floor_moved] = ["drive.gen5.media_mean", "drive.gen5.media_floor"]
        .map(|key| rows::FreeConstant::candidate(&plan.platform, &candidate(key)).unwrap());
    rows::FreeConstant::move_all(&mut plan.platform, [(&mean_moved, -1.0), (&floor_moved, 0.5)].into_iter());
    assert_eq!(of(&plan), Some(((mean * (-1f64).exp()), (mean * (-1f64).exp()))));
    rows::FreeConstant::move_all(&mut plan.platform, [(&mean_moved, 0.0), (&floor_moved, -0.5)].into_iter());
    assert_eq!(of(&plan), Some((floor * (-0.5f64).exp(), mean)));
    plan.validate().unwrap();
}

/// Of one constant two intervals were told, of which the second, of drawn points, was narrower.
#[test]
fn one_constant_has_one_interval() {
    let platform = Platform::load(&Setting::new(Place::option("test"), "", "emr")).unwrap();
    let constants = FreeConstant::own(&platform);
    let held = |count: usize| {
        let model = Formula(|x: &[f64]| Ok(vec![x.iter().sum()]));
        let region = region::find(&model, &vec![WIDE; count], "test").unwrap().unwrap();
        let mut found = Calibration {
            constants: constants[..count].iter().map(|constant| pinned(constant, 0.0)).collect(),
            followers: Vec::new(),
            rows: vec![Fitted { id: "X1".into(), published: 1.0, before: 0.0, after: 0.0 }],
            rounds: 0,
            points: 0,
            tried: 0,
            interrupted: false,
        };
        hold(&mut found, &constants[..count], &region);
        found.constants[0].held.clone().unwrap()
    };
    let (one, two) = (held(1), held(2));
    assert_eq!(one.joint, one.alone);
    assert_ne!(two.joint, two.alone, "two that are free together are free further");
}
