//! What the harness tells of lines: the answers of their handlers, and what the core claims.

use hal::{CpuId, Hal as _};
use irq::{Irq, IrqCore, IrqReturn, LineView};
use machine::SimHal;

/// A handler of the line has answered.
const ANSWERED: u32 = 0x300;
/// The line was allocated: its counts are 0.
const ALLOCATED: u32 = 0x301;
/// A handler is about to be installed.
const INSTALLING: u32 = 0x302;
/// A handler was removed.
const REMOVED: u32 = 0x303;
/// A manager is about to do something that may keep interrupts from their handlers.
pub(crate) const DISTURBED: u32 = 0x304;
/// The core says that the line is delivered at this CPU, and nobody will move it.
const PLACED: u32 = 0x305;
/// Lines may move again.
const MOVABLE: u32 = 0x306;
/// So many interrupts had no line.
const STRAYS: u32 = 0x307;
/// From here on: what the core claims, by [`Claim`].
const CLAIMED: u32 = 0x308;

/// A line has moved to this CPU: the operation has returned.
const MOVED: u32 = 0x310;
/// The core is about to move lines by itself.
const ASTIR: u32 = 0x311;

/// The line's chip keeps nothing that comes while it is masked.
const DEAF: u32 = 0x312;

/// The line in the bits from here on, the rest below.
const LINE_BIT: u32 = 48;
/// In an answer: 1 + the load of a queue, in the bits from here on.
const LOAD_BIT: u32 = 8;

/// A number that the core gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Claim {
    /// Rounds of its handlers in which none had found something, and answers of threads that found nothing.
    Unhandled,
    /// Throttles.
    Storms,
    /// Interrupts without a handler.
    Unexpected,
    /// Interrupts. The last of the claims.
    Count,
}

impl Claim {
    const ALL: [Self; 4] = [Self::Unhandled, Self::Storms, Self::Unexpected, Self::Count];
}

/// What a handler said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Answer {
    /// It, or its thread, has something to do with the interrupt.
    pub(super) handled: bool,
    pub(super) in_thread: bool,
}

/// One mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Told {
    Answered(u16, Answer),
    Allocated(u16),
    Installing(u16),
    Removed(u16),
    Disturbed,
    Placed(u16, u32),
    Movable,
    Strays(u64),
    Deaf(u16),
    Claimed(u16, Claim, u64),
}

impl Told {
    pub(super) fn read(tag: u32, value: u64) -> Option<Self> {
        let (line, rest) = ((value >> LINE_BIT) as u16, value & ((1 << LINE_BIT) - 1));
        Some(match tag {
            ANSWERED => Self::Answered(line, Answer { handled: rest & 1 != 0, in_thread: rest & 2 != 0 }),
            ALLOCATED => Self::Allocated(line),
            INSTALLING => Self::Installing(line),
            REMOVED => Self::Removed(line),
            DISTURBED => Self::Disturbed,
            PLACED => Self::Placed(line, rest as u32),
            MOVABLE => Self::Movable,
            STRAYS => Self::Strays(value),
            DEAF => Self::Deaf(line),
            _ => Self::Claimed(line, *Claim::ALL.get(tag.checked_sub(CLAIMED)? as usize)?, rest),
        })
    }
}

fn mark(tag: u32, line: Irq, rest: u64) {
    machine::mark(tag, u64::from(line.0) << LINE_BIT | rest);
}

/// A handler answers, as its last act; in a thread of the line or in the interrupt.
pub(crate) fn answered(line: Irq, answer: IrqReturn, in_thread: bool) {
    mark(ANSWERED, line, u64::from(answer != IrqReturn::None) | u64::from(in_thread) << 1);
}

/// The same for the handler of an NVMe queue, in the interrupt.
pub(crate) fn queue_answered(line: Irq, answer: IrqReturn, load: u64) {
    mark(ANSWERED, line, u64::from(answer != IrqReturn::None) | (load + 1) << LOAD_BIT);
}

/// The load of the queue whose handler answered, and whether it claimed the interrupt.
pub(crate) fn answer_of(tag: u32, value: u64) -> Option<(u64, bool)> {
    let load = ((value & ((1 << LINE_BIT) - 1)) >> LOAD_BIT).checked_sub(1)?;
    (tag == ANSWERED).then_some((load, value & 1 != 0))
}

