//! The device's side of a packed ring (VIRTIO 1.3, 2.8): descriptors that are available or used by two flags and a wrap
//! counter, and two structures that suppress events.

use super::split::{descriptor, memory};
use super::{Device, Lie, Seen, Wish};
use drivers::virtio::{QueueConfig, QueueFault, QueueMemory};
use hal::host::{HostDma, HostHal};
use hal::{DeviceAddress, Dma as _};

/// Flags of a descriptor.
const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
const AVAILABLE: u16 = 1 << 7;
const USED: u16 = 1 << 15;

/// Flags of an event suppression structure.
const DISABLE: u16 = 1;
const DESCRIPTOR: u16 = 2;

/// A place in the ring, and the wrap counter there.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    slot: u16,
    wrap: bool,
}

impl Place {
    fn after(self, count: u16, entries: u16) -> Self {
        let slot = self.slot + count;
        if slot >= entries { Self { slot: slot - entries, wrap: !self.wrap } } else { Self { slot, ..self } }
    }

    /// As an event's place.
    fn event(self) -> u16 {
        self.slot | u16::from(self.wrap) << 15
    }
}

pub(super) struct PackedDevice {
    hal: HostHal,
    config: QueueConfig,
    ring: DeviceAddress,
    driver_events: HostDma,
    device_events: HostDma,
    seen: Place,
    completed: Place,
}

impl PackedDevice {
    pub(super) fn new(hal: HostHal, config: QueueConfig, queue: &QueueMemory) -> Self {
        let start = Place { slot: 0, wrap: true };
        let (driver_events, device_events) = (memory(hal, queue.available).0, memory(hal, queue.used).0);
        Self { hal, config, ring: queue.descriptors, driver_events, device_events, seen: start, completed: start }
    }

    /// Number, flags and so on of the descriptor at a place: length, id, flags.
    fn write_used(&mut self, id: u16, len_bytes: u32, descriptors: u16) {
        let (dma, offset) = memory(self.hal, self.ring);
        let at = offset + 16 * usize::from(self.completed.slot);
        dma.write32(at + 8, len_bytes);
        dma.write16(at + 12, id);
        let written = if len_bytes > 0 { WRITE } else { 0 };
        let wrap = if self.completed.wrap { AVAILABLE | USED } else { 0 };
        dma.write16(at + 14, written | wrap);
        self.completed = self.completed.after(descriptors, self.config.entries);
    }
}

impl Device for PackedDevice {
    fn next(&mut self) -> Option<Seen> {
        let mut parts = Vec::new();
        let mut place = self.seen;
        loop {
            // Here the id comes before the flags.
            let (mut part, id, flags) = descriptor(self.hal, self.ring, place.slot);
            part.device_writes = flags & WRITE != 0;
            let is_available = (flags & AVAILABLE != 0) == place.wrap && (flags & USED != 0) != place.wrap;
            if !is_available && parts.is_empty() {
                return None;
            }
            place = place.after(1, self.config.entries);
            if flags & INDIRECT != 0 {
                self.seen = place;
                let count = part.len_bytes / 16;
                let of = |index| {
                    let (mut part, _, flags) = descriptor(self.hal, part.address, index);
                    part.device_writes = flags & WRITE != 0;
                    part
                };
                return Some(Seen { id, parts: (0..count as u16).map(of).collect(), descriptors: 1 });
            }
            parts.push(part);
            if flags & NEXT == 0 || parts.len() > 64 {
                self.seen = place;
                let descriptors = parts.len() as u16;
                return Some(Seen { id, parts, descriptors });
            }
        }
    }

    fn complete(&mut self, seen: &Seen, written_bytes: u32) {
        self.write_used(seen.id, written_bytes, seen.descriptors);
    }

    fn wish(&mut self, wish: Wish) {
        let entries = self.config.entries;
        let (place, flags) = match wish {
            Wish::All => (0, 0),
            Wish::Nothing => (0, DISABLE),
            Wish::Ahead(ahead) => (self.seen.after(ahead % entries, entries).event(), DESCRIPTOR),
        };
        self.device_events.write16(0, place);
        self.device_events.write16(2, flags);
    }

    /// All that was made available before was seen.
    fn wants(&self, _: u16, descriptors: u16) -> bool {
        let (event, flags) = (self.device_events.read16(0), self.device_events.read16(2));
        let entries = self.config.entries;
        match flags {
            DISABLE => false,
            DESCRIPTOR => (0..descriptors).any(|index| self.seen.after(index, entries).event() == event),
            _ => true,
        }
    }

    fn would_interrupt(&self) -> bool {
        match self.driver_events.read16(2) {
            0 => true,
            DESCRIPTOR => self.driver_events.read16(0) == self.completed.event(),
            _ => false,
        }
    }

    fn lie(&mut self, lie: Lie, _: u16) -> Option<QueueFault> {
        match lie {
            // There is no index.
            Lie::Index(_) => None,
            Lie::Entry(id, bytes) => {
                let entries = self.config.entries;
                self.write_used(id as u16, bytes, 1);
                let outside = id >= entries.into();
                Some(if outside { QueueFault::Id(id, entries) } else { QueueFault::NotInFlight(id as u16) })
            }
        }
    }
}
