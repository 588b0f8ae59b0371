//! `campanile lint` tells everything at once, with line and column, and judges as `campanile run` does.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

fn campanile(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_campanile"))
        .current_dir(folder)
        .env_remove("DEPTH")
        .args(arguments)
        .output()
        .expect("it starts")
}

/// Lints `text` as `j.fio`: the exit code and what it printed.
fn lint(text: &str, arguments: &[&str]) -> (i32, String) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("j.fio"), text).unwrap();
    let output = campanile(folder.path(), &[&["lint", "j.fio"], arguments].concat());
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
}

const GOOD: &str = "[global]\nioengine=libaio\ndirect=1\n[a]\nfilename=/dev/nvme0n1\nnice=5\niodepth=8x\n";

#[test]
fn every_option_is_shown_with_how_it_is_taken() {
    let (code, text) = lint(GOOD, &[]);
    assert_eq!(code, 0, "{text}");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "j.fio:2:1: ioengine=libaio: modelled: the calls that submit and reap");
    assert!(
        lines.contains(&"j.fio:6:1: nice=5: not modelled: all threads and requests have the same priority"),
        "{text}"
    );
    assert!(lines.contains(&"j.fio:7:1: warning: iodepth: fio reads `8x` as 8"), "{text}");
    assert_eq!(*lines.last().unwrap(), "j.fio: it runs; 2 warnings, 0 refused");
}

#[test]
fn all_errors_are_told_at_once() {
    let text = "bs=4k\n[a]\n  iodepht=64\nrw=shuffle\nsize=${NOPE}\ndirect\n[b]\nsprandom=1\nnice=3\n";
    let (code, text) = lint(text, &[]);
    assert_eq!(code, 1);
    for refused in [
        "j.fio:1:1: refused: an option before the first [section]",
        "j.fio:3:3: refused: iodepht: the name is unknown; valid: iodepth",
        "j.fio:4:1: refused: rw: `shuffle` is no value; valid: read, write, ",
        "j.fio:5:1: refused: size: `${NOPE}` is a variable that is not set; valid: --define NOPE=VALUE, ",
        "j.fio:6:1: refused: direct: `direct` has no value; valid: 0 or 1",
        "j.fio:8:1: refused: sprandom: `1` is for an option of a newer fio than 3.33; ",
        "j.fio:9:1: warning: nice: not modelled: ",
    ] {
        assert!(text.contains(refused), "{refused}\nin\n{text}");
    }
    assert!(text.ends_with("j.fio: it does not run; 1 warning, 6 refused\n"), "{text}");
}

#[test]
fn a_file_of_very_many_wrong_options_is_judged_soon() {
    let began = std::time::Instant::now();
    let unknown: String = (0..30_000).map(|number| format!("key_{number} = 1\n")).collect();
    let unset: String = (0..30_000).map(|number| format!("size=${{NOPE_{number}}}\n")).collect();
    let (code, text) = lint(&format!("[fabric]\n{unknown}{unset}"), &[]);
    assert_eq!(code, 1);
    assert!(text.contains("j.fio:2:1: refused: key_0: the name is unknown; valid: "), "the first have near names");
    let last = "j.fio:30001:1: refused: key_29999: `1` is for a name that is unknown; valid: an option of fio 3.33";
    assert!(text.contains(last) && text.ends_with("0 warnings, 60000 refused\n"));
    // A look through all that are not set for each option alone takes minutes.
    assert!(began.elapsed().as_secs() < 60, "{:?}", began.elapsed());
}

#[test]
fn each_job_that_cannot_be_read_is_told() {
    let text = "[global]\ndirect=1\nfilename=/dev/nvme0n1\n[a]\nioengine=rados\n[b]\nioengine=net\n";
    let (code, text) = lint(text, &[]);
    assert_eq!(code, 1);
    assert!(text.contains("j.fio:5:1: refused: ioengine: `rados`"), "{text}");
    assert!(text.contains("j.fio:7:1: refused: ioengine: `net`"), "{text}");
}

