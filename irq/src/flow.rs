//! Flow handlers: what happens between a line's interrupt and the end of it.
//!
//! | flow | order |
//! |---|---|
//! | edge | ack, handler, again while another came meanwhile; when it cannot run: pending, mask, ack |
//! | level | mask, ack, handler, unmask; when it cannot run: stays masked |
//! | fasteoi | handler, eoi; when it cannot run: pending, eoi |
//! | strict | ack, handler, eoi, each always; when it cannot run: pending, mask, ack, eoi |
//! | per-CPU | ack, handler, eoi, with no state at all |
//!
//! Handlers run with the line's lock dropped, the line in progress, and pending cleared.

use crate::delivery::{IrqCore, increment};
use crate::line::{Actions, Installed, Line, LineState, Phase};
use crate::{Irq, IrqReturn, Target};
use core::fmt;
use hal::{Hal, LockGuard, Word};

/// How a line's interrupts are handled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flow {
    /// A message or an edge: gone once acknowledged.
    Edge,
    /// A wire that stays raised until the device is served.
    Level,
    /// The controller holds the line back until its end.
    FastEoi,
    /// Acknowledged before and ended after, always both, exactly once: the controller holds the line back in between
    /// ([`crate::ChipOps::automasks_flow`]), or else it is masked where that is needed.
    Strict,
    /// One interrupt on each CPU, private to it. The line has no vector: [`IrqCore::handle_irq`] delivers it.
    PerCpu,
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Edge => "edge",
            Self::Level => "level",
            Self::FastEoi => "fasteoi",
            Self::Strict => "strict",
            Self::PerCpu => "percpu",
        })
    }
}

type Guard<'a, H> = LockGuard<'a, H, LineState>;

/// What the handlers made of an interrupt.
#[derive(Clone, Copy, Default)]
pub(crate) struct Outcome {
    /// One found the interrupt to be its own.
    handled: bool,
    /// Those that want their threads, a bit a handler in the order of the list.
    woken: u64,
}

impl Outcome {
    /// Handler `index` wants its thread.
    #[cold]
    fn and_wake(self, index: usize, action: &Installed) -> Self {
        Self {
            handled: self.handled || action.thread.is_some(),
            woken: self.woken | 1u64.checked_shl(index as u32).unwrap_or(0),
        }
    }
}

/// Calls every handler.
#[inline]
pub(crate) fn call(actions: &Actions, irq: Irq) -> Outcome {
    let mut outcome = Outcome::default();
    for (index, action) in actions.iter().enumerate() {
        match action.primary.handle(irq) {
            IrqReturn::None => {}
            IrqReturn::Handled => outcome.handled = true,
            IrqReturn::WakeThread => outcome = outcome.and_wake(index, action),
        }
    }
    outcome
}

impl<H: Hal> IrqCore<H> {
    /// Runs the flow of `line` for an interrupt that came by `target`, if it came by a vector; false when that is not
    /// the line's.
    pub(crate) fn deliver(&self, line: &Line<H>, target: Option<Target>) -> bool {
        let mut state = line.state.lock();
        if state.hardware.is_none() {
            return false;
        }
        if target.is_some_and(|target| !state.is_mine(target)) {
            return false;
        }
        // Its pin may be another line's by now, and an edge that waits there that one's: only what was acknowledged at
        // a root is still this line's to end.
        let is_pin = target.is_none() && matches!(state.flow, Flow::Edge | Flow::Level);
        if is_pin && state.phase == Phase::Dying {
            return false;
        }
        increment(&line.counts[self.hal.cpu().index()]);
        if state.entries.is_empty() {
            state.unexpected += 1;
        }
        match state.flow {
            Flow::Edge => self.edge(line, state),
            Flow::Level => self.level(line, state),
            Flow::FastEoi => self.fast_eoi(line, state),
            Flow::Strict => self.strict(line, state),
            Flow::PerCpu => per_cpu(state),
        }
        true
    }

    fn edge(&self, line: &Line<H>, mut state: Guard<'_, H>) {
        if state.in_progress || !state.is_enabled() {
            state.pending = true;
            state.mask();
            ack(&mut state);
            return;
        }
        ack(&mut state);
        self.move_on_ack(&mut state);
        let mut state = self.run(line, state);
        // Left over from another flow, whose threads have ended while this one ran.
        if (state.held || state.active) && !line.handover.is_held() {
            state.release();
        }
    }

