//! Linux, our image and virtio devices on this QEMU: several interrupts for one virtio-mmio device (`judges/qemu/0004-…`,
//! `judges/linux/0002-…`) beside the one-interrupt transport and virtio-pci.
//!
//! Old and new devices meet old and new guests. A guest uses the device from all of its CPUs: reads of a drive, or ICMP
//! echo requests that the host's kernel answers. Each request must complete once with the right data. Then QEMU's monitor
//! doubles the drive's size, and the device announces that to the guest.
//!
//! The same on arm64's `virt`, where the device tree lists the interrupts (`judges/qemu-arm64/`). These programs are built on
//! request only.

mod machine;

use self::machine::{Guest, Kind, Machine, Ran, Transport};
use super::repetitions;
use crate::run::{CALM_READS_ROW, CALM_WRITES_ROW};
use crate::{BootError, Missing, Row, trace};

/// Requests of a run.
const FULL: u64 = 20_000;
const QUICK: u64 = 4_000;
/// CPUs of a guest; the device has a queue, or a pair of queues, for each.
const CPUS: u64 = 4;
/// A drive's queues and the configuration; a network device's pairs of queues and the configuration.
const BLK_VECTORS: u64 = CPUS + 1;
const NET_VECTORS: u64 = 2 * CPUS + 1;

/// A machine, and what must be counted on it.
#[derive(Clone, Copy, Debug)]
struct Case {
    name: &'static str,
    kind: Kind,
    transport: Transport,
    guest: Guest,
    /// Interrupts that the driver requests.
    lines: u64,
    /// Accesses to the transport that an interrupt costs.
    accesses: f64,
    in_quick: bool,
}

/// The one-interrupt transport costs a read of InterruptStatus and a write of InterruptACK; a level-triggered vector a
/// write of VectorAck and, by Linux, its read-back, which our driver leaves out where registers are emulated; an edge, and
/// an MSI-X message, nothing.
const SINGLE: f64 = 2.0;
const LEVEL: f64 = 2.0;
const LEVEL_OURS: f64 = 1.0;
const EDGE: f64 = 0.0;

const fn mmio(vectors: u64) -> Transport {
    Transport::Mmio { vectors, is_level: false, by_command_line: false }
}

const fn virt(gic: u8, vectors: u64) -> Transport {
    Transport::Virt { gic, vectors, is_level: false, by_acpi: false }
}

const fn case(name: &'static str, kind: Kind, transport: Transport, lines: u64, accesses: f64) -> Case {
    Case { name, kind, transport, guest: Guest::New, lines, accesses, in_quick: false }
}

const fn old_guest(case: Case) -> Case {
    Case { guest: Guest::Old, ..case }
}

const fn ours(case: Case) -> Case {
    Case { guest: Guest::Ours { is_single: false }, ..case }
}

const fn ours_single(case: Case) -> Case {
    Case { guest: Guest::Ours { is_single: true }, ..case }
}

const fn quick(case: Case) -> Case {
    Case { in_quick: true, ..case }
}

const BY_COMMAND_LINE: Transport = Transport::Mmio { vectors: BLK_VECTORS, is_level: false, by_command_line: true };
const LEVELS: Transport = Transport::Mmio { vectors: BLK_VECTORS, is_level: true, by_command_line: false };

const VIRT_LEVELS: Transport = Transport::Virt { gic: 3, vectors: BLK_VECTORS, is_level: true, by_acpi: false };
const VIRT_ACPI: Transport = Transport::Virt { gic: 3, vectors: BLK_VECTORS, is_level: false, by_acpi: true };