/// Nothing hides an engine that is not modelled, and the list of options does not call it modelled. `[global]` may name one that no
/// job has.
#[test]
fn an_engine_that_is_not_modelled_is_told_beside_other_errors() {
    let text = "[global]\nioengine=rbd\ndirect=1\nfilename=${NOPE}\n[a]\n[b]\nioengine=libaio\n";
    let (_, text) = lint(text, &[]);
    assert!(text.contains("j.fio:2:1: refused: ioengine: `rbd` is an engine that is not modelled"), "{text}");
    assert!(text.contains("j.fio:2:1: ioengine=rbd: not modelled: a job with it is refused"), "{text}");
    assert!(text.contains("j.fio:4:1: refused: filename: `${NOPE}`"), "{text}");
    let (_, text) = lint("[global]\nioengine=rbd\nfilename=${NOPE}\n[b]\nioengine=libaio\n", &[]);
    assert!(!text.contains("refused: ioengine"), "{text}");
}

/// A job of Windows that names no engine has that system's.
#[test]
fn names_of_windows_tell_the_default_engine() {
    for name in [r".\test.dat", r"C\:\test.dat", r"D\:test.dat", r"\\.\PhysicalDrive1"] {
        let (_, text) = lint(&format!("[a]\ndirect=1\niodepth=32\nrw=randread\nsize=1g\nfilename={name}\n"), &[]);
        assert!(text.contains("warning: ioengine: Windows' engine"), "{name}: {text}");
        assert!(!text.contains("has no effect: the engine waits"), "{name}: {text}");
    }
    for name in [r"/dev/disk/by-path/pci-0000\:01\:00.0-nvme-1", r"/mnt/my\ file", "/dev/nvme0n1", "test.dat"] {
        let (_, text) = lint(&format!("[a]\ndirect=1\nrw=randread\nsize=1g\nfilename={name}\n"), &[]);
        assert!(text.contains("warning: ioengine: not given: psync"), "{name}: {text}");
    }
}

#[test]
fn json_has_the_same() {
    let (_, text) = lint(GOOD, &["--json"]);
    let all: Value = serde_json::from_str(&text).unwrap();
    let one = &all[0];
    assert_eq!((&one["file"], &one["runs"]), (&"j.fio".into(), &true.into()));
    let nice = one["options"].as_array().unwrap().iter().find(|option| option["option"] == "nice").unwrap();
    assert_eq!((&nice["line"], &nice["column"], &nice["section"]), (&6.into(), &1.into(), &"a".into()));
    assert_eq!((&nice["value"], &nice["taken"]), (&"5".into(), &"not modelled".into()));
    assert_eq!(one["findings"][0]["level"], "warning");
}

#[test]
fn run_and_lint_agree() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("good.fio", &GOOD.replace("8x", "${DEPTH}"));
    write("bad.fio", &GOOD.replace("libaio", "rados"));
    let code = |arguments: &[&str]| campanile(folder.path(), arguments).status.code().unwrap();
    let run = ["--seeds", "1", "--set", "ramp=10us", "--set", "duration=50us"];
    assert_eq!(code(&["lint", "good.fio", "--define", "DEPTH=4"]), 0);
    assert_eq!(code(&[&["run", "good.fio", "--define", "DEPTH=4"][..], &run].concat()), 0);
    assert_eq!((code(&["lint", "good.fio"]), code(&["run", "good.fio"])), (1, 2));
    assert_eq!((code(&["lint", "bad.fio"]), code(&["run", "bad.fio"])), (1, 2));
    assert_eq!(code(&["lint", "absent.fio"]), 1);
}

