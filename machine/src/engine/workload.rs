//! The workload by which engines are compared: closed-loop I/Os of four events each.
//!
//! Slots N = drives × depth. Slot i starts from s = (i + 1) · 0x9E3779B97F4A7C15 and submits at i ns. A submission at t
//! steps s (Knuth's multiplier and increment) and completes at t + 10000 + (s >> 54) ns; the interrupt comes 500 ns
//! later, its handler 200 ns after that, the next submission 300 ns after the handler. Handlers before the end are
//! counted and their times added up. Both engines give the same events the same sequence numbers, so their digests
//! agree too.

use super::{Calendar, Seat, TaskError, TaskId, Tasks, Turn};
use crate::time::Ps;
use core::cmp::Reverse;
use std::collections::BinaryHeap;

#[cfg(test)]
mod tests;

const COMPLETE_AFTER_NS: u64 = 10_000;
const INTERRUPT_AFTER: Ps = Ps::from_ns(500);
const HANDLER_AFTER: Ps = Ps::from_ns(200);
const SUBMIT_AFTER: Ps = Ps::from_ns(300);
/// The handlers of a CPU of the workload run a few call frames deep.
const STACK_BYTES: usize = 32 * 1024;

/// How much to simulate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Workload {
    /// Drives, each with a CPU of its own.
    pub drives: u32,
    /// I/Os in flight on each.
    pub depth: u32,
    /// Simulated time.
    pub end: Ps,
}

/// The result of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// Handlers that ran before the end.
    pub ios: u64,
    /// The sum of their times in ns, wrapping.
    pub checksum: u64,
    /// Events taken from the queue before the end.
    pub events: u64,
    /// Rolling digest of every event's time, sequence number, kind and slot.
    pub digest: u64,
    /// Times that a CPU's coroutine was resumed; 0 without coroutines.
    pub switches: u64,
}

/// The number of a slot; its drive is `slot / depth`.
type Slot = u32;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    Submit(Slot),
    Complete(Slot),
    Interrupt(Slot),
    Handler(Slot),
}

impl Event {
    fn word(self) -> u64 {
        let (kind, slot) = match self {
            Self::Submit(slot) => (0, slot),
            Self::Complete(slot) => (1, slot),
            Self::Interrupt(slot) => (2, slot),
            Self::Handler(slot) => (3, slot),
        };
        kind << 32 | u64::from(slot)
    }
}

/// The slots' random states and the counters: all state that is not the engine's.
struct Slots {
    states: Vec<u64>,
    outcome: Outcome,
}

impl Slots {
    fn new(workload: &Workload) -> Self {
        let states = (1..=workload.slots()).map(|number| u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        Self { states: states.collect(), outcome: Outcome::default() }
    }

    #[inline]
    fn record(&mut self, at: Ps, sequence: u64, event: Event) {
        let outcome = &mut self.outcome;
        outcome.events += 1;
        let mixed = at.0 ^ sequence.rotate_left(24) ^ event.word().rotate_left(44);
        outcome.digest = (outcome.digest.rotate_left(5) ^ mixed).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    /// The follow-up of the event, and its time.
    #[inline]
    fn handle(&mut self, at: Ps, event: Event) -> (Ps, Event) {
        match event {
            Event::Submit(slot) => {
                let state = &mut self.states[slot as usize];
                *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (at + Ps::from_ns(COMPLETE_AFTER_NS + (*state >> 54)), Event::Complete(slot))
            }
            Event::Complete(slot) => (at + INTERRUPT_AFTER, Event::Interrupt(slot)),
            Event::Interrupt(slot) => (at + HANDLER_AFTER, Event::Handler(slot)),
            Event::Handler(slot) => {
                self.outcome.ios += 1;
                self.outcome.checksum = self.outcome.checksum.wrapping_add(at.as_ns());
                (at + SUBMIT_AFTER, Event::Submit(slot))
            }
        }
    }
}

impl Workload {
    fn slots(&self) -> u32 {
        self.drives * self.depth
    }

    fn first_events(&self) -> impl Iterator<Item = (Ps, Event)> + use<> {
        (0..self.slots()).map(|slot| (Ps::from_ns(u64::from(slot)), Event::Submit(slot)))
    }

    /// Runs on std's `BinaryHeap` of (time, sequence number, event), without coroutines: the obvious first
    /// implementation.
    pub fn run_baseline(&self) -> Outcome {
        let mut slots = Slots::new(self);
        let mut sequence = 0;
        let mut pending = BinaryHeap::new();
        for (at, event) in self.first_events() {
            pending.push(Reverse((at, sequence, event)));
            sequence += 1;
        }
        while let Some(Reverse((at, number, event))) = pending.pop() {
            if at >= self.end {
                break;
            }
            slots.record(at, number, event);
            let (then, caused) = slots.handle(at, event);
            pending.push(Reverse((then, sequence, caused)));
            sequence += 1;
        }
        slots.outcome
    }

    /// On the machine's engine: the calendar, and a coroutine for each CPU, on which its handlers and submissions run.
    ///
    /// # Errors
    /// [`TaskError`] when the host has no room for the CPUs' stacks.
    pub fn run_engine(&self) -> Result<Outcome, TaskError> {
        let mut tasks = Tasks::new();
        for cpu in 0..self.drives {
            tasks.spawn(STACK_BYTES, move |seat, engine| run_cpu(&seat, engine, cpu))?;
        }
        let mut engine =
            Box::new(Engine { calendar: Calendar::new(), slots: Slots::new(self), workload: *self, due: None });
        for (at, event) in self.first_events() {
            engine.calendar.push(at, event);
        }
        // CPU 0 runs the models' events until one is due for another CPU.
        let mut cpu = 0;
        loop {
            let (Turn::Suspended(back) | Turn::Ended(back)) = tasks.resume(TaskId(cpu), engine);
            engine = back;
            match engine.due {
                Some((_, event)) => cpu = engine.cpu_of(event),
                None => break,
            }
        }
        tasks.shutdown();
        Ok(Outcome { switches: tasks.resumes(), ..engine.slots.outcome })
    }
}

/// The state of a run, owned by the CPU that runs.
struct Engine {
    calendar: Calendar<Event>,
    slots: Slots,
    workload: Workload,
    /// An event taken from the calendar for a CPU that was not running.
    due: Option<(Ps, Event)>,
}

impl Engine {
    fn cpu_of(&self, event: Event) -> u32 {
        let (Event::Submit(slot) | Event::Complete(slot) | Event::Interrupt(slot) | Event::Handler(slot)) = event;
        slot / self.workload.depth
    }

    #[inline]
    fn handle(&mut self, at: Ps, event: Event) {
        let (then, caused) = self.slots.handle(at, event);
        self.calendar.push(then, caused);
    }

    /// Runs events on the stack of `cpu` until one is due for another CPU, or none before the end.
    #[inline]
    fn run(&mut self, cpu: u32) {
        if let Some((at, event)) = self.due.take() {
            self.handle(at, event);
        }
        while let Some((at, sequence, event)) = self.calendar.pop_before((self.workload.end, 0)) {
            self.slots.record(at, sequence, event);
            if matches!(event, Event::Submit(_) | Event::Handler(_)) && self.cpu_of(event) != cpu {
                self.due = Some((at, event));
                return;
            }
            self.handle(at, event);
        }
    }
}

/// The body of one CPU's coroutine.
fn run_cpu(seat: &Seat<'_, Box<Engine>, Box<Engine>>, mut engine: Box<Engine>, cpu: u32) -> Box<Engine> {
    loop {
        engine.run(cpu);
        engine = seat.suspend(engine);
    }
}
