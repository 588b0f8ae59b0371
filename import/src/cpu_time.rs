//! `/proc/stat` and `/proc/uptime`: how the CPUs spent the time between two moments.
//!
//! Source: Linux, `Documentation/filesystems/proc.rst`, "Miscellaneous kernel statistics in /proc/stat". Times are in
//! ticks, usually of 10 ms; only their shares are used. Where the kernel does not account interrupts apart
//! (`CONFIG_IRQ_TIME_ACCOUNTING`), it counts them by sampling at the tick.

use crate::encoding::{bare, plain};
use std::collections::BTreeSet;

/// Ticks of all CPUs together since the start of the system.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CpuTicks {
    /// user and nice.
    pub user: u64,
    /// system.
    pub system: u64,
    /// irq and softirq.
    pub irq: u64,
    /// idle and iowait.
    pub idle: u64,
    /// steal: time that the host of a virtual machine gave to others. It passed for the guest too.
    pub steal: u64,
}

impl CpuTicks {
    /// The line `cpu` of a text; none where there is none with at least four numbers.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text = plain(&text[..text.len().min(1 << 22)]);
        Self::of_lines(&text).or_else(|| Self::of_lines(&bare(&text)?))
    }

    fn of_lines(text: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(text);
        let numbers = text.lines().find_map(numbers)?;
        let number = |at: usize| numbers.get(at).copied();
        let (user, nice, system, idle) = (number(0)?, number(1)?, number(2)?, number(3)?);
        // Behind them are `guest` and `guest_nice`, which `user` and `nice` have in them.
        let [iowait, irq, softirq, steal] = [4, 5, 6, 7].map(|at| number(at).unwrap_or(0));
        Some(Self {
            user: user.saturating_add(nice),
            system,
            irq: irq.saturating_add(softirq),
            idle: idle.saturating_add(iowait),
            steal,
        })
    }

    /// How many readings a text holds: somebody may have added the second behind the first.
    pub fn count(text: &[u8]) -> usize {
        let text = plain(&text[..text.len().min(1 << 22)]);
        String::from_utf8_lossy(&text).lines().filter_map(numbers).count()
    }

    /// How many CPUs a reading names: those online. None where it has the sum alone.
    pub fn cpus(text: &[u8]) -> Option<u32> {
        let text = plain(&text[..text.len().min(1 << 22)]);
        let text = String::from_utf8_lossy(&text);
        let word_of = |line: &str| line.split(|sign: char| !sign.is_ascii_alphanumeric()).find_map(cpu_number);
        let found: BTreeSet<u32> = text.lines().filter_map(word_of).collect();
        (!found.is_empty()).then_some(found.len() as u32)
    }

    /// The shares of the time from `self` to `later`: user, system, interrupts, idle, in per cent. What is missing to 100 was
    /// stolen. None if no time passed or a counter fell. (Linux lets iowait fall; it is summed with idle, which outweighs it.)
    pub fn shares_until(&self, later: &Self) -> Option<[f64; 4]> {
        self.all_shares_until(later).map(|[user, system, irq, idle, _]| [user, system, irq, idle])
    }

    /// The share of that time which the host of a virtual machine gave to others, in per cent.
    pub fn stolen_until(&self, later: &Self) -> Option<f64> {
        self.all_shares_until(later).map(|[.., steal]| steal)
    }

    fn all_shares_until(&self, later: &Self) -> Option<[f64; 5]> {
        let parts = [
            later.user.checked_sub(self.user)?,
            later.system.checked_sub(self.system)?,
            later.irq.checked_sub(self.irq)?,
            later.idle.checked_sub(self.idle)?,
            // Hypervisors correct it downwards.
            later.steal.saturating_sub(self.steal),
        ];
        let all: f64 = parts.iter().map(|&part| part as f64).sum();
        (all > 0.0).then(|| parts.map(|part| part as f64 / all * 100.0))
    }
}

/// `cpu12`.
fn cpu_number(word: &str) -> Option<u32> {
    word.strip_prefix("cpu")?.parse().ok()
}

/// What follows `cpu` in a line, whatever stands before it: a file's name, a time. None where it is no four numbers.
fn numbers(line: &str) -> Option<Vec<u64>> {
    let mut words = line.split(|sign: char| sign.is_whitespace() || matches!(sign, ':' | '>' | '\0'));
    words.find(|word| *word == "cpu")?;
    let numbers: Vec<u64> = words.filter(|word| !word.is_empty()).map_while(|word| word.parse().ok()).collect();
    (numbers.len() >= 4).then_some(numbers)
}

