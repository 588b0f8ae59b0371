//! Linux and our image on a QEMU whose VT-d posts interrupts (`judges/`): the same machine and drives, posted and
//! remapped.
//!
//! - **storm**: a drive with a queue and a vector for each CPU, four CPUs. Lines move and CPUs go offline and come back
//!   under load. Every read must complete once with the right data, and nothing may be refused. Posted also with local
//!   APICs in x2APIC mode.
//! - **bursts**: drives whose vectors all go to one of two CPUs. A plugin counts the instructions from the gate to the write
//!   of EOI, by the number of handlers in between.
//!
//! - **stranger**: a function of another requester sends messages of the drive. The unit must refuse each of them for that
//!   reason, and the drive must go on.
//!
//! A guest's own failures are judged: lost, doubled and late reads, wrong data. Counts of notifications depend on the
//! host's threads; they are printed, and judged only as the text above says.

mod gates;
mod machine;
mod virtio;

pub(crate) use self::virtio::measure as measure_virtio;

use self::gates::Gates;
use self::machine::{Judge, Load, Mode, Ran, Who};
use crate::{BootError, Row, trace};
use std::path::Path;

/// Sizes of a run.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    /// Reads of each system in a storm, and in bursts.
    storm: u64,
    bursts: u64,
    moves: u64,
    trips: u64,
}

const FULL: Sizes = Sizes { storm: 100_000, bursts: 20_000, moves: 1_000, trips: 200 };
const QUICK: Sizes = Sizes { storm: 20_000, bursts: 4_000, moves: 60, trips: 12 };
/// For an image alone, which has time for more moves and trips.
const ALONE: Sizes = Sizes { moves: 400, trips: 100, ..QUICK };

const READS: &str = "reads completed, each once, data right";
const TRIPS: &str = "times a CPU went offline and came back";
const X2APIC: &str = "local APICs in x2APIC mode";

/// Messages of the stranger.
const STRANGE: u64 = 20;

/// Both systems in all modes.
///
/// # Errors
/// [`BootError`]; a run that fails is a row that does not pass.
pub(crate) fn measure(quick: bool, is_stopped: impl Fn() -> bool, tell: impl Fn(&str)) -> Result<Vec<Row>, BootError> {
    let judge = Judge::prepare()?;
    let sizes = if quick { QUICK } else { FULL };
    let mut rows = Vec::new();
    for mode in [Mode::Posted, Mode::PostedX2Apic, Mode::Remapped] {
        if is_stopped() {
            break;
        }
        let load = Load::Storm { reads: sizes.storm, moves: sizes.moves, trips: sizes.trips };
        let storm = pair(&judge, mode, load, &tell)?;
        if mode == Mode::Posted && !quick {
            rows.extend(stock(&judge, load, &storm, &tell)?);
        }
        rows.extend(storm);
        if mode == Mode::PostedX2Apic {
            continue;
        }
        for drives in [1, 4] {
            rows.extend(pair(&judge, mode, Load::Bursts { reads: sizes.bursts, drives }, &tell)?);
        }
        rows.extend(pair(&judge, mode, Load::Stranger { reads: 1_000, messages: STRANGE }, &tell)?);
    }
    Ok(rows)
}

/// QEMU's own assertion at an access to an MSI-X table (seen once, in the case of virtio-pci).
const ASSERTION: &str = "msix_table_mmio_write: Assertion";
/// Attempts of a run that ends with it, or before the guest's work begins.
const ATTEMPTS: usize = 4;

/// Runs a guest once; again if QEMU ends with an assertion of its own, or if Linux does not come to its work, before which
/// nothing of ours has run. Returns the last run, and the reasons of the repetitions.
fn repeated<T>(
    mut run: impl FnMut() -> Result<T, BootError>,
    ended: impl Fn(&T) -> (Option<&str>, bool),
) -> Result<(T, Vec<String>), BootError> {
    let mut reasons = Vec::new();
    loop {
        let ran = run()?;
        let (failure, has_begun) = ended(&ran);
        let is_again = reasons.len() + 1 < ATTEMPTS && failure.is_some_and(|why| !has_begun || why.contains(ASSERTION));
        match failure {
            Some(why) if is_again => reasons.push(why.to_owned()),
            _ => return Ok((ran, reasons)),
        }
    }
}

/// A row for the runs that were repeated; none where the first came to its end.
fn repetitions(case: &str, who: &str, reasons: &[String]) -> Option<Row> {
    let note = (!reasons.is_empty()).then(|| format!("{who}, repeated after: {}", reasons.join("; ")))?;
    let quantity = format!("runs repeated, {who}");
    Some(Row {
        case: case.into(),
        quantity,
        value: reasons.len() as f64,
        pass: true,
        note: Some(note),
        ..Row::default()
    })
}

