//! What the name of a file says besides what it holds: the words of its run, and when it was written.
//!
//! `qd1_interrupts_before.txt` and `qd1.json` are of run `qd1`; `interrupts_20251009_085320.txt` is of 8:53:20.

use super::beside::WORDS;
use std::collections::BTreeSet;

/// A name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct RunName {
    /// Its words, without those that any run's files have.
    pub words: BTreeSet<String>,
    /// The digits of its time stamp. Stamps of one length are in the order of time.
    pub stamp: Option<String>,
    /// Whether it was read before its run or after; none if no word says.
    pub is_after: Option<bool>,
}

/// Words that say what a file holds.
const COMMON: [&str; 20] = [
    "proc",
    "interrupts",
    "interrupt",
    "irq",
    "irqs",
    "stat",
    "stats",
    "cpu",
    "uptime",
    "fio",
    "output",
    "outputs",
    "out",
    "result",
    "results",
    "log",
    "json",
    "txt",
    "dat",
    "run",
];

impl RunName {
    /// Of the last part of a path.
    pub(super) fn of(path: &str) -> Self {
        let name = path.rsplit('/').next().unwrap_or(path).to_ascii_lowercase();
        let name = without_letters_of_iso(&name);
        let mut words = name.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).peekable();
        let mut found = Self::default();
        while let Some(word) = words.next() {
            if found.stamp.is_none() && begins_stamp(word, words.peek().copied()) {
                let mut stamp = word.to_owned();
                while let Some(more) = words.next_if(|more| stamp.len() < STAMP_DIGITS && is_digits(more, 2..=6)) {
                    stamp += more;
                }
                found.stamp = Some(stamp);
            } else if let Some(is_after) = is_after(word) {
                found.is_after = Some(is_after);
            } else if !COMMON.contains(&word) {
                found.words.insert(word.to_owned());
            }
        }
        found
    }

    /// Whether this was written no later than `other`, if both say when, and alike.
    pub(super) fn is_until(&self, other: &Self) -> bool {
        let stamps = self.stamp.as_ref().zip(other.stamp.as_ref());
        stamps.is_some_and(|(own, other)| own.len() == other.len() && own <= other)
    }
}

/// Digits of a date and a time of day, to the second.
const STAMP_DIGITS: usize = 14;

fn is_digits(word: &str, lengths: std::ops::RangeInclusive<usize>) -> bool {
    lengths.contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_digit())
}

/// A year with a month behind it, a date, a date with a time of day, the seconds of Unix, or a time of day.
fn begins_stamp(word: &str, next: Option<&str>) -> bool {
    let is_of_century = word.starts_with("20");
    match word.len() {
        _ if !is_digits(word, 4..=14) => false,
        4 => is_of_century && next.is_some_and(|next| is_digits(next, 2..=2)),
        8 | 12 | 14 => is_of_century,
        6 | 10 => true,
        _ => false,
    }
}

/// `2025-10-09T08:53:20Z` with a dash for the T, and without the Z.
fn without_letters_of_iso(name: &str) -> String {
    let chars: Vec<char> = name.chars().collect();
    let is_digit = |at: Option<usize>| at.and_then(|at| chars.get(at)).is_some_and(char::is_ascii_digit);
    let one = |(at, &c): (usize, &char)| {
        let (before, behind) = (is_digit(at.checked_sub(1)), is_digit(Some(at + 1)));
        match c {
            't' if before && behind => '-',
            'z' if before && !chars.get(at + 1).is_some_and(|next| next.is_alphanumeric()) => '-',
            other => other,
        }
    };
    chars.iter().enumerate().map(one).collect()
}

fn is_after(word: &str) -> Option<bool> {
    let has = |side: usize| WORDS.iter().any(|pair| pair[side] == word);
    if has(0) { Some(false) } else { has(1).then_some(true) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_its_run_and_when() {
        for (path, words, stamp, is_after) in [
            ("x/qd1_interrupts_before.txt", &["qd1"][..], None, Some(false)),
            ("qd1.json", &["qd1"], None, None),
            ("interrupts_after_20251009_085331.txt", &[], Some("20251009085331"), Some(true)),
            ("fio-2025-10-09T08:53:20Z.json", &[], Some("20251009085320"), None),
            ("fio.20251009T085320.json", &[], Some("20251009085320"), None),
            ("randread_4096_1760000000.log", &["4096", "randread"], Some("1760000000"), None),
            ("irq-085320-post", &[], Some("085320"), Some(true)),
            ("bs4k_qd32", &["bs4k", "qd32"], None, None),
        ] {
            let found = RunName::of(path);
            let stamp = stamp.map(str::to_owned);
            let words = words.iter().map(|word| (*word).to_owned()).collect();
            assert_eq!(found, RunName { words, stamp, is_after }, "{path}");
        }
        let at = |path| RunName::of(path);
        assert!(at("a_20251009_085320").is_until(&at("b_20251009_085320")));
        assert!(!at("a_20251009_085321").is_until(&at("b_20251009_085320")));
        assert!(!at("a_20251009").is_until(&at("b_20251009_085320")) && !at("a").is_until(&at("b")));
    }
}