/// A line was allocated.
pub(crate) fn allocated(line: Irq) {
    mark(ALLOCATED, line, 0);
}

/// A handler is about to be installed.
pub(crate) fn installing(line: Irq) {
    mark(INSTALLING, line, 0);
}

/// A handler of the line was removed, and runs no more.
pub(crate) fn removed(line: Irq) {
    mark(REMOVED, line, 0);
}

/// A manager is about to move, disable or resend a line, or to do more.
pub(crate) fn disturbed() {
    machine::mark(DISTURBED, 0);
}

/// What was sent when a CPU came back and its lines with it has been served after this time.
const SERVED_NS: u64 = 100_000;

/// Marks where the core says that each line is delivered, unless it is about to move. No load runs.
pub(crate) fn placed(core: &IrqCore<SimHal>, lines: impl Iterator<Item = Irq>) {
    SimHal.delay_ns(SERVED_NS);
    for line in lines {
        let stays = |view: &LineView| !view.move_wanted && view.retired.is_empty() && !view.in_progress;
        if let Some(target) = core.view(line).filter(stays).and_then(|view| view.effective) {
            mark(PLACED, line, target.cpu.0.into());
        }
    }
}

/// A move of the line has returned. No CPU is on its way off or on, so the line stays where the core says it is.
pub(crate) fn moved(core: &IrqCore<SimHal>, line: Irq) {
    // A notification serves vectors that come meanwhile without another interrupt.
    let is_posted = |view: &LineView| view.levels.iter().any(|level| level.chip.contains("POST"));
    let is_alone = |view: &LineView| !view.move_wanted && !view.shared && view.handlers.len() == 1 && !is_posted(view);
    let place = || core.view(line).filter(is_alone).and_then(|view| view.effective);
    let Some(target) = place() else { return astir() };
    mark(MOVED, line, target.cpu.0.into());
    // Another manager may have moved it before the mark, and have marked that first.
    if place() != Some(target) {
        astir();
    }
}

/// The core is about to move lines by itself.
pub(crate) fn astir() {
    machine::mark(ASTIR, 0);
}

/// The line and the CPU of [`moved`]; none of [`astir`].
pub(in crate::checkers) fn whereabouts(tag: u32, value: u64) -> Option<Option<(u16, u32)>> {
    match tag {
        MOVED => Some(Some(((value >> LINE_BIT) as u16, value as u32))),
        // A number may go to another line.
        ASTIR | ALLOCATED => Some(None),
        _ => None,
    }
}

/// The line whose handler answered in an interrupt.
pub(in crate::checkers) fn answered_line(tag: u32, value: u64) -> Option<u16> {
    (tag == ANSWERED && value & 2 == 0).then_some((value >> LINE_BIT) as u16)
}

/// Marks how many interrupts had no line, on so many CPUs.
pub(crate) fn strays(core: &IrqCore<SimHal>, cpus: u32) {
    machine::mark(STRAYS, (0..cpus).map(|cpu| core.stray_vectors(CpuId(cpu))).sum());
}

/// From now on lines may move again.
pub(crate) fn movable() {
    machine::mark(MOVABLE, 0);
}

/// Marks what the core claims of a line none of whose handlers runs. `at_rest`: no interrupt of it is on its way either.
pub(crate) fn claim(core: &IrqCore<SimHal>, line: Irq, at_rest: bool) {
    let Some(view) = core.view(line) else { return };
    // The timers of an HPET (`drivers::message::MessageSource::forgets_masked`).
    if view.levels.iter().any(|level| level.chip.contains("HPET")) {
        mark(DEAF, line, 0);
    }
    let numbers = [view.unhandled, view.storms.into(), view.unexpected, view.count];
    for (index, number) in (0..).zip(numbers).take(if at_rest { 4 } else { 2 }) {
        mark(CLAIMED + index, line, number);
    }
}

/// A line that had no interrupt yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(super) line: u16,
    pub(super) handlers: u32,
}

impl Known {
    /// The line, if it had no interrupt yet.
    pub(crate) fn of(core: &IrqCore<SimHal>, line: Irq) -> Option<Self> {
        let view = core.view(line).filter(|view| view.count == 0)?;
        Some(Self { line: line.0 as u16, handlers: view.handlers.len() as u32 })
    }
}
