//! The rows of /proc/interrupts.

use crate::system::{Outcome, text};
use std::fs;

/// A row.
pub(crate) struct Interrupt {
    /// The first column: a number, or the abbreviation of a system vector.
    pub(crate) id: String,
    /// Over all CPUs.
    pub(crate) count: u64,
    /// The queues of NVMe drives that it serves, as the driver names them.
    pub(crate) queues: Vec<String>,
}

/// All rows.
pub(crate) fn interrupts() -> Outcome<Vec<Interrupt>> {
    let table = text("/proc/interrupts", fs::read_to_string("/proc/interrupts"))?;
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().map(|word| word.trim_end_matches(',')).collect();
        let id = words.first()?.strip_suffix(':')?.to_owned();
        let count = words[1..].iter().map_while(|word| word.parse::<u64>().ok()).sum();
        let queues = words.iter().filter(|word| word.starts_with("nvme")).map(|&word| word.to_owned()).collect();
        Some(Interrupt { id, count, queues })
    };
    Ok(table.lines().skip(1).filter_map(row).collect())
}
