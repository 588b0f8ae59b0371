//! Managers' steps on the stack.

use super::adopt;
use super::beliefs;
use super::guards;
use super::lodgers;
use super::misuse;
use super::source::{DISABLED, ENABLED, Kind, Source, claim};
use super::stack::{GicStack, STRAY, trigger};
use super::step::GicStep;
use crate::checkers::truth::marks;
use crate::deeds::Deed;
use crate::verdict::violate;
use hal::{CpuId, CpuSet, Hal as _, Regs as _};
use irq::{Irq, IrqChipState, IrqError};
use machine::SimHal;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// An event is waited for by so many looks, so far apart.
const FIRE_LOOKS: u32 = 30;
const FIRE_LOOK_NS: u64 = 100;
/// A tick or a kick comes within this time, however busy its CPU is.
const CAME_NS: u64 = 5_000_000;

pub(super) fn apply(stack: &Arc<GicStack>, step: &GicStep) {
    let is_calm = |step: &_| matches!(step, GicStep::Fire { .. } | GicStep::Burst { .. } | GicStep::Synchronize { .. });
    if !is_calm(step) {
        marks::disturbed();
    }
    match *step {
        GicStep::Move { source, cpus } => move_line(stack, source, cpus),
        GicStep::Chase { source, moves, ns } => chase(stack, source, moves, ns),
        GicStep::Disable { source, ns, twice } => disable(stack, source, ns, twice),
        GicStep::Replace { source } => replace(stack, source, false),
        GicStep::Realloc { source } => replace(stack, source, true),
        GicStep::SetPending { source } => with(stack, source, "set pending", |line| {
            match stack.system.core.set_irqchip_state(line, IrqChipState::Pending, true) {
                // A pin has no such bit; an ITS has none for an event without a number.
                Err(IrqError::NotSupported(_)) => Ok(()),
                // While the only CPU of a managed line is offline, its event has no LPI.
                Err(IrqError::Hardware("ITS", _)) if stack.source(source).managed => Ok(()),
                set => set,
            }
        }),
        GicStep::Retrigger { source } => with(stack, source, "retrigger", |line| stack.system.core.retrigger(line)),
        GicStep::SetType { source, level } => set_type(stack, source, level),
        GicStep::Synchronize { source } => {
            with(stack, source, "synchronize", |line| stack.system.core.synchronize(line));
        }
        GicStep::Offline { cpu, ns } => offline(stack, cpu, ns),
        GicStep::DisablePrivate { source, cpu, ns } => disable_private(stack, source, cpu, ns),
        GicStep::Stray { ns } if ns.is_multiple_of(3) => adopt::adopt(stack, ns),
        GicStep::Stray { ns } => stray(stack, ns),
        GicStep::InterruptsOff { cpu, ns } => stack.system.on(cpu % stack.system.cpus, move || {
            let off = SimHal.irq_save();
            SimHal.delay_ns(ns);
            SimHal.irq_restore(off);
        }),
        GicStep::Tick { cpu, ns } => tick(stack, cpu % stack.system.cpus, ns),
        GicStep::Kick { cpu } => kick(stack, cpu % stack.system.cpus),
        GicStep::Misuse { source } => misuse::shared(stack, source),
        GicStep::Lodge { turns, cpu, ns } => lodgers::share(stack, turns, cpu, ns),
        GicStep::Fire { source } => fire(stack, source),
        GicStep::Burst { source, count, depth } => stack.source(source).carry(&stack.system, count, depth),
    }
}

/// From now on handlers do things to lines.
pub(super) fn begin_deeds(stack: &Arc<GicStack>) {
    let weak = Arc::downgrade(stack);
    stack.deeds.begin(move |deed| {
        // Where lines are delivered is judged in the last load.
        let Some(stack) = weak.upgrade().filter(|stack| !stack.proving.load(Relaxed)) else { return };
        marks::disturbed();
        match deed {
            Deed::Move { line, cpus } => move_line(&stack, line, cpus),
            Deed::Disable { line, ns } => disable_at_once(&stack, line, ns),
            Deed::Retrigger { line } => with(&stack, line, "retrigger", |line| stack.system.core.retrigger(line)),
        }
        stack.saw("handler: did something to a line");
    });
}

/// An operation on a source's line. Another manager may have freed the line meanwhile.
fn with(stack: &GicStack, source: u32, what: &str, body: impl FnOnce(Irq) -> Result<(), IrqError>) {
    let Some((_, line)) = stack.shared(source) else { return };
    match body(line) {
        Ok(()) | Err(IrqError::NoLine(_)) => {}
        result => stack.check(what, result),
    }
}

