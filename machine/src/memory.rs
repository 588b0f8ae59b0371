//! Physical memory: one arena of words that CPUs and devices share, with a free list, and the times at which its
//! cache lines are busy with an atomic update.

use crate::time::Ps;
use core::fmt;
use hal::{DmaError, Word as _};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::word::Word;

/// Where the arena begins on the bus. Below it: nothing, so that small wild addresses are caught.
pub const MEMORY_BASE: u64 = 0x1_0000_0000;

/// An access by a device to where no memory is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BusError {
    /// The address.
    pub address: u64,
    /// The access width, or the length of a block, in bytes.
    pub bytes: u32,
}

impl fmt::Display for BusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no memory at {:#x} for {} bytes", self.address, self.bytes)
    }
}

impl std::error::Error for BusError {}

/// The words themselves and who owns which.
pub(crate) struct Arena {
    words: Box<[Word]>,
    /// Free ranges: first byte → length.
    free: Mutex<BTreeMap<usize, usize>>,
}

impl Arena {
    /// `bytes` of zeroed memory. The host commits a page when it is first touched.
    pub(crate) fn new(bytes: usize) -> Arc<Self> {
        let bytes = bytes.next_multiple_of(4096);
        let free = Mutex::new(BTreeMap::from([(0, bytes)]));
        Arc::new(Self { words: crate::word::zeroed(bytes / 8), free })
    }

