//! Reads with checked data, from one queue. Mostly the completions alone carry it on, so that a lost interrupt stops it.

use crate::kernel::Bare;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use drivers::nvme::{BatchDone, Completed, IoOp, IoRequest, QueuePair};
use hal::{Dma, Hal, Lock, Word};
use spin::Once;

/// A logical block of QEMU's drives.
pub(super) const BLOCK_BYTES: usize = 512;
const WORDS: usize = BLOCK_BYTES / 8;
/// Blocks that hold known data.
pub(super) const BLOCKS: u64 = 2048;

/// Word `index` of block `lba`.
fn pattern(lba: u64, index: usize) -> u64 {
    (lba << 16 | index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// What an in-flight read will bring, and where.
struct Slot {
    buffer: <Bare as Hal>::Dma,
    /// The tag of the read that is in flight.
    tag: Option<u64>,
}

#[derive(Default)]
struct Ledger {
    slots: Vec<Slot>,
    submitted: u64,
    completed: u64,
    /// Reads to do altogether.
    wanted: u64,
    /// A thread submits, and not the completions.
    by_thread: bool,
    /// What went wrong first.
    wrong: Option<String>,
}

/// The reads of one queue.
pub(super) struct Reads {
    pair: Once<Arc<QueuePair<Bare>>>,
    ledger: Lock<Bare, Ledger>,
    seed: u64,
}

impl Reads {
    /// `depth` reads at a time at most; `seed` tells queues apart.
    ///
    /// # Errors
    /// No memory.
    pub(super) fn new(depth: u64, seed: u64) -> Result<Self, String> {
        let slot = |_| Ok(Slot { buffer: buffer()?, tag: None });
        let slots = (0..depth).map(slot).collect::<Result<_, String>>()?;
        Ok(Self { pair: Once::new(), ledger: Lock::new(Bare, Ledger { slots, ..Ledger::default() }), seed })
    }

    /// Gives it its queue.
    pub(super) fn attach(&self, pair: Arc<QueuePair<Bare>>) {
        self.pair.call_once(|| pair);
    }

    /// The block that read `number` reads: all over the known ones.
    fn lba(&self, number: u64) -> u64 {
        (number.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(self.seed) >> 20) % BLOCKS
    }

    /// Does `count` more reads.
    pub(super) fn start(&self, count: u64) {
        self.ledger.lock().wanted += count;
        self.submit_free();
    }

    /// From now on completions submit nothing.
    pub(super) fn submit_from_thread(&self) {
        self.ledger.lock().by_thread = true;
    }

    /// A read into every buffer in which none is in flight.
    pub(super) fn submit_free(&self) {
        let slots = self.ledger.lock().slots.len();
        (0..slots).for_each(|slot| self.submit(slot));
    }

    /// The next read, if one is left to do, into the buffer of `slot`, whose words say afterwards who wrote them.
    fn submit(&self, slot: usize) {
        let request = {
            let mut ledger = self.ledger.lock();
            if ledger.submitted == ledger.wanted || ledger.slots[slot].tag.is_some() {
                return;
            }
            let number = ledger.submitted;
            ledger.submitted += 1;
            let tag = number << 16 | slot as u64;
            ledger.slots[slot].tag = Some(tag);
            let buffer = &ledger.slots[slot].buffer;
            let lba = self.lba(number);
            buffer.words().iter().enumerate().for_each(|(index, word)| word.set(!pattern(lba, index)));
            IoRequest { tag, op: IoOp::Read, lba, buffer: buffer.device_address(), len_bytes: BLOCK_BYTES as u32 }
        };
        let submitted = self.pair.get().expect("a queue").submit(&[request]);
        if submitted.accepted != 1 {
            self.ledger.lock().fail(|| format!("a read was refused: {:?}", submitted.refused));
        }
    }

    /// Reads completed, and whether all that were wanted are.
    pub(super) fn progress(&self) -> (u64, bool) {
        let ledger = self.ledger.lock();
        (ledger.completed, ledger.completed == ledger.wanted)
    }

    /// What went wrong first.
    ///
    /// # Errors
    /// That.
    pub(super) fn check(&self) -> Result<(), String> {
        self.ledger.lock().wrong.clone().map_or(Ok(()), Err)
    }

    /// A read is over; the slot that is to be used again at once.
    fn end(&self, completed: &Completed) -> Option<usize> {
        let mut ledger = self.ledger.lock();
        let slot = (completed.tag & 0xffff) as usize;
        let Some(Slot { buffer, tag }) = ledger.slots.get_mut(slot) else {
            ledger.fail(|| format!("a completion of nothing: tag {:#x}", completed.tag));
            return None;
        };
        let was = tag.take();
        let lba = self.lba(completed.tag >> 16);
        let wrong = buffer.words().iter().enumerate().find(|(index, word)| word.get() != pattern(lba, *index));
        let wrong = wrong.map(|(index, word)| (index, word.get()));
        ledger.completed += 1;
        if was != Some(completed.tag) {
            ledger.fail(|| format!("tag {:#x} completed; {was:x?} was in flight", completed.tag));
        } else if let Err(error) = completed.result {
            ledger.fail(|| format!("a read of block {lba} failed: {error}"));
        } else if let Some((index, word)) = wrong {
            ledger.fail(|| format!("word {index} of block {lba} is {word:#x}, not {:#x}", pattern(lba, index)));
        }
        (!ledger.by_thread).then_some(slot)
    }
}

impl Ledger {
    fn fail(&mut self, why: impl FnOnce() -> String) {
        if self.wrong.is_none() {
            self.wrong = Some(why());
        }
    }
}

impl BatchDone for Reads {
    fn batch_done(&self, batch: &[Completed]) {
        for completed in batch {
            if let Some(slot) = self.end(completed) {
                self.submit(slot);
            }
        }
    }
}

fn buffer() -> Result<<Bare as Hal>::Dma, String> {
    Bare.dma_alloc(BLOCK_BYTES, BLOCK_BYTES).map_err(|error| format!("a buffer: {error}"))
}

/// Takes completions, whoever they are for, of the queue that the drive is filled through.
#[derive(Default)]
pub(super) struct Written(core::sync::atomic::AtomicU64, core::sync::atomic::AtomicU64);

impl BatchDone for Written {
    fn batch_done(&self, batch: &[Completed]) {
        use core::sync::atomic::Ordering::SeqCst;
        let failed = batch.iter().filter(|completed| completed.result.is_err()).count();
        self.1.fetch_add(failed as u64, SeqCst);
        self.0.fetch_add(batch.len() as u64, SeqCst);
    }
}

/// Writes the known data through a polled queue.
///
/// # Errors
/// A write that fails, or is not over in time.
pub(super) fn fill(pair: &QueuePair<Bare>, written: &Written) -> Result<(), String> {
    use core::sync::atomic::Ordering::SeqCst;
    let buffer = buffer()?;
    for lba in 0..BLOCKS {
        for index in 0..WORDS {
            buffer.words()[index].set(pattern(lba, index));
        }
        let address = buffer.device_address();
        let request = IoRequest { tag: lba, op: IoOp::Write, lba, buffer: address, len_bytes: BLOCK_BYTES as u32 };
        let submitted = pair.submit(&[request]);
        if submitted.accepted != 1 {
            return Err(format!("a write was refused: {:?}", submitted.refused));
        }
        super::wait("a write", || pair.poll(1) > 0 || written.0.load(SeqCst) > lba)?;
    }
    super::expect("writes failed", written.1.load(SeqCst), 0)
}
