//! Linux and two NVMe drives by messages: LPIs through the ITS, or SPIs through the v2m frame.

use super::{Linux, traced, virt};
use crate::disk::Disk;
use crate::matrix::Setting;
use crate::process::Answer;
use crate::run::{CALM_READS_ROW, CALM_WRITES_ROW, INV_COMMANDS, MOVI_COMMANDS};
use crate::trace::{self, Events};
use crate::{BootError, Row};
use std::collections::BTreeMap;

/// CPUs of the guest. With one there is no other to move an interrupt to.
pub(super) const CPUS: u32 = 4;
/// Undisturbed reads.
const READS: u64 = 4_000;
/// Reads in flight of a CPU.
const DEPTH: u64 = 4;
const MOVES: u64 = 40;

/// What the guest printed and QEMU traced, or the guest's failure.
pub(super) type Counted = Result<(BTreeMap<String, u64>, Events), String>;

/// Runs the guest. One drive has a queue and a vector for each CPU, the other a single vector.
///
/// # Errors
/// [`BootError`].
pub(super) fn measure(linux: &Linux, setting: &Setting, gic: u8, level: u8) -> Result<Counted, BootError> {
    let mark = trace::linux_mark(gic);
    let work = format!("case=messages reads={READS} depth={DEPTH} moves={MOVES} mark={mark}");
    let options = format!("console=ttyAMA0 iomem=relaxed {work}");
    let mut qemu = linux.command_with(&linux.kernel, CPUS, &options);
    qemu.args(virt(gic, level));
    let io = |error| BootError::Io("the drives' files".into(), error);
    let folder = tempfile::tempdir().map_err(io)?;
    for (drive, vectors) in [("a", ""), ("b", ",msix_qsize=1")] {
        qemu.args(["-drive", &Disk::create(folder.path(), drive)?.argument()]);
        qemu.args(["-device", &format!("nvme,serial={drive},drive={drive}{vectors}")]);
    }
    let ran = traced(qemu, &trace::traced(setting), mark, folder.path(), Answer::None)?;
    Ok(ran.map(|(ended, events)| (ended.counts(), events)))
}

