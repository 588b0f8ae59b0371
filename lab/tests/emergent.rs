//! Effects that must emerge from hardware times and real driver code, and are coded nowhere. Each test reports its
//! figures in its message.

mod common;

use common::{mean, outcomes, plan, summary};
use lab::kinds::storage::StorageVariant::{self, Plain, Posted, PostedUpdate, Remapped};
use lab::outcome::Summary;

const SHORT: [&str; 2] = ["ramp=1ms", "duration=3ms"];

fn four_drives(delivery: StorageVariant, sets: &[&str]) -> Summary {
    summary("emr-4-drives", delivery, &[&SHORT, sets].concat(), 2)
}

/// The gain in IOPS of posting, in per cent.
fn gain(scenario: &str, sets: &[&str], seeds: u64) -> f64 {
    let iops = |delivery| mean(&summary(scenario, delivery, sets, seeds), "iops");
    (iops(Posted) / iops(Remapped) - 1.0) * 100.0
}

#[test]
fn at_a_low_rate_every_msi_is_a_notification() {
    let low = summary("emr-low-qd1", Posted, &["ramp=1ms", "duration=100ms"], 1);
    let (msis, ratio) = (mean(&low, "msi"), mean(&low, "notifications_per_msi"));
    eprintln!("{msis:.0} MSI/s: {ratio:.2} % notifications");
    assert!((50_000.0..120_000.0).contains(&msis), "{msis}");
    assert!((99.0..=100.0).contains(&ratio), "{ratio} % at {msis} MSI/s");
}

#[test]
fn notifications_per_msi_fall_with_the_rate() {
    let mut last = 100.1;
    for depth in [2, 8, 15, 64] {
        let at = four_drives(Posted, &[&format!("job.iodepth={depth}")]);
        // MSIs as a kernel counts them: only MSIs that ran a handler.
        let (msis, ratio) = (mean(&at, "interrupts"), mean(&at, "notifications_per_msi"));
        eprintln!("depth {depth}: {msis:.0} MSI/s, {ratio:.2} % notifications");
        assert!(ratio < last, "depth {depth}: {ratio} % at {msis} MSI/s, after {last} %");
        assert!(msis < 6_000_000.0 || ratio < 85.0, "depth {depth}: {ratio} % at {msis} MSI/s");
        last = ratio;
    }
    assert!(last < 85.0, "{last} % at the highest rate, which is over 6 M/s");
}

#[test]
fn posting_gains_nothing_until_the_msi_path_saturates() {
    for depth in [1, 4, 8] {
        let depth = format!("job.iodepth={depth}");
        let remapped = four_drives(Remapped, &[&depth]);
        let gain = mean(&four_drives(Posted, &[&depth]), "iops") / mean(&remapped, "iops") - 1.0;
        eprintln!("{depth}: {}, gain {:+.2} %", remapped.bottleneck, gain * 100.0);
        assert!(gain.abs() < 0.015, "{depth}: {:+.2} %", gain * 100.0);
    }
    let gain = gain("emr-4-drives", &SHORT, 2);
    assert!(gain > 20.0, "at depth 64, where the remapping unit is saturated: {gain:+.1} %");
}

#[test]
fn posting_loses_where_an_update_is_dear() {
    let remapped = mean(&four_drives(Remapped, &[]), "iops");
    let gain = |ns: u64| (mean(&four_drives(PostedUpdate(ns), &[]), "iops") / remapped - 1.0) * 100.0;
    let gains = [55, 100, 150, 300, 1000].map(|ns| (ns, gain(ns)));
    eprintln!("update in ns, gain in per cent: {gains:.1?}");
    assert!(gains.windows(2).all(|pair| pair[0].1 > pair[1].1), "{gains:?}");
    assert!(gains[1].1 > 5.0 && gains[2].1 < -5.0, "the line runs between 100 and 150 ns: {gains:?}");
    // The IOMMU takes a message each 1 to 1.05 us, and a handler finds little more than an entry.
    assert!((-86.0..-80.0).contains(&gains[4].1), "{gains:?}");
}

#[test]
fn an_idle_servers_latency_is_the_same_plain_remapped_and_posted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("one.fio");
    let job = "[global]\nrw=randread\nbs=4k\ndirect=1\nioengine=libaio\niodepth=1\ncpus_allowed=0\n\
               [a]\nfilename=/dev/nvme0n1\n";
    std::fs::write(&path, job).unwrap();
    let plan = plan(path.to_str().unwrap(), &["ramp=1ms", "duration=200ms"]);
    let latency = |delivery| mean(&Summary::over(&outcomes(&plan, delivery, 1)).unwrap(), "clat");
    let [plain, remapped, posted] = [Plain, Remapped, Posted].map(latency);
    eprintln!("plain {plain:.0} ns, remapped {remapped:.0} ns, posted {posted:.0} ns");
    for other in [remapped, posted] {
        assert!((other / plain - 1.0).abs() < 0.01, "{other} ns against {plain} ns");
    }
}

