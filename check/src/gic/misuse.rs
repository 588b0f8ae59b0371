//! What the core must refuse, by the errors in its documentation, and what a refusal must leave as it was.

use super::harness;
use super::source::{Kind, Source};
use super::stack::GicStack;
use crate::verdict::violate;
use hal::CpuSet;
use irq::{Action, AllocRequest, Flow, Irq, IrqError, IrqReturn, RequestFlags};
use std::fmt::Debug;
use std::sync::Arc;

const CHECKER: &str = "misuse";
/// No line has this number.
const NOBODY: Irq = Irq(9_999);

/// A handler that is on no line.
struct Alien;

impl Action for Alien {
    fn handle(&self, irq: Irq) -> IrqReturn {
        violate(CHECKER, format!("a handler runs whose request for line {irq} was refused"))
    }
}

fn refused<T: Debug>(what: &str, result: Result<T, IrqError>, expected: IrqError) {
    if !matches!(&result, Err(error) if *error == expected) {
        violate(CHECKER, format!("{what}: {result:?}, expected {expected:?}"));
    }
    if expected.to_string().is_empty() {
        violate(CHECKER, format!("{expected:?} says nothing"));
    }
}

/// Wrong operations on a source's line, which has a handler and is enabled.
pub(super) fn shared(stack: &Arc<GicStack>, source: u32) {
    let Some((source, line)) = stack.shared(source) else { return };
    let Some(_claim) = source.claim() else { return };
    let core = &stack.system.core;
    let state =
        || core.view(line).map(|view| (view.handlers, view.disabled_depth, view.affinity.is_empty(), view.flow));
    let before = state();
    if source.line() != Some(line) || before.as_ref().is_none_or(|(handlers, ..)| handlers.is_empty()) {
        return;
    }
    let alien: Arc<dyn Action> = Arc::new(Alien);
    refused("enable without a disable", core.enable(line), IrqError::NotDisabled(line));
    let flags = RequestFlags::default();
    refused("another handler", core.request(line, "another", flags, alien.clone()), IrqError::NotShared(line));
    let threaded = core.request_threaded(line, "another", flags, Some(alien.clone()), alien.clone());
    refused("another handler with a thread", threaded, IrqError::NotShared(line));
    refused("another pseudo-NMI", core.request_nmi(line, "another", alien.clone()), IrqError::NotShared(line));
    refused("free of a handler that is not there", core.free(line, &alien), IrqError::NoAction(line));
    refused("free of a line with a handler", core.free_line(line), IrqError::InUse(line));
    refused("enable on this CPU", core.enable_percpu(line), IrqError::NotPerCpu(line));
    refused("disable on this CPU", core.disable_percpu(line), IrqError::NotPerCpu(line));
    if !matches!(source.kind, Kind::Pin { .. }) {
        let expected = if source.managed { IrqError::Managed(line) } else { IrqError::NoCpu(line) };
        refused("move to no CPU", core.set_affinity(line, &CpuSet::new()), expected);
    }
    let percpu = IrqError::Flow(Flow::PerCpu, "a line that is per-CPU from the start, or never");
    refused("another flow", core.set_flow(line, Flow::PerCpu), percpu);
    if let Some(intid) = source.wired() {
        let request = AllocRequest { affinity: CpuSet::first(stack.system.cpus), ..harness::request(intid) };
        if let Ok(second) = core.alloc_line(stack.system.arm.domain(), &request, stack.system.arm.flow()) {
            violate(CHECKER, format!("INTID {intid} has line {line}, and line {second} too"));
        }
    }
    let after = state();
    if before != after {
        violate(CHECKER, format!("refusals changed line {line}: {before:?}, then {after:?}"));
    }
    stack.saw("refused: wrong operations");
    nobody(stack);
    private(stack, &alien);
}

fn nobody(stack: &GicStack) {
    let core = &stack.system.core;
    for (what, result) in [
        ("enable", core.enable(NOBODY)),
        ("disable", core.disable(NOBODY)),
        ("synchronize", core.synchronize(NOBODY)),
        ("retrigger", core.retrigger(NOBODY)),
        ("free", core.free_line(NOBODY)),
        ("move", core.set_affinity(NOBODY, &CpuSet::first(1))),
    ] {
        refused(what, result, IrqError::NoLine(NOBODY));
    }
    if core.view(NOBODY).is_some() || core.count(NOBODY, hal::CpuId(0)) != 0 {
        violate(CHECKER, "a line that does not exist has a state");
    }
}

/// A line that each CPU has for itself.
fn private(stack: &GicStack, alien: &Arc<dyn Action>) {
    let lines = stack.sources.iter().filter(|source| source.is_private());
    let Some(line) = lines.clone().find_map(|source| source.line()) else { return };
    let core = &stack.system.core;
    refused("disable of a private line", core.disable(line), IrqError::PerCpu(line));
    refused("the same without waiting", core.disable_nosync(line), IrqError::PerCpu(line));
    let all = CpuSet::first(stack.system.cpus);
    refused("move of a private line", core.set_affinity(line, &all), IrqError::NotSupported("set_affinity"));
    refused("free of a handler that is not there", core.free(line, alien), IrqError::NoAction(line));
    refused("free of a private line with a handler", core.free_line(line), IrqError::InUse(line));
}

/// A handler or thread of the line would wait for itself.
pub(super) fn in_handler(system: &harness::ArmHarness, source: &Source, irq: Irq) {
    let expected = IrqError::InHandler(irq);
    refused("synchronize in a handler", system.core.synchronize(irq), expected);
    refused("disable in a handler", system.core.disable(irq), expected);
    let alien: Arc<dyn Action> = Arc::new(Alien);
    refused("free in a handler", system.core.free(irq, &alien), expected);
    refused("free of its line in a handler", system.core.free_line(irq), expected);
    if source.line().is_some_and(|line| line != irq) {
        violate(
            CHECKER,
            format!("source {} has line {:?}, and its handler was told {irq}", source.number, source.line()),
        );
    }
}