#[test]
fn a_variable_of_the_environment_is_recorded_in_the_result() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("j.fio"), GOOD.replace("8x", "${DEPTH}")).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_campanile"))
        .current_dir(folder.path())
        .env("DEPTH", "4")
        .args(["run", "j.fio", "--seeds", "1", "--set", "ramp=10us", "--set", "duration=50us", "--json", "o.json"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json = std::fs::read_to_string(folder.path().join("o.json")).unwrap();
    assert!(json.contains("${DEPTH}: is `4`, from the environment"), "{json}");
}

/// Defect: the input was read twice, and a pipe has it once.
#[test]
fn a_job_file_from_a_pipe_is_judged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in");
    std::fs::write(&path, GOOD).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_campanile"))
        .args(["lint", "-"])
        .stdin(std::fs::File::open(path).unwrap())
        .output()
        .expect("it starts");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.ends_with("-: it runs; 2 warnings, 0 refused\n"), "{text}");
}

/// Defect: such a job vanished without a word, and a file of such jobs ended with "the machine stands still" alone.
#[test]
fn jobs_behind_the_end_of_their_drive_are_told() {
    let (code, text) = lint("[a]\nfilename=/dev/nvme0n1\noffset=1t\n[b]\noffset=1g\nfilename=/dev/nvme0n1\n", &[]);
    assert_eq!(code, 0, "{text}");
    let told = "j.fio:1:1: warning: offset: [a] begins at byte 1099511627776, behind the end of /dev/nvme0n1 (the simulated drive has \
                1024 GiB): it does no I/O, as in fio";
    assert!(text.contains(told) && !text.contains("[b] begins"), "{text}");
}

/// Defects: options in capitals had no near names; a negative number was told to be left out, and findings of one line twice; a
/// size that fio reads otherwise was said to be too small without a reason; a text of UTF-16 had an error a line.
#[test]
fn what_a_stranger_writes_is_told_once_and_with_a_reason() {
    let job = |line: &str| format!("[a]\nfilename=/dev/nvme0n1\nioengine=libaio\ndirect=1\n{line}\n");
    let findings = |text: &str| {
        let (_, text) = lint(text, &[]);
        let is_finding = |line: &&str| line.contains(": warning: ") || line.contains(": refused: ");
        text.lines().filter(is_finding).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(
        findings(&job("nice=-20")),
        ["j.fio:5:1: warning: nice: not modelled: all threads and requests have the same priority"]
    );
    assert_eq!(findings(&job("IODEPTH=3")), ["j.fio:5:1: refused: IODEPTH: the name is unknown; valid: iodepth"]);
    let size = findings(&job("size=1.5G")).pop().unwrap();
    let why = "is less than the smallest I/O of 4096 bytes (fio reads `1.5G` as 1: it takes whole numbers alone); valid: 4096";
    assert!(size.contains(why), "{size}");
    let block = findings(&job("bs=0.5k")).pop().unwrap();
    assert!(
        block.contains("is out of bounds (fio reads `0.5k` as 0: it takes whole numbers alone); valid: "),
        "{block}"
    );
    let cpus = findings(&job("cpus_allowed=0-127")).pop().unwrap();
    assert!(cpus.ends_with("valid: CPUs 0-63, or those of a larger platform: --set fabric.cpus=128"), "{cpus}");
    let folder = tempfile::tempdir().unwrap();
    let wide: Vec<u8> = [0xff, 0xfe].into_iter().chain(job("").bytes().flat_map(|byte| [byte, 0])).collect();
    std::fs::write(folder.path().join("j.fio"), wide).unwrap();
    let output = campanile(folder.path(), &["lint", "j.fio"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("j.fio: refused: is UTF-16, of which fio reads nothing; save it as UTF-8\n"), "{text}");
}

#[test]
fn options_of_a_verification_are_told_as_it_is_done() {
    let text = "[a]\nfilename=/dev/nvme0n1\nrw=write\nsize=1m\nverify=crc32c\nverify_fatal=1\nverify_pattern=0xff\n";
    let (code, text) = lint(text, &[]);
    assert!(code == 0 && !text.contains("is not done"), "{text}");
    assert!(text.contains("verify_fatal=1: without effect: no block of the modelled drive is wrong"), "{text}");
}

/// Defect: a window of seconds never ended in a span of milliseconds, so the depth stayed at 1.
#[test]
fn the_window_of_a_latency_target_is_shortened_as_the_runtime_is() {
    let job = "[a]\nfilename=/dev/nvme0n1\nioengine=libaio\ndirect=1\nrw=randread\niodepth=32\nruntime=60\ntime_based\n\
               latency_target=10ms\nlatency_window=5s\n";
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("j.fio"), job).unwrap();
    let output = campanile(folder.path(), &["run", "j.fio", "--seeds", "1", "--delivery", "remapped", "--json", "-"]);
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let warnings = result["warnings"].to_string();
    assert!(warnings.contains("latency_window: shortened as the runtime is"), "{warnings}");
    // 10 ms are far more than 32 I/Os at once take.
    assert_eq!(result["outcomes"][0]["ends"][0]["reason"], "latency_target", "{}", result["outcomes"][0]["ends"]);
}

/// Defect: a scenario from a shell's `<(…)`, or with an ending of somebody's own, was taken for a job file.
#[test]
fn a_scenario_is_known_by_what_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = "platform = \"emr\"\nduration = \"1 ms\"\nworkload = \"j.fio\"\ndeliveries = [\"remapped\"]\n";
    for (name, text) in [("j.fio", GOOD), ("s.conf", scenario), ("s", scenario), ("S.TOML", scenario)] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    for name in ["s.conf", "./s", "S.TOML"] {
        let output = campanile(folder.path(), &["run", name, "--seeds", "1"]);
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success() && text.contains("seed of 1 ms each"), "{name}: {text}");
    }
}

