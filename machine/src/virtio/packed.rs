//! A packed virtqueue from the device's side (VIRTIO 2.8).
//!
//! The ring is the driver's memory, and the driver may be wrong or hostile: an id is bounded and used once at a time, every
//! buffer must lie in memory, and a list ends after as many descriptors as the queue has entries.

use super::memory::{read_bytes, validate, write_bytes};
use super::ring::{Chain, Layout, QueueError, RingFeatures, check_areas};
use crate::time::Ps;
use crate::unrest::Kind;
use crate::world::World;
use spec::virtio::packed::{self, DESCRIPTOR_BYTES, EventSuppression, PackedTail, Position, event};

/// No buffer is this long.
const RESERVED_LENGTH: u32 = 0xdead_beef;

/// One packed queue, ready.
pub(super) struct PackedRing {
    layout: Layout,
    features: RingFeatures,
    /// Where the driver makes the next descriptor available.
    next: Position,
    /// Where the next descriptor is used.
    next_used: Position,
    /// Descriptors of the buffer with this id, while the device has it; else 0.
    descriptors: Box<[u16]>,
    /// The first used descriptor since the last publication, whose flags wait for it: the driver cannot pass it.
    withheld: Option<(u16, PackedTail)>,
    /// Buffers used since the last publication.
    filled: u16,
    /// Descriptors that the ring has moved on since the last publication.
    moved: u16,
    /// Descriptors, published since the last notification that was decided on; at most a lap.
    unnotified: u16,
}

/// A descriptor: address and the rest.
type Descriptor = (u64, PackedTail);

fn descriptor(world: &World<'_>, table: u64, index: u32) -> Result<Descriptor, QueueError> {
    let mut bytes = [0; DESCRIPTOR_BYTES];
    read_bytes(world, table + u64::from(index) * DESCRIPTOR_BYTES as u64, &mut bytes)?;
    let value = u128::from_le_bytes(bytes);
    Ok((value as u64, PackedTail::from_bits((value >> 64) as u64)))
}

impl PackedRing {
    /// A queue that starts at its first descriptor, both wrap counters 1.
    ///
    /// # Errors
    /// [`QueueError`] for a bad size or alignment, or an area outside memory.
    pub(super) fn new(world: &World<'_>, layout: Layout, features: RingFeatures) -> Result<Self, QueueError> {
        // VIRTIO 2.8.10.1: the size need not be a power of two.
        if layout.entries == 0 || layout.entries > packed::ENTRIES_MAX {
            return Err(QueueError::Size(layout.entries.into()));
        }
        let ring_bytes = usize::from(layout.entries) * DESCRIPTOR_BYTES;
        let areas = [
            (layout.descriptors, packed::DESCRIPTORS_ALIGN, ring_bytes),
            (layout.available, packed::EVENT_ALIGN, packed::EVENT_BYTES),
            (layout.used, packed::EVENT_ALIGN, packed::EVENT_BYTES),
        ];
        check_areas(world, &areas)?;
        Ok(Self {
            layout,
            features,
            next: Position::START,
            next_used: Position::START,
            descriptors: vec![0; layout.entries.into()].into(),
            withheld: None,
            filled: 0,
            moved: 0,
            unnotified: 0,
        })
    }

    pub(super) fn has_available(&self, world: &World<'_>) -> Result<bool, QueueError> {
        let (_, tail) = descriptor(world, self.layout.descriptors, self.next.slot.into())?;
        Ok(tail.is_available(self.next.wrap))
    }

    pub(super) fn take(&mut self, world: &World<'_>, chain: &mut Chain) -> Result<bool, QueueError> {
        if !self.has_available(world)? {
            return Ok(false);
        }
        chain.readable.clear();
        chain.writable.clear();
        let entries = self.layout.entries;
        let (mut at, mut count) = (self.next, 0);
        let id = loop {
            if count == entries {
                return Err(QueueError::Endless);
            }
            let (address, tail) = descriptor(world, self.layout.descriptors, at.slot.into())?;
            // VIRTIO 2.8.17: the first is made available last.
            if !tail.is_available(at.wrap) {
                return Err(QueueError::Unavailable(at.slot));
            }
            (at, count) = (at.after(1, entries), count + 1);
            if tail.indirect() {
                if count > 1 || tail.has_next() {
                    return Err(QueueError::Indirect);
                }
                self.walk_table(world, chain, address, tail.len_bytes())?;
            } else {
                chain.push(world, address, tail.len_bytes(), tail.device_writes())?;
            }
            if !tail.has_next() {
                break tail.id();
            }
        };
        if id >= entries {
            return Err(QueueError::Descriptor { index: id, entries: entries.into() });
        }
        if self.descriptors[usize::from(id)] != 0 {
            return Err(QueueError::IdInUse(id));
        }
        self.descriptors[usize::from(id)] = count;
        chain.head = id;
        self.next = at;
        Ok(true)
    }

