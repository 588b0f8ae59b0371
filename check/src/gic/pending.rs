//! The pending bit of a line, set and cleared by software. While the interrupt cannot be taken, a line that is set pending is read
//! as pending, and one that is cleared is not; what was cleared never comes. Of the kinds of lines that keep no such bit, or none
//! that can be read, only the error that says so is accepted.

use super::harness;
use super::source::{Kind, Source};
use super::stack::GicStack;
use crate::verdict::violate;
use hal::{CpuId, Hal as _, Threads as _};
use irq::{Irq, IrqChipState, IrqError};
use machine::SimHal;
use spec::gic::IntId;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

const CHECKER: &str = "pending";
/// What could come has come so long after its CPU takes interrupts again.
const REST_NS: u64 = 20_000;
/// An interrupt that stays pending is handled within this time.
const COMES_NS: u64 = 5_000_000;
const LOOK_NS: u64 = 200;
/// Set, while no other CPU has sent anything yet.
const READY: u32 = 1 << 16;

/// What the line's interrupts wait for.
#[derive(Clone, Copy)]
enum Held {
    /// Their CPU has interrupts off.
    InterruptsOff,
    /// The line is disabled, on this CPU if it is private.
    Disabled,
}

/// Tries each source's line. All CPUs are online, and nothing else goes on.
pub(super) fn check(stack: &Arc<GicStack>) {
    for source in &stack.sources {
        let Some(line) = source.line() else { continue };
        match source.kind {
            Kind::Sgi { intid } => (0..stack.system.cpus).for_each(|cpu| sent(stack, source, line, (intid, cpu))),
            Kind::Ppi { cpu, .. } => {
                held(stack, source, line, cpu, Held::InterruptsOff);
                held(stack, source, line, cpu, Held::Disabled);
            }
            // Interrupts that are off do not hold it.
            Kind::Nmi { .. } => held(stack, source, line, 0, Held::Disabled),
            kind => {
                let target = stack.system.core.view(line).and_then(|view| view.effective);
                // A pin has no target of its own.
                let cpu = target.map_or(0, |target| target.cpu.0);
                held(stack, source, line, cpu, Held::InterruptsOff);
                // The other kinds are disabled nearer the device, behind which the pending bit would still send.
                if matches!(kind, Kind::Spi { .. }) {
                    held(stack, source, line, cpu, Held::Disabled);
                }
            }
        }
    }
    stack.saw("pending: set and cleared by software");
}

/// How often the line's handlers were called, on all CPUs.
fn count(stack: &GicStack, line: Irq) -> u64 {
    (0..stack.system.cpus).map(|cpu| stack.system.core.count(line, CpuId(cpu))).sum()
}

/// Sets and clears the bit on `cpu`. Then sets it once more: this time the interrupt comes.
fn held(stack: &Arc<GicStack>, source: &Arc<Source>, line: Irq, cpu: u32, by: Held) {
    let before = count(stack, line);
    let (own, kind) = (stack.clone(), source.kind);
    let kept = stack.system.on(cpu, move || hold(&own, line, kind, by, || flip(&own, line, kind)));
    SimHal.delay_ns(REST_NS);
    came(stack, line, kind, count(stack, line) - before, 0);
    if !kept {
        return;
    }
    let own = stack.clone();
    stack.system.on(cpu, move || hold(&own, line, kind, by, || set(&own, line, kind, true)));
    let end_ns = SimHal.now_ns() + COMES_NS;
    while count(stack, line) == before && SimHal.now_ns() < end_ns {
        SimHal.delay_ns(LOOK_NS);
    }
    SimHal.delay_ns(REST_NS);
    came(stack, line, kind, count(stack, line) - before, 1);
}

fn came(stack: &GicStack, line: Irq, kind: Kind, came: u64, expected: u64) {
    if came != expected {
        let what = if expected == 0 { "set pending and cleared" } else { "set pending once" };
        let view = stack.system.core.view(line).map(|view| view.to_string()).unwrap_or_default();
        violate(CHECKER, format!("{kind:?} was {what}, and was handled {came} times:\n{view}"));
    }
}

