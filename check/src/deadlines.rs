//! What waits for a time waits on a CPU that will look: the demand `deadlines`; and a CPU that is to look has a timer, among the
//! `beliefs`.
//!
//! A CPU that is offline looks after no line. So while one is, each throttled line must have its end among the deadlines of
//! the others (`IrqCore::next_deadline_ns`); else the line stays masked until the CPU comes back or something else happens
//! to make a CPU look. A line whose move was put off because an earlier vector of it could still come must have some deadline
//! too, once that vector is given back; else a quiet line never moves.

use crate::verdict::violate;
use hal::{CpuId, Hal as _};
use irq::{Irq, IrqCore, LineView};
use machine::SimHal;
use machine::unrest::{Kind, Unrest};

/// Between two looks.
const LOOK_NS: u64 = 2_000;
/// A CPU that has begun to look after its lines has no deadline until it is through with them. It is through within this
/// time, however slow it is.
const LOOKED_NS: u64 = 1_000_000;

/// How long after the core's first deadline a CPU's timer may interrupt it: all delays between the look at the clock and the
/// timer's last register. Of stalls there may be more than one, and a register write waits for those before it.
pub(crate) fn alarm_ns_max(unrest: Option<&Unrest>) -> u64 {
    let longest_ns = |kind: Kind| {
        let chance = unrest.map(|unrest| unrest.chances[kind as usize]).filter(|chance| chance.per_mille > 0);
        chance.map_or(0, |chance| chance.longest.as_ns())
    };
    20_000 + 3 * longest_ns(Kind::Stall) + 2 * longest_ns(Kind::FarWrite)
}

/// Judges the timers of CPUs: each comes by the core's first deadline there, within `late_ns_max`. `looks_ns` says when a CPU's timer
/// will interrupt it, 0 for a CPU that looks without one.
///
/// # Panics
/// With a failure when a CPU does not look in time.
pub(crate) fn check_alarms(
    core: &IrqCore<SimHal>,
    cpus: u32,
    late_ns_max: u64,
    looks_ns: impl Fn(CpuId) -> Option<u64>,
) {
    let overdue = |cpu| {
        let due_ns = core.next_deadline_ns(cpu)?;
        (looks_ns(cpu).unwrap_or(u64::MAX) > due_ns + late_ns_max).then_some((cpu, due_ns))
    };
    // A CPU that is stopped in the interrupt of its timer has none any more.
    if let Some((cpu, due_ns)) = lasting(late_ns_max, || (0..cpus).map(CpuId).filter_map(overdue).collect()) {
        violate(
            "beliefs",
            format!("alarm of CPU {cpu}: the core has work there at {due_ns} ns, and no timer comes for it"),
        );
    }
}

/// Judges the lines of `core` that wait for a time, and those that are where they may not be. Called on a CPU that is offline, with interrupts off.
///
/// # Panics
/// With a failure when a line waits for its end and no CPU that is `online` knows, or when one that is astray does not wait.
pub(crate) fn check(core: &IrqCore<SimHal>, cpus: u32, online: impl Fn(CpuId) -> bool) {
    if let Some((line, until_ns)) = lasting(LOOKED_NS, || uncovered(core, cpus, &online)) {
        let waits =
            if until_ns == WANTED { "wants to move".into() } else { format!("is throttled until {until_ns} ns") };
        violate("deadlines", format!("line {line} {waits}, and no CPU that is online will look in time"));
    }
    check_places(core, &online);
}

/// Judges where lines are while a CPU is offline: one that had to leave its affinity, or could not come to it, returns by itself, so it
/// must want to. [`check`] judges that somebody looks then.
fn check_places(core: &IrqCore<SimHal>, online: &impl Fn(CpuId) -> bool) {
    let stays = |line: &LineView| {
        let is_outside = line.effective.is_some_and(|target| !line.affinity.contains(target.cpu));
        is_outside && !line.managed && !line.move_wanted && line.affinity.iter().any(online)
    };
    let found = || core.views().iter().filter(|line| stays(line)).map(|line| line.irq).collect();
    if let Some(line) = lasting(LOOKED_NS, found) {
        violate("deadlines", format!("line {line} is on a CPU that it may not use, and does not want to move"));
    }
}

/// One that is among `found` at every look of `ns`. Looks are counted: one who looks may be stopped for longer than that.
fn lasting<T: PartialEq>(ns: u64, found: impl Fn() -> Vec<T>) -> Option<T> {
    let mut left = found();
    for _ in 0..=ns / LOOK_NS {
        if left.is_empty() {
            break;
        }
        SimHal.delay_ns(LOOK_NS);
        let now = found();
        left.retain(|before| now.contains(before));
    }
    left.into_iter().next()
}