    /// VIRTIO 2.8.7: all descriptors of the table belong to the buffer; of their flags only WRITE counts.
    fn walk_table(&self, world: &World<'_>, chain: &mut Chain, table: u64, len_bytes: u32) -> Result<(), QueueError> {
        let count = len_bytes / DESCRIPTOR_BYTES as u32;
        if !self.features.indirect || count == 0 || !len_bytes.is_multiple_of(DESCRIPTOR_BYTES as u32) {
            return Err(QueueError::Indirect);
        }
        validate(world, table, len_bytes)?;
        // VIRTIO 2.8.17: no list is longer than the queue.
        if count > self.layout.entries.into() {
            return Err(QueueError::Endless);
        }
        for index in 0..count {
            let (address, tail) = descriptor(world, table, index)?;
            chain.push(world, address, tail.len_bytes(), tail.device_writes())?;
        }
        Ok(())
    }

    pub(super) fn fill(&mut self, world: &mut World<'_>, id: u16, written_bytes: u32) -> Result<(), QueueError> {
        let count = self.descriptors.get_mut(usize::from(id)).map_or(1, core::mem::take).max(1);
        // VIRTIO 2.8.5: without WRITE the length is reserved, and drivers ignore it.
        let is_junk = written_bytes == 0 && world.effect_delay(Kind::ReservedField) > Ps(0);
        let len_bytes = if is_junk { RESERVED_LENGTH } else { written_bytes };
        let tail = PackedTail::new().with_len_bytes(len_bytes).with_id(id).with_device_writes(written_bytes > 0);
        self.write_used(world, tail, count)
    }

    /// Writes a used descriptor, and passes over those of its buffer.
    fn write_used(&mut self, world: &mut World<'_>, tail: PackedTail, count: u16) -> Result<(), QueueError> {
        let Position { slot, wrap } = self.next_used;
        let tail = tail.used_in(wrap);
        if self.withheld.is_none() {
            self.withheld = Some((slot, tail));
        } else {
            self.write_tail(world, slot, tail)?;
        }
        self.next_used = self.next_used.after(count, self.layout.entries);
        self.filled = self.filled.saturating_add(1);
        self.moved = self.moved.saturating_add(count);
        Ok(())
    }

    fn write_tail(&self, world: &mut World<'_>, slot: u16, tail: PackedTail) -> Result<(), QueueError> {
        let at = self.layout.descriptors + u64::from(slot) * DESCRIPTOR_BYTES as u64 + 8;
        Ok(write_bytes(world, at, &tail.into_bits().to_le_bytes())?)
    }

    pub(super) fn publish(&mut self, world: &mut World<'_>) -> Result<u16, QueueError> {
        if let Some((slot, tail)) = self.withheld.take() {
            self.write_tail(world, slot, tail)?;
        }
        let moved = core::mem::take(&mut self.moved);
        self.unnotified = self.unnotified.saturating_add(moved).min(self.layout.entries);
        Ok(core::mem::take(&mut self.filled))
    }

    pub(super) fn wants_notification(&mut self, world: &World<'_>) -> Result<bool, QueueError> {
        let count = core::mem::take(&mut self.unnotified);
        // The driver writes its wish and then looks at the ring; the device does it in the other order.
        world.order();
        let mut bytes = [0; packed::EVENT_BYTES];
        read_bytes(world, self.layout.available, &mut bytes)?;
        let wish = EventSuppression::from_bits(u32::from_le_bytes(bytes));
        match wish.flags() {
            event::ENABLE => Ok(true),
            event::DISABLE => Ok(false),
            event::DESC if self.features.event_index && wish.offset() < self.layout.entries => {
                Ok(self.next_used.has_passed(wish, count, self.layout.entries))
            }
            _ => Err(QueueError::Event(wish.into_bits())),
        }
    }

    pub(super) fn want_kicks(&mut self, world: &mut World<'_>, wanted: bool) -> Result<bool, QueueError> {
        let wish = match (wanted, self.features.event_index) {
            (false, _) => EventSuppression::new().with_flags(event::DISABLE),
            (true, true) => self.next.event(),
            (true, false) => EventSuppression::new(),
        };
        write_bytes(world, self.layout.used, &wish.into_bits().to_le_bytes())?;
        world.order();
        if wanted { self.has_available(world) } else { Ok(false) }
    }

    /// Misbehaves: uses `by` buffers that no driver made available.
    pub(super) fn jump(&mut self, world: &mut World<'_>, by: u16) -> Result<(), QueueError> {
        for _ in 0..by.min(self.layout.entries) {
            self.write_used(world, PackedTail::new().with_id(self.layout.entries), 1)?;
        }
        self.publish(world).map(drop)
    }
}
