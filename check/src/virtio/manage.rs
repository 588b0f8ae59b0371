//! Managers' steps on the stack.

use super::ask;
use super::stack::{VirtioStack, Which, policy};
use super::step::VirtioStep;
use crate::checkers::truth::marks;
use crate::gic::source::claim;
use crate::verdict::violate;
use drivers::virtio::net::Coalescing;
use hal::{CpuId, CpuSet, Hal as _};
use irq::{Irq, IrqChipState, IrqError};
use machine::SimHal;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

pub(super) fn apply(stack: &Arc<VirtioStack>, step: &VirtioStep) {
    use VirtioStep::{Ask, Burst, Coalesce, Poll, Recover};
    if !matches!(step, Ask { .. } | Burst { .. } | Coalesce { .. } | Poll { .. } | Recover { .. }) {
        marks::disturbed();
    }
    let cpus = stack.system.cpus;
    match *step {
        VirtioStep::Move { line, cpus: mask } => {
            let wanted: CpuSet = (0..cpus).filter(|cpu| mask & 1 << (cpu % 8) != 0).map(CpuId).collect();
            with(stack, line, |line| match stack.system.core.set_affinity(line, &wanted) {
                Err(IrqError::Managed(_)) if stack.system.core.view(line).is_none_or(|view| view.managed) => Ok(()),
                moved => moved,
            });
        }
        VirtioStep::Disable { line, ns } => disable(stack, line, ns),
        VirtioStep::SetPending { line } => {
            with(stack, line, |line| stack.system.core.set_irqchip_state(line, IrqChipState::Pending, true));
        }
        VirtioStep::Offline { cpu, ns } => offline(stack, cpu, ns),
        VirtioStep::InterruptsOff { cpu, ns } => stack.system.on(cpu % cpus, move || {
            let off = SimHal.irq_save();
            SimHal.delay_ns(ns);
            SimHal.irq_restore(off);
        }),
        VirtioStep::Recover { queue } => {
            let queue = stack.load.disk().map(|disk| stack.load.queue_of(&disk, queue));
            if queue.is_some_and(|queue| stack.recover(queue)) {
                stack.saw("disk: queue reset under load");
            }
        }
        VirtioStep::Rebind { disk, policy: number, ns } => rebind(stack, disk, number, ns),
        VirtioStep::Coalesce { packets, usecs } => coalesce(stack, packets, usecs),
        VirtioStep::Ask { queue, times, ns, both: false } => ask::ask(stack, queue, times, ns),
        VirtioStep::Ask { queue, times, ns, both: true } => ask::ask_both(stack, queue, times, ns),
        VirtioStep::Poll { queue } => {
            if let Some(disk) = stack.load.disk()
                && disk.poll(stack.load.queue_of(&disk, queue)) > 0
            {
                stack.saw("disk: a poll found requests");
            }
        }
        VirtioStep::Burst { queue, count } => {
            let queue = stack.load.disk().map_or(0, |disk| stack.load.queue_of(&disk, queue));
            stack.load.add(queue, count);
        }
    }
}

/// An operation on a line. Another manager may have freed the line meanwhile.
fn with(stack: &VirtioStack, line: u32, body: impl FnOnce(Irq) -> Result<(), IrqError>) {
    let Some(line) = stack.line(line) else { return };
    match body(line) {
        Ok(()) | Err(IrqError::NoLine(_) | IrqError::NoCpu(_)) => {}
        Err(IrqError::Hardware("ITS", _)) => {}
        Err(error) => violate("operations", format!("{error}, and no fault explains it")),
    }
}

/// The claims keep other managers from freeing the line meanwhile.
fn disable(stack: &VirtioStack, line: u32, ns: u64) {
    let (Some(_disk), Some(_network)) = (stack.own(Which::Disk), stack.own(Which::Network)) else { return };
    with(stack, line, |line| {
        stack.system.core.disable(line)?;
        SimHal.delay_ns(ns);
        stack.system.core.enable(line)
    });
}

fn offline(stack: &Arc<VirtioStack>, cpu: u32, ns: u64) {
    let Some(_claim) = claim(&stack.hotplug) else { return };
    stack.system.take_offline(cpu, ns, false);
}

fn rebind(stack: &Arc<VirtioStack>, disk: bool, number: u32, ns: u64) {
    let which = if disk { Which::Disk } else { Which::Network };
    let Some(_claim) = stack.own(which) else { return };
    if !disk {
        stack.net_rebound.store(true, Relaxed);
    }
    stack.unbind(which);
    SimHal.delay_ns(ns);
    stack.bind(which, policy(number));
    stack.saw(if disk { "disk: unbound in flight and bound" } else { "network: unbound in flight and bound" });
}

fn coalesce(stack: &VirtioStack, packets: u32, usecs: u32) {
    let Some(_claim) = stack.own(Which::Network) else { return };
    let Some(net) = stack.reflector.net() else { return };
    match net.coalesce_receive(Coalescing { max_packets: packets, max_usecs: usecs }) {
        Ok(()) => stack.saw("network: coalescing changed"),
        Err(error) => violate("operations", format!("coalescing: {error}, and no fault explains it")),
    }
}
