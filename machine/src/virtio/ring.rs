//! A virtqueue from the device's side: split (VIRTIO 2.7, in this file) or packed (VIRTIO 2.8).
//!
//! The rings are the driver's memory, and the driver may be wrong or hostile: every index is bounded, every buffer must
//! lie in memory, and a chain ends after as many descriptors as the queue has entries (VIRTIO 2.7.5.3.1: a driver must
//! not make a longer one), however its tables point at each other.

use super::memory::{read_bytes, read16, validate, write_bytes, write16};
use crate::memory::BusError;
use crate::world::World;
use core::fmt;
use spec::virtio::ring::{AVAILABLE_ALIGN, DESCRIPTORS_ALIGN, USED_ALIGN};
use spec::virtio::ring::{DESCRIPTOR_BYTES, DescriptorTail, ENTRIES_MAX, available, used};

/// A driver's error that makes a queue unusable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueError {
    /// A size that is zero, no power of two, or beyond what the device offers.
    Size(u32),
    /// An area at an address that is not aligned as it must be.
    Alignment(u64),
    /// Memory that is not there.
    Memory(BusError),
    /// The available index is further ahead than the queue has entries.
    AvailableJump {
        /// The available index in memory.
        index: u16,
        /// The index up to which the device has taken entries.
        taken: u16,
    },
    /// A descriptor index beyond its table.
    Descriptor {
        /// The index.
        index: u16,
        /// Entries of the table.
        entries: u32,
    },
    /// More descriptors than the queue has entries: the chain loops, or is too long.
    Endless,
    /// A readable buffer behind a writable one.
    Order,
    /// A table of descriptors that the driver has not negotiated, inside another one, in the middle of a chain, or of a
    /// length that is no multiple of 16.
    Indirect,
    /// A packed list whose first descriptor is available and this one is not.
    Unavailable(u16),
    /// A packed buffer with the id of one that the device has.
    IdInUse(u16),
    /// An event suppression structure with reserved flags, or an offset beyond the ring.
    Event(u32),
}

impl fmt::Display for QueueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size(size) => {
                write!(
                    f,
                    "a queue of {size} entries; 1 up to the device's maximum is valid, of a split queue powers of two"
                )
            }
            Self::Alignment(address) => write!(f, "queue area at {address:#x} is not aligned"),
            Self::Memory(error) => write!(f, "{error}"),
            Self::AvailableJump { index, taken } => {
                write!(f, "available index {index:#x} is more than the queue's entries beyond {taken:#x}")
            }
            Self::Descriptor { index, entries } => write!(f, "descriptor {index} of a table of {entries}"),
            Self::Endless => write!(f, "a chain of more descriptors than the queue has entries"),
            Self::Order => write!(f, "a device-readable buffer behind a device-writable one"),
            Self::Indirect => {
                write!(f, "an indirect table that is not negotiated, nested, chained on or of odd length")
            }
            Self::Unavailable(slot) => write!(f, "descriptor {slot} of an available list is not available"),
            Self::IdInUse(id) => write!(f, "buffer id {id}, which the device has not given back"),
            Self::Event(word) => write!(f, "event suppression {word:#x}; flags 0 to 2 within the ring are valid"),
        }
    }
}

impl std::error::Error for QueueError {}

impl From<BusError> for QueueError {
    fn from(error: BusError) -> Self {
        Self::Memory(error)
    }
}

/// The addresses of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Layout {
    /// Entries.
    pub entries: u16,
    /// Descriptor table.
    pub descriptors: u64,
    /// Available ring.
    pub available: u64,
    /// Used ring.
    pub used: u64,
}

impl Layout {
    /// Checks size, alignment (VIRTIO 2.7) and that all of it is memory.
    fn validate(&self, world: &World<'_>) -> Result<(), QueueError> {
        if !self.entries.is_power_of_two() || self.entries > ENTRIES_MAX {
            return Err(QueueError::Size(self.entries.into()));
        }
        let entries = usize::from(self.entries);
        let areas = [
            (self.descriptors, DESCRIPTORS_ALIGN, entries * DESCRIPTOR_BYTES),
            (self.available, AVAILABLE_ALIGN, available::bytes(self.entries)),
            (self.used, USED_ALIGN, used::bytes(self.entries)),
        ];
        check_areas(world, &areas)
    }
}

