//! `/proc/interrupts`, of any architecture: a line of CPUs, then a line for each interrupt with a count for each CPU.
//!
//! ```text
//!            CPU0       CPU2
//!  34:          5          7  IR-PCI-MSIX-0000:01:00.0   1-edge      nvme0q1
//! NMI:          1          0   Non-maskable interrupts
//! ERR:          0
//! ```
//!
//! Source: Linux, `show_interrupts` in `kernel/irq/proc.c` and `arch_show_interrupts` of each architecture. Columns are
//! the CPUs that are online. Lines such as `ERR` have one number. The text behind the counts is the chip, the hardware
//! number with the trigger, and the names of the actions, separated by commas.

use crate::Note;
pub use crate::between::Difference;
use crate::broken_lines::Lines;
pub use crate::interrupt_line::Line;
use crate::interrupt_text;
use crate::lsirq;
use std::collections::BTreeSet;

/// Most bytes of a text: 4,096 CPUs with some thousand interrupts.
pub const BYTES_MAX: usize = 64 << 20;
/// Most CPUs of a header.
const CPUS_MAX: usize = 16_384;
/// Most notes on single lines.
const NOTES_MAX: usize = 20;

/// One reading of `/proc/interrupts`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Interrupts {
    /// The CPUs of the columns.
    pub cpus: Vec<u32>,
    /// The lines, in the text's order.
    pub lines: Vec<Line>,
    /// The header names the CPUs: all that are online.
    pub has_header: bool,
    /// The text ends within a line: what follows is missing.
    pub is_cut: bool,
    /// The text holds more readings than this one.
    pub has_several: bool,
    /// What could not be read.
    pub notes: Vec<Note>,
}

impl Interrupts {
    /// Reads a text; of several readings in it, the first. Lines that make no sense are left out, and noted.
    pub fn parse(text: &[u8]) -> Self {
        Self::one(text, false)
    }

    /// As [`Self::parse`], of several readings the last.
    pub fn parse_last(text: &[u8]) -> Self {
        Self::one(text, true)
    }

    fn one(text: &[u8], is_last: bool) -> Self {
        let mut found = Self::default();
        if text.len() > BYTES_MAX {
            found.notes.push(format!("the text has more than {BYTES_MAX} bytes; the rest is not read"));
        }
        let (text, is_of_lsirq) = interrupt_text::of(&text[..text.len().min(BYTES_MAX)]);
        let lines = Lines::of(&text);
        let headers = interrupt_text::headers(&lines.text);
        found.has_several = headers.len() > 1;
        let Some(&header) = (if is_last { headers.last() } else { headers.first() }) else {
            match lsirq::lacks(&text) {
                Some(why) => found.note(why),
                None => found.without_header(&lines.text, is_last),
            }
            return found;
        };
        let mut behind = header;
        // A narrow terminal or mail breaks the header, and each line behind it.
        while lines.text.get(behind).is_some_and(|line| is_header(line) && found.goes_on(line)) {
            found.cpus.extend(lines.text[behind].split_whitespace().filter_map(cpu_number));
            behind += 1;
        }
        found.cpus.truncate(CPUS_MAX);
        found.has_header = !is_of_lsirq;
        found.read_below(&lines, behind, behind > header + 1);
        if found.lines.is_empty() {
            found.note("no interrupt stands below the line that names CPUs".to_owned());
        }
        found.mark_cut(&text);
        found
    }

