//! Runs a setting and judges its counts.

use crate::image::Image;
use crate::launch::{self, Run};
use crate::matrix::{Case, Machine, Setting};
use crate::{BootError, Row, trace};
use std::path::Path;

/// Accesses to distributor and redistributor, by the difference between two runs.
pub(crate) const WRITES: &str = "GIC writes an interrupt";
pub(crate) const READS: &str = "GIC reads an interrupt";
/// Accesses between the marks, and commands of an ITS.
pub(crate) const CALM_WRITES_ROW: &str = "GIC writes in the steady state";
pub(crate) const CALM_READS_ROW: &str = "GIC reads in the steady state";
pub(crate) const MOVI_COMMANDS: &str = "MOVI commands";
pub(crate) const INV_COMMANDS: &str = "INV commands";
/// Rounds of the shorter of the two runs that are subtracted.
const SHORT_ROUNDS: u64 = 20;
/// Most reads of a traced run; a trace of more would fill disks.
const TRACED_READS_MAX: u64 = 100_000;

/// Runs a setting and returns its counts.
///
/// # Errors
/// [`BootError`].
pub(crate) fn measure(setting: &Setting, image: &Image, campanile: &Path) -> Result<Vec<Row>, BootError> {
    let traced = setting.rounds <= TRACED_READS_MAX;
    let run = launch::run(setting, image, campanile, traced)?;
    let needs_short = run.failure.is_none() && setting.accesses().is_some();
    let short = Setting { rounds: SHORT_ROUNDS, ..*setting };
    let short = if needs_short { Some(launch::run(&short, image, campanile, traced)?) } else { None };
    Ok(judge(setting, &run, short.as_ref(), traced))
}

/// The figures of a run, and the verdicts on its difference from a shorter run.
fn judge(setting: &Setting, run: &Run, short: Option<&Run>, traced: bool) -> Vec<Row> {
    let row = |quantity: &str, value: f64, pass: bool| {
        let (case, quantity) = (setting.to_string(), quantity.into());
        Row { case, quantity, value, pass, ..Row::default() }
    };
    if let Some(failure) = run.failure.as_ref().or(short.and_then(|short| short.failure.as_ref())) {
        return vec![Row { note: Some(failure.clone()), ..row("failures", 1.0, false) }];
    }
    let counted = |run: &Run, name: &str| run.counts.get(name).copied();
    let asked = setting.asked();
    // The image has judged its own figures. The figures that say where it ran are already in the case's name.
    let figures = run.counts.iter().filter(|(name, _)| !asked.iter().any(|(asked, _)| asked == name));
    let mut rows: Vec<Row> = figures.map(|(name, &value)| row(&name.replace('_', " "), value as f64, true)).collect();
    let elsewhere = asked.iter().filter(|&&(name, wanted)| counted(run, name) != Some(wanted));
    rows.extend(elsewhere.map(|(name, _)| row(name, counted(run, name).map_or(f64::NAN, |value| value as f64), false)));
    if let (Some(wanted), Some(short)) = (setting.accesses(), short) {
        let interrupts = |run| counted(run, "interrupts").map_or(f64::NAN, |count| count as f64);
        let each = |which: &str| {
            (trace::sum(&run.events, which) - trace::sum(&short.events, which)) as f64
                / (interrupts(run) - interrupts(short))
        };
        let (writes, reads) = (each("_write"), each("_read"));
        rows.push(row(WRITES, writes, writes == wanted.writes as f64));
        rows.push(row(READS, reads, reads == wanted.reads as f64));
    }
    if traced && setting.machine == (Machine::Q35 { remapping: true }) {
        let remapped = run.events.get("vtd_ir_remap_msi").copied().unwrap_or(0);
        // A message whose vector is already requested merges with that interrupt.
        let covered = counted(run, "interrupts").is_some_and(|interrupts| remapped >= interrupts);
        rows.push(row("MSIs that QEMU remapped", remapped as f64, covered));
    }
    if let Some(&posts) = run.counts.get("posts") {
        // The same device sends one message per post where nothing posts, so the ratio must be below 1.
        let sent = counted(run, "notifications_sent").map_or(f64::NAN, |count| count as f64);
        let each = sent / posts as f64;
        rows.push(row("notifications per post", each, each > 0.0 && each < 1.0));
    }
    if setting.case == Case::VirtioIrqs {
        rows.extend(vectors(run).into_iter().map(|(quantity, value, pass)| row(quantity, value, pass)));
    }
    if setting.case.traces_interrupts() && matches!(setting.machine, Machine::Virt { .. }) {
        rows.extend(interrupts(setting, run).into_iter().map(|(quantity, value, pass)| row(quantity, value, pass)));
    }
    if let Some(first) = rows.first_mut() {
        first.policy.clone_from(&run.policy);
    }
    rows
}

