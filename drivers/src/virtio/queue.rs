//! A virtqueue, the driver's side: split (VIRTIO 2.7, in this file) or packed (VIRTIO 2.8).
//!
//! Everything that decides about memory is kept privately: descriptors' links, lengths and what is in flight are never read
//! back from the rings, so that a device that writes there can break its queue but nothing else.

mod either;
mod packed;

pub use either::Queue;

use super::transport::QueueMemory;
use super::{QueueFault, Refusal, VirtioError};
use alloc::boxed::Box;
use hal::{DeviceAddress, Dma, Hal, Word};
use spec::virtio::ring::{self, DESCRIPTOR_BYTES, DescriptorTail, available, used};

/// Longest buffer, in parts.
pub const PARTS_MAX: usize = 16;
const DESCRIPTOR_WORDS: usize = DESCRIPTOR_BYTES / 8;
/// No descriptor.
const END: u16 = u16::MAX;

/// One part of a buffer, contiguous for the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// Where.
    pub address: DeviceAddress,
    /// How long, in bytes.
    pub len_bytes: u32,
    /// The device writes it; otherwise it reads.
    pub device_writes: bool,
}

impl Part {
    /// A part that the device reads.
    pub const fn read(address: DeviceAddress, len_bytes: u32) -> Self {
        Self { address, len_bytes, device_writes: false }
    }

    /// A part that the device writes.
    pub const fn write(address: DeviceAddress, len_bytes: u32) -> Self {
        Self { address, len_bytes, device_writes: true }
    }
}

/// A buffer that the device has used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Used {
    /// The token that it was added with.
    pub tag: u64,
    /// Bytes that the device says it wrote; never more than there was room for.
    pub written_bytes: u32,
}

/// How a queue is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueConfig {
    /// Its number.
    pub number: u16,
    /// Entries, a power of two.
    pub entries: u16,
    /// VIRTIO_F_EVENT_IDX was negotiated.
    pub event_index: bool,
    /// VIRTIO_F_INDIRECT_DESC was negotiated: buffers of several parts take one descriptor.
    pub indirect: bool,
    /// VIRTIO_F_RING_PACKED was negotiated.
    pub packed: bool,
}

/// The buffer in flight that begins at a descriptor, if any; of a packed queue, the one with an id.
#[derive(Clone, Copy, Default)]
struct Head {
    in_flight: bool,
    tag: u64,
    room_bytes: u32,
    last: u16,
    descriptors: u16,
}

/// Counters of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueCounters {
    /// Buffers made available.
    pub added: u64,
    /// Buffers that came back.
    pub used: u64,
    /// Times when buffers were made available and the device wanted to be notified.
    pub notifications: u64,
    /// Times when it did not.
    pub suppressed: u64,
    /// Buffers that found the queue full.
    pub full: u64,
}

/// One split queue. It belongs to one agent at a time.
struct SplitQueue<H: Hal> {
    config: QueueConfig,
    descriptors: H::Dma,
    available: H::Dma,
    used: H::Dma,
    /// A table of [`PARTS_MAX`] descriptors for each entry.
    tables: Option<H::Dma>,
    heads: Box<[Head]>,
    /// The private copy of the links, of free descriptors and of chains.
    next: Box<[u16]>,
    free: u16,
    free_count: u16,
    in_flight: u16,
    /// The position of the next available entry.
    available_index: u16,
    /// The available index that the device can see.
    published: u16,
    /// Used entries taken.
    taken: u16,
    /// The used index at the last look.
    seen: u16,
    stopped: bool,
    /// The driver has taken buffers back, so the device's used entries for them no longer count.
    reclaimed: bool,
    fault: Option<QueueFault>,
    counters: QueueCounters,
}

impl<H: Hal> SplitQueue<H> {
    fn new(hal: H, config: QueueConfig) -> Result<Self, VirtioError> {
        let entries = config.entries;
        let count = usize::from(entries);
        let table = |_| hal.dma_alloc(count * PARTS_MAX * DESCRIPTOR_BYTES, DESCRIPTOR_BYTES);
        Ok(Self {
            descriptors: hal.dma_alloc(count * DESCRIPTOR_BYTES, ring::DESCRIPTORS_ALIGN)?,
            // A word of ours may be wider than the ring's alignment demands.
            available: hal.dma_alloc(available::bytes(entries), 8.max(ring::AVAILABLE_ALIGN))?,
            used: hal.dma_alloc(used::bytes(entries), 8.max(ring::USED_ALIGN))?,
            tables: config.indirect.then_some(()).map(table).transpose()?,
            heads: (0..entries).map(|_| Head::default()).collect(),
            next: (1..entries).chain([END]).collect(),
            free: 0,
            free_count: entries,
            in_flight: 0,
            available_index: 0,
            published: 0,
            taken: 0,
            seen: 0,
            stopped: false,
            reclaimed: false,
            fault: None,
            counters: QueueCounters::default(),
            config,
        })
    }