    /// Reads the lines from `at` on, which stand below a header, up to the next one.
    fn read_below(&mut self, lines: &Lines, mut at: usize, is_broken: bool) {
        let mut known = BTreeSet::new();
        while let Some(line) = lines.text.get(at) {
            let count = lines.of_one(at, is_broken);
            match Line::read(&lines.text[at..at + count].join(" "), self.cpus.len()) {
                Some(line) if line.is_numbered() && !known.insert(line.id.clone()) => {
                    self.note(format!(
                        "line {}: interrupt {} stands there once more; only the first is used",
                        at + 1,
                        line.id
                    ));
                }
                Some(line) if line.has_more_counts() => self.note(format!(
                    "line {}: interrupt {} has more counts than there are CPUs, and is left out: {:?}",
                    at + 1,
                    line.id,
                    clip(&line.text)
                )),
                Some(line) => self.add(line),
                // A second reading in one file begins with a header of its own.
                None if is_header(line) => {
                    self.note(format!("line {}: a second reading begins; only the first is used", at + 1));
                    break;
                }
                None if line.trim().is_empty() => {}
                None => self.note(format!("line {}: no interrupt: {:?}", at + 1, clip(line))),
            }
            at += count;
        }
    }

    /// Marks a reading whose last line ends before its device's name.
    fn mark_cut(&mut self, text: &str) {
        let Some(last) = self.lines.last().filter(|_| !text.ends_with('\n')) else { return };
        let is_last = text.lines().next_back().is_some_and(|end| end.contains(&format!("{}:", last.id)));
        if is_last && last.is_numbered() && last.actions().is_empty() {
            self.is_cut = true;
            self.note(format!("the text ends within the line of interrupt {}: what follows is missing", last.id));
        }
    }

    /// Adds a line. A device's has a count for each CPU.
    fn add(&mut self, line: Line) {
        let (counts, cpus) = (line.counts.len(), self.cpus.len());
        if counts < cpus && line.is_numbered() {
            self.note(format!(
                "interrupt {} has counts of {counts} of {cpus} CPUs; the others are taken as 0",
                line.id
            ));
        }
        self.lines.push(line);
    }

    /// Notes a line; of very many lines, the first.
    fn note(&mut self, note: Note) {
        match self.notes.len() {
            0..NOTES_MAX => self.notes.push(note),
            NOTES_MAX => self.notes.push("more lines are no interrupts".to_owned()),
            _ => {}
        }
    }

    /// True if a header continues the one before it.
    fn goes_on(&self, header: &str) -> bool {
        let first = header.split_whitespace().next().and_then(cpu_number);
        self.cpus.len() < CPUS_MAX && self.cpus.last().is_none_or(|last| first.is_some_and(|first| first > *last))
    }

    /// The lines of a text whose header was cut off, as by `grep nvme`. All columns are taken as CPUs from 0 on: the sums
    /// are right, and columns of two readings match as long as no CPU came or went.
    fn without_header(&mut self, lines: &[String], is_last: bool) {
        let found: Vec<Line> = lines.iter().filter_map(|line| Line::read(line, CPUS_MAX)).collect();
        let devices = || found.iter().filter(|line| !line.actions().is_empty());
        let queues: BTreeSet<usize> =
            devices().filter(|line| line.nvme_queue().is_some()).map(|line| line.counts.len()).collect();
        let all: BTreeSet<usize> = devices().map(|line| line.counts.len()).collect();
        // What a shell or somebody's own words look like may be taken for a device's, but not for a queue's.
        let counts = if queues.is_empty() { all } else { queues };
        let (Some(&columns), 1) = (counts.first(), counts.len()) else {
            self.note("no line names CPUs (CPU0 CPU1 …): this is no /proc/interrupts, or its head is cut off".into());
            return;
        };
        self.note("no line names CPUs (CPU0 CPU1 …): the columns are taken as CPUs from 0 on".into());
        self.cpus = (0..columns as u32).collect();
        let mut known = BTreeSet::new();
        for line in found {
            let is_of_device = line.is_numbered();
            if line.counts.len() > columns || is_of_device && line.counts.len() < columns {
                self.note(format!(
                    "line of {:?} has {} counts and not {columns}: it is left out",
                    clip(&line.id),
                    line.counts.len()
                ));
            } else if !known.insert(line.id.clone()) {
                self.has_several |= is_of_device;
                if is_last {
                    self.lines.retain(|known| known.id != line.id);
                    self.lines.push(line);
                } else if is_of_device {
                    self.note(format!("interrupt {} stands there once more; only the first is used", line.id));
                }
            } else {
                self.lines.push(line);
            }
        }
    }
}

