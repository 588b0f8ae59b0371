//! Managers' steps on the stack.

use super::stack::ModerationStack;
use super::step::ModerationStep;
use crate::gic::source::claim;
use crate::verdict::violate;
use hal::{CpuId, CpuSet, Hal as _};
use irq::moderation::Moderated as _;
use irq::{Irq, IrqError};
use machine::SimHal;
use std::sync::Arc;

pub(super) fn apply(stack: &Arc<ModerationStack>, step: &ModerationStep) {
    let cpus = stack.system.cpus;
    match *step {
        ModerationStep::Move { line, cpus: mask } => {
            let wanted: CpuSet = (0..cpus).filter(|cpu| mask & 1 << (cpu % 8) != 0).map(CpuId).collect();
            with(stack, line, |line| stack.system.core.set_affinity(line, &wanted));
        }
        ModerationStep::Disable { line, ns } => disable(stack, line, ns),
        ModerationStep::Offline { cpu, ns } => {
            if let Some(_claim) = claim(&stack.hotplug) {
                stack.system.take_offline(cpu, ns, false);
                stack.saw("CPU: went offline", u64::from(cpus > 1));
            }
        }
        ModerationStep::InterruptsOff { cpu, ns } => stack.system.on(cpu % cpus, move || {
            let off = SimHal.irq_save();
            SimHal.delay_ns(ns);
            SimHal.irq_restore(off);
        }),
        ModerationStep::Burst { consumer, count } => stack.consumer(consumer).source.add(count),
        ModerationStep::Stop { consumer, ns } => {
            let source = &stack.consumer(consumer).source;
            source.set_depth(0);
            SimHal.delay_ns(ns);
            source.set_depth(stack.wanted.depth);
        }
        ModerationStep::Depth { consumer, depth } => stack.consumer(consumer).source.set_depth(depth),
        ModerationStep::Poll { consumer, most, times, gap_ns } => {
            for _ in 0..times {
                let found = stack.consumer(consumer).source.poll_direct(most);
                stack.saw("polled: completions found without an interrupt", found.into());
                SimHal.delay_ns(gap_ns);
            }
        }
        ModerationStep::Level { consumer, level } => set_level(stack, consumer, level),
        ModerationStep::Algorithm { consumer, number } => {
            if let Some(tuned) = &stack.consumer(consumer).tuned {
                let (controller, promise) = stack.wanted.tuning.controller(number);
                tuned.watched.replace(controller, promise);
                stack.saw("tuning: another controller took over", 1);
            }
        }
    }
}

fn line(stack: &ModerationStack, number: u32) -> usize {
    number as usize % stack.lines.len()
}

fn with(stack: &ModerationStack, number: u32, body: impl FnOnce(Irq) -> Result<(), IrqError>) {
    match body(stack.lines[line(stack, number)]) {
        Ok(()) | Err(IrqError::NoCpu(_)) => {}
        Err(error) => violate("operations", format!("{error}, and no fault explains it")),
    }
}

fn disable(stack: &ModerationStack, number: u32, ns: u64) {
    let Some(_claim) = claim(&stack.busy[line(stack, number)]) else { return };
    with(stack, number, |line| {
        stack.system.core.disable(line)?;
        SimHal.delay_ns(ns);
        stack.system.core.enable(line)
    });
}

/// Sets a level by hand, for a consumer that no controller tunes.
fn set_level(stack: &ModerationStack, number: u32, level: u32) {
    let consumer = stack.consumer(number);
    if consumer.tuned.is_none()
        && let Some(_claim) = claim(&consumer.device.busy)
    {
        let table = &stack.wanted.tuning.table;
        consumer.device.program(table.setting(level as usize % (table.last() + 1)));
        stack.saw("tuning: a level was set by hand", 1);
    }
}
