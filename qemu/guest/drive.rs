//! The first NVMe drive of a Linux guest.

use crate::system::{Outcome, open_disk, text};
use std::fs::{self, File};

/// Interrupts of the drive's I/O queues so far, and the number of those interrupt lines.
pub(crate) fn queue_interrupts() -> Outcome<(u64, usize)> {
    let table = text("/proc/interrupts", fs::read_to_string("/proc/interrupts"))?;
    let queue =
        |line: &&str| line.rsplit(' ').next().is_some_and(|name| name.starts_with("nvme0q") && name != "nvme0q0");
    let counts =
        |line: &str| -> u64 { line.split_whitespace().skip(1).map_while(|word| word.parse::<u64>().ok()).sum() };
    let lines: Vec<_> = table.lines().filter(queue).collect();
    Ok((lines.iter().map(|line| counts(line)).sum(), lines.len()))
}

/// Waits for the drive and opens it.
pub(crate) fn disk() -> Outcome<File> {
    open_disk("/dev/nvme0n1")
}
