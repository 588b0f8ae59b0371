//! Reads with checked data, from one queue. Usually each completion submits the next read, so a lost interrupt stops
//! all.

use crate::arch;
use crate::kernel::Bare;
use crate::patience::Patience;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Display;
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};
use drivers::nvme;
use drivers::virtio::block;
use hal::{DeviceAddress, Dma, Hal, Lock, Threads, Word};
use spin::Once;

/// Bytes of a logical block of QEMU's drives.
pub(super) const BLOCK_BYTES: usize = 512;
const WORDS: usize = BLOCK_BYTES / 8;
/// Without a completion for this long, an interrupt counts as lost.
const STALL_NS: u64 = 10_000_000_000;
/// Blocks that hold known data.
pub(super) const BLOCKS: u64 = 2048;

/// Word `index` of block `lba`.
pub(super) fn pattern(lba: u64, index: usize) -> u64 {
    (lba << 16 | index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// A buffer, and the block that its read in flight fetches.
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
    /// Total number of reads.
    wanted: u64,
    /// True if a thread submits the reads instead of the completions.
    by_thread: bool,
    /// The first error.
    wrong: Option<String>,
}

/// A transfer of one block.
#[derive(Clone, Copy)]
pub(super) struct Transfer {
    pub(super) tag: u64,
    pub(super) lba: u64,
    pub(super) buffer: DeviceAddress,
}

impl Transfer {
    /// As a request of an NVMe drive.
    pub(super) fn nvme(self, op: nvme::IoOp) -> nvme::IoRequest {
        let Self { tag, lba, buffer } = self;
        nvme::IoRequest { tag, op, lba, buffer, len_bytes: BLOCK_BYTES as u32 }
    }

    /// As a request of a virtio block device.
    pub(super) fn virtio(self, op: block::BlockOp) -> block::BlockRequest {
        let Self { tag, lba, buffer } = self;
        block::BlockRequest { tag, op, sector: lba, buffer, len_bytes: BLOCK_BYTES as u32 }
    }
}

/// Submits a transfer to a device.
type Submit = Box<dyn Fn(Transfer) -> Result<(), String> + Send + Sync>;

/// The reads of one queue.
pub(super) struct Reads {
    submit: Once<Submit>,
    ledger: Lock<Bare, Ledger>,
    seed: u64,
}

impl Reads {
    /// At most `depth` reads are in flight; `seed` differs between queues.
    ///
    /// # Errors
    /// No memory.
    pub(super) fn new(depth: u64, seed: u64) -> Result<Self, String> {
        let slot = |_| Ok(Slot { buffer: buffer()?, tag: None });
        let slots = (0..depth).map(slot).collect::<Result<_, String>>()?;
        Ok(Self { submit: Once::new(), ledger: Lock::new(Bare, Ledger { slots, ..Ledger::default() }), seed })
    }

    /// Connects these reads with their queue.
    pub(super) fn attach(&self, submit: impl Fn(Transfer) -> Result<(), String> + Send + Sync + 'static) {
        self.submit.call_once(|| Box::new(submit));
    }

    /// The block that read `number` reads. The reads spread over all known blocks.
    fn lba(&self, number: u64) -> u64 {
        (number.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(self.seed) >> 20) % BLOCKS
    }

    /// Does `count` more reads.
    pub(super) fn start(&self, count: u64) {
        self.ledger.lock().wanted += count;
        self.submit_free();
    }

    /// With true, completions submit no reads from now on.
    pub(super) fn submit_from_thread(&self, by_thread: bool) {
        self.ledger.lock().by_thread = by_thread;
    }

    /// Submits a read into every buffer that has none in flight.
    pub(super) fn submit_free(&self) {
        let slots = self.ledger.lock().slots.len();
        (0..slots).for_each(|slot| self.submit(slot));
    }

    /// The next read into the buffer of `slot`, if one is left. Fills the buffer first, so that unwritten words are
    /// noticed.
    fn submit(&self, slot: usize) {
        let transfer = {
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
            Transfer { tag, lba, buffer: buffer.device_address() }
        };
        if let Err(why) = self.submit.get().expect("a queue")(transfer) {
            self.ledger.lock().fail(|| format!("a read was refused: {why}"));
        }
    }

    /// Number of completed reads, and whether all requested reads have completed.
    pub(super) fn progress(&self) -> (u64, bool) {
        let ledger = self.ledger.lock();
        (ledger.completed, ledger.completed == ledger.wanted)
    }

    /// Returns the first error, if there was one.
    ///
    /// # Errors
    /// That error.
    pub(super) fn check(&self) -> Result<(), String> {
        self.ledger.lock().wrong.clone().map_or(Ok(()), Err)
    }

    /// Ends a read. Returns its slot if the slot must be used again at once.
    fn end(&self, ended: u64, result: Result<(), impl Display>) -> Option<usize> {
        let mut ledger = self.ledger.lock();
        let slot = (ended & 0xffff) as usize;
        let Some(Slot { buffer, tag }) = ledger.slots.get_mut(slot) else {
            ledger.fail(|| format!("a completion of nothing: tag {ended:#x}"));
            return None;
        };
        let was = tag.take();
        let lba = self.lba(ended >> 16);
        let wrong = buffer.words().iter().enumerate().find(|(index, word)| word.get() != pattern(lba, *index));
        let wrong = wrong.map(|(index, word)| (index, word.get()));
        ledger.completed += 1;
        if was != Some(ended) {
            ledger.fail(|| format!("tag {ended:#x} completed; {was:x?} was in flight"));
        } else if let Err(error) = result {
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

impl Reads {
    /// Ends a read, and reuses its slot if a read is left.
    pub(super) fn ended(&self, tag: u64, result: Result<(), impl Display>) {
        if let Some(slot) = self.end(tag, result) {
            self.submit(slot);
        }
    }
}

impl nvme::BatchDone for Reads {
    fn batch_done(&self, batch: &[nvme::Completed]) {
        batch.iter().for_each(|completed| self.ended(completed.tag, completed.result.map(drop)));
    }
}

fn buffer() -> Result<<Bare as Hal>::Dma, String> {
    Bare.dma_alloc(BLOCK_BYTES, BLOCK_BYTES).map_err(|error| format!("a buffer: {error}"))
}

/// Starts `rounds` reads over all queues and waits for them, calling `meanwhile` again and again.
///
/// # Errors
/// The first error, or that nothing has completed for a long time.
pub(super) fn carry(
    queues: &[Arc<Reads>],
    rounds: u64,
    mut meanwhile: impl FnMut() -> Result<(), String>,
) -> Result<(), String> {
    let share = |index: usize| rounds / queues.len() as u64 + u64::from((index as u64) < rounds % queues.len() as u64);
    queues.iter().enumerate().for_each(|(index, reads)| reads.start(share(index)));
    let sum = || queues.iter().map(|reads| reads.progress().0).sum::<u64>();
    let (mut seen, mut patience) = (sum(), Patience::new(STALL_NS, arch::CLOCK.now_ns()));
    while !queues.iter().all(|reads| reads.progress().1) {
        meanwhile()?;
        Bare.yield_now();
        queues.iter().try_for_each(|reads| reads.check())?;
        let (now, now_ns) = (sum(), arch::CLOCK.now_ns());
        if now != seen {
            seen = now;
            patience.renew(now_ns);
        } else if patience.is_over(now_ns) {
            return Err(format!("no completion for {} s after {now} reads", STALL_NS / 1_000_000_000));
        }
    }
    queues.iter().try_for_each(|reads| reads.check())
}

/// Counts completions, and failures among them, of the writes that fill the device.
#[derive(Default)]
pub(super) struct Written {
    ended: AtomicU64,
    failed: AtomicU64,
}

impl Written {
    /// A write is over.
    pub(super) fn note(&self, failed: bool) {
        self.failed.fetch_add(failed.into(), SeqCst);
        self.ended.fetch_add(1, SeqCst);
    }
}

impl nvme::BatchDone for Written {
    fn batch_done(&self, batch: &[nvme::Completed]) {
        batch.iter().for_each(|completed| self.note(completed.result.is_err()));
    }
}

/// Writes the known data, one block at a time: `submit` submits a write to the device, `look` takes completed writes.
///
/// # Errors
/// A write that fails, or does not complete in time.
pub(super) fn fill(
    written: &Written,
    submit: impl Fn(Transfer) -> Result<(), String>,
    look: impl Fn(),
) -> Result<(), String> {
    let buffer = buffer()?;
    for lba in 0..BLOCKS {
        for index in 0..WORDS {
            buffer.words()[index].set(pattern(lba, index));
        }
        let transfer = Transfer { tag: lba, lba, buffer: buffer.device_address() };
        submit(transfer).map_err(|why| format!("a write was refused: {why}"))?;
        super::wait("a write", || {
            look();
            written.ended.load(SeqCst) > lba
        })?;
    }
    super::expect("writes failed", written.failed.load(SeqCst), 0)
}
