//! The present, the pending events, and the CPUs that wait for a time.

use crate::engine::{self, Calendar, Resumes};
use crate::event::Event;
use crate::livelock::Guard;
use crate::time::Ps;
use hal::CpuId;
use std::cell::{Cell, RefCell};

/// A place in the order of everything that happens: time, then sequence number.
pub(crate) type Key = (Ps, u64);

/// The next thing to happen.
pub(crate) enum Due {
    /// This event, which is no longer pending. Its time is the present now; `is_still` if that was already the
    /// present.
    Event { at: Ps, event: Event, is_still: bool },
    /// The wait of this CPU is over, and nothing is kept of it. The end of the wait is the present now.
    Resume(CpuId),
    /// No event is due before the limit.
    Limit,
    /// No event is pending.
    Drained,
}

/// What will happen, in the order of its keys. One cell for both, because nearly every use needs both.
struct Pending {
    queue: Calendar<Event>,
    /// End times of CPUs that wait for a time and have left their stacks.
    resumes: Resumes,
}

impl Pending {
    /// The time of the next event or resume; `Ps::MAX` when there is none.
    #[inline]
    fn next_due(&self) -> Ps {
        self.queue.next_time().min(self.resumes.first_time())
    }
}

/// Simulated time and the pending events.
pub(crate) struct Clock {
    now: Cell<u64>,
    pending: RefCell<Pending>,
    /// The time of the next event or resume; `Ps::MAX` when there is none. At most points of the seam nothing is due,
    /// and this one load says so.
    next_due: Cell<Ps>,
    /// The event that happens next, before all pending events.
    chained: Cell<Option<Event>>,
    /// True while `chained` holds an event: one load for the many events to which none is chained.
    is_chained: Cell<bool>,
    /// A model is handling an event.
    handling: Cell<bool>,
    /// Counts runs; a stop event names the run that it ends.
    runs: Cell<u64>,
    /// Number of pending stop events, including stale ones.
    stops_pending: Cell<usize>,
    guard: Guard,
}

impl Clock {
    /// At time 0, for `waiters` CPUs. `still_steps_max` bounds the steps at one instant.
    pub(crate) fn new(waiters: usize, still_steps_max: u32) -> Self {
        Self {
            now: Cell::new(0),
            pending: RefCell::new(Pending { queue: Calendar::new(), resumes: Resumes::new(waiters) }),
            next_due: Cell::new(Ps::MAX),
            chained: Cell::new(None),
            is_chained: Cell::new(false),
            handling: Cell::new(false),
            runs: Cell::new(0),
            stops_pending: Cell::new(0),
            guard: Guard::new(still_steps_max),
        }
    }

    #[inline]
    pub(crate) fn now(&self) -> Ps {
        Ps(self.now.get())
    }

    /// Moves the present.
    #[inline]
    pub(crate) fn set_now(&self, now: Ps) {
        if self.now.replace(now.0) != now.0 {
            self.guard.passed();
        }
    }

    /// Moves the present to the end of a charge. The guard was informed when the charge began.
    #[inline]
    pub(crate) fn end_charge(&self, end: Ps) {
        self.now.set(end.0);
    }

    /// The guard against steps that take no time.
    #[inline]
    pub(crate) fn guard(&self) -> &Guard {
        &self.guard
    }

    #[inline]
    pub(crate) fn push(&self, at: Ps, event: Event) {
        // Something is due earlier than an event behind the calendar's head, so `next_due` stays.
        if !self.pending.borrow_mut().queue.push_behind(at, event) {
            self.push_anywhere(at, event);
        }
    }

    #[inline(never)]
    fn push_anywhere(&self, at: Ps, event: Event) {
        self.pending.borrow_mut().queue.push(at, event);
        self.bring_forward(at);
    }

    /// Something is due at `at` from now on.
    #[inline]
    fn bring_forward(&self, at: Ps) {
        self.next_due.set(self.next_due.get().min(at));
    }

