use super::*;
use crate::input::{Place, Warning};
use crate::kinds::storage::IoEngine;
use proptest::prelude::*;

fn none(path: &str, _: &str) -> Result<(String, Vec<u8>), String> {
    Err(format!("no file {path}"))
}

fn read(text: &str) -> Result<(Vec<FioJob>, Vec<Warning>), String> {
    sections("j.fio", text.as_bytes(), &none)
        .and_then(|sections| jobs("j.fio", &sections, &[]))
        .map_err(|error| error.to_string())
}

/// A valid job with `lines` in it, from line 5.
fn with(lines: &str) -> Result<(Vec<FioJob>, Vec<Warning>), String> {
    read(&format!("[a]\nfilename=/dev/nvme0n1\ndirect=1\nioengine=libaio\n{lines}"))
}

#[test]
fn the_published_jobs_are_read_without_a_warning() {
    let text = include_str!("../../../scenarios/jobs/four-drives-uring.fio");
    let (jobs, warnings) = read(text).unwrap();
    assert_eq!(warnings, []);
    assert_eq!(jobs.len(), 4);
    let job = &jobs[1];
    assert_eq!((job.name.as_str(), job.filename.text.as_str()), ("drive-b", "/dev/nvme5n1"));
    assert_eq!((job.numjobs, job.split, job.iodepth, job.block_bytes), (8, true, 64, 4096));
    assert_eq!(job.cpus.as_ref().unwrap().0.to_string(), "8-15");
    assert_eq!(job.engine, IoEngine::IoUring { fixed_buffers: true, registered_files: true, polled: false });
    assert_eq!((job.batch_submit, job.batch_complete_min, job.batch_complete_max), (1, 1, 1));
    assert_eq!((job.runtime_ns, job.ramp_ns), (Some(30_000_000_000), 3_000_000_000));
    assert!(job.pattern.random && job.pattern.read_percent == 100);
}

#[test]
fn a_polled_job_and_a_batched_one_are_read() {
    let (jobs, _) = read(include_str!("../../../scenarios/jobs/four-drives-polled.fio")).unwrap();
    assert!(matches!(jobs[0].engine, IoEngine::IoUring { polled: true, .. }));
    assert_eq!(jobs[0].polled_by.as_ref().unwrap().place, Place::line("j.fio", 9));
    let (jobs, warnings) = read(include_str!("../../../scenarios/jobs/one-job-batched.fio")).unwrap();
    assert_eq!((jobs[0].batch_submit, jobs[0].batch_complete_min, jobs[0].batch_complete_max), (16, 16, 16));
    assert_eq!(
        warnings.iter().map(Warning::to_string).collect::<Vec<_>>(),
        ["j.fio:13: gtod_reduce: not modelled: latencies are always measured, \
          and the clock reads that fio saves are not modelled"]
    );
}

#[test]
fn globals_hold_for_the_jobs_below_and_later_values_win() {
    let text = "# a comment\n[GLOBAL]\ndirect\nioengine=libaio ; inline\niodepth=2\n\
                [a]\nfilename=x\niodepth=4\n[global]\niodepth=8\nbs=8k\n[b]\nfilename=y\n";
    let (jobs, _) = read(text).unwrap();
    assert_eq!((jobs[0].iodepth, jobs[0].block_bytes), (4, 4096));
    assert_eq!((jobs[1].iodepth, jobs[1].block_bytes), (8, 8192));
}

#[test]
fn overrides_stand_over_everything() {
    let sections = sections("j.fio", b"[a]\nfilename=x\ndirect=1\nioengine=libaio\nblocksize=4k\n", &none).unwrap();
    let setting = crate::setting::Setting::from_option("job.bs=16k").unwrap();
    let (jobs, _) = jobs("j.fio", &sections, &[Entry { setting, bare: false }]).unwrap();
    assert_eq!(jobs[0].block_bytes, 16384);
}

#[test]
fn an_include_is_read_in_place_and_keeps_its_lines() {
    let include = |path: &str, from: &str| {
        assert_eq!((path, from), ("common.fio", "j.fio"));
        Ok(("common.fio".to_owned(), b"[global]\ndirect=1\nioengine=nope\n".to_vec()))
    };
    let sections = sections("j.fio", b"include common.fio\n[a]\nfilename=x\n", &include).unwrap();
    let error = jobs("j.fio", &sections, &[]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "common.fio:3: ioengine: `nope` is an engine that is not modelled; valid: libaio or io_uring"
    );
}

#[test]
fn an_include_of_itself_ends() {
    let include = |path: &str, _: &str| Ok((path.to_owned(), b"include j.fio\n".to_vec()));
    let error = sections("j.fio", b"include j.fio\n", &include).unwrap_err();
    assert_eq!(error.to_string(), "j.fio:1: include: `j.fio` nests deeper than 8 files; valid: the path of a job file");
}

