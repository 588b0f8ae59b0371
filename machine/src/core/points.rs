//! Points of the seam. At a point a CPU's debt becomes elapsed time, and due events happen.

use super::Core;
use crate::clock::{Due, Key};
use crate::event::{Event, INDEX_MASK, KIND_CPU, cpu_event};
use crate::livelock::Found;
use crate::threads::{Reason, Yield};
use crate::time::Ps;
use crate::trace::{NOT_YET, Track};
use crate::word::Word;
use hal::{CpuId, ThreadId};

/// The condition that ends a CPU's wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wait {
    /// A time: the key of the wait's end.
    Until(Key),
    /// A write to the word at this host address, or the deadline with this key.
    Word(usize, Key),
    /// An interrupt.
    Interrupt,
}

/// Why the event loop left its own stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// This CPU's own wait is over.
    Resume,
    /// This CPU has an interrupt to take.
    Accept,
    /// Another CPU is next.
    Other(CpuId, Reason),
    /// The run is over: the stop event came.
    Stop,
    /// No event is due before the limit.
    Limit,
    /// Nothing is pending at all.
    Drained,
    /// Events at one instant without end.
    Livelock,
}

/// No limit: only an interrupt ends the wait.
const NEVER: Key = (Ps::MAX, u64::MAX);

/// Time that passes at a point of a dead machine.
const DEAD_STEP: Ps = Ps::from_ns(1_000_000);

/// Time.
impl Core {
    /// A point of the seam: settles the running CPU's debt.
    #[inline]
    pub(crate) fn settle(&self) {
        if let Some(unrest) = self.unrest() {
            self.disturb(unrest);
        }
        self.pass_debt();
    }

    /// The running CPU takes this long.
    pub(crate) fn delay(&self, duration: Ps) {
        self.board.owe(duration);
        self.settle();
    }

    /// The present, read by the running CPU as its clock.
    #[inline]
    pub(crate) fn look_at_clock(&self) -> Ps {
        if !self.on_console() {
            self.still_point();
        }
        self.board.local_now()
    }

    /// Turns the running CPU's debt into elapsed time. Everything due until then happens.
    #[inline(always)]
    pub(super) fn pass_debt(&self) {
        let cpu = self.cpu();
        let debt = cpu.take_debt();
        if cpu.is_console() {
            // Coroutines are unwound from there.
            if self.dead.get() {
                self.pass_dead();
            }
            return;
        }
        if debt > 0 {
            self.clock().guard().passed();
        } else {
            self.still_point();
        }
        let end = Ps(self.now().0 + debt);
        if self.short_cuts && self.clock().is_nothing_due(end) {
            self.clock().end_charge(end);
        } else if self.dead.get() {
            self.pass_dead();
        } else {
            self.pass(end);
        }
    }

    /// No event happens any more, so what code waits for while it unwinds never comes: its deadline does.
    #[cold]
    fn pass_dead(&self) {
        self.clock().set_now(self.now() + DEAD_STEP);
    }

    /// Lets time pass up to `end` while events are due before it. Interrupts in between move `end` back.
    #[inline(never)]
    fn pass(&self, mut end: Ps) {
        let track = || Track::Cpu(self.cpu().id.0);
        let mut sequence = self.clock().reserve_sequence();
        let mut owed = self.board.witness.spans_after(track(), self.now());
        loop {
            match self.wait_once(Wait::Until((end, sequence))) {
                Next::Limit | Next::Resume => return self.clock().end_charge(end),
                Next::Accept => {
                    let cut = self.now();
                    let left = end.saturating_sub(cut);
                    self.board.witness.split_spans(track(), &mut owed, cut, NOT_YET);
                    self.take_interrupts();
                    self.board.witness.split_spans(track(), &mut owed, NOT_YET, self.board.local_now());
                    end = self.now() + Ps(self.cpu().take_debt()) + left;
                    sequence = self.clock().reserve_sequence();
                }
                next => unreachable!("a charge ended by {next:?}"),
            }
        }
    }

    /// The running CPU reached a point again without time passing since the last one.
    #[inline]
    fn still_point(&self) {
        if self.clock().guard().is_over() {
            self.stand_still();
        }
    }

    /// Code loops without time passing: it stays suspended, and the run ends.
    #[cold]
    fn stand_still(&self) {
        if self.dead.get() {
            return;
        }
        self.clock().guard().find(Found { cpu: Some(self.cpu().id) });
        loop {
            self.threads.suspend(Yield::Livelock);
        }
    }
}

/// Waits.
impl Core {
    /// Waits on this coroutine's stack until something concerns its CPU. Runs due events, and leaves the stack only
    /// when another CPU is next. Inlined into the few places that wait.
    #[inline(always)]
    pub(super) fn wait_once(&self, wait: Wait) -> Next {
        let cpu = self.cpu();
        let me = cpu.id;
        let limit = match wait {
            Wait::Until(end) | Wait::Word(_, end) => end,
            Wait::Interrupt => NEVER,
        };
        if let Wait::Word(address, _) = wait {
            self.board.cpus.relax(cpu, address);
        }
        let next = self.run_events(me, limit);
        let has_end = limit.0 != Ps::MAX;
        let why = match next {
            Next::Limit | Next::Drained if has_end && !self.short_cuts => Some(Yield::Event),
            Next::Other(cpu, reason) => Some(Yield::Switch(cpu, reason)),
            Next::Stop => Some(Yield::Stop),
            Next::Drained if !has_end => Some(Yield::Drained),
            Next::Livelock => Some(Yield::Livelock),
            Next::Resume | Next::Accept | Next::Limit | Next::Drained => None,
        };
        let next = match why {
            Some(why) => self.leave(me, limit, why),
            None if next == Next::Drained => Next::Limit,
            None => next,
        };
        if let Wait::Word(..) = wait {
            self.board.cpus.end_relaxing(cpu);
        }
        cpu.end_wait();
        next
    }

