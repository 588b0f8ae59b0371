//! Completion queues.

use super::RdmaError;
use super::ring::Cursor;
use crate::register::Typed as _;
use alloc::sync::Arc;
use hal::{Dma, Hal, Lock, Word, Work};
use irq::moderation::{Found, Moderated, Outcome, Setting, Tuner};
use irq::poll::Polled;
use spec::rdma::registers::{CQ, CQ_STRIDE, Moderation, cq, doorbell};
use spec::rdma::{CQE_BYTES, CqeTail, Operation, Status};
use spec::register::{ReadWrite, Register};

/// Completions that are handed to the user at once.
pub const BATCH: usize = 16;

/// The most events of one completion queue in an event queue: the queue may be armed this often before an event is
/// taken. The second arming tells the device the entries polled since the first.
pub(super) const ARMS_MAX: u64 = 2;

/// Words of an entry.
const CQE_WORDS: usize = CQE_BYTES / 8;

/// One completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The request's.
    pub id: u64,
    /// The queue pair.
    pub queue_pair: u16,
    /// The operation.
    pub operation: Operation,
    /// How it ended.
    pub status: Status,
    /// Bytes received.
    pub bytes: u32,
}

impl Default for Completion {
    fn default() -> Self {
        Self { id: 0, queue_pair: 0, operation: Operation::SEND, status: Status::SUCCESS, bytes: 0 }
    }
}

/// Receives completions, in the queue's context. May post requests.
pub trait CqUser: Send + Sync {
    /// At most [`BATCH`] completions, in the order of the queue.
    fn completions(&self, batch: &[Completion]);

    /// The user's I/Os in flight, including those not yet submitted, for the tuning; `None` when unknown.
    fn in_flight(&self) -> Option<u32> {
        None
    }
}

/// Owner of a completion queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CqUse {
    /// One user owns the queue and may change its moderation.
    #[default]
    Exclusive,
    /// Several users'; its moderation stays off.
    Shared,
}

/// Whether completions were there after arming.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "missed events raise no interrupt: poll again"]
pub enum Missed {
    /// No completion was there: an event will come.
    No,
    /// Entries that came before the queue was armed.
    Yes,
}

/// Counters of a completion queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CqCounters {
    /// Completions.
    pub completions: u64,
    /// Of them, those that failed.
    pub errors: u64,
    /// Batches handed over.
    pub batches: u64,
    /// Times that it was armed.
    pub arms: u64,
    /// Of them, those that found missed events.
    pub missed: u64,
    /// Changes of the moderation.
    pub moderations: u64,
}

struct Side {
    cursor: Cursor,
    counters: CqCounters,
}

/// A completion queue.
pub struct CompletionQueue<H: Hal> {
    hal: H,
    number: u16,
    entries: u32,
    ring: H::Dma,
    /// The doorbell record.
    record: H::Dma,
    regs: Arc<H::Regs>,
    doorbells: Arc<H::Regs>,
    user: Arc<dyn CqUser>,
    owner: CqUse,
    tuner: Option<Arc<Tuner<H>>>,
    /// The counter of its event queue: see [`super::EventQueue::told`].
    told: Arc<[H::Word]>,
    side: Lock<H, Side>,
}

/// The parts from which [`super::Device::open_cq`] builds a queue.
pub(super) struct CqParts<H: Hal> {
    pub(super) hal: H,
    pub(super) number: u16,
    pub(super) shift: u8,
    pub(super) regs: Arc<H::Regs>,
    pub(super) doorbells: Arc<H::Regs>,
    pub(super) user: Arc<dyn CqUser>,
    pub(super) owner: CqUse,
    pub(super) tuner: Option<Arc<Tuner<H>>>,
    pub(super) told: Arc<[H::Word]>,
}

