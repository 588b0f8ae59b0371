//! Flow handlers: the steps from a line's interrupt to its end.
//!
//! | flow | order |
//! |---|---|
//! | edge | ack, handler, again while another came meanwhile; when it cannot run: pending, mask, ack |
//! | level | mask, ack, handler, unmask; when it cannot run: stays masked |
//! | fasteoi | handler, eoi; when it cannot run: pending, eoi |
//! | strict | ack, handler, eoi, each always; when it cannot run: pending, mask, ack, eoi |
//! | per-CPU | ack, handler, eoi, with no state at all |
//!
//! While handlers run, the line's lock is not held, the line is marked in progress, and its pending mark is cleared.

use crate::delivery::{IrqCore, increment};
use crate::line::{Actions, End, Hold, Installed, Line, LineState};
use crate::{Identity, Irq, IrqReturn, Target};
use core::fmt;
use hal::{CpuId, Hal, LockGuard, Word};

/// How a line's interrupts are handled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flow {
    /// A message or an edge: the request is gone once it is acknowledged.
    Edge,
    /// A wire that stays raised until the device is served.
    Level,
    /// The controller holds the line back until the eoi.
    FastEoi,
    /// Ack before the handler and eoi after it, always both, exactly once. Between them the controller holds the line
    /// back ([`crate::ChipBehaviour::automasks_flow`]); otherwise the flow masks the line where needed.
    Strict,
    /// An interrupt that each CPU has for itself. The line has no vector: [`IrqCore::handle_irq`] delivers it.
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

/// An interrupt that a CPU has taken. Interrupts are off until the flow is done, so the flow stays on that CPU.
#[derive(Clone, Copy)]
pub(crate) struct Taken {
    pub(crate) irq: Irq,
    pub(crate) cpu: CpuId,
}

/// The result of a line's handlers for one interrupt.
#[derive(Clone, Copy, Default)]
pub(crate) struct Outcome {
    /// At least one handler claimed the interrupt.
    handled: bool,
    /// The handlers that want their threads, one bit per handler in the order of the list.
    woken: u64,
}

impl Outcome {
    /// Calls handler `index`, and adds its result.
    #[inline]
    fn and_call(self, index: usize, action: &Installed, irq: Irq) -> Self {
        match action.primary.handle(irq) {
            IrqReturn::None => self,
            IrqReturn::Handled => Self { handled: true, ..self },
            IrqReturn::WakeThread => self.and_wake(index, action),
        }
    }

    /// Handler `index` wants its thread.
    #[cold]
    fn and_wake(self, index: usize, action: &Installed) -> Self {
        Self {
            handled: self.handled || action.thread.is_some(),
            woken: self.woken | 1u64.checked_shl(index as u32).unwrap_or(0),
        }
    }
}

/// Calls every handler of the line. Nearly all lines have one.
#[inline]
pub(crate) fn call(actions: &Actions, irq: Irq) -> Outcome {
    match &**actions {
        [only] => Outcome::default().and_call(0, only, irq),
        several => call_all(several, irq),
    }
}

#[inline(never)]
fn call_all(actions: &[Installed], irq: Irq) -> Outcome {
    let numbered = actions.iter().enumerate();
    numbered.fold(Outcome::default(), |outcome, (index, action)| outcome.and_call(index, action, irq))
}

impl<H: Hal> IrqCore<H> {
    /// Runs the flow of line `index` for an interrupt that came by `identity` on `cpu`. Returns false when the identity
    /// does not belong to the line, or when there is no such line.
    #[inline(never)]
    pub(crate) fn deliver_by(&self, cpu: CpuId, identity: Identity, index: usize) -> bool {
        let Some(line) = self.lines.get(index) else { return false };
        let state = line.state.lock();
        // The table may change while an interrupt is on its way. So the line itself checks that the identity is its
        // own.
        if !state.owns(Target::of(cpu, identity)) {
            return false;
        }
        self.flow(line, state, Taken { irq: Irq(index as u32), cpu });
        true
    }

    /// Runs the flow of a line that has no identity. Returns false when the line is free, or when its pin may belong to
    /// another line.
    pub(crate) fn deliver(&self, line: &Line<H>, taken: Taken) -> bool {
        let state = line.state.lock();
        // A pending edge may belong to the pin's new owner. But if a root acknowledged an interrupt, this line must
        // still end it.
        let is_pin = matches!(state.flow, Flow::Edge | Flow::Level);
        if state.is_free() || (is_pin && state.is_being_freed()) {
            return false;
        }
        self.flow(line, state, taken);
        true
    }

    /// Inlined into both callers: a call would cost as much as a tenth of the flow.
    #[inline(always)]
    fn flow(&self, line: &Line<H>, state: Guard<'_, H>, taken: Taken) {
        increment(&line.counts[taken.cpu.index()]);
        // Nearly all interrupts are messages: they skip the jump table.
        if state.flow == Flow::Edge {
            return self.edge(line, state, taken);
        }
        match state.flow {
            Flow::Edge => {}
            Flow::Level => self.level(line, state, taken),
            Flow::FastEoi => self.fast_eoi(line, state, taken),
            Flow::Strict => self.strict(line, state, taken),
            Flow::PerCpu => per_cpu(state, taken.cpu),
        }
    }

