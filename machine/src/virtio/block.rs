//! The block device (VIRTIO 5.2) over a piece of the host's memory.

use super::device::{Bus, Device};
use super::ring::Chain;
use crate::observe::Fact;
use crate::time::Ps;
use spec::virtio::DeviceId;
use spec::virtio::block::{self as layout, ID_BYTES, Outcome, Request, SECTOR_BYTES, header};
use spec::virtio::feature::{Feature, Features};
use std::collections::BTreeMap;

/// The description of one block device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockConfig {
    /// Sectors of 512 bytes.
    pub sectors: u64,
    /// Queues, at least 1.
    pub queues: u16,
    /// Most entries of each queue.
    pub queue_entries: u16,
    /// It refuses writes.
    pub read_only: bool,
    /// It has a write cache that can be flushed.
    pub flush: bool,
    /// From a request's notification to its end, on average.
    pub latency: Ps,
    /// Its name, of which 20 bytes count.
    pub serial: String,
    /// It offers packed virtqueues.
    pub packed: bool,
}

impl Default for BlockConfig {
    /// A mebibyte without latency.
    fn default() -> Self {
        let serial = "campanile".into();
        Self {
            sectors: 2048,
            queues: 1,
            queue_entries: 256,
            read_only: false,
            flush: true,
            latency: Ps(0),
            serial,
            packed: false,
        }
    }
}

/// Bytes of the configuration space, up to the number of queues.
const CONFIG_BYTES: usize = layout::config::NUM_QUEUES as usize + 2;

/// Events of the block device.
pub mod code {
    /// A request ends. Argument: reset count and ticket.
    pub(super) const DONE: u32 = 0;
    /// The device says from now on that it has so many sectors: [`crate::Machine::poke`]. What it stores stays.
    pub const RESIZE: u32 = 1;
}

/// A block device.
pub struct Block {
    config: BlockConfig,
    storage: Vec<u8>,
    /// Requests under way, by ticket.
    requests: BTreeMap<u32, (u16, Chain)>,
    next_ticket: u32,
    epoch: u32,
    completed: u64,
    errors: u64,
    late: Ps,
}

impl Block {
    /// A device without a driver, its storage zero.
    pub fn new(config: BlockConfig) -> Self {
        let storage = vec![0; (config.sectors * u64::from(SECTOR_BYTES)) as usize];
        Self {
            config,
            storage,
            requests: BTreeMap::new(),
            next_ticket: 0,
            epoch: 0,
            completed: 0,
            errors: 0,
            late: Ps(0),
        }
    }

    /// A fault: requests that it takes from now on take so much longer. 0: healed.
    pub fn set_late(&mut self, late: Ps) {
        self.late = late;
    }

    /// Runs the request of `chain`: its outcome, and the bytes of data written into it.
    fn run(&mut self, bus: &mut Bus<'_, '_>, chain: &Chain) -> (Outcome, u64) {
        // Both ends of each buffer were memory when the chain was taken. A lent device's memory has holes, and may go.
        const GONE: (Outcome, u64) = (Outcome::IOERR, 0);
        let mut head = [0; header::BYTES];
        if chain.read(bus.world(), 0, &mut head).is_err() {
            return GONE;
        }
        let kind = u32::from_le_bytes(head[header::TYPE..][..4].try_into().expect("4 bytes"));
        let sector = u64::from_le_bytes(head[header::SECTOR..][..8].try_into().expect("8 bytes"));
        match Request(kind) {
            Request::IN => {
                let room = chain.writable_bytes() - 1;
                let Some(place) = self.place(sector, room) else { return (Outcome::IOERR, 0) };
                chain.write(bus.world(), 0, &self.storage[place]).map_or(GONE, |_| (Outcome::OK, room))
            }
            Request::OUT => {
                let data = chain.readable_bytes() - header::BYTES as u64;
                match self.place(sector, data).filter(|_| !self.config.read_only) {
                    Some(place) => {
                        let read = chain.read(bus.world(), header::BYTES as u64, &mut self.storage[place]);
                        read.map_or(GONE, |_| (Outcome::OK, 0))
                    }
                    None => (Outcome::IOERR, 0),
                }
            }
            // The storage is memory, so there is nothing to flush.
            Request::FLUSH => (Outcome::OK, 0),
            Request::GET_ID => {
                let mut name = [0; ID_BYTES];
                let len = self.config.serial.len().min(ID_BYTES);
                name[..len].copy_from_slice(&self.config.serial.as_bytes()[..len]);
                let len = (chain.writable_bytes() - 1).min(ID_BYTES as u64);
                chain.write(bus.world(), 0, &name[..len as usize]).map_or(GONE, |_| (Outcome::OK, len))
            }
            _ => (Outcome::UNSUPP, 0),
        }
    }