/// One built image of ours, posted, without Linux: what `cargo xtask mutants --judge` asks of an image with a defect.
///
/// # Errors
/// [`BootError`]; a run that fails is a row that does not pass.
pub(crate) fn image(image: &Path, tell: impl Fn(&str)) -> Result<Vec<Row>, BootError> {
    let judge = Judge::alone(image.to_owned())?;
    let Sizes { storm: reads, bursts, moves, trips } = ALONE;
    let storm = Load::Storm { reads, moves, trips };
    let mut rows = Vec::new();
    for load in [storm, Load::Bursts { reads: bursts, drives: 1 }, Load::Bursts { reads: bursts, drives: 4 }] {
        let case = format!("judges {load}, {}", Mode::Posted);
        tell(&case);
        let ours = judge.run(Who::Ours, Mode::Posted, load)?;
        match failed(&case, "ours", &ours) {
            Some(row) => rows.push(row),
            None => rows.extend(counts(&case, Mode::Posted, load, &ours, None)),
        }
    }
    Ok(rows)
}

/// A row for a guest that failed.
fn failed(case: &str, who: &str, ran: &Ran) -> Option<Row> {
    let note = ran.failure.as_ref().map(|why| format!("{who}: {why}"))?;
    Some(Row { case: case.into(), quantity: "failures".into(), value: 1.0, note: Some(note), ..Row::default() })
}

/// Linux without our patches, beside the figures of our image: the interrupts that it loses are counted, and not judged.
/// The guest ends the disturbances once 20 lines of its kernel's log show lost ones, or once a pass of 64 reads has taken more
/// than 20 s and the log has one such line.
fn stock(judge: &Judge, load: Load, ours: &[Row], tell: &impl Fn(&str)) -> Result<Vec<Row>, BootError> {
    let case = format!("judges {load}, {}, Linux unpatched", Mode::Posted);
    tell(&case);
    let ran = judge.run(Who::Stock, Mode::Posted, load)?;
    let row = |quantity: &str, value: f64, name: &str| {
        let (quantity, peer_value) = (quantity.into(), ran.count(name).map(|count| count as f64));
        // Without its figures the guest has not come to its end.
        let (pass, note) = (peer_value.is_some(), ran.failure.clone().filter(|_| peer_value.is_none()));
        Row { case: case.clone(), quantity, value, peer_value, pass, note, ..Row::default() }
    };
    let counted = [(READS, "reads"), (TRIPS, "offline_trips")].map(|(quantity, name)| {
        let own = ours.iter().find(|row| row.quantity == quantity);
        row(quantity, own.map_or(f64::NAN, |row| row.value), name)
    });
    let late = row("lines of the log about completions without an interrupt", 0.0, "late_reads");
    Ok(counted.into_iter().chain([late]).collect())
}

/// What a stranger's messages came to, in both systems.
fn strange(case: &str, ours: &Ran, linux: &Ran) -> Vec<Row> {
    let row = |quantity: &str, name: &str, is_right: &dyn Fn(u64) -> bool, is_linux_right: &dyn Fn(u64) -> bool| {
        let (value, peer) = (ours.count(name), linux.count(name));
        let pass = value.is_some_and(is_right) && peer.is_some_and(is_linux_right);
        let (value, peer_value) = (value.map_or(f64::NAN, |count| count as f64), peer.map(|count| count as f64));
        Row { case: case.into(), quantity: quantity.into(), value, peer_value, pass, ..Row::default() }
    };
    let (all, none, some) = (|count| count == STRANGE, |count| count == 0, |count| count > 0);
    vec![
        row("messages of the stranger that were refused", "vtd_ir_fault", &all, &all),
        row("refused for the source (fault reason 0x26)", trace::WRONG_SOURCE, &all, &all),
        row("interrupts that they caused", "stolen", &none, &none),
        // Linux enables the unit's fault interrupt only where firmware says to which node the unit belongs.
        row("faults that the kernel reported", "faults", &all, &|_| true),
        row("reads completed after them", "reads_after", &some, &some),
    ]
}

/// A load on our image and on Linux, side by side.
fn pair(judge: &Judge, mode: Mode, load: Load, tell: &impl Fn(&str)) -> Result<Vec<Row>, BootError> {
    let case = format!("judges {load}, {mode}");
    tell(&format!("{case}: ours"));
    let ours = judge.run(Who::Ours, mode, load)?;
    tell(&format!("{case}: Linux"));
    let linux = judge.run(Who::Linux, mode, load)?;
    let failures: Vec<Row> = failed(&case, "ours", &ours).into_iter().chain(failed(&case, "Linux", &linux)).collect();
    if !failures.is_empty() {
        return Ok(failures);
    }
    let mut rows = match load {
        Load::Stranger { .. } => strange(&case, &ours, &linux),
        _ => counts(&case, mode, load, &ours, Some(&linux)),
    };
    if let (Some(ours), Some(linux)) = (&ours.gates, &linux.gates) {
        rows.extend(instructions(&case, ours, linux));
    }
    rows.extend(repetitions(&case, "ours", &ours.repetitions));
    rows.extend(repetitions(&case, "Linux", &linux.repetitions));
    if let Some(first) = rows.first_mut() {
        first.policy.clone_from(&ours.policy);
    }
    Ok(rows)
}

