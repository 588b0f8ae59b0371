//! After the last step: repairs the damage of managers, loads everything once more, and checks that nothing is left.

use super::absent;
use super::accounts;
use super::beliefs::{self, When};
use super::drive::{BindError, Drive, Slot, claim};
use super::load::disrupt;
use super::removal;
use super::stack::{COMMON, PcStack, REMAPPED};
use super::{accelerator, poster, threads, timers};
use crate::checkers::truth::marks;
use crate::coverage::Coverage;
use crate::server::Path;
use crate::verdict::violate;
use drivers::apic::device_vectors;
use drivers::nvme::{AbortReport, NvmeError};
use hal::{CpuId, Hal as _};
use irq::LineView;
use machine::SimHal;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// A healed drive comes back within this many resets.
const RESETS_MAX: u32 = 3;
/// More than an admin queue has entries.
const REFUSALS: u32 = 80;
/// In so many histories a line gets all the threads that it may have.
const THREADS_FILLED_ONE_IN: u64 = 8;

/// Ends the load unless all of it is wanted, resets what is broken, and binds what is unbound.
pub(super) fn settle(stack: &Arc<PcStack>, whole_load: bool) {
    stack.ending.store(!whole_load, Relaxed);
    stack.loads().for_each(|load| load.carry_no_more());
    stack.drives.iter().for_each(|drive| put_right(stack, drive));
    accelerator::settle(stack);
    timers::settle(stack);
    poster::settle(stack);
}

fn put_right(stack: &PcStack, drive: &Drive) {
    // The driver's clock may be resetting it.
    let _whole = loop {
        match claim(&drive.busy) {
            Some(claimed) => break claimed,
            None => SimHal.delay_ns(10_000),
        }
    };
    let unbound = stack.slots_of(drive).any(|slot| slot.bound().is_none());
    if drive.controller().is_none() || drive.broken.load(Relaxed) || unbound {
        revive(stack, drive);
    }
}

fn revive(stack: &PcStack, drive: &Drive) {
    if drive.controller().is_none()
        && let Err(error) = drive.start()
    {
        violate("operations", format!("drive {} does not come up, healed: {error}", drive.index));
    }
    bind_without_reset(stack, drive);
    let controller = drive.controller().expect("it is up");
    let mut reset = disrupt(&stack.loads_of(drive), || controller.reset());
    for _ in 1..RESETS_MAX {
        if reset.is_ok() {
            break;
        }
        reset = disrupt(&stack.loads_of(drive), || controller.reset());
    }
    if let Err(error) = reset {
        violate("operations", format!("drive {} does not come back, healed: {error}", drive.index));
    }
    drive.broken.store(false, Relaxed);
    delete_orphans(stack, drive);
    for slot in stack.slots_of(drive).filter(|slot| slot.bound().is_none()) {
        if let Err(error) = drive.bind(&stack.host, slot, &stack.numbers) {
            violate("operations", format!("a queue of drive {} does not come back: {error}", drive.index));
        }
    }
}

/// A driver that has undone what it had begun needs no reset to make its queues: none of them is the device's alone. One that
/// could not delete a queue, or whose start failed, has to reset.
fn bind_without_reset(stack: &PcStack, drive: &Drive) {
    let controller = drive.controller().expect("it is up");
    if stack.promises.stuck || orphans(stack, drive).next().is_some() {
        return;
    }
    for slot in stack.slots_of(drive).filter(|slot| slot.bound().is_none()) {
        let bound = drive.bind(&stack.host, slot, &stack.numbers);
        if let Err(BindError::Nvme(error @ NvmeError::Command(..))) = bound {
            let state = controller.snapshot();
            violate(
                "operations",
                format!("drive {} refuses a queue that it never got: {error}\n{state:?}", drive.index),
            );
        }
    }
}

/// Queues that the controller still has although their slots gave them up.
fn orphans<'a>(stack: &'a PcStack, drive: &'a Drive) -> impl Iterator<Item = u16> + 'a {
    let controller = drive.controller().expect("it is up");
    let owned = move |qid| stack.slots_of(drive).any(|slot| slot.bound().is_some_and(|bound| bound.pair.qid() == qid));
    (1..=controller.queue_pairs_max()).filter(move |&qid| !owned(qid) && controller.queue_pair(qid).is_some())
}

