//! A line of `/proc/interrupts`: its counts, its chip and the names of its actions.

use std::ops::RangeInclusive;

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
    /// Reads a line with a count for each of so many CPUs at most.
    pub(crate) fn read(line: &str, cpus: usize) -> Option<Self> {
        if is_clock(line) {
            return None;
        }
        let (id, mut rest) = without_grep(line).split_once(':')?;
        let id = id.trim();
        if id.is_empty() || id.contains(char::is_whitespace) {
            return None;
        }
        let mut counts = Vec::new();
        while counts.len() < cpus {
            let trimmed = rest.trim_start();
            let end = trimmed.find(char::is_whitespace).unwrap_or(trimmed.len());
            let Some(count) = count(&trimmed[..end]) else { break };
            counts.push(count);
            rest = &trimmed[end..];
        }
        (!counts.is_empty()).then(|| Self { id: id.into(), counts, text: rest.trim().to_owned() })
    }

    /// The names of its actions: `nvme0q1`. Empty for an architecture's own counter.
    ///
    /// A name may hold spaces; the words before it, chip and hardware number, may not. Where the trigger is printed with
    /// the hardware number (`1-edge`), the names are behind it; else they are behind the chip and the number. Kernels before
    /// 2.6.39 print no number with some chips.
    pub fn actions(&self) -> Vec<&str> {
        if !self.is_numbered() {
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
            // Somebody kept the number, the counts and the name alone.
            None if words.len() == 1 && queue_of(words[0]).is_some() => 0,
            // A chip's name may have several words: `PCH PCI MSI 17 nvme0q1`.
            None => words.iter().skip(1).position(|word| word.parse::<u64>().is_ok()).map_or(2, |at| at + 2),
        };
        let Some(first) = words.get(behind) else { return Vec::new() };
        // The names as they are written, spaces included.
        let start = first.as_ptr() as usize - self.text.as_ptr() as usize;
        self.text[start..].split(',').map(str::trim).filter(|name| !name.is_empty()).collect()
    }

    /// Whether it is of a device, and no counter of the architecture's own.
    pub fn is_numbered(&self) -> bool {
        self.id.parse::<u32>().is_ok()
    }

    /// Whether a number stands where the chip's name is: it belongs to the counts.
    pub(crate) fn has_more_counts(&self) -> bool {
        let first = self.text.split_whitespace().next();
        self.is_numbered() && first.is_some_and(|word| count(word).is_some())
    }

    /// The name of the chip: `IR-PCI-MSIX-0000:01:00.0`. None for an architecture's own counter.
    pub fn chip(&self) -> Option<&str> {
        self.id.parse::<u32>().ok().and_then(|_| self.text.split_whitespace().next())
    }

    /// All words of the chip's name, up to the hardware number or the names of the actions: `PCH PCI MSI`.
    pub fn chip_name(&self) -> String {
        let end =
            self.actions().first().map_or(self.text.len(), |name| name.as_ptr() as usize - self.text.as_ptr() as usize);
        let words: Vec<&str> = self.text[..end].split_whitespace().collect();
        let is_number = |word: &&str| word.starts_with(|first: char| first.is_ascii_digit());
        let count = words.iter().position(is_number).unwrap_or(words.len());
        words[..count].join(" ")
    }

    /// Whether its device is behind Intel's Volume Management Device: its chip is `VMD-MSI` or, since 6.17,
    /// `VMD-PCI-MSIX-10000:01:00.0`; a VMD that passes messages on leaves the domain alone, `PCI-MSIX-10000:01:00.0`.
    /// Source: Linux, `drivers/pci/controller/vmd.c`; its domains begin behind those that firmware can give.
    pub fn is_behind_vmd(&self) -> bool {
        let domain = |chip: &str| u64::from_str_radix(chip.rsplit('-').next()?.split_once(':')?.0, 16).ok();
        let is_beyond = |chip: &str| domain(chip).is_some_and(|domain| domain > 0xffff);
        self.is_called_by_vmd() || self.chip().is_some_and(is_beyond)
    }

    /// Whether the VMD's own interrupt comes in place of this one, and its handler calls this one's.
    pub fn is_called_by_vmd(&self) -> bool {
        self.chip().is_some_and(|chip| chip.starts_with("VMD-"))
    }

    /// Whether it is such a device's own: `vmd0`, and `vmd` before 5.17.
    pub fn is_vmd(&self) -> bool {
        let is_number = |rest: &str| rest.is_empty() || rest.parse::<u32>().is_ok();
        self.actions().iter().any(|name| name.strip_prefix("vmd").is_some_and(is_number))
    }

    /// All CPUs together.
    pub fn total(&self) -> u64 {
        self.counts.iter().fold(0, |sum, &count| sum.saturating_add(count))
    }

    /// The NVMe controllers and queues that share it.
    pub fn nvme_queues(&self) -> Vec<(u32, u32)> {
        self.actions().into_iter().filter_map(queue_of).collect()
    }

    /// What else shares it: names that are none of an NVMe queue. A wire, as that of an old slot, serves several devices.
    pub fn other_actions(&self) -> Vec<&str> {
        self.actions().into_iter().filter(|name| queue_of(name).is_none()).collect()
    }

    /// The NVMe controller and queue of a name such as `nvme0q1`; if the administrator's queue, 0, shares the line, the other one.
    pub fn nvme_queue(&self) -> Option<(u32, u32)> {
        let queues = self.nvme_queues();
        queues.iter().find(|(_, queue)| *queue > 0).or(queues.first()).copied()
    }
}

