//! Managers' steps on the accelerator.

use super::super::stack::PcStack;
use super::plan::{STRANGER, mistake};
use super::{Accelerator, AcceleratorStep, GENSTS, Opening, Place, check_all_ended, check_kept, claim_all, of};
use crate::pc::drive::{BindError, claim, free_line};
use crate::verdict::violate;
use drivers::dsa::{DsaError, Fill, Refusal};
use hal::{DeviceAddress, Hal as _};
use machine::SimHal;
use machine::memory::MEMORY_BASE;
use std::sync::atomic::Ordering::Relaxed;

/// Does one step; false on a PC without an accelerator.
pub(in crate::pc) fn apply(stack: &PcStack, step: &AcceleratorStep) -> bool {
    let Some(accelerator) = of(stack) else { return false };
    let place = |queue: u32| &accelerator.places[queue as usize % accelerator.places.len()];
    match *step {
        AcceleratorStep::Fill { queue, count, depth } => place(queue).stream.carry(count, depth),
        AcceleratorStep::Wrong { queue, count } => {
            place(queue).stream.go_wrong(count);
            place(queue).stream.carry(count, 2);
            stack.saw("accelerator: a fill went outside memory");
        }
        AcceleratorStep::Refused { queue, which } => refused(accelerator, place(queue), which),
        AcceleratorStep::Poll { queue } => {
            if let Some(opening) = place(queue).stream.current() {
                opening.poll();
            }
        }
        AcceleratorStep::Reopen { queue, lines_first, other_mode, ns } => {
            reopen(stack, accelerator, place(queue), (lines_first, other_mode, ns));
        }
        AcceleratorStep::Recover { queue, age_ns } => recover(stack, accelerator, place(queue), age_ns),
        AcceleratorStep::Restart { lines_first, mistake, ns } => {
            restart(stack, accelerator, lines_first, mistake, ns);
        }
        AcceleratorStep::Provoke { portal, opcode, count, gap_ns } => {
            provoke(stack, accelerator, (portal, opcode), (count, gap_ns));
        }
    }
    true
}

fn told(stack: &PcStack, done: Result<(), BindError>, seen: &'static str) {
    match done {
        Ok(()) => stack.saw(seen),
        Err(error) if stack.promises.faulty => _ = error,
        Err(error) => violate("operations", format!("{seen}: {error}, and no fault explains it")),
    }
}

fn reopen(stack: &PcStack, accelerator: &Accelerator, place: &Place, (lines_first, other_mode, ns): (bool, bool, u64)) {
    let Some(_claim) = claim(&place.busy) else { return };
    stack.lines_freed.store(true, Relaxed);
    let closed = accelerator.close(&stack.host, place, lines_first);
    SimHal.delay_ns(ns);
    place.unposted.fetch_xor(other_mode, Relaxed);
    let opened = closed.and_then(|()| accelerator.open(&stack.host, place, &stack.numbers));
    told(stack, opened, "accelerator: queue closed and opened");
}

