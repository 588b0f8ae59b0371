//! Real fio, which the simulated jobs are held against.

use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Far more than a job takes that does not hang.
const LIMIT: Duration = Duration::from_secs(15);
/// Runs that may hang one behind the other.
const TRIES: u32 = 10;

/// I/Os and bytes: reads, writes, trims.
pub(crate) type Counts = ([u64; 3], [u64; 3]);

/// True if fio is on the path; else says that a test is skipped.
pub(crate) fn is_there() -> bool {
    let there = Command::new("fio").arg("--version").output().is_ok_and(|output| output.status.success());
    if !there {
        eprintln!("skipped: fio is not installed");
    }
    there
}

/// The JSON in what fio, or this program, printed: fio's warnings stand before it.
pub(crate) fn json(output: &str) -> Value {
    let from = if output.starts_with('{') { 0 } else { output.find("\n{").map_or(0, |at| at + 1) };
    serde_json::from_str(&output[from..]).unwrap_or_else(|error| panic!("{error}\n{output}"))
}

/// The I/Os of each job in such JSON.
pub(crate) fn counts(json: &Value) -> Vec<Counts> {
    let count = |job: &Value, of: &str| ["read", "write", "trim"].map(|direction| job[direction][of].as_u64().unwrap());
    json["jobs"].as_array().unwrap().iter().map(|job| (count(job, "total_ios"), count(job, "io_bytes"))).collect()
}

/// What real fio does in `folder`, as its JSON.
pub(crate) fn judged(folder: &Path, text: &str) -> Value {
    std::fs::write(folder.join("judged.fio"), text).unwrap();
    // fio 3.33 hangs now and then, with offloaded submission in almost half of the runs: a late thread's rest of a pause is
    // negative.
    let ran = (0..TRIES).any(|_| {
        let mut fio = Command::new("fio");
        fio.args(["--output-format=json", "--output=judged.json", "judged.fio"]);
        // No pipe that a job could keep open.
        fio.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        ends(&mut fio.spawn().unwrap())
    });
    assert!(ran, "fio hangs:\n{text}");
    json(&std::fs::read_to_string(folder.join("judged.json")).unwrap())
}

/// Waits for fio. One that hangs is killed, and so are its jobs, which are in sessions of their own.
fn ends(fio: &mut Child) -> bool {
    let began = Instant::now();
    while began.elapsed() < LIMIT {
        if fio.try_wait().unwrap().is_some() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let id = fio.id();
    let jobs = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
    fio.kill().unwrap();
    for job in jobs.split_whitespace() {
        // One that has just ended is no longer there.
        let _ = Command::new("kill").args(["-9", job]).stderr(Stdio::null()).status();
    }
    fio.wait().unwrap();
    false
}