fn delete_orphans(stack: &PcStack, drive: &Drive) {
    let controller = drive.controller().expect("it is up");
    for qid in orphans(stack, drive) {
        if let Err(error) = controller.delete_queue_pair(qid) {
            violate("operations", format!("queue {qid} of drive {} cannot be deleted: {error}", drive.index));
        }
    }
}

/// A last load, by interrupts alone. Drive `gone`, counted from 1, is gone meanwhile; 0: all are there. With `full`, it begins
/// with full queues.
pub(super) fn prove(stack: &Arc<PcStack>, absent: u32, gone: u32, full: bool) {
    stack.proving.store(true, Relaxed);
    // Waits for recoveries that the driver's clock has begun.
    settle(stack, false);
    if let Some(index) = gone.checked_sub(1) {
        removal::leave(stack, &stack.drives[index as usize % stack.drives.len()]);
    }
    absent::leave(stack, absent);
    accounts::place(stack);
    if full {
        accounts::fill(stack);
    } else {
        prove_slots(stack, stack.slots.iter().filter(|slot| stack.drive_of(slot).present.load(Relaxed)));
    }
    stack.rings.ring(2, 1_000);
    accelerator::prove(stack);
    timers::prove(stack);
    poster::prove(stack);
    stack.functions.iter().for_each(|function| function.raise());
}

/// Begins the last load of these queues.
pub(super) fn prove_slots<'a>(stack: &PcStack, slots: impl Iterator<Item = &'a Slot>) {
    for slot in slots {
        let before = slot.load.given();
        slot.load.carry(12, 4);
        if slot.load.given() == before {
            let number = stack.slots.iter().position(|other| std::ptr::eq(other, slot)).expect("its own");
            violate("operations", format!("queue {number} takes no command, healed"));
        }
    }
}

/// No command is under way: nothing may be left.
pub(super) fn audit(stack: &Arc<PcStack>, count_vectors: bool, lines_max: Option<usize>, seed: u64) {
    marks::movable();
    absent::come_back(stack);
    for drive in stack.drives.iter().filter(|drive| !drive.present.load(Relaxed)) {
        removal::come_back(stack, drive);
    }
    stack.host.check_quiet();
    accounts::claim(stack);
    beliefs::check(stack, When::AtRest);
    check_affinities(stack);
    check_identities(stack);
    stack.host.check_sums(stack.delivery);
    stack.host.check_places(seed);
    if !stack.lines_freed.load(Relaxed) {
        stack.host.check_accounts();
    }
    stack.slots.iter().for_each(|slot| check_empty(stack, slot));
    let tunings = stack.tunings.lock().expect("one host thread").take();
    tunings.iter().for_each(|tunings| tunings.check(stack));
    stack.drives.iter().for_each(|drive| drive.ask_too_much(&stack.host));
    if let Some(lines_max) = lines_max {
        accounts::check_numbers(stack, lines_max);
    }
    if seed.is_multiple_of(THREADS_FILLED_ONE_IN) {
        threads::fill(stack);
    }
    // It frees lines, whose vectors come back later.
    accelerator::audit(stack);
    poster::audit(stack);
    if count_vectors {
        for slot in &stack.slots {
            if let Err(error) = stack.drive_of(slot).unbind(&stack.host, slot, false) {
                violate("operations", format!("a queue cannot be unbound at the end: {error}"));
            }
        }
        stack.host.check_no_vector_leaked();
    } else {
        stack.drives.iter().for_each(|drive| check_refusals(stack, drive));
    }
}

/// A controller that is down refuses each command, and keeps nothing of it: it is refused for the same reason as often as it is
/// asked, and works when it is up again.
fn check_refusals(stack: &PcStack, drive: &Drive) {
    let Some(controller) = drive.controller() else { return };
    let fails = |what: &str, told: &dyn std::fmt::Debug| {
        violate("refusals", format!("drive {} was shut down at rest; {what}: {told:?}", drive.index));
    };
    let down = disrupt(&stack.loads_of(drive), || controller.shutdown());
    if down.is_err() {
        fails("its shutdown", &down);
    }
    for _ in 0..REFUSALS {
        match controller.coalescing() {
            Err(NvmeError::Stopped) => {}
            told => fails("a command to it", &told),
        }
    }
    let up = disrupt(&stack.loads_of(drive), || controller.reset()).and_then(|()| controller.coalescing());
    if up.is_err() {
        fails("it does not come up", &up);
    }
    stack.saw("drive: refuses commands while it is down");
}

