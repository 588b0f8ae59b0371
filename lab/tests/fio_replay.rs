//! Logs that are repeated: real fio writes a log and repeats it, and so do the simulated jobs. The I/Os of each direction
//! and their bytes are the same. Without fio on the path, the tests that ask it are skipped with a line that says so.

mod common;

use common::fio::{self, Counts, counts, json};
use std::path::Path;
use std::process::Command;

/// What real fio does in `folder`.
fn judged(folder: &Path, text: &str) -> Vec<Counts> {
    counts(&fio::judged(folder, text))
}

/// What the simulated jobs do in `folder`; their logs are written there.
fn simulated(folder: &Path, text: &str) -> Vec<Counts> {
    std::fs::write(folder.join("simulated.fio"), text).unwrap();
    let mut campanile = Command::new(env!("CARGO_BIN_EXE_campanile"));
    campanile.args(["run", "simulated.fio", "--seeds", "1", "--delivery", "remapped", "--fio-json", "-"]);
    campanile.args(["--set", "cpus=2"]).current_dir(folder);
    if text.contains("write_iolog") {
        campanile.args(["--fio-logs", "."]);
    }
    let output = campanile.output().unwrap();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    counts(&json(&String::from_utf8_lossy(&output.stdout)))
}

/// Jobs whose log is repeated: options in one line. fio runs them on files.
const LOGGED: [&str; 6] = [
    "rw=randrw size=256k filename=one:two",
    "rw=write size=128k bs=8k fsync=4 nrfiles=3",
    "rw=randread size=512k bssplit=4k/50:16k/50 filename=one",
    "rw=randwrite size=64k bs=5000 filename=odd",
    "rw=read size=64k rate_iops=200 filename=paced",
    "rw=trimwrite size=256k bs=16k filename=trimmed",
];

#[test]
fn a_log_of_fio_is_repeated_as_fio_repeats_it() {
    if !fio::is_there() {
        return;
    }
    for options in LOGGED {
        let folder = tempfile::tempdir().unwrap();
        let lines = options.replace(' ', "\n");
        // No engine of fio trims a plain file.
        let engine = if options.contains("trim") { "null" } else { "psync" };
        let logged = judged(folder.path(), &format!("[a]\nioengine={engine}\nwrite_iolog=a.log\n{lines}\n"));
        let replay = format!("[b]\nread_iolog=a.log\nioengine={engine}\n");
        let (fio, ours) = (judged(folder.path(), &replay), simulated(folder.path(), &replay));
        for ((ios, bytes), (fio_ios, fio_bytes)) in ours.iter().zip(&fio) {
            // Of its own logs, fio 3.33 passes over trims.
            assert_eq!((&ios[..2], &bytes[..2]), (&fio_ios[..2], &fio_bytes[..2]), "{options}");
        }
        assert_eq!(ours, logged, "{options}");
        let deep = simulated(folder.path(), "[b]\nread_iolog=a.log\nioengine=io_uring\niodepth=16\ndirect=1\n");
        assert_eq!(deep, logged, "{options}");
    }
}

#[test]
fn a_log_of_a_simulated_job_is_repeated_by_it_and_by_fio() {
    let folder = tempfile::tempdir().unwrap();
    // fio reads what is there; a simulated log names the drive that holds the files.
    std::fs::write(folder.path().join("files"), vec![0; 1 << 20]).unwrap();
    for options in ["rw=randrw size=256k filename=one", "rw=write size=128k bs=16k filename=two"] {
        let lines = options.replace(' ', "\n");
        let job = format!("[a]\nioengine=libaio\niodepth=8\ndirect=1\nwrite_iolog=a.log\n{lines}\n");
        let first = simulated(folder.path(), &job);
        let replay = "[b]\nread_iolog=a.log\nioengine=libaio\niodepth=8\n";
        assert_eq!(simulated(folder.path(), replay), first, "{options}");
        if fio::is_there() {
            // Of a replay with several I/Os in flight, fio leaves the bytes of the last ones out.
            assert_eq!(judged(folder.path(), &replay.replace("libaio", "psync")), first, "{options}");
        }
    }
}

