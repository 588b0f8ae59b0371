//! A packed virtqueue (VIRTIO 2.8), the driver's side.
//!
//! As for the split queue, everything that decides about memory is kept privately. Of a used descriptor the driver keeps one
//! copy, read behind an acquire load of the flags, and checks its id and length.

use super::{Head, PARTS_MAX, Part, QueueConfig, QueueCounters, Used, validate};
use crate::virtio::transport::QueueMemory;
use crate::virtio::{QueueFault, Refusal, VirtioError};
use alloc::boxed::Box;
use alloc::vec::Vec;
use hal::{Dma, Hal, Word};
use spec::virtio::packed::{self, DESCRIPTOR_BYTES, EventSuppression, PackedTail, Position, event};

const DESCRIPTOR_WORDS: usize = DESCRIPTOR_BYTES / 8;

/// One packed queue. It belongs to one agent at a time.
pub(super) struct PackedQueue<H: Hal> {
    config: QueueConfig,
    descriptors: H::Dma,
    /// The driver area: the event suppression structure that the driver writes.
    driver_events: H::Dma,
    /// The device area: the structure that the device writes.
    device_events: H::Dma,
    /// A table of [`PARTS_MAX`] descriptors for each id.
    tables: Option<H::Dma>,
    /// By id.
    heads: Box<[Head]>,
    free_ids: Vec<u16>,
    free_count: u16,
    /// Where the next descriptor is made available.
    next: Position,
    /// The first descriptor since the last publication: where, and its flags, which make the whole batch available.
    withheld: Option<(u16, PackedTail)>,
    /// Descriptors since then.
    unpublished: u16,
    /// Where the device uses the next descriptor.
    next_used: Position,
    stopped: bool,
    /// The driver has taken buffers back, so the device's used descriptors no longer count.
    reclaimed: bool,
    fault: Option<QueueFault>,
    counters: QueueCounters,
}

impl<H: Hal> PackedQueue<H> {
    pub(super) fn new(hal: H, config: QueueConfig) -> Result<Self, VirtioError> {
        let entries = config.entries;
        let count = usize::from(entries);
        let table = |_| hal.dma_alloc(count * PARTS_MAX * DESCRIPTOR_BYTES, DESCRIPTOR_BYTES);
        // A word of ours is wider than an event suppression structure.
        let events = || hal.dma_alloc(8, 8.max(packed::EVENT_ALIGN));
        Ok(Self {
            descriptors: hal.dma_alloc(count * DESCRIPTOR_BYTES, packed::DESCRIPTORS_ALIGN)?,
            driver_events: events()?,
            device_events: events()?,
            tables: config.indirect.then_some(()).map(table).transpose()?,
            heads: (0..entries).map(|_| Head::default()).collect(),
            free_ids: (0..entries).rev().collect(),
            free_count: entries,
            next: Position::START,
            withheld: None,
            unpublished: 0,
            next_used: Position::START,
            stopped: false,
            reclaimed: false,
            fault: None,
            counters: QueueCounters::default(),
            config,
        })
    }

    pub(super) fn config(&self) -> &QueueConfig {
        &self.config
    }

    pub(super) fn memory(&self) -> QueueMemory {
        QueueMemory {
            entries: self.config.entries,
            descriptors: self.descriptors.device_address(),
            available: self.driver_events.device_address(),
            used: self.device_events.device_address(),
        }
    }

    pub(super) fn in_flight(&self) -> u16 {
        self.config.entries - self.free_ids.len() as u16
    }

    pub(super) fn free_descriptors(&self) -> u16 {
        self.free_count
    }

    pub(super) fn fault(&self) -> Option<QueueFault> {
        self.fault
    }

    pub(super) fn counters(&self) -> QueueCounters {
        self.counters
    }

    pub(super) fn stop(&mut self) {
        self.stopped = true;
    }

    pub(super) fn add(&mut self, tag: u64, parts: &[Part]) -> Result<(), Refusal> {
        if self.stopped {
            return Err(Refusal::Stopped);
        }
        validate(parts)?;
        let indirect = parts.len() > 1 && self.tables.is_some();
        let descriptors = if indirect { 1 } else { parts.len() as u16 };
        // VIRTIO 2.8.17: no buffer has more parts than the queue has entries, not even in a table.
        if parts.len() > self.config.entries.into() {
            return Err(Refusal::Parts(parts.len(), self.config.entries.into()));
        }
        let id = self.free_ids.last().copied().filter(|_| descriptors <= self.free_count);
        let Some(id) = id else {
            self.counters.full += 1;
            return Err(Refusal::Full);
        };
        self.free_ids.pop();
        self.free_count -= descriptors;
        if indirect {
            self.write_table(id, parts);
        } else {
            self.write_list(id, parts);
        }
        let room_bytes = parts.iter().filter(|part| part.device_writes).map(|part| part.len_bytes);
        let room_bytes = room_bytes.fold(0, u32::saturating_add);
        self.heads[usize::from(id)] = Head { in_flight: true, tag, room_bytes, last: id, descriptors };
        self.counters.added += 1;
        Ok(())
    }

    fn write_list(&mut self, id: u16, parts: &[Part]) {
        for (place, part) in parts.iter().enumerate() {
            let tail = tail(part).with_id(id).with_has_next(place + 1 < parts.len());
            self.write(part.address.0, tail);
        }
    }