    /// Lets `event` follow the current event, before all pending events. If another event already has that place,
    /// `event` is pushed among the pending events at the present.
    pub(crate) fn chain(&self, event: Event) {
        match self.chained.take() {
            None if self.handling.get() => {
                self.chained.set(Some(event));
                self.is_chained.set(true);
            }
            earlier => {
                self.chained.set(earlier);
                self.push(self.now(), event);
            }
        }
    }

    /// The event that was chained to the one just handled, if there is one.
    #[inline]
    pub(crate) fn take_chained(&self) -> Option<Event> {
        if self.is_chained.replace(false) { self.chained.take() } else { None }
    }

    /// A model begins or ends the handling of an event. Events can be chained only in between.
    #[inline]
    pub(crate) fn set_handling(&self, handling: bool) {
        self.handling.set(handling);
    }

    /// Takes the next sequence number, for a wait that begins now.
    #[inline]
    pub(crate) fn reserve_sequence(&self) -> u64 {
        self.pending.borrow_mut().queue.reserve_sequence()
    }

    /// The time of the next event.
    pub(crate) fn next_event(&self) -> Option<Ps> {
        self.pending.borrow().queue.next_key().map(|(at, _)| at)
    }

    /// True if no event is due up to and at `end`.
    #[inline]
    pub(crate) fn is_nothing_due(&self, end: Ps) -> bool {
        self.next_due.get() > end
    }

    /// True if anything except the ends of runs is pending.
    pub(crate) fn is_anything_due(&self) -> bool {
        let pending = self.pending.borrow();
        pending.queue.len() > self.stops_pending.get() || pending.resumes.first().is_some()
    }

    /// Takes the next event or resume before `limit`, and makes its time the present.
    #[inline(always)]
    pub(crate) fn take_due(&self, limit: Key) -> Due {
        let limit = engine::key(limit.0, limit.1);
        let mut pending = self.pending.borrow_mut();
        let Pending { queue, resumes } = &mut *pending;
        let resume = resumes.first_key();
        if let Some((at, _, event)) = queue.pop_before_key(resume.min(limit)) {
            self.next_due.set(queue.next_time().min(engine::time(resume)));
            let is_still = self.now.replace(at.0) == at.0;
            if !is_still {
                self.guard.passed();
            }
            return Due::Event { at, event, is_still };
        }
        if resume < limit
            && let Some(((at, _), waiter)) = resumes.first()
        {
            resumes.pop();
            self.next_due.set(pending.next_due());
            self.set_now(at);
            return Due::Resume(CpuId(waiter as u32));
        }
        // An event may be due at `Ps::MAX`, but no CPU waits for that time.
        if self.next_due.get() == Ps::MAX && queue.is_empty() { Due::Drained } else { Due::Limit }
    }

    /// `cpu` has left its stack and continues at `end`.
    #[inline]
    pub(crate) fn wait(&self, cpu: CpuId, end: Key) {
        debug_assert_ne!(end.0, Ps::MAX, "a CPU that waits for no time has no end");
        self.pending.borrow_mut().resumes.set(cpu.index(), end);
        self.bring_forward(end.0);
    }

    /// `cpu` no longer waits until `end`: something else ended its wait.
    #[inline(never)]
    pub(crate) fn end_wait(&self, cpu: CpuId, end: Key) {
        let mut pending = self.pending.borrow_mut();
        pending.resumes.clear(cpu.index(), end);
        self.next_due.set(pending.next_due());
    }

    /// Begins a run, which ends at `end` or before.
    pub(crate) fn begin_run(&self, end: Ps) {
        self.runs.set(self.runs.get() + 1);
        self.stop_at(end);
    }

    /// Ends the current run at `at`, or now if that has passed.
    pub(crate) fn stop_at(&self, at: Ps) {
        self.stops_pending.set(self.stops_pending.get() + 1);
        self.push(at.max(self.now()), Event::stop(self.runs.get()));
    }

    /// Handles a stop event. True if it ends this run. A stop event is stale if its run ended in another way.
    pub(crate) fn is_stopped_by(&self, stop: Event) -> bool {
        self.stops_pending.set(self.stops_pending.get() - 1);
        stop.arg == self.runs.get()
    }
}
