//! What a file seems to be: people mix up which file an option takes.

use crate::cpu_time::CpuTicks;
use crate::encoding::plain;
use crate::fio_json::FioOutput;
use crate::interrupts::Interrupts;
use crate::lscpu;
use crate::nested;
use std::fmt;

/// A kind of file that tells of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// What fio printed, in any form.
    Fio,
    /// A job file of fio's.
    Job,
    /// `/proc/interrupts`.
    Interrupts,
    /// `/proc/softirqs`, which looks like it.
    Softirqs,
    /// `/proc/stat`.
    Stat,
    /// What lscpu prints, or what stands in for it.
    Lscpu,
    /// An archive.
    Archive,
}

impl Kind {
    /// In the order in which a file is asked: `nproc` prints a number alone, which is little to go by.
    const ALL: [Self; 7] =
        [Self::Archive, Self::Fio, Self::Softirqs, Self::Interrupts, Self::Stat, Self::Job, Self::Lscpu];

    /// What a file seems to be; none if it is nothing that tells of a server.
    pub fn of(text: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.is(text))
    }

    /// Whether a file can be read as this.
    pub fn is(self, text: &[u8]) -> bool {
        match self {
            Self::Fio => FioOutput::parse(text).is_ok(),
            Self::Job => is_job_file(text),
            Self::Interrupts => {
                let found = Interrupts::parse(text);
                !found.lines.is_empty() && !is_softirqs(&found)
            }
            Self::Softirqs => is_softirqs(&Interrupts::parse(text)),
            Self::Stat => CpuTicks::parse(text).is_some(),
            Self::Lscpu => lscpu::cpus(text).is_some() || lscpu::sockets(text).is_some(),
            Self::Archive => nested::is_archive(text),
        }
    }

    /// The option of `campanile import` that takes it.
    pub fn option(self) -> Option<&'static str> {
        match self {
            Self::Fio => Some("--fio-json"),
            Self::Job => Some("--job"),
            Self::Interrupts => Some("--interrupts"),
            Self::Stat => Some("--stat"),
            Self::Lscpu => Some("--lscpu"),
            Self::Softirqs | Self::Archive => None,
        }
    }

    /// That option with what stands behind it.
    pub fn usage(self) -> Option<String> {
        let files = if matches!(self, Self::Interrupts | Self::Stat) { "BEFORE AFTER" } else { "FILE" };
        self.option().map(|option| format!("{option} {files}"))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fio => "what fio printed",
            Self::Job => "a job file of fio's",
            Self::Interrupts => "/proc/interrupts",
            Self::Softirqs => "/proc/softirqs",
            Self::Stat => "/proc/stat",
            Self::Lscpu => "what lscpu prints",
            Self::Archive => "an archive",
        })
    }
}

fn is_softirqs(found: &Interrupts) -> bool {
    ["NET_RX", "BLOCK", "RCU"].iter().any(|id| found.line(id).is_some())
}

/// Whether a text has a section's head; no other of these files has one.
fn is_job_file(text: &[u8]) -> bool {
    let text = plain(&text[..text.len().min(1 << 20)]);
    let is_head = |line: &str| {
        let name = line.trim().strip_prefix('[').and_then(|line| line.split_once(']'));
        name.is_some_and(|(name, rest)| {
            !name.trim().is_empty() && (rest.trim().is_empty() || rest.trim_start().starts_with([';', '#']))
        })
    };
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with([';', '#'])).collect();
    // Programs have lists in brackets, but no option behind one.
    let is_option = |line: &str| {
        let name = line.split(['=', ';', '#']).next().unwrap_or("").trim();
        name.starts_with(|first: char| first.is_ascii_lowercase()) && !name.contains([' ', '('])
    };
    let goes_on = |behind: usize| lines.get(behind).is_none_or(|line| is_head(line) || is_option(line));
    lines.iter().enumerate().any(|(at, line)| is_head(line) && goes_on(at + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_is_known() {
        for (text, expected) in [
            ("{\"jobs\": [{\"jobname\": \"a\"}]}", Some(Kind::Fio)),
            ("[{\"jobname\": \"a\", \"read\": {\"iops\": 7}}]", Some(Kind::Fio)),
            ("; mine\n[global]\nrw=read\n[a] # first\n", Some(Kind::Job)),
            ("[a]\n; first\n\nrw = randread\n", Some(Kind::Job)),
            ("[a]\n[b]\n", Some(Kind::Job)),
            ("found = sorted(\n    [d for d in drives if d]\n)\nrun(\n    [host, mnt]\n)\n", None),
            ("      CPU0\n 34: 7 PCI-MSI 1-edge nvme0q1\n", Some(Kind::Interrupts)),
            ("      CPU0\n HI: 0\n NET_RX: 7\n BLOCK: 9\n", Some(Kind::Softirqs)),
            ("cpu  1 2 3 4\ncpu0 1 2 3 4\nintr 9\n", Some(Kind::Stat)),
            ("Architecture: x86_64\nCPU(s): 8\n", Some(Kind::Lscpu)),
            ("8\n", Some(Kind::Lscpu)),
            ("\x1f\u{8b}", None),
            ("hello\n", None),
            ("", None),
        ] {
            let found = Kind::of(text.as_bytes());
            assert_eq!(found, expected, "{text}");
            assert!(found.is_none_or(|kind| kind.is(text.as_bytes())));
        }
        assert_eq!(Kind::Interrupts.usage().as_deref(), Some("--interrupts BEFORE AFTER"));
        assert_eq!((Kind::Job.usage().as_deref(), Kind::Archive.usage()), (Some("--job FILE"), None));
        assert_eq!(Kind::of(&[0x1f, 0x8b, 8, 0]), Some(Kind::Archive));
        assert_eq!(Kind::of(b"\xfd7zXZ\0\0\x04"), Some(Kind::Archive));
        assert_eq!(Kind::of(b"PK\x03\x04\x14\0"), Some(Kind::Archive));
    }
}
