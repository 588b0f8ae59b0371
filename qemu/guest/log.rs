//! The kernel's log.

use crate::system::{Outcome, text};
use std::fs::OpenOptions;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;

const O_NONBLOCK: i32 = 0o4_000;

/// Lines of the kernel's log that contain one of `parts`.
pub(crate) fn log_lines(parts: &[&str]) -> Outcome<Vec<String>> {
    let log = OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open("/dev/kmsg");
    let mut log = text("/dev/kmsg", log)?;
    let mut lines = Vec::new();
    let mut record = [0; 8192];
    loop {
        match log.read(&mut record) {
            Ok(length) => {
                let line = String::from_utf8_lossy(&record[..length]).into_owned();
                if parts.iter().any(|part| line.contains(part)) {
                    lines.push(line.trim_end().to_owned());
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(lines),
            // Records were overwritten before they could be read.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
            Err(error) => return Err(format!("/dev/kmsg: {error}")),
        }
    }
}
