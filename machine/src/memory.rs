//! Physical memory: one arena of words that CPUs and devices share, with a free list. Also tracks when cache lines are
//! busy with atomic updates and who owns them, and the order in which register writes arrive.

mod arena;

use crate::time::Ps;
use arena::Arena;
use core::fmt;
use core::ops::Range;
use hal::{CpuId, DmaError, Word as _};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::event::ModelId;
use crate::posted_writes::PostedWrites;
use crate::stores::Stores;
use crate::word::Word;

/// Bus address where the arena begins. No memory lies below it, so small wild addresses are caught.
pub const MEMORY_BASE: u64 = 0x1_0000_0000;

/// A device access to an address without memory.
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

/// Backs addresses outside the arena, for a model that is lent ([`crate::lent`]).
pub trait Host {
    /// Reads `bytes` (4 or 8) of the guest's memory in one access, at an aligned address. None when no memory is
    /// there.
    fn read(&self, address: u64, bytes: u32) -> Option<u64>;

    /// Writes `bytes` (1, 2, 4 or 8) in one access, at an aligned address. Writes become visible in the order of the
    /// calls. False when no memory is there.
    fn write(&self, address: u64, bytes: u32, value: u64) -> bool;

    /// Makes every earlier write visible before any later read.
    fn order(&self) {
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    }

    /// An interrupt message of the device.
    fn message(&self, address: u64, data: u32);
}

/// A machine's memory, for its devices and CPUs.
pub(crate) struct Memory {
    arena: Arc<Arena>,
    host: OnceCell<Box<dyn Host>>,
    lines: RefCell<Lines>,
    posted_writes: PostedWrites,
    pub(crate) stores: Stores,
    /// No allocation succeeds: a fault of the harness.
    pub(crate) is_exhausted: Cell<bool>,
    /// Stores to words between these host addresses are told.
    watched: Cell<(usize, usize)>,
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.arena.spare();
    }
}

impl Memory {
    /// Creates `bytes` of zeroed memory, if the host has room.
    pub(crate) fn new(bytes: usize) -> Option<Self> {
        Some(Self {
            arena: Arena::new(bytes)?,
            host: OnceCell::new(),
            lines: RefCell::default(),
            posted_writes: PostedWrites::new(),
            stores: Stores::default(),
            is_exhausted: Cell::new(false),
            watched: Cell::new((0, 0)),
        })
    }

    /// Allocates a buffer for a driver.
    pub(crate) fn allocate(&self, len: usize, align: usize) -> Result<Dma, DmaError> {
        Dma::new(&self.arena, len, align)
    }

    /// Bus addresses of `buffer`, if it is of this memory.
    pub(crate) fn range_of(&self, buffer: &Dma) -> Option<Range<u64>> {
        let first = MEMORY_BASE + buffer.offset as u64;
        Arc::ptr_eq(&self.arena, &buffer.arena).then(|| first..first + buffer.len as u64)
    }

    /// The word at a bus address, for an access of `bytes`.
    #[inline]
    pub(crate) fn word(&self, address: u64, bytes: u32) -> Result<&Word, BusError> {
        if !address.is_multiple_of(bytes.into()) {
            return Err(BusError { address, bytes });
        }
        self.arena.word(address, bytes)
    }

    /// So many words from an aligned bus address on, to be read.
    #[inline]
    pub(crate) fn words_to_read(&self, address: u64, count: usize) -> Option<&[Word]> {
        if address.is_multiple_of(8) { self.arena.words_to_read(address, count) } else { None }
    }

    /// From now on `host` backs addresses beyond the arena, and receives messages.
    pub(crate) fn lend_to(&self, host: Box<dyn Host>) {
        assert!(self.host.set(host).is_ok(), "a model is lent once");
    }

    pub(crate) fn host(&self) -> Option<&dyn Host> {
        self.host.get().map(|host| &**host)
    }

    /// A read outside the arena.
    #[cold]
    pub(crate) fn host_read(&self, missed: BusError) -> Result<u64, BusError> {
        let host = self.host_for(missed)?;
        host.read(missed.address, missed.bytes).ok_or(missed)
    }

    /// A write outside the arena.
    #[cold]
    pub(crate) fn host_write(&self, missed: BusError, value: u64) -> Result<(), BusError> {
        let host = self.host_for(missed)?;
        if host.write(missed.address, missed.bytes, value) { Ok(()) } else { Err(missed) }
    }

    fn host_for(&self, missed: BusError) -> Result<&dyn Host, BusError> {
        let aligned = missed.address.is_multiple_of(missed.bytes.into());
        self.host().filter(|_| aligned).ok_or(missed)
    }