/// Checks address, alignment and length of the areas of a queue.
pub(super) fn check_areas(world: &World<'_>, areas: &[(u64, usize, usize)]) -> Result<(), QueueError> {
    for &(address, align, bytes) in areas {
        if !address.is_multiple_of(align as u64) {
            return Err(QueueError::Alignment(address));
        }
        validate(world, address, bytes as u32)?;
    }
    Ok(())
}

/// Which ring features were negotiated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RingFeatures {
    /// VIRTIO_F_EVENT_IDX.
    pub event_index: bool,
    /// VIRTIO_F_INDIRECT_DESC.
    pub indirect: bool,
    /// VIRTIO_F_RING_PACKED.
    pub packed: bool,
}

/// A stretch of memory that a descriptor names. It was all there when the chain was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Buffer {
    /// Its first byte.
    pub address: u64,
    /// Its length.
    pub len_bytes: u32,
}

/// The chain that the driver made available with one entry.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Chain {
    /// Index of its first descriptor, or its id in a packed queue, by which the driver knows it.
    pub head: u16,
    /// The parts that the device reads.
    pub readable: Vec<Buffer>,
    /// The parts that the device writes.
    pub writable: Vec<Buffer>,
}

fn total(buffers: &[Buffer]) -> u64 {
    buffers.iter().map(|buffer| u64::from(buffer.len_bytes)).sum()
}

/// The parts of `buffers` from `skip` bytes on, at most `len` bytes in all.
fn parts(buffers: &[Buffer], mut skip: u64, mut len: u64) -> impl Iterator<Item = (u64, usize)> {
    buffers.iter().filter_map(move |buffer| {
        let skipped = skip.min(buffer.len_bytes.into());
        let taken = len.min(u64::from(buffer.len_bytes) - skipped);
        (skip, len) = (skip - skipped, len - taken);
        (taken > 0).then_some((buffer.address + skipped, taken as usize))
    })
}

impl Chain {
    /// Adds the buffer of a descriptor.
    pub(super) fn push(
        &mut self,
        world: &World<'_>,
        address: u64,
        len_bytes: u32,
        device_writes: bool,
    ) -> Result<(), QueueError> {
        validate(world, address, len_bytes)?;
        let buffer = Buffer { address, len_bytes };
        if device_writes {
            self.writable.push(buffer);
        } else if self.writable.is_empty() {
            self.readable.push(buffer);
        } else {
            return Err(QueueError::Order);
        }
        Ok(())
    }

    /// Bytes that the device may read.
    pub fn readable_bytes(&self) -> u64 {
        total(&self.readable)
    }

    /// Bytes that the device may write.
    pub fn writable_bytes(&self) -> u64 {
        total(&self.writable)
    }

    /// Reads from `offset` of the readable bytes on; returns how many there were.
    ///
    /// # Errors
    /// No memory there.
    pub fn read(&self, world: &World<'_>, offset: u64, bytes: &mut [u8]) -> Result<usize, BusError> {
        let mut done = 0;
        for (address, len) in parts(&self.readable, offset, bytes.len() as u64) {
            read_bytes(world, address, &mut bytes[done..done + len])?;
            done += len;
        }
        Ok(done)
    }

    /// Writes from `offset` of the writable bytes on; returns how many found room.
    ///
    /// # Errors
    /// No memory there.
    pub fn write(&self, world: &mut World<'_>, offset: u64, bytes: &[u8]) -> Result<usize, BusError> {
        let mut done = 0;
        for (address, len) in parts(&self.writable, offset, bytes.len() as u64) {
            write_bytes(world, address, &bytes[done..done + len])?;
            done += len;
        }
        Ok(done)
    }
}

/// One split queue, ready.
pub(super) struct SplitRing {
    layout: Layout,
    features: RingFeatures,
    /// Available entries taken.
    taken: u16,
    /// Used entries written, published or not.
    filled: u16,
    /// Used index as the driver sees it.
    published: u16,
    /// The published index at the last notification that was decided on.
    notified: Option<u16>,
}

impl SplitRing {
    /// A queue that starts at index 0.
    ///
    /// # Errors
    /// [`QueueError`] for a bad size or alignment, or an area outside memory.
    pub(super) fn new(world: &World<'_>, layout: Layout, features: RingFeatures) -> Result<Self, QueueError> {
        layout.validate(world)?;
        Ok(Self { layout, features, taken: 0, filled: 0, published: 0, notified: None })
    }

    pub(super) fn has_available(&self, world: &World<'_>) -> Result<bool, QueueError> {
        let index = read16(world, self.layout.available + available::INDEX as u64)?;
        match index.wrapping_sub(self.taken) {
            waiting if waiting > self.layout.entries => Err(QueueError::AvailableJump { index, taken: self.taken }),
            waiting => Ok(waiting > 0),
        }
    }

