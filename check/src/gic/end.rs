//! The end of a history: every line is freed, nothing of it is left in the GIC, and every number can be used once more.

use super::beliefs;
use super::dropped;
use super::harness::{self, EVENTS_MAX, FRAME_SPIS, LINES_MAX, LPIS};
use super::pending;
use super::source::Kind;
use super::stack::GicStack;
use crate::fullness::{check_free, check_lines};
use crate::verdict::violate;
use hal::Hal as _;
use machine::SimHal;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Requester of the bells, and more events than it has.
const DEVICE: u32 = 0x0100;
const EVENTS: u32 = 8;
/// Events of each source on its new line, and how long they may take.
const EVENTS_AGAIN: u64 = 3;
const AGAIN_NS: u64 = 5_000_000;
const LOOK_NS: u64 = 20_000;

/// Frees all lines that are not private, and compares. Returns the sources that had one.
pub(super) fn free(stack: &Arc<GicStack>) -> Vec<usize> {
    stack.check("allocate too much", stack.ask_too_much());
    let shared: Vec<usize> = (0..stack.sources.len())
        .filter(|&index| stack.sources[index].line().is_some() && !stack.sources[index].is_private())
        .collect();
    for &index in &shared {
        let source = &stack.sources[index];
        let Some(line) = source.line() else { continue };
        stack.give_back(index, line);
        stack.freed.fetch_add(1, Relaxed);
    }
    beliefs::check(&stack.system, stack.promises(), true);
    beliefs::check_unmapped(&stack.system, DEVICE, EVENTS, stack.faulty);
    check_numbers(stack);
    shared
}

/// Gives each of these sources a new line, which must work.
pub(super) fn bind(stack: &Arc<GicStack>, shared: &[usize]) {
    for &index in shared {
        match stack.alloc(&stack.sources[index]) {
            Ok(line) => {
                stack.begin(line);
                stack.sources[index].set_line(Some(line));
            }
            Err(error) => violate("operations", format!("allocate once more: {error}")),
        }
    }
    beliefs::check(&stack.system, stack.promises(), true);
    for &index in shared {
        stack.check("request once more", stack.install(index));
        stack.sources[index].carry(&stack.system, EVENTS_AGAIN, 1);
    }
    let end_ns = SimHal.now_ns() + AGAIN_NS;
    while !stack.is_done() {
        if SimHal.now_ns() > end_ns {
            violate("proof", "a line that was freed and allocated once more does not deliver");
        }
        SimHal.delay_ns(LOOK_NS);
    }
    pending::check(stack);
    stack.claim();
    if stack.guards.any() {
        dropped::check(stack);
    }
    // Freed lines are forgotten by now.
    check_lines(&stack.system.core, LINES_MAX as usize);
}

/// All numbers of messages are free. The driver keeps those whose command the ITS refused.
fn check_numbers(stack: &GicStack) {
    let sent = stack.sources.iter().any(|source| matches!(source.kind, Kind::Message { .. }));
    let Some(way) = stack.system.arm.messages().filter(|_| sent && !stack.faulty) else { return };
    let (domain, request) = (way.domain(), harness::request(0));
    let is_its = domain.name() == "ITS";
    if is_its {
        check_free(&**domain, &request, EVENTS_MAX as usize);
    }
    let root = domain.parent().expect("LPIs, or the SPIs of a frame");
    check_free(&*root, &request, if is_its { LPIS } else { FRAME_SPIS } as usize);
}