    fn edge(&self, line: &Line<H>, mut state: Guard<'_, H>, taken: Taken) {
        if state.is_running() || !state.is_enabled() {
            state.note_unexpected();
            state.pending = true;
            state.mask();
            ack(&mut state);
            return;
        }
        ack(&mut state);
        self.move_on_ack(&mut state);
        state.start_handlers(Hold { back: false, end: End::Given });
        let mut state = self.run(line, state, taken);
        // An earlier flow may have left an end to threads that finished while this flow's handlers ran. And where the
        // line became level-triggered meanwhile, an interrupt on another CPU has masked it and left it to this flow.
        let back = state.stop_handlers();
        if (back || state.masked) && !line.handover.is_held() {
            state.release();
        }
    }

    fn level(&self, line: &Line<H>, mut state: Guard<'_, H>, taken: Taken) {
        state.note_unexpected();
        state.mask();
        ack(&mut state);
        self.move_on_ack(&mut state);
        if state.is_running() {
            return;
        }
        if !state.is_enabled() {
            state.pending = true;
            return;
        }
        state.start_handlers(Hold { back: true, end: End::Given });
        let mut state = self.run(line, state, taken);
        state.stop_handlers();
        if !(state.has_threads() && line.handover.is_held()) {
            state.release();
        }
    }

    fn fast_eoi(&self, line: &Line<H>, mut state: Guard<'_, H>, taken: Taken) {
        if state.is_running() || !state.is_enabled() {
            state.note_unexpected();
            state.pending = true;
            if !state.is_running() {
                state.mask();
            }
            eoi(&mut state);
            return;
        }
        if state.oneshot {
            state.mask();
        }
        let (owed, back) = (state.owes_end(), state.oneshot);
        state.start_handlers(Hold { back, end: End::Given });
        self.move_on_ack(&mut state);
        let mut state = self.run(line, state, taken);
        end(line, &mut state, owed);
    }

    fn strict(&self, line: &Line<H>, mut state: Guard<'_, H>, taken: Taken) {
        if state.is_running() || !state.is_enabled() {
            state.note_unexpected();
            state.pending = true;
            state.mask();
            ack(&mut state);
            eoi(&mut state);
            return;
        }
        if state.oneshot && !state.flow_masks() {
            state.mask();
        }
        ack(&mut state);
        let (owed, back) = (state.owes_end(), state.oneshot);
        state.start_handlers(Hold { back, end: End::Owed });
        self.move_on_ack(&mut state);
        let mut state = self.run(line, state, taken);
        end(line, &mut state, owed);
    }

    /// Runs the handlers of a line in progress, and again while another interrupt has come. If the line has moved to
    /// another CPU, the repetition happens there: a device that never stops would otherwise keep this CPU here.
    /// Inlined into each flow: a call would cost as much as a fifth of the flow.
    #[inline(always)]
    fn run<'a>(&self, line: &'a Line<H>, mut state: Guard<'a, H>, taken: Taken) -> Guard<'a, H> {
        line.running.set(u64::from(taken.cpu.0) + 1);
        loop {
            state.pending = false;
            let actions = state.ready.take();
            drop(state);
            let outcome = actions.as_ref().map_or(Outcome::default(), |actions| call(actions, taken.irq));
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
            if state.target().is_some_and(|target| target.cpu != taken.cpu) {
                state.retrigger_pending();
                if !state.pending {
                    break;
                }
            }
        }
        line.running.set(0);
        state
    }

    /// Counts the interrupt, and masks the line if it storms.
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

/// Ends an interrupt, or leaves its end to the threads that hold the line. Threads can owe only one end. When they owe
/// one already, this interrupt is ended at once. That happens to an interrupt under way while the line was masked.
fn end<H: Hal>(line: &Line<H>, state: &mut LineState, owed: bool) {
    let back = state.stop_handlers();
    let held = back && line.handover.is_held();
    if held && !owed && state.takes_late_eoi() {
        state.hold(End::Owed);
        return;
    }
    eoi(state);
    if back {
        state.hold(if owed { End::Owed } else { End::Given });
    }
    if !held && (back || state.masked) {
        state.release();
    }
}

#[inline]
fn ack(state: &mut LineState) {
    if let Some(hardware) = state.hardware() {
        hardware.ack();
    }
}

#[inline]
fn eoi(state: &mut LineState) {
    if let Some(hardware) = state.hardware() {
        hardware.eoi();
    }
}

/// Runs only for a line without handlers: installed handlers are found without the lock. Disables the line on this CPU,
/// as a level that nobody lowers would come again for ever.
fn per_cpu<H: Hal>(mut state: Guard<'_, H>, cpu: CpuId) {
    state.note_unexpected();
    // A handler may have come since.
    if state.entries.is_empty() && state.percpu_enabled.contains(cpu) {
        state.percpu_enabled.remove(cpu);
        if let Some(hardware) = state.hardware() {
            hardware.mask();
        }
    }
    ack(&mut state);
    eoi(&mut state);
}
