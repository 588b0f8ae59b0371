//! Observation of the machine: the observer, the digest, the trace and the faults.

use crate::event::Event;
use crate::fault::{FaultLog, FaultRecord};
use crate::observe::{Fact, Observer};
use crate::time::Ps;
use crate::trace::{Span, Track};
use std::cell::{Cell, OnceCell, RefCell};

/// Records, and changes no state of the machine.
pub(crate) struct Witness {
    observer: OnceCell<Observer>,
    tracing: Cell<bool>,
    /// The machine is disturbed, so every owed step must be visible.
    is_disturbed: bool,
    /// Tracing, an observer or a disturbed schedule is active.
    is_watched: Cell<bool>,
    spans: RefCell<Vec<Span>>,
    spans_max: usize,
    faults: RefCell<FaultLog>,
    digest: Cell<u64>,
    events: Cell<u64>,
    switches: Cell<u64>,
}

impl Witness {
    /// Without an observer. It traces if it may keep spans.
    pub(crate) fn new(spans_max: usize, is_disturbed: bool) -> Self {
        Self {
            observer: OnceCell::new(),
            tracing: Cell::new(spans_max > 0),
            is_disturbed,
            is_watched: Cell::new(spans_max > 0 || is_disturbed),
            spans: RefCell::default(),
            spans_max,
            faults: RefCell::default(),
            digest: Cell::new(0xcbf2_9ce4_8422_2325),
            events: Cell::new(0),
            switches: Cell::new(0),
        }
    }

    /// Installs the hardware observer. False when there is one already.
    pub(crate) fn set_observer(&self, observer: impl FnMut(Ps, Fact) + 'static) -> bool {
        self.is_watched.set(true);
        self.observer.set(RefCell::new(Box::new(observer))).is_ok()
    }

    /// Turns tracing on or off.
    pub(crate) fn set_tracing(&self, on: bool) {
        self.tracing.set(on);
        self.is_watched.set(on || self.is_disturbed || self.observer.get().is_some());
    }

    /// True if tracing, an observer or a disturbed schedule is active.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        self.is_watched.get()
    }

    /// Reports a fact to the observer, if any, at its agent's time.
    #[inline]
    pub(crate) fn tell(&self, at: Ps, fact: impl FnOnce() -> Fact) {
        if let Some(observer) = self.observer.get() {
            tell_observer(observer, at, fact());
        }
    }

    /// Counts an event that an agent can see, and adds it to the digest. How CPUs wait does not enter the digest.
    #[inline]
    pub(crate) fn note(&self, at: Ps, event: Event) {
        self.events.set(self.events.get() + 1);
        let mixed = at.0 ^ event.arg.rotate_left(17) ^ event.head;
        self.digest.set((self.digest.get() ^ mixed).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23));
    }

    /// Counts an entry into a coroutine.
    #[inline]
    pub(crate) fn note_switch(&self) {
        self.switches.set(self.switches.get() + 1);
    }

    /// Digest over every event's time, target and content.
    pub(crate) fn digest(&self) -> u64 {
        self.digest.get()
    }

    /// Events that an agent could see.
    pub(crate) fn events(&self) -> u64 {
        self.events.get()
    }

    /// Entries into a coroutine.
    pub(crate) fn switches(&self) -> u64 {
        self.switches.get()
    }

    pub(crate) fn record_fault(&self, fault: FaultRecord) {
        self.faults.borrow_mut().record(fault);
    }

    pub(crate) fn fault_kinds(&self) -> usize {
        self.faults.borrow().kinds()
    }

    /// The faults, and how many found no room.
    pub(crate) fn faults(&self) -> (Vec<FaultRecord>, u64) {
        self.faults.borrow().take()
    }

    /// A span of the trace, if it is kept.
    #[inline]
    pub(crate) fn trace(&self, span: Span) {
        if self.tracing.get() {
            self.keep(span);
        }
    }

    #[cold]
    fn keep(&self, span: Span) {
        let mut spans = self.spans.borrow_mut();
        if spans.len() < self.spans_max {
            spans.push(span);
        }
    }

    pub(crate) fn take_spans(&self) -> Vec<Span> {
        self.spans.take()
    }

    /// Places of the spans of `track` that end after `at`: they were noted when they were owed. None untraced.
    #[inline]
    pub(crate) fn spans_after(&self, track: Track, at: Ps) -> Vec<usize> {
        if !self.tracing.get() {
            return Vec::new();
        }
        let spans = self.spans.borrow();
        let own = spans.iter().enumerate().rev().filter(|(_, span)| span.track == track);
        own.take_while(|(_, span)| span.start + span.duration > at).map(|(place, _)| place).collect()
    }

    /// What was owed on `track` beyond `cut` happens from `resumed` on, so that spans nest.
    #[inline]
    pub(crate) fn split_spans(&self, track: Track, owed: &mut [usize], cut: Ps, resumed: Ps) {
        if owed.is_empty() {
            return;
        }
        let mut spans = self.spans.borrow_mut();
        for place in owed {
            let Some(span) = spans.get_mut(*place).filter(|span| span.track == track) else { continue };
            let end = span.start + span.duration;
            if span.start >= cut {
                span.start = resumed + (span.start - cut);
            } else if end > cut {
                let rest = Span { start: resumed, duration: end - cut, ..*span };
                span.duration = cut - span.start;
                *place = spans.len();
                spans.push(rest);
            }
        }
    }
}

/// # Panics
/// When the observer itself caused the fact: it called the machine.
#[cold]
fn tell_observer(observer: &Observer, at: Ps, fact: Fact) {
    let Ok(mut observer) = observer.try_borrow_mut() else { panic!("the observer called the machine: {fact:?}") };
    observer(at, fact);
}
