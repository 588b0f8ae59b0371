//! Counts the events in QEMU's trace of a run.

use crate::matrix::{Case, Machine, Setting};
use std::collections::BTreeMap;

/// How often each event happened: QEMU's events by their own names, derived ones by the names below.
pub(crate) type Events = BTreeMap<String, u64>;

/// Reads of the register that marks the start and end of a steady state.
pub(crate) const MARKS: &str = "marks";
/// The register that an image reads: GICD_IIDR.
pub(crate) const IMAGE_MARK: u64 = 0x8;
/// Accesses to distributor and redistributor between the marks.
pub(crate) const CALM_WRITES: &str = "writes between the marks";
pub(crate) const CALM_READS: &str = "reads between the marks";
/// Device interrupts at the CPU interfaces: acknowledged, dropped in priority (ended, with EOImode 0), deactivated.
pub(crate) const ACKNOWLEDGED: &str = "interrupts acknowledged";
pub(crate) const DROPPED: &str = "interrupts dropped in priority";
pub(crate) const DEACTIVATED: &str = "interrupts deactivated";
/// The same between the marks.
pub(crate) const CALM_ACKNOWLEDGED: &str = "interrupts acknowledged between the marks";
pub(crate) const CALM_DROPPED: &str = "interrupts dropped in priority between the marks";
pub(crate) const CALM_DEACTIVATED: &str = "interrupts deactivated between the marks";
/// MOVI commands behind the marks: those of the moves that a guest was told to make. Linux may move an interrupt while it
/// starts a drive, to the CPU with the fewest interrupts at that moment.
pub(crate) const MOVED_BEHIND: &str = "MOVI commands behind the marks";
/// Register accesses that the one interrupt of a virtio-mmio device costs.
pub(crate) const STATUS_READS: &str = "reads of InterruptStatus";
pub(crate) const STATUS_ACKS: &str = "writes of InterruptACK";
/// Messages that a remapping unit refused because the entry names another requester (VT-d, fault reason 26h).
pub(crate) const WRONG_SOURCE: &str = "messages of a wrong requester";

/// Events for QEMU to trace in this setting.
pub(crate) fn traced(setting: &Setting) -> Vec<&'static str> {
    let accesses: &[&str] = match setting.machine {
        Machine::Virt { gic, .. } => accesses(gic),
        Machine::Q35 { remapping: true } => &["vtd_ir_remap_msi"],
        Machine::Q35 { remapping: false } | Machine::Lent { .. } => &[],
    };
    let cpus: &[&str] = match setting.machine {
        Machine::Virt { gic, .. } => interrupts(gic),
        Machine::Q35 { .. } | Machine::Lent { .. } => &[],
    };
    let device: &[&str] = match (setting.case, setting.machine) {
        (Case::VirtioBlk | Case::VirtioNet, _) => &["virtio_mmio_read", "virtio_mmio_write_offset"],
        (Case::Nvme | Case::VirtioIrqs, Machine::Virt { gic: 3, .. }) => {
            &["gicv3_its_translation_write", "gicv3_its_cmd_int", "gicv3_its_cmd_inv", "gicv3_its_cmd_movi"]
        }
        _ => &[],
    };
    if setting.case.traces_interrupts() { [accesses, cpus, device].concat() } else { accesses.to_vec() }
}

/// Every access to distributor and redistributor.
pub(crate) fn accesses(gic: u8) -> &'static [&'static str] {
    match gic {
        2 => &["gic_dist_write", "gic_dist_read"],
        _ => &["gicv3_dist_write", "gicv3_dist_read", "gicv3_redist_write", "gicv3_redist_read"],
    }
}

/// Every interrupt at a CPU interface: acknowledged, dropped in priority, deactivated.
pub(crate) fn interrupts(gic: u8) -> &'static [&'static str] {
    match gic {
        2 => &["gic_cpu_read", "gic_cpu_write"],
        _ => &["gicv3_icc_iar1_read", "gicv3_icc_eoir_write", "gicv3_icc_dir_write"],
    }
}

/// The number of accesses to distributor and redistributor by events whose names end with `which`: `_write` or
/// `_read`.
pub(crate) fn sum(events: &Events, which: &str) -> i64 {
    let accesses = events.iter().filter(|(event, _)| event.contains("dist_") && event.ends_with(which));
    accesses.map(|(_, &count)| count as i64).sum()
}

/// The register that a Linux guest reads as a mark: GICD_CIDR0, which the kernel leaves alone. It reads GICD_IIDR.
pub(crate) fn linux_mark(gic: u8) -> u64 {
    if gic == 2 { 0xff0 } else { 0xfff0 }
}