/// No command of the queue is in flight, and so there is none to abort, whatever its age.
fn check_empty(stack: &PcStack, slot: &Slot) {
    let (Some(bound), Some(controller)) = (slot.bound(), stack.drive_of(slot).controller()) else { return };
    let queue = bound.pair.snapshot();
    if queue.completion.device_faults > 0 && !slot.load.distrusted.load(Relaxed) {
        violate("commands", format!("the driver reports a fault of the drive, but the drive had none\n{queue}"));
    }
    let old = controller.abort_expired(&bound.pair, SimHal.now_ns(), 0);
    if queue.in_flight > 0 || old != Ok(AbortReport::default()) {
        violate("commands", format!("no command is in flight; the driver aborts {old:?} and counts\n{queue}"));
    }
}

/// Every CPU is online: each line is on an allowed CPU, or still on its way to one.
fn check_affinities(stack: &PcStack) {
    for line in stack.host.core().views() {
        let astray = line.effective.filter(|target| !line.affinity.contains(target.cpu));
        if let Some(target) = astray.filter(|_| !line.move_wanted) {
            let (irq, affinity) = (line.irq, &line.affinity);
            violate("affinity", format!("interrupt {irq} may go to CPUs {affinity} and stays on CPU {}", target.cpu));
        }
    }
}

/// All lines are live and where they shall be: a CPU's vectors are theirs, and each managed line has one kept on every CPU of its
/// affinity.
fn check_identities(stack: &PcStack) {
    let lines = stack.host.core().views();
    for cpu in (0..stack.host.cpus()).map(CpuId) {
        let count = |is: &dyn Fn(&LineView) -> bool| lines.iter().filter(|line| is(line)).count() as u32;
        let is_here =
            |line: &LineView| line.effective.is_some_and(|target| target.cpu == cpu && target.identity.is_some());
        let expected = [
            count(&is_here),
            count(&|line| line.managed && line.affinity.contains(cpu)),
            count(&|line| line.managed && is_here(line)),
        ];
        let kept = stack.host.core().identities_of(cpu).map(|kept| [kept.used, kept.managed, kept.managed_used]);
        if kept != Some(expected) {
            let text = format!(
                "CPU {cpu} has vectors in use, kept and in use of managed lines: {expected:?}; the core counts {kept:?}"
            );
            violate("identities", text);
        }
    }
}

/// Transitions from the stack's own counters.
pub(super) fn cover(stack: &PcStack, coverage: &mut Coverage) {
    coverage.name(COMMON);
    if stack.delivery != Path::Plain {
        coverage.name(REMAPPED);
    }
    coverage.merge(&stack.seen.lock().expect("one host thread"));
    for line in stack.host.core().views() {
        coverage.add("line: storm throttled", line.storms.into());
    }
    accelerator::cover(stack, coverage);
    for slot in &stack.slots {
        let done = slot.load.done();
        coverage.add("data: deallocated", done.deallocations);
        coverage.add("data: flushed", done.flushes);
        coverage.add("data: read back", done.read_back);
        coverage.add("data: written", done.writes);
        let Some(bound) = slot.bound() else { continue };
        let queue = bound.pair.snapshot();
        coverage.add("check: found", queue.submission.look_hits);
        coverage.add("check: looked in vain", queue.submission.looks - queue.submission.look_hits);
    }
    if let Some(posted) = stack.host.pc.posted() {
        for cpu in (0..stack.host.cpus()).map(CpuId) {
            coverage.add("notification: empty", posted.statistics(cpu).empty_notifications);
        }
    }
    let directly =
        (0..stack.host.cpus()).flat_map(|cpu| device_vectors().map(move |vector| stack.host.taken(CpuId(cpu), vector)));
    if stack.host.pc.posted().is_some() {
        coverage.add("retrigger: taken by its own vector", directly.sum());
    }
}

pub(super) fn describe(stack: &PcStack) -> String {
    let mut text = stack.host.describe();
    text += &format!("now {} ns, {} users at work\n", SimHal.now_ns(), stack.users_left.load(Relaxed));
    text += &accelerator::describe(stack);
    for (index, slot) in stack.slots.iter().enumerate() {
        let state = match slot.bound() {
            Some(bound) => format!("line {}, {}", bound.line, bound.pair.snapshot()),
            None => "unbound".into(),
        };
        text += &format!("queue {index}: oldest {} ns; {state}\n", slot.load.oldest_ns());
    }
    text
}
