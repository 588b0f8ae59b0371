use super::*;
use proptest::prelude::*;

const X86: &str = "            CPU0       CPU1       CPU3
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
    assert_eq!(arm.line("IPI0").unwrap().total(), 300);
}

#[test]
fn lines_of_a_log_are_read() {
    let text: String = X86.lines().map(|line| format!("irq_1  | {line}\n")).collect();
    assert_eq!(Interrupts::parse(text.as_bytes()).lines, Interrupts::parse(X86.as_bytes()).lines);
}

#[test]
fn what_lsirq_prints_is_read_as_sums() {
    let text =
        "$ lsirq\nIRQ TOTAL NAME\n129   823 IR-PCI-MSI 524289-edge nvme0q1\nLOC 81624 Local timer interrupts\n 9 \n";
    let found = Interrupts::parse(text.as_bytes());
    assert_eq!((found.cpus.as_slice(), found.lines.len()), (&[0][..], 2), "{found:?}");
    assert_eq!((found.lines[0].total(), found.lines[0].nvme_queue()), (823, Some((0, 1))));
    assert_eq!((found.lines[0].chip(), found.lines[1].chip()), (Some("IR-PCI-MSI"), None));
    assert!(!found.has_header && Interrupts::parse(X86.as_bytes()).has_header);
}

#[test]
fn a_difference_follows_cpus_and_wraps() {
    let before = Interrupts::parse(X86.as_bytes());
    let later = "CPU0 CPU3 CPU4\n 34: 4 11 2 IR-PCI-MSIX-0000:01:00.0 1-edge nvme0q1\n PMN: 6 8 9 Posted\n";
    let differences = before.until(&Interrupts::parse(later.as_bytes()));
    assert_eq!(differences[0].counts, [(0, 10), (3, 10), (4, 2)], "a wrap, a rise, a new CPU");
    assert_eq!(differences[1].total(), 1 + 1 + 9);
}

#[test]
fn an_interrupt_that_went_to_another_device_counts_from_nothing() {
    let before = Interrupts::parse(b"CPU0\n 34: 100 PCI-MSI 1-edge eth0\n");
    let later = Interrupts::parse(b"CPU0\n 34: 130 PCI-MSI 1-edge nvme0q1\n");
    assert_eq!(before.until(&later)[0].total(), 130);
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
fn what_is_damaged_is_noted() {
    let none = Interrupts::parse(b"34: 1 2 x\n");
    assert!(none.lines.is_empty() && none.notes[0].contains("no line names CPUs"), "{:?}", none.notes);
    let cut = Interrupts::parse(b"junk\n CPU0 CPU1\n 34: 1 2 PCI-MSI 1-edge nvme0q1\n 35: 1\n36\n CPU0\n 34: 9");
    assert_eq!(cut.lines.len(), 2, "{:?}", cut.lines);
    assert_eq!(cut.notes.len(), 3, "{:?}", cut.notes);
}

#[test]
fn lines_that_were_broken_are_joined() {
    let text = "> $ cat /proc/interrupts\n>       CPU0 CPU1\n>   CPU2  CPU5\n>  16: 1 2\n>  3 4  XIVE-IRQ 4610 Level  usb1,\n> \
                    ehci_hcd:usb2\n> 17: 5 6 7\n> 8 PCI-MSI 1-edge\n> nvme0q1\n> LOC: 1 1 1 1 Local timer\n> ERR: 0\n";
    let found = Interrupts::parse(text.as_bytes());
    assert_eq!((found.cpus.as_slice(), found.lines.len(), found.notes.len()), (&[0, 1, 2, 5][..], 4, 0), "{found:?}");
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
        let cut: Vec<&str> = line.as_bytes().chunks(columns).map(|part| std::str::from_utf8(part).unwrap()).collect();
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
    // Columns that somebody left out are no columns.
    let elided = Interrupts::parse(b"40: 0 5 ... IR-PCI-MSI 1-edge nvme0q1\n41: 7 IR-PCI-MSI 2-edge nvme0q2\n");
    assert!(elided.lines.is_empty(), "{elided:?}");
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
    ] {
        assert_eq!(of(line), Some((0, 1)), "{line}");
    }
    for line in ["CLK:        100         90   [EXT] Clock Comparator", "I/O:        300        100", "BAD:          0"]
    {
        assert_eq!(of(line), None, "{line}");
    }
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