/// Checks our own device with several interrupts: it sends a message for each interrupt, and interrupts cost no
/// register access.
fn vectors(run: &Run) -> Vec<(&'static str, f64, bool)> {
    let device = |name: &str| run.device.get(name).copied();
    let value = |count: Option<u64>| count.map_or(f64::NAN, |count| count as f64);
    let none = |name| (value(device(name)), device(name) == Some(0));
    let (reads, no_reads) = none("status_reads");
    let (acks, no_acks) = none("acknowledgements");
    // Two messages may merge into one interrupt.
    let sent = device("msis");
    let covered = sent.zip(run.counts.get("interrupts").copied()).is_some_and(|(sent, taken)| sent >= taken);
    vec![
        ("messages that the device sent", value(sent), covered),
        (trace::STATUS_READS, reads, no_reads),
        ("acknowledgements to the device", acks, no_acks),
    ]
}

/// Checks a device's interrupts on a GIC. Each is acknowledged once and ended once, and an LPI is never deactivated.
/// In the steady state the CPUs access neither distributor nor redistributor.
fn interrupts(setting: &Setting, run: &Run) -> Vec<(&'static str, f64, bool)> {
    let Machine::Virt { gic, eoi_mode, .. } = setting.machine else { return Vec::new() };
    let has_its = setting.case.sends_messages() && gic == 3;
    let event = |name: &str| run.events.get(name).copied().unwrap_or(0);
    let counted = |name: &str| run.counts.get(name).copied();
    let (interrupts, moves) = (counted("interrupts"), counted("moves"));
    let deactivated = if has_its || eoi_mode == 0 { Some(0) } else { interrupts };
    let exact = |quantity: &'static str, name: &str, wanted: Option<u64>| {
        (quantity, event(name) as f64, wanted == Some(event(name)))
    };
    let is_marked = event(trace::MARKS) == 2;
    let calm = |quantity: &'static str, name: &str| (quantity, event(name) as f64, is_marked && event(name) == 0);
    let mut rows = vec![
        calm(CALM_WRITES_ROW, trace::CALM_WRITES),
        calm(CALM_READS_ROW, trace::CALM_READS),
        exact(trace::ACKNOWLEDGED, trace::ACKNOWLEDGED, interrupts),
        exact(trace::DROPPED, trace::DROPPED, interrupts),
        exact(trace::DEACTIVATED, trace::DEACTIVATED, deactivated),
    ];
    if setting.case.has_single_interrupts() {
        rows.push(exact(trace::STATUS_READS, trace::STATUS_READS, interrupts));
        rows.push(exact(trace::STATUS_ACKS, trace::STATUS_ACKS, interrupts));
    }
    if has_its {
        // A message whose LPI is already pending merges with that interrupt.
        let sent = event("gicv3_its_translation_write") + event("gicv3_its_cmd_int");
        rows.push(("messages sent to the ITS", sent as f64, interrupts.is_some_and(|interrupts| sent >= interrupts)));
    }
    if has_its && setting.case == Case::Nvme {
        let moved = event("gicv3_its_cmd_movi");
        // With one CPU there is no other CPU to move a line to.
        let moves = moves.map(|moves| if setting.cpus == 1 { 0 } else { moves });
        rows.push((MOVI_COMMANDS, moved as f64, moves.is_some_and(|moves| moved >= moves)));
        rows.push((INV_COMMANDS, event("gicv3_its_cmd_inv") as f64, true));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Case;

    const SETTING: Setting =
        Setting { case: Case::Serial, machine: Machine::Virt { gic: 3, level: 2, eoi_mode: 1 }, cpus: 4, rounds: 200 };

    fn run(interrupts: u64, writes: u64, reads: u64) -> Run {
        let counts = [("exception_level", 2), ("gic_version", 3), ("cpus", 4), ("interrupts", interrupts)];
        let events = [("gicv3_dist_write", writes - 1), ("gicv3_redist_write", 1), ("gicv3_redist_read", reads)];
        Run {
            counts: counts.map(|(name, value)| (name.into(), value)).into(),
            events: events.map(|(name, value)| (name.into(), value)).into(),
            device: [].into(),
            policy: None,
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
    fn the_policy_of_a_run_is_kept_once() {
        let policy = "4 CPUs, messages remapped, not posted: the unit cannot post";
        let long = Run { policy: Some(policy.into()), ..run(200, 50, 7) };
        let rows = judge(&SETTING, &long, Some(&run(20, 50, 7)), true);
        let kept: Vec<&str> = rows.iter().filter_map(|row| row.policy.as_deref()).collect();
        assert_eq!(kept, [policy]);
        assert!(crate::table(&rows).contains(&format!("{SETTING}: {policy}\n")));
    }

    #[test]
    fn an_interrupt_is_ended_once_and_an_lpi_never_deactivated() {
        let run = |marks, acknowledged, dropped, deactivated, calm| Run {
            counts: [("interrupts", 7), ("moves", 2)].map(|(name, value)| (name.into(), value)).into(),
            events: [
                (trace::MARKS, marks),
                (trace::ACKNOWLEDGED, acknowledged),
                (trace::DROPPED, dropped),
                (trace::DEACTIVATED, deactivated),
                (trace::CALM_WRITES, calm),
                ("gicv3_its_translation_write", 7),
                ("gicv3_its_cmd_movi", 2),
            ]
            .map(|(name, value)| (name.into(), value))
            .into(),
            device: [].into(),
            policy: None,
            failure: None,
        };
        let failing = |run: Run, gic, eoi_mode| {
            let machine = Machine::Virt { gic, level: 1, eoi_mode };
            let rows = interrupts(&Setting { case: Case::Nvme, machine, ..SETTING }, &run);
            rows.into_iter().filter(|row| !row.2).map(|row| row.0).collect::<Vec<_>>()
        };
        assert!(failing(run(2, 7, 7, 0, 0), 3, 1).is_empty());
        assert!(failing(run(2, 7, 7, 7, 0), 2, 1).is_empty());
        assert!(failing(run(2, 7, 7, 0, 0), 2, 0).is_empty());
        assert_eq!(failing(run(2, 7, 7, 1, 0), 3, 1), [trace::DEACTIVATED]);
        assert_eq!(failing(run(2, 7, 7, 6, 0), 2, 1), [trace::DEACTIVATED]);
        assert_eq!(failing(run(2, 6, 8, 0, 1), 3, 1).len(), 3);
        assert_eq!(failing(run(1, 7, 7, 0, 0), 3, 1).len(), 2, "no steady state was marked");
    }

    #[test]
    fn posts_that_notify_each_time_fail() {
        let posts = |sent: Option<u64>| {
            let counts = [("cpus", Some(2)), ("remapping", Some(0)), ("posting", Some(1)), ("posts", Some(100))];
            let counts = counts.into_iter().chain([("notifications_sent", sent)]);
            let counts = counts.filter_map(|(name, value)| Some((name.into(), value?))).collect();
            let run = Run { counts, policy: None, events: Default::default(), device: [].into(), failure: None };
            let machine = Machine::Lent { posting: true };
            let rows = judge(&Setting { case: Case::Posts, machine, cpus: 2, rounds: 100 }, &run, None, true);
            rows.into_iter().filter(|row| !row.pass).map(|row| row.quantity).collect::<Vec<_>>()
        };
        assert!(posts(Some(3)).is_empty());
        for wrong in [Some(0), Some(100), None] {
            assert_eq!(posts(wrong), ["notifications per post"], "{wrong:?}");
        }
    }

    #[test]
    fn a_device_that_was_asked_for_its_status_fails() {
        let run = |device: &[(&str, u64)]| Run {
            device: device.iter().map(|&(name, value)| (name.into(), value)).collect(),
            ..run(7, 1, 0)
        };
        let failing = |run: &Run| vectors(run).iter().filter(|row| !row.2).count();
        assert_eq!(failing(&run(&[("msis", 8), ("status_reads", 0), ("acknowledgements", 0)])), 0);
        assert_eq!(failing(&run(&[("msis", 6), ("status_reads", 1), ("acknowledgements", 1)])), 3);
        assert_eq!(failing(&run(&[])), 3, "a device that says nothing");
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