    fn config(&self) -> &QueueConfig {
        &self.config
    }

    fn memory(&self) -> QueueMemory {
        QueueMemory {
            entries: self.config.entries,
            descriptors: self.descriptors.device_address(),
            available: self.available.device_address(),
            used: self.used.device_address(),
        }
    }

    fn in_flight(&self) -> u16 {
        self.in_flight
    }

    fn free_descriptors(&self) -> u16 {
        self.free_count
    }

    fn fault(&self) -> Option<QueueFault> {
        self.fault
    }

    fn counters(&self) -> QueueCounters {
        self.counters
    }

    fn stop(&mut self) {
        self.stopped = true;
    }

    fn add(&mut self, tag: u64, parts: &[Part]) -> Result<(), Refusal> {
        if self.stopped {
            return Err(Refusal::Stopped);
        }
        validate(parts)?;
        let indirect = parts.len() > 1 && self.tables.is_some();
        let descriptors = if indirect { 1 } else { parts.len() as u16 };
        // VIRTIO 2.7.5.3.1: no buffer has more parts than the queue has entries, not even in a table.
        if parts.len() > self.config.entries.into() {
            return Err(Refusal::Parts(parts.len(), self.config.entries.into()));
        }
        if descriptors > self.free_count {
            self.counters.full += 1;
            return Err(Refusal::Full);
        }
        let head = self.free;
        let last = if indirect { self.write_table(head, parts) } else { self.write_chain(parts) };
        self.free = self.next[usize::from(last)];
        self.free_count -= descriptors;
        self.in_flight += 1;
        let room_bytes = parts.iter().filter(|part| part.device_writes).map(|part| part.len_bytes);
        let room_bytes = room_bytes.fold(0, u32::saturating_add);
        self.heads[usize::from(head)] = Head { in_flight: true, tag, room_bytes, last, descriptors };
        let slot = self.available_index & (self.config.entries - 1);
        self.available.write16(available::entry(slot), head);
        self.available_index = self.available_index.wrapping_add(1);
        self.counters.added += 1;
        Ok(())
    }

    /// Writes a chain of free descriptors, in the order in which they are free; returns the last.
    fn write_chain(&self, parts: &[Part]) -> u16 {
        let mut index = self.free;
        for (place, part) in parts.iter().enumerate() {
            let next = self.next[usize::from(index)];
            let more = place + 1 < parts.len();
            write(&self.descriptors, index.into(), part, more.then_some(next));
            if !more {
                break;
            }
            index = next;
        }
        index
    }

    /// Writes the table of `head` and the one descriptor that points at it.
    fn write_table(&self, head: u16, parts: &[Part]) -> u16 {
        let Some(tables) = &self.tables else { return head };
        let first = usize::from(head) * PARTS_MAX;
        for (place, part) in parts.iter().enumerate() {
            let next = (place + 1 < parts.len()).then_some(place as u16 + 1);
            write(tables, first + place, part, next);
        }
        let address = tables.device_address().offset((first * DESCRIPTOR_BYTES) as u64);
        let tail = DescriptorTail::new().with_indirect(true).with_len_bytes((parts.len() * DESCRIPTOR_BYTES) as u32);
        let words = &self.descriptors.words()[usize::from(head) * DESCRIPTOR_WORDS..];
        words[0].set(address.0);
        words[1].set(tail.into_bits());
        head
    }

    /// The index is stored by a read-modify-write, a full barrier: what the device wants is read after the
    /// index is visible, else it could go to sleep unseen.
    fn publish(&mut self) -> bool {
        let (old, new) = (self.published, self.available_index);
        if old == new || self.stopped {
            return false;
        }
        self.published = new;
        let first = &self.available.words()[0];
        // Flags, index and the first two entries, which only the driver writes.
        first.swap(first.get() & !0xffff_0000 | u64::from(new) << 16);
        let wanted = if self.config.event_index {
            passes(self.used.read16(used::avail_event(self.config.entries)), old, new)
        } else {
            self.used.read16(used::FLAGS) & used::NO_NOTIFY == 0
        };
        self.counters.notifications += u64::from(wanted);
        self.counters.suppressed += u64::from(!wanted);
        wanted
    }

