//! The specified state machine of one line: which calls a flow may make to its controller, and when.
//!
//! | flow | an activation that runs | one that cannot (disabled, no handler, in progress) |
//! |---|---|---|
//! | edge | ack, handler (again while another came) | mask, ack |
//! | level | mask, ack, handler, unmask when handler and ONESHOT threads are done | mask, ack |
//! | fasteoi | (ONESHOT: mask) handler, eoi | (mask) eoi |
//! | strict | (ONESHOT without help: mask) ack, handler, eoi | mask, ack, eoi |
//! | per-CPU | ack where there is one, handler, eoi | – |
//!
//! For every flow: one ack before the handler. One eoi after it, at once or from the last ONESHOT thread. A handler
//! never runs twice at once. A disabled, held or unhandled line is never unmasked. The last thread pays what is still owed.

use crate::Flow;
use std::format;
use std::string::String;

pub(super) const CPUS: usize = 3;
/// Handlers that a line may have.
pub(super) const SHARED: usize = 2;

/// The constant properties of a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Traits {
    /// The controller has an ack.
    pub(super) acks: bool,
    /// The line's handlers are ONESHOT.
    pub(super) oneshot: bool,
    /// The active state holds a ONESHOT line back: no mask.
    pub(super) automasks: bool,
    /// A thread may give the end.
    pub(super) late_end: bool,
}

/// One run of a flow on one CPU.
#[derive(Clone, Copy, Debug)]
struct Activation {
    flow: Flow,
    can_run: bool,
    /// The line was masked when the flow began.
    was_masked: bool,
    acks: u32,
    eois: u32,
    /// Calls of handlers, and whether one is under way.
    handled: u32,
    handling: bool,
}

/// A handler's thread.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Thread {
    pub(super) busy: bool,
    /// It was woken while busy, so it runs once more.
    pub(super) again: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Rules {
    pub(super) flow: Flow,
    pub(super) traits: Traits,
    pub(super) depth: u32,
    pub(super) handlers: u32,
    /// A handler is being freed and may be gone already.
    pub(super) freeing: bool,
    pub(super) threads: [Thread; SHARED],
    /// Threads that the running handlers have woken.
    woken: [bool; SHARED],
    /// Busy threads hold the line, because a ONESHOT flow has woken them.
    holds: bool,
    pub(super) masked: bool,
    /// Number of eois that threads owe.
    pub(super) owed: u32,
    activations: [Option<Activation>; CPUS],
    /// Where its handler runs.
    running: Option<usize>,
    pub(super) broken: Option<String>,
}

impl Rules {
    pub(super) fn new(flow: Flow, traits: Traits) -> Self {
        Self {
            flow,
            traits,
            depth: 0,
            handlers: 0,
            freeing: false,
            threads: Default::default(),
            woken: Default::default(),
            holds: false,
            masked: true,
            owed: 0,
            activations: [None; CPUS],
            running: None,
            broken: None,
        }
    }

    fn demand(&mut self, holds: bool, rule: &str) {
        if !holds && self.broken.is_none() {
            self.broken = Some(format!("{rule}: {self:?}"));
        }
    }

    fn enabled(&self) -> bool {
        self.depth == 0 && self.handlers > 0
    }

    /// A ONESHOT thread holds the line.
    pub(super) fn held(&self) -> bool {
        self.holds
    }

    pub(super) fn in_progress(&self) -> bool {
        self.activations.iter().any(Option::is_some)
    }

    /// The CPU takes it from the controller.
    pub(super) fn taken(&mut self) {
        self.demand(!self.held(), "a ONESHOT line is signalled before its threads have ended");
        self.demand(
            self.enabled() || self.freeing || self.flow == Flow::PerCpu,
            "a disabled or freed line is signalled",
        );
    }

    pub(super) fn enter(&mut self, cpu: usize) {
        self.demand(self.activations[cpu].is_none(), "a flow inside itself");
        let can_run = self.flow == Flow::PerCpu || (self.enabled() && self.running.is_none());
        let (flow, was_masked) = (self.flow, self.masked);
        self.activations[cpu] =
            Some(Activation { flow, can_run, was_masked, acks: 0, eois: 0, handled: 0, handling: false });
        if can_run && flow != Flow::PerCpu {
            self.running = Some(cpu);
        }
    }

    /// An operation of `cpu`'s flow, or of code outside any flow of `cpu`.
    fn activation(&mut self, cpu: Option<usize>) -> Option<&mut Activation> {
        cpu.and_then(|cpu| self.activations[cpu].as_mut())
    }

    pub(super) fn ack(&mut self, cpu: Option<usize>) {
        let Some(activation) = self.activation(cpu) else {
            return self.demand(false, "an ack outside of the flow");
        };
        activation.acks += 1;
        let Activation { flow, can_run, was_masked, acks, eois, handled, .. } = *activation;
        self.demand(acks == 1 && eois == 0 && handled == 0, "one ack, before the handler and the end");
        self.demand(flow != Flow::FastEoi, "fasteoi has no ack");
        let masks = match flow {
            Flow::Level => true,
            Flow::PerCpu => was_masked,
            _ => was_masked || !can_run || flow == Flow::Strict && self.traits.oneshot && !self.traits.automasks,
        };
        self.demand(self.masked == masks, "masked before the ack where it has to be, and only there");
    }

