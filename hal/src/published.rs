//! A value that interrupts read without a lock. It is readable even from an NMI that interrupts a lock's holder.

use crate::{Hal, Word};
use core::cell::UnsafeCell;

/// There is no value to read. The bits below count the readers.
const CLOSED: u64 = 1 << 63;
/// A writer is replacing the value.
const CLAIMED: u64 = 1 << 62;

/// A value that changes seldom and that any number of CPUs may read at once, even in a non-maskable interrupt.
pub struct Published<H: Hal, T> {
    hal: H,
    word: H::Word,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: readers share the value. It is changed only while the word admits no reader and counts none.
#[allow(unsafe_code)]
unsafe impl<H: Hal, T: Send + Sync> Sync for Published<H, T> {}
// SAFETY: it owns its value.
#[allow(unsafe_code)]
unsafe impl<H: Hal, T: Send> Send for Published<H, T> {}

impl<H: Hal, T> Published<H, T> {
    /// A place without a value.
    pub fn new(hal: H) -> Self {
        Self { hal, word: H::Word::new(CLOSED), value: UnsafeCell::new(None) }
    }

    /// Calls `f` with the value and returns the result. Returns none when there is no value or when it is being
    /// replaced. Takes no lock. Without a value it costs one load of a word.
    #[inline]
    pub fn read<R>(&self, f: impl FnOnce(&T) -> R) -> Option<R> {
        if self.word.get() & CLOSED != 0 {
            return None;
        }
        let reader = Reader::enter(self)?;
        reader.value().map(f)
    }

    /// Replaces the value by `value`, and returns the former value once nobody reads it any more. Readers that arrive
    /// meanwhile find no value. A reader must not call this: it would wait for itself.
    pub fn replace(&self, value: Option<T>) -> Option<T> {
        while self.word.fetch_or(CLOSED | CLAIMED) & CLAIMED != 0 {
            self.hal.relax_on(&self.word, self.word.get() | CLAIMED, u64::MAX);
        }
        loop {
            match self.word.load() {
                word if word == CLOSED | CLAIMED => break,
                word => self.hal.relax_on(&self.word, word, u64::MAX),
            }
        }
        let open = if value.is_some() { 0 } else { CLOSED };
        // SAFETY: only this caller has the claim, no reader is left, and none enters before the word is open again.
        #[allow(unsafe_code)]
        let former = core::mem::replace(unsafe { &mut *self.value.get() }, value);
        // Rejected readers may still be counted at this moment, so only the two flags change.
        self.word.fetch_and(!(CLOSED | CLAIMED) | open);
        former
    }
}

/// One reader, counted.
struct Reader<'a, H: Hal, T>(&'a Published<H, T>);

impl<'a, H: Hal, T> Reader<'a, H, T> {
    fn enter(published: &'a Published<H, T>) -> Option<Self> {
        let entered = published.word.fetch_add(1) & CLOSED == 0;
        let reader = Self(published);
        entered.then_some(reader)
    }

    fn value(&self) -> Option<&T> {
        // SAFETY: this reader was counted while the value was open, so nobody changes it before it has left.
        #[allow(unsafe_code)]
        unsafe { &*self.0.value.get() }.as_ref()
    }
}

impl<H: Hal, T> Drop for Reader<'_, H, T> {
    fn drop(&mut self) {
        self.0.word.fetch_add(u64::MAX);
    }
}

#[cfg(all(test, feature = "host"))]
mod tests {
    use super::*;
    use crate::host::HostHal;
    use crate::{Affinity, CpuId, ThreadSpec, Threads};
    use alloc::boxed::Box;
    use alloc::sync::Arc;
    use core::sync::atomic::{AtomicBool, Ordering::SeqCst};

    #[test]
    fn what_is_published_is_read_until_it_is_withdrawn() {
        let published = Published::new(HostHal::manual(1));
        assert_eq!(published.read(|&value: &u32| value), None);
        assert_eq!(published.replace(Some(7)), None);
        assert_eq!(published.read(|&value| published.read(|&inner| inner + value)), Some(Some(14)), "readers nest");
        assert_eq!(published.replace(Some(8)), Some(7));
        assert_eq!(published.replace(None), Some(8));
        assert_eq!(published.read(|&value| value), None);
    }

    /// A value records whether it is still in place. The replacer marks the value once it has it back.
    #[test]
    fn nobody_reads_what_has_been_replaced() {
        let hal = HostHal::monotonic(3);
        let published = Arc::new(Published::new(hal));
        let done = Arc::new(AtomicBool::new(false));
        for cpu in 1..3 {
            let (published, done) = (published.clone(), done.clone());
            let read = move || {
                while !done.load(SeqCst) {
                    published.read(|live: &Arc<AtomicBool>| {
                        for _ in 0..20 {
                            assert!(live.load(SeqCst), "read after it was replaced");
                        }
                    });
                }
            };
            let spec = ThreadSpec { name: "reader", affinity: Affinity::Cpu(CpuId(cpu)), urgent: false };
            hal.spawn(spec, Box::new(read)).unwrap();
        }
        for _ in 0..if cfg!(miri) { 50 } else { 5_000 } {
            let former = published.replace(Some(Arc::new(AtomicBool::new(true))));
            if let Some(former) = former {
                former.store(false, SeqCst);
            }
        }
        done.store(true, SeqCst);
        hal.join_all();
    }
}
