use super::*;
use crate::input::{Place, Warning};
use crate::kinds::storage::IoEngine;
use crate::setting::Setting;
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
    assert_eq!((job.name.as_str(), job.filename.as_ref().unwrap().text.as_str()), ("drive-b", "/dev/nvme5n1"));
    assert_eq!((job.numjobs, job.split, job.iodepth, job.block_bytes), (8, true, 64, 4096));
    assert_eq!(job.cpus.as_ref().unwrap().0.to_string(), "8-15");
    assert_eq!(job.engine, IoEngine::IoUring { fixed_buffers: true, registered_files: true, polled: false });
    assert_eq!((job.batch_submit, job.batch_complete_min, job.batch_complete_max), (1, 1, 1));
    assert_eq!((job.load.ends.runtime_ns, job.load.ends.ramp_ns), (Some(30_000_000_000), 3_000_000_000));
    assert!(job.pattern.random && job.pattern.read_percent == 100);
}

#[test]
fn a_polled_job_and_a_batched_one_are_read() {
    let (jobs, _) = read(include_str!("../../../scenarios/jobs/four-drives-polled.fio")).unwrap();
    assert!(matches!(jobs[0].engine, IoEngine::IoUring { polled: true, .. }));
    assert_eq!(jobs[0].polled_by.as_ref().unwrap().place.line, Some(9));
    let (jobs, warnings) = read(include_str!("../../../scenarios/jobs/one-job-batched.fio")).unwrap();
    assert_eq!((jobs[0].batch_submit, jobs[0].batch_complete_min, jobs[0].batch_complete_max), (16, 16, 16));
    assert_eq!(
        warnings.iter().map(Warning::to_string).collect::<Vec<_>>(),
        ["j.fio:13: gtod_reduce: not modelled: latencies are always measured, \
          and the clock reads that fio saves are not modelled"]
    );
}

#[test]
fn a_no_break_space_is_no_blank() {
    // As fio 3.33 judges each line.
    for refused in
        ["rw=read\u{a0}", "rw=\u{a0}read", "\u{a0}rw=read", "rw\u{a0}=read", "iodepth=\u{a0}4", "time_based\u{a0}"]
    {
        let error = with(refused).unwrap_err();
        assert!(error.starts_with("j.fio:5: ") && error.contains("<U+00A0>"), "{refused:?}: {error}");
    }
    for taken in ["iodepth=4\u{a0}", "bs=4k\u{a0}", "direct=1\u{a0}"] {
        let (jobs, _) = with(taken).unwrap_or_else(|error| panic!("{taken:?}: {error}"));
        assert_eq!(jobs[0].block_bytes, 4096, "{taken:?}");
    }
}

#[test]
fn globals_hold_for_the_jobs_below_and_later_values_win() {
    let text = "# a comment\n[globals]\ndirect=1\nioengine=libaio ; inline\niodepth=2\n\
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
        Ok(("common.fio".to_owned(), b"direct=1\nioengine=nope\n".to_vec()))
    };
    let sections = sections("j.fio", b"[a]\ninclude common.fio\nfilename=x\n", &include).unwrap();
    let error = jobs("j.fio", &sections, &[]).unwrap_err();
    assert!(
        error.to_string().starts_with("common.fio:2: ioengine: `nope` is an engine that is not modelled;"),
        "{error}"
    );
}

#[test]
fn an_include_of_itself_ends() {
    let include = |path: &str, _: &str| Ok((path.to_owned(), b"include j.fio\n".to_vec()));
    let error = sections("j.fio", b"[a]\ninclude j.fio\n", &include).unwrap_err();
    let why = "j.fio:1: include: `j.fio` nests deeper than 32 files; valid: the path of a file with options";
    assert_eq!(error.to_string(), why);
}

#[test]
fn includes_that_multiply_end() {
    let include = |path: &str, _: &str| Ok((path.to_owned(), b"include j.fio\n".repeat(10)));
    let (_, errors) = super::read("j.fio", b"[a]\ninclude j.fio\n", &include);
    assert!(errors.iter().any(|error| error.to_string().contains("is one file more than the 1000 that")), "{errors:?}");
    assert!(errors.len() < 10_000, "{}", errors.len());
}