/// What the guests and QEMU's trace counted.
fn counts(case: &str, mode: Mode, load: Load, ours: &Ran, linux: Option<&Ran>) -> Vec<Row> {
    let row = |quantity: &str, name: &str, is_right: &dyn Fn(&Ran, u64) -> bool| {
        let value = ours.count(name);
        let peer = linux.and_then(|linux| Some((linux, linux.count(name)?)));
        let pass = value.is_some_and(|value| is_right(ours, value))
            && peer.is_none_or(|(linux, value)| is_right(linux, value));
        let number = |count: Option<u64>| count.map_or(f64::NAN, |count| count as f64);
        let (quantity, peer_value) = (quantity.into(), peer.map(|(_, peer)| peer as f64));
        Row { case: case.into(), quantity, value: number(value), peer_value, pass, ..Row::default() }
    };
    let any = |_: &Ran, _: u64| true;
    let (Load::Storm { reads, .. } | Load::Bursts { reads, .. } | Load::Stranger { reads, .. }) = load;
    let mut rows = vec![row(READS, "reads", &|_, done| done >= reads), row("interrupts", "interrupts", &any)];
    if let Load::Storm { moves, trips, .. } = load {
        rows.push(row("changes of affinity", "moves", &|_, done| done >= moves));
        rows.push(row(TRIPS, "offline_trips", &|_, done| done >= trips));
        rows.push(row(X2APIC, "x2apic", &|_, on| on == u64::from(mode == Mode::PostedX2Apic)));
        // A vector that waited at a CPU that went becomes a stray when it comes back.
        rows.push(row("strays", "strays", &|ran, strays| strays <= ran.count("waited_offline").unwrap_or(0)));
    }
    rows.push(row("messages refused", "vtd_ir_fault", &|_, faults| faults == 0));
    if !mode.posts() {
        rows.push(row("messages posted", "vtd_ir_post", &|_, posts| posts == 0));
        rows.push(row("messages remapped", "vtd_ir_remap", &|_, messages| messages > 0));
        return rows;
    }
    rows.push(row("messages posted", "vtd_ir_post", &|_, posts| posts > 0));
    rows.push(row("messages remapped", "vtd_ir_remap", &any));
    rows.push(row("notifications sent", "vtd_ir_notify", &|ran, sent| Some(sent) <= ran.count("vtd_ir_post")));
    let taken = |ran: &Ran, taken| Some(taken) <= ran.count("vtd_ir_notify");
    rows.push(row("notifications taken", "notifications_taken", &taken));
    let each = |ran: &Ran| Some(ran.count("vtd_ir_notify")? as f64 / ran.count("vtd_ir_post")? as f64);
    let (value, peer_value) = (each(ours).unwrap_or(f64::NAN), linux.and_then(each));
    let quantity = "notifications a message".into();
    rows.push(Row { case: case.into(), quantity, value, peer_value, pass: value <= 1.0, ..Row::default() });
    rows
}

