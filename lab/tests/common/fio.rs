//! Real fio, which the simulated jobs are held against.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

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
    // fio 3.33 hangs now and then, with offloaded submission for instance: a late thread's rest of a pause is negative. Its
    // jobs are in sessions of their own, where `timeout` does not reach them; so they get no pipe to keep open.
    let ran = (0..3).any(|_| {
        let mut fio = Command::new("timeout");
        fio.args(["--kill-after=5", "60", "fio", "--output-format=json", "--output=judged.json", "judged.fio"]);
        fio.current_dir(folder).stdout(Stdio::null()).stderr(Stdio::null());
        !matches!(fio.status().unwrap().code(), Some(124 | 137) | None)
    });
    assert!(ran, "fio hangs:\n{text}");
    json(&std::fs::read_to_string(folder.join("judged.json")).unwrap())
}