#[test]
fn an_included_file_has_options_only() {
    let include = |path: &str, _: &str| Ok((path.to_owned(), b"[b]\nbs=4k\n".to_vec()));
    let error = sections("j.fio", b"[a]\ninclude c.fio\n", &include).unwrap_err();
    assert_eq!(error.to_string(), "c.fio:1: begins a section, which an included file may not");
    let error = sections("j.fio", b"include c.fio\n[a]\n", &include).unwrap_err();
    assert_eq!(error.to_string(), "j.fio:1: an option before the first [section]");
}

#[test]
fn odd_input_is_read_as_fio_reads_it_or_says_why_not() {
    let read = |text: &[u8]| sections("j.fio", text, &none).map_err(|error| error.to_string());
    let entry = |text: &[u8]| read(text).unwrap()[0].entries[0].setting.text.clone();
    assert_eq!(entry(b"[a]\r\n\tbs=8k \r\n"), "8k");
    assert_eq!(entry(b"[a] ; one\nbs=8k# \xe9 in Latin-1\n"), "8k");
    assert_eq!(entry(b"#!/usr/bin/env fio\n[a]\ndescription=caf\xe9\n"), "caf\u{fffd}");
    assert_eq!(
        read(b"\xef\xbb\xbf[a]\n").unwrap_err(),
        "j.fio:1: begins with a byte order mark, which fio does not read; save it as UTF-8 without one"
    );
    assert_eq!(read(b"[a]\nbs=4k\0\n").unwrap_err(), "j.fio:2: has a zero byte, at which fio ends the line");
    let long = format!("[a]\ndescription={}\n", "x".repeat(1 << 20));
    assert!(read(long.as_bytes()).unwrap_err().starts_with("j.fio:2: is longer than the 8,190 bytes"));
    let all = super::read("j.fio", b"bs=1\n[a\n[b]\n=2\n  x y\n", &none).1;
    let all: Vec<_> = all.iter().map(|error| (error.place.line.unwrap(), error.place.column)).collect();
    assert_eq!(all, [(1, Some(1)), (2, Some(1)), (4, Some(1)), (5, Some(3))], "every error, with its column");
}

#[test]
fn options_of_later_versions_that_change_no_io_are_warned_of() {
    let (jobs, warnings) =
        read("[global]\nlog_window_value=both\n[a]\nfilename=/dev/nvme0n1\nfdp=1\npi_act=0\niodepth=4\n").unwrap();
    assert_eq!(jobs.len(), 1);
    let keys: Vec<&str> = warnings.iter().map(|warning| warning.key.as_str()).collect();
    assert!(["log_window_value", "fdp", "pi_act"].iter().all(|key| keys.contains(key)), "{warnings:?}");
}

