//! CPUs that stay offline through the last load. A state that only a CPU's return heals shows then.

use super::stack::PcStack;
use crate::verdict::violate;
use hal::{CpuId, Hal as _};
use machine::SimHal;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

const LOOK_NS: u64 = 5_000;

/// Takes the last `count` CPUs offline, but never the first.
pub(super) fn leave(stack: &Arc<PcStack>, count: u32) {
    let cpus = stack.host.cpus();
    let count = count.min(cpus - 1);
    for cpu in (cpus - count..cpus).map(CpuId) {
        let (back, gone) = (stack.clone(), stack.clone());
        let before = stack.absent.load(Relaxed);
        let told = move |went: Result<(), irq::IrqError>| match went {
            Ok(()) => _ = gone.absent.fetch_add(1, Relaxed),
            Err(error) => violate("operations", format!("CPU {cpu} does not go offline, healed: {error}")),
        };
        stack.host.offline_until(cpu, move || back.returning.load(Relaxed), told);
        while stack.absent.load(Relaxed) == before {
            SimHal.delay_ns(LOOK_NS);
        }
        stack.saw("CPU: offline through the last load");
    }
}

/// Has them come back.
pub(super) fn come_back(stack: &Arc<PcStack>) {
    stack.returning.store(true, Relaxed);
    let cpus = stack.host.cpus();
    let count = stack.absent.load(Relaxed);
    // Each has returned before it runs anything else.
    (cpus - count..cpus).for_each(|cpu| stack.host.on_cpu(CpuId(cpu), |_| ()));
}
