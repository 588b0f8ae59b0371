use super::*;
use proptest::prelude::*;

const V3: &str = r#"fio: warning: 'x' {
{
  "fio version" : "fio-3.33",
  "global options" : { "ioengine" : "libaio", "direct" : "1" },
  "jobs" : [
    { "jobname" : "a", "error" : 0, "job options" : { "rw" : "randread" },
      "read" : { "io_bytes" : 4096000, "bw_bytes" : 4096000, "bw" : 4000, "iops" : 1000.5, "runtime" : 1000, "total_ios" : 1000,
        "slat_ns" : { "min" : 1, "max" : 9, "mean" : 2000.0, "stddev" : nan, "N" : 1000 },
        "clat_ns" : { "min" : 1, "max" : 99, "mean" : 80000.0, "N" : 1000, "percentile" : { "99.000000" : 90000, "50.000000" : 79000, "0.00" : 0 } },
        "lat_ns" : { "mean" : 82000.0, "max" : 5, "N" : 1000 } },
      "write" : { "iops" : 0.0, "total_ios" : 0, "clat_ns" : { "max" : 0, "mean" : 0.0, "N" : 0 } },
      "usr_cpu" : 5.5, "sys_cpu" : 10.25 }
  ],
  "disk_util" : [ ]
}
Run status group 0 (all jobs):
"#;
const V2: &str = r#"{
  "fio version" : "fio-2.1.11",
  "jobs" : [ { "jobname" : "b", "error" : 5, "read" : { "io_bytes" : 4000, "bw" : 4000, "iops" : 1000.00, "runtime" : 2000,
    "clat" : { "min" : 50, "max" : 99, "mean" : 80.0, "percentile" : { "50.000000" : 79, "0.00" : 0 } } } } ]
}"#;

#[test]
fn both_versions_are_read() {
    let found = FioOutput::parse(V3.as_bytes()).unwrap();
    assert_eq!((found.version.as_str(), found.jobs.len(), found.jobs[0].options.len()), ("fio-3.33", 1, 1));
    let read = &found.jobs[0].directions[0];
    assert_eq!((read.ios, read.iops, read.bandwidth_bps), (1000, 1000.5, 4_096_000.0));
    assert_eq!((read.slat_ns, read.clat_ns, read.lat_ns), (Some(2000.0), Some(80_000.0), Some(82_000.0)));
    assert_eq!(read.percentiles_ns, [(50.0, 79_000.0), (99.0, 90_000.0)]);
    assert_eq!(found.jobs[0].directions[1].clat_ns, None, "of nothing");
    assert_eq!((found.jobs[0].user_percent, found.jobs[0].system_percent), (Some(5.5), Some(10.25)));
    assert_eq!((found.jobs[0].threads, found.threads()), (None, None));
    let group = FioOutput::parse(V3.replace("\"usr_cpu\"", "\"job_runtime\" : 5990, \"usr_cpu\"").as_bytes()).unwrap();
    assert_eq!(group.threads(), Some(5.99));
    assert!((group.in_flight() - 1000.5 * 80e-6).abs() < 1e-9);
    let old = FioOutput::parse(V2.as_bytes()).unwrap();
    let read = &old.jobs[0].directions[0];
    assert_eq!((read.ios, read.bandwidth_bps, read.clat_ns), (2000, 4_096_000.0, Some(80_000.0)));
    assert_eq!((read.percentiles_ns.as_slice(), old.jobs[0].error), (&[(50.0, 79_000.0)][..], 5));
}

/// The first job of a text.
fn first(text: &str) -> FioJob {
    FioOutput::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{error}: {text}")).jobs.remove(0)
}

#[test]
fn counters_that_overflowed_are_not_numbers() {
    let job = first(
        r#"{"fio version": "fio-2.2.10", "jobs": [{"jobname": "a", "read": {"io_bytes": -2147483648, "bw": -5, "iops": 1000.5,
            "total_ios": -1294967296, "runtime": 10000, "clat": {"min": 1, "max": 90, "mean": 50.5, "stddev": -nan}},
            "usr_cpu": -1.0, "sys_cpu": 12.5}]}"#,
    );
    let read = &job.directions[0];
    assert_eq!((read.iops, read.ios, read.bandwidth_bps, read.clat_ns), (1000.5, 10_005, 0.0, Some(50_500.0)));
    assert_eq!((job.user_percent, job.system_percent), (None, Some(12.5)));
}

