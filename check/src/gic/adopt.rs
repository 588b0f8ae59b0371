//! A driver comes for a wire that firmware has left enabled, while the wire rings. An interrupt of it may have been acknowledged when
//! it was nobody's, and be ended as such when it is the driver's.

use super::harness;
use super::source::claim;
use super::stack::{GicStack, STRAY};
use crate::checkers::truth::marks;
use crate::verdict::violate;
use hal::{CpuSet, Hal as _, Regs as _};
use irq::{Action, AllocRequest, Irq, IrqReturn, RequestFlags, Trigger};
use machine::SimHal;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const CHECKER: &str = "adopted";
/// GICD_ISENABLER (IHI 0069H, table "Distributor register map").
const ISENABLER: u32 = 0x100;
/// The driver's handler runs within this time: longer than a whole load on a line that the GIC prefers takes.
const CAME_NS: u64 = 200_000_000;
const LOOK_NS: u64 = 500;
/// Drivers that come and leave in a step, each somewhat later behind the ring than the one before.
const TURNS: u64 = 6;
/// From the command to ring until the wire rings.
const RING_NS: u64 = 500;

/// The driver's handler.
struct Owner {
    stack: Arc<GicStack>,
    runs: AtomicU64,
}

impl Action for Owner {
    fn handle(&self, _: Irq) -> IrqReturn {
        self.stack.stray.serve();
        self.runs.fetch_add(1, Relaxed);
        IrqReturn::Handled
    }
}

/// Drivers come for the wire, one after the other, about `ns` behind its ring.
pub(super) fn adopt(stack: &Arc<GicStack>, ns: u64) {
    let Some(_claim) = claim(&stack.lodging) else { return };
    for turn in 0..TURNS {
        stack.strays.fetch_add(1, Relaxed);
        stack.freed.fetch_add(1, Relaxed);
        stack.system.windows.distributor.write32(ISENABLER + 4 * (STRAY / 32), 1 << (STRAY % 32));
        stack.stray.ring(RING_NS);
        SimHal.delay_ns(ns % 1_000 + 150 * turn);
        if !come(stack) {
            break;
        }
    }
    stack.stray.serve();
}

/// A driver comes, is interrupted, and leaves. False if there is no line for it.
fn come(stack: &Arc<GicStack>) -> bool {
    let core = &stack.system.core;
    let request = AllocRequest { affinity: CpuSet::first(stack.system.cpus), ..harness::request(STRAY) };
    // Another step may have taken all lines.
    let Ok(line) = core.alloc_line(stack.system.arm.domain(), &request, stack.system.arm.flow()) else { return false };
    marks::allocated(line);
    stack.check("trigger of an adopted wire", core.set_type(line, Trigger::LevelHigh));
    let owner = Arc::new(Owner { stack: stack.clone(), runs: AtomicU64::new(0) });
    let action: Arc<dyn Action> = owner.clone();
    stack.check("request of an adopted wire", core.request(line, "owner", RequestFlags::default(), action.clone()));
    // The ring that it came upon may have been told already.
    SimHal.delay_ns(RING_NS);
    let before = owner.runs.load(Relaxed);
    stack.stray.ring(0);
    let end_ns = SimHal.now_ns() + CAME_NS;
    while owner.runs.load(Relaxed) == before {
        if SimHal.now_ns() > end_ns {
            let view = core.view(line).map(|view| view.to_string()).unwrap_or_default();
            violate(CHECKER, format!("the handler of a wire that rings has not run for {CAME_NS} ns:\n{view}"));
        }
        SimHal.delay_ns(LOOK_NS);
    }
    stack.check("free of an adopted wire", core.free(line, &action));
    stack.check("free line", core.free_line(line));
    stack.saw("adopted: a wire that rings");
    true
}
