//! Readings of the kernel's counters in files of somebody's own: which two stand before and after a run, and which run that is.
//!
//! Names tell: `interrupts_before.txt` and `interrupts_after.txt`, `proc_interrupts_pre` and `proc_interrupts_post`,
//! `before/interrupts` and `after/interrupts`; and time stamps, where names differ in them too. Where they do not, the
//! counts of two readings of one machine tell.

use super::run_name::RunName;
use import::cpu_time::uptime_s;
use import::interrupts::Interrupts;
use import::kind::Kind;

/// What a reading holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Counter {
    Interrupts,
    Stat,
    Uptime,
}

impl Counter {
    /// What a file holds, if it is a reading.
    pub(super) fn of(path: &str, bytes: &[u8]) -> Option<Self> {
        let name = path.rsplit('/').next().unwrap_or(path).to_ascii_lowercase();
        match Kind::of(bytes) {
            Some(Kind::Interrupts) => Some(Self::Interrupts),
            Some(Kind::Stat) => Some(Self::Stat),
            // Two numbers may be anything.
            _ => (name.contains("uptime") && uptime_s(bytes).is_some()).then_some(Self::Uptime),
        }
    }
}

/// A file.
pub(super) type File<'a> = (&'a str, &'a [u8]);

/// Two readings of one counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pair<'a> {
    pub counter: Counter,
    /// Before and after.
    pub files: [File<'a>; 2],
}

/// Words of paths, before and after.
pub(super) const WORDS: [[&str; 2]; 9] = [
    ["before", "after"],
    ["pre", "post"],
    ["start", "end"],
    ["start", "stop"],
    ["begin", "end"],
    ["initial", "final"],
    ["first", "last"],
    ["first", "second"],
    ["old", "new"],
];
/// Those that also tell servers and kernels apart, where folders have them.
const OF_FILES: [&str; 2] = ["first", "old"];
/// What may stand before the number of a reading; anything else is numbered too: hosts, runs.
const NUMBERED: [&str; 12] =
    ["", "interrupts", "interrupt", "irq", "irqs", "stat", "uptime", "t", "reading", "snapshot", "snap", "sample"];
/// Numbers of files, where there are two alone.
const NUMBERS: [[&str; 2]; 2] = [["0", "1"], ["1", "2"]];

/// The pairs among these files: paths that differ in such words alone, or in their times; and files that hold both readings.
pub(super) fn pairs<'a>(files: &[(Counter, File<'a>)]) -> Vec<Pair<'a>> {
    let mut found: Vec<Pair<'a>> = Vec::new();
    for &(counter, before) in files {
        let of_counter = || files.iter().filter(|(other, _)| *other == counter).map(|(_, file)| *file);
        let is_free = |path: &str| !has(&found, path);
        let numbers = if of_counter().count() == 2 { &NUMBERS[..] } else { &[] };
        let after = of_counter().find(|(path, _)| {
            let follows = |words: &[&str; 2]| follows(before.0, path, *words);
            let is_numbered = || {
                let [name, other] = [before.0, path].map(|path| path.rsplit_once('/').unwrap_or(("", path)));
                name.0 == other.0 && is_reading_numbered(name.1, other.1) && numbers.iter().any(follows)
            };
            is_free(path) && (WORDS.iter().any(follows) || is_numbered())
        });
        if let Some(after) = after.filter(|_| is_free(before.0)) {
            found.push(Pair { counter, files: [before, after] });
        }
    }
    let left: Vec<&(Counter, File<'a>)> = files.iter().filter(|(_, (path, _))| !has(&found, path)).collect();
    found.extend(by_counts(&left));
    for counter in [Counter::Interrupts, Counter::Stat, Counter::Uptime] {
        let left = files.iter().filter(|(other, (path, _))| *other == counter && !has(&found, path));
        let stamped = by_stamps(left.map(|(_, file)| *file).collect());
        found.extend(stamped.into_iter().map(|files| Pair { counter, files }));
    }
    let is_both = |(counter, (path, bytes)): &&(Counter, File<'_>)| {
        *counter == Counter::Interrupts && !has(&found, path) && Interrupts::parse(bytes).has_several
    };
    let both: Vec<Pair<'a>> =
        files.iter().filter(is_both).map(|&(counter, file)| Pair { counter, files: [file; 2] }).collect();
    found.extend(both);
    found
}