/// Counts the lines of a trace. `mark` is the offset of the distributor's register that is read as a mark.
pub(crate) fn count(lines: impl Iterator<Item = std::io::Result<String>>, mark: u64) -> std::io::Result<Events> {
    let mut events = Events::new();
    for line in lines {
        note(&line?, mark, &mut events);
    }
    Ok(events)
}

fn note(line: &str, mark: u64, events: &mut Events) {
    let event = line.split_whitespace().next().unwrap_or_default();
    let marks = events.get(MARKS).copied().unwrap_or(0);
    let is_calm = marks == 1;
    let mut add = |name: &str| *events.entry(name.to_owned()).or_default() += 1;
    add(event);
    if event == "vtd_ir_fault" && after(line, " reason ") == Some(0x26) {
        add(WRONG_SOURCE);
    }
    if event == "gicv3_its_cmd_movi" && marks == 2 {
        add(MOVED_BEHIND);
    }
    if let Some(what) = at_cpu(event, line).or_else(|| at_device(event, line)) {
        add(what);
        let calm = match what {
            ACKNOWLEDGED => Some(CALM_ACKNOWLEDGED),
            DROPPED => Some(CALM_DROPPED),
            DEACTIVATED => Some(CALM_DEACTIVATED),
            _ => None,
        };
        calm.filter(|_| is_calm).iter().for_each(|calm| add(calm));
    }
    let is_read = matches!(event, "gic_dist_read" | "gicv3_dist_read" | "gicv3_redist_read");
    let is_write = matches!(event, "gic_dist_write" | "gicv3_dist_write" | "gicv3_redist_write");
    // GICD_SGIR sends the kernel's own software-generated interrupts; a GICv3 sends them by a system register.
    let is_send = event == "gic_dist_write" && offset(line) == Some(0xf00);
    if event.ends_with("dist_read") && event != "gicv3_redist_read" && offset(line) == Some(mark) {
        add(MARKS);
    } else if (is_read || is_write) && !is_send && is_calm {
        *events.entry((if is_write { CALM_WRITES } else { CALM_READS }).to_owned()).or_default() += 1;
    }
}

/// The event of an access to a virtio-mmio device, if the access serves its interrupt.
fn at_device(event: &str, line: &str) -> Option<&'static str> {
    match (event, offset(line)) {
        ("virtio_mmio_read", Some(0x60)) => Some(STATUS_READS),
        ("virtio_mmio_write_offset", Some(0x64)) => Some(STATUS_ACKS),
        _ => None,
    }
}

/// The event of a CPU interface, if it concerns a device's interrupt: an LPI or an SPI.
fn at_cpu(event: &str, line: &str) -> Option<&'static str> {
    let is_device = |intid: Option<u64>| intid.is_some_and(|intid| (32..1020).contains(&intid) || intid >= 8192);
    match event {
        "gicv3_icc_iar1_read" => is_device(after(line, "value ")).then_some(ACKNOWLEDGED),
        "gicv3_icc_eoir_write" => is_device(after(line, "value ")).then_some(DROPPED),
        "gicv3_icc_dir_write" => is_device(after(line, "value ")).then_some(DEACTIVATED),
        // GICC_IAR, GICC_EOIR and GICC_DIR; bits 12:10 of the value are an SGI's sender.
        "gic_cpu_read" | "gic_cpu_write" => {
            let value = line.split_whitespace().last().and_then(number);
            let what = match (event, offset(line)?) {
                ("gic_cpu_read", 0x0c) => ACKNOWLEDGED,
                ("gic_cpu_write", 0x10) => DROPPED,
                ("gic_cpu_write", 0x1000) => DEACTIVATED,
                _ => return None,
            };
            is_device(value).then_some(what)
        }
        _ => None,
    }
}

/// The register of an access: `… at 0x00000f00 …` or `… offset 0xf00 …`.
fn offset(line: &str) -> Option<u64> {
    after(line, " at ").or_else(|| after(line, " offset "))
}

fn after(line: &str, mark: &str) -> Option<u64> {
    number(line.split_once(mark)?.1.split_whitespace().next()?)
}

