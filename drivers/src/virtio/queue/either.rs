//! The queue that a device's driver uses: split, or packed where that was negotiated.

use super::packed::PackedQueue;
use super::{Part, QueueConfig, QueueCounters, SplitQueue, Used};
use crate::virtio::transport::QueueMemory;
use crate::virtio::{QueueFault, Refusal, VirtioError};
use hal::Hal;
use spec::virtio::ring;

enum Ring<H: Hal> {
    Split(SplitQueue<H>),
    Packed(PackedQueue<H>),
}

/// One queue. It belongs to one agent at a time; its owner's lock or its CPU ensures that.
pub struct Queue<H: Hal>(Ring<H>);

impl<H: Hal> Queue<H> {
    /// Allocates a queue whose notifications are on.
    ///
    /// # Errors
    /// [`VirtioError::Entries`], [`VirtioError::Dma`].
    pub fn new(hal: H, config: QueueConfig) -> Result<Self, VirtioError> {
        let entries = config.entries;
        // A packed queue may have any number of entries; the driver chooses powers of two for both.
        if !(2..=ring::ENTRIES_MAX).contains(&entries) || !entries.is_power_of_two() {
            return Err(VirtioError::Entries(entries, ring::ENTRIES_MAX));
        }
        let ring = if config.packed {
            Ring::Packed(PackedQueue::new(hal, config)?)
        } else {
            Ring::Split(SplitQueue::new(hal, config)?)
        };
        Ok(Self(ring))
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        match &self.0 {
            Ring::Split(queue) => queue.config().number,
            Ring::Packed(queue) => queue.config().number,
        }
    }

    /// Addresses of its parts.
    pub fn memory(&self) -> QueueMemory {
        match &self.0 {
            Ring::Split(queue) => queue.memory(),
            Ring::Packed(queue) => queue.memory(),
        }
    }

    /// Buffers in flight.
    pub fn in_flight(&self) -> u16 {
        match &self.0 {
            Ring::Split(queue) => queue.in_flight(),
            Ring::Packed(queue) => queue.in_flight(),
        }
    }

    /// Descriptors that are free.
    pub fn free_descriptors(&self) -> u16 {
        match &self.0 {
            Ring::Split(queue) => queue.free_descriptors(),
            Ring::Packed(queue) => queue.free_descriptors(),
        }
    }

    /// The device's violation that broke this queue, if any.
    pub fn fault(&self) -> Option<QueueFault> {
        match &self.0 {
            Ring::Split(queue) => queue.fault(),
            Ring::Packed(queue) => queue.fault(),
        }
    }

    /// Counters.
    pub fn counters(&self) -> QueueCounters {
        match &self.0 {
            Ring::Split(queue) => queue.counters(),
            Ring::Packed(queue) => queue.counters(),
        }
    }

    /// Stops the queue: it accepts no buffers, and gives none back by itself.
    pub fn stop(&mut self) {
        match &mut self.0 {
            Ring::Split(queue) => queue.stop(),
            Ring::Packed(queue) => queue.stop(),
        }
    }

    /// Adds a buffer, seen by the device after [`Queue::publish`].
    ///
    /// # Errors
    /// [`Refusal`]; the queue is then unchanged.
    pub fn add(&mut self, tag: u64, parts: &[Part]) -> Result<(), Refusal> {
        match &mut self.0 {
            Ring::Split(queue) => queue.add(tag, parts),
            Ring::Packed(queue) => queue.add(tag, parts),
        }
    }

    /// Shows the added buffers to the device. True if it wants a notification (VIRTIO 2.7.10, 2.8.21). A point of the seam.
    #[must_use = "the device sleeps until it is notified"]
    pub fn publish(&mut self) -> bool {
        match &mut self.0 {
            Ring::Split(queue) => queue.publish(),
            Ring::Packed(queue) => queue.publish(),
        }
    }

    /// Takes the next buffer that the device has used. A point of the seam unless a used buffer
    /// is already known; of a packed queue, for each used buffer.
    ///
    /// # Errors
    /// [`QueueFault`] when the device broke the queue, now and for ever after.
    pub fn take(&mut self) -> Result<Option<Used>, QueueFault> {
        match &mut self.0 {
            Ring::Split(queue) => queue.take(),
            Ring::Packed(queue) => queue.take(),
        }
    }

    /// Whether the device has used a buffer that was not taken. A free look, without order.
    pub fn has_used(&self) -> bool {
        match &self.0 {
            Ring::Split(queue) => queue.has_used(),
            Ring::Packed(queue) => queue.has_used(),
        }
    }

    /// Asks the device not to notify (VIRTIO 2.7.7, 2.8.10): a wish, which it may miss.
    pub fn disable_notifications(&mut self) {
        match &mut self.0 {
            Ring::Split(queue) => queue.disable_notifications(),
            Ring::Packed(queue) => queue.disable_notifications(),
        }
    }

    /// Asks the device to notify of the next buffer. True when one was used before it could know, which will raise no
    /// interrupt: take it. A point of the seam.
    #[must_use = "what was used meanwhile raises no interrupt"]
    pub fn enable_notifications(&mut self) -> bool {
        match &mut self.0 {
            Ring::Split(queue) => queue.enable_notifications(),
            Ring::Packed(queue) => queue.enable_notifications(),
        }
    }

    /// Takes back the next buffer that the device has not used. Only after a reset of the device or the queue, because
    /// the device may otherwise still write there. Also takes back buffers that the device had used before the reset
    /// and nobody took: a late interrupt then finds nothing.
    pub fn reclaim(&mut self) -> Option<u64> {
        match &mut self.0 {
            Ring::Split(queue) => queue.reclaim(),
            Ring::Packed(queue) => queue.reclaim(),
        }
    }
}
