//! Setbacks: what goes wrong while software brings hardware up, from one of its acts on.
//!
//! The faults of a device need its model's help ([`crate::outage`]). A setback meets software at each of its acts, whatever it talks
//! to, so a search can count the acts and let each go wrong once.

use crate::event::Event;
use core::ops::Range;
use std::cell::{Cell, RefCell};

/// What goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Setback {
    /// No memory for devices is left ([`hal::DmaError::Exhausted`]).
    NoMemory,
    /// Devices stall: they take register writes and can be read, but nothing happens by itself until the setback is over. Then all of it
    /// happens at once, in its order. A level that was to fall comes again and again meanwhile, so the stall is over behind 2,000 acts.
    Stall,
    /// Devices refuse what a driver asks for at set-up, where they may: features, a queue ([`crate::world::World::refuses`]).
    Refusal,
}

/// Acts under a stall: more than any bring-up has.
const STALLED_MAX: u32 = 2_000;

/// The name of a setback that struck, for [`crate::observe::Fact::Struck`]: told when it is over.
pub const STRUCK: &str = "setback";

/// A setback that is over.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Endured {
    /// Acts of software that it counted: allocations, register writes, or requests that a device may refuse.
    pub acts: u32,
    /// Something went wrong: there was an act that was not spared.
    pub struck: bool,
    /// Memory that was allocated meanwhile, has not been given back, and is used by no model.
    pub unused: Vec<Range<u64>>,
}

/// The setback of a machine; mostly none.
#[derive(Default)]
pub(crate) struct State {
    kind: Cell<Option<Setback>>,
    /// Devices stall now: what every event of a model asks.
    is_stalled: Cell<bool>,
    /// Acts that go well yet.
    spared: Cell<u32>,
    acts: Cell<u32>,
    /// Events of models that wait.
    held: RefCell<Vec<Event>>,
    allocated: RefCell<Vec<Range<u64>>>,
    released: RefCell<Vec<Range<u64>>>,
}

impl State {
    /// An act of this kind. True if it goes wrong.
    #[inline]
    fn strikes(&self, kind: Setback) -> bool {
        self.kind.get() == Some(kind) && self.count()
    }

    #[cold]
    fn count(&self) -> bool {
        self.acts.set(self.acts.get() + 1);
        self.acts.get() > self.spared.get()
    }

    /// Memory for a device is asked for. True if none is left.
    pub(crate) fn denies_memory(&self) -> bool {
        self.strikes(Setback::NoMemory)
    }

    /// A device is asked for what it may refuse. True if it does.
    pub(crate) fn refuses(&self) -> bool {
        self.strikes(Setback::Refusal)
    }

    pub(crate) fn allocated(&self, range: Range<u64>) {
        if self.kind.get().is_some() {
            self.released.borrow_mut().retain(|other| other.end <= range.start || range.end <= other.start);
            self.allocated.borrow_mut().push(range);
        }
    }

    pub(crate) fn released(&self, range: &Range<u64>) {
        if self.kind.get().is_some() {
            self.allocated.borrow_mut().retain(|other| other != range);
            self.released.borrow_mut().push(range.clone());
        }
    }

    /// Register writes are acts: each is to be told by [`Self::count_write`].
    #[inline]
    pub(crate) fn counts_writes(&self) -> bool {
        self.kind.get() == Some(Setback::Stall)
    }

    /// A CPU writes a register. What happens now, if that was one too many for the stall.
    #[cold]
    pub(crate) fn count_write(&self) -> Vec<Event> {
        self.count();
        let stalled = self.acts.get().saturating_sub(self.spared.get());
        self.is_stalled.set((1..=STALLED_MAX).contains(&stalled));
        if self.is_stalled.get() { Vec::new() } else { self.held.take() }
    }

    /// Devices stall now.
    #[inline]
    pub(crate) fn is_stalled(&self) -> bool {
        self.is_stalled.get()
    }

    /// An event of a model waits until the setback is over.
    #[cold]
    pub(crate) fn hold(&self, event: Event) {
        self.held.borrow_mut().push(event);
    }

    pub(crate) fn begin(&self, setback: Setback, spared: u32) {
        self.spared.set(spared);
        self.kind.set(Some(setback));
    }

    /// It is over: what waits, and memory that was given back and allocated meanwhile.
    pub(crate) fn end(&self) -> Ended {
        self.kind.set(None);
        self.is_stalled.set(false);
        let (acts, spared) = (self.acts.take(), self.spared.get());
        let (held, released, allocated) = (self.held.take(), self.released.take(), self.allocated.take());
        Ended { held, released, allocated, acts, struck: acts > spared }
    }
}

/// What a setback leaves to be done.
pub(crate) struct Ended {
    pub(crate) held: Vec<Event>,
    pub(crate) released: Vec<Range<u64>>,
    pub(crate) allocated: Vec<Range<u64>>,
    pub(crate) acts: u32,
    pub(crate) struck: bool,
}