/// Runs `body` on this CPU while the line's interrupts cannot be taken.
fn hold<R>(stack: &GicStack, line: Irq, kind: Kind, by: Held, body: impl FnOnce() -> R) -> R {
    let core = &stack.system.core;
    let private = matches!(kind, Kind::Ppi { .. });
    match by {
        Held::InterruptsOff => {
            let off = SimHal.irq_save();
            let result = body();
            SimHal.irq_restore(off);
            result
        }
        Held::Disabled => {
            stack.check("disable", if private { core.disable_percpu(line) } else { core.disable(line) });
            let result = body();
            stack.check("enable", if private { core.enable_percpu(line) } else { core.enable(line) });
            result
        }
    }
}

/// Sets the bit, reads it, clears it, reads it. False if the line keeps none.
fn flip(stack: &GicStack, line: Irq, kind: Kind) -> bool {
    if !set(stack, line, kind, true) {
        return false;
    }
    reads(stack, line, kind, true);
    set(stack, line, kind, false);
    reads(stack, line, kind, false);
    true
}

/// False if the line keeps no such bit.
fn set(stack: &GicStack, line: Irq, kind: Kind, value: bool) -> bool {
    match stack.system.core.set_irqchip_state(line, IrqChipState::Pending, value) {
        Ok(()) => true,
        Err(IrqError::NotSupported("irqchip state")) if matches!(kind, Kind::Pin { .. }) => false,
        Err(error) => violate(CHECKER, format!("{kind:?}: set pending to {value}: {error}")),
    }
}

fn reads(stack: &GicStack, line: Irq, kind: Kind, expected: bool) {
    match stack.system.core.irqchip_state(line, IrqChipState::Pending) {
        Ok(pending) if pending == expected => {}
        Ok(pending) => {
            violate(CHECKER, format!("{kind:?} was last set pending: {expected}, and is read as pending: {pending}"))
        }
        // Only the redistributor knows.
        Err(IrqError::NotSupported("pending bit of an LPI that can be read"))
            if matches!(kind, Kind::Message { .. }) => {}
        Err(error) => violate(CHECKER, format!("{kind:?}: is it pending: {error}")),
    }
}

/// Every other CPU sends a software-generated interrupt to `cpu`, which has interrupts off, and so does `cpu` itself. A GICv2
/// keeps one pending bit for each sender (IHI 0048B.b, "GICD_CPENDSGIRn").
fn sent(stack: &Arc<GicStack>, source: &Arc<Source>, line: Irq, (intid, cpu): (u32, u32)) {
    let before = count(stack, line);
    let senders = Arc::new(AtomicU32::new(0));
    let others = stack.system.cpus - 1;
    for other in (0..=others).filter(|&other| other != cpu) {
        let (own, senders) = (stack.clone(), senders.clone());
        let body = move || {
            while senders.load(Relaxed) < READY {
                SimHal.delay_ns(LOOK_NS);
            }
            own.system.arm.send(IntId(intid), CpuId(cpu)).expect("a CPU that has started");
            senders.fetch_add(1, Relaxed);
        };
        SimHal.spawn(harness::spec(other), Box::new(body)).expect("the CPU exists");
    }
    let (own, kind) = (stack.clone(), source.kind);
    stack.system.on(cpu, move || {
        let off = SimHal.irq_save();
        senders.fetch_add(READY, Relaxed);
        while senders.load(Relaxed) < READY + others {
            SimHal.delay_ns(LOOK_NS);
        }
        if others > 0 {
            reads(&own, line, kind, true);
        }
        flip(&own, line, kind);
        SimHal.irq_restore(off);
    });
    SimHal.delay_ns(REST_NS);
    came(stack, line, kind, count(stack, line) - before, 0);
}
