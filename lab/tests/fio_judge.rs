//! Real fio judges what a simulated job does: the same number of I/Os in each direction, the same bytes, and the same
//! end. Skipped, with a line that says so, where fio is not installed.

use lab::interrupt::StopFlag;
use lab::kinds::storage::{JobEnd, StorageVariant};
use lab::run;
use lab::scenario::Request;
use std::path::Path;
use std::process::Command;

/// I/Os and bytes of a job: reads, writes, trims.
type Counts = ([u64; 3], [u64; 3]);

/// The files of several jobs, whose phases and ends depend on each other, all of which end by themselves.
const FILES: &[&str] = &[
    "[a]\nrw=write\nsize=1m\n[b]\nstonewall\nrw=randread\nsize=512k\n",
    "[a]\nrw=write\nsize=1m\n[b]\nwait_for=a\nrw=read\nsize=256k\n[c]\nrw=read\nsize=128k\n",
    "[a]\nrw=randrw\nsize=512k\nnumjobs=3\n",
    "[a]\nrw=read\nsize=64k\nstartdelay=300ms\n[b]\nrw=write\nsize=64k\n",
    "[a]\nrw=write\nsize=1m\n[b]\nnew_group\nrw=read\nsize=1m\n[c]\nstonewall\nrw=trim\nsize=64k\n",
];

fn fio_is_there() -> bool {
    let there = Command::new("fio").arg("--version").output().is_ok_and(|output| output.status.success());
    if !there {
        eprintln!("skipped: fio is not installed");
    }
    there
}

/// What real fio does, job by job.
fn judged(folder: &Path, text: &str) -> Vec<Counts> {
    let path = folder.join("judged.fio");
    std::fs::write(&path, text).unwrap();
    let output = Command::new("fio").arg("--output-format=json").arg(&path).current_dir(folder).output().unwrap();
    let text_out = String::from_utf8_lossy(&output.stdout);
    let from = text_out.find('{').unwrap_or_else(|| panic!("no JSON for\n{text}\n{output:?}"));
    let json: serde_json::Value = serde_json::from_str(&text_out[from..]).unwrap();
    let count = |job: &serde_json::Value, of: &str| {
        ["read", "write", "trim"].map(|direction| job[direction][of].as_u64().unwrap())
    };
    json["jobs"].as_array().unwrap().iter().map(|job| (count(job, "total_ios"), count(job, "io_bytes"))).collect()
}

/// What the simulated jobs do.
fn simulated(folder: &Path, text: &str) -> Vec<JobEnd> {
    let path = folder.join("simulated.fio");
    std::fs::write(&path, text).unwrap();
    let sets = vec!["cpus=2".to_owned()];
    let plan = Request { sets, ..Request::of(path.to_str().unwrap()) }.plan();
    let plan = plan.unwrap_or_else(|error| panic!("{error}\n{text}"));
    let trial = plan.trial(StorageVariant::Remapped).unwrap();
    let outcome =
        run::run_one(&trial, 1, false, &StopFlag::default()).unwrap_or_else(|e| panic!("{e}\n{text}")).outcome;
    outcome.storage().unwrap().ends.clone()
}

/// What differs between fio's job and the simulated one; none if nothing does.
fn difference(fio: &Counts, job: &JobEnd) -> Option<String> {
    let pairs = fio.0.iter().zip(&job.ios).chain(fio.1.iter().zip(&job.bytes));
    let counts_agree = pairs.into_iter().all(|(fio, own)| fio == own);
    (!counts_agree || job.reason != "done")
        .then(|| format!("fio {:?} {:?}, simulated {:?} {:?}, ended: {}", fio.0, fio.1, job.ios, job.bytes, job.reason))
}

#[test]
fn files_with_phases_and_ends_do_what_fio_does() {
    if !fio_is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut wrong = Vec::new();
    for sections in FILES {
        let fio = judged(folder.path(), &format!("[global]\nioengine=null\n{sections}"));
        let ends = simulated(folder.path(), &format!("[global]\ndirect=1\nioengine=libaio\n{sections}"));
        assert_eq!(fio.len(), ends.len(), "{sections}");
        for (fio, end) in fio.iter().zip(&ends) {
            wrong.extend(difference(fio, end).map(|how| format!("{sections}{}: {how}", end.name)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