#[test]
fn what_newer_versions_add_changes_nothing() {
    let job = first(
        r#"{"fio version": "fio-3.41", "timestamp": 1, "global options": {"rw": "randtrim"}, "jobs": [{"jobname": "a", "elapsed": 3,
            "read": {"iops": 0.0, "total_ios": 0, "clat_ns": {"min": 0, "max": 0, "mean": 0.0, "N": 0}},
            "trim": {"iops": 500.0, "total_ios": 5000, "runtime": 10000, "bw_bytes": 2048000, "short_ios": 0, "drop_ios": 0,
              "clat_ns": {"min": 900, "max": 9000, "mean": 2000.0, "stddev": 1.0, "N": 5000, "bins": {"900": 4000, "9000": 1000}},
              "lat_prio": [{"prioclass": "BE", "prio": 4, "iops": 500.0}]},
            "sync": {"total_ios": 7, "lat_ns": {"min": 1, "max": 2, "mean": 1.5, "N": 7}}, "latency_depth": 1, "latency_window": 0}],
            "disk_util": [{"name": "nvme0n1", "read_ios": 5}]}"#,
    );
    assert_eq!((job.directions[0].ios, job.directions[2].ios, job.directions[2].clat_ns), (0, 5000, Some(2000.0)));
    assert!(job.directions[2].percentiles_ns.is_empty());
}

#[test]
fn a_text_for_people_before_the_json_is_no_run_of_its_own() {
    let text = "a: (g=0): rw=randread, bs=(R) 4096B-4096B, ioengine=libaio, iodepth=1\nfio-3.33\nStarting 1 process\n\n\
                    a: (groupid=0, jobs=1): err= 0: pid=7: Tue Nov 24 2026\n  read: IOPS=1, BW=1KiB/s (1kB/s)(4KiB/1000msec)\n\
                    {\"fio version\": \"fio-3.33\", \"jobs\": [{\"jobname\": \"a\", \"read\": {\"iops\": 1.5, \"total_ios\": 3}}]}\n\n\
                    Run status group 0 (all jobs):\n   READ: bw=1KiB/s\n";
    let runs = FioOutput::parse_all(text.as_bytes()).unwrap();
    assert_eq!((runs.len(), runs[0].iops()), (1, 1.5));
}

#[test]
fn the_last_document_of_the_same_jobs_counts() {
    let two = format!("{V3}\n{}", V3.replace("1000.5", "7"));
    let found = FioOutput::parse(two.as_bytes()).unwrap();
    assert_eq!((found.iops(), found.notes.len()), (7.0, 1));
    let other = V3.replace("randread", "read").replace("1000.5", "7");
    let both = FioOutput::parse_all(format!("{V3}\n{other}").as_bytes()).unwrap();
    assert_eq!(both.iter().map(FioOutput::iops).collect::<Vec<_>>(), [1000.5, 7.0]);
    let cut = format!("{V3}\n{}", &V3[..300]);
    let found = FioOutput::parse(cut.as_bytes()).unwrap();
    assert!((found.iops() - 1000.5).abs() < 1e-9 && found.notes[0].contains("broken"), "{:?}", found.notes);
}

#[test]
fn latencies_that_are_longer_than_the_run_are_left_out() {
    // 1,000 ms.
    let of = |mean: &str| FioOutput::parse(V3.replace("\"mean\" : 80000.0", mean).as_bytes()).unwrap();
    let found = of("\"mean\" : 756537530850000.0");
    assert_eq!((found.clat_ns(), found.iops(), found.in_flight()), (None, 1000.5, 0.0));
    assert!(found.notes.iter().any(|note| note.contains("longer than the run")), "{:?}", found.notes);
    assert_eq!(of("\"mean\" : 1500000000.0").clat_ns(), Some(1.5e9));
}