/// Only a fill that is overdue is a reason, and if there is one, all of them end.
fn recover(stack: &PcStack, accelerator: &Accelerator, place: &Place, age_ns: u64) {
    let Some(_claim) = claim(&place.busy) else { return };
    if place.bound().is_none() {
        return;
    }
    let stream = &place.stream;
    stream.closing.fetch_add(1, Relaxed);
    stream.aborting.fetch_add(1, Relaxed);
    let (before, begin_ns) = (stream.in_flight(), SimHal.now_ns());
    let recovered = accelerator.command(|device| device.recover_queue(place.index, age_ns));
    let end_ns = SimHal.now_ns();
    match recovered {
        Ok(true) => stream.let_go(),
        Ok(false) => {}
        Err(_) => check_stopped(place),
    }
    let is_overdue = |at: &Option<u64>| at.is_some_and(|at| at + age_ns <= begin_ns);
    let overdue = before.iter().find(|(tag, _, accepted)| is_overdue(accepted) && stream.is_in_flight(*tag));
    // Fills that came meanwhile can be overdue too, if that is soon.
    let any = end_ns - begin_ns >= age_ns || before.iter().any(|(_, since_ns, _)| since_ns + age_ns <= end_ns);
    stream.aborting.fetch_sub(1, Relaxed);
    stream.closing.fetch_sub(1, Relaxed);
    match (recovered, overdue) {
        (Ok(false), Some((tag, ..))) => {
            violate(
                "operations",
                format!("fill {tag:#x} is older than {age_ns} ns, and its driver finds none overdue"),
            );
        }
        (Ok(true), Some((tag, ..))) => {
            violate("commands", format!("the queue of fill {tag:#x} was aborted, and the fill has not ended"));
        }
        (Ok(true), None) if !any => {
            violate("operations", format!("work queue {} was aborted, and no fill is {age_ns} ns old", place.index));
        }
        (Ok(true), None) => stack.saw("accelerator: queue aborted"),
        _ => {}
    }
}

/// A queue whose Abort failed takes nothing more, and all that it had has ended.
fn check_stopped(place: &Place) {
    check_all_ended(place, "stopped");
    let queue = place.bound().and_then(|bound| bound.opening.queue());
    if queue.is_none_or(|queue| queue.snapshot().open) {
        violate("operations", format!("the Abort of work queue {} failed, and it is open", place.index));
    }
}

fn restart(stack: &PcStack, accelerator: &Accelerator, lines_first: bool, which: u32, ns: u64) {
    let flags = accelerator.places.iter().map(|place| &place.busy).chain([&accelerator.errors.busy]);
    let Some(_claims) = claim_all(flags) else { return };
    stack.lines_freed.store(true, Relaxed);
    accelerator.restarting.store(true, Relaxed);
    let stopped = shut_down(stack, accelerator, lines_first);
    if stopped.is_ok() {
        try_mistake(accelerator, which);
    }
    SimHal.delay_ns(ns);
    let started = stopped.and_then(|()| accelerator.start(&stack.host, &stack.numbers));
    accelerator.restarting.store(false, Relaxed);
    told(stack, started, "accelerator: shut down and started");
}

/// Shuts the device down with its fills in flight, and frees all lines. The caller holds all of it.
pub(super) fn shut_down(stack: &PcStack, accelerator: &Accelerator, lines_first: bool) -> Result<(), BindError> {
    let streams = || accelerator.places.iter().map(|place| &place.stream);
    for stream in streams() {
        stream.closing.fetch_add(1, Relaxed);
        stream.stopping.fetch_add(1, Relaxed);
        stream.attach(None);
    }
    let free = |wanted: bool| {
        let mut freed = Ok(());
        for place in accelerator.places.iter().filter(|_| wanted) {
            if let Some(bound) = place.set(None) {
                freed = freed.and(free_line(&stack.host, bound.line, &bound.guard));
            }
        }
        if let Some((line, guard)) = wanted.then(|| accelerator.errors.set_line(None)).flatten() {
            freed = freed.and(free_line(&stack.host, line, &guard));
        }
        freed
    };
    let openings: Vec<_> =
        accelerator.places.iter().filter_map(|place| Some((place, place.bound()?.opening))).collect();
    let freed = free(lines_first);
    let down = accelerator.command(|device| device.shutdown());
    let state = accelerator.held(GENSTS) & 0b11;
    if down.is_ok() && state != 0 {
        violate("operations", format!("the driver shut the accelerator down, whose state is {state}"));
    }
    accelerator.places.iter().for_each(|place| check_all_ended(place, "shut down"));
    let freed = freed.and(free(!lines_first));
    accelerator.errors.forget();
    if down.is_err() {
        for (place, opening) in &openings {
            check_kept(opening);
            place.kept.store(true, Relaxed);
        }
    } else {
        *accelerator.device.lock().expect("one host thread") = None;
        accelerator.broken.store(false, Relaxed);
        for place in &accelerator.places {
            place.stream.let_go();
            place.kept.store(false, Relaxed);
        }
    }
    for stream in streams() {
        stream.stopping.fetch_sub(1, Relaxed);
        stream.closing.fetch_sub(1, Relaxed);
    }
    down?;
    Ok(freed?)
}

