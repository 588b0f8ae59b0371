//! The transmit side of a queue pair. It does not interrupt: the next transmission takes sent packets back.

use super::super::{Part, Queue, QueueFault, Refusal};
use super::Net;
use hal::{DeviceAddress, Hal};

/// A packet to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransmitPacket {
    /// The caller's own; comes back by [`super::Receiver::transmitted`].
    pub tag: u64,
    /// Virtio's header of 12 bytes, all zero, and the packet behind it.
    pub address: DeviceAddress,
    /// Length of both, in bytes.
    pub len_bytes: u32,
}

/// Result of submitting a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a batch may be accepted in part"]
pub struct Sent {
    /// So many packets, from the first on, are on their way.
    pub accepted: usize,
    /// Why the next one was not.
    pub refused: Option<Refusal>,
}

/// Counters of a transmit queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TransmitCounters {
    /// Packets given to the device.
    pub packets: u64,
    /// Notifications written.
    pub notifications: u64,
    /// Batches cut short because the queue was full.
    pub full: u64,
}

/// Data that the lock guards.
pub(super) struct TransmitSide<H: Hal> {
    queue: Queue<H>,
    counters: TransmitCounters,
}

impl<H: Hal> TransmitSide<H> {
    pub(super) fn new(queue: Queue<H>) -> Self {
        Self { queue, counters: TransmitCounters::default() }
    }

    pub(super) fn stop(&mut self) {
        self.queue.stop();
    }

    pub(super) fn reclaim(&mut self) -> Option<u64> {
        self.queue.reclaim()
    }

    /// Adds packets up to the first that is refused.
    fn add(&mut self, packets: &[TransmitPacket]) -> Sent {
        for (accepted, packet) in packets.iter().enumerate() {
            let part = Part::read(packet.address, packet.len_bytes);
            if let Err(refused) = self.queue.add(packet.tag, &[part]) {
                self.counters.full += u64::from(refused == Refusal::Full);
                return Sent { accepted, refused: Some(refused) };
            }
            self.counters.packets += 1;
        }
        Sent { accepted: packets.len(), refused: None }
    }
}

impl<H: Hal> Net<H> {
    /// Sends packets in order, up to the first refused one. Takes back sent buffers first.
    pub fn send(&self, pair: u16, packets: &[TransmitPacket]) -> Sent {
        let Some(side) = self.transmit.get(usize::from(pair)) else {
            return Sent { accepted: 0, refused: Some(Refusal::NotSupported) };
        };
        let mut side = side.lock();
        self.take_transmitted(pair, &mut side);
        let sent = side.add(packets);
        if side.queue.publish() {
            side.counters.notifications += 1;
            self.transport.notify(side.queue.number());
        }
        sent
    }

    /// Takes back sent buffers when no more packets are sent.
    pub fn poll_transmit(&self, pair: u16) {
        if let Some(side) = self.transmit.get(usize::from(pair)) {
            self.take_transmitted(pair, &mut side.lock());
        }
    }

    fn take_transmitted(&self, pair: u16, side: &mut TransmitSide<H>) {
        while let Ok(Some(used)) = side.queue.take() {
            self.receiver.transmitted(pair, used.tag);
        }
    }

    /// Counters of transmit queue `pair`.
    pub fn transmit_counters(&self, pair: u16) -> Option<TransmitCounters> {
        Some(self.transmit.get(usize::from(pair))?.lock().counters)
    }

    /// The device's violation that broke transmit queue `pair`, if any.
    pub fn transmit_fault(&self, pair: u16) -> Option<QueueFault> {
        self.transmit.get(usize::from(pair))?.lock().queue.fault()
    }
}