/// Instructions by the number of handlers of an interrupt. At four handlers ours may take at most half of Linux's.
fn instructions(case: &str, ours: &Gates, linux: &Gates) -> Vec<Row> {
    let mut rows = Vec::new();
    for handlers in [1, 2, 4] {
        let (Some(own), peer) = (ours.at(handlers), linux.at(handlers)) else { continue };
        let row = |what: &str, value: f64, peer_value: Option<f64>, pass| {
            let quantity = format!("instructions, {what}, {handlers} handler{}", if handlers == 1 { "" } else { "s" });
            Row { case: case.into(), quantity, value, peer_value, pass, ..Row::default() }
        };
        let is_half = handlers != 4 || peer.is_none_or(|peer| own.to_eoi * 2.0 <= peer.to_eoi);
        rows.push(row("interrupts", own.interrupts as f64, peer.map(|peer| peer.interrupts as f64), true));
        rows.push(row("gate to EOI", own.to_eoi, peer.map(|peer| peer.to_eoi), is_half));
        rows.push(row("gate to IRETQ", own.all, peer.map(|peer| peer.all), true));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(counts: &[(&str, u64)]) -> Ran {
        let counts = counts.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
        Ran { counts, ..Ran::default() }
    }

    fn failing(ours: &[(&str, u64)], linux: &[(&str, u64)]) -> Vec<String> {
        let load = Load::Storm { reads: 100, moves: 4, trips: 1 };
        let rows = counts("case", Mode::Posted, load, &ran(ours), Some(&ran(linux)));
        rows.into_iter().filter(|row| !row.pass).map(|row| row.quantity).collect()
    }

    #[test]
    fn a_lost_read_a_fault_and_a_forged_notification_fail() {
        let good = [
            ("reads", 100),
            ("interrupts", 50),
            ("moves", 4),
            ("offline_trips", 1),
            ("x2apic", 0),
            ("strays", 0),
            ("vtd_ir_fault", 0),
            ("vtd_ir_post", 60),
            ("vtd_ir_remap", 0),
            ("vtd_ir_notify", 40),
            ("notifications_taken", 40),
        ];
        let with = |name: &str, value: u64| good.map(|(known, old)| (known, if known == name { value } else { old }));
        assert!(failing(&good, &good).is_empty());
        let load = Load::Storm { reads: 100, moves: 4, trips: 1 };
        let alone = counts("case", Mode::Posted, load, &ran(&good), None);
        assert!(alone.iter().all(|row| row.pass && row.peer_value.is_none()), "an image alone has no peer");
        assert_eq!(failing(&with("reads", 99), &good), ["reads completed, each once, data right"]);
        assert_eq!(failing(&good, &with("vtd_ir_fault", 1)), ["messages refused"]);
        assert_eq!(failing(&with("notifications_taken", 41), &good), ["notifications taken"]);
        assert_eq!(failing(&good, &with("strays", 1)), ["strays"]);
        assert_eq!(failing(&good, &with("offline_trips", 0)), ["times a CPU went offline and came back"]);
    }

    #[test]
    fn only_an_assertion_of_qemus_own_and_a_boot_are_tried_again() {
        let attempts = |why: &'static str, has_begun: bool, good_at: usize| {
            let mut count = 0;
            let run = || {
                count += 1;
                Ok((count < good_at).then_some(why))
            };
            let (last, reasons) =
                repeated(run, |failure: &Option<&'static str>| (*failure, has_begun)).expect("no error");
            let row = repetitions("case", "Linux", &reasons);
            assert_eq!(row.map_or(0.0, |row| row.value), reasons.len() as f64);
            (reasons.len() + 1, last.is_none())
        };
        let assertion = "msix.c:1: msix_table_mmio_write: Assertion `x' failed.";
        assert_eq!(attempts(assertion, true, 3), (3, true));
        assert_eq!(attempts(assertion, true, 9), (ATTEMPTS, false));
        assert_eq!(attempts("a lost read", true, 3), (1, false));
        assert_eq!(attempts("intel_iommu.c:1: vtd_post: Assertion `x' failed.", true, 3), (1, false));
        assert_eq!(attempts("a CPU's timer stands still", false, 2), (2, true));
    }

    #[test]
    fn a_stranger_that_gets_through_fails() {
        let run = |refused, for_source, stolen, faults| {
            let counts = [("vtd_ir_fault", refused), (trace::WRONG_SOURCE, for_source), ("stolen", stolen)];
            ran(&[&counts[..], &[("faults", faults), ("reads_after", 64)]].concat())
        };
        let failing = |ours: &Ran, linux: &Ran| {
            let rows = strange("case", ours, linux);
            rows.into_iter().filter(|row| !row.pass).map(|row| row.quantity).collect::<Vec<_>>()
        };
        let good = run(STRANGE, STRANGE, 0, STRANGE);
        assert!(failing(&good, &run(STRANGE, STRANGE, 0, 0)).is_empty(), "Linux need not report the faults");
        assert_eq!(failing(&good, &run(STRANGE - 1, STRANGE, 0, 0)), ["messages of the stranger that were refused"]);
        assert_eq!(failing(&run(STRANGE, 1, 0, STRANGE), &good), ["refused for the source (fault reason 0x26)"]);
        assert_eq!(failing(&run(STRANGE, STRANGE, 1, STRANGE), &good), ["interrupts that they caused"]);
        assert_eq!(failing(&run(STRANGE, STRANGE, 0, STRANGE - 1), &good), ["faults that the kernel reported"]);
    }

    #[test]
    fn more_than_half_of_linux_at_four_handlers_fails() {
        let gates = |text: &str| Gates::parse(text).expect("the plugin's form");
        let linux = gates("ran 1 2 200 240\nran 4 1 400 420\nodd 0\n");
        let failing = |ours: &str| {
            let rows = instructions("case", &gates(ours), &linux);
            rows.into_iter().filter(|row| !row.pass).map(|row| row.quantity).collect::<Vec<_>>()
        };
        assert!(failing("ran 1 1 100 120\nran 4 2 400 420\nodd 1\n").is_empty());
        assert_eq!(failing("ran 4 2 402 420\nodd 0\n"), ["instructions, gate to EOI, 4 handlers"]);
    }
}