fn has(pairs: &[Pair<'_>], path: &str) -> bool {
    pairs.iter().flat_map(|pair| &pair.files).any(|(known, _)| *known == path)
}

/// The only two readings of interrupts in a folder whose names say nothing, if their counts tell which was first, since a
/// kernel's counts only rise; and other counters whose names differ in the same words. Numbers in names tell machines and
/// runs apart.
fn by_counts<'a>(files: &[&(Counter, File<'a>)]) -> Vec<Pair<'a>> {
    let mut interrupts = files.iter().filter(|(counter, _)| *counter == Counter::Interrupts).map(|(_, file)| *file);
    let (Some(one), Some(other), None) = (interrupts.next(), interrupts.next(), interrupts.next()) else {
        return Vec::new();
    };
    let letters = |path: &str| path.replace(|sign: char| sign.is_ascii_digit(), "");
    if folder(one.0) != folder(other.0) || letters(one.0) == letters(other.0) {
        return Vec::new();
    }
    let [of_one, of_other] = [one, other].map(|(_, bytes)| Interrupts::parse(bytes));
    let [before, after] = match (of_one.only_rises_to(&of_other), of_other.only_rises_to(&of_one)) {
        (true, _) => [one, other],
        (_, true) => [other, one],
        _ => return Vec::new(),
    };
    let words = differing(before.0, after.0).map(str::to_ascii_lowercase);
    let words = words.each_ref().map(String::as_str);
    let alike = |&&(counter, file): &&(Counter, File<'a>)| {
        let is_after = |(other, (path, _)): &&&(Counter, File<'a>)| *other == counter && follows(file.0, path, words);
        files.iter().find(is_after).map(|(_, after)| Pair { counter, files: [file, *after] })
    };
    files.iter().filter_map(alike).collect()
}

/// What is between the beginning and the end that two names share.
fn differing<'a>(one: &'a str, other: &'a str) -> [&'a str; 2] {
    let length = |(sign, _): (char, char)| sign.len_utf8();
    let is_same = |(one, other): &(char, char)| one == other;
    let same: usize = one.chars().zip(other.chars()).take_while(is_same).map(length).sum();
    let [one, other] = [one, other].map(|name| &name[same..]);
    let same: usize = one.chars().rev().zip(other.chars().rev()).take_while(is_same).map(length).sum();
    [one, other].map(|name| &name[..name.len() - same])
}