    fn level(&self, line: &Line<H>, mut state: Guard<'_, H>) {
        state.mask();
        ack(&mut state);
        self.move_on_ack(&mut state);
        if state.in_progress {
            return;
        }
        if !state.is_enabled() {
            state.pending = true;
            return;
        }
        state.held = true;
        let mut state = self.run(line, state);
        if !(state.has_threads() && line.handover.is_held()) {
            state.release();
        }
    }

    fn fast_eoi(&self, line: &Line<H>, mut state: Guard<'_, H>) {
        if state.in_progress || !state.is_enabled() {
            state.pending = true;
            if !state.in_progress {
                state.mask();
            }
            eoi(&mut state);
            return;
        }
        if state.oneshot {
            state.mask();
            state.held = true;
        }
        let owed = state.active;
        self.move_on_ack(&mut state);
        let mut state = self.run(line, state);
        end(line, &mut state, owed);
    }

    fn strict(&self, line: &Line<H>, mut state: Guard<'_, H>) {
        if state.in_progress || !state.is_enabled() {
            state.pending = true;
            state.mask();
            ack(&mut state);
            eoi(&mut state);
            return;
        }
        if state.oneshot {
            if !state.flow_masks() {
                state.mask();
            }
            state.held = true;
        }
        ack(&mut state);
        let owed = core::mem::replace(&mut state.active, true);
        self.move_on_ack(&mut state);
        let mut state = self.run(line, state);
        end(line, &mut state, owed);
    }

    /// Runs the handlers, again while another interrupt has come meanwhile. Where it came at another CPU, to which the line
    /// has moved, it goes on there: a device that never stops would keep this one in here. In line with each flow: a call
    /// would cost as much as a fifth of it.
    #[inline(always)]
    fn run<'a>(&self, line: &'a Line<H>, mut state: Guard<'a, H>) -> Guard<'a, H> {
        let Some(irq) = state.hardware.as_ref().map(|hardware| hardware.irq) else { return state };
        state.in_progress = true;
        line.running.set(u64::from(self.hal.cpu().0) + 1);
        loop {
            state.pending = false;
            let actions = state.ready.take();
            drop(state);
            let outcome = actions.as_ref().map_or(Outcome::default(), |actions| call(actions, irq));
            if outcome.woken != 0
                && let Some(actions) = &actions
            {
                self.wake_threads(line, actions, outcome.woken);
            }
            state = line.state.lock();
            if state.ready.is_none() {
                state.ready = actions;
            }
            self.note(&mut state, outcome.handled);
            if !(state.pending && state.is_enabled()) {
                break;
            }
            state.unmask();
            if state.target.is_some_and(|target| target.cpu != self.hal.cpu()) {
                state.come_again();
                if !state.pending {
                    break;
                }
            }
        }
        state.in_progress = false;
        line.running.set(0);
        state
    }

    /// Watches for a storm.
    #[inline]
    fn note(&self, state: &mut LineState, handled: bool) {
        if !handled {
            state.unhandled += 1;
        }
        if state.storm.note(&self.config.storm, handled, || self.hal.now_ns()) {
            state.mask();
            self.schedule(self.hal.cpu(), state.storm.until_ns);
        }
    }
}

/// Ends an interrupt, or leaves its end to the threads that hold the line. One end can be left to them: when they owe
/// one already, as after an interrupt that was under way when the line was masked, this one is given at once.
fn end<H: Hal>(line: &Line<H>, state: &mut LineState, owed: bool) {
    let held = state.held && line.handover.is_held();
    if held && !owed && state.takes_late_eoi() {
        state.active = true;
        return;
    }
    eoi(state);
    state.active = owed;
    if !held && (state.held || state.masked || owed) {
        state.release();
    }
}

#[inline]
fn ack(state: &mut LineState) {
    if let Some(hardware) = &state.hardware {
        hardware.ack();
    }
}

#[inline]
fn eoi(state: &mut LineState) {
    if let Some(hardware) = &state.hardware {
        hardware.eoi();
    }
}

/// Without handlers, which would have been found without the lock.
fn per_cpu<H: Hal>(mut state: Guard<'_, H>) {
    ack(&mut state);
    eoi(&mut state);
}
