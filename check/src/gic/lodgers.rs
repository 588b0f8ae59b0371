//! Handlers that share a line and come and go at once, each with a thread, or none of them.
//!
//! The sources' own lines have one handler each, and one manager at a time changes it. A line that several drivers share has
//! no such order: one driver leaves while another comes, under interrupts. This step has a line of its own, for as long as
//! it takes.

use super::harness;
use super::source::claim;
use super::stack::{GicStack, STRAY};
use crate::checkers::truth::marks;
use crate::verdict::violate;
use hal::{Affinity, CpuId, CpuSet, Hal as _, ThreadSpec, Threads as _};
use irq::{Action, AllocRequest, Irq, IrqReturn, RequestFlags, Trigger};
use machine::SimHal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

const CHECKER: &str = "lodgers";
/// An SPI without a wire.
const INTID: u32 = STRAY + 1;
/// A handler's thread has run within this time: longer than a storm is throttled.
const CAME_NS: u64 = 50_000_000;
const LOOK_NS: u64 = 500;

/// One handler, and its thread.
#[derive(Default)]
struct Lodger {
    gone: AtomicBool,
    runs: AtomicU32,
}

/// The half of a lodger that runs in the interrupt, or the other one.
struct Half {
    lodger: Arc<Lodger>,
    /// For people.
    what: &'static str,
    answer: IrqReturn,
    /// How long it takes.
    linger_ns: u64,
}

impl Half {
    fn check(&self, irq: Irq) {
        if self.lodger.gone.load(Relaxed) {
            violate(CHECKER, format!("{} of line {irq} runs, and its free has returned", self.what));
        }
    }
}

impl Action for Half {
    fn handle(&self, irq: Irq) -> IrqReturn {
        self.check(irq);
        SimHal.delay_ns(self.linger_ns);
        self.check(irq);
        if self.answer == IrqReturn::Handled {
            self.lodger.runs.fetch_add(1, Relaxed);
        }
        self.answer
    }
}

/// Two drivers come to one line and leave it, each `turns` times, and stay for `ns` each time.
pub(super) fn share(stack: &Arc<GicStack>, turns: u32, cpu: u32, ns: u64) {
    let Some(_claim) = claim(&stack.lodging) else { return };
    let core = &stack.system.core;
    let request = AllocRequest { affinity: CpuSet::first(stack.system.cpus), ..harness::request(INTID) };
    // Another step may have taken all lines.
    let Ok(line) = core.alloc_line(stack.system.arm.domain(), &request, stack.system.arm.flow()) else { return };
    marks::allocated(line);
    stack.check("trigger of a shared line", core.set_type(line, Trigger::EdgeRising));
    let has_threads = !ns.is_multiple_of(3);
    let left = Arc::new(AtomicU32::new(2));
    for number in 0..2 {
        let affinity = Affinity::Cpu(CpuId((cpu + number) % stack.system.cpus));
        let (stack, left, waiter) = (stack.clone(), left.clone(), SimHal.current_thread());
        let body = move || {
            (0..turns).for_each(|turn| lodge(&stack, line, ns / u64::from(1 + number + turn % 2), has_threads));
            left.fetch_sub(1, Relaxed);
            SimHal.wake(waiter);
        };
        let spec = ThreadSpec { name: "lodger", affinity, urgent: false };
        SimHal.spawn(spec, Box::new(body)).expect("the CPU exists");
    }
    while left.load(Relaxed) > 0 {
        SimHal.park();
    }
    let view = core.view(line);
    if let Some(view) = view.filter(|view| view.threads_working > 0 || !view.handlers.is_empty()) {
        violate(CHECKER, format!("all have left a line, and it has threads at work or a handler:\n{view}"));
    }
    stack.freed.fetch_add(1, Relaxed);
    stack.check("free line", core.free_line(line));
    stack.saw("handlers: came and went at once");
}

/// Comes, is interrupted, stays, and leaves with an interrupt under way.
fn lodge(stack: &GicStack, line: Irq, ns: u64, has_thread: bool) {
    let core = &stack.system.core;
    let lodger = Arc::new(Lodger::default());
    let linger_ns = ns / 2;
    let half = |what, answer| -> Arc<dyn Action> { Arc::new(Half { lodger: lodger.clone(), what, answer, linger_ns }) };
    let primary = half("a handler", if has_thread { IrqReturn::WakeThread } else { IrqReturn::Handled });
    let flags = RequestFlags { shared: true, oneshot: has_thread, ..RequestFlags::default() };
    let requested = if has_thread {
        let thread = half("the thread of a handler", IrqReturn::Handled);
        core.request_threaded(line, "lodger", flags, Some(primary.clone()), thread)
    } else {
        core.request(line, "lodger", flags, primary.clone())
    };
    match requested {
        Ok(()) => {}
        Err(error) => return stack.check("request of a shared line", Err(error)),
    }
    resend(stack, line);
    let end_ns = SimHal.now_ns() + CAME_NS;
    while lodger.runs.load(Relaxed) == 0 {
        if SimHal.now_ns() > end_ns {
            let view = core.view(line).map(|view| view.to_string()).unwrap_or_default();
            violate(CHECKER, format!("a handler's thread has not run for {CAME_NS} ns:\n{view}"));
        }
        SimHal.delay_ns(LOOK_NS);
    }
    SimHal.delay_ns(ns);
    resend(stack, line);
    stack.check("free of a shared handler", core.free(line, &primary));
    lodger.gone.store(true, Relaxed);
}

fn resend(stack: &GicStack, line: Irq) {
    stack.check("retrigger of a shared line", stack.system.core.retrigger(line));
}
