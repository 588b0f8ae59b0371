//! The interrupt of the CPUs' performance counters: a private line that is a pseudo-NMI, on each CPU that enables it, and an ordinary
//! line afterwards.

use super::beliefs;
use super::harness::{self, ArmHarness};
use crate::verdict::violate;
use hal::{CpuSet, Hal as _};
use irq::{Action, AllocRequest, Flow, Irq, IrqChipState, IrqReturn, RequestFlags};
use machine::SimHal;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The INTID of their PPI (Arm BSA, "PPI assignments").
const COUNTERS: u32 = 23;
/// An interrupt that is set pending comes within this time.
const COMES_NS: u64 = 20_000;
const LOOK_NS: u64 = 200;

/// Interrupts that came, by CPU.
struct Overflows(Vec<AtomicU64>);

impl Action for Overflows {
    fn handle(&self, _: Irq) -> IrqReturn {
        self.0[SimHal.cpu().index()].fetch_add(1, Relaxed);
        IrqReturn::Handled
    }
}

/// Takes the line, as a pseudo-NMI and then as an ordinary one, and gives it back. All CPUs are online, and nothing else goes on.
pub(super) fn use_line(system: &Arc<ArmHarness>) {
    let request = AllocRequest { affinity: CpuSet::first(system.cpus), ..harness::request(COUNTERS) };
    let line = done("allocate", system.core.alloc_line(system.arm.domain(), &request, Flow::PerCpu));
    for nmi in [true, false] {
        let overflows = Arc::new(Overflows((0..system.cpus).map(|_| AtomicU64::new(0)).collect()));
        let action: Arc<dyn Action> = overflows.clone();
        let (core, flags) = (&system.core, RequestFlags::default());
        let requested = if nmi {
            core.request_nmi(line, "counters", action.clone())
        } else {
            core.request(line, "counters", flags, action.clone())
        };
        done("request", requested);
        (0..system.cpus).for_each(|cpu| switch(system, line, cpu, (nmi, true)));
        (0..system.cpus).for_each(|cpu| overflow(system, line, cpu, &overflows));
        (0..system.cpus).for_each(|cpu| switch(system, line, cpu, (nmi, false)));
        done("free", core.free(line, &action));
    }
    done("free line", system.core.free_line(line));
}

fn done<T, E: Debug>(what: &str, result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| violate("operations", format!("{what} of the counters' line: {error:?}")))
}

/// Enables or disables the line on a CPU. The GIC must then have it so there, and a priority above the others only while it is
/// enabled.
fn switch(system: &Arc<ArmHarness>, line: Irq, cpu: u32, (nmi, on): (bool, bool)) {
    let own = system.clone();
    let switched = system.on(cpu, move || {
        let core = &own.core;
        if on { core.enable_percpu(line) } else { core.disable_percpu(line) }
    });
    done("enable or disable", switched);
    beliefs::check_private(system, cpu, COUNTERS, on, on && nmi);
}

/// The counters of a CPU overflow once.
fn overflow(system: &Arc<ArmHarness>, line: Irq, cpu: u32, overflows: &Overflows) {
    let own = system.clone();
    done("set pending", system.on(cpu, move || own.core.set_irqchip_state(line, IrqChipState::Pending, true)));
    let end_ns = SimHal.now_ns() + COMES_NS;
    while overflows.0[cpu as usize].load(Relaxed) == 0 {
        if SimHal.now_ns() > end_ns {
            violate("proof", format!("the counters' interrupt of CPU {cpu} has not come for {COMES_NS} ns"));
        }
        SimHal.delay_ns(LOOK_NS);
    }
    let others = overflows.0.iter().skip(cpu as usize + 1).any(|count| count.load(Relaxed) > 0);
    if others || overflows.0[cpu as usize].load(Relaxed) != 1 {
        violate("truth", format!("one interrupt of CPU {cpu}'s counters, and all counts are {:?}", overflows.0));
    }
}