    fn take(&mut self) -> Result<Option<Used>, QueueFault> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        if self.reclaimed {
            return Ok(None);
        }
        if self.seen == self.taken && !self.look()? {
            return Ok(None);
        }
        let slot = self.taken & (self.config.entries - 1);
        let (id, written_bytes) = (self.used.read32(used::id(slot)), self.used.read32(used::length(slot)));
        let Some(head) = u16::try_from(id).ok().filter(|&id| id < self.config.entries) else {
            return Err(self.break_with(QueueFault::Id(id, self.config.entries)));
        };
        let entry = self.heads[usize::from(head)];
        if !entry.in_flight {
            return Err(self.break_with(QueueFault::NotInFlight(head)));
        }
        if written_bytes > entry.room_bytes {
            return Err(self.break_with(QueueFault::Length(written_bytes, entry.room_bytes)));
        }
        self.taken = self.taken.wrapping_add(1);
        self.release(head, entry);
        self.counters.used += 1;
        Ok(Some(Used { tag: entry.tag, written_bytes }))
    }

    fn release(&mut self, head: u16, entry: Head) {
        self.heads[usize::from(head)].in_flight = false;
        self.next[usize::from(entry.last)] = self.free;
        self.free = head;
        self.free_count += entry.descriptors;
        self.in_flight -= 1;
    }

    fn has_used(&self) -> bool {
        self.is_taking() && (self.used.words()[0].get() >> 16) as u16 != self.taken
    }

    /// True if the used buffers can still be taken.
    fn is_taking(&self) -> bool {
        self.fault.is_none() && !self.reclaimed
    }

    /// Reads the used index; entries below it are then in order behind. True when there are any.
    fn look(&mut self) -> Result<bool, QueueFault> {
        // Flags, index and the first entry's id. A free look first: an empty queue costs no transfer.
        let first = &self.used.words()[0];
        if (first.get() >> 16) as u16 == self.seen {
            return Ok(false);
        }
        let index = (first.load() >> 16) as u16;
        if index.wrapping_sub(self.taken) > self.in_flight {
            return Err(self.break_with(QueueFault::UsedIndex(self.taken, index, self.in_flight)));
        }
        self.seen = index;
        Ok(index != self.taken)
    }

    fn break_with(&mut self, fault: QueueFault) -> QueueFault {
        self.stopped = true;
        *self.fault.get_or_insert(fault)
    }

    fn disable_notifications(&mut self) {
        if self.config.event_index {
            // Just passed: it comes round again after 65,535 buffers.
            self.available.write16(available::used_event(self.config.entries), self.taken.wrapping_sub(1));
        } else {
            self.available.write16(available::FLAGS, available::NO_INTERRUPT);
        }
    }

    fn enable_notifications(&mut self) -> bool {
        if self.config.event_index {
            self.available.write16(available::used_event(self.config.entries), self.taken);
        } else {
            self.available.write16(available::FLAGS, 0);
        }
        // The wish before the look: a read-modify-write between them.
        self.available.words()[0].fetch_or(0);
        self.is_taking() && (self.used.words()[0].load() >> 16) as u16 != self.taken
    }

    fn reclaim(&mut self) -> Option<u64> {
        (self.stopped, self.reclaimed) = (true, true);
        let head = (0..self.config.entries).find(|&head| self.heads[usize::from(head)].in_flight)?;
        let entry = self.heads[usize::from(head)];
        self.release(head, entry);
        Some(entry.tag)
    }
}

fn validate(parts: &[Part]) -> Result<(), Refusal> {
    if parts.is_empty() || parts.len() > PARTS_MAX {
        return Err(Refusal::Parts(parts.len(), PARTS_MAX));
    }
    if parts.iter().any(|part| part.len_bytes == 0) {
        return Err(Refusal::Empty);
    }
    if parts.windows(2).any(|pair| pair[0].device_writes && !pair[1].device_writes) {
        return Err(Refusal::Order);
    }
    Ok(())
}

fn write(table: &impl Dma, index: usize, part: &Part, next: Option<u16>) {
    let tail = DescriptorTail::new()
        .with_len_bytes(part.len_bytes)
        .with_device_writes(part.device_writes)
        .with_has_next(next.is_some())
        .with_next(next.unwrap_or(0));
    let words = &table.words()[index * DESCRIPTOR_WORDS..];
    words[0].set(part.address.0);
    words[1].set(tail.into_bits());
}

/// Whether an index that went from `old` to `new` passed `event` (VIRTIO 2.7.10.1, all wrapping).
fn passes(event: u16, old: u16, new: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}

#[cfg(test)]
mod tests;