/// What stands for the end of a wait for a move: any deadline will do.
const WANTED: u64 = u64::MAX - 1;

/// When a CPU must have looked after this line, if anything of it waits for that.
fn waits_for(line: &LineView) -> Option<u64> {
    // A line without a remapping unit moves at its next interrupt.
    let moves = line.levels.iter().any(|level| level.chip.starts_with("INTEL-IR"));
    let wanted = line.move_wanted && line.retired.is_empty() && moves;
    line.throttled_until_ns.or(wanted.then_some(WANTED))
}

/// Lines that wait for a CPU to look, and their ends, that no CPU looks for.
fn uncovered(core: &IrqCore<SimHal>, cpus: u32, online: &impl Fn(CpuId) -> bool) -> Vec<(Irq, u64)> {
    // The ends are read first: a deadline that is met meanwhile has ended its line's throttle, and the next look sees that.
    let ends: Vec<_> = core.views().iter().filter_map(|line| Some((line.irq, waits_for(line)?))).collect();
    let deadlines = (0..cpus).map(CpuId).filter(|&cpu| online(cpu)).map(|cpu| core.next_deadline_ns(cpu));
    later_than(&ends, deadlines)
}

/// Those of `ends` that are before the earliest of `deadlines`.
fn later_than(ends: &[(Irq, u64)], deadlines: impl Iterator<Item = Option<u64>>) -> Vec<(Irq, u64)> {
    let earliest_ns = deadlines.flatten().min().unwrap_or(u64::MAX);
    ends.iter().copied().filter(|&(_, until_ns)| until_ns < earliest_ns).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::time::Ps;
    use machine::{Machine, MachineConfig};
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    /// What lasts of what is found at each look, and the looks.
    fn lasts(found: impl Fn(u32) -> Vec<u32> + Send + 'static) -> (Option<u32>, u32) {
        let mut machine = Machine::new(MachineConfig { memory_bytes: 4096, ..MachineConfig::default() });
        let body = move || {
            let looks = AtomicU32::new(0);
            (lasting(10 * LOOK_NS, || found(looks.fetch_add(1, Relaxed))), looks.into_inner())
        };
        machine.run_boot(Ps::from_ns(1_000_000), body).expect("it ends")
    }

    #[test]
    fn what_lasts_is_there_at_every_look() {
        assert_eq!(lasts(|_| vec![7]), (Some(7), 12));
        assert_eq!(lasts(|look| if look < 11 { vec![7] } else { Vec::new() }), (None, 12));
        assert_eq!(lasts(|look| vec![look % 2]), (None, 2), "they take turns");
        assert_eq!(lasts(|look| if look == 5 { vec![8] } else { vec![7, 8] }), (Some(8), 12));
        assert_eq!(lasts(|_| Vec::new()), (None, 1));
    }

    /// A register write waits for those before it, and of stalls there may be several.
    #[test]
    fn a_timer_may_be_late_by_what_is_drawn() {
        let unrest = Unrest::new(1);
        let of =
            |kinds: &[Kind]| alarm_ns_max(Some(&kinds.iter().fold(unrest.clone(), |rest, &kind| rest.without(kind))));
        assert_eq!(alarm_ns_max(None), of(&[Kind::Stall, Kind::FarWrite]));
        assert_eq!(of(&[]) - of(&[Kind::Stall]), 3 * unrest.chances[Kind::Stall as usize].longest.as_ns());
        assert_eq!(of(&[]) - of(&[Kind::FarWrite]), 2 * unrest.chances[Kind::FarWrite as usize].longest.as_ns());
    }

    #[test]
    fn an_end_needs_a_cpu_that_looks_by_then() {
        let ends = [(Irq(3), 500), (Irq(4), 700)];
        let covered = |deadlines: &[Option<u64>]| later_than(&ends, deadlines.iter().copied());
        assert_eq!(covered(&[None, Some(500)]), []);
        assert_eq!(covered(&[Some(900), Some(600)]), [(Irq(3), 500)]);
        assert_eq!(covered(&[None, None]), ends);
        assert_eq!(later_than(&[], [None].into_iter()), []);
        let wanted = [(Irq(5), WANTED)];
        assert_eq!(later_than(&wanted, [None, None].into_iter()), wanted);
        assert_eq!(later_than(&wanted, [Some(1 << 40)].into_iter()), []);
    }
}