    /// True if `model` was the last to update the cache line of `address`: it need not take the line from anybody.
    pub(crate) fn is_line_of(&self, address: u64, model: ModelId) -> bool {
        let mut lines = self.lines.borrow_mut();
        lines.get(line_at(address)).is_some_and(|line| line.owner == Owner::Device(model))
    }

    /// `model` reserves the cache line of `address` for `cost`, not before `earliest`, and owns it then. Returns the
    /// time when the line is free again.
    pub(crate) fn reserve_line(&self, address: u64, model: ModelId, earliest: Ps, cost: Ps) -> Ps {
        let mut lines = self.lines.borrow_mut();
        let line = lines.keep(line_at(address));
        line.owner = Owner::Device(model);
        line.busy_until = line.busy_until.max(earliest) + cost;
        line.busy_until
    }

    /// From now on, plain stores to `bytes` from the bus address `address` on are told.
    ///
    /// # Errors
    /// No memory is there.
    pub(crate) fn watch(&self, address: u64, bytes: u64) -> Result<(), BusError> {
        let begin = self.word(address, 8)?.host_address();
        let end = self.word(address + bytes - 8, 8)?.host_address() + 8;
        self.watched.set((begin, end));
        Ok(())
    }

    /// The bus address of `word` if stores to it are told.
    #[inline]
    pub(crate) fn watched_address(&self, word: &Word) -> Option<u64> {
        let (begin, end) = self.watched.get();
        let host = word.host_address();
        (begin..end).contains(&host).then(|| self.arena.address_of(host))
    }

    /// The cache line of `word`; none if the word lies outside this memory.
    #[inline]
    pub(crate) fn line_of(&self, word: &Word) -> Option<usize> {
        self.arena.line_of(word)
    }

    /// CPU `cpu` updates `line`, starting at `now` or when the line is free. It owns the line then; `transfer` is what
    /// taking the line from another agent takes, and `held` how long the CPU holds it beyond that. Earlier requests come
    /// first; devices that ask while the CPU waits come later. Returns how long the CPU waits. A line that no device
    /// ever updated is free, and `held` is not called.
    #[inline]
    pub(crate) fn update_line(&self, line: usize, cpu: CpuId, now: Ps, transfer: Ps, held: impl FnOnce() -> Ps) -> Ps {
        let mut lines = self.lines.borrow_mut();
        let Some(line) = lines.get(line) else { return Ps(0) };
        let taken = line.take(Owner::Cpu(cpu), now, transfer);
        line.busy_until = taken + held();
        taken - now
    }

    /// A CPU reads `line` with order. A line that a device owns is fetched, and shared from then on. Returns how long the
    /// CPU waits.
    #[inline]
    pub(crate) fn read_line(&self, line: usize, now: Ps, transfer: Ps) -> Ps {
        let mut lines = self.lines.borrow_mut();
        match lines.get(line) {
            Some(line) if matches!(line.owner, Owner::Device(_)) => {
                line.busy_until = line.take(Owner::Shared, now, transfer);
                line.busy_until - now
            }
            _ => Ps(0),
        }
    }

    /// Arrival time of a register write made at `at`, in the order of its class.
    #[inline]
    pub(crate) fn write_arrival(&self, model: ModelId, order: u32, at: Ps) -> Ps {
        self.posted_writes.arrival(model, order, at)
    }
}

/// A driver's buffer in the arena.
pub struct Dma {
    arena: Arc<Arena>,
    offset: usize,
    len: usize,
    words: Range<usize>,
}

