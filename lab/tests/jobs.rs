//! The published job files run without changes.

mod common;

use common::{mean, outcomes, plan};
use lab::kinds::storage::StorageVariant::{self, Polled, Posted, Remapped};
use lab::outcome::Summary;
use lab::scenario::Request;

/// Runs a carried job file for a short while.
fn run(job: &str, delivery: StorageVariant) -> Summary {
    let path = format!("{}/../scenarios/jobs/{job}", env!("CARGO_MANIFEST_DIR"));
    let plan = plan(&path, &["ramp=500us", "duration=1ms"]);
    Summary::over(&outcomes(&plan, delivery, 1)).unwrap()
}

#[test]
fn the_published_jobs_run() {
    for (job, deliveries) in [
        ("four-drives.fio", &[Remapped, Posted][..]),
        ("four-drives-uring.fio", &[Remapped, Posted, Polled]),
        ("four-drives-polled.fio", &[Polled]),
        ("one-job-batched.fio", &[Remapped, Posted]),
    ] {
        for &delivery in deliveries {
            let run = run(job, delivery);
            assert!(mean(&run, "iops") > 100_000.0, "{job}, {delivery}: {} IOPS", mean(&run, "iops"));
            assert_eq!(mean(&run, "errors"), 0.0, "{job}, {delivery}");
            assert_eq!(mean(&run, "msi") == 0.0, delivery == Polled, "{job}, {delivery}: MSIs");
        }
    }
}

#[test]
fn a_batch_is_submitted_and_taken_whole() {
    let path = format!("{}/../scenarios/jobs/one-job-batched.fio", env!("CARGO_MANIFEST_DIR"));
    let plan = plan(&path, &[]);
    let job = &plan.storage().unwrap().jobs[0];
    assert_eq!((job.batch_submit, job.batch_complete_min, job.iodepth), (16, 16, 64));
    let warned: Vec<&str> = plan.warnings.iter().map(|warning| warning.key.as_str()).collect();
    assert_eq!(warned, ["gtod_reduce"], "what is not modelled is said");
}

#[test]
fn every_carried_scenario_is_right() {
    for name in lab::scenario::names() {
        Request::of(name).plan().unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn published_figures_stand_beside_their_own_scenario_only() {
    let run = |sets: &[&str]| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_campanile"))
            .args(["run", "emr-4-drives", "--seeds", "1", "--set", "ramp=500us", "--set", "duration=500us"])
            .args(sets)
            .output()
            .unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap().contains("Beside the published figures")
    };
    assert!(run(&[]), "a shorter span is still the scenario");
    for change in ["job.bs=8k", "fabric.dispatch=50ns", "drives.queues=4", "options.harvest_passes=1", "cpus=40"] {
        assert!(!run(&["--set", change]), "{change}");
    }
}