const CASES: [Case; 35] = [
    quick(old_guest(case("drive, old device, old guest", Kind::Blk, mmio(0), 1, SINGLE))),
    case("drive, old device, new guest", Kind::Blk, mmio(0), 1, SINGLE),
    quick(old_guest(case("drive, new device, old guest", Kind::Blk, mmio(BLK_VECTORS), 1, SINGLE))),
    quick(case("drive, new device, new guest", Kind::Blk, mmio(BLK_VECTORS), BLK_VECTORS, EDGE)),
    case("drive, found by the command line", Kind::Blk, BY_COMMAND_LINE, BLK_VECTORS, EDGE),
    case("drive, level-triggered vectors", Kind::Blk, LEVELS, BLK_VECTORS, LEVEL),
    case("drive, 3 vectors", Kind::Blk, mmio(3), 3, EDGE),
    case("drive, 2 vectors", Kind::Blk, mmio(2), 2, EDGE),
    case("drive, 1 vector", Kind::Blk, mmio(1), 1, SINGLE),
    ours(case("drive, old device, ours", Kind::Blk, mmio(0), 1, SINGLE)),
    ours_single(case("drive, new device, ours without the feature", Kind::Blk, mmio(BLK_VECTORS), 1, SINGLE)),
    quick(ours(case("drive, new device, ours", Kind::Blk, mmio(BLK_VECTORS), BLK_VECTORS, EDGE))),
    ours(case("drive, level-triggered vectors, ours", Kind::Blk, LEVELS, BLK_VECTORS, LEVEL_OURS)),
    ours(case("drive, 3 vectors, ours", Kind::Blk, mmio(3), 3, EDGE)),
    quick(case("drive, virtio-pci", Kind::Blk, Transport::Pci, BLK_VECTORS, EDGE)),
    case("network, old device", Kind::Net, mmio(0), 1, SINGLE),
    quick(case("network, new device", Kind::Net, mmio(NET_VECTORS), NET_VECTORS, EDGE)),
    case("network, 5 vectors", Kind::Net, mmio(5), 5, EDGE),
    case("network, virtio-pci", Kind::Net, Transport::Pci, NET_VECTORS, EDGE),
    old_guest(case("drive, old device, old guest", Kind::Blk, virt(3, 0), 1, SINGLE)),
    case("drive, old device, new guest", Kind::Blk, virt(3, 0), 1, SINGLE),
    old_guest(case("drive, new device, old guest", Kind::Blk, virt(3, BLK_VECTORS), 1, SINGLE)),
    quick(case("drive, new device, new guest", Kind::Blk, virt(3, BLK_VECTORS), BLK_VECTORS, EDGE)),
    case("drive, new device, new guest", Kind::Blk, virt(2, BLK_VECTORS), BLK_VECTORS, EDGE),
    case("drive, level-triggered vectors", Kind::Blk, VIRT_LEVELS, BLK_VECTORS, LEVEL),
    case("drive, 3 vectors", Kind::Blk, virt(3, 3), 3, EDGE),
    ours(case("drive, old device, ours", Kind::Blk, virt(3, 0), 1, SINGLE)),
    ours_single(case("drive, new device, ours without the feature", Kind::Blk, virt(3, BLK_VECTORS), 1, SINGLE)),
    quick(ours(case("drive, new device, ours", Kind::Blk, virt(3, BLK_VECTORS), BLK_VECTORS, EDGE))),
    ours(case("drive, new device, ours", Kind::Blk, virt(2, BLK_VECTORS), BLK_VECTORS, EDGE)),
    ours(case("drive, level-triggered vectors, ours", Kind::Blk, VIRT_LEVELS, BLK_VECTORS, LEVEL_OURS)),
    ours(case("drive, 3 vectors, ours", Kind::Blk, virt(3, 3), 3, EDGE)),
    ours(case("drive, found by ACPI, ours", Kind::Blk, VIRT_ACPI, BLK_VECTORS, EDGE)),
    case("network, old device", Kind::Net, virt(3, 0), 1, SINGLE),
    case("network, new device", Kind::Net, virt(3, NET_VECTORS), NET_VECTORS, EDGE),
];

/// Runs the cases, and names those that cannot run here.
///
/// # Errors
/// [`BootError`]; a run that fails is a row that does not pass.
pub(crate) fn measure(
    is_quick: bool,
    is_stopped: impl Fn() -> bool,
    tell: impl Fn(&str),
) -> Result<(Vec<Row>, Vec<Missing>), BootError> {
    let x86_64 = Machine::x86_64()?;
    let (arm64, mut missing) = match Machine::arm64() {
        Ok(machine) => (Some(machine), Vec::new()),
        Err(BootError::Missing(missing)) => (None, vec![missing]),
        Err(error) => return Err(error),
    };
    let no_network = machine::no_network();
    let mut rows = Vec::new();
    for case in CASES.iter().filter(|case| case.in_quick || !is_quick) {
        if is_stopped() {
            break;
        }
        if case.kind == Kind::Net && no_network.is_some() {
            continue;
        }
        let Some(machine) = (if case.transport.is_virt() { arm64.as_ref() } else { Some(&x86_64) }) else { continue };
        tell(&case.name());
        let requests = if is_quick { QUICK } else { FULL };
        let ran = machine.run(case, requests)?;
        rows.extend(judged(case, requests, &ran));
        rows.extend(repetitions(&case.name(), "the guest", &ran.repetitions));
    }
    missing.extend(no_network.map(Missing::Network));
    Ok((rows, missing))
}

impl Case {
    fn name(&self) -> String {
        match self.transport {
            Transport::Virt { gic, .. } => format!("virtio GICv{gic} {}", self.name),
            Transport::Mmio { .. } | Transport::Pci => format!("virtio {}", self.name),
        }
    }