    /// The bytes of whole sectors from `sector` on, if the device has them (VIRTIO 5.2.6.2).
    fn place(&self, sector: u64, bytes: u64) -> Option<std::ops::Range<usize>> {
        let start = sector.checked_mul(SECTOR_BYTES.into())?;
        let end = start.checked_add(bytes)?;
        let valid = bytes.is_multiple_of(SECTOR_BYTES.into()) && end <= self.storage.len() as u64;
        valid.then_some(start as usize..end as usize)
    }

    /// A request ends.
    fn done(&mut self, bus: &mut Bus<'_, '_>, ticket: u32) {
        let Some((queue, chain)) = self.requests.remove(&ticket) else { return };
        let (outcome, written) = self.run(bus, &chain);
        self.completed += 1;
        self.errors += u64::from(outcome != Outcome::OK);
        let room = chain.writable_bytes();
        let _ = chain.write(bus.world(), room - 1, &[outcome.0]);
        bus.fill(queue, chain.head, (written + 1) as u32);
        bus.publish(queue);
        bus.notify(queue);
    }

    /// Takes every request that waits on `queue`.
    fn take(&mut self, bus: &mut Bus<'_, '_>, queue: u16) {
        let mut chain = Chain::default();
        while bus.take(queue, &mut chain) {
            let (readable, writable) = (chain.readable_bytes(), chain.writable_bytes());
            if readable < header::BYTES as u64 || writable == 0 {
                let text = format!("{readable} bytes to read, {writable} to write");
                return bus.fail("virtio-blk request without header or status", text);
            }
            let ticket = self.next_ticket;
            self.next_ticket = ticket.wrapping_add(1);
            self.requests.insert(ticket, (queue, std::mem::take(&mut chain)));
            let world = bus.world();
            if self.late > Ps(0) {
                world.tell(|| Fact::Struck { source: world.me(), fault: "late request" });
            }
            let latency = world.jitter(self.config.latency) + self.late;
            bus.schedule(latency, code::DONE, u64::from(self.epoch) << 32 | u64::from(ticket));
        }
    }
}

impl Device for Block {
    fn id(&self) -> DeviceId {
        DeviceId::BLOCK
    }

    fn features(&self) -> Features {
        let features = Features::of(&[layout::BLK_SIZE, layout::MQ]);
        let features = if self.config.flush { features.with(layout::FLUSH) } else { features };
        let features = if self.config.packed { features.with(Feature::RING_PACKED) } else { features };
        if self.config.read_only { features.with(layout::RO) } else { features }
    }

    fn queue_entries(&self) -> Vec<u16> {
        vec![self.config.queue_entries; self.config.queues.max(1).into()]
    }

    fn config(&self) -> Vec<u8> {
        let mut bytes = vec![0; CONFIG_BYTES];
        let mut put = |offset: u32, field: &[u8]| bytes[offset as usize..][..field.len()].copy_from_slice(field);
        put(layout::config::CAPACITY, &self.config.sectors.to_le_bytes());
        put(layout::config::BLK_SIZE, &SECTOR_BYTES.to_le_bytes());
        put(layout::config::NUM_QUEUES, &self.config.queues.max(1).to_le_bytes());
        bytes
    }

    fn started(&mut self, bus: &mut Bus<'_, '_>) {
        (0..self.config.queues.max(1)).for_each(|queue| self.take(bus, queue));
    }

    fn kicked(&mut self, bus: &mut Bus<'_, '_>, queue: u16) {
        bus.want_kicks(queue, false);
        self.take(bus, queue);
        while bus.want_kicks(queue, true) {
            self.take(bus, queue);
        }
    }

    fn event(&mut self, bus: &mut Bus<'_, '_>, code: u32, arg: u64) {
        match code {
            code::DONE if arg >> 32 == self.epoch.into() => self.done(bus, arg as u32),
            code::RESIZE => {
                self.config.sectors = arg;
                bus.announce();
            }
            _ => {}
        }
    }

    fn queue_reset(&mut self, queue: u16) {
        self.requests.retain(|_, (of, _)| *of != queue);
    }

    fn reset(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        self.requests.clear();
    }

    /// Requests that ended, and those of them that failed.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![("completed", self.completed), ("errors", self.errors)]
    }
}
