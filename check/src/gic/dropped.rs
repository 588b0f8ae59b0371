//! Guards of handlers that are dropped where a handler cannot be removed: in the handler, in its thread, or with interrupts off. Such
//! a drop disables the line, and leaves handler and line in the core for ever (`systems/src/line.rs`).

use super::harness;
use super::stack::{GicStack, STRAY};
use crate::checkers::truth::marks;
use crate::verdict::violate;
use hal::{CpuSet, Hal as _};
use irq::{Action, AllocRequest, Irq, IrqChipState, IrqReturn, RequestFlags, Trigger};
use machine::SimHal;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use systems::{Handler as HandlerGuard, Line};

const CHECKER: &str = "guards";
/// SPIs without a wire, one for each place. Nobody can free their lines.
const INTID: u32 = STRAY + 2;
/// A handler's thread has run within this time.
const CAME_NS: u64 = 50_000_000;
const LOOK_NS: u64 = 500;
/// What could come has come within this time.
const REST_NS: u64 = 20_000;

/// Where the guard is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Handler,
    Thread,
    InterruptsOff,
}

/// A handler, or the thread of one, that may drop its own guard.
struct Leaver {
    place: Place,
    guard: Mutex<Option<HandlerGuard<SimHal>>>,
    runs: AtomicU32,
}

impl Leaver {
    fn leave(&self) {
        // The lock is let go of before the drop.
        let guard = self.guard.lock().expect("one host thread").take();
        drop(guard);
    }
}

impl Action for Leaver {
    fn handle(&self, _: Irq) -> IrqReturn {
        if self.place != Place::InterruptsOff {
            self.leave();
        }
        self.runs.fetch_add(1, Relaxed);
        IrqReturn::Handled
    }
}

/// The half that only wakes the thread.
struct Waker;

impl Action for Waker {
    fn handle(&self, _: Irq) -> IrqReturn {
        IrqReturn::WakeThread
    }
}

/// Tries all places. The lines stay.
pub(super) fn check(stack: &GicStack) {
    for (intid, place) in (INTID..).zip([Place::Handler, Place::Thread, Place::InterruptsOff]) {
        drop_at(stack, intid, place);
    }
    stack.saw("guard: dropped where nothing can be removed");
}

fn drop_at(stack: &GicStack, intid: u32, place: Place) {
    let core = &stack.system.core;
    let request = AllocRequest { affinity: CpuSet::first(stack.system.cpus), ..harness::request(intid) };
    let line = match Line::alloc(core, stack.system.arm.domain(), &request, stack.system.arm.flow()) {
        Ok(line) => line,
        Err(error) => violate("operations", format!("allocate: {error}")),
    };
    marks::allocated(line.irq());
    stack.check("set type", core.set_type(line.irq(), Trigger::EdgeRising));
    let leaver = Arc::new(Leaver { place, guard: Mutex::default(), runs: AtomicU32::new(0) });
    let flags = RequestFlags { oneshot: place == Place::Thread, ..RequestFlags::default() };
    let guard = match place {
        Place::Thread => line.request_threaded("leaver", flags, Some(Arc::new(Waker)), leaver.clone()),
        _ => line.request("leaver", flags, leaver.clone()),
    };
    match guard {
        Ok(guard) => *leaver.guard.lock().expect("one host thread") = Some(guard),
        Err(error) => violate("operations", format!("request: {error}")),
    }
    raise(stack, line.irq());
    if place == Place::InterruptsOff {
        let off = SimHal.irq_save();
        leaver.leave();
        SimHal.irq_restore(off);
        // Disabling does not wait: an interrupt may be under way to another CPU.
        SimHal.delay_ns(REST_NS);
    } else {
        wait(stack, line.irq(), &leaver);
    }
    stack.check("synchronize", core.synchronize(line.irq()));
    judge(stack, line, &leaver);
}

fn raise(stack: &GicStack, line: Irq) {
    stack.check("set pending", stack.system.core.set_irqchip_state(line, IrqChipState::Pending, true));
}

/// Waits until it has dropped its guard.
fn wait(stack: &GicStack, line: Irq, leaver: &Leaver) {
    let end_ns = SimHal.now_ns() + CAME_NS;
    while leaver.runs.load(Relaxed) == 0 {
        if SimHal.now_ns() > end_ns {
            let view = stack.system.core.view(line).map(|view| view.to_string()).unwrap_or_default();
            violate(CHECKER, format!("a handler has not run for {CAME_NS} ns:\n{view}"));
        }
        SimHal.delay_ns(LOOK_NS);
    }
}

/// The line is disabled and there, with its handler, also without its own guard.
fn judge(stack: &GicStack, line: Line<SimHal>, leaver: &Leaver) {
    let (core, irq, place) = (&stack.system.core, line.irq(), leaver.place);
    let before = leaver.runs.load(Relaxed);
    drop(line);
    raise(stack, irq);
    SimHal.delay_ns(REST_NS);
    let Some(view) = core.view(irq) else {
        violate(CHECKER, format!("a handler's guard was dropped in {place:?}, and line {irq} is gone"))
    };
    let runs = leaver.runs.load(Relaxed) - before;
    if runs > 0 || view.disabled_depth != 1 || view.handlers.is_empty() {
        let text = format!("a handler's guard was dropped in {place:?}, behind which it ran {runs} times:\n{view}");
        violate(CHECKER, text);
    }
    stack.check("clear", core.set_irqchip_state(irq, IrqChipState::Pending, false));
}