/// The pairs among readings of one counter whose names differ in their time stamps: one before a run and the next one, which
/// is after it; or the only two of a name that says neither.
fn by_stamps(files: Vec<File<'_>>) -> Vec<[File<'_>; 2]> {
    let named = files.into_iter().map(|file| (RunName::of(file.0), file));
    let mut stamped: Vec<(RunName, File<'_>)> = named.filter(|(name, _)| name.stamp.is_some()).collect();
    let run = |(name, (path, _)): &(RunName, File<'_>)| (folder(path).to_owned(), name.words.clone());
    stamped.sort_by_cached_key(|reading| (run(reading), reading.0.stamp.clone()));
    let mut found = Vec::new();
    for readings in stamped.chunk_by(|one, other| run(one) == run(other)) {
        let only_two = readings.len() == 2;
        for pair in readings.windows(2) {
            let [(before, first), (after, second)] = pair else { continue };
            let is_told = before.is_after == Some(false) && after.is_after == Some(true);
            let is_untold = only_two && before.is_after.is_none() && after.is_after.is_none();
            if before.is_until(after) && (is_told || is_untold) {
                found.push([*first, *second]);
            }
        }
    }
    found
}

fn folder(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// Whether a path with the first word in place of the second, once, is the other one.
fn follows(before: &str, after: &str, [word, other]: [&str; 2]) -> bool {
    let [before, after] = [before, after].map(str::to_ascii_lowercase);
    if OF_FILES.contains(&word) && folder(&before) != folder(&after) {
        return false;
    }
    before.match_indices(word).any(|(at, _)| format!("{}{other}{}", &before[..at], &before[at + word.len()..]) == after)
}

/// Whether what is numbered in two names is readings.
fn is_reading_numbered(name: &str, other: &str) -> bool {
    let same = name.chars().zip(other.chars()).take_while(|(one, other)| one == other);
    let same: usize = same.map(|(one, _)| one.len_utf8()).sum();
    let before = name[..same].trim_end_matches(|c: char| !c.is_alphanumeric());
    let word = &before[before.rfind(|c: char| !c.is_ascii_alphabetic()).map_or(0, |at| at + 1)..];
    NUMBERED.contains(&word.to_ascii_lowercase().as_str())
}

/// The path that the other reading of two would have, where a word of this one says which it is.
pub(super) fn other_of(path: &str) -> Option<String> {
    let is_letter = |sign: Option<char>| sign.is_some_and(char::is_alphabetic);
    // An ASCII letter in small keeps its place.
    let small = path.to_ascii_lowercase();
    let turned = WORDS.iter().flat_map(|&[word, other]| [(word, other), (other, word)]);
    let found = turned.filter_map(|(word, other)| {
        let is_whole = |at: &usize| {
            !is_letter(small[..*at].chars().next_back()) && !is_letter(small[at + word.len()..].chars().next())
        };
        let at = small.rmatch_indices(word).map(|(at, _)| at).find(is_whole)?;
        Some((at, format!("{}{other}{}", &path[..at], &path[at + word.len()..])))
    });
    // The word nearest to the end is the file's own; of those that share it, the first of the list.
    found.reduce(|best, next| if next.0 > best.0 { next } else { best }).map(|(_, other)| other)
}

impl<'a> Pair<'a> {
    /// The folder that holds both readings, or the folders of both.
    fn folder(&self) -> &'a str {
        let [(before, _), (after, _)] = self.files;
        let same = before.bytes().zip(after.bytes()).take_while(|(a, b)| a == b).count();
        before.as_bytes()[..same].iter().rposition(|byte| *byte == b'/').map_or("", |at| &before[..at])
    }

    /// Both contents.
    pub(super) fn contents(&self) -> [&'a [u8]; 2] {
        self.files.map(|(_, bytes)| bytes)
    }
}

/// The pair of a counter around the run of an output: the only one, if it is the only output; else the only one in a folder
/// with one output; else the only one of the same run's name; else the only one between whose times it was written.
pub(super) fn around<'a>(pairs: &[Pair<'a>], counter: Counter, output: &str, outputs: &[&str]) -> Option<Pair<'a>> {
    let of_counter: Vec<&Pair<'a>> = pairs.iter().filter(|pair| pair.counter == counter).collect();
    let own = folder(output);
    let in_folder = || of_counter.iter().filter(|pair| pair.folder() == own);
    let is_alone = outputs.iter().filter(|path| folder(path) == own).count() == 1;
    match (outputs, of_counter.as_slice()) {
        ([_], [pair]) => Some(**pair),
        _ if is_alone && in_folder().count() == 1 => in_folder().next().map(|pair| **pair),
        _ => of_run(&of_counter, output, outputs),
    }
}

