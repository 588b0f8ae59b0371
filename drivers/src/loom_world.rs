//! A world of two CPUs that has words, memory and locks that Loom watches, and nothing else.

use hal::{CpuId, DeviceAddress, Dma, DmaError, Hal, IrqState, Regs, Word, Work};
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::thread;
use std::sync::Arc;

/// A word with the orderings that [`Word`] promises.
pub(crate) struct LoomWord(AtomicU64);

/// An update is a full barrier.
fn full_barrier<T>(update: impl FnOnce() -> T) -> T {
    fence(Ordering::SeqCst);
    let old = update();
    fence(Ordering::SeqCst);
    old
}

impl Word for LoomWord {
    fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }
    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
    fn set(&self, value: u64) {
        self.0.store(value, Ordering::Release);
    }
    fn load(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
    fn swap(&self, value: u64) -> u64 {
        full_barrier(|| self.0.swap(value, Ordering::AcqRel))
    }
    fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64> {
        full_barrier(|| self.0.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire))
    }
    fn fetch_or(&self, mask: u64) -> u64 {
        full_barrier(|| self.0.fetch_or(mask, Ordering::AcqRel))
    }
    fn fetch_and(&self, mask: u64) -> u64 {
        full_barrier(|| self.0.fetch_and(mask, Ordering::AcqRel))
    }
    fn fetch_add(&self, value: u64) -> u64 {
        full_barrier(|| self.0.fetch_add(value, Ordering::AcqRel))
    }
}

/// Doorbells that nobody hears: the device does what the test has it do.
pub(crate) struct Doorbells;

impl Regs for Doorbells {
    fn read32(&self, _: u32) -> u32 {
        unreachable!()
    }
    fn write32(&self, _: u32, _: u32) {}
    fn read64(&self, _: u32) -> u64 {
        unreachable!()
    }
    fn write64(&self, _: u32, _: u64) {
        unreachable!()
    }
}

/// Memory of words, which driver and device share. Narrow accesses are to the lower half of a word whose upper half is 0.
#[derive(Clone)]
pub(crate) struct Words(Arc<[LoomWord]>);

impl Dma for Words {
    type Word = LoomWord;
    fn len_bytes(&self) -> usize {
        self.0.len() * 8
    }
    fn device_address(&self) -> DeviceAddress {
        DeviceAddress(0)
    }
    fn words(&self) -> &[LoomWord] {
        &self.0
    }
    fn read8(&self, _: usize) -> u8 {
        unreachable!()
    }
    fn read16(&self, _: usize) -> u16 {
        unreachable!()
    }
    fn read32(&self, offset: usize) -> u32 {
        self.0[offset / 8].get() as u32
    }
    fn write8(&self, _: usize, _: u8) {
        unreachable!()
    }
    fn write16(&self, _: usize, _: u16) {
        unreachable!()
    }
    fn write32(&self, offset: usize, value: u32) {
        self.0[offset / 8].set(value.into());
    }
}

loom::thread_local! {
    /// The CPU that a thread stands for.
    pub(crate) static CPU: core::cell::Cell<u32> = core::cell::Cell::new(0);
}

/// The world.
#[derive(Clone, Copy)]
pub(crate) struct LoomHal;

impl Hal for LoomHal {
    type Word = LoomWord;
    type Regs = Doorbells;
    type Dma = Words;
    fn dma_alloc(self, len_bytes: usize, _: usize) -> Result<Words, DmaError> {
        Ok(Words((0..len_bytes / 8).map(|_| LoomWord::new(0)).collect()))
    }
    fn now_ns(self) -> u64 {
        0
    }
    fn cpu(self) -> CpuId {
        CpuId(CPU.with(core::cell::Cell::get))
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
    fn work(self, _: Work, _: u32) {}
}
