//! Event queues: which completion queue has something, and the handler of their interrupt.

use super::ring::Cursor;
use super::{CompletionQueue, CqContext, RdmaError};
use crate::register::Typed as _;
use alloc::sync::Arc;
use alloc::vec::Vec;
use hal::{Dma, Hal, Lock, Word, Work};
use irq::{Action, Irq, IrqReturn};
use spec::rdma::registers::doorbell;
use spec::rdma::{EQE_BYTES, Eqe, EventKind};

/// Counters of an event queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EventCounters {
    /// Interrupts.
    pub interrupts: u64,
    /// Of them, those that found no event.
    pub empty: u64,
    /// Events of completion queues.
    pub completions: u64,
    /// Completion queues that stopped.
    pub cq_errors: u64,
    /// Queue pairs that stopped.
    pub qp_errors: u64,
    /// Events of an unknown kind, or for an unknown completion queue.
    pub unknown: u64,
}

struct Side<H: Hal> {
    cursor: Cursor,
    /// By completion queue: where it is polled.
    contexts: Vec<Option<Arc<CqContext<H>>>>,
    counters: EventCounters,
}

/// An event queue. The caller requests its MSI-X entry's line with it as the action.
pub struct EventQueue<H: Hal> {
    hal: H,
    number: u16,
    shift: u8,
    ring: H::Dma,
    doorbells: Arc<H::Regs>,
    told: Arc<[H::Word]>,
    side: Lock<H, Side<H>>,
}

impl<H: Hal> EventQueue<H> {
    pub(super) fn new(
        hal: H,
        number: u16,
        shift: u8,
        completion_queues: u16,
        doorbells: Arc<H::Regs>,
    ) -> Result<Self, RdmaError> {
        let contexts = (0..completion_queues).map(|_| None).collect();
        let side = Side { cursor: Cursor::new(shift), contexts, counters: EventCounters::default() };
        let ring = hal.dma_alloc(EQE_BYTES << shift, 64)?;
        let told = (0..completion_queues).map(|_| H::Word::new(0)).collect();
        Ok(Self { hal, number, shift, ring, doorbells, told, side: Lock::new(hal, side) })
    }

    /// By completion queue: its events that were taken.
    pub(super) fn told(&self) -> &Arc<[H::Word]> {
        &self.told
    }

    pub(super) fn address(&self) -> u64 {
        self.ring.device_address().0
    }

    /// Its number, which is its MSI-X entry's.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// A snapshot of its counters.
    pub fn counters(&self) -> EventCounters {
        self.side.lock().counters
    }

    /// Schedules `context` for events of `queue`, which must have been opened for this event queue. Arm it then.
    pub fn attach(&self, queue: &CompletionQueue<H>, context: CqContext<H>) {
        if let Some(place) = self.side.lock().contexts.get_mut(usize::from(queue.number())) {
            *place = Some(Arc::new(context));
        }
    }

    /// Arms it for the first time.
    pub(super) fn arm(&self) {
        let taken = self.side.lock().cursor.taken();
        self.doorbells.write(doorbell::eq(self.number.into()), taken);
    }

    /// Takes the present events, at most as many as the queue holds, and arms the queue again.
    fn drain(&self) -> bool {
        let mut left = 1u32 << self.shift;
        while left > 0
            && let Some(context) = self.next()
        {
            // Without the lock: a worker that is woken may take it at once.
            context.into_iter().for_each(|context| context.schedule());
            left -= 1;
        }
        let any = left < 1 << self.shift;
        let mut side = self.side.lock();
        side.counters.interrupts += 1;
        side.counters.empty += u64::from(!any);
        self.doorbells.write(doorbell::eq(self.number.into()), side.cursor.taken());
        any
    }

    /// Takes an event, if any. Returns the context to schedule, if the event has one.
    fn next(&self) -> Option<Option<Arc<CqContext<H>>>> {
        let mut side = self.side.lock();
        let word = &self.ring.words()[side.cursor.index()];
        if Eqe::from_bits(word.get()).phase() != side.cursor.phase() {
            return None;
        }
        let event = Eqe::from_bits(word.load());
        side.cursor.advance();
        if EventKind(event.kind()) == EventKind::COMPLETION
            && let Some(told) = self.told.get(usize::from(event.object()))
        {
            told.set(told.get().wrapping_add(1));
        }
        Some(side.take(event))
    }
}

impl<H: Hal> Side<H> {
    fn take(&mut self, event: Eqe) -> Option<Arc<CqContext<H>>> {
        let context = self.contexts.get(usize::from(event.object())).and_then(Option::as_ref);
        match (EventKind(event.kind()), context) {
            (EventKind::COMPLETION, Some(context)) => {
                self.counters.completions += 1;
                return Some(context.clone());
            }
            (EventKind::CQ_ERROR, _) => self.counters.cq_errors += 1,
            (EventKind::QP_ERROR, _) => self.counters.qp_errors += 1,
            _ => self.counters.unknown += 1,
        }
        None
    }
}

impl<H: Hal> Action for EventQueue<H> {
    fn handle(&self, _irq: Irq) -> IrqReturn {
        self.hal.work(Work::IrqHandler, 1);
        if self.drain() { IrqReturn::Handled } else { IrqReturn::None }
    }
}