#[test]
fn clients_are_jobs_and_their_sum_is_not() {
    let text = V2.replace("\"jobs\"", "\"client_stats\"");
    assert_eq!(FioOutput::parse(text.as_bytes()).unwrap().jobs.len(), 1);
    let all = r#"{ "jobname" : "All clients", "mixed" : { "iops" : 5.0, "total_ios" : 10 } }"#;
    let both = text.replace("} } } ]", &format!("}} }} }}, {all} ]"));
    let found = FioOutput::parse(both.as_bytes()).unwrap();
    assert_eq!((found.jobs.len(), found.iops()), (1, 1000.0));
    // A file that someone cut down to the sum.
    let alone = format!("{{\"client_stats\": [{all}]}}");
    assert_eq!(FioOutput::parse(alone.as_bytes()).unwrap().iops(), 5.0);
}

#[test]
fn hosts_are_told_apart() {
    let on = |host: &str| format!(r#"{{"jobname": "a", "hostname": "{host}", "read": {{"iops": 5, "total_ios": 9}}}}"#);
    let disk = |host: &str| format!(r#"{{"name": "sda", "hostname": "{host}"}}"#);
    let [x, y] = ["x", "y"];
    let text =
        format!(r#"{{"client_stats": [{},{},{}], "disk_util": [{},{}]}}"#, on(x), on(y), on(""), disk(x), disk(y));
    let mut found = FioOutput::parse(text.as_bytes()).unwrap();
    assert_eq!(found.hosts().into_iter().collect::<Vec<_>>(), [x, y]);
    found.keep_host(y);
    assert_eq!((found.jobs.len(), found.disks.len(), found.jobs[0].host.as_str()), (2, 1, y));
}

#[test]
fn what_is_no_fio_output_is_refused_with_its_reason() {
    assert_eq!(FioOutput::parse(b"terse;3;fio"), Err(FioJsonError::NoJson));
    assert_eq!(FioOutput::parse(b"{\"a\": 1}"), Err(FioJsonError::NoJobs));
    let failed =
        "fio-3.33\nfio: pid=7, err=2/file:x, func=open(y), error=No such file\n\nRun status group 0 (all jobs):\n";
    let error = FioOutput::parse(failed.as_bytes()).unwrap_err();
    assert!(error.to_string().contains("error=No such file"), "{error}");
    assert!(matches!(FioOutput::parse(&V3.as_bytes()[..600]), Err(FioJsonError::Broken(_))));
    let deep = "{\"jobs\":".to_owned() + &"[".repeat(100_000);
    assert!(matches!(FioOutput::parse(deep.as_bytes()), Err(FioJsonError::Broken(_))));
}

#[test]
fn a_cut_at_any_byte_is_an_error_or_a_value() {
    for length in 0..V3.len() {
        let _ = FioOutput::parse(&V3.as_bytes()[..length]);
    }
}

#[test]
fn quotations_and_logs_are_read() {
    let (_, json) = V3.split_once('\n').unwrap();
    for prefix in ["> ", "fio_1  | ", "2026-11-23T13:02:56Z stdout F ", "Nov 23 13:02:56 host fio[7]: "] {
        let text: String = json.lines().map(|line| format!("{prefix}{line}\n")).collect();
        assert_eq!(first(&text).directions[0].iops, 1000.5, "{text}");
    }
    for before in ["Jobs: 1 (f=1): [r(1)][eta 00m:00s]", "fio: pid 7 ", "\x1b[1mroot#\x1b[0m "] {
        assert_eq!(first(&format!("{before}{json}root@host:~# ")).directions[0].iops, 1000.5, "{before}");
    }
}

#[test]
fn texts_that_windows_saved_are_read() {
    let (_, json) = V3.split_once('\n').unwrap();
    let marked = format!("\u{feff}{json}");
    assert_eq!(FioOutput::parse(marked.as_bytes()).unwrap().jobs.len(), 1);
    let wide: Vec<u8> = format!("\u{feff}{V2}").encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert_eq!(FioOutput::parse(&wide).unwrap().version, "fio-2.1.11");
}

proptest! {
    #[test]
    fn any_text_is_read_without_a_panic(text in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = FioOutput::parse(&text);
    }

    #[test]
    fn any_damage_is_read_without_a_panic(at in 0..V3.len(), byte in any::<u8>()) {
        let mut text = V3.as_bytes().to_vec();
        text[at] = byte;
        let _ = FioOutput::parse(&text);
    }
}
