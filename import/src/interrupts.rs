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
use crate::encoding::{self, plain};
use std::collections::BTreeMap;

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
    /// What could not be read.
    pub notes: Vec<Note>,
}

/// One interrupt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// `34`, `NMI`.
    pub id: String,
    /// By CPU, as many as the line has.
    pub counts: Vec<u64>,
    /// Chip, hardware number, trigger and actions, or what the architecture says of a counter.
    pub text: String,
}

impl Line {
    /// The names of its actions: `nvme0q1`. Empty for an architecture's own counter.
    ///
    /// A name may hold spaces; the words before it, chip and hardware number, may not. Where the trigger is printed with
    /// the hardware number (`1-edge`), the names are behind it; else they are behind the chip and the number. Kernels before
    /// 2.6.39 print no number with some chips.
    pub fn actions(&self) -> Vec<&str> {
        if self.id.parse::<u32>().is_err() {
            return Vec::new();
        }
        let words: Vec<&str> = self.text.split_whitespace().collect();
        let is_trigger = |word: &&str| {
            let end = word.rsplit('-').next().unwrap_or(word).to_ascii_lowercase();
            matches!(end.as_str(), "edge" | "level" | "fasteoi" | "none")
        };
        let behind = match words.iter().position(is_trigger) {
            Some(at) => at + 1,
            None if words.len() == 2 && words[1].parse::<u64>().is_err() => 1,
            None => 2,
        };
        let Some(first) = words.get(behind) else { return Vec::new() };
        // The names as they are written, spaces included.
        let start = first.as_ptr() as usize - self.text.as_ptr() as usize;
        self.text[start..].split(',').map(str::trim).filter(|name| !name.is_empty()).collect()
    }

    /// The name of the chip: `IR-PCI-MSIX-0000:01:00.0`. None for an architecture's own counter.
    pub fn chip(&self) -> Option<&str> {
        self.id.parse::<u32>().ok().and_then(|_| self.text.split_whitespace().next())
    }

    /// All CPUs together.
    pub fn total(&self) -> u64 {
        self.counts.iter().fold(0, |sum, &count| sum.saturating_add(count))
    }

    /// The NVMe controller and queue of a name such as `nvme0q1`; if the administrator's queue, 0, shares the line, the other one.
    pub fn nvme_queue(&self) -> Option<(u32, u32)> {
        let queue_of = |name: &str| {
            let (controller, queue) = name.strip_prefix("nvme")?.split_once('q')?;
            Some((controller.parse().ok()?, queue.parse().ok()?))
        };
        let queues: Vec<(u32, u32)> = self.actions().into_iter().filter_map(queue_of).collect();
        queues.iter().find(|(_, queue)| *queue > 0).or(queues.first()).copied()
    }
}