impl<H: Hal> CompletionQueue<H> {
    pub(super) fn new(parts: CqParts<H>) -> Result<Self, RdmaError> {
        let CqParts { hal, number, shift, regs, doorbells, user, owner, tuner, told } = parts;
        let side = Side { cursor: Cursor::new(shift), counters: CqCounters::default() };
        Ok(Self {
            hal,
            number,
            entries: 1 << shift,
            ring: hal.dma_alloc(CQE_BYTES << shift, 64)?,
            record: hal.dma_alloc(8, 64)?,
            regs,
            doorbells,
            user,
            owner,
            tuner,
            told,
            side: Lock::new(hal, side),
        })
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Its entries.
    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// A snapshot of its counters.
    pub fn counters(&self) -> CqCounters {
        self.side.lock().counters
    }

    /// Its tuner, if it has one.
    pub fn tuner(&self) -> Option<&Arc<Tuner<H>>> {
        self.tuner.as_ref()
    }

    pub(super) fn addresses(&self) -> (u64, u64) {
        (self.ring.device_address().0, self.record.device_address().0)
    }

    fn register(&self, register: Register<u32, ReadWrite>) -> Register<u32, ReadWrite> {
        register.behind(CQ + u32::from(self.number) * CQ_STRIDE)
    }

    /// Completes at most `budget` in batches, in the caller's context, and returns how many that were.
    pub fn poll(&self, budget: u32) -> u32 {
        let mut batch = [Completion::default(); BATCH];
        let mut done = 0;
        while done < budget {
            let room = BATCH.min((budget - done) as usize);
            let count = self.take(&mut batch[..room]);
            if count == 0 {
                break;
            }
            self.user.completions(&batch[..count]);
            done += count as u32;
            if count < room {
                break;
            }
        }
        done
    }

    /// As [`CompletionQueue::poll`], by a user who does so beside the queue's own context: the tuning learns of it.
    pub fn poll_direct(&self, budget: u32) -> u32 {
        self.hal.work(Work::PollLook, 1);
        self.poll_for_tuning(budget, false)
    }

    /// Takes entries off the queue. The doorbell record reports the free room to the device.
    fn take(&self, batch: &mut [Completion]) -> usize {
        let mut side = self.side.lock();
        let mut count = 0;
        while count < batch.len() {
            let (index, phase) = (side.cursor.index() * CQE_WORDS, side.cursor.phase());
            let word = &self.ring.words()[index + 1];
            // A plain look. If it finds an entry, an acquire load orders the reads that follow.
            if CqeTail::from_bits(word.get()).phase() != phase {
                break;
            }
            let tail = CqeTail::from_bits(word.load());
            let status = Status(tail.status());
            batch[count] = Completion {
                id: self.ring.words()[index].get(),
                queue_pair: tail.queue_pair(),
                operation: Operation(tail.operation()),
                status,
                bytes: tail.length(),
            };
            side.cursor.advance();
            side.counters.errors += u64::from(status != Status::SUCCESS);
            count += 1;
        }
        if count > 0 {
            self.record.words()[0].set(side.cursor.taken().into());
            side.counters.completions += count as u64;
            side.counters.batches += 1;
            self.hal.work(Work::ReapEntry, count as u32);
        }
        count
    }

    /// True when the queue has an entry to take.
    fn is_pending(&self, side: &Side) -> bool {
        let tail = &self.ring.words()[side.cursor.index() * CQE_WORDS + 1];
        CqeTail::from_bits(tail.get()).phase() == side.cursor.phase()
    }

    /// Arms the queue for one event, and reports whether it may have missed one. Does not arm it again while two of
    /// its events are still to come or to be taken.
    pub fn arm(&self) -> Missed {
        let mut side = self.side.lock();
        if side.counters.arms.wrapping_sub(self.told[usize::from(self.number)].get()) < ARMS_MAX {
            self.doorbells.write(doorbell::cq(self.number.into()), side.cursor.taken());
            side.counters.arms += 1;
        }
        if self.is_pending(&side) {
            side.counters.missed += 1;
            Missed::Yes
        } else {
            Missed::No
        }
    }

    /// As [`CompletionQueue::poll`], and reports to the tuner: an event's first turn as an interrupt, later turns as
    /// polls.
    pub(super) fn poll_for_tuning(&self, budget: u32, interrupted: bool) -> u32 {
        // Reads the count before the poll, because the entries that the poll finds are in flight until then.
        let in_flight = self.tuner.as_ref().and_then(|_| self.user.in_flight());
        let completions = self.poll(budget);
        if let Some(tuner) = &self.tuner {
            let found = Found { completions, bytes: 0, in_flight };
            if interrupted { tuner.interrupt(found) } else { tuner.polled(found) }
        }
        completions
    }

    /// Changes its moderation, and returns what the device has now, which may be rounded. A register read: not for
    /// interrupts.
    ///
    /// # Errors
    /// [`RdmaError::Shared`], [`RdmaError::Moderation`], [`RdmaError::ModerationRefused`].
    pub fn set_moderation(&self, setting: Setting) -> Result<Setting, RdmaError> {
        if self.owner == CqUse::Shared {
            return Err(RdmaError::Shared);
        }
        let (count, period_us) = (u16::try_from(setting.completions), u16::try_from(setting.delay_us));
        let (Ok(count), Ok(period_us @ 0..=0x7fff)) = (count, period_us) else {
            return Err(RdmaError::Moderation(setting));
        };
        let told = Moderation::new().with_count(count).with_period_us(period_us);
        self.regs.write(self.register(cq::MODERATION), told.into_bits());
        let now = Moderation::from_bits(self.regs.read(self.register(cq::MODERATION)));
        self.side.lock().counters.moderations += 1;
        let has = Setting::new(now.period_us().into(), now.count().into());
        if now.refused() { Err(RdmaError::ModerationRefused(has)) } else { Ok(has) }
    }
}

impl<H: Hal> Moderated for CompletionQueue<H> {
    fn program(&self, setting: Setting) -> Outcome {
        self.set_moderation(setting).map_or(Outcome::Failed, Outcome::Done)
    }
}

/// A turn at the end of an interrupt; the poll list feeds the tuning.
impl<H: Hal> Polled for CompletionQueue<H> {
    fn poll(&self, weight: u32) -> u32 {
        Self::poll(self, weight)
    }

    fn rearm(&self) -> bool {
        self.arm() == Missed::Yes
    }

    fn in_flight(&self) -> Option<u32> {
        self.user.in_flight()
    }
}
