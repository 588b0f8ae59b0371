//! Every interleaving of a completion check with the interrupt of the same queue: no completion is lost, none is taken
//! twice.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p campanile-irq --test loom_check --release`
//!
//! The lock is [`hal::Lock`] itself. Round it stands the least of a completion queue: entries whose phase the device writes
//! last, a message after each, the interrupt that takes the lock, and the submitter that looks, tries once and goes on.
#![cfg(loom)]

mod loom_word;

use hal::{
    Affinity, CpuId, Dma, DmaError, Hal, IrqState, Lock, Regs, SpawnError, ThreadBody, ThreadId, ThreadSpec, Word, Work,
};
use loom::cell::Cell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use loom_word::LoomWord;

/// The registers and the device memory of a world that has none.
struct Nothing;

impl Regs for Nothing {
    fn read32(&self, _: u32) -> u32 {
        unreachable!()
    }
    fn write32(&self, _: u32, _: u32) {
        unreachable!()
    }
    fn read64(&self, _: u32) -> u64 {
        unreachable!()
    }
    fn write64(&self, _: u32, _: u64) {
        unreachable!()
    }
}

impl Dma for Nothing {
    type Word = LoomWord;
    fn len_bytes(&self) -> usize {
        0
    }
    fn device_address(&self) -> hal::DeviceAddress {
        unreachable!()
    }
    fn words(&self) -> &[LoomWord] {
        &[]
    }
    fn read8(&self, _: usize) -> u8 {
        unreachable!()
    }
    fn read16(&self, _: usize) -> u16 {
        unreachable!()
    }
    fn read32(&self, _: usize) -> u32 {
        unreachable!()
    }
    fn write8(&self, _: usize, _: u8) {
        unreachable!()
    }
    fn write16(&self, _: usize, _: u16) {
        unreachable!()
    }
    fn write32(&self, _: usize, _: u32) {
        unreachable!()
    }
}

loom::thread_local! {
    static CPU: std::cell::Cell<u32> = std::cell::Cell::new(0);
}

/// A world of two CPUs that has locks and nothing else.
#[derive(Clone, Copy)]
struct LoomHal;

impl Hal for LoomHal {
    type Word = LoomWord;
    type Regs = Nothing;
    type Dma = Nothing;
    fn dma_alloc(self, len_bytes: usize, _: usize) -> Result<Nothing, DmaError> {
        unreachable!("{len_bytes} bytes")
    }
    fn now_ns(self) -> u64 {
        0
    }
    fn cpu(self) -> CpuId {
        CpuId(CPU.with(std::cell::Cell::get))
    }
    fn irq_save(self) -> IrqState {
        IrqState { were_on: true }
    }
    fn irq_restore(self, _: IrqState) {}
    fn relax_on(self, _: &LoomWord, _: u64, _: u64) {
        thread::yield_now();
    }
    fn delay_ns(self, _: u64) {}
    fn wait_for_interrupt(self) {
        unreachable!()
    }
    fn kick(self, _: CpuId) {}
    fn spawn(self, _: ThreadSpec, _: ThreadBody) -> Result<ThreadId, SpawnError> {
        unreachable!()
    }
    fn current_thread(self) -> ThreadId {
        unreachable!()
    }
    fn park(self) {
        unreachable!()
    }
    fn wake(self, _: ThreadId) {}
    fn set_affinity(self, _: ThreadId, _: &Affinity) -> Result<(), SpawnError> {
        unreachable!()
    }
    fn yield_now(self) {
        thread::yield_now();
    }
    fn work(self, _: Work, _: u32) {}
}

const ENTRIES: usize = 2;

struct Queue {
    /// The phase of each entry.
    phases: Vec<LoomWord>,
    /// The entry's content, written before its phase.
    contents: Vec<Cell<u64>>,
    /// The message waits in the CPU's local APIC.
    requested: AtomicU64,
    /// The head, for looks without the lock.
    cursor: LoomWord,
    /// Entries taken; Loom sees it if two hold the lock.
    completion: Lock<LoomHal, Cell<usize>>,
}

impl Queue {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            phases: (0..ENTRIES).map(|_| LoomWord::new(0)).collect(),
            contents: (0..ENTRIES).map(|_| Cell::new(0)).collect(),
            requested: AtomicU64::new(0),
            cursor: LoomWord::new(0),
            completion: Lock::new(LoomHal, Cell::new(0)),
        })
    }

    fn post(&self) {
        for index in 0..ENTRIES {
            self.contents[index].set(index as u64 + 1);
            self.phases[index].set(1);
            self.requested.fetch_or(1, Ordering::AcqRel);
        }
    }

    fn pending(&self) -> bool {
        self.phases.get(self.cursor.get() as usize).is_some_and(|phase| phase.get() == 1)
    }

    /// As `QueuePair::reap`: plain looks, and one acquire load before anything else of the entry is read.
    fn reap(&self, taken: &Cell<usize>) {
        while self.phases.get(taken.get()).is_some_and(|phase| phase.get() == 1) {
            self.phases[taken.get()].load();
            assert_eq!(self.contents[taken.get()].get(), taken.get() as u64 + 1, "an entry before its content");
            taken.set(taken.get() + 1);
        }
        self.cursor.set(taken.get() as u64);
    }

    /// What follows a submission.
    fn check(&self) {
        if self.pending()
            && let Some(side) = self.completion.try_lock()
        {
            self.reap(&side);
        }
    }

    /// The interrupt, if one is requested.
    fn interrupt(&self, waits: bool) {
        if self.requested.swap(0, Ordering::AcqRel) == 0 {
            return;
        }
        if waits {
            self.reap(&self.completion.lock());
        } else if let Some(side) = self.completion.try_lock() {
            self.reap(&side);
        }
    }
}

fn run(waits: bool) {
    loom::model(move || {
        let queue = Queue::new();
        let device = thread::spawn({
            let queue = queue.clone();
            move || queue.post()
        });
        let submitter = thread::spawn({
            let queue = queue.clone();
            move || {
                CPU.with(|cpu| cpu.set(1));
                queue.check();
            }
        });
        queue.interrupt(waits);
        device.join().unwrap();
        queue.interrupt(waits);
        submitter.join().unwrap();
        assert_eq!(queue.completion.lock().get(), ENTRIES, "a completion that no interrupt will tell of");
    });
}

#[test]
fn every_completion_is_taken_once() {
    run(true);
}

/// Wrong: an interrupt that leaves the queue to whoever holds the lock, who may have had its last look.
#[test]
#[should_panic(expected = "a completion that no interrupt will tell of")]
fn an_interrupt_that_only_tries_loses_one() {
    run(false);
}