impl Interrupts {
    /// Reads a text. Lines that make no sense are left out, and noted.
    pub fn parse(text: &[u8]) -> Self {
        let mut found = Self::default();
        if text.len() > BYTES_MAX {
            found.notes.push(format!("the text has more than {BYTES_MAX} bytes; the rest is not read"));
        }
        let text = String::from_utf8_lossy(&plain(&text[..text.len().min(BYTES_MAX)])).replace('\0', "");
        let has_header = |text: &String| text.lines().any(is_header);
        let of_bare = || encoding::bare(text.as_bytes()).map(|text| String::from_utf8_lossy(&text).into_owned());
        let text = if has_header(&text) { text } else { of_bare().filter(has_header).unwrap_or(text) };
        let of_lsirq = of_lsirq(&text);
        let is_of_lsirq = of_lsirq.is_some();
        let text = of_lsirq.unwrap_or(text);
        let lines = Lines::of(&text);
        // Shells and consoles leave lines of their own before the header.
        let Some(header) = lines.text.iter().position(|line| is_header(line)) else {
            found.without_header(&lines.text);
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
        let is_broken = behind > header + 1;
        let mut at = behind;
        while let Some(line) = lines.text.get(at) {
            let count = lines.of_one(at, is_broken);
            match read_line(&lines.text[at..at + count].join(" "), found.cpus.len()) {
                Some(line) => found.add(line),
                // A second reading in one file begins with a header of its own.
                None if is_header(line) => {
                    found.note(format!("line {}: a second reading begins; only the first is used", at + 1));
                    break;
                }
                None if line.trim().is_empty() => {}
                None => found.note(format!("line {}: no interrupt: {:?}", at + 1, clip(line))),
            }
            at += count;
        }
        found
    }

    /// Adds a line. A device's has a count for each CPU.
    fn add(&mut self, line: Line) {
        let (counts, cpus) = (line.counts.len(), self.cpus.len());
        if counts < cpus && line.id.parse::<u32>().is_ok() {
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
    fn without_header(&mut self, lines: &[String]) {
        let found: Vec<Line> = lines.iter().filter_map(|line| read_line(line, CPUS_MAX)).collect();
        let devices = || found.iter().filter(|line| !line.actions().is_empty());
        let columns = devices().map(|line| line.counts.len()).max().unwrap_or(0);
        if columns == 0 || devices().any(|line| line.counts.len() != columns) {
            self.note("no line names CPUs (CPU0 CPU1 …): this is no /proc/interrupts, or its head is cut off".into());
            return;
        }
        self.note("no line names CPUs (CPU0 CPU1 …): the columns are taken as CPUs from 0 on".into());
        self.cpus = (0..columns as u32).collect();
        // A line with more numbers is none of these.
        self.lines = found.into_iter().filter(|line| line.counts.len() <= columns).collect();
    }

    /// True if `later` was read before `self`: more of its counts are lower than higher.
    pub fn is_behind(&self, later: &Self) -> bool {
        let mine: BTreeMap<&str, u64> = self.lines.iter().map(|line| (line.id.as_str(), line.total())).collect();
        let (mut rises, mut falls) = (0, 0);
        for line in &later.lines {
            match mine.get(line.id.as_str()).map(|before| line.total().cmp(before)) {
                Some(std::cmp::Ordering::Greater) => rises += 1,
                Some(std::cmp::Ordering::Less) => falls += 1,
                _ => {}
            }
        }
        falls > rises
    }

    /// The line with that id.
    pub fn line(&self, id: &str) -> Option<&Line> {
        self.lines.iter().find(|line| line.id == id)
    }

    /// Each interrupt's count of each CPU from `self` to `later`. CPUs are matched by number, since CPUs come and go;
    /// interrupts by id and actions, since a number may have got another device. A count that fell has wrapped at 32 bits
    /// (kernels count in `unsigned int`), or its CPU or interrupt was set up anew: then the later count holds.
    pub fn until(&self, later: &Self) -> Vec<Difference> {
        let mine: BTreeMap<(&str, Vec<&str>), &Line> =
            self.lines.iter().map(|line| ((line.id.as_str(), line.actions()), line)).collect();
        let columns: BTreeMap<u32, usize> = self.cpus.iter().enumerate().map(|(column, &cpu)| (cpu, column)).collect();
        let mut differences = Vec::new();
        for line in &later.lines {
            let earlier = mine.get(&(line.id.as_str(), line.actions()));
            let mut counts = Vec::with_capacity(line.counts.len());
            for (column, &count) in line.counts.iter().enumerate() {
                let cpu = later.cpus.get(column).copied();
                let before = earlier.and_then(|earlier| {
                    let column = match cpu {
                        Some(cpu) => *columns.get(&cpu)?,
                        None => column,
                    };
                    earlier.counts.get(column).copied()
                });
                counts.push((cpu.unwrap_or(column as u32), rise(before.unwrap_or(0), count)));
            }
            differences.push(Difference { line: line.clone(), counts });
        }
        differences
    }
}

/// How often an interrupt came between two readings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// The line of the later reading.
    pub line: Line,
    /// CPU and count.
    pub counts: Vec<(u32, u64)>,
}

impl Difference {
    /// All CPUs together.
    pub fn total(&self) -> u64 {
        self.counts.iter().fold(0, |sum, &(_, count)| sum.saturating_add(count))
    }
}

/// From `before` to `after`. See [`Interrupts::until`].
fn rise(before: u64, after: u64) -> u64 {
    const WRAP: u64 = 1 << 32;
    match after.checked_sub(before) {
        Some(rise) => rise,
        // A wrap within a measurement begins near the top and ends near the bottom.
        None if before < WRAP && before > WRAP / 2 && after < WRAP / 2 => after + WRAP - before,
        None => after,
    }
}

/// What `lsirq` of util-linux prints (number, sum of all CPUs, name), in the form of the kernel's file with one CPU.
fn of_lsirq(text: &str) -> Option<String> {
    let is_head = |line: &&str| line.split_whitespace().eq(["IRQ", "TOTAL", "NAME"]);
    let (_, lines) = text.split_once(text.lines().find(is_head)?)?;
    let whole = |line: &str| {
        let (id, rest) = line.trim().split_once(char::is_whitespace)?;
        Some(format!("{id}: {}\n", rest.trim_start()))
    };
    Some(format!("CPU0\n{}", lines.lines().filter_map(whole).collect::<String>()))
}

fn cpu_number(word: &str) -> Option<u32> {
    word.strip_prefix("CPU").or_else(|| word.strip_prefix("cpu"))?.parse().ok()
}

fn is_header(line: &str) -> bool {
    let mut words = line.split_whitespace().peekable();
    words.peek().is_some() && words.all(|word| cpu_number(word).is_some())
}

fn read_line(line: &str, cpus: usize) -> Option<Line> {
    let (id, rest) = line.split_once(':')?;
    let id = id.trim();
    if id.is_empty() || id.contains(char::is_whitespace) {
        return None;
    }
    let mut counts = Vec::new();
    let mut rest = rest;
    while counts.len() < cpus {
        let trimmed = rest.trim_start();
        let end = trimmed.find(char::is_whitespace).unwrap_or(trimmed.len());
        let Ok(count) = trimmed[..end].parse::<u64>() else { break };
        counts.push(count);
        rest = &trimmed[end..];
    }
    (!counts.is_empty()).then(|| Line { id: id.into(), counts, text: rest.trim().to_owned() })
}

/// The lines of a text that mail or a terminal may have broken.
struct Lines {
    /// Without the marks of a quotation.
    text: Vec<String>,
    /// The length of the longest.
    width: usize,
}

impl Lines {
    fn of(text: &str) -> Self {
        let lines: Vec<String> = text.lines().map(|line| unquoted(line).trim_end().to_owned()).collect();
        let longest = |lines: &[String]| lines.iter().map(String::len).max().unwrap_or(0);
        let width = longest(&lines);
        let text = cut_lines_joined(lines, width);
        Self { width: longest(&text), text }
    }

    /// The number of lines that were one before mail broke it between words.
    fn of_one(&self, at: usize, is_broken: bool) -> usize {
        let is_more = |at: &usize| {
            let (before, line) = (&self.text[at - 1], &self.text[*at]);
            let word = line.split_whitespace().next().unwrap_or_default();
            // It would have fitted.
            let was_broken = is_broken || before.len() + 1 + word.len() > self.width;
            was_broken && !is_header(line) && !line.is_empty() && !begins(line)
        };
        1 + (at + 1..self.text.len()).take_while(is_more).count()
    }
}

/// A line without the marks of a quotation in mail.
fn unquoted(mut line: &str) -> &str {
    while let Some(rest) = line.trim_start().strip_prefix('>') {
        line = rest.strip_prefix(' ').unwrap_or(rest);
    }
    line
}

/// Whether an interrupt begins here. A name such as `ehci_hcd:usb1` may begin a line too, but no number follows it.
fn begins(line: &str) -> bool {
    line.split_once(':').is_some_and(|(id, rest)| {
        let is_number = |word: &str| word.parse::<u64>().is_ok();
        !id.trim().contains(char::is_whitespace) && rest.split_whitespace().next().is_some_and(is_number)
    })
}

/// The lines, joined where a terminal cut them at its last column, within words too. `width` is that of the longest.
fn cut_lines_joined(lines: Vec<String>, width: usize) -> Vec<String> {
    let is_rest = |line: &str| !line.is_empty() && !is_header(line) && !begins(line);
    let rests = || (1..lines.len()).filter(|&at| is_rest(&lines[at]));
    // Blanks at the last column may be lost.
    let most = width.saturating_sub(BLANKS_MAX);
    let [cut, near] = [width, most].map(|least| rests().filter(|&at| lines[at - 1].len() >= least).count());
    if cut < 2 || near * 5 < rests().count() * 4 {
        return lines;
    }
    let joined = |between: &str| {
        let mut joined: Vec<String> = Vec::with_capacity(lines.len());
        let mut is_full = false;
        for line in &lines {
            let was_full = std::mem::replace(&mut is_full, line.len() >= most);
            match joined.last_mut().filter(|_| was_full && is_rest(line)) {
                Some(last) => {
                    let blanks =
                        if between.is_empty() { width.saturating_sub(last.len() % width.max(1)) % width } else { 0 };
                    last.push_str(&" ".repeat(blanks));
                    last.push_str(between);
                    last.push_str(line);
                }
                None => joined.push(line.clone()),
            }
        }
        joined
    };
    // Mail that breaks like lines between like words looks the same, but then the words are whole.
    let [cut, of_mail] = ["", " "].map(joined);
    if whole_words(&cut) >= whole_words(&of_mail) { cut } else { lines }
}

/// Most blanks that are lost at the end of a line.
const BLANKS_MAX: usize = 16;

/// The number of words that are a trigger with its number (`1-edge`) or an NVMe queue.
fn whole_words(lines: &[String]) -> usize {
    let is_number = |text: &str| text.parse::<u32>().is_ok();
    let is_whole = |word: &&str| {
        word.split_once('-')
            .is_some_and(|(number, kind)| is_number(number) && matches!(kind, "edge" | "fasteoi" | "level"))
            || word
                .strip_prefix("nvme")
                .and_then(|rest| rest.split_once('q'))
                .is_some_and(|(a, b)| is_number(a) && is_number(b))
    };
    lines.iter().flat_map(|line| line.split_whitespace()).filter(is_whole).count()
}

/// The beginning of a text, for a message.
fn clip(text: &str) -> String {
    text.chars().take(60).collect()
}

#[cfg(test)]
mod tests;
