//! The words of a machine's memory, and which of them are free.

use super::{BusError, MEMORY_BASE};
use crate::word::{Word, Zeroed};
use hal::DmaError;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

thread_local! {
    /// The memory of this host thread's last machine. The host takes longer to commit pages than to clear those in use.
    static SPARE: RefCell<Option<Arc<Arena>>> = const { RefCell::new(None) };
}

/// The words and the list of free ranges.
pub(super) struct Arena {
    pub(super) words: Zeroed,
    /// Free ranges: first byte → length.
    free: Mutex<BTreeMap<usize, usize>>,
    /// From this byte on, nobody has used anything: all of it is zero, and the host has not committed it yet.
    unused: AtomicUsize,
}

impl Arena {
    /// Creates `bytes` of zeroed memory, if the host has room.
    pub(super) fn new(bytes: usize) -> Option<Arc<Self>> {
        let bytes = bytes.next_multiple_of(4096);
        let spare = SPARE.take().filter(|spare| spare.words.len() * 8 == bytes);
        if let Some(mut spare) = spare
            && let Some(this) = Arc::get_mut(&mut spare)
        {
            this.clear(bytes);
            return Some(spare);
        }
        let free = Mutex::new(BTreeMap::from([(0, bytes)]));
        Some(Arc::new(Self { words: Zeroed::new(bytes / 8)?, free, unused: AtomicUsize::new(0) }))
    }

    /// Its machine is gone: the next one of this host thread may have it, unless somebody still holds a buffer then.
    pub(super) fn spare(self: &Arc<Self>) {
        // The host thread itself may be ending.
        _ = SPARE.try_with(|spare| spare.replace(Some(self.clone())));
    }

    fn clear(&mut self, bytes: usize) {
        self.words.clear(*self.unused.get_mut());
        self.free = Mutex::new(BTreeMap::from([(0, bytes)]));
        self.unused = AtomicUsize::new(0);
    }

    pub(super) fn allocate(&self, len: usize, align: usize) -> Result<usize, DmaError> {
        let mut free = self.free.lock().expect("no panic while the free list is held");
        let found = free.iter().find_map(|(&start, &have)| {
            let at = start.next_multiple_of(align);
            (at + len <= start + have).then_some((start, have, at))
        });
        let (start, have, at) = found.ok_or(DmaError::Exhausted(len))?;
        free.remove(&start);
        if at > start {
            free.insert(start, at - start);
        }
        if at + len < start + have {
            free.insert(at + len, start + have - at - len);
        }
        Ok(at)
    }

    pub(super) fn release(&self, at: usize, len: usize) {
        let mut free = self.free.lock().expect("no panic while the free list is held");
        let (mut start, mut bytes) = (at, len);
        if let Some(after) = free.remove(&(at + len)) {
            bytes += after;
        }
        if let Some((&before, &have)) = free.range(..at).next_back()
            && before + have == at
        {
            free.remove(&before);
            (start, bytes) = (before, bytes + have);
        }
        free.insert(start, bytes);
    }

    /// The word at a bus address.
    #[inline]
    pub(super) fn word(&self, address: u64, bytes: u32) -> Result<&Word, BusError> {
        let error = BusError { address, bytes };
        let offset = address.checked_sub(MEMORY_BASE).ok_or(error)?;
        let index = usize::try_from(offset / 8).map_err(|_| error)?;
        let word = self.words.get(index).ok_or(error)?;
        self.use_up_to(8 * (index + 1));
        Ok(word)
    }

    /// So many words from a bus address on, to be read: what nobody has used is zero, and stays so.
    #[inline]
    pub(super) fn words_to_read(&self, address: u64, count: usize) -> Option<&[Word]> {
        let first = usize::try_from(address.checked_sub(MEMORY_BASE)? / 8).ok()?;
        self.words.get(first..first.checked_add(count)?)
    }

    /// Somebody uses memory that ends here. Returns up to where it was used before.
    #[inline]
    pub(super) fn use_up_to(&self, end: usize) -> usize {
        let before = self.unused.load(Relaxed);
        if end > before {
            self.unused.store(end, Relaxed);
        }
        before
    }

    /// The cache line of `word`, if it is part of this arena.
    #[inline]
    pub(super) fn address_of(&self, host: usize) -> u64 {
        MEMORY_BASE + (host - self.words.as_ptr() as usize) as u64
    }

    pub(super) fn line_of(&self, word: &Word) -> Option<usize> {
        let first = self.words.as_ptr() as usize;
        let offset = (core::ptr::from_ref(word) as usize).checked_sub(first)?;
        (offset < self.words.len() * 8).then_some(offset / 64)
    }
}
