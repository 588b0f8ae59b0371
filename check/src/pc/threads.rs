//! A shared line has so many threads and no more ([`irq::IrqCore::request_threaded`]), and each of them runs.

use super::stack::PcStack;
use crate::verdict::violate;
use hal::Hal as _;
use irq::handover::THREADS_MAX;
use irq::{Action, Irq, IrqError, IrqReturn, RequestFlags};
use machine::SimHal;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const CHECKER: &str = "misuse";
/// A thread runs within so many looks.
const LOOKS: u32 = 200;
const LOOK_NS: u64 = 1_000;

/// The half that runs in the interrupt.
struct Wakes;

impl Action for Wakes {
    fn handle(&self, _: Irq) -> IrqReturn {
        IrqReturn::WakeThread
    }
}

/// The half that runs in the thread.
#[derive(Default)]
struct Works(AtomicU64);

impl Action for Works {
    fn handle(&self, _: Irq) -> IrqReturn {
        self.0.fetch_add(1, Relaxed);
        IrqReturn::Handled
    }
}

/// Requests threads of the level line until they are refused, has it interrupt, and gives them back.
pub(super) fn fill(stack: &PcStack) {
    let (core, line) = (stack.host.core(), stack.pin_line);
    let count = || core.view(line).map_or(0, |view| view.threads);
    let before = count();
    let flags = RequestFlags { shared: true, ..RequestFlags::default() };
    let mut added: Vec<(Arc<dyn Action>, Arc<Works>)> = Vec::new();
    let refusal = loop {
        let (primary, works): (Arc<dyn Action>, _) = (Arc::new(Wakes), Arc::new(Works::default()));
        match core.request_threaded(line, "one of many", flags, Some(primary.clone()), works.clone()) {
            Ok(()) => added.push((primary, works)),
            Err(error) => break error,
        }
    };
    let has = before + added.len() as u32;
    if has != THREADS_MAX || count() != THREADS_MAX || !matches!(refusal, IrqError::Exhausted(_, THREADS_MAX)) {
        violate(CHECKER, format!("the level line takes {has} threads, counts {}, and then: {refusal}", count()));
    }
    stack.functions[0].raise();
    let have_run = || added.iter().all(|(_, works)| works.0.load(Relaxed) > 0);
    for _ in 0..LOOKS {
        if have_run() && stack.functions[0].is_idle() {
            break;
        }
        SimHal.delay_ns(LOOK_NS);
    }
    if !have_run() || !stack.functions[0].is_idle() {
        violate(CHECKER, format!("the level line interrupted, and not all of its {has} threads have run"));
    }
    for (primary, _) in &added {
        if let Err(error) = core.free(line, primary) {
            violate(CHECKER, format!("one of the level line's threads cannot be freed: {error}"));
        }
    }
    if count() != before {
        violate(CHECKER, format!("the level line had {before} threads, and has {}", count()));
    }
    stack.saw("line: as many threads as it may have");
}
