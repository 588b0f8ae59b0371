//! Any block size from 512 B to 16 MiB runs, in commands as Linux splits them.

mod common;

use common::{mean, summary};
use lab::kinds::storage::StorageVariant;
use lab::outcome::Outcome;

fn outcome(sets: &[&str]) -> Outcome {
    let plan = common::plan("emr-4-drives", &[&["cpus=32", "job.numjobs=1", "job.iodepth=4"], sets].concat());
    common::outcomes(&plan, StorageVariant::Remapped, 1).remove(0)
}

#[test]
fn every_block_size_moves_its_bytes_in_whole_commands() {
    for (block, commands) in
        [("512", 1), ("4k", 1), ("128k", 1), ("512k", 1), ("516k", 2), ("1m", 2), ("3m", 6), ("16m", 32)]
    {
        let outcome = outcome(&[&format!("job.bs={block}"), "options.verify_data=true"]);
        let drives = &outcome.storage().unwrap().drives;
        let (ios, errors) = (drives.iter().map(|d| d.ios).sum::<u64>(), drives.iter().map(|d| d.errors).sum::<u64>());
        assert!(ios > 20, "{block}: {ios} I/Os");
        assert_eq!(errors, 0, "{block}");
        let entries = outcome.interrupts.completions();
        // At both ends of the span an I/O may have completed in part.
        assert!(entries.abs_diff(ios * commands) <= 16 * commands, "{block}: {entries} entries, {ios} I/Os");
    }
}

#[test]
fn large_blocks_reach_the_links_rate_and_have_its_latency() {
    for block in ["256k", "1m", "16m"] {
        let sets = [format!("job.bs={block}"), "job.numjobs=1".into(), "job.iodepth=8".into()];
        let summary = summary("emr-4-drives", StorageVariant::Posted, &sets.each_ref().map(String::as_str), 1);
        let bandwidth = mean(&summary, "bandwidth");
        // Four links at 13.3 GB/s; a span of four turns begins and ends with up to one I/O of 32 in part.
        assert!((51e9..55e9).contains(&bandwidth), "{block}: {bandwidth:.3e} B/s");
        // Little's law: in flight = rate × latency.
        let in_flight = mean(&summary, "iops") * mean(&summary, "clat") / 1e9;
        assert!((in_flight - 32.0).abs() < 1.6, "{block}: {in_flight:.1} in flight of 32");
    }
}

#[test]
fn a_smaller_limit_makes_more_commands() {
    let entries_an_io = |sets: &[&str]| {
        let outcome = outcome(&[&["job.bs=1m"], sets].concat());
        outcome.interrupts.completions() as f64 / outcome.storage().unwrap().ios() as f64
    };
    for (sets, commands) in [
        (&["options.max_segments=256"][..], 1.0),
        (&["options.max_sectors=128KiB"], 8.0),
        (&["drive.gen5.transfer=64KiB"], 16.0),
    ] {
        let found = entries_an_io(sets);
        assert!((found / commands - 1.0).abs() < 0.1, "{sets:?}: {found:.2} entries an I/O, {commands} expected");
    }
}

#[test]
fn more_commands_than_the_queue_takes_wait_for_room() {
    // 4 I/Os of 128 commands each, through a queue that takes 63.
    for variant in [StorageVariant::Remapped, StorageVariant::Polled] {
        let sets = [
            "job.bs=16m",
            "job.numjobs=1",
            "job.iodepth=4",
            "drives.queue_entries=64",
            "job.ioengine=io_uring",
            "options.max_sectors=128KiB",
            "cpus=32",
        ];
        let plan = common::plan("emr-4-drives", &sets);
        let outcome = common::outcomes(&plan, variant, 1).remove(0);
        let drives = &outcome.storage().unwrap().drives;
        assert!(drives.iter().all(|drive| drive.errors == 0 && drive.ios > 4), "{variant}: {drives:?}");
        assert!(drives.iter().all(|drive| drive.link_busy > 0.9), "{variant}: {drives:?}");
    }
}