/// A configuration that is wrong is refused, and the device stays as it is.
fn try_mistake(accelerator: &Accelerator, which: u32) {
    let (config, expected) = mistake(&accelerator.config, which);
    match accelerator.new_device(config) {
        Err(error) if error == expected => {}
        other => {
            let told = other.map(|_| "it is up");
            violate(
                "operations",
                format!("a wrong configuration of the accelerator: {told:?} instead of {expected:?}"),
            );
        }
    }
    if accelerator.held(GENSTS) & 0b11 != 0 {
        violate("operations", "a wrong configuration has enabled the accelerator");
    }
}

fn provoke(stack: &PcStack, accelerator: &Accelerator, (portal, opcode): (u32, u8), count: (u32, u64)) {
    let Some(_claim) = claim(&accelerator.errors.busy) else { return };
    if accelerator.errors.line().is_some() {
        accelerator.errors.provoke(portal, opcode, count);
        stack.saw("accelerator: an error without a record");
    }
}

/// Requests to a queue, and operations on queues, that the driver must refuse.
fn refused(accelerator: &Accelerator, place: &Place, which: u32) {
    let Some(_claim) = claim(&place.busy) else { return };
    let (Some(bound), Some(device)) = (place.bound(), accelerator.device()) else { return };
    let Some(queue) = bound.opening.queue().filter(|_| !accelerator.broken.load(Relaxed)) else { return };
    let submit = |bytes, destination| {
        let fill = Fill { pattern: 1, destination: DeviceAddress(destination), bytes, tag: 0 };
        let submitted = queue.submit(&[fill]);
        (submitted.accepted == 0).then_some(submitted.refusal).flatten().ok_or_else(|| "accepted".to_owned())
    };
    let most = place.bytes_max;
    let request = |bytes, destination, expected: Refusal| {
        let told: Result<Refusal, String> = submit(bytes, destination);
        (told == Ok(expected), format!("{bytes} bytes to {destination:#x}: {told:?}"))
    };
    // While it is refused, it may keep another command away.
    let operation = |give: &dyn Fn() -> Option<DsaError>, expected| {
        let (told, _) = accelerator.give(give);
        (told == Some(expected) || told == Some(DsaError::Busy), format!("{told:?} instead of {expected:?}"))
    };
    let opening = || Opening::new(place.stream.clone());
    let index = place.index;
    let (is_right, text) = match which % 8 {
        0 => request(0, MEMORY_BASE, Refusal::Length(0, most)),
        1 => request(most + 1, MEMORY_BASE, Refusal::Length(most + 1, most)),
        2 => request(u32::MAX, MEMORY_BASE, Refusal::Length(u32::MAX, most)),
        3 if most > 1 => {
            request(most, u64::MAX - u64::from(most) + 2, Refusal::Wraps(u64::MAX - u64::from(most) + 2, most))
        }
        4 => operation(&|| device.open_queue(index, opening()).err(), DsaError::Open(index)),
        5 => operation(&|| device.open_queue(STRANGER, opening()).err(), DsaError::NoQueue(STRANGER)),
        6 => operation(&|| device.close_queue(STRANGER).err(), DsaError::NotOpen(STRANGER)),
        _ => operation(&|| device.recover_queue(STRANGER, 0).err(), DsaError::NotOpen(STRANGER)),
    };
    if !is_right {
        violate("operations", format!("the accelerator's driver does not refuse what is wrong: {text}"));
    }
}
