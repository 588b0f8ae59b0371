//! A device that is lent to a machine: `campanile serve` in a process of its own, as for any other client.

use crate::BootError;
use crate::matrix::Case;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// The longest wait for a server to appear, or to report its figures at the end.
const PATIENCE: Duration = Duration::from_secs(30);

/// Queues of the virtio disk. It has one interrupt for each queue, and one for its configuration.
pub(crate) const QUEUES: u16 = 4;

fn socket(folder: &Path) -> PathBuf {
    folder.join("socket")
}

/// QEMU's `-device` argument for the device that is served in `folder`.
pub(crate) fn device(folder: &Path) -> String {
    let socket = socket(folder);
    format!(r#"{{"driver":"vfio-user-pci","socket":{{"type":"unix","path":"{}"}}}}"#, socket.display())
}

/// A server, until it is dropped.
pub(crate) struct Lent {
    child: Child,
    /// The server's output, line by line.
    said: Receiver<String>,
}

impl Lent {
    /// Starts the program `campanile`, which serves the device of `case` in `folder`, with a slot for each of `cpus`
    /// CPUs.
    ///
    /// # Errors
    /// [`BootError::Io`] when the server does not appear.
    pub(crate) fn serve(campanile: &Path, case: Case, cpus: u32, folder: &Path) -> Result<Self, BootError> {
        let io = |error| BootError::Io("campanile serve".into(), error);
        let mut command = Command::new(campanile);
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

    /// Waits, after the client has gone, for the figures that the device reports. Returns them by name.
    pub(crate) fn end(self) -> BTreeMap<String, u64> {
        let deadline = Instant::now() + PATIENCE;
        // A server that prints no more lines in time yields no figures. The judgement then reports them as missing.
        let next = || self.said.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok();
        std::iter::from_fn(next).find_map(|line| counts(&line)).unwrap_or_default()
    }
}

/// Reads a line such as `campanile: since the last reset: msis 7, kicks 3; …`.
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
        // The process may have ended already; after this it has ended in any case.
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
