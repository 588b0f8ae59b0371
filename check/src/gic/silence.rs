//! An ITS that says nothing for longer than its driver waits. Whatever an operation returns then, it holds when the ITS has gone on:
//! no number that is free is mapped, lines are where they are believed, and a CPU that stays online can have lines.

use super::beliefs;
use super::harness::{self, EVENTS_MAX};
use super::stack::GicStack;
use crate::draw::Draw;
use crate::fullness::numbers;
use crate::verdict::violate;
use hal::{CpuId, CpuSet, Hal as _};
use irq::{AllocRequest, Flow, Irq, IrqError};
use machine::gic::Gic;
use machine::{SimHal, inspect};
use std::sync::Arc;

/// The driver waits for 100 ms, and tries some things twice. Behind that it has given up for good.
const SILENT_NS: (u64, u64) = (105_000_000, 190_000_000);
/// All commands are done so long after the silence.
const REST_NS: u64 = 200_000;
/// The requester of the bells, whose events these are.
const DEVICE: u32 = 0x0100;

/// An operation may need so many commands before the last one.
const LAST_WORDS_MAX: u64 = 4;

/// What is asked of a silent ITS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Operation {
    Allocate,
    Move,
    Free,
    /// The CPU of a line goes offline.
    Offline,
    /// A CPU without lines does.
    OfflineEmpty,
}

/// A silence, and what is asked then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Silence {
    pub(super) operation: Operation,
    pub(super) ns: u64,
    /// Commands that the ITS does before.
    pub(super) last_words: u32,
}

impl Silence {
    pub(super) fn draw(draw: &mut Draw) -> Self {
        use Operation::*;
        let operation = *draw.pick(&[Allocate, Move, Free, Offline, OfflineEmpty]);
        let ns = draw.within(SILENT_NS.0..=SILENT_NS.1);
        let last_words = if draw.percent(50) { draw.within(1..=LAST_WORDS_MAX) as u32 } else { 0 };
        Self { operation, ns, last_words }
    }
}

/// The last CPU, which goes offline.
fn last(stack: &GicStack) -> CpuId {
    CpuId(stack.system.cpus - 1)
}

fn alloc(stack: &GicStack, cpu: CpuId) -> Result<Irq, IrqError> {
    let domain = stack.system.arm.messages().expect("a machine with an ITS").domain().clone();
    let request = AllocRequest { affinity: CpuSet::of(cpu), ..harness::request(0) };
    stack.system.core.alloc_line(domain, &request, Flow::FastEoi)
}

/// The line that the operation is about, or that keeps the device known. The ITS still answers.
pub(super) fn begin(stack: &GicStack, operation: Operation) -> Vec<Irq> {
    if operation == Operation::OfflineEmpty {
        return Vec::new();
    }
    match alloc(stack, last(stack)) {
        Ok(line) => vec![line],
        Err(error) => violate("operations", format!("allocate: {error}")),
    }
}

/// Asks a silent ITS. Returns the lines that there are then.
pub(super) fn ask(stack: &Arc<GicStack>, operation: Operation, mut lines: Vec<Irq>) -> Vec<Irq> {
    let core = &stack.system.core;
    match operation {
        Operation::Allocate => lines.extend(alloc(stack, last(stack))),
        // It may refuse.
        Operation::Move => lines.iter().for_each(|&line| _ = core.set_affinity(line, &CpuSet::of(CpuId(0)))),
        Operation::Free => lines.drain(..).for_each(|line| stack.check("free line", core.free_line(line))),
        Operation::Offline | Operation::OfflineEmpty => _ = stack.system.take_offline(last(stack).0, 1_000, true),
    }
    lines
}

/// The ITS has gone on.
pub(super) fn judge(stack: &GicStack, lines: Vec<Irq>, silent_until_ns: u64) {
    SimHal.delay_ns(silent_until_ns.saturating_sub(SimHal.now_ns()) + REST_NS);
    check_free_numbers(stack);
    for &line in &lines {
        // A move that was given up may have happened since. The next one holds.
        stack.check("move", stack.system.core.set_affinity(line, &CpuSet::of(CpuId(0))));
    }
    beliefs::check(&stack.system, stack.promises(), false);
    lines.into_iter().for_each(|line| stack.check("free line", stack.system.core.free_line(line)));
    let cpu = last(stack);
    match alloc(stack, cpu) {
        Ok(line) => {
            beliefs::check(&stack.system, stack.promises(), false);
            stack.check("free line", stack.system.core.free_line(line));
        }
        Err(error) => violate("operations", format!("no line on CPU {cpu}, which is online: {error}")),
    }
    stack.saw("ITS: silent for longer than its driver waits");
}

/// An event or LPI that a driver gives out next is not mapped.
fn check_free_numbers(stack: &GicStack) {
    let domain = stack.system.arm.messages().expect("a machine with an ITS").domain();
    let request = harness::request(0);
    let events = numbers(&**domain, &request);
    let lpis = numbers(&*domain.parent().expect("LPIs"), &request);
    let mapped = inspect(stack.system.model, |gic: &Gic, world| {
        let of = |event| gic.translation(world, DEVICE, event).map(|(lpi, _)| (event, lpi));
        (0..EVENTS_MAX).filter_map(of).collect::<Vec<_>>()
    });
    for (event, lpi) in mapped.into_iter().flatten() {
        if events.iter().any(|&number| number as u32 == event) {
            violate("beliefs", format!("event {event} is free, and the ITS maps it to LPI {lpi}"));
        }
        if lpis.contains(&u64::from(lpi)) {
            violate("beliefs", format!("LPI {lpi} is free, and event {event} sends it"));
        }
    }
}
