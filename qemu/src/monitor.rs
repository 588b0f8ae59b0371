//! QEMU's monitor protocol (QMP) at a socket: a line of JSON each way.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A command for the monitor at a socket.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Ask {
    socket: PathBuf,
    command: Value,
}

impl Ask {
    /// Changes the size of the drive whose backend is `drive`.
    pub(crate) fn resize(folder: &Path, drive: &str, bytes: u64) -> Self {
        let command = json!({"execute": "block_resize", "arguments": {"device": drive, "size": bytes}});
        Self { socket: socket(folder), command }
    }

    /// Gives the command, and waits for its end.
    ///
    /// # Errors
    /// What the monitor, or the connection to it, says.
    pub(crate) fn send(&self) -> Result<(), String> {
        let io = |error: std::io::Error| format!("{}: {error}", self.socket.display());
        let mut stream = UnixStream::connect(&self.socket).map_err(io)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(io)?;
        let mut lines = BufReader::new(stream.try_clone().map_err(io)?).lines();
        let hello = json!({"execute": "qmp_capabilities"});
        for command in [&hello, &self.command] {
            stream.write_all(format!("{command}\n").as_bytes()).map_err(io)?;
            // Greeting and events come between the answers.
            loop {
                let line = lines.next().ok_or("the monitor has gone")?.map_err(io)?;
                let said: Value = serde_json::from_str(&line).map_err(|error| format!("{line}: {error}"))?;
                if said.get("return").is_some() {
                    break;
                }
                if let Some(error) = said.get("error") {
                    return Err(format!("{command}: {error}"));
                }
            }
        }
        Ok(())
    }
}

fn socket(folder: &Path) -> PathBuf {
    folder.join("monitor")
}

/// QEMU's argument of `-qmp` for a monitor in `folder`.
pub(crate) fn argument(folder: &Path) -> String {
    format!("unix:{},server=on,wait=off", socket(folder).display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    /// A monitor that answers the second command with `answer`.
    fn asked(answer: &'static str) -> (Result<(), String>, Vec<String>) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let listener = UnixListener::bind(socket(folder.path())).expect("a socket");
        let monitor = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            stream.write_all(b"{\"QMP\": {}}\n").expect("a client");
            let lines = BufReader::new(stream.try_clone().expect("a socket")).lines();
            let answers = ["{\"return\": {}}\n{\"event\": \"RESUME\"}\n", answer];
            let told = lines.zip(answers).map(|(line, answer)| {
                stream.write_all(answer.as_bytes()).expect("a client");
                line.expect("a line")
            });
            told.collect::<Vec<_>>()
        });
        let result = Ask::resize(folder.path(), "d", 4096).send();
        (result, monitor.join().expect("the monitor ends"))
    }

    #[test]
    fn a_command_is_given_and_a_refusal_told() {
        let (result, told) = asked("{\"return\": {}}\n");
        assert_eq!(result, Ok(()));
        let command = r#"{"arguments":{"device":"d","size":4096},"execute":"block_resize"}"#;
        assert_eq!(told, [r#"{"execute":"qmp_capabilities"}"#, command]);
        let (result, _) = asked("{\"error\": {\"desc\": \"no drive d\"}}\n");
        assert!(result.is_err_and(|why| why.contains("no drive d")));
    }

    #[test]
    fn a_monitor_that_is_not_there_is_an_error() {
        assert!(Ask::resize(Path::new("/nowhere"), "d", 1).send().is_err_and(|why| why.contains("/nowhere/monitor")));
    }
}
