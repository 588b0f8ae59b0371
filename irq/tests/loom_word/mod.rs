//! A word that the model checker watches.

use hal::Word;
use loom::sync::atomic::{AtomicU64, Ordering};

/// Uses the orderings that [`Word`] promises.
pub(crate) struct LoomWord(AtomicU64);

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
        self.0.swap(value, Ordering::AcqRel)
    }
    fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64> {
        self.0.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)
    }
    fn fetch_or(&self, mask: u64) -> u64 {
        self.0.fetch_or(mask, Ordering::AcqRel)
    }
    fn fetch_and(&self, mask: u64) -> u64 {
        self.0.fetch_and(mask, Ordering::AcqRel)
    }
    fn fetch_add(&self, value: u64) -> u64 {
        self.0.fetch_add(value, Ordering::AcqRel)
    }
}
