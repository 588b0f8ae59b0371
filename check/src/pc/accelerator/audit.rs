//! After the last step: a last load of the accelerator, and what must be left of it.

use super::super::stack::PcStack;
use super::plan::ENTRIES;
use super::{manage, of};
use crate::coverage::Coverage;
use crate::pc::drive::claim;
use crate::verdict::violate;
use drivers::dsa::{Capabilities, QueueCounters, QueueSnapshot};
use hal::Hal as _;
use machine::SimHal;
use std::sync::atomic::Ordering::Relaxed;

/// A late command keeps the next ones waiting, and then they end: a healed device comes down within this many tries.
const SHUTDOWNS_MAX: u32 = 3;

/// The load at the start of a history.
pub(in crate::pc) fn start_load(stack: &PcStack) {
    let Some(accelerator) = of(stack) else { return };
    for place in &accelerator.places {
        place.stream.carry(accelerator.fills, place.entries.min(8).into());
    }
}

/// Brings up what faults kept down, and ends the load.
pub(in crate::pc) fn settle(stack: &PcStack) {
    let Some(accelerator) = of(stack) else { return };
    accelerator.places.iter().for_each(|place| place.stream.carry_no_more());
    let _claim = loop {
        match claim(&accelerator.errors.busy) {
            Some(claimed) => break claimed,
            None => SimHal.delay_ns(10_000),
        }
    };
    let mut down = Ok(());
    for _ in 0..SHUTDOWNS_MAX {
        if !accelerator.broken.load(Relaxed) {
            break;
        }
        stack.lines_freed.store(true, Relaxed);
        down = manage::shut_down(stack, accelerator, false);
    }
    if let Err(error) = down.and_then(|()| accelerator.start(&stack.host, &stack.numbers)) {
        violate("operations", format!("the accelerator does not come up, healed: {error}"));
    }
}

/// True if no fill is in flight, and no error waits.
pub(in crate::pc) fn is_done(stack: &PcStack) -> bool {
    of(stack).is_none_or(|accelerator| {
        accelerator.errors.is_idle() && accelerator.places.iter().all(|place| place.stream.is_idle())
    })
}

/// A last load, by interrupts alone: each queue takes as many fills as it has entries, and twice as many follow.
pub(in crate::pc) fn prove(stack: &PcStack) {
    let Some(accelerator) = of(stack) else { return };
    for place in &accelerator.places {
        let (before, entries) = (place.stream.given(), u32::from(place.entries));
        place.stream.carry(3 * u64::from(entries.min(8)).max(entries.into()), entries);
        let taken = place.stream.given() - before;
        if taken < entries.into() {
            violate("operations", format!("work queue {} takes {taken} fills of {entries}, healed", place.index));
        }
    }
    accelerator.errors.provoke(0, 4, (1, 0));
}

/// Nothing is under way: the driver's counters add up, its report of errors is right, and it comes down.
pub(in crate::pc) fn audit(stack: &PcStack) {
    let Some(accelerator) = of(stack) else { return };
    let Some(device) = accelerator.device() else { return };
    let model = Capabilities { queues: 8, entries: ENTRIES, groups: 4, engines: 4, transfer_shift_max: 31 };
    if device.capabilities() != model {
        violate("operations", format!("the accelerator has {model:?}; its driver: {:?}", device.capabilities()));
    }
    accelerator.errors.check(&device.errors());
    accelerator.places.iter().for_each(|place| place.stream.check_all_given_up());
    for place in &accelerator.places {
        let Some(bound) = place.bound() else { continue };
        let Some(queue) = bound.opening.queue() else { continue };
        let found = queue.snapshot();
        let tally = bound.opening.tally();
        // In threads others find what an interrupt announced, and count it as theirs.
        let QueueCounters { interrupt_completions, overtaken_interrupts, .. } =
            if place.stream.threaded { found.counters } else { tally };
        let empty_interrupts = tally.empty_interrupts + overtaken_interrupts;
        let counters = QueueCounters { interrupt_completions, overtaken_interrupts, empty_interrupts, ..tally };
        let (index, entries) = (place.index, place.entries);
        let expected = QueueSnapshot { index, open: true, entries, in_flight: 0, oldest_ns: None, counters };
        if found != expected {
            violate("operations", format!("the counters of a work queue are\n{found:?} instead of\n{expected:?}"));
        }
    }
    accelerator.restarting.store(true, Relaxed);
    if let Err(error) = manage::shut_down(stack, accelerator, false) {
        violate("operations", format!("the accelerator does not come down at the end: {error}"));
    }
}

/// Its queues, for people.
pub(in crate::pc) fn describe(stack: &PcStack) -> String {
    let places = of(stack).into_iter().flat_map(|accelerator| &accelerator.places);
    let queues = places.filter_map(|place| place.bound()?.opening.queue());
    queues.map(|queue| format!("{}\n", queue.snapshot())).collect()
}

/// Transitions from the driver's counters.
pub(in crate::pc) fn cover(stack: &PcStack, coverage: &mut Coverage) {
    for place in of(stack).into_iter().flat_map(|accelerator| &accelerator.places) {
        coverage.add("accelerator: filled", place.stream.given());
    }
}
