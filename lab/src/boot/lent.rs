//! The device of a machine to which this program lends one: another process of it, as it would be served to anybody.

use super::BootError;
use super::matrix::Case;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// A server that is not there after so long does not come.
const PATIENCE: Duration = Duration::from_secs(30);

/// Queues of the virtio disk; it has an interrupt for each, and one for its configuration.
pub(super) const QUEUES: u16 = 4;

fn socket(folder: &Path) -> PathBuf {
    folder.join("socket")
}

/// QEMU's word for the device that is served in `folder`.
pub(super) fn device(folder: &Path) -> String {
    let socket = socket(folder);
    format!(r#"{{"driver":"vfio-user-pci","socket":{{"type":"unix","path":"{}"}}}}"#, socket.display())
}

/// A server, until it is dropped.
pub(super) struct Lent {
    child: Child,
    /// What it says, line by line.
    said: Receiver<String>,
}

impl Lent {
    /// Serves the device of `case` in `folder`, with a slot for each of `cpus` CPUs.
    ///
    /// # Errors
    /// [`BootError::Io`] when it does not come.
    pub(super) fn serve(case: Case, cpus: u32, folder: &Path) -> Result<Self, BootError> {
        let io = |error| BootError::Io("campanile serve".into(), error);
        let mut command = Command::new(std::env::current_exe().map_err(io)?);
        let [slots, queues, disk_queues] = [cpus, cpus + 2, QUEUES.into()].map(|count| count.to_string());
        command.arg("serve").args(match case {
            Case::Posts => vec!["poster", "--posting-slots", &slots],
            Case::VirtioIrqs => vec!["virtio", "--queues", &disk_queues],
            _ => vec!["nvme", "--posting-slots", &slots, "--memory", "1MiB", "--queues", &queues],
        });
        command.arg("--socket").arg(socket(folder));
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().map_err(io)?;
        let lines = BufReader::new(child.stderr.take().expect("piped")).lines().map_while(Result::ok);
        let (sender, said) = channel();
        std::thread::spawn(move || lines.for_each(|line| _ = sender.send(line)));
        let mut server = Self { child, said };
        let deadline = Instant::now() + PATIENCE;
        while !socket(folder).exists() {
            let ended = server.child.try_wait().map_err(io)?;
            if ended.is_some() || Instant::now() > deadline {
                return Err(io(std::io::Error::other(format!("no socket; run as {command:?}"))));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }

    /// The client has gone: what the device says that it has counted, by name.
    pub(super) fn end(self) -> BTreeMap<String, u64> {
        let deadline = Instant::now() + PATIENCE;
        // A server that says nothing more, or in time, has counted nothing; the figures are missed then.
        let next = || self.said.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok();
        std::iter::from_fn(next).find_map(|line| counts(&line)).unwrap_or_default()
    }
}

/// `campanile: since the last reset: msis 7, kicks 3; …`
fn counts(line: &str) -> Option<BTreeMap<String, u64>> {
    let counts = line.strip_prefix("campanile: since the last reset: ")?.split(';').next()?;
    let pair = |text: &str| {
        let (name, value) = text.trim().rsplit_once(' ')?;
        Some((name.to_owned(), value.parse().ok()?))
    };
    Some(counts.split(',').filter_map(pair).collect())
}

impl Drop for Lent {
    fn drop(&mut self) {
        // It may have ended; either way it is gone then.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_device_counted_is_read() {
        let line = "campanile: since the last reset: msis 7, status_reads 0; messages without an eventfd 3";
        let expected = [("msis".to_owned(), 7), ("status_reads".to_owned(), 0)];
        assert_eq!(counts(line), Some(expected.into()));
        assert_eq!(counts("campanile: the client has closed the connection"), None);
    }
}
