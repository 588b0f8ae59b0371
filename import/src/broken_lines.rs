//! `/proc/interrupts` as mail and terminals leave it: with lines that were broken, between words or at the last column.

use crate::interrupt_line::{count, without_grep};
use crate::interrupts::is_header;

/// The lines of a text that mail or a terminal may have broken.
pub(crate) struct Lines {
    /// Without the marks of a quotation.
    pub(crate) text: Vec<String>,
    /// The length of the longest.
    width: usize,
}

impl Lines {
    pub(crate) fn of(text: &str) -> Self {
        let lines: Vec<String> = text.lines().map(|line| unquoted(line).trim_end().to_owned()).collect();
        let longest = |lines: &[String]| lines.iter().map(String::len).max().unwrap_or(0);
        let width = longest(&lines);
        let text = cut_lines_joined(lines, width);
        Self { width: longest(&text), text }
    }

    /// The number of lines that were one before mail broke it between words.
    pub(crate) fn of_one(&self, at: usize, is_broken: bool) -> usize {
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
    without_grep(line).split_once(':').is_some_and(|(id, rest)| {
        // Of any size, and as some programs group digits: a line that makes no sense is a line of its own.
        let is_number =
            |word: &str| count(word).is_some() || word.bytes().all(|byte| byte.is_ascii_digit() || byte == b',');
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

#[cfg(test)]
mod tests {
    use crate::interrupts::{Interrupts, Line};

    #[test]
    fn lines_that_were_broken_are_joined() {
        let text = "> $ cat /proc/interrupts\n>       CPU0 CPU1\n>   CPU2  CPU5\n>  16: 1 2\n>  3 4  XIVE-IRQ 4610 Level  usb1,\n> \
                    ehci_hcd:usb2\n> 17: 5 6 7\n> 8 PCI-MSI 1-edge\n> nvme0q1\n> LOC: 1 1 1 1 Local timer\n> ERR: 0\n";
        let found = Interrupts::parse(text.as_bytes());
        assert_eq!(
            (found.cpus.as_slice(), found.lines.len(), found.notes.len()),
            (&[0, 1, 2, 5][..], 4, 0),
            "{found:?}"
        );
        assert_eq!((found.lines[0].total(), found.lines[0].actions()), (10, vec!["usb1", "ehci_hcd:usb2"]));
        assert_eq!((found.lines[1].total(), found.lines[1].nvme_queue()), (26, Some((0, 1))));
    }

    /// Four CPUs: the header is short, and only lines with long names are broken.
    #[test]
    fn lines_that_were_broken_below_a_whole_header_are_joined() {
        let whole = "           CPU0       CPU1       CPU2       CPU3\n  0:         36          0          0          0  IR-IO-APIC    2-edge      timer\n \
                     34:         12          0          0          0  IR-PCI-MSIX-0000:01:00.0    0-edge      nvme0q0\n \
                     35:       5000          0          0          0  IR-PCI-MSIX-0000:01:00.0    1-edge      nvme0q1\n\
                     NMI:          1          2          3          4   Non-maskable interrupts\nERR:          0\n";
        // As mail breaks lines: between words, at column 72.
        let of_mail = |line: &str, quote: &str| {
            let mut lines = vec![String::new()];
            for word in line.split_inclusive(' ') {
                if lines.last().unwrap().len() + word.trim_end().len() > 72 {
                    lines.push(String::new());
                }
                lines.last_mut().unwrap().push_str(word);
            }
            lines.iter().map(|line| format!("{quote}{}\n", line.trim_end())).collect::<String>()
        };
        let of_terminal = |line: &str, columns: usize| {
            let cut: Vec<&str> =
                line.as_bytes().chunks(columns).map(|part| std::str::from_utf8(part).unwrap()).collect();
            cut.join("\n") + "\n"
        };
        let whole_lines = Interrupts::parse(whole.as_bytes()).lines;
        for quote in ["", "> ", ">> "] {
            let text: String = whole.lines().map(|line| of_mail(line, quote)).collect();
            let found = Interrupts::parse(text.as_bytes());
            assert!(found.notes.is_empty() && found.lines.len() == 5, "{text}{found:?}");
            let actions = |lines: &[Line]| lines.iter().map(|line| format!("{:?}", line.actions())).collect::<Vec<_>>();
            assert_eq!(actions(&found.lines), actions(&whole_lines));
        }
        for columns in [80, 72, 66, 40] {
            let text: String = whole.lines().map(|line| of_terminal(line, columns)).collect();
            let found = Interrupts::parse(text.as_bytes());
            assert_eq!((found.cpus.len(), &found.lines), (4, &whole_lines), "{text}");
        }
        // A prompt behind short lines is no part of them.
        let prompt = Interrupts::parse(format!("{whole}root@host:~# \n").as_bytes());
        assert!(prompt.lines == whole_lines && prompt.notes.len() == 1, "{:?}", prompt.notes);
        let lost = Interrupts::parse(b"CPU0 CPU1 CPU2\n 7: 5 6 PCI-MSI 1-edge nvme0q1\n");
        assert!(lost.notes[0].contains("interrupt 7 has counts of 2 of 3 CPUs"), "{:?}", lost.notes);
    }
}