fn number(word: &str) -> Option<u64> {
    u64::from_str_radix(word.trim_end_matches(':').strip_prefix("0x")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(lines: &str) -> Vec<(String, u64)> {
        let lines = lines.lines().map(|line| Ok(line.trim().to_owned()));
        count(lines, IMAGE_MARK).expect("no file is read").into_iter().filter(|(name, _)| name.contains(' ')).collect()
    }

    /// The lines as QEMU 7.2 writes them.
    #[test]
    fn a_gicv3s_trace_is_read() {
        let trace = "gicv3_dist_write GICv3 distributor write: offset 0x0 data 0x0 size 4 secure 0
            gicv3_dist_read GICv3 distributor read: offset 0x8 data 0x43b size 4 secure 0
            gicv3_redist_write GICv3 redistributor 0x0 write: offset 0x8 data 0x1 size 4 secure 0
            gicv3_redist_read GICv3 redistributor 0x1 read: offset 0x8 data 0x101000101 size 8 secure 0
            gicv3_icc_iar1_read GICv3 ICC_IAR1 read cpu 0x0 value 0x2000
            gicv3_icc_iar1_read GICv3 ICC_IAR1 read cpu 0x0 value 0x3ff
            gicv3_icc_eoir_write GICv3 ICC_EOIR1 write cpu 0x0 value 0x2000
            gicv3_icc_dir_write GICv3 ICC_DIR write cpu 0x2 value 0x0
            gicv3_dist_read GICv3 distributor read: offset 0x8 data 0x43b size 4 secure 0
            gicv3_dist_write GICv3 distributor write: offset 0x84 data 0x0 size 4 secure 0";
        let calm = [(CALM_ACKNOWLEDGED, 1), (CALM_DROPPED, 1)];
        let expected = [(ACKNOWLEDGED, 1), calm[0], (DROPPED, 1), calm[1], (CALM_READS, 1), (CALM_WRITES, 1)];
        assert_eq!(counted(trace), expected.map(|(name, value)| (name.to_owned(), value)));
        let device = "virtio_mmio_read virtio_mmio_read offset 0x60
            virtio_mmio_read virtio_mmio_read offset 0x70
            virtio_mmio_write_offset virtio_mmio_write offset 0x64 value 0x1";
        assert_eq!(
            counted(device),
            [(STATUS_READS, 1), (STATUS_ACKS, 1)].map(|(name, value)| (name.to_owned(), value))
        );
        let dir = "gicv3_icc_dir_write GICv3 ICC_DIR write cpu 0x2 value 0x2001";
        assert_eq!(counted(dir), [(DEACTIVATED.to_owned(), 1)]);
    }

    #[test]
    fn linux_marks_by_another_register() {
        let trace = "gicv3_dist_read GICv3 distributor read: offset 0x8 data 0x43b size 4 secure 0
            gicv3_dist_read GICv3 distributor read: offset 0xfff0 data 0xd size 4 secure 0
            gicv3_dist_write GICv3 distributor write: offset 0x84 data 0x0 size 4 secure 0
            gicv3_its_cmd_movi GICv3 ITS: command MOVI DeviceID 0x10 EventID 0x0 ICID 0x2
            gicv3_dist_read GICv3 distributor read: offset 0xfff0 data 0xd size 4 secure 0
            gicv3_its_cmd_movi GICv3 ITS: command MOVI DeviceID 0x10 EventID 0x0 ICID 0x1";
        let lines = trace.lines().map(|line| Ok(line.trim().to_owned()));
        let events = count(lines, linux_mark(3)).expect("no file is read");
        assert_eq!((events[MARKS], events[CALM_WRITES], events.get(CALM_READS)), (2, 1, None));
        assert_eq!(
            (events["gicv3_its_cmd_movi"], events[MOVED_BEHIND]),
            (2, 1),
            "the guest's own is not one of its moves"
        );
    }

    #[test]
    fn a_gicv2s_trace_is_read() {
        let trace = "gic_dist_read dist read at 0x00000008 size 4: 0x0000043b
            gic_dist_write dist write at 0x00000f00 size 4: 0x00020000
            gic_dist_write dist write at 0x00000180 size 4: 0x00020000
            gic_cpu_read cpu 0 iface read at 0x0000000c: 0x00000050
            gic_cpu_read cpu 0 iface read at 0x0000000c: 0x000003ff
            gic_cpu_write cpu 0 iface write at 0x00000010 0x00000050
            gic_cpu_write cpu 0 iface write at 0x00001000 0x00000050
            gic_cpu_write cpu 0 iface write at 0x00001000 0x00000400";
        let calm = [(CALM_ACKNOWLEDGED, 1), (CALM_DEACTIVATED, 1), (CALM_DROPPED, 1)];
        let expected = [(ACKNOWLEDGED, 1), calm[0], (DEACTIVATED, 1), calm[1], (DROPPED, 1), calm[2], (CALM_WRITES, 1)];
        assert_eq!(counted(trace), expected.map(|(name, value)| (name.to_owned(), value)));
    }
}
