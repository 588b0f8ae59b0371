//! Job files in the manner of published benchmarks run, and a long file is read and planned quickly.

use lab::interrupt::StopFlag;
use lab::lint::lint;
use lab::run;
use lab::scenario::Request;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Instant;

fn files() -> Vec<PathBuf> {
    let folder = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fio")).unwrap();
    let mut files: Vec<PathBuf> = folder.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// A file that `campanile lint` takes runs; one that it does not take names every option that stands in the way.
#[test]
fn every_job_file_that_is_taken_runs_for_a_millisecond() {
    let files = files();
    assert_eq!(files.len(), 60);
    let (mut wrong, mut ran) = (String::new(), 0);
    for file in &files {
        let request = Request {
            deliveries: Some(vec!["remapped".into()]),
            seeds: Some(1),
            sets: ["ramp=100us", "duration=1ms"].map(String::from).to_vec(),
            ..Request::of(file.to_str().unwrap())
        };
        let judged = lint(&request);
        if !judged.runs {
            assert!(judged.findings.iter().any(|finding| finding.level == "refused" && finding.line.is_some()));
            continue;
        }
        let plan = request.plan().unwrap();
        ran += 1;
        if let Err(error) = run::run_all(&plan, false, &StopFlag::default()) {
            let _ = writeln!(wrong, "{}: {error}", file.display());
        }
    }
    println!("{ran} of 60 files run");
    assert!(wrong.is_empty(), "{wrong}");
    assert_eq!(ran, 60);
}

/// A job of the null engine makes no I/O and no call that waits; its time passes all the same.
#[test]
fn a_job_of_the_null_engine_runs_for_its_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("null.fio");
    std::fs::write(&path, "[a]\nioengine=null\nrw=randread\nsize=1g\ntime_based\nruntime=5\n").unwrap();
    let request = Request {
        deliveries: Some(vec!["remapped".into()]),
        seeds: Some(1),
        sets: ["ramp=100us", "duration=1ms"].map(String::from).to_vec(),
        ..Request::of(path.to_str().unwrap())
    };
    run::run_all(&request.plan().unwrap(), false, &StopFlag::default()).unwrap();
}

/// The stated bound is 100 ms in a release build on an idle machine; here it is 20 times that.
#[test]
fn a_file_of_3000_sections_is_planned_quickly() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.fio");
    let mut text = String::from("[global]\nioengine=libaio\ndirect=1\nbs=4k\nruntime=10\ntime_based\n");
    for number in 0..3000 {
        let _ = write!(text, "[job{number}]\nfilename=/dev/nvme{}n1\nrw=randread\niodepth=4\n", number % 4);
    }
    std::fs::write(&path, text).unwrap();
    let began = Instant::now();
    let plan = Request::of(path.to_str().unwrap()).plan().unwrap();
    let took = began.elapsed();
    println!("3,000 sections: {} us", took.as_micros());
    assert_eq!(plan.storage().unwrap().jobs.len(), 3000);
    assert!(took.as_millis() < 2000, "{took:?}");
}
