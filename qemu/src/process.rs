//! A QEMU process: its output and its end.

use crate::BootError;
use crate::monitor::Ask;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// A run that takes longer than this hangs. The longest, a million reads on two host cores, takes two minutes.
const DEADLINE: Duration = Duration::from_secs(600);
/// A Linux guest boots in 3 s on an idle host, and in less than 30 s on a busy one.
const BOOT_DEADLINE: Duration = Duration::from_secs(120);
/// What a guest of [`run_booted`] says once it has booted and each CPU's timer has fired.
const BEGINS: &str = "guest: begins";

/// The result of a process.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) lines: Vec<String>,
    /// The reason of a failure; none if the process passed.
    pub(crate) failure: Option<String>,
}

/// What is done each time the guest says that it is ready.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer<'a> {
    /// Nothing; the guest does not say it.
    None,
    /// These bytes are typed.
    Typed(&'a [u8]),
    /// QEMU's monitor is asked.
    Asked(&'a Ask),
}

impl Answer<'_> {
    fn give(self, stdin: &mut impl Write) -> Result<(), String> {
        match self {
            Self::None => {}
            // Writing fails if QEMU has ended; the verdict reports that.
            Self::Typed(bytes) => _ = stdin.write_all(bytes),
            Self::Asked(ask) => ask.send()?,
        }
        Ok(())
    }
}

/// Runs a command to its end, and gives `answer` each time the guest says that it is ready. The exit status and the
/// guest's lines decide whether the run `passed`.
///
/// # Errors
/// [`BootError::Io`].
pub(crate) fn run(
    command: Command,
    answer: Answer<'_>,
    passed: impl Fn(ExitStatus, &[String]) -> bool,
) -> Result<Ended, BootError> {
    run_within(DEADLINE, command, answer, passed)
}

/// [`run`] for a guest that says when its work begins. It must have booted within two minutes; [`Ended::has_begun`] tells.
///
/// # Errors
/// [`BootError::Io`].
pub(crate) fn run_booted(
    command: Command,
    answer: Answer<'_>,
    passed: impl Fn(ExitStatus, &[String]) -> bool,
) -> Result<Ended, BootError> {
    run_within(BOOT_DEADLINE, command, answer, passed)
}

fn run_within(
    limit: Duration,
    mut command: Command,
    answer: Answer<'_>,
    passed: impl Fn(ExitStatus, &[String]) -> bool,
) -> Result<Ended, BootError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let io = |error| BootError::Io(program.clone(), error);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(io)?;
    let lines = talk(limit, answer, &mut child);
    let status = child.wait().map_err(io)?;
    let mut said = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut said).map_err(io)?;
    let failure = (!passed(status, &lines)).then(|| {
        let reason = lines.iter().find(|line| line.contains("fail: ") || line.contains("FAILED")).cloned();
        let reason = reason.unwrap_or_else(|| format!("QEMU ended with {status}: {}", said.trim()));
        let last = lines.iter().rev().take(8).rev().map(|line| format!("\n    {line}"));
        format!("{reason}{}\n    run by {command:?}", last.collect::<String>())
    });
    Ok(Ended { lines, failure })
}

impl Ended {
    /// True if the guest has said that its work begins.
    pub(crate) fn has_begun(&self) -> bool {
        self.lines.iter().any(|line| line == BEGINS)
    }

    /// The figures among the lines.
    pub(crate) fn counts(&self) -> BTreeMap<String, u64> {
        self.lines.iter().filter_map(|line| count(line)).collect()
    }

    /// How the guest's system delivers messages, and the reason where it cannot deliver them as wished.
    pub(crate) fn policy(&self) -> Option<String> {
        self.lines.iter().find_map(|line| Some(line.split_once("policy ")?.1.to_owned()))
    }
}

/// Collects the guest's lines until it ends or its time is over, and gives the answers that it asks for. `limit` is the time
/// up to [`BEGINS`], where the guest says that.
fn talk(mut limit: Duration, answer: Answer<'_>, child: &mut Child) -> Vec<String> {
    let (sender, receiver) = mpsc::channel();
    let stdout = child.stdout.take().expect("piped");
    let reader = std::thread::spawn(move || {
        let lines = BufReader::new(stdout).split(b'\n').map_while(Result::ok);
        lines.map(|line| String::from_utf8_lossy(&line).trim_end().to_owned()).all(|line| sender.send(line).is_ok())
    });
    let mut stdin = child.stdin.take().expect("piped");
    let (mut lines, mut deadline) = (Vec::new(), Instant::now() + limit);
    loop {
        match receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                let is_ready = line.starts_with("ready");
                if line == BEGINS {
                    (limit, deadline) = (DEADLINE, Instant::now() + DEADLINE);
                }
                lines.push(line);
                if is_ready && let Err(why) = answer.give(&mut stdin) {
                    lines.push(format!("fail: {why}"));
                    let _ = child.kill();
                    break;
                }
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                lines.push(format!("fail: not over within {} s", limit.as_secs()));
                let _ = child.kill();
                break;
            }
        }
    }
    let _ = reader.join();
    lines
}

/// Reads `count NAME VALUE`. Firmware may have printed something before it on the line.
fn count(line: &str) -> Option<(String, u64)> {
    let (_, rest) = line.split_once("count ")?;
    let (name, value) = rest.split_once(' ')?;
    Some((name.to_owned(), value.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_and_other_lines_are_not() {
        assert_eq!(count("Booting from ROM..count cpus 4"), Some(("cpus".into(), 4)));
        assert_eq!(count("count cpus four"), None);
        assert_eq!(count("ready for 3 bytes"), None);
    }

    #[test]
    fn an_answer_is_typed_each_time_and_a_failure_tells_what_was_said() {
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "echo ready; read -r a; echo ready; read -r b; echo 'ROM..policy messages plain'; echo count sum $((a + b)); echo fail: odd; exit 3",
        ]);
        let ended = run(command, Answer::Typed(b"21\n"), |status, _| status.success()).expect("sh runs");
        assert_eq!(ended.counts().get("sum"), Some(&42));
        assert_eq!(ended.policy().as_deref(), Some("messages plain"));
        assert!(ended.failure.is_some_and(|failure| failure.starts_with("fail: odd")));
    }

    #[test]
    fn a_guest_has_its_time_anew_when_its_work_begins() {
        let script = |text: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", text]);
            run_within(Duration::from_millis(500), command, Answer::None, |status, _| status.success())
                .expect("sh runs")
        };
        let ended = script("echo 'guest: begins'; sleep 1");
        assert!(ended.has_begun() && ended.failure.is_none(), "{:?}", ended.failure);
        let ended = script("echo 'guest: boots'; exec sleep 60");
        assert!(!ended.has_begun(), "{:?}", ended.lines);
        assert!(ended.failure.is_some_and(|why| why.starts_with("fail: not over within")));
    }

    #[test]
    fn an_answer_that_cannot_be_given_ends_the_run() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo ready; exec sleep 60"]);
        let ask = Ask::resize(std::path::Path::new("/nowhere"), "d", 1);
        let ended = run(command, Answer::Asked(&ask), |_, _| true).expect("sh runs");
        let failure = ended.lines.last().expect("lines");
        assert!(failure.starts_with("fail: /nowhere/monitor"), "{failure}");
    }
}