    fn allocate(&self, len: usize, align: usize) -> Result<usize, DmaError> {
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

    fn release(&self, at: usize, len: usize) {
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

    /// The word at a bus address, which must be a multiple of 8.
    pub(crate) fn word(&self, address: u64, bytes: u32) -> Result<&Word, BusError> {
        let error = BusError { address, bytes };
        let offset = address.checked_sub(MEMORY_BASE).ok_or(error)?;
        self.words.get(usize::try_from(offset / 8).map_err(|_| error)?).ok_or(error)
    }

    /// The cache line of `word`, if it is part of this arena.
    pub(crate) fn line_of(&self, word: &Word) -> Option<usize> {
        let first = self.words.as_ptr() as usize;
        let offset = (core::ptr::from_ref(word) as usize).checked_sub(first)?;
        (offset < self.words.len() * 8).then_some(offset / 64)
    }
}

/// A driver's buffer in the arena.
pub struct Dma {
    arena: Arc<Arena>,
    offset: usize,
    len: usize,
}

impl Dma {
    pub(crate) fn new(arena: &Arc<Arena>, len: usize, align: usize) -> Result<Self, DmaError> {
        if len == 0 {
            return Err(DmaError::Empty);
        }
        if !align.is_power_of_two() {
            return Err(DmaError::Alignment(align));
        }
        let size = len.next_multiple_of(8);
        let offset = arena.allocate(size, align.max(8))?;
        let dma = Self { arena: arena.clone(), offset, len };
        for word in hal::Dma::words(&dma) {
            if word.get() != 0 {
                word.set_quietly(0);
            }
        }
        Ok(dma)
    }

    fn sized(&self, offset: usize, bytes: usize) -> (&Word, u32) {
        assert!(
            offset.is_multiple_of(bytes) && offset + bytes <= self.len,
            "access of {bytes} bytes at {offset:#x} of a DMA buffer of {:#x}",
            self.len
        );
        (&hal::Dma::words(self)[offset / 8], (offset % 8 * 8) as u32)
    }

    fn read(&self, offset: usize, bytes: usize) -> u64 {
        let (word, shift) = self.sized(offset, bytes);
        word.get() >> shift
    }

    /// The machine runs on one host thread, so reading and writing back the rest of the word is atomic.
    fn write(&self, offset: usize, bytes: usize, value: u64) {
        let (word, shift) = self.sized(offset, bytes);
        word.set(with_field(word.get(), shift, bytes as u32 * 8, value));
    }
}

/// `word` with `bits` bits at `shift` replaced.
pub(crate) fn with_field(word: u64, shift: u32, bits: u32, value: u64) -> u64 {
    let mask = (u64::MAX >> (64 - bits)) << shift;
    word & !mask | (value << shift) & mask
}

impl Drop for Dma {
    fn drop(&mut self) {
        self.arena.release(self.offset, self.len.next_multiple_of(8));
    }
}

impl hal::Dma for Dma {
    type Word = Word;
    fn len_bytes(&self) -> usize {
        self.len
    }
    fn device_address(&self) -> hal::DeviceAddress {
        hal::DeviceAddress(MEMORY_BASE + self.offset as u64)
    }
    fn words(&self) -> &[Word] {
        &self.arena.words[self.offset / 8..(self.offset + self.len).div_ceil(8)]
    }
    fn read8(&self, offset_bytes: usize) -> u8 {
        self.read(offset_bytes, 1) as u8
    }
    fn read16(&self, offset_bytes: usize) -> u16 {
        self.read(offset_bytes, 2) as u16
    }
    fn read32(&self, offset_bytes: usize) -> u32 {
        self.read(offset_bytes, 4) as u32
    }
    fn write8(&self, offset_bytes: usize, value: u8) {
        self.write(offset_bytes, 1, value.into());
    }
    fn write16(&self, offset_bytes: usize, value: u16) {
        self.write(offset_bytes, 2, value.into());
    }
    fn write32(&self, offset_bytes: usize, value: u32) {
        self.write(offset_bytes, 4, value.into());
    }
}

impl hal::DmaExchange128 for Dma {
    fn compare_exchange_128(&self, offset_bytes: usize, current: u128, new: u128) -> Result<u128, u128> {
        assert!(offset_bytes.is_multiple_of(16), "128-bit access at {offset_bytes:#x}");
        let words = &hal::Dma::words(self)[offset_bytes / 8..offset_bytes / 8 + 2];
        words[0].load();
        let seen = u128::from(words[0].get()) | u128::from(words[1].get()) << 64;
        if seen != current {
            return Err(seen);
        }
        words[0].set(new as u64);
        words[1].set((new >> 64) as u64);
        Ok(seen)
    }
}

/// When each cache line is next free for an atomic update.
///
/// Kept only for lines that were ever updated atomically by a device, a page of them at a time.
#[derive(Default)]
pub(crate) struct Lines {
    pages: BTreeMap<usize, Box<[Ps; 64]>>,
}

impl Lines {
    /// The time of `line`, if a device ever updated its page.
    pub(crate) fn busy_until(&mut self, line: usize) -> Option<&mut Ps> {
        Some(&mut self.pages.get_mut(&(line / 64))?[line % 64])
    }

    /// The same, and from now on kept.
    pub(crate) fn keep(&mut self, line: usize) -> &mut Ps {
        &mut self.pages.entry(line / 64).or_insert_with(|| Box::new([Ps(0); 64]))[line % 64]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hal::Dma as _;

    #[test]
    fn buffers_are_aligned_disjoint_and_come_back() {
        let arena = Arena::new(64 << 10);
        let first = Dma::new(&arena, 100, 64).expect("room");
        let second = Dma::new(&arena, 4096, 4096).expect("room");
        assert!(second.device_address().0.is_multiple_of(4096));
        assert!(second.device_address().0 >= first.device_address().0 + 100);
        assert_eq!(Dma::new(&arena, 64 << 10, 8).err(), Some(DmaError::Exhausted(64 << 10)));
        drop(first);
        drop(second);
        assert!(Dma::new(&arena, 64 << 10, 8).is_ok());
    }

    #[test]
    fn narrow_writes_leave_their_neighbours() {
        let arena = Arena::new(4096);
        let dma = Dma::new(&arena, 16, 8).expect("room");
        dma.words()[1].set_quietly(0x1122_3344_5566_7788);
        dma.write16(10, 0xabcd);
        assert_eq!(dma.words()[1].get(), 0x1122_3344_abcd_7788);
        assert_eq!((dma.read8(11), dma.read32(12)), (0xab, 0x1122_3344));
    }

    #[test]
    fn a_device_cannot_reach_outside() {
        let arena = Arena::new(4096);
        for address in [0, MEMORY_BASE - 8, MEMORY_BASE + 4096, u64::MAX - 7] {
            assert!(arena.word(address, 8).is_err(), "{address:#x}");
        }
        assert!(arena.word(MEMORY_BASE + 4088, 8).is_ok());
    }
}