/// Queued I/Os of one drive as the kernel traces them: reads and writes in turn, a ms apart.
fn traced(ios: u32) -> Vec<u8> {
    let mut trace = Vec::new();
    for number in 0..ios {
        let (class, bytes) = if number % 2 == 0 { (1u32, 4096u32) } else { (2, 8192) };
        trace.extend(0x6561_7407u32.to_le_bytes());
        trace.extend(number.to_le_bytes());
        trace.extend(u64::from((number + 1) * 1_000_000).to_le_bytes());
        trace.extend(u64::from(number * 16).to_le_bytes());
        // Queued; process, device 8:0, CPU, no error, nothing behind the record.
        [bytes, 1 | (1 << 4 | class) << 16, 7, 8 << 20, 0, 0]
            .iter()
            .for_each(|field| trace.extend(field.to_le_bytes()));
    }
    trace
}

#[test]
fn a_trace_of_the_kernel_is_repeated_as_fio_repeats_it() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("t.bin"), traced(50)).unwrap();
    std::fs::write(folder.path().join("f"), vec![0; 1 << 20]).unwrap();
    let replay = "[b]\nread_iolog=t.bin\nreplay_redirect=f\nioengine=psync\n";
    let ours = simulated(folder.path(), replay);
    assert_eq!(ours, [([25, 25, 0], [25 * 4096, 25 * 8192, 0])]);
    if fio::is_there() {
        assert_eq!(judged(folder.path(), replay), ours);
    }
}

/// The time of a replay: its waits are those of the log, and a slow log is repeated slowly.
#[test]
fn waits_are_those_of_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let log = "fio version 3 iolog\n5 f add\n6 f open\n10 f read 0 4096\n200010 f read 4096 4096\n400010 f sync 0 0\n\
               600010 f read 8192 4096\n600011 f close\n";
    std::fs::write(folder.path().join("a.log"), log).unwrap();
    std::fs::write(folder.path().join("f"), vec![0; 16384]).unwrap();
    let ms = |json: &serde_json::Value| json["jobs"][0]["job_runtime"].as_u64().unwrap();
    for (options, expected_ms) in [("", 600), ("replay_time_scale=200", 300), ("replay_no_stall=1", 0)] {
        let job = format!("[b]\nread_iolog=a.log\nioengine=psync\n{options}\n");
        std::fs::write(folder.path().join("j.fio"), &job).unwrap();
        let mut campanile = Command::new(env!("CARGO_BIN_EXE_campanile"));
        campanile.args(["run", "j.fio", "--seeds", "1", "--delivery", "remapped", "--fio-json", "-"]);
        let output = campanile.current_dir(folder.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let ours = ms(&json(&String::from_utf8_lossy(&output.stdout)));
        assert!(ours.abs_diff(expected_ms) <= 2, "{options}: {ours} ms");
        if fio::is_there() {
            // fio sleeps by the clock, and a busy machine wakes it late now and then: one run of three must show its time.
            let runs = || (0..3).map(|_| ms(&fio::judged(folder.path(), &job)));
            assert!(
                runs().any(|fio| fio.abs_diff(ours) <= 60),
                "{options}: here {ours} ms, fio {:?} ms",
                runs().collect::<Vec<_>>()
            );
        }
    }
}

/// Nothing announces what a polled job waits for, so it looks while it waits for the next line of the log.
#[test]
fn a_polled_job_takes_completions_while_it_waits() {
    let folder = tempfile::tempdir().unwrap();
    let log = "fio version 3 iolog\n5 f add\n6 f open\n10 f read 0 4096\n20010 f read 4096 4096\n40010 f read 0 4096\n40011 f close\n";
    std::fs::write(folder.path().join("a.log"), log).unwrap();
    std::fs::write(folder.path().join("j.fio"), "[b]\nread_iolog=a.log\nioengine=io_uring\nhipri=1\niodepth=4\n")
        .unwrap();
    let mut campanile = Command::new(env!("CARGO_BIN_EXE_campanile"));
    campanile.args(["run", "j.fio", "--seeds", "1", "--delivery", "remapped", "--fio-json", "-"]);
    let output = campanile.current_dir(folder.path()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let reads = &json(&String::from_utf8_lossy(&output.stdout))["jobs"][0]["read"];
    assert_eq!(reads["total_ios"], 3);
    let longest_ns = reads["clat_ns"]["max"].as_u64().unwrap();
    assert!(longest_ns < 1_000_000, "a wait of 20 ms is no latency: {longest_ns} ns");
}