    /// Leaves the stack of a waiting CPU. Other CPUs need the end of its wait only from now on.
    #[inline(always)]
    fn leave(&self, me: CpuId, limit: Key, why: Yield) -> Next {
        let has_end = limit.0 != Ps::MAX;
        if has_end {
            self.clock().wait(me, limit);
        }
        let next = match self.threads.suspend(why) {
            Reason::Elapsed => return Next::Resume,
            Reason::Resume => Next::Resume,
            Reason::Accept => Next::Accept,
            Reason::Scheduled => unreachable!("a waiting thread was scheduled"),
        };
        if has_end {
            self.clock().end_wait(me, limit);
        }
        next
    }

    /// Waits until a word is written, or until a deadline. Takes interrupts during the wait if they are on.
    pub(crate) fn relax_on(&self, word: &Word, seen: u64, deadline: Ps) {
        self.settle();
        // The CPU's debt may have lasted beyond the deadline. Time does not go back to the deadline.
        if word.value() != seen || self.dead.get() || deadline <= self.now() {
            return;
        }
        if self.on_console() {
            // Only a coroutine can write the word: let the machine run a little.
            self.run_for(super::CONSOLE_STEP.min(deadline.saturating_sub(self.now())));
            return;
        }
        let cpu = self.cpu();
        if cpu.need_resched() && cpu.irq_on() && cpu.depth() == 0 {
            // A thread that this thread woke on its own CPU runs first, because it may write the word.
            return self.reschedule();
        }
        let (start, charged) = (self.now(), cpu.charged());
        let sequence = self.clock().reserve_sequence();
        match self.wait_once(Wait::Word(word.host_address(), (deadline, sequence))) {
            Next::Accept => {
                self.take_interrupts();
                self.settle();
            }
            Next::Limit => self.clock().set_now(deadline),
            _ => {}
        }
        let waited = self.now().saturating_sub(start).0;
        let account = self.cpu().kernel_account();
        cpu.charge(waited.saturating_sub(cpu.charged() - charged), account);
    }
}

/// Events.
impl Core {
    /// Runs events up to `limit`, as long as they belong to models or need no coroutine to run. `me` is the CPU on
    /// whose stack this runs (the boot loop passes a CPU that does not exist). One copy for all callers, with everything
    /// inlined.
    #[inline(never)]
    pub(crate) fn run_events(&self, me: CpuId, limit: Key) -> Next {
        loop {
            let (at, first, mut is_still) = match self.clock().take_due(limit) {
                Due::Event { at, event, is_still } => (at, event, is_still),
                Due::Resume(waiter) => return Next::Other(waiter, Reason::Elapsed),
                Due::Limit => return Next::Limit,
                Due::Drained => return Next::Drained,
            };
            let mut event = first;
            loop {
                if is_still && self.clock().guard().is_over() {
                    return self.still_events();
                }
                if let Some(next) = self.handle(me, at, event) {
                    return next;
                }
                let Some(chained) = self.clock().take_chained() else { break };
                (event, is_still) = (chained, true);
            }
        }
    }

    /// Too many events without time passing.
    #[cold]
    fn still_events(&self) -> Next {
        self.clock().guard().find(Found { cpu: None });
        Next::Livelock
    }

    /// Handles one event. `Some` when a coroutine must run, or the run is over.
    #[inline]
    fn handle(&self, me: CpuId, at: Ps, event: Event) -> Option<Next> {
        let kind = event.target() >> 30;
        if kind < KIND_CPU {
            self.board.dispatch(at, event);
            return None;
        }
        if kind > KIND_CPU {
            return self.clock().is_stopped_by(event).then_some(Next::Stop);
        }
        if event.code() == cpu_event::RAISE {
            self.board.witness.note(at, event);
        }
        let cpu = CpuId(event.target() & INDEX_MASK);
        self.cpu_event(cpu, event.code(), event.arg).map(|reason| match reason {
            Reason::Resume if cpu == me => Next::Resume,
            Reason::Accept if cpu == me => Next::Accept,
            reason => Next::Other(cpu, reason),
        })
    }

    /// An event for a CPU. `Some` when its coroutine must run.
    fn cpu_event(&self, id: CpuId, code: u32, arg: u64) -> Option<Reason> {
        let cpu = self.board.cpus.of(id);
        match code {
            cpu_event::RESUME => (cpu.generation() == arg).then_some(Reason::Resume),
            cpu_event::ACCEPT => {
                cpu.end_acceptance();
                cpu.is_interrupted().then_some(Reason::Accept)
            }
            cpu_event::RAISE => self.board.controller().ipi(&self.board, cpu, arg).then_some(Reason::Accept),
            cpu_event::TIMER => {
                if cpu.is_timer_armed_as(arg) {
                    self.board.controller().timer(&self.board, cpu);
                }
                None
            }
            cpu_event::WAKE => {
                self.starved_wakes(ThreadId(arg as u32));
                None
            }
            _ => {
                self.slice_over(cpu);
                None
            }
        }
    }
}
