//! Writes, flushes and trims: rates and latencies of their own, reported apart; and when a drive sends again.

mod common;

use common::mean;
use lab::kinds::storage::StorageVariant;
use lab::outcome::{Outcome, Summary};

/// The first seed of the four-drive job on one CPU a drive, with these settings.
fn outcome(variant: StorageVariant, sets: &[&str]) -> Outcome {
    let plan = common::plan("emr-4-drives", &[&["job.numjobs=1", "cpus=32"], sets].concat());
    common::outcomes(&plan, variant, 1).remove(0)
}

fn summary(sets: &[&str]) -> Summary {
    Summary::over(&[outcome(StorageVariant::Remapped, sets)]).unwrap()
}

#[test]
fn sustained_writes_have_the_medias_rate_and_posting_gains_nothing() {
    // 250,000 scattered writes of 4 KiB a second and drive; 6.6 GB/s of a stream.
    for (pattern, bytes_a_second) in [("randwrite", 4.0 * 1.024e9), ("write", 4.0 * 6.6e9)] {
        let block = if pattern == "write" { "job.bs=128k" } else { "job.bs=4k" };
        // The ramp fills the cache.
        let sets = [&format!("job.rw={pattern}"), block, "ramp=30ms", "duration=10ms"];
        let [remapped, posted] = [StorageVariant::Remapped, StorageVariant::Posted]
            .map(|variant| Summary::over(&[outcome(variant, &sets)]).unwrap())
            .map(|summary| mean(&summary, "write_bandwidth"));
        assert!((remapped / bytes_a_second - 1.0).abs() < 0.05, "{pattern}: {remapped:.3e} B/s");
        assert!((posted / remapped - 1.0).abs() < 0.02, "{pattern}: posted {posted:.3e}, remapped {remapped:.3e} B/s");
    }
}

#[test]
fn a_write_alone_ends_in_the_cache_and_through_on_the_media() {
    let alone = ["job.rw=randwrite", "job.iodepth=1"];
    let clat = |set: &str| mean(&summary(&[&alone[..], &[set]].concat()), "write_clat");
    let (cached, through) = (clat("drive.gen5.write_cached=10us"), clat("drive.gen5.write_cache=0B"));
    assert!((10_000.0..15_000.0).contains(&cached), "{cached} ns in the cache");
    assert!((550_000.0..660_000.0).contains(&through), "{through} ns through");
}

/// One warning for each section, where syncs send nothing.
#[test]
fn a_sync_without_anything_to_flush_is_warned_of() {
    let keys = |sets: &[&str]| {
        let plan = common::plan("emr-4-drives", &[&["job.rw=randwrite"], sets].concat());
        plan.warnings.iter().map(|warning| warning.key.clone()).collect::<Vec<_>>()
    };
    assert_eq!(keys(&["job.fsync=4"]), ["fsync"; 4]);
    assert_eq!(keys(&["job.fdatasync=4"]), ["fdatasync"; 4]);
    assert!(keys(&["job.fsync=4", "drive.gen5.volatile_cache=true"]).is_empty());
    assert!(keys(&[]).is_empty());
}

#[test]
fn a_sync_flushes_a_volatile_cache_alone() {
    let sets = ["job.rw=randwrite", "job.iodepth=1", "job.fsync=4"];
    let protected = summary(&sets);
    assert!(protected.estimate("flush_rate").is_none(), "no Flush without VWC");
    let volatile = summary(&[&sets[..], &["drive.gen5.volatile_cache=true"]].concat());
    let (writes, flushes) = (mean(&volatile, "write_iops"), mean(&volatile, "flush_rate"));
    assert!((writes / flushes - 4.0).abs() < 0.1, "{writes} writes, {flushes} flushes");
    assert!(mean(&volatile, "flush_clat") > 500_000.0, "a Flush waits for the media");
    assert!(mean(&protected, "write_iops") > 8.0 * writes, "the cache gains only while nothing flushes it");
}

#[test]
fn mixes_and_trims_are_told_apart() {
    let mix = summary(&["job.rw=randrw", "job.rwmixread=70", "job.iodepth=8"]);
    let (reads, writes) = (mean(&mix, "read_iops"), mean(&mix, "write_iops"));
    assert!((reads / (reads + writes) - 0.7).abs() < 0.02, "{reads} reads, {writes} writes");
    assert!(mean(&mix, "read_clat") > 60_000.0 && mean(&mix, "write_clat") < 40_000.0);
    let trims = summary(&["job.rw=randtrim"]);
    assert!(trims.estimate("write_iops").is_none() && trims.estimate("read_iops").is_none());
    assert!(mean(&trims, "trim_clat") > 20_000.0 && mean(&trims, "errors") == 0.0);
    let reads = summary(&["job.rw=randread"]);
    assert!(reads.estimate("read_iops").is_none(), "reads alone are the whole");
}

#[test]
fn what_is_written_is_read_back() {
    for rw in ["randrw", "randtrimwrite", "randwrite"] {
        let outcome =
            outcome(StorageVariant::Remapped, &[&format!("job.rw={rw}"), "options.verify_data=true", "job.bs=64k"]);
        let drives = &outcome.storage().unwrap().drives;
        assert!(drives.iter().all(|drive| drive.errors == 0 && drive.ios > 100), "{rw}: {drives:?}");
    }
}

#[test]
fn handlers_find_nothing_only_where_a_drive_sends_for_every_entry() {
    let [each, batch, doorbell] = ["per_entry", "per_unacknowledged_batch", "after_doorbell"].map(|mode| {
        let plan = common::plan("emr-4-drives", &[&format!("drive.gen5.resend={mode}"), "duration=3ms", "ramp=1ms"]);
        let summary = Summary::over(&common::outcomes(&plan, StorageVariant::Remapped, 1)).unwrap();
        (mean(&summary, "empty_handlers"), mean(&summary, "msi"))
    });
    println!("empty handlers and MSIs a second: {each:?} {batch:?} {doorbell:?}");
    assert!(each.0 > batch.0 && batch.0 >= doorbell.0, "{each:?} {batch:?} {doorbell:?}");
    assert!(doorbell.0 < 1.0, "{doorbell:?}");
    assert!(each.1 >= batch.1 * 0.98, "{each:?} {batch:?}");
}
