//! The device's side of a split ring (VIRTIO 1.3, 2.7): available ring of flags, index and entries; used ring of flags, index,
//! ids and lengths.

use super::{Device, Lie, Seen, Wish};
use drivers::virtio::{Part, QueueConfig, QueueFault, QueueMemory};
use hal::host::{HostDma, HostHal};
use hal::{DeviceAddress, Dma as _};

/// Flags of a descriptor.
const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

/// Memory for devices that begins at this address, or in whose middle it lies; and its offset.
pub(super) fn memory(hal: HostHal, address: DeviceAddress) -> (HostDma, usize) {
    let dma = hal.dma_at(address).expect("memory for devices");
    let offset = (address.0 - dma.device_address().0) as usize;
    (dma, offset)
}

/// A descriptor of 16 bytes: address, length, flags, and the last two bytes.
pub(super) fn descriptor(hal: HostHal, address: DeviceAddress, index: u16) -> (Part, u16, u16) {
    let (dma, offset) = memory(hal, address);
    let at = offset + 16 * usize::from(index);
    let low = u64::from(dma.read32(at));
    let address = DeviceAddress(low | u64::from(dma.read32(at + 4)) << 32);
    let flags = dma.read16(at + 12);
    (Part { address, len_bytes: dma.read32(at + 8), device_writes: flags & WRITE != 0 }, flags, dma.read16(at + 14))
}

pub(super) struct SplitDevice {
    hal: HostHal,
    config: QueueConfig,
    table: DeviceAddress,
    available: HostDma,
    used: HostDma,
    /// Entries seen, and entries used.
    seen: u16,
    completed: u16,
}

impl SplitDevice {
    pub(super) fn new(hal: HostHal, config: QueueConfig, queue: &QueueMemory) -> Self {
        let (available, used) = (memory(hal, queue.available).0, memory(hal, queue.used).0);
        Self { hal, config, table: queue.descriptors, available, used, seen: 0, completed: 0 }
    }

    fn slot(&self, index: u16) -> usize {
        usize::from(index % self.config.entries)
    }

    fn chain(&self, table: DeviceAddress, first: u16) -> Vec<Part> {
        let mut parts = Vec::new();
        let mut index = first;
        loop {
            let (part, flags, next) = descriptor(self.hal, table, index);
            parts.push(part);
            // A loop is longer than any chain.
            if flags & NEXT == 0 || parts.len() > 64 {
                return parts;
            }
            index = next;
        }
    }

    fn write_used(&mut self, id: u32, len_bytes: u32) {
        let at = 4 + 8 * self.slot(self.completed);
        self.used.write32(at, id);
        self.used.write32(at + 4, len_bytes);
        self.completed = self.completed.wrapping_add(1);
        self.used.write16(2, self.completed);
    }

    fn avail_event(&self) -> usize {
        4 + 8 * usize::from(self.config.entries)
    }
}

impl Device for SplitDevice {
    fn next(&mut self) -> Option<Seen> {
        if self.available.read16(2) == self.seen {
            return None;
        }
        let id = self.available.read16(4 + 2 * self.slot(self.seen));
        self.seen = self.seen.wrapping_add(1);
        let (part, flags, _) = descriptor(self.hal, self.table, id);
        if flags & INDIRECT != 0 {
            let parts = self.chain(part.address, 0);
            // The table's length is that of its descriptors.
            let parts = if part.len_bytes as usize == 16 * parts.len() { parts } else { Vec::new() };
            return Some(Seen { id, parts, descriptors: 1 });
        }
        let parts = self.chain(self.table, id);
        let descriptors = parts.len() as u16;
        Some(Seen { id, parts, descriptors })
    }

    fn complete(&mut self, seen: &Seen, written_bytes: u32) {
        self.write_used(seen.id.into(), written_bytes);
    }

    fn wish(&mut self, wish: Wish) {
        if !self.config.event_index {
            self.used.write16(0, u16::from(wish == Wish::Nothing));
            return;
        }
        let event = match wish {
            Wish::All => self.available.read16(2),
            Wish::Nothing => self.available.read16(2).wrapping_sub(1),
            Wish::Ahead(ahead) => self.available.read16(2).wrapping_add(ahead),
        };
        self.used.write16(self.avail_event(), event);
    }

    fn wants(&self, entries: u16, _: u16) -> bool {
        if !self.config.event_index {
            return self.used.read16(0) & 1 == 0;
        }
        let (now, event) = (self.available.read16(2), self.used.read16(self.avail_event()));
        (0..entries).any(|entry| now.wrapping_add(entry) == event)
    }

    fn would_interrupt(&self) -> bool {
        if !self.config.event_index {
            return self.available.read16(0) & 1 == 0;
        }
        // The next used entry passes the event.
        self.available.read16(4 + 2 * usize::from(self.config.entries)) == self.completed
    }

    fn lie(&mut self, lie: Lie, in_flight: u16) -> Option<QueueFault> {
        match lie {
            Lie::Index(ahead) => {
                let index = self.completed.wrapping_add(ahead);
                self.used.write16(2, index);
                Some(QueueFault::UsedIndex(self.completed, index, in_flight))
            }
            // With nothing in flight the index itself is the lie.
            Lie::Entry(..) if in_flight == 0 => None,
            Lie::Entry(id, bytes) => {
                self.write_used(id, bytes);
                let entries = self.config.entries;
                let outside = id >= entries.into();
                Some(if outside { QueueFault::Id(id, entries) } else { QueueFault::NotInFlight(id as u16) })
            }
        }
    }
}