    /// True if each queue has a vector for itself.
    fn has_vector_each(&self) -> bool {
        self.lines == if self.kind == Kind::Blk { BLK_VECTORS } else { NET_VECTORS }
    }
}

/// The figures of a run.
fn judged(case: &Case, requests: u64, ran: &Ran) -> Vec<Row> {
    let name = case.name();
    if let Some(why) = &ran.failure {
        let (quantity, note) = ("failures".into(), Some(why.clone()));
        return vec![Row { case: name, quantity, value: 1.0, note, ..Row::default() }];
    }
    let row = |quantity: &str, value: f64, pass: bool| Row {
        case: name.clone(),
        quantity: quantity.into(),
        value,
        pass,
        ..Row::default()
    };
    let count = |name: &str| ran.counts.get(name).copied().map_or(f64::NAN, |count| count as f64);
    let counted =
        |quantity: &str, name: &str, is_right: &dyn Fn(f64) -> bool| row(quantity, count(name), is_right(count(name)));
    let each = ran.accesses as f64 / count("interrupts");
    let mut rows = vec![
        counted("requests completed, each once, data right", "requests", &|done| done >= requests as f64),
        counted("interrupts requested by the driver", "lines", &|lines| lines == case.lines as f64),
        counted("interrupts", "interrupts", &|interrupts| interrupts > 0.0),
        // A device's configuration may change, and be read, a few times.
        row("accesses to the transport an interrupt, kicks apart", each, (each - case.accesses).abs() < 0.05),
    ];
    if case.kind == Kind::Blk && case.lines > 1 {
        rows.push(counted("interrupts of the configuration", "of_configuration", &|taken| taken == 1.0));
    }
    if case.transport.is_virt() {
        rows.extend(traced(case, ran, &row));
    }
    if let Guest::Ours { .. } = case.guest {
        // The image has found every read right, and each of those one by one with one interrupt.
        rows.push(counted("interrupts at a CPU of another queue", "interrupts_elsewhere", &|taken| taken == 0.0));
        rows.push(counted("strays", "strays", &|strays| strays == 0.0));
        return rows;
    }
    rows.push(counted("complaints of the kernel", "complaints", &|complaints| complaints == 0.0));
    for cpu in 0..CPUS {
        rows.push(counted(&format!("interrupts at CPU {cpu}"), &format!("cpu{cpu}"), &|taken| taken >= 0.0));
    }
    if case.has_vector_each() {
        let share = count("at_own_cpu") / count("of_queues");
        rows.push(row("of the queues' interrupts, those at a CPU of the queue", share, share > 0.95));
        // A network device is sent to from each CPU, but reaps what it has sent without an interrupt if it can.
        let may_be_silent = if case.kind == Kind::Net { CPUS as f64 } else { 0.0 };
        rows.push(counted("queues without an interrupt", "silent_queues", &|silent| silent <= may_be_silent));
    }
    rows
}