#[test]
fn posting_gains_nothing_from_16_kib_on() {
    for (scenario, span) in [("emr-16k", "duration=8ms"), ("emr-32k", "duration=12ms"), ("emr-128k", "duration=30ms")] {
        let gain = gain(scenario, &[span], 1);
        eprintln!("{scenario}: {gain:+.2} %");
        assert!(gain.abs() < 1.0, "{scenario}: {gain:+.2} %");
    }
}

#[test]
fn the_largest_gain_is_with_eight_drives() {
    let gains = ["spr-2-drives", "spr-4-drives", "spr-8-drives"].map(|scenario| gain(scenario, &SHORT, 1));
    eprintln!("2, 4, 8 drives: {gains:.1?} %");
    assert!(gains[0] < gains[1] && gains[1] < gains[2], "{gains:?}");
}

#[test]
fn completions_per_interrupt_grow_when_delivery_is_delayed() {
    // A slower remapping unit would hold the drives back too. These costs delay only the handler.
    for (delivery, key, times) in [
        (Remapped, "cpu.irq_entry", ["200ns", "1us", "3us"]),
        (Posted, "cpu.irq_entry", ["200ns", "1us", "3us"]),
        (Posted, "fabric.dispatch", ["100ns", "200ns", "400ns"]),
    ] {
        let at = |time: &str| mean(&four_drives(delivery, &[&format!("{key}={time}")]), "completions_per_interrupt");
        let per_interrupt = times.map(at);
        eprintln!("{delivery}, {key}: {per_interrupt:.3?} completions a handler");
        assert!(per_interrupt.is_sorted() && per_interrupt[2] > per_interrupt[0] * 1.05, "{key}: {per_interrupt:?}");
    }
}

#[test]
fn some_handlers_find_nothing_and_empty_notifications_are_rare() {
    let posted = four_drives(Posted, &[]);
    let (handlers, notifications) = (mean(&posted, "empty_handlers"), mean(&posted, "empty_notifications"));
    eprintln!("empty: {handlers:.2} % of handlers, {notifications:.3} % of notifications");
    assert!(handlers > 0.5, "{handlers} %");
    assert!(notifications < 0.5, "{notifications} %");
}

#[test]
fn more_harvest_passes_gain_nothing_on_nvme() {
    let iops = ["1", "2", "3", "8"].map(|passes| {
        let sets = format!("options.harvest_passes={passes}");
        mean(&four_drives(Posted, &[&sets]), "iops")
    });
    eprintln!("1, 2, 3, 8 passes: {iops:.0?}");
    for more in &iops[1..] {
        assert!((more / iops[0] - 1.0).abs() < 0.01, "{iops:?}");
    }
}

#[test]
fn latency_is_what_is_in_flight_over_the_rate() {
    for delivery in [Remapped, Posted] {
        let run = four_drives(delivery, &[]);
        // fio's depth counts an I/O from before the submitting call; its completion latency starts after the call.
        let (completion, submission) = (mean(&run, "clat"), mean(&run, "slat"));
        let little = 32.0 * 64.0 * 1e9 / mean(&run, "iops");
        eprintln!("{delivery}: {completion:.0} + {submission:.0} ns, in flight / IOPS {little:.0} ns");
        let error = (completion + submission) / little - 1.0;
        assert!(error.abs() < 0.01, "{delivery}: {:+.2} %", error * 100.0);
        assert!((completion / little - 1.0).abs() < 0.015, "{delivery}: {completion} ns against {little} ns");
    }
}

#[test]
fn low_rates_are_within_a_percent_of_remapped() {
    for (scenario, span) in [("emr-low-qd1", "duration=100ms"), ("emr-low-qd4", "duration=50ms")] {
        let gain = gain(scenario, &[span], 2);
        eprintln!("{scenario}: {gain:+.2} %");
        assert!(gain.abs() < 1.0, "{scenario}: {gain:+.2} %");
    }
}

#[test]
fn a_saturated_cpu_is_shared_equally() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("two.fio");
    let job = "[global]\nrw=randread\nbs=4k\ndirect=1\nioengine=libaio\niodepth=64\ncpus_allowed=0\n\
               [a]\nfilename=/dev/nvme0n1\n[b]\nfilename=/dev/nvme1n1\n";
    std::fs::write(&path, job).unwrap();
    let plan = plan(path.to_str().unwrap(), &["duration=60ms"]);
    for delivery in [Remapped, Posted] {
        let runs = outcomes(&plan, delivery, 1);
        let ios: Vec<u64> = runs[0].storage().unwrap().drives.iter().map(|drive| drive.ios).collect();
        eprintln!("{delivery}: {ios:?}");
        assert!(runs[0].cpus[0].busy() > 0.99, "{delivery}: the CPU is busy");
        let share = ios[0] as f64 / ios.iter().sum::<u64>() as f64;
        // A slice of the scheduler is 3 ms. With twenty slices, one more or less is five per cent of a share.
        assert!((share - 0.5).abs() < 0.03, "{delivery}: {ios:?}");
    }
}