/// A line without the number (`grep -n`) or the file's name (`grep` of several) before it, or both: a count never has a
/// colon, and a chip's name (`IR-PCI-MSIX-0000:01:00.0`) is neither.
pub(crate) fn without_grep(mut line: &str) -> &str {
    while let Some((before, rest)) = line.split_once(':') {
        let before = before.trim();
        let is_of_grep = before.parse::<u32>().is_ok() || before.contains(['/', '.']);
        // As in `Thu Nov 26 10:36:45`.
        if !is_of_grep && before.contains(char::is_whitespace) {
            break;
        }
        let first = rest.split_whitespace().next().and_then(|first| first.split_once(':'));
        // A file's name may be any: `before:35:`.
        if !first.is_some_and(|(id, _)| is_of_grep || id.parse::<u32>().is_ok()) {
            break;
        }
        line = rest;
    }
    line
}

/// A line that begins with a time of day, `10:36:45 up 3 days`, as `uptime` prints it: the minute is no interrupt.
fn is_clock(line: &str) -> bool {
    let word = line.split_whitespace().next().unwrap_or_default().trim_end_matches(',');
    let is_digits = |part: &str, lengths: RangeInclusive<usize>| {
        lengths.contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit())
    };
    let is_two = |part: &str| is_digits(part.split(['.', ',']).next().unwrap_or(part), 2..=2);
    let is_time = word.split_once(':').is_some_and(|(hour, rest)| {
        is_digits(hour, 1..=2) && rest.split(':').count() <= 2 && rest.split(':').all(is_two)
    });
    // Somebody may have left blanks out: `35:45 8 IR-PCI-MSI 1-edge nvme0q1`.
    is_time && !line.contains("nvme")
}

/// What stands between groups of digits.
const GROUPING: [u8; 4] = [b',', b'.', b'\'', b'_'];

/// A count, perhaps with its digits in groups, as a spreadsheet has them: `1,234,567`.
pub(crate) fn count(word: &str) -> Option<u64> {
    word.parse().ok().or_else(|| {
        let between = word.bytes().find(|byte| GROUPING.contains(byte))?;
        let groups: Vec<&str> = word.split(char::from(between)).collect();
        let is_group = |group: &&str| group.len() == 3 && group.bytes().all(|digit| digit.is_ascii_digit());
        let is_digits = groups[0].bytes().all(|digit| digit.is_ascii_digit());
        let is_grouped = is_digits && (1..=3).contains(&groups[0].len()) && groups[1..].iter().all(is_group);
        is_grouped.then(|| groups.concat().parse().ok()).flatten()
    })
}