/// Puts Linux's figures beside ours. Between the marks each interrupt must be acknowledged and ended once, and only an SPI
/// in EOImode 1, which Linux takes when it is entered at EL2, is deactivated. A move through the ITS is one command.
pub(super) fn put(rows: &mut Vec<Row>, peer: &Counted, gic: u8, level: u8) {
    // A run of ours that failed has no figures.
    let Some(ours) = rows.iter().find(|row| row.quantity == "interrupts").cloned() else { return };
    let (counts, events) = match peer {
        Ok(counted) => counted,
        Err(failure) => {
            let (quantity, note) = ("Linux's figures".into(), Some(format!("Linux: {failure}")));
            rows.push(Row { quantity, value: f64::NAN, pass: false, note, policy: None, ..ours });
            return;
        }
    };
    let count = |name: &str| counts.get(name).copied().map_or(f64::NAN, |count| count as f64);
    let event = |name: &str| events.get(name).copied().unwrap_or(0) as f64;
    let is_marked = event(trace::MARKS) == 2.0;
    for row in &mut *rows {
        let (value, is_right) = match row.quantity.as_str() {
            "reads" => (count("reads"), count("reads") >= READS as f64),
            "interrupts" => (count("interrupts"), count("interrupts") >= count("calm_interrupts")),
            "moves" => (count("moves"), count("moves") == MOVES as f64),
            CALM_WRITES_ROW => (event(trace::CALM_WRITES), is_marked && event(trace::CALM_WRITES) == 0.0),
            CALM_READS_ROW => (event(trace::CALM_READS), is_marked && event(trace::CALM_READS) == 0.0),
            MOVI_COMMANDS => (event(trace::MOVED_BEHIND), event(trace::MOVED_BEHIND) == MOVES as f64),
            INV_COMMANDS => (event("gicv3_its_cmd_inv"), true),
            _ => continue,
        };
        row.peer_value = Some(value);
        row.pass &= is_right;
    }
    let deactivated = if gic == 2 && level == 2 { 1.0 } else { 0.0 };
    let each = [
        ("acknowledges an interrupt", trace::ACKNOWLEDGED, trace::CALM_ACKNOWLEDGED, 1.0),
        ("priority drops an interrupt", trace::DROPPED, trace::CALM_DROPPED, 1.0),
        ("deactivations an interrupt", trace::DEACTIVATED, trace::CALM_DEACTIVATED, deactivated),
    ];
    for (quantity, total, calm, expected) in each {
        let total = rows.iter().find(|row| row.quantity == total).map_or(f64::NAN, |row| row.value);
        let linux = event(calm) / count("calm_interrupts");
        rows.push(Row {
            quantity: quantity.into(),
            value: total / ours.value,
            peer_value: Some(linux),
            pass: is_marked && linux == expected,
            policy: None,
            note: None,
            ..ours.clone()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: [(&str, u64); 6] = [
        (trace::MARKS, 2),
        (trace::CALM_ACKNOWLEDGED, 1_000),
        (trace::CALM_DROPPED, 1_000),
        (trace::CALM_DEACTIVATED, 0),
        (trace::MOVED_BEHIND, MOVES),
        ("gicv3_its_cmd_inv", 9),
    ];

    /// The quantities that fail on a GICv3 if the event `name` happens `value` times.
    fn failing(name: &str, value: u64, gic: u8) -> Vec<String> {
        let counts = [("reads", READS), ("interrupts", 1_100), ("calm_interrupts", 1_000), ("moves", MOVES)];
        let counts = counts.map(|(name, count)| (name.to_owned(), count)).into();
        let mut events: Events = EVENTS.map(|(name, count)| (name.to_owned(), count)).into();
        events.insert(name.to_owned(), value);
        let row = |quantity: &str| Row { quantity: quantity.into(), value: 7.0, pass: true, ..Row::default() };
        let quantities = ["reads", "interrupts", "moves", CALM_WRITES_ROW, CALM_READS_ROW, MOVI_COMMANDS];
        let quantities = quantities.into_iter().chain([trace::ACKNOWLEDGED, trace::DROPPED, trace::DEACTIVATED]);
        let mut rows: Vec<Row> = quantities.map(row).collect();
        put(&mut rows, &Ok((counts, events)), gic, 2);
        assert!(rows[..6].iter().all(|row| row.peer_value.is_some()));
        rows.into_iter().filter(|row| !row.pass).map(|row| row.quantity).collect()
    }

    #[test]
    fn a_wrong_figure_of_linux_fails_alone() {
        assert!(failing("", 0, 3).is_empty());
        assert_eq!(failing(trace::CALM_ACKNOWLEDGED, 999, 3), ["acknowledges an interrupt"]);
        assert_eq!(failing(trace::CALM_DEACTIVATED, 1_000, 3), ["deactivations an interrupt"]);
        assert!(failing(trace::CALM_DEACTIVATED, 1_000, 2).is_empty());
        assert_eq!(failing(trace::CALM_WRITES, 1, 3), [CALM_WRITES_ROW]);
        assert_eq!(failing(trace::MOVED_BEHIND, MOVES + 1, 3), [MOVI_COMMANDS]);
        assert_eq!(failing(trace::MARKS, 1, 3).len(), 5, "no steady state was marked");
    }

    #[test]
    fn a_guest_that_fails_is_a_row_and_ours_alone_keeps_its_failure() {
        let row = |quantity: &str| Row { quantity: quantity.into(), pass: true, ..Row::default() };
        let mut rows = vec![row("interrupts")];
        put(&mut rows, &Err("hung".into()), 3, 2);
        assert_eq!((rows[1].pass, rows[1].note.as_deref()), (false, Some("Linux: hung")));
        let mut rows = vec![row("failures")];
        put(&mut rows, &Err("hung".into()), 3, 2);
        assert_eq!(rows.len(), 1);
    }
}