#[test]
fn what_cannot_be_honoured_says_where_why_and_what_would_do() {
    let cases = [
        ("iodepht=64", "iodepht: the name is unknown; valid: iodepth"),
        (
            "rate_iops=100",
            "rate_iops: `100` paces submission, which is not modelled; \
                           valid: iodepth, numjobs and thinktime, which set the load too",
        ),
        ("iodepth=-3", "iodepth: `-3` is negative; valid: a whole number from 1 to 65536"),
        ("iodepth=0", "iodepth: `0` is out of bounds; valid: a whole number from 1 to 65536"),
        ("iodepth", "iodepth: `iodepth` has no value; valid: a whole number from 1 to 65536"),
        ("bs=4 KiB", "bs: `4 KiB` is not a number; valid: a whole number from 512 to 16777216"),
        (
            "bs=4k,8k",
            "bs: `4k,8k` has different sizes for reads and writes, which is not modelled; valid: one size: bs=4k",
        ),
        (
            "rw=shuffle",
            "rw: `shuffle` is a pattern that is not modelled; \
                     valid: read, write, randread, randwrite, rw, readwrite, randrw, trim, randtrim, trimwrite or randtrimwrite",
        ),
        ("hipri", "hipri: `hipri` is not for ioengine=libaio; valid: hipri with ioengine=io_uring"),
        ("direct=0", "direct: `0` goes through the page cache, which is not modelled; valid: direct=1"),
        (
            "cpus_allowed=7-0",
            "cpus_allowed: `7-0` has a range that ends before it begins; \
                              valid: CPU numbers and ranges up to 4095: 0-7 or 0,2-4",
        ),
        (
            "cpus_allowed=0-99999999",
            "cpus_allowed: `0-99999999` names a CPU out of bounds; \
                                     valid: CPU numbers and ranges up to 4095: 0-7 or 0,2-4",
        ),
        ("runtime=soon", "runtime: `soon` is no time; valid: a time such as 30, 30s, 5m, 500ms or 10us"),
        (
            "runtime=30${X}",
            "runtime: `30${X}` is a variable, which would make the result depend on who runs it; \
                            valid: the value itself",
        ),
        (
            "sqthread_poll",
            "sqthread_poll: `sqthread_poll` submits from a kernel thread, which is not modelled; valid: sqthread_poll=0",
        ),
        ("group_reporting=7\nstonewall", ""),
    ];
    for (line, message) in cases {
        let error = with(line).unwrap_err();
        if message.is_empty() {
            assert!(error.starts_with("j.fio:6: stonewall: "), "{error}");
        } else {
            assert_eq!(error, format!("j.fio:5: {message}"));
        }
    }
}

#[test]
fn a_file_that_is_no_job_file_says_so() {
    assert_eq!(read("iodepth=1\n").unwrap_err(), "j.fio:1: an option before the first [section]");
    assert_eq!(read("[a\n").unwrap_err(), "j.fio:1: a section's name has no `]` at its end");
    assert_eq!(read("[a]\nnot an option\n").unwrap_err(), "j.fio:2: `not an option` is neither name=value nor a name");
    assert_eq!(
        read("[global]\ndirect=1\n").unwrap_err(),
        "j.fio: must be given; valid: a section that is not [global], such as [drive-a] with filename=/dev/nvme0n1"
    );
    assert_eq!(
        read("[a]\ndirect=1\nioengine=libaio\n").unwrap_err(),
        "j.fio:1: [a] filename: must be given; valid: the drive's name: filename=/dev/nvme0n1"
    );
    let error = sections("j.fio", b"[a]\n\xff\xfe=1\n", &none).unwrap_err();
    assert_eq!(error.to_string(), "j.fio:2: is no UTF-8 text");
}

#[test]
fn what_is_not_modelled_is_named() {
    let (jobs, warnings) = with("size=10g\niodepth_batch=0\niodepth=8\n").unwrap();
    assert_eq!(jobs[0].batch_submit, 8);
    assert_eq!(
        warnings[0].to_string(),
        "j.fio:5: size: not modelled: the job runs for the simulated span, over the whole drive"
    );
    let (_, warnings) = read("[a]\nfilename=x\nioengine=libaio\n").unwrap();
    assert_eq!(
        warnings[0].to_string(),
        "j.fio:1: direct: not given: fio would go through the page cache, the simulated job does not (direct=1)"
    );
}

#[test]
fn every_name_has_one_meaning() {
    let mut names: Vec<&str> = options::names().collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count, "a name stands twice");
    for name in names {
        assert_eq!(
            options::meaning(options::canonical(name)).map(|m| matches!(m, options::Meaning::Alias(_))),
            Some(false)
        );
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(text in proptest::collection::vec(any::<u8>(), 0..400)) {
        if let Ok(sections) = sections("j.fio", &text, &none) {
            let _ = jobs("j.fio", &sections, &[]);
        }
    }

    /// Real names with arbitrary values reach the readers of values.
    #[test]
    fn arbitrary_values_never_panic(
        lines in proptest::collection::vec((0usize..400, "[ -~µ]{0,12}", any::<bool>()), 0..30),
    ) {
        let names: Vec<&str> = options::names().collect();
        let mut text = String::from("[a]\nfilename=x\ndirect=1\nioengine=io_uring\n");
        for (name, value, bare) in lines {
            let name = names[name % names.len()];
            text.push_str(&if bare { format!("{name}\n") } else { format!("{name}={value}\n") });
        }
        if let Ok((jobs, _)) = read(&text) {
            prop_assert!(jobs.iter().all(|job| job.batch_submit <= job.iodepth && job.batch_complete_max >= 1));
        }
    }

    #[test]
    fn every_whole_size_is_read_back(kib in 1u64..16384) {
        let (jobs, _) = with(&format!("bs={kib}k\n")).unwrap();
        prop_assert_eq!(u64::from(jobs[0].block_bytes), kib * 1024);
    }
}