/// What a run of this job prints, both streams.
fn told(job: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("j.fio"), format!("[global]\nioengine=libaio\nfilename=/dev/nvme0n1\n{job}"))
        .unwrap();
    let output = campanile(folder.path(), &["run", "j.fio", "--seeds", "1", "--delivery", "remapped"]);
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

/// Defects: a run that was not shortened was said to be; latencies beyond a second were cut to it; jobs without an I/O were in no
/// table; trims counted as payload; of a job that writes alone two rows had one name; limits that are judged over seconds
/// did nothing in a span of milliseconds, without a word.
#[test]
fn a_run_tells_what_came_of_its_jobs() {
    let paced = told("direct=1\n[a]\nrw=randread\nrate_iops=100\nruntime=5\ntime_based\n");
    assert!(paced.contains("1 seed of 5 s") && !paced.contains("Shortened"), "{paced}");
    let slow = told("direct=1\n[a]\nrw=randwrite\nbs=1m\niodepth=256\nnumjobs=8\nruntime=5\ntime_based\n");
    let mean = slow.lines().find_map(|line| line.trim().strip_prefix("mean ")).unwrap().trim();
    assert!(mean.ends_with(" s") && mean != "1.000 s", "{slow}");
    for row in ["bandwidth of writes", "latency of writes", "p99 of writes"] {
        assert_eq!(slow.lines().filter(|line| line.trim().starts_with(row)).count(), 1, "{row}: {slow}");
    }
    let late = told("direct=1\nrw=randread\nruntime=8\ntime_based\n[a]\nmax_latency=1us\n[b]\n");
    assert!(late.contains("a ended by max_latency.\n"), "{late}");
    let trims = told("direct=1\n[a]\nrw=trim\nbs=1m\niodepth=32\nruntime=5\ntime_based\n");
    assert!(
        trims.contains("bandwidth of trims") && !trims.lines().any(|line| line.starts_with("  bandwidth  ")),
        "{trims}"
    );
    let judged = told(
        "direct=1\n[a]\nrw=randread\nruntime=8\ntime_based\nsteadystate=iops:10%\nss_dur=4\nrate_iops_min=9m\nnumjobs=3\n",
    );
    for key in ["steadystate", "rate_iops_min"] {
        let told = format!(" {key}: not judged: the simulated span is too short");
        assert_eq!(judged.matches(&told).count(), 1, "{judged}");
    }
    // No whole blocks: the job goes through the page cache.
    let parts = told("[a]\nrw=write\nbs=2300\nsize=22m\n");
    assert_eq!(parts.lines().filter(|line| line.contains(": direct: ")).count(), 1, "{parts}");
}