fn move_line(stack: &GicStack, source: u32, cpus: u64) {
    let wanted: CpuSet = (0..stack.system.cpus).filter(|cpu| cpus & 1 << (cpu % 8) != 0).map(CpuId).collect();
    let own = stack.source(source);
    let claim = stack.guards.line(own.number as usize).and_then(|_| own.claim());
    // Who has the claim finds the line that is there now.
    let guard = claim.as_ref().and_then(|_| stack.guards.line(own.number as usize));
    let moved = |line| match &guard {
        Some(guard) => guard.set_affinity(&wanted),
        None => stack.system.core.set_affinity(line, &wanted),
    };
    with(stack, source, "move", |line| match moved(line) {
        // A managed line keeps its CPU, and a pin moves with its block.
        Err(IrqError::Managed(_)) if own.managed => Ok(()),
        Err(IrqError::NoCpu(_) | IrqError::NotSupported(_)) => Ok(()),
        moved => {
            if stack.system.core.irqchip_state(line, IrqChipState::Active) == Ok(true) {
                stack.saw("move: of an active line");
            }
            moved
        }
    });
}

/// Moves the line under load, so that interrupts come on one CPU while the handler of the previous one still runs on
/// another. Message lines are preferred, because no active state holds them back.
fn chase(stack: &GicStack, source: u32, moves: u32, ns: u64) {
    let messages = stack.sources.iter().filter(|source| matches!(source.kind, Kind::Message { .. }));
    let messages: Vec<_> = messages.map(|source| source.number).collect();
    let source = if messages.is_empty() { source } else { messages[source as usize % messages.len()] };
    stack.source(source).carry(&stack.system, (2 * moves).into(), 2);
    for turn in 0..moves {
        move_line(stack, source, 1 << (turn % stack.system.cpus));
        SimHal.delay_ns(ns);
    }
}

/// Looks on the way are points of the seam, so a directed schedule can stop anywhere between the event and its handler.
fn fire(stack: &GicStack, source: u32) {
    let source = stack.source(source);
    source.carry(&stack.system, 1, 1);
    for _ in 0..FIRE_LOOKS {
        if source.is_idle() {
            return;
        }
        SimHal.delay_ns(FIRE_LOOK_NS);
    }
}

/// Needs a claim: a request would forget the disables of the previous handler.
fn disable(stack: &GicStack, source: u32, ns: u64, twice: bool) {
    let Some((source, line)) = stack.shared(source) else { return };
    let Some(_claim) = source.claim() else { return };
    if source.line() != Some(line) || matches!(source.kind, Kind::Nmi { .. }) {
        return;
    }
    if let Some(guard) = stack.guards.line(source.number as usize) {
        return guards::disable(stack, source, &guard, ns, twice);
    }
    let core = &stack.system.core;
    stack.check("disable", core.disable(line));
    stack.silence(source, true);
    beliefs::check_promises(&stack.system, stack.promises());
    if twice {
        stack.check("disable", core.disable(line));
        SimHal.delay_ns(ns);
        stack.check("enable", core.enable(line));
        stack.saw("disable: one within another");
    }
    SimHal.delay_ns(ns);
    if core.view(line).is_some_and(|view| view.pending) {
        stack.saw("disable: something came meanwhile");
    }
    stack.silence(source, false);
    stack.check("enable", core.enable(line));
}

/// The same without a wait for handlers, as a handler may do it.
fn disable_at_once(stack: &GicStack, source: u32, ns: u64) {
    let Some((source, line)) = stack.shared(source) else { return };
    let Some(_claim) = source.claim() else { return };
    if source.line() != Some(line) || matches!(source.kind, Kind::Nmi { .. }) {
        return;
    }
    stack.check("disable", stack.system.core.disable_nosync(line));
    SimHal.delay_ns(ns);
    stack.check("enable", stack.system.core.enable(line));
}

fn replace(stack: &Arc<GicStack>, source: u32, line_too: bool) {
    let Some((source, line)) = stack.shared(source) else { return };
    let Some(_claim) = source.claim() else { return };
    let index = source.number as usize;
    if !line_too {
        stack.check("free", stack.remove(index));
        stack.check("request", stack.install(index));
        stack.saw("handler: replaced");
    } else {
        stack.freed.fetch_add(1, Relaxed);
        stack.give_back(index, line);
        // The number is free once messages on their way have passed.
        stack.bind_again(index);
        stack.saw("line: freed under load");
    }
    after(stack, source);
}