#[test]
fn what_cannot_be_honoured_says_where_why_and_what_would_do() {
    let cases = [
        ("iodepht=64", "iodepht: the name is unknown; valid: iodepth"),
        ("iodepth=-3", "iodepth: `-3` is negative; valid: a whole number from 1 to 65536"),
        ("iodepth=0", "iodepth: `0` is out of bounds; valid: a whole number from 1 to 65536"),
        ("iodepth", "iodepth: `iodepth` has no value; valid: a whole number from 1 to 65536"),
        ("iodepth=99999", "iodepth: `99999` is out of bounds; valid: a whole number from 1 to 65536"),
        ("direct", "direct: `direct` has no value; valid: 0 or 1"),
        ("direct=yes", "direct: `yes` is no boolean; valid: 0 or 1"),
        ("rw = read", "rw: ` read` has a blank before it, which fio takes as part of the value; valid: rw=read"),
        ("rwmixcycle=3", "rwmixcycle: `3` is no option any more; valid: a job without it"),
        ("nice=-21", "nice: `-21` is negative; valid: a whole number from -20 to 19"),
        ("sprandom=1", "sprandom: `1` is for an option of a newer fio than 3.33; valid: an option of fio 3.33"),
        ("thp=1", "thp: `1` is not for ioengine=libaio; valid: thp with ioengine=mmap"),
        (
            "bssplit=4k/60:8k/60:1k:2k",
            "bssplit: `4k/60:8k/60:1k:2k` has percentages of more than 100 together; \
             valid: sizes and percentages such as 4k/60:8k/40",
        ),
        (
            "rw=shuffle",
            "rw: `shuffle` is no value; \
             valid: read, write, trim, randread, randwrite, randtrim, rw, readwrite, randrw, trimwrite or randtrimwrite",
        ),
        ("hipri", "hipri: `hipri` is not for ioengine=libaio; valid: hipri with ioengine=io_uring or pvsync2"),
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
        ("runtime=soon", "runtime: `soon` is not a number; valid: a time such as 30, 30s, 5m, 500ms or 10us"),
        ("group_reporting=7\nverify_only=1", ""),
    ];
    for (line, message) in cases {
        let error = with(line).unwrap_err();
        if message.is_empty() {
            assert!(error.starts_with("j.fio:6: verify_only: "), "{error}");
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
        "j.fio: [job]: must be given; valid: a section that is not [global], such as [drive-a] with filename=/dev/nvme0n1"
    );
    assert_eq!(read("[a]\ndirect=1\nioengine=libaio\n").unwrap().0[0].file_names(3), ["a.3.0"]);
}

#[test]
fn sequential_reads_of_the_page_cache_are_warned_of() {
    let warnings = |lines: &str| {
        let told = with(lines).unwrap().1;
        told.iter().filter(|warning| warning.meaning.contains("read-ahead")).count()
    };
    assert_eq!(["direct=0\nrw=read\n", "buffered=1\nrw=rw\n"].map(warnings), [1, 1]);
    assert_eq!(["direct=0\nrw=randread\n", "direct=0\nrw=write\n", "rw=read\n"].map(warnings), [0, 0, 0]);
}

#[test]
fn the_last_of_two_options_for_one_thing_holds() {
    let job = |lines: &str| with(lines).unwrap().0.remove(0);
    assert!(job("buffered=1\n").load.syncs.buffered && !job("buffered=1\ndirect=1\n").load.syncs.buffered);
    assert_eq!(job("rw=rw\nrwmixread=90\nrwmixwrite=70\n").pattern.read_percent, 30);
    assert_eq!(job("rw=rw\nrwmixwrite=70\nrwmixread=90\n").pattern.read_percent, 90);
    assert_eq!(job("cpus_allowed=7\ncpumask=0x5\n").cpus.unwrap().0.to_string(), "0,2");
    assert_eq!(job("sync_file_range=write\n").load.syncs.range, 1);
}

#[test]
fn a_section_that_only_creates_files_is_left_out() {
    let text = "[global]\nfilename=x\ndirect=1\nioengine=libaio\n[a]\n[make]\nstonewall\ncreate_only=1\n[b]\nrw=read\n";
    let (jobs, warnings) = read(text).unwrap();
    assert_eq!(jobs.iter().map(|job| job.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert!(jobs[1].load.start.stonewall && jobs[1].begins_group, "its wall stays");
    assert!(warnings[0].to_string().contains("create_only: not modelled: files are laid out"), "{}", warnings[0]);
    let error = with("create_only=1\n").unwrap_err();
    assert!(error.contains("`a` is a section that does no I/O, and there is no other"), "{error}");
    let text = text.replace("stonewall\ncreate_only=1", "filename=\nstonewall\nnrfiles=0").replace("filename=x\n", "");
    let (jobs, warnings) = read(&text.replace("filename=\n", "")).unwrap();
    assert_eq!(jobs.len(), 2);
    assert!(
        warnings
            .iter()
            .any(|warning| warning.to_string().ends_with("the section has no file, does no I/O and is left out"))
    );
    assert_eq!(with("nrfiles=0\n").unwrap().0.len(), 1, "it has the files that it names");
}

#[test]
fn a_range_of_delays_has_two_times_and_a_command_line_is_named() {
    let (jobs, warnings) = with("startdelay=100ms-3s\n").unwrap();
    assert_eq!(jobs[0].load.start.delay_ns, (100_000_000, 3_000_000_000));
    assert!(warnings.iter().all(|warning| warning.key != "startdelay"), "{warnings:?}");
    let error = read("fio --name=a --rw=randread\n").unwrap_err();
    assert!(error.contains("is a command line of fio"), "{error}");
}

#[test]
fn what_is_not_modelled_is_named() {
    let (jobs, warnings) = with("nice=10\niodepth_batch=0\niodepth=8\n").unwrap();
    assert_eq!(jobs[0].batch_submit, 8);
    assert_eq!(warnings[0].to_string(), "j.fio:5: nice: not modelled: all threads and requests have the same priority");
    let (_, warnings) = read("[a]\nfilename=x\nioengine=libaio\n").unwrap();
    assert_eq!(
        warnings[0].to_string(),
        "j.fio:1: direct: not given: fio would go through the page cache, the simulated job does not (direct=1)"
    );
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

/// fio adds the files of a job to those of its `[global]`; an option of the command line stands for both.
#[test]
fn files_of_a_job_are_added_to_those_of_global() {
    let text = "[global]\nfilename=/dev/a\ndirect=1\nioengine=libaio\n[x]\nfilename=/dev/b:/dev/c\n[y]\nrw=read\n";
    let sections = sections("j.fio", text.as_bytes(), &|_, _| Err("no".into())).unwrap();
    let (found, warnings) = jobs("j.fio", &sections, &[]).unwrap();
    assert_eq!(found[0].file_names(0), ["/dev/a", "/dev/b", "/dev/c"]);
    assert_eq!(found[1].file_names(0), ["/dev/a"]);
    assert_eq!(warnings.len(), 1);
    let place = Place::option("--set");
    let own = Entry { setting: Setting::new(place, "job.filename", "/dev/d"), bare: false };
    let (found, _) = jobs("j.fio", &sections, &[own]).unwrap();
    assert_eq!(found[0].file_names(0), ["/dev/d"]);
}

#[test]
fn commands_past_the_block_layer_go_to_a_character_device() {
    let of = |lines: &str| read(&format!("[a]\nrw=randread\n{lines}\n"));
    let (jobs, warnings) =
        of("ioengine=io_uring_cmd\ncmd_type=nvme\nfilename=/dev/ng0n1\nhipri\nfixedbufs=1\ndirect=0").unwrap();
    let engine = IoEngine::IoUring { fixed_buffers: true, registered_files: false, polled: true };
    assert_eq!((jobs[0].engine, jobs[0].load.syncs.buffered, jobs[0].says_direct), (engine, false, true));
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].to_string().contains("taken as io_uring"), "{warnings:?}");
    for (lines, why) in [
        ("ioengine=io_uring_cmd\nfilename=/dev/nvme0n1", "is not for ioengine=io_uring_cmd"),
        ("ioengine=io_uring_cmd", "needs a namespace's character device; valid: filename=/dev/ng0n1"),
        ("ioengine=io_uring\nfilename=/dev/ng1n2", "valid: /dev/nvme1n2, or ioengine=io_uring_cmd"),
        ("ioengine=io_uring_cmd\ncmd_type=bsg\nfilename=/dev/ng0n1", "is no value; valid: nvme"),
    ] {
        let error = of(lines).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
    let (jobs, warnings) = of("ioengine=windowsaio\niodepth=8\ndirect=1\nfilename=x").unwrap();
    assert_eq!((jobs[0].engine, jobs[0].iodepth), (IoEngine::Libaio, 8));
    assert!(warnings[0].to_string().contains("Windows' engine, taken as libaio"), "{warnings:?}");
}

#[test]
fn lists_and_patterns_of_devices_are_refused() {
    for name in ["/dev/nvme*n1", "/dev/nvme[0-3]n1", "/dev/sda,/dev/sdb", "/dev/sda /dev/sdb", "/dev/sda:/dev/sd?"] {
        let error = read(&format!("[a]\nfilename={name}\n")).unwrap_err();
        assert!(error.contains("names no device: devices stand between colons"), "{name}: {error}");
    }
    assert!(read("[a]\nfilename=/mnt/a b,c*\n").is_ok(), "a file");
}

#[test]
fn a_backslash_is_part_of_a_name_unless_a_colon_follows() {
    for (text, names) in [
        (r"\\.\PhysicalDrive1:\\.\PhysicalDrive2", &[r"\\.\PhysicalDrive1", r"\\.\PhysicalDrive2"][..]),
        (r"/mnt/a\:b:c", &["/mnt/a:b", "c"]),
        (r"D\:\data", &[r"D:\data"]),
        (":a::b:", &["a", "b"]),
    ] {
        assert_eq!(split_names(text), names, "{text}");
    }
}