    pub(super) fn eoi(&mut self, cpu: Option<usize>) {
        let acks = u32::from(self.traits.acks);
        match self.activation(cpu) {
            Some(activation) if activation.eois == 0 => {
                activation.eois = 1;
                let Activation { flow, can_run, acks: acked, handled, handling, .. } = *activation;
                self.demand(flow != Flow::Edge && flow != Flow::Level, "edge and level have no eoi");
                self.demand(!handling && (!can_run || handled > 0), "no end before the handler's");
                self.demand(flow == Flow::FastEoi || acked == acks, "no end before the ack");
            }
            // The flow, or a thread, gives the eoi that threads still owed.
            own => {
                let own = own.is_some();
                self.demand(self.owed == 1, "an end that is owed to nobody");
                self.demand(!self.held(), "an end before the threads' own");
                self.demand(own || self.running.is_none(), "a thread ends the line under its handler");
                self.owed = 0;
            }
        }
    }

    pub(super) fn mask(&mut self) {
        self.masked = true;
    }

    pub(super) fn unmask(&mut self) {
        self.demand(self.depth == 0, "unmasked while disabled");
        self.demand(self.handlers > 0 || self.freeing, "unmasked without a handler");
        self.demand(!self.held(), "unmasked before the threads have ended");
        let mut handling = self.activations.iter().flatten().filter(|activation| activation.handling);
        let held_by_flow = handling.any(|other| other.flow == Flow::Level || self.holds_by(other.flow));
        self.demand(!held_by_flow, "unmasked under its handler");
        self.masked = false;
    }

    /// Whether `flow` holds the line until its threads have ended.
    fn holds_by(&self, flow: Flow) -> bool {
        self.traits.oneshot && flow != Flow::Edge
    }

    /// A handler begins. `first`: it is the line's first handler.
    pub(super) fn begin(&mut self, cpu: usize, first: bool) {
        let (acks, enabled, running) = (u32::from(self.traits.acks), self.enabled(), self.running);
        let Some(activation) = self.activation(Some(cpu)) else {
            return self.demand(false, "a handler outside of the flow");
        };
        activation.handled += 1;
        activation.handling = true;
        let Activation { flow, can_run, acks: acked, eois, .. } = *activation;
        self.demand(can_run, "a handler of a line that cannot run");
        self.demand(!first || enabled || flow == Flow::PerCpu, "a disabled line runs");
        self.demand(flow == Flow::PerCpu || running == Some(cpu), "a handler beside itself");
        self.demand(flow == Flow::FastEoi || acked == acks, "a handler before its ack");
        self.demand(eois == 0, "a handler after its end");
        let masks = flow == Flow::Level || self.holds_by(flow) && !(flow == Flow::Strict && self.traits.automasks);
        self.demand(!masks || self.masked, "a handler of a line that is to be masked");
    }

    /// A handler returns and perhaps `wakes` its thread. After the `last` handler of the line the threads begin.
    pub(super) fn end(&mut self, cpu: usize, wakes: Option<usize>, last: bool) {
        let holds = self.activations[cpu].as_mut().is_some_and(|activation| {
            activation.handling = !last;
            activation.flow != Flow::Edge
        });
        if let Some(thread) = wakes {
            self.woken[thread] = true;
        }
        if !last {
            return;
        }
        for (thread, woken) in self.threads.iter_mut().zip(core::mem::take(&mut self.woken)) {
            self.holds |= woken && holds && self.traits.oneshot;
            thread.again |= woken && thread.busy;
            thread.busy |= woken;
        }
    }

    /// The thread's function is about to return. True: it is called once more.
    pub(super) fn finish(&mut self, thread: usize) -> bool {
        let thread = &mut self.threads[thread];
        thread.busy = core::mem::take(&mut thread.again);
        let again = thread.busy;
        self.holds &= self.threads.iter().any(|thread| thread.busy);
        again
    }

    pub(super) fn leave(&mut self, cpu: usize) {
        let Some(activation) = self.activations[cpu].take() else {
            return self.demand(false, "the end of no flow");
        };
        let Activation { flow, can_run, acks, eois, handled, .. } = activation;
        if self.running == Some(cpu) {
            self.running = None;
        }
        self.demand(acks == u32::from(self.traits.acks && flow != Flow::FastEoi), "one ack an activation");
        self.demand(can_run == (handled > 0), "a handler if and only if it can run");
        if matches!(flow, Flow::Edge | Flow::Level) {
            return;
        }
        // A thread that the flow has woken may give the eoi, if it holds the line and the controller permits it.
        let late = flow != Flow::PerCpu && can_run && self.held() && self.traits.late_end && self.owed == 0;
        self.demand(eois == u32::from(!late), "one end an activation: now, or by the thread");
        self.owed += u32::from(eois == 0);
    }

    /// Checks the line between two operations, while none of its flows runs.
    pub(super) fn rest(&mut self) {
        if self.in_progress() {
            return;
        }
        let held = self.held();
        self.demand(held || self.owed == 0, "an end is owed though the threads are done");
        if self.flow == Flow::PerCpu {
            return;
        }
        let held_by_mask = held && !self.traits.automasks;
        self.demand(self.masked || self.enabled(), "a disabled or freed line that is not masked");
        self.demand(!held_by_mask || self.masked, "a ONESHOT line that is not held back");
        // A level that came under the handlers of an edge waits for their ONESHOT threads, as for its own.
        let waits = self.flow == Flow::Level && self.traits.oneshot && self.threads.iter().any(|thread| thread.busy);
        self.demand(!self.masked || held || waits || !self.enabled(), "a line stays masked");
    }
}
