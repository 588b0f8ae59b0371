//! Equal plans and seeds give the same events and the same bytes, whatever else runs at the same time.

mod common;

use lab::kinds::storage::StorageVariant;
use std::path::Path;
use std::process::Command;

const SETS: [&str; 2] = ["ramp=500us", "duration=500us"];

#[test]
fn a_seed_is_a_digest() {
    let plan = common::plan("emr-uring", &SETS);
    for delivery in StorageVariant::ALL {
        let digests = || -> Vec<u64> {
            common::outcomes(&plan, delivery, 3).iter().map(|outcome| outcome.engine.digest).collect()
        };
        let first = digests();
        assert_eq!(first, digests(), "{delivery}");
        assert!(first[0] != first[1] && first[1] != first[2] && first[0] != first[2], "{delivery}: {first:x?}");
    }
}

fn files(folder: &Path, threads: &str) -> [Vec<u8>; 2] {
    let arguments = ["run", "emr-uring", "--seeds", "3", "--delivery", "remapped,posted,polled"];
    let output = Command::new(env!("CARGO_BIN_EXE_campanile"))
        .current_dir(folder)
        .env("RAYON_NUM_THREADS", threads)
        .args(arguments)
        .args(SETS.iter().flat_map(|set| ["--set", set]))
        .args(["--json", "out.json"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    [output.stdout, std::fs::read(folder.join("out.json")).unwrap()]
}

#[test]
fn the_number_of_host_threads_changes_no_byte() {
    let folder = tempfile::tempdir().unwrap();
    let one = files(folder.path(), "1");
    for threads in ["2", "5"] {
        assert!(one == files(folder.path(), threads), "{threads} threads: other bytes");
    }
}