    pub(super) fn take(&mut self, world: &World<'_>, chain: &mut Chain) -> Result<bool, QueueError> {
        if !self.has_available(world)? {
            return Ok(false);
        }
        let slot = self.taken % self.layout.entries;
        chain.head = read16(world, self.layout.available + available::entry(slot) as u64)?;
        chain.readable.clear();
        chain.writable.clear();
        self.walk(world, chain)?;
        self.taken = self.taken.wrapping_add(1);
        Ok(true)
    }

    fn walk(&self, world: &World<'_>, chain: &mut Chain) -> Result<(), QueueError> {
        let (mut table, mut entries) = (self.layout.descriptors, u32::from(self.layout.entries));
        let (mut index, mut inside, mut seen) = (chain.head, false, 0);
        loop {
            if u32::from(index) >= entries {
                return Err(QueueError::Descriptor { index, entries });
            }
            if seen == self.layout.entries {
                return Err(QueueError::Endless);
            }
            let at = table + u64::from(index) * DESCRIPTOR_BYTES as u64;
            let mut bytes = [0; DESCRIPTOR_BYTES];
            read_bytes(world, at, &mut bytes)?;
            let (address, tail) = bytes.split_at(8);
            let address = u64::from_le_bytes(address.try_into().expect("8 bytes"));
            let tail = DescriptorTail::from_bits(u64::from_le_bytes(tail.try_into().expect("8 bytes")));
            if tail.indirect() {
                let odd = tail.len_bytes() == 0 || !tail.len_bytes().is_multiple_of(DESCRIPTOR_BYTES as u32);
                if !self.features.indirect || inside || tail.has_next() || odd {
                    return Err(QueueError::Indirect);
                }
                validate(world, address, tail.len_bytes())?;
                (table, entries) = (address, tail.len_bytes() / DESCRIPTOR_BYTES as u32);
                (index, inside) = (0, true);
                continue;
            }
            seen += 1;
            chain.push(world, address, tail.len_bytes(), tail.device_writes())?;
            if !tail.has_next() {
                return Ok(());
            }
            index = tail.next();
        }
    }

    pub(super) fn fill(&mut self, world: &mut World<'_>, head: u16, written_bytes: u32) -> Result<(), QueueError> {
        let slot = self.filled % self.layout.entries;
        let entry = u64::from(written_bytes) << 32 | u64::from(head);
        write_bytes(world, self.layout.used + used::id(slot) as u64, &entry.to_le_bytes())?;
        self.filled = self.filled.wrapping_add(1);
        Ok(())
    }

    pub(super) fn publish(&mut self, world: &mut World<'_>) -> Result<u16, QueueError> {
        let fresh = self.filled.wrapping_sub(self.published);
        if fresh > 0 {
            write16(world, self.layout.used + used::INDEX as u64, self.filled)?;
            self.published = self.filled;
        }
        Ok(fresh)
    }

    pub(super) fn wants_notification(&mut self, world: &World<'_>) -> Result<bool, QueueError> {
        let (new, old) = (self.published, self.notified.replace(self.published));
        // The driver writes its wish and then reads the used index; the device does it in the other order. Each must
        // write before it reads, or each could miss the other.
        world.order();
        if !self.features.event_index {
            let flags = read16(world, self.layout.available + available::FLAGS as u64)?;
            return Ok(flags & available::NO_INTERRUPT == 0);
        }
        let event = read16(world, self.layout.available + available::used_event(self.layout.entries) as u64)?;
        // Before the first notification, the device does not know what the driver has seen.
        Ok(old.is_none_or(|old| new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)))
    }

    pub(super) fn want_kicks(&mut self, world: &mut World<'_>, wanted: bool) -> Result<bool, QueueError> {
        let base = self.layout.used;
        if !self.features.event_index {
            write16(world, base + used::FLAGS as u64, if wanted { 0 } else { used::NO_NOTIFY })?;
        } else if wanted {
            // Not wanted: the index that was named last is soon behind.
            write16(world, base + used::avail_event(self.layout.entries) as u64, self.taken)?;
        }
        // As in `wants_notification`.
        world.order();
        if wanted { self.has_available(world) } else { Ok(false) }
    }

    pub(super) fn jump(&mut self, world: &mut World<'_>, by: u16) -> Result<(), QueueError> {
        self.filled = self.filled.wrapping_add(by);
        self.publish(world).map(drop)
    }
}