/// The pair that names alone give to an output, and to no other one.
fn of_run<'a>(pairs: &[&Pair<'a>], output: &str, outputs: &[&str]) -> Option<Pair<'a>> {
    let own = RunName::of(output);
    let names = |pair: &Pair<'_>| pair.files.map(|(path, _)| RunName::of(path));
    let shares_words = |pair: &Pair<'_>, output: &RunName| {
        let [before, after] = names(pair);
        !output.words.is_empty() && before.words == output.words && after.words == output.words
    };
    let is_between = |pair: &Pair<'_>, output: &RunName| {
        let [before, after] = names(pair);
        before.is_until(output) && output.is_until(&after)
    };
    let only = |fits: &dyn Fn(&Pair<'_>, &RunName) -> bool| {
        let mut fitting = pairs.iter().filter(|pair| fits(pair, &own));
        let pair = fitting.next().filter(|_| fitting.next().is_none())?;
        let claims = outputs.iter().filter(|path| fits(pair, &RunName::of(path))).count();
        (claims == 1).then_some(**pair)
    };
    only(&|pair, output| shares_words(pair, output) && is_between(pair, output))
        .or_else(|| only(&shares_words))
        .or_else(|| only(&is_between))
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERRUPTS: &[u8] = b"      CPU0\n 34: 7 PCI-MSI 1-edge nvme0q1\n";

    fn of<'a>(paths: &[&'a str]) -> Vec<[&'a str; 2]> {
        let files: Vec<(Counter, File<'a>)> =
            paths.iter().map(|path| (Counter::Interrupts, (*path, INTERRUPTS))).collect();
        pairs(&files).iter().map(|pair| pair.files.map(|(path, _)| path)).collect()
    }

    #[test]
    fn counts_tell_which_was_first_where_names_do_not() {
        let of = |paths: [&'static str; 2], counts: [u32; 2]| {
            let texts = counts.map(|count| format!("      CPU0\n 34: {count} PCI-MSI 1-edge nvme0q1\n"));
            let stat = paths.map(|path| path.replace("irq", "stat"));
            let files = [0, 1].map(|at| (Counter::Interrupts, (paths[at], texts[at].as_bytes())));
            let stats = [0, 1].map(|at| (Counter::Stat, (stat[at].as_str(), &b"cpu 1 2 3 4\n"[..])));
            let found = pairs(&[files, stats].concat());
            found.iter().map(|pair| pair.files.map(|(path, _)| path.to_owned())).collect::<Vec<_>>()
        };
        let named = [["vorher_irq.txt", "nachher_irq.txt"], ["vorher_stat.txt", "nachher_stat.txt"]]
            .map(|pair| pair.map(str::to_owned));
        assert_eq!(of(["vorher_irq.txt", "nachher_irq.txt"], [7, 9]), named);
        assert_eq!(of(["nachher_irq.txt", "vorher_irq.txt"], [9, 7]), named);
        let none: Vec<[String; 2]> = Vec::new();
        for paths in [["n1_irq", "n2_irq"], ["alpha/irq", "beta/irq"]] {
            assert_eq!(of(paths, [7, 9]), none, "{paths:?}");
        }
        assert_eq!(of(["vorher_irq.txt", "nachher_irq.txt"], [7, 7]), none);
    }

    #[test]
    fn the_missing_one_of_two_readings_has_a_name() {
        for (path, expected) in [
            ("interrupts_before.txt", Some("interrupts_after.txt")),
            ("before/run/interrupts.post", Some("before/run/interrupts.pre")),
            ("after/interrupts", Some("before/interrupts")),
            ("INTERRUPTS-AFTER", Some("INTERRUPTS-before")),
            ("pressure/threshold", None),
            ("interrupts", None),
        ] {
            assert_eq!(other_of(path).as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn names_tell_what_was_before_and_after() {
        for [before, after] in [
            ["interrupts_before.txt", "interrupts_after.txt"],
            ["interrupts.before", "interrupts.after"],
            ["proc_interrupts_pre", "proc_interrupts_post"],
            ["before/interrupts", "after/interrupts"],
            ["Before-Interrupts", "After-Interrupts"],
            ["irq_start", "irq_stop"],
            ["run/interrupts.1", "run/interrupts.2"],
            ["interrupts0", "interrupts1"],
        ] {
            for paths in [[before, after], [after, before]] {
                assert_eq!(of(&paths), [[before, after]], "{paths:?}");
            }
        }
        for paths in [
            ["interrupts_node1.txt", "interrupts_node2.txt"],
            ["host-1.interrupts", "host-2.interrupts"],
            ["old/interrupts", "new/interrupts"],
            ["a.txt", "b.txt"],
            ["run1/interrupts", "run2/interrupts"],
            ["before.txt", "interrupts_after.txt"],
        ] {
            assert!(of(&paths).is_empty(), "{paths:?}");
        }
        assert!(of(&["interrupts1", "interrupts2", "interrupts3"]).is_empty(), "which of the three is not known");
    }

    #[test]
    fn a_pair_belongs_to_the_output_in_its_folder_or_to_the_only_one() {
        let paths = ["a/pre/interrupts", "a/post/interrupts", "b/interrupts_before", "b/interrupts_after"];
        let files: Vec<(Counter, File<'_>)> =
            paths.iter().map(|path| (Counter::Interrupts, (*path, INTERRUPTS))).collect();
        let all = pairs(&files);
        let around = |pairs: &[Pair<'_>], output: &str, outputs: &[&str]| {
            around(pairs, Counter::Interrupts, output, outputs).map(|pair| pair.files[0].0.to_owned())
        };
        let outputs = ["a/fio.json", "b/fio.json"];
        assert_eq!(around(&all, "a/fio.json", &outputs).as_deref(), Some("a/pre/interrupts"));
        assert_eq!(around(&all, "b/fio.json", &outputs).as_deref(), Some("b/interrupts_before"));
        assert_eq!(around(&all[..1], "x/fio.json", &["x/fio.json"]).as_deref(), Some("a/pre/interrupts"));
        assert_eq!(around(&all, "x/fio.json", &["x/fio.json"]), None, "one of two pairs");
        assert_eq!(around(&all, "b/1.json", &["b/1.json", "b/2.json"]), None, "one of two outputs");
    }

    #[test]
    fn time_stamps_tell_where_words_do_not() {
        let [first, second] = ["interrupts_before_20251009_085319.txt", "interrupts_after_20251009_085331.txt"];
        let [third, fourth] = ["interrupts_before_20251009_090000.txt", "interrupts_after_20251009_090100.txt"];
        assert_eq!(of(&[second, first]), [[first, second]]);
        assert_eq!(of(&[second, first, fourth, third]), [[first, second], [third, fourth]]);
        assert_eq!(of(&["irq-1760000099", "irq-1760000000"]), [["irq-1760000000", "irq-1760000099"]]);
        assert!(of(&["irq-1760000000", "irq-1760000001", "irq-1760000002"]).is_empty(), "which two is not known");
        assert!(of(&["a-1760000000", "b-1760000001"]).is_empty(), "of two runs");
        assert!(of(&[second, third]).is_empty(), "after one run, and before the next");
    }

    #[test]
    fn a_pair_belongs_to_the_output_of_its_runs_name_or_time() {
        let paths = [
            "qd1_interrupts_before.txt",
            "qd1_interrupts_after.txt",
            "qd2_interrupts_before.txt",
            "qd2_interrupts_after.txt",
            "irq_before_20251009_085319.txt",
            "irq_after_20251009_085331.txt",
        ];
        let files: Vec<(Counter, File<'_>)> =
            paths.iter().map(|path| (Counter::Interrupts, (*path, INTERRUPTS))).collect();
        let all = pairs(&files);
        assert_eq!(all.len(), 3, "{all:?}");
        let outputs = ["qd1.json", "qd2.json", "fio_20251009_085320.json", "fio_20251009_091000.json"];
        let around = |output: &str, outputs: &[&str]| {
            around(&all, Counter::Interrupts, output, outputs).map(|pair| pair.files[0].0.to_owned())
        };
        let expected = [Some(paths[0]), Some(paths[2]), Some(paths[4]), None];
        assert_eq!(outputs.map(|output| around(output, &outputs)), expected.map(|path| path.map(str::to_owned)));
        let twice = ["qd1.json", "qd1.log", "qd2.json"];
        assert_eq!(around("qd1.json", &twice), None, "one of two outputs of that run");
    }

    #[test]
    fn readings_are_known_by_what_they_hold() {
        assert_eq!(Counter::of("a", INTERRUPTS), Some(Counter::Interrupts));
        assert_eq!(Counter::of("a", b"cpu  1 2 3 4\ncpu0 1 2 3 4\n"), Some(Counter::Stat));
        assert_eq!(Counter::of("before/uptime", b"12.5 30.1\n"), Some(Counter::Uptime));
        assert_eq!((Counter::of("uptime/x", b"12.5 30.1\n"), Counter::of("x.fio", b"[a]\nrw=read\n")), (None, None));
    }
}