/// What QEMU traced on virt: a device with one interrupt is asked for its status at each, another only where its
/// configuration has changed. Our image takes each interrupt once, and accesses neither distributor nor redistributor.
fn traced(case: &Case, ran: &Ran, row: &dyn Fn(&str, f64, bool) -> Row) -> Vec<Row> {
    let event = |name: &str| ran.events.get(name).copied().unwrap_or(0);
    let exact = |quantity: &str, name: &str, wanted: Option<u64>| {
        row(quantity, event(name) as f64, wanted == Some(event(name)))
    };
    let interrupts = ran.counts.get("interrupts").copied();
    let asked = if case.lines == 1 { interrupts } else { ran.counts.get("of_configuration").copied() };
    let mut rows = vec![
        exact(trace::STATUS_READS, trace::STATUS_READS, asked),
        exact(trace::STATUS_ACKS, trace::STATUS_ACKS, asked),
    ];
    if let Guest::Ours { .. } = case.guest {
        let calm = (event(trace::MARKS) == 2).then_some(0);
        rows.extend([
            exact(CALM_WRITES_ROW, trace::CALM_WRITES, calm),
            exact(CALM_READS_ROW, trace::CALM_READS, calm),
            exact(trace::ACKNOWLEDGED, trace::ACKNOWLEDGED, interrupts),
            exact(trace::DROPPED, trace::DROPPED, interrupts),
            exact(trace::DEACTIVATED, trace::DEACTIVATED, interrupts),
        ]);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTS: [(&str, u64); 12] = [
        ("requests", QUICK),
        ("lines", 5),
        ("interrupts", 1_000),
        ("of_queues", 1_000),
        ("at_own_cpu", 990),
        ("silent_queues", 0),
        ("complaints", 0),
        ("of_configuration", 1),
        ("cpu0", 250),
        ("cpu1", 250),
        ("cpu2", 250),
        ("cpu3", 250),
    ];

    /// The quantities that fail if `name` is `value`.
    fn failing(name: &str, value: u64, accesses: u64) -> Vec<String> {
        let counts = COUNTS.map(|(known, old)| (known.to_owned(), if known == name { value } else { old }));
        let ran = Ran { counts: counts.into_iter().collect(), accesses, ..Ran::default() };
        let new = CASES.iter().find(|case| case.name == "drive, new device, new guest").expect("a case");
        judged(new, QUICK, &ran).into_iter().filter(|row| !row.pass).map(|row| row.quantity).collect()
    }

    #[test]
    fn a_wrong_figure_fails_alone() {
        assert!(failing("", 0, 10).is_empty());
        assert_eq!(failing("requests", QUICK - 1, 0), ["requests completed, each once, data right"]);
        assert_eq!(failing("lines", 2, 0), ["interrupts requested by the driver"]);
        assert_eq!(failing("complaints", 1, 0), ["complaints of the kernel"]);
        assert_eq!(failing("of_configuration", 0, 0), ["interrupts of the configuration"]);
        assert_eq!(failing("silent_queues", 1, 0), ["queues without an interrupt"]);
        assert_eq!(failing("at_own_cpu", 400, 0), ["of the queues' interrupts, those at a CPU of the queue"]);
        let accesses = ["accesses to the transport an interrupt, kicks apart"];
        assert_eq!(failing("", 0, 1_000), accesses);
        assert_eq!(failing("interrupts", 0, 0), ["interrupts", accesses[0]]);
    }

    #[test]
    fn on_virt_an_access_too_many_fails() {
        const EVENTS: [(&str, u64); 8] = [
            (trace::MARKS, 2),
            (trace::STATUS_READS, 1),
            (trace::STATUS_ACKS, 1),
            (trace::CALM_WRITES, 0),
            (trace::CALM_READS, 0),
            (trace::ACKNOWLEDGED, 9),
            (trace::DROPPED, 9),
            (trace::DEACTIVATED, 9),
        ];
        let failing = |case: &str, name: &str, value: u64| {
            let events = EVENTS.map(|(known, old)| (known.to_owned(), if known == name { value } else { old }));
            // Only a drive grows.
            let changes = if case.contains("drive") { 1 } else { 0 };
            let counts = [("interrupts".to_owned(), 9), ("of_configuration".to_owned(), changes)].into();
            let ran = Ran { counts, events: events.into_iter().collect(), ..Ran::default() };
            let case = CASES.iter().find(|known| known.name() == case).expect("a case");
            let row = |quantity: &str, value, pass| Row { quantity: quantity.into(), value, pass, ..Row::default() };
            let rows = traced(case, &ran, &row);
            rows.into_iter().filter(|row| !row.pass).map(|row| row.quantity).collect::<Vec<_>>()
        };
        let ours = "virtio GICv3 drive, new device, ours";
        assert!(failing(ours, "", 0).is_empty());
        assert_eq!(failing(ours, trace::STATUS_READS, 9), [trace::STATUS_READS]);
        assert_eq!(failing(ours, trace::CALM_READS, 1), [CALM_READS_ROW]);
        assert_eq!(failing(ours, trace::ACKNOWLEDGED, 8), [trace::ACKNOWLEDGED]);
        assert_eq!(failing(ours, trace::MARKS, 1), [CALM_WRITES_ROW, CALM_READS_ROW], "no steady state was marked");
        let one = failing("virtio GICv3 drive, old device, ours", "", 0);
        assert_eq!(one, [trace::STATUS_READS, trace::STATUS_ACKS], "one interrupt is asked for each time");
        assert!(failing("virtio GICv3 drive, new device, new guest", trace::ACKNOWLEDGED, 90).is_empty());
        let network = failing("virtio GICv3 network, new device", "", 0);
        assert_eq!(network, [trace::STATUS_READS, trace::STATUS_ACKS], "no configuration has changed");
    }

    #[test]
    fn a_guest_that_fails_is_a_row() {
        let failure = Some("guest: FAILED".into());
        let ran = Ran { failure, ..Ran::default() };
        let rows = judged(&CASES[0], QUICK, &ran);
        assert_eq!((rows.len(), rows[0].pass, rows[0].note.as_deref()), (1, false, Some("guest: FAILED")));
    }

    #[test]
    fn cases_have_names_of_their_own() {
        let names: std::collections::BTreeSet<_> = CASES.iter().map(Case::name).collect();
        assert_eq!(names.len(), CASES.len());
    }
}
