use hdrhistogram::Histogram;

use super::*;
use crate::kinds::storage::{DRIVE_LINK, Drive, StorageOutcome};
use drivers::nvme::CompletionLook;

/// Literal rows of the two-sided 95 % column of the printed table.
#[test]
fn student_t_matches_the_printed_table() {
    for (df, t) in [(1, 12.706), (2, 4.303), (4, 2.776), (9, 2.262), (30, 2.042), (40, 2.021), (60, 2.0), (100, 1.984)]
    {
        assert_eq!(student_t_95(df), t, "{df} degrees of freedom");
    }
    assert_eq!(student_t_95(59), 2.021, "between rows the wider one counts");
    assert!((1..400).all(|df| student_t_95(df + 1) <= student_t_95(df)));
}

/// 1, 2, 3: s = 1, s/√3 = 0.57735, × 4.303 = 2.48434.
#[test]
fn estimate_of_known_samples() {
    let estimate = Estimate::of(&[1.0, 2.0, 3.0]).unwrap();
    assert_eq!((estimate.mean, estimate.seeds), (2.0, 3));
    assert!((estimate.ci95.unwrap() - 2.48434).abs() < 1e-5);
    assert_eq!(Estimate::of(&[7.0]), Some(Estimate { mean: 7.0, ci95: None, seeds: 1 }));
    assert_eq!(Estimate::of(&[]), None);
}

#[test]
fn quantities_follow_from_counts() {
    let summary = Summary::over(&[samples::outcome("posted", 1, 1.0)]).unwrap();
    let value = |id: &str| summary.estimate(id).unwrap_or_else(|| panic!("no {id}")).mean;
    assert_eq!(value("iops"), 2_000_000.0);
    assert_eq!(value("iops_per_drive"), 1_000_000.0);
    assert_eq!(value("bandwidth"), 8_192_000_000.0);
    assert_eq!(value("msi_per_vector"), 250_000.0);
    assert_eq!(value("notifications_per_msi"), 75.0);
    assert_eq!(value("completions_per_interrupt"), 2.0);
    assert_eq!(value("empty_handlers"), 2.0);
    assert_eq!(value("cpu_irq"), 10.0);
    assert_eq!(value("clat"), 100_000.0);
    assert_eq!(value("clat_p99_9"), 500_000.0);
    assert!(summary.estimate("nonsense").is_none());
}

#[test]
fn nothing_measured_gives_no_figures_and_no_panic() {
    assert!(Summary::over(&[]).is_none());
    let summary = Summary::over(&[Outcome::default()]).unwrap();
    assert!(summary.figures.iter().all(|figure| figure.estimate.is_none()));
    assert_eq!(summary.bottleneck.to_string(), "none");
}

#[test]
fn quantity_ids_are_unique() {
    let quantities = Section::default().measured().quantities();
    for (at, quantity) in quantities.iter().enumerate() {
        assert!(quantities[..at].iter().all(|q| q.id != quantity.id), "{} twice", quantity.id);
    }
}

/// The line said that columns named ours look at completions, also where a setting had switched that off.
#[test]
fn the_line_under_the_table_says_whether_columns_look_at_completions() {
    let of = |look| StorageOutcome { look, ..StorageOutcome::default() }.columns().unwrap();
    assert!(of(None).contains("where they say ours, with this driver's look"));
    assert!(of(Some(CompletionLook::Off)).contains("options.check_queue=off none looks at completions"));
    assert!(of(Some(CompletionLook::On)).contains("options.check_queue=on all have this driver's look"));
    assert!(of(Some(CompletionLook::Auto)).contains("options.check_queue=auto all have"));
}

fn utilised(link: f64, remap: f64, cpu_idle: u64) -> Outcome {
    Outcome {
        section: Section::Storage(StorageOutcome {
            drives: vec![Drive { link_busy: link - 0.2, link_held: 0.2, ..Drive::default() }, Drive::default()],
            ..StorageOutcome::default()
        }),
        servers: vec![
            Server { kind: ServerKind::Remapping, index: 0, busy: remap },
            Server { kind: ServerKind::Remapping, index: 1, busy: 0.1 },
        ],
        cpus: vec![
            CpuTime { user_ns: 100 - cpu_idle, idle_ns: cpu_idle, ..CpuTime::default() },
            CpuTime { cpu: 1, idle_ns: 100, ..CpuTime::default() },
        ],
        ..Outcome::default()
    }
}

#[test]
fn bottleneck_is_the_busiest_saturated_server() {
    let found = |link, remap, idle| Finding::of(&[utilised(link, remap, idle)]);
    assert_eq!(found(0.95, 0.4, 50).bottleneck, DRIVE_LINK);
    assert_eq!(found(0.95, 0.98, 50).bottleneck, Bottleneck::MsiPath(ServerKind::Remapping));
    assert_eq!(found(0.95, 0.98, 1).bottleneck, Bottleneck::Cpu, "one saturated CPU of two is enough");
    assert_eq!(found(0.95, 0.95, 50).bottleneck, DRIVE_LINK, "of equals the one nearer to the drive");
    assert_eq!(found(0.89, 0.5, 50).bottleneck, Bottleneck::None);
    assert_eq!(found(0.2, 0.3, 29).to_string(), "none; busiest CPU, 71 %");
    assert_eq!(found(0.2, 0.98, 29).to_string(), "MSI path (remapping unit), 98 % busy");
    let mixed = Finding::of(&[utilised(0.99, 0.0, 100), utilised(0.75, 0.0, 100)]);
    assert_eq!(mixed.bottleneck, Bottleneck::None, "seeds are averaged: 87 %");
}

#[test]
fn faults_add_up_over_seeds() {
    let summary = Summary::over(&samples::outcomes()[..3]).unwrap();
    assert_eq!(summary.faults.len(), 1);
    assert_eq!((summary.faults[0].count, summary.faults[0].requester_name()), (6, "03:03.0".into()));
}

#[test]
fn latency_digest_keeps_the_histogram_within_its_resolution() {
    let mut histogram = Histogram::<u64>::new(3).unwrap();
    (1..=10_000u64).for_each(|ns| histogram.record(ns).unwrap());
    let digest = Latency::from(&histogram);
    assert_eq!((digest.count, digest.min_ns), (10_000, 1));
    for (value, expected) in digest.percentiles_ns.into_iter().zip([5_000.0, 9_000.0, 9_900.0, 9_990.0, 9_999.0]) {
        assert!((value as f64 / expected - 1.0).abs() < 2e-3, "{value} for {expected}");
    }
    assert_eq!(Latency::from(&Histogram::<u64>::new(3).unwrap()), Latency::default());
}

#[test]
fn an_outcome_survives_its_file() {
    let mut outcome = samples::outcome("posted", 1, 1.0);
    let text = serde_json::to_string(&outcome).unwrap();
    outcome.engine.host_ns = 0;
    assert_eq!(serde_json::from_str::<Outcome>(&text).unwrap(), outcome);
}
