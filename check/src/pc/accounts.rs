//! What core and drivers count, for the checkers that count for themselves.

use super::drive::Slot;
use super::stack::PcStack;
use crate::checkers::queues;
use crate::checkers::truth::marks::{self, Known};
use crate::fullness::{check_free, check_lines};
use crate::rest;
use crate::verdict::violate;
use hal::CpuSet;
use irq::{AllocRequest, Irq, LineView, RequesterId};
use machine::model::ModelId;
use std::sync::atomic::Ordering::Relaxed;

/// Entries of the remapping table.
const ENTRIES: usize = 1024;
/// Commands that follow, each from a completion.
const FURTHER: u64 = 12;
/// A requester without a line.
const NOBODY: u16 = 0x4400;

fn lines(stack: &PcStack) -> impl Iterator<Item = Irq> {
    let queues = stack.slots.iter().filter_map(|slot| slot.bound()).map(|bound| bound.line);
    let accelerator = stack.accelerator.iter().flat_map(|it| (0..it.lines()).filter_map(|number| it.line(number)));
    let timers = stack.timers.iter().flat_map(|it| (0..it.lines()).filter_map(|number| it.line(number)));
    let poster = stack.poster.iter().flat_map(|it| (0..it.lines()).filter_map(|number| it.line(number)));
    [stack.ring_line, stack.pin_line].into_iter().chain(queues).chain(accelerator).chain(timers).chain(poster)
}

/// Lines that had no interrupt yet.
pub(super) fn known_lines(stack: &PcStack) -> Vec<Known> {
    lines(stack).filter_map(|line| Known::of(stack.host.core(), line)).collect()
}

/// Loads, models and numbers of the queues that exist, and the numbers of their handlers.
pub(super) fn known_queues(stack: &PcStack) -> Vec<(u64, ModelId, u16, u64)> {
    let queue = |slot: &Slot| {
        let bound = slot.bound()?;
        Some((slot.load.index(), stack.drive_of(slot).model, bound.pair.qid(), bound.guard.number()))
    };
    stack.slots.iter().filter_map(queue).collect()
}

/// All is at rest: marks what core and drivers count.
pub(super) fn claim(stack: &PcStack) {
    rest::check(stack.host.core());
    marks::strays(stack.host.core(), stack.host.cpus());
    for line in lines(stack) {
        marks::claim(stack.host.core(), line, true);
    }
    for slot in &stack.slots {
        if let Some(bound) = slot.bound() {
            queues::claim(slot.load.index(), &bound.pair.snapshot());
        }
    }
}

/// The last load begins: marks where each line is delivered.
pub(super) fn place(stack: &PcStack) {
    marks::placed(stack.host.core(), lines(stack));
}

/// Every queue takes as many commands at once as it has ids, and refuses the next. No command is under way.
pub(super) fn fill(stack: &PcStack) {
    for slot in stack.slots.iter().filter(|slot| stack.drive_of(slot).present.load(Relaxed)) {
        let Some(bound) = slot.bound() else { continue };
        let depth = u32::from(bound.pair.depth());
        slot.load.carry(FURTHER, 0);
        let accepted = slot.load.submit(depth + 1, None);
        if accepted != depth {
            let load = slot.load.index();
            violate("fullness", format!("queue {load} takes {accepted} commands at once, and it has {depth} ids"));
        }
        stack.saw("queue: every id in use");
    }
}

/// Every line of the core, and every entry of the remapping table, that is not in use can be allocated.
pub(super) fn check_numbers(stack: &PcStack, lines_max: usize) {
    check_lines(stack.host.core(), lines_max);
    let Some(remap) = stack.host.remap() else { return };
    let remapped = |line: &LineView| line.levels.iter().any(|level| level.domain.starts_with("INTEL-IR"));
    let used = stack.host.core().views().iter().filter(|line| remapped(line)).count();
    let cpus = CpuSet::first(stack.host.cpus());
    let request = AllocRequest::fixed(RequesterId(NOBODY), 0, cpus);
    check_free(&**remap, &request, ENTRIES - used);
}