/// The controller and the queue of `nvme0q1`. Apple's driver has one line for all queues of a machine's only controller.
fn queue_of(name: &str) -> Option<(u32, u32)> {
    // A shell's prompt may stand behind the last line.
    let name = name.split_whitespace().next()?;
    if name == "nvme-apple" {
        return Some((0, 1));
    }
    let (controller, queue) = name.strip_prefix("nvme")?.split_once('q')?;
    Some((controller.parse().ok()?, queue.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use crate::interrupts::Interrupts;

    #[test]
    fn grep_and_groups_of_digits_change_nothing() {
        let plain = "35: 1234567 8 IR-PCI-MSIX-0000:01:00.0 1-edge nvme0q1\n36: 9 1000 IR-PCI-MSIX 2-edge nvme0q2\n";
        let expected = Interrupts::parse(plain.as_bytes()).lines;
        assert_eq!((expected.len(), expected[0].total()), (2, 1_234_575));
        let grouped = |sign: &str| {
            plain.replace("1234567", &["1", "234", "567"].join(sign)).replace("1000", &["1", "000"].join(sign))
        };
        let numbered = plain.replace("35: ", "3: 35: ").replace("36: ", "4: 36: ");
        let of = |name: &str| plain.replace("35: ", &format!("{name}: 35: ")).replace("36: ", &format!("{name}: 36: "));
        let named = ["/proc/interrupts", "before", "interrupts_before:12"].map(of);
        for text in [grouped(","), grouped("."), grouped("'"), numbered].into_iter().chain(named) {
            assert_eq!(Interrupts::parse(text.as_bytes()).lines, expected, "{text}");
            // Below a head a line that is longer than it may be the rest of the one before.
            assert_eq!(Interrupts::parse(format!("CPU0 CPU1\n{text}").as_bytes()).lines, expected, "{text}");
        }
        // Both readings in one text.
        let twice = Interrupts::parse(format!("{plain}{plain}").as_bytes());
        assert!(twice.lines == expected && twice.notes.iter().any(|note| note.contains("once more")), "{twice:?}");
        for (word, expected) in
            [("1,23", None), (",123", None), ("1,234.567", None), ("12x", None), ("", None), ("7", Some(7))]
        {
            assert_eq!(super::count(word), expected, "{word}");
        }
    }

    #[test]
    fn names_stand_behind_what_each_kernel_prints() {
        for (text, actions) in [
            ("PCI-MSI-edge      nvme0q1", &["nvme0q1"][..]),
            ("PCI-MSI-X  nvme0q1", &["nvme0q1"]),
            ("xen-pirq    -msi-x     nvme0q1", &["nvme0q1"]),
            ("xen-dyn-event     blkif", &["blkif"]),
            ("nwl_pcie:msi 524289 Edge      nvme0q1", &["nvme0q1"]),
            ("SiFive PLIC  10 Edge      virtio0", &["virtio0"]),
            ("GIC-0  27", &[]),
            ("IO-APIC-fasteoi   ehci_hcd:usb1, eth0", &["ehci_hcd:usb1", "eth0"]),
        ] {
            let found = Interrupts::parse(format!("CPU0\n 34: 7 {text}\n").as_bytes());
            assert_eq!(found.lines[0].actions(), actions, "{text}");
        }
        let windows: Vec<u8> =
            "\u{feff}CPU0\r\n 34: 7 PCI-MSI 1-edge nvme0q1\r\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert_eq!(Interrupts::parse(&windows).lines[0].nvme_queue(), Some((0, 1)));
    }

    #[test]
    fn architectures_without_numbers_and_with_their_own_chips() {
        let s390 = "           CPU0       CPU1\nEXT:        12         13\nI/O:          4          5\nAIO:  1  2\nCLK:  9  9   [EXT] Clock Comparator\n  \
                    3:  7  8  PCI-MSI  0-edge  nvme0q0\n";
        let found = Interrupts::parse(s390.as_bytes());
        assert_eq!((found.lines.len(), found.notes.len()), (5, 0), "{found:?}");
        assert_eq!((found.line("I/O").unwrap().total(), found.line("3").unwrap().nvme_queue()), (9, Some((0, 0))));
        for (text, name) in [
            ("PCH-MSI-0000:01:00.0   3  nvme0q3", "nvme0q3"),
            ("MPIC  254 Edge  nvme0q3", "nvme0q3"),
            ("RISC-V INTC  13 Edge  nvme0q3", "nvme0q3"),
            ("PCI-MSIX-0000:00:02.0   3 Edge  nvme0q3", "nvme0q3"),
            ("Hyper-V PCIe MSI 1073741824-edge      nvme0q3", "nvme0q3"),
            ("MIPS  7  timer", "timer"),
            ("Dummy  0  spread out name", "spread out name"),
            ("AIC 1832 Level     nvme-apple", "nvme-apple"),
        ] {
            let found = Interrupts::parse(format!("CPU0\n 34: 7 {text}\n").as_bytes());
            assert_eq!(found.lines[0].actions(), [name], "{text}");
        }
    }

    #[test]
    fn chips_whose_names_have_blanks_and_counters_in_brackets() {
        let of = |line: &str| {
            let found = Interrupts::parse(format!("           CPU0       CPU8\n{line}\n").as_bytes());
            assert!(found.notes.is_empty(), "{line}: {:?}", found.notes);
            found.lines[0].nvme_queue()
        };
        for line in [
            " 20:       1000          0  SiFive PLIC  12 Edge      nvme0q1",
            " 21:       1000          0  PCI-MSIX-0000:01:00.0   1 Edge      nvme0q1",
            " 21:       1000          0  XIVE-IRQ 1048578 Edge      nvme0q1",
            " 22:       1000          0  XICS 4113 Level     nvme0q1",
            "  3:      12000          0  PCI-MSI   nvme0q1",
            " 25:       1000          0  ITS-PCI-MSIX-0000:01:00.0   1 Edge      nvme0q1",
            "163:       1000          0  sun4v  -msi   nvme0q1",
            " 24:       1000          0  AIC 1832 Level     nvme-apple",
        ] {
            assert_eq!(of(line), Some((0, 1)), "{line}");
        }
        for line in
            ["CLK:        100         90   [EXT] Clock Comparator", "I/O:        300        100", "BAD:          0"]
        {
            assert_eq!(of(line), None, "{line}");
        }
    }

    #[test]
    fn what_is_behind_a_vmd_is_told_from_the_vmd() {
        for (text, expected) in [
            ("VMD-MSI  126  nvme0q1", (true, true, false)),
            ("VMD-MSI nvme0q1", (true, true, false)),
            ("VMD-PCI-MSIX-10000:01:00.0    1-edge      nvme0q1", (true, true, false)),
            ("IR-PCI-MSIX-10001:01:00.0    1-edge      nvme0q1", (true, false, false)),
            ("IR-PCI-MSIX-ffff:01:00.0    1-edge      nvme0q1", (false, false, false)),
            ("IR-PCI-MSI 229376-edge      vmd0", (false, false, true)),
            ("PCI-MSI 229376-edge      vmd", (false, false, true)),
            ("PCI-MSI 229376-edge      vmdq0x, vmxnet3", (false, false, false)),
        ] {
            let found = Interrupts::parse(format!("CPU0\n 34: 7 {text}\n").as_bytes());
            let line = &found.lines[0];
            assert_eq!((line.is_behind_vmd(), line.is_called_by_vmd(), line.is_vmd()), expected, "{text}");
        }
    }
}
