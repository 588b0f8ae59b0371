//! The device of a machine to which this program lends one: another process of it, as it would be served to anybody.

use super::BootError;
use super::matrix::Case;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server that is not there after so long does not come.
const PATIENCE: Duration = Duration::from_secs(30);

fn socket(folder: &Path) -> PathBuf {
    folder.join("socket")
}

/// QEMU's word for the device that is served in `folder`.
pub(super) fn device(folder: &Path) -> String {
    let socket = socket(folder);
    format!(r#"{{"driver":"vfio-user-pci","socket":{{"type":"unix","path":"{}"}}}}"#, socket.display())
}

/// A server, until it is dropped.
pub(super) struct Lent(Child);

impl Lent {
    /// Serves the device of `case` in `folder`, with a slot for each of `cpus` CPUs.
    ///
    /// # Errors
    /// [`BootError::Io`] when it does not come.
    pub(super) fn serve(case: Case, cpus: u32, folder: &Path) -> Result<Self, BootError> {
        let io = |error| BootError::Io("campanile serve".into(), error);
        let mut command = Command::new(std::env::current_exe().map_err(io)?);
        command.arg("serve").arg(if case == Case::Posts { "poster" } else { "nvme" });
        command.arg("--socket").arg(socket(folder));
        command.args(["--posting-slots", &cpus.to_string()]);
        if case == Case::Nvme {
            command.args(["--memory", "1MiB", "--queues", &(cpus + 2).to_string()]);
        }
        let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().map_err(io)?;
        let mut server = Self(child);
        let deadline = Instant::now() + PATIENCE;
        while !socket(folder).exists() {
            let ended = server.0.try_wait().map_err(io)?;
            if ended.is_some() || Instant::now() > deadline {
                return Err(io(std::io::Error::other(format!("no socket; run as {command:?}"))));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // It may have ended; either way it is gone then.
        _ = self.0.kill();
        _ = self.0.wait();
    }
}