/// The first number of `/proc/uptime`, in seconds.
pub fn uptime_s(text: &[u8]) -> Option<f64> {
    let text = plain(&text[..text.len().min(4096)]);
    let text = String::from_utf8_lossy(&text);
    text.split_whitespace().next()?.parse().ok().filter(|seconds: &f64| seconds.is_finite() && *seconds >= 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = (CpuTicks::parse(&text), uptime_s(&text));
        }

        #[test]
        fn shares_add_up(before in any::<[u32; 7]>(), more in any::<[u32; 7]>()) {
            let text = |numbers: [u64; 7]| format!("cpu  {}\n", numbers.map(|number| number.to_string()).join(" "));
            let later: [u64; 7] = std::array::from_fn(|at| u64::from(before[at]) + u64::from(more[at]));
            let before = CpuTicks::parse(text(before.map(u64::from)).as_bytes()).unwrap();
            match before.shares_until(&CpuTicks::parse(text(later).as_bytes()).unwrap()) {
                Some(shares) => prop_assert!((shares.iter().sum::<f64>() - 100.0).abs() < 1e-6),
                None => prop_assert!(more.iter().all(|&part| part == 0)),
            }
        }
    }

    #[test]
    fn shares_are_of_the_time_between() {
        let before = CpuTicks::parse(b"cpu  10 5 20 100 3 2 1 0 0 0\ncpu0 1 2 3 4\n").unwrap();
        assert_eq!(before, CpuTicks { user: 15, system: 20, irq: 3, idle: 103, steal: 0 });
        let later = CpuTicks::parse(b"cpu  30 5 50 130 3 12 11 0 0 0\n").unwrap();
        assert_eq!(before.shares_until(&later), Some([20.0, 30.0, 20.0, 30.0]));
        assert_eq!(before.shares_until(&before), None);
        assert_eq!(later.shares_until(&before), None);
    }

    #[test]
    fn time_that_the_host_stole_passed_too() {
        let before = CpuTicks::parse(b"cpu  10 0 20 100 0 0 0 50 9 0\n").unwrap();
        let later = CpuTicks::parse(b"cpu  30 0 50 130 0 0 20 150 29 0\n").unwrap();
        assert_eq!(before.shares_until(&later), Some([10.0, 15.0, 10.0, 15.0]), "guest is in user already");
        assert_eq!(before.stolen_until(&later), Some(50.0));
    }

    #[test]
    fn cpus_that_are_online_are_counted() {
        let text = b"cpu  10 5 20 100\ncpu0 1 2 3 4\ncpu2 1 2 3 4\nintr 5\nctxt 7\n";
        assert_eq!(CpuTicks::cpus(text), Some(2));
        assert_eq!(CpuTicks::cpus(&[&text[..], text].concat()), Some(2), "two readings");
        assert_eq!((CpuTicks::cpus(b"cpu  10 5 20 100\n"), CpuTicks::cpus(b"")), (None, None));
    }

    #[test]
    fn old_and_broken_texts() {
        assert_eq!(CpuTicks::parse(b"cpu 1 2 3 4\n").unwrap().irq, 0, "Linux 2.4");
        let windows: Vec<u8> =
            "\u{feff}cpu  1 2 3 4 5\r\ncpu0 1 2\r\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert_eq!(CpuTicks::parse(&windows).unwrap().idle, 9);
        // `grep -H`, a log's time, a host.
        for before in ["/proc/stat:", "2026-11-28T10:00:00 ", "node1: ", "> "] {
            let found = CpuTicks::parse(format!("{before}cpu  1 2 3 4 5 6 7\n").as_bytes());
            assert_eq!(found, Some(CpuTicks { user: 3, system: 3, irq: 13, idle: 9, steal: 0 }), "{before}");
        }
        for text in [&b""[..], b"cpu 1 2 3", b"my-cpu 1 2 3 4", b"cpu0 1 2 3 4", b"cpu a b c d", b"\xff\xfe"] {
            assert_eq!(CpuTicks::parse(text), None);
        }
        assert_eq!(uptime_s(b"123.45 900.1\n"), Some(123.45));
        assert_eq!((uptime_s(b""), uptime_s(b"-1 2"), uptime_s(b"nan")), (None, None, None));
    }
}