    /// Writes the table of `id`, all of whose descriptors belong to the buffer (VIRTIO 2.8.7), and the one that points at it.
    fn write_table(&mut self, id: u16, parts: &[Part]) {
        let Some(tables) = &self.tables else { return };
        let first = usize::from(id) * PARTS_MAX;
        for (place, part) in parts.iter().enumerate() {
            let words = &tables.words()[(first + place) * DESCRIPTOR_WORDS..];
            words[0].set(part.address.0);
            words[1].set(tail(part).into_bits());
        }
        let address = tables.device_address().offset((first * DESCRIPTOR_BYTES) as u64);
        let len_bytes = (parts.len() * DESCRIPTOR_BYTES) as u32;
        self.write(address.0, PackedTail::new().with_len_bytes(len_bytes).with_id(id).with_indirect(true));
    }

    /// Writes the next descriptor. The flags of the first one of a batch wait for the publication: the device cannot pass
    /// it.
    fn write(&mut self, address: u64, tail: PackedTail) {
        let slot = self.next.slot;
        let tail = tail.available_in(self.next.wrap);
        let words = &self.descriptors.words()[usize::from(slot) * DESCRIPTOR_WORDS..];
        words[0].set(address);
        if self.withheld.is_none() {
            self.withheld = Some((slot, tail));
        } else {
            words[1].set(tail.into_bits());
        }
        self.next = self.next.after(1, self.config.entries);
        self.unpublished += 1;
    }

    /// The flags are stored by a read-modify-write, a full barrier: the device's wish is read after they are
    /// visible (VIRTIO 2.8.21, "Sending Available Buffer Notifications").
    pub(super) fn publish(&mut self) -> bool {
        if self.stopped {
            return false;
        }
        let Some((slot, tail)) = self.withheld.take() else { return false };
        let count = core::mem::take(&mut self.unpublished);
        self.descriptors.words()[usize::from(slot) * DESCRIPTOR_WORDS + 1].swap(tail.into_bits());
        let wish = EventSuppression::from_bits(self.device_events.read32(0));
        let wanted = match wish.flags() {
            event::DISABLE => false,
            event::DESC if self.config.event_index => self.next.has_passed(wish, count, self.config.entries),
            // A reserved value suppresses nothing: one notification too many does no harm.
            _ => true,
        };
        self.counters.notifications += u64::from(wanted);
        self.counters.suppressed += u64::from(!wanted);
        wanted
    }

    pub(super) fn take(&mut self) -> Result<Option<Used>, QueueFault> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        if self.reclaimed || !self.shows_used() {
            return Ok(None);
        }
        let word = &self.descriptors.words()[usize::from(self.next_used.slot) * DESCRIPTOR_WORDS + 1];
        // The device writes the flags last: what they cover is read behind them.
        word.load();
        let used = PackedTail::from_bits(word.get());
        let (id, entries) = (used.id(), self.config.entries);
        if id >= entries {
            return Err(self.break_with(QueueFault::Id(id.into(), entries)));
        }
        let entry = self.heads[usize::from(id)];
        if !entry.in_flight {
            return Err(self.break_with(QueueFault::NotInFlight(id)));
        }
        // The length is reserved unless something was written (VIRTIO 2.8.4).
        let written_bytes = if used.device_writes() { used.len_bytes() } else { 0 };
        if written_bytes > entry.room_bytes {
            return Err(self.break_with(QueueFault::Length(written_bytes, entry.room_bytes)));
        }
        self.next_used = self.next_used.after(entry.descriptors, entries);
        self.release(id, entry);
        self.counters.used += 1;
        Ok(Some(Used { tag: entry.tag, written_bytes }))
    }

    fn release(&mut self, id: u16, entry: Head) {
        self.heads[usize::from(id)].in_flight = false;
        self.free_ids.push(id);
        self.free_count += entry.descriptors;
    }

    pub(super) fn has_used(&self) -> bool {
        self.is_taking() && self.shows_used()
    }

    fn is_taking(&self) -> bool {
        self.fault.is_none() && !self.reclaimed
    }

    /// A free look, without order.
    fn shows_used(&self) -> bool {
        let word = &self.descriptors.words()[usize::from(self.next_used.slot) * DESCRIPTOR_WORDS + 1];
        PackedTail::from_bits(word.get()).is_used(self.next_used.wrap)
    }

    fn break_with(&mut self, fault: QueueFault) -> QueueFault {
        self.stopped = true;
        *self.fault.get_or_insert(fault)
    }

    pub(super) fn disable_notifications(&mut self) {
        self.driver_events.write32(0, EventSuppression::new().with_flags(event::DISABLE).into_bits());
    }

    pub(super) fn enable_notifications(&mut self) -> bool {
        let wish = if self.config.event_index { self.next_used.event() } else { EventSuppression::new() };
        // The wish before the look: a read-modify-write. The structure's word has no other content.
        self.driver_events.words()[0].swap(wish.into_bits().into());
        self.has_used()
    }

    pub(super) fn reclaim(&mut self) -> Option<u64> {
        (self.stopped, self.reclaimed) = (true, true);
        let id = (0..self.config.entries).find(|&id| self.heads[usize::from(id)].in_flight)?;
        let entry = self.heads[usize::from(id)];
        self.release(id, entry);
        Some(entry.tag)
    }
}

fn tail(part: &Part) -> PackedTail {
    PackedTail::new().with_len_bytes(part.len_bytes).with_device_writes(part.device_writes)
}

#[cfg(test)]
mod tests;
