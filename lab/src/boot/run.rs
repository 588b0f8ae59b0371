//! What a setting is judged by.

use super::image::Image;
use super::matrix::{Machine, Setting};
use super::qemu::{self, Run};
use super::{BootError, Row};

/// The shorter of the two runs whose difference is taken.
const SHORT_ROUNDS: u64 = 20;
/// A trace of more reads would fill disks.
const TRACED_READS_MAX: u64 = 100_000;

/// Runs a setting, and says what was counted.
///
/// # Errors
/// [`BootError`].
pub(super) fn measure(setting: &Setting, image: &Image) -> Result<Vec<Row>, BootError> {
    let traced = setting.rounds <= TRACED_READS_MAX;
    let run = qemu::run(setting, image, traced)?;
    let needs_short = run.failure.is_none() && setting.accesses().is_some();
    let short = Setting { rounds: SHORT_ROUNDS, ..*setting };
    let short = if needs_short { Some(qemu::run(&short, image, traced)?) } else { None };
    Ok(judge(setting, &run, short.as_ref(), traced))
}

/// The figures of a run, and what is judged from the difference to a shorter one.
fn judge(setting: &Setting, run: &Run, short: Option<&Run>, traced: bool) -> Vec<Row> {
    let row = |quantity: &str, value: f64, pass: bool| {
        let (case, quantity) = (setting.to_string(), quantity.into());
        Row { case, quantity, value, pass, note: None }
    };
    if let Some(failure) = run.failure.as_ref().or(short.and_then(|short| short.failure.as_ref())) {
        return vec![Row { note: Some(failure.clone()), ..row("failures", 1.0, false) }];
    }
    let counted = |run: &Run, name: &str| run.counts.get(name).copied();
    let asked = setting.asked();
    // The image has judged its figures itself; those that tell where it ran stand in the name of the case already.
    let figures = run.counts.iter().filter(|(name, _)| !asked.iter().any(|(asked, _)| asked == name));
    let mut rows: Vec<Row> = figures.map(|(name, &value)| row(&name.replace('_', " "), value as f64, true)).collect();
    let elsewhere = asked.iter().filter(|&&(name, wanted)| counted(run, name) != Some(wanted));
    rows.extend(elsewhere.map(|(name, _)| row(name, counted(run, name).map_or(f64::NAN, |value| value as f64), false)));
    if let (Some(wanted), Some(short)) = (setting.accesses(), short) {
        let interrupts = |run| counted(run, "interrupts").map_or(f64::NAN, |count| count as f64);
        let each = |which: &str| difference(run, short, which) as f64 / (interrupts(run) - interrupts(short));
        let (writes, reads) = (each("_write"), each("_read"));
        rows.push(row("GIC writes an interrupt", writes, writes == wanted.writes as f64));
        rows.push(row("GIC reads an interrupt", reads, reads == wanted.reads as f64));
    }
    if traced && setting.machine == (Machine::Q35 { remapping: true }) {
        let remapped = run.events.get("vtd_ir_remap_msi").copied().unwrap_or(0);
        // Messages that find their vector requested already become one interrupt with it.
        let covered = counted(run, "interrupts").is_some_and(|interrupts| remapped >= interrupts);
        rows.push(row("MSIs that QEMU remapped", remapped as f64, covered));
    }
    rows
}

/// How many more events of a kind the longer run has.
fn difference(long: &Run, short: &Run, which: &str) -> i64 {
    let sum = |run: &Run| {
        let events = run.events.iter().filter(|(event, _)| event.ends_with(which));
        events.map(|(_, &count)| count as i64).sum::<i64>()
    };
    sum(long) - sum(short)
}

#[cfg(test)]
mod tests {
    use super::super::matrix::Case;
    use super::*;

    const SETTING: Setting =
        Setting { case: Case::Serial, machine: Machine::Virt { gic: 3, level: 2, eoi_mode: 1 }, cpus: 4, rounds: 200 };

    fn run(interrupts: u64, writes: u64, reads: u64) -> Run {
        let counts = [("exception_level", 2), ("gic_version", 3), ("cpus", 4), ("interrupts", interrupts)];
        let events = [("gicv3_dist_write", writes - 1), ("gicv3_redist_write", 1), ("gicv3_redist_read", reads)];
        Run {
            counts: counts.map(|(name, value)| (name.into(), value)).into(),
            events: events.map(|(name, value)| (name.into(), value)).into(),
            failure: None,
        }
    }

    fn failing(long: &Run, short: &Run) -> Vec<String> {
        let rows = judge(&SETTING, long, Some(short), true);
        rows.into_iter().filter(|row| !row.pass).map(|row| row.quantity).collect()
    }

    #[test]
    fn one_access_too_many_fails() {
        assert!(failing(&run(200, 50, 7), &run(20, 50, 7)).is_empty());
        assert_eq!(failing(&run(200, 51, 7), &run(20, 50, 7)), ["GIC writes an interrupt"]);
        assert_eq!(failing(&run(200, 50, 187), &run(20, 50, 7)), ["GIC reads an interrupt"]);
    }

    #[test]
    fn what_is_missing_fails_too() {
        let (mut long, short) = (run(200, 50, 7), run(20, 50, 7));
        long.counts.remove("exception_level");
        assert_eq!(failing(&long, &short), ["exception_level"]);
        long.counts.remove("interrupts");
        assert_eq!(failing(&long, &short).len(), 3);
        let broken = Run { failure: Some("hung".into()), ..run(20, 50, 7) };
        assert_eq!(failing(&run(200, 50, 7), &broken), ["failures"]);
        let setting = Setting { case: Case::Nvme, machine: Machine::Q35 { remapping: true }, ..SETTING };
        assert!(judge(&setting, &run(200, 50, 7), None, true).iter().any(|row| !row.pass && row.value == 0.0));
    }
}