fn cpu_number(word: &str) -> Option<u32> {
    word.strip_prefix("CPU").or_else(|| word.strip_prefix("cpu"))?.parse().ok()
}

pub(crate) fn is_header(line: &str) -> bool {
    let mut words = line.split_whitespace().peekable();
    words.peek().is_some() && words.all(|word| cpu_number(word).is_some())
}

/// The beginning of a text, for a message.
fn clip(text: &str) -> String {
    text.chars().take(60).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) const X86: &str = "            CPU0       CPU1       CPU3
   0:         36          0          0  IR-IO-APIC    2-edge      timer
   9:          0          4          0  IR-IO-APIC    9-fasteoi   acpi, i801_smbus
  34:    4294967290       7          1  IR-PCI-MSIX-0000:01:00.0    1-edge      nvme0q1
 120:          0          0          0  DMAR-MSI    0-edge      dmar0
 NMI:          1          2          3   Non-maskable interrupts
 PMN:          5          6          7   Posted MSI notification event
 ERR:          0
";
    const ARM: &str = "           CPU0       CPU1
 11:    1000000     999999     GICv3  27 Level     arch_timer
 47:         12          0   ITS-MSI 524288 Edge      nvme0q0
IPI0:       100        200       Rescheduling interrupts
Err:          0
";

    #[test]
    fn strings_of_json_are_read() {
        let string = serde_json::json!({ "interrupts": X86 }).to_string();
        let list = serde_json::json!({ "rc": 0, "stdout_lines": X86.lines().collect::<Vec<_>>() });
        for text in [string, list.to_string().replace("\",\"", "\",\n\""), serde_json::to_string_pretty(&list).unwrap()]
        {
            assert_eq!(Interrupts::parse(text.as_bytes()).lines, Interrupts::parse(X86.as_bytes()).lines, "{text}");
        }
    }

    #[test]
    fn a_server_is_read() {
        let found = Interrupts::parse(X86.as_bytes());
        assert_eq!((found.cpus.as_slice(), found.notes.len()), (&[0, 1, 3][..], 0), "{:?}", found.notes);
        let nvme = found.line("34").unwrap();
        assert_eq!((nvme.nvme_queue(), nvme.chip()), (Some((0, 1)), Some("IR-PCI-MSIX-0000:01:00.0")));
        assert_eq!(found.line("9").unwrap().actions(), ["acpi", "i801_smbus"]);
        assert_eq!(found.line("NMI").unwrap().actions(), Vec::<&str>::new());
        assert_eq!((found.line("PMN").unwrap().total(), found.line("ERR").unwrap().counts.as_slice()), (18, &[0][..]));
        let arm = Interrupts::parse(ARM.as_bytes());
        assert_eq!(arm.line("47").unwrap().nvme_queue(), Some((0, 0)));
        let shared = Interrupts::parse(b"  CPU0   CPU1\n 27: 100  0   PCI-MSI-edge  nvme0q0, nvme0q1\n");
        assert_eq!(shared.lines[0].nvme_queue(), Some((0, 1)));
        assert_eq!(arm.line("11").unwrap().actions(), ["arch_timer"]);
        let loongarch = Interrupts::parse(b"  CPU0   CPU1\n 27: 100  0   PCH PCI MSI  17  nvme0q1\n");
        assert_eq!(loongarch.lines[0].nvme_queue(), Some((0, 1)));
        assert_eq!(arm.line("IPI0").unwrap().total(), 300);
    }

    #[test]
    fn a_screen_that_was_drawn_is_read() {
        let drawn: String =
            X86.lines().enumerate().map(|(at, line)| format!("{line}\u{1b}[K\u{1b}[{};1H", at + 4)).collect();
        let watched = format!("\u{1b}[H\u{1b}[2JEvery 2.0s: cat /proc/interrupts\u{1b}[1;60Hvm: Sat\u{1b}[3d{drawn}");
        let blanks = X86.replace("          0", "\u{1b}[10C0").replace("      ", " \u{1b}[5b");
        for text in [watched, blanks] {
            assert_eq!(Interrupts::parse(text.as_bytes()).lines, Interrupts::parse(X86.as_bytes()).lines, "{text:?}");
        }
    }

    #[test]
    fn tables_of_spreadsheets_are_read() {
        let plain = "CPU0 CPU1\n34: 5 12345 IR-PCI-MSI 1-edge nvme0q1\n27: 7 0 PCI-MSI 2-edge nvme0q0, nvme0q2\n";
        let expected = Interrupts::parse(plain.as_bytes()).lines;
        let quoted = "\"\",\"CPU0\",\"CPU1\",\"\"\n\"34:\",\"5\",\"12345\",\"IR-PCI-MSI 1-edge nvme0q1\"\n\
                      \"27:\",\"7\",\"0\",\"PCI-MSI 2-edge nvme0q0, nvme0q2\"\n";
        let semicolons =
            ";CPU0;CPU1;\n34:;5;12345;IR-PCI-MSI 1-edge nvme0q1\n27:;7;0;PCI-MSI 2-edge nvme0q0, nvme0q2\n";
        // A narrow blank groups digits.
        let grouped = plain.replace("12345", "12\u{202f}345");
        for text in [quoted, semicolons, &grouped] {
            let found = Interrupts::parse(text.as_bytes());
            assert_eq!((found.cpus.as_slice(), &found.lines), (&[0, 1][..], &expected), "{text}{:?}", found.notes);
        }
        // As other blanks do, which may stand between columns too.
        let doubtful = Interrupts::parse(plain.replace("12345", "12\u{a0}345").as_bytes());
        assert_eq!(doubtful.lines.len(), 1, "{doubtful:?}");
        assert!(doubtful.notes[0].contains("interrupt 34 has more counts than there are CPUs"), "{doubtful:?}");
        let sums = Interrupts::parse(b"35: 30100 nvme0q1\n36: 7 nvme0q2\n");
        assert_eq!(sums.lines.iter().map(Line::nvme_queue).collect::<Vec<_>>(), [Some((0, 1)), Some((0, 2))]);
    }

    #[test]
    fn of_several_readings_the_first_or_the_last_is_read() {
        let at = |count: u32| {
            format!("CPU0 CPU1\n34: {count} 0 PCI-MSI 1-edge nvme0q1\n35: 0 {count} PCI-MSI 2-edge nvme0q2\n")
        };
        let text = format!("before\n{}after\n{}", at(5), at(105));
        for text in [text.clone(), text.replace("CPU0 CPU1\n", ""), text.replace("CPU0 CPU1", "CPU0\nCPU1")] {
            let [first, last] = [Interrupts::parse(text.as_bytes()), Interrupts::parse_last(text.as_bytes())];
            assert!(first.has_several && last.has_several, "{text}");
            assert_eq!((first.lines.len(), last.lines.len()), (2, 2), "{text}{last:?}");
            assert_eq!(first.until(&last).iter().map(|one| one.total()).collect::<Vec<_>>(), [100, 100], "{text}");
        }
        assert!(!Interrupts::parse(at(5).as_bytes()).has_several);
        let softirqs = "CPU0 CPU1\nHI: 1 2\nNET_RX: 7 8\n";
        for text in [format!("{}{softirqs}", at(5)), format!("{softirqs}{}", at(5))] {
            let found = Interrupts::parse(text.as_bytes());
            assert!(!found.has_several && found.lines.len() == 2, "{text}{found:?}");
        }
    }

    #[test]
    fn a_reading_that_ends_within_a_line_or_has_none_says_so() {
        let cut = Interrupts::parse(&X86.as_bytes()[..X86.find("nvme0q1").unwrap()]);
        assert!(cut.is_cut && !Interrupts::parse(X86.trim_end().as_bytes()).is_cut);
        assert_eq!(cut.notes, ["the text ends within the line of interrupt 34: what follows is missing"]);
        let turned: String = X86.lines().rev().map(|line| format!("{line}\n")).collect();
        let turned = Interrupts::parse(turned.as_bytes());
        assert_eq!(turned.notes, ["no interrupt stands below the line that names CPUs"]);
    }

    #[test]
    fn lines_of_a_log_are_read() {
        let text: String = X86.lines().map(|line| format!("irq_1  | {line}\n")).collect();
        assert_eq!(Interrupts::parse(text.as_bytes()).lines, Interrupts::parse(X86.as_bytes()).lines);
    }

    #[test]
    fn what_lsirq_prints_is_read_as_sums() {
        let text = "$ lsirq\nIRQ TOTAL NAME\n129   823 IR-PCI-MSI 524289-edge nvme0q1\nLOC 81624 Local timer interrupts\n 9 \n";
        let found = Interrupts::parse(text.as_bytes());
        assert_eq!((found.cpus.as_slice(), found.lines.len()), (&[0][..], 2), "{found:?}");
        assert_eq!((found.lines[0].total(), found.lines[0].nvme_queue()), (823, Some((0, 1))));
        assert_eq!((found.lines[0].chip(), found.lines[1].chip()), (Some("IR-PCI-MSI"), None));
        assert!(!found.has_header && Interrupts::parse(X86.as_bytes()).has_header);
        let json = r#"{"interrupts": [{"irq": "129", "total": 823, "delta": 9, "name": "IR-PCI-MSI 524289-edge nvme0q1"},
            {"irq": "LOC", "total": "81624", "name": "Local timer interrupts"}, {"irq": 9}]}"#;
        let top = "irqtop | total: 9 delta: 1\n\n IRQ TOTAL DELTA NAME\n129 823 9 IR-PCI-MSI 524289-edge nvme0q1\nLOC 81624 1 Local timer interrupts\n";
        let of_shell = format!("root@host:~# lsirq -J {{x}}\n{json}\nroot@host:~# ");
        for text in [json, top, &of_shell] {
            let of_text = Interrupts::parse(text.as_bytes());
            assert_eq!((of_text.lines, of_text.has_header), (found.lines.clone(), false), "{text}");
        }
    }

    #[test]
    fn what_is_damaged_is_noted() {
        let none = Interrupts::parse(b"34: 1 2 x\n");
        assert!(none.lines.is_empty() && none.notes[0].contains("no line names CPUs"), "{:?}", none.notes);
        let cut = Interrupts::parse(b"junk\n CPU0 CPU1\n 34: 1 2 PCI-MSI 1-edge nvme0q1\n 35: 1\n36\n CPU0\n 34: 9");
        assert_eq!(cut.lines.len(), 2, "{:?}", cut.lines);
        assert_eq!(cut.notes.len(), 3, "{:?}", cut.notes);
    }

    #[test]
    fn what_stands_behind_the_lines_is_not_theirs() {
        let at = |count: u32, behind: &str| {
            let lines: String =
                (1..4).map(|at| format!(" 4{at}:  {count}  0  IR-PCI-MSI  {at}-edge  nvme0q{at}\n")).collect();
            Interrupts::parse(format!("      CPU0  CPU1\n{lines}{behind}").as_bytes())
        };
        let before = at(100, "");
        for behind in [
            "root@host:~# ",
            "$",
            "\u{fffd}\u{fffd}\n",
            " 99: 99999999999999999999 1 PCI-MSI 2-edge x\n",
            " 99: 1,23 1 PCI-MSI 2-edge x\n",
        ] {
            let totals: Vec<_> =
                before.until(&at(107, behind)).iter().map(|one| (one.line.nvme_queue(), one.total())).collect();
            assert_eq!(totals, [1, 2, 3].map(|at| (Some((0, at)), 7)), "{behind}");
        }
    }

    #[test]
    fn an_interrupt_that_stands_twice_counts_once() {
        let line = " 40: 5 IR-PCI-MSI 1-edge nvme0q1\n";
        let found = Interrupts::parse(format!("CPU0\n{line}{line}ERR: 0\n").as_bytes());
        assert_eq!((found.lines.len(), found.notes.len()), (2, 1), "{found:?}");
    }

    #[test]
    fn lines_that_were_picked_out_have_columns() {
        let at = |count: u32| {
            let text = format!("40: 0 {count} IR-PCI-MSI 1-edge nvme0q1\n41: 7 0 IR-PCI-MSI 2-edge nvme0q2\nERR: 0\n");
            Interrupts::parse(text.as_bytes())
        };
        let (before, later) = (at(5), at(25));
        assert!(before.notes.len() == 1 && before.notes[0].contains("taken as CPUs"), "{:?}", before.notes);
        assert_eq!(before.until(&later)[0].counts, [(0, 0), (1, 20)]);
        assert!(later.is_behind(&before) && !before.is_behind(&later) && !before.is_behind(&before));
        // What was printed before them is none of them, even where its numbers are an interrupt's.
        let plain = "40: 0 5 IR-PCI-MSI 1-edge nvme0q1\n41: 7 0 IR-PCI-MSI 2-edge nvme0q2\n";
        let lines = Interrupts::parse(plain.as_bytes()).lines;
        for before in [
            "Thu Nov 26 10:40:45 UTC 2026\n",
            "2026-11-26 10:40:45\n",
            "2026-11-26T10:40:45+01:00\n",
            " 10:40:41 up 3 days,  2:11,  1 user,  load average: 0.35, 1.17, 1.52\n",
            "10:41 up 3 days\n",
            "10:40:41.123 run 7\n",
            "=== host 7: run 40: before ===\n",
            "40: 7 runs are done\n",
        ] {
            let found = Interrupts::parse(format!("{before}{plain}").as_bytes());
            let numbered = found.lines.iter().filter(|line| line.is_numbered());
            assert!(numbered.eq(&lines), "{before}{found:?}");
        }
        // Columns that somebody left out are no columns.
        let elided = Interrupts::parse(b"40: 0 5 ... IR-PCI-MSI 1-edge nvme0q1\n41: 7 IR-PCI-MSI 2-edge nvme0q2\n");
        assert!(elided.lines.is_empty(), "{elided:?}");
    }

    #[test]
    fn a_large_machine_and_a_long_wrong_text_are_read_soon() {
        let cpus: String = (0..4096).map(|cpu| format!(" CPU{cpu}")).collect();
        let counts = " 7".repeat(4096);
        let lines: String = (0..200).map(|id| format!("{id}:{counts} PCI-MSI {id}-edge nvme0q{id}\n")).collect();
        let begun = std::time::Instant::now();
        let found = Interrupts::parse(format!("{cpus}\n{lines}").as_bytes());
        assert_eq!(found.until(&found).len(), 200);
        let wrong = Interrupts::parse(format!("CPU0\n{}", "x\n".repeat(1 << 20)).as_bytes());
        assert_eq!(wrong.notes.len(), NOTES_MAX + 1);
        assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in proptest::collection::vec(any::<u8>(), 0..400)) {
            let found = Interrupts::parse(&text);
            found.until(&found);
        }

        #[test]
        fn what_is_printed_is_read_again(counts in proptest::collection::vec(any::<u32>(), 1..40)) {
            let header: Vec<String> = (0..counts.len()).map(|cpu| format!("CPU{cpu}")).collect();
            let numbers: Vec<String> = counts.iter().map(|count| format!("{count:>10}")).collect();
            let text = format!("{}\n 7: {}  IR-PCI-MSI 1-edge nvme3q4\n", header.join(" "), numbers.join(" "));
            let found = Interrupts::parse(text.as_bytes());
            let counts: Vec<u64> = counts.into_iter().map(u64::from).collect();
            prop_assert_eq!(&found.lines[0].counts, &counts);
            prop_assert_eq!(found.lines[0].nvme_queue(), Some((3, 4)));
        }
    }
}