/// Looks for events that came while the line had no handler, as a driver does when it takes a device over.
fn after(stack: &GicStack, source: &Source) {
    source.serve(&stack.system);
}

fn set_type(stack: &GicStack, source: u32, level: bool) {
    let Some((source, line)) = stack.shared(source) else { return };
    let Some(_claim) = source.claim() else { return };
    if source.line() != Some(line) || !matches!(source.kind, Kind::Spi { .. } | Kind::Pin { .. }) {
        return;
    }
    stack.check("disable", stack.system.core.disable(line));
    source.port.set_level(level);
    source.level.store(level, Relaxed);
    stack.check("set type", stack.system.core.set_type(line, trigger(level)));
    stack.check("enable", stack.system.core.enable(line));
    stack.saw("line: trigger changed");
    after(stack, source);
}

fn offline(stack: &Arc<GicStack>, cpu: u32, ns: u64) {
    let Some(_claim) = claim(&stack.hotplug) else { return };
    if !stack.system.take_offline(cpu, ns, stack.faulty) {
        stack.saw("operation: failed");
    }
}

fn disable_private(stack: &GicStack, source: u32, cpu: u32, ns: u64) {
    let private: Vec<_> = stack.sources.iter().filter(|source| source.is_private()).collect();
    let chosen = private.get(source as usize % private.len().max(1));
    let Some((line, intid)) = chosen.and_then(|source| Some((source.line()?, source.private_intid()?))) else {
        return;
    };
    // A CPU that goes or comes does the same to these lines.
    let Some(_claim) = claim(&stack.hotplug) else { return };
    let system = stack.system.clone();
    stack.system.on(cpu % stack.system.cpus, move || {
        system.core.disable_percpu(line).expect("it is enabled");
        machine::mark(DISABLED, intid.into());
        SimHal.delay_ns(ns);
        machine::mark(ENABLED, intid.into());
        system.core.enable_percpu(line).expect("it is private");
    });
}

/// The kernel's tick comes on the CPU that asked for it, and not before its time.
fn tick(stack: &Arc<GicStack>, cpu: u32, ns: u64) {
    // A CPU that goes offline loses its tick.
    let Some(_claim) = claim(&stack.hotplug) else { return };
    let system = stack.system.clone();
    stack.system.on(cpu, move || {
        let heard = &system.ticks[cpu as usize];
        let at_ns = SimHal.now_ns() + ns;
        let before = heard.count();
        system.arm.tick_at(at_ns);
        wait_for(&format!("the tick of CPU {cpu}"), || heard.count() > before && heard.last_ns() >= at_ns);
    });
    stack.saw("tick: asked for and came");
}

/// A kicked CPU handles its reschedule interrupt.
fn kick(stack: &Arc<GicStack>, cpu: u32) {
    let Some(_claim) = claim(&stack.hotplug) else { return };
    let heard = &stack.system.kicks[cpu as usize];
    let before = heard.count();
    if let Err(error) = stack.system.arm.kick(CpuId(cpu)) {
        violate("operations", format!("kick CPU {cpu}: {error}"));
    }
    wait_for(&format!("the kick of CPU {cpu}"), || heard.count() > before);
    stack.saw("kick: sent and came");
}

fn wait_for(what: &str, came: impl Fn() -> bool) {
    let end_ns = SimHal.now_ns() + CAME_NS;
    while !came() {
        if SimHal.now_ns() > end_ns {
            violate("waits", format!("{what} has not come for {CAME_NS} ns"));
        }
        SimHal.delay_ns(500);
    }
}

/// A wire without an owner, which firmware has left enabled.
fn stray(stack: &GicStack, ns: u64) {
    // It has an owner for a while.
    let Some(_claim) = claim(&stack.lodging) else { return };
    stack.strays.fetch_add(1, Relaxed);
    let before = stack.system.arm.strays();
    stack.system.windows.distributor.write32(0x100 + 4 * (STRAY / 32), 1 << (STRAY % 32));
    stack.stray.ring(ns);
    SimHal.delay_ns(4 * ns + 5_000);
    stack.stray.serve();
    if stack.system.arm.strays() > before {
        stack.saw("stray: found, ended, disabled");
    }
}