impl Dma {
    fn new(arena: &Arc<Arena>, len: usize, align: usize) -> Result<Self, DmaError> {
        if len == 0 {
            return Err(DmaError::Empty);
        }
        if !align.is_power_of_two() {
            return Err(DmaError::Alignment(align));
        }
        let size = len.next_multiple_of(8);
        let offset = arena.allocate(size, align.max(8))?;
        let words = offset / 8..(offset + len).div_ceil(8);
        let dma = Self { arena: arena.clone(), offset, len, words };
        // A look at what nobody has used would make the host commit it.
        let used = arena.use_up_to(offset + size).saturating_sub(offset).div_ceil(8);
        for word in hal::Dma::words(&dma).iter().take(used) {
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
        let bits = bytes as u32 * 8;
        word.store(with_field(word.get(), shift, bits, value), with_field(0, shift, bits, u64::MAX));
    }
}

/// `word` with `bits` bits at `shift` replaced.
pub(crate) fn with_field(word: u64, shift: u32, bits: u32, value: u64) -> u64 {
    let mask = (u64::MAX >> (64 - bits)) << shift;
    word & !mask | (value << shift) & mask
}

impl Dma {
    /// Its memory goes back to the free list.
    pub(crate) fn release(&self) {
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
        &self.arena.words[self.words.clone()]
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
        Word::await_stores();
        let seen = u128::from(words[0].get()) | u128::from(words[1].get()) << 64;
        if seen != current {
            return Err(seen);
        }
        words[0].store_now(new as u64);
        words[1].store_now((new >> 64) as u64);
        Ok(seen)
    }
}

/// The number of the cache line at a bus address.
fn line_at(address: u64) -> usize {
    (address.saturating_sub(MEMORY_BASE) / 64) as usize
}

/// The agent that can update a cache line without asking others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Owner {
    /// No device ever updated it: whoever has it is not kept.
    Unknown,
    /// Several may have it.
    Shared,
    Cpu(CpuId),
    Device(ModelId),
}

/// One cache line that devices update.
#[derive(Clone, Copy)]
struct Line {
    /// When it is next free for an atomic update.
    busy_until: Ps,
    owner: Owner,
}

impl Line {
    const UNTOUCHED: Self = Self { busy_until: Ps(0), owner: Owner::Unknown };

    /// Gives the line to `owner`. Returns the time when it has it: after earlier updates, and after `transfer` if
    /// another agent had it.
    fn take(&mut self, owner: Owner, now: Ps, transfer: Ps) -> Ps {
        let moves = self.owner != owner;
        self.owner = owner;
        let free = self.busy_until.max(now);
        if moves { free + transfer } else { free }
    }
}

/// Cache lines that a device has updated atomically, one page of lines at a time. Others are not kept: who owns them
/// costs nothing here.
#[derive(Default)]
struct Lines {
    pages: BTreeMap<usize, Box<[Line; 64]>>,
}

impl Lines {
    /// The line, if a device ever updated it.
    fn get(&mut self, line: usize) -> Option<&mut Line> {
        let line = &mut self.pages.get_mut(&(line / 64))?[line % 64];
        (line.owner != Owner::Unknown).then_some(line)
    }

    /// The line, which is kept from now on.
    fn keep(&mut self, line: usize) -> &mut Line {
        &mut self.pages.entry(line / 64).or_insert_with(|| Box::new([Line::UNTOUCHED; 64]))[line % 64]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hal::Dma as _;

    #[test]
    fn buffers_are_aligned_disjoint_and_come_back() {
        let arena = Arena::new(64 << 10).expect("room");
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
        let arena = Arena::new(4096).expect("room");
        let dma = Dma::new(&arena, 16, 8).expect("room");
        dma.words()[1].set_quietly(0x1122_3344_5566_7788);
        dma.write16(10, 0xabcd);
        assert_eq!(dma.words()[1].get(), 0x1122_3344_abcd_7788);
        assert_eq!((dma.read8(11), dma.read32(12)), (0xab, 0x1122_3344));
    }

    #[test]
    fn a_device_cannot_reach_outside() {
        let arena = Arena::new(4096).expect("room");
        for address in [0, MEMORY_BASE - 8, MEMORY_BASE + 4096, u64::MAX - 7] {
            assert!(arena.word(address, 8).is_err(), "{address:#x}");
        }
        assert!(arena.word(MEMORY_BASE + 4088, 8).is_ok());
    }

    #[test]
    fn a_buffer_is_zero_whatever_used_its_memory_before() {
        let memory = Memory::new(4096).expect("room");
        let last = MEMORY_BASE + 4088;
        memory.word(last, 8).expect("a word").set_quietly(7);
        let buffer = memory.allocate(4096, 8).expect("all of it");
        assert_eq!(buffer.read(4088, 8), 0, "a device had written beyond all buffers");
        buffer.words()[1].set_quietly(8);
        drop((memory, buffer));
        let next = Memory::new(4096).expect("room");
        assert!((0..512).all(|word| next.word(MEMORY_BASE + 8 * word, 8).expect("a word").value() == 0));
    }

    #[test]
    fn memory_whose_buffer_is_still_held_is_nobody_elses() {
        let memory = Memory::new(4096).expect("room");
        let held = memory.allocate(8, 8).expect("a word");
        held.words()[0].set_quietly(9);
        drop(memory);
        let next = Memory::new(4096).expect("room");
        next.word(MEMORY_BASE, 8).expect("a word").set_quietly(1);
        assert_eq!(held.read(0, 8), 9);
    }
}
