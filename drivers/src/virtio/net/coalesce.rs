//! Notification coalescing (VIRTIO 5.1.6.5.7): device-wide and per queue, by hand or as what a moderation controller
//! programs.

use super::super::VirtioError;
use super::Net;
use alloc::sync::Arc;
use hal::Hal;
use irq::moderation::{Moderated, Outcome, Setting};
use spec::virtio::net::{
    Class, NOTF_COAL, NOTF_COAL_RX_SET, NOTF_COAL_TX_SET, NOTF_COAL_VQ_GET, NOTF_COAL_VQ_SET, VQ_NOTF_COAL, coalescing,
    coalescing_queue, receive_queue,
};

/// When a queue notifies: after so many packets or so much time, whichever is first. Either 0: after every packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Coalescing {
    /// Packets.
    pub max_packets: u32,
    /// Microseconds.
    pub max_usecs: u32,
}

impl Coalescing {
    fn to_bytes(self) -> [u8; coalescing::BYTES] {
        let mut bytes = [0; coalescing::BYTES];
        bytes[coalescing::MAX_PACKETS..][..4].copy_from_slice(&self.max_packets.to_le_bytes());
        bytes[coalescing::MAX_USECS..][..4].copy_from_slice(&self.max_usecs.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        let at = |offset: usize| u32::from_le_bytes(core::array::from_fn(|index| bytes[offset + index]));
        Self { max_packets: at(coalescing::MAX_PACKETS), max_usecs: at(coalescing::MAX_USECS) }
    }
}

impl From<Setting> for Coalescing {
    fn from(setting: Setting) -> Self {
        Self { max_packets: setting.completions, max_usecs: setting.delay_us }
    }
}

impl From<Coalescing> for Setting {
    fn from(coalescing: Coalescing) -> Self {
        Self::new(coalescing.max_usecs, coalescing.max_packets)
    }
}

impl<H: Hal> Net<H> {
    fn coalesce_all(&self, command: u8, to: Coalescing) -> Result<(), VirtioError> {
        if !self.info.features.has(NOTF_COAL) {
            return Err(VirtioError::NotNegotiated("VIRTIO_NET_F_NOTF_COAL"));
        }
        self.command(Class::NOTF_COAL, command, &to.to_bytes(), 0).map(drop)
    }

    /// Coalesces all receive queues. In a thread: it waits for the device, as the others here.
    ///
    /// # Errors
    /// [`VirtioError::NotNegotiated`], or what the device answers.
    pub fn coalesce_receive(&self, to: Coalescing) -> Result<(), VirtioError> {
        self.coalesce_all(NOTF_COAL_RX_SET, to)
    }

    /// Coalesces all transmit queues.
    ///
    /// # Errors
    /// As [`Net::coalesce_receive`].
    pub fn coalesce_transmit(&self, to: Coalescing) -> Result<(), VirtioError> {
        self.coalesce_all(NOTF_COAL_TX_SET, to)
    }

    /// The data of a command for one queue.
    fn about_queue(&self, queue: u16, to: Coalescing) -> Result<[u8; coalescing_queue::BYTES], VirtioError> {
        if !self.info.features.has(VQ_NOTF_COAL) {
            return Err(VirtioError::NotNegotiated("VIRTIO_NET_F_VQ_NOTF_COAL"));
        }
        let last = u64::from(self.pairs) * 2 - 1;
        if u64::from(queue) > last {
            return Err(VirtioError::TooMany("the queue's number", queue.into(), last));
        }
        let mut data = [0; coalescing_queue::BYTES];
        data[coalescing_queue::QUEUE..][..2].copy_from_slice(&queue.to_le_bytes());
        data[coalescing_queue::COALESCING..].copy_from_slice(&to.to_bytes());
        Ok(data)
    }

    /// Coalesces one queue, by its number.
    ///
    /// # Errors
    /// As [`Net::coalesce_receive`]; [`VirtioError::TooMany`] when there is no such queue.
    pub fn coalesce_queue(&self, queue: u16, to: Coalescing) -> Result<(), VirtioError> {
        let data = self.about_queue(queue, to)?;
        self.command(Class::NOTF_COAL, NOTF_COAL_VQ_SET, &data, 0).map(drop)
    }

    /// The present coalescing of one queue, as the device reports it.
    ///
    /// # Errors
    /// As [`Net::coalesce_queue`].
    pub fn coalescing_of(&self, queue: u16) -> Result<Coalescing, VirtioError> {
        let data = self.about_queue(queue, Coalescing::default())?;
        let head = &data[..coalescing_queue::COALESCING];
        let result = self.command(Class::NOTF_COAL, NOTF_COAL_VQ_GET, head, coalescing::BYTES)?;
        Ok(Coalescing::from_bytes(&result))
    }
}

/// One receive queue, as a device for a moderation controller.
pub struct CoalescedQueue<H: Hal> {
    net: Arc<Net<H>>,
    pair: u16,
}

impl<H: Hal> CoalescedQueue<H> {
    /// Receive queue `pair` of `net`.
    pub fn new(net: Arc<Net<H>>, pair: u16) -> Self {
        Self { net, pair }
    }
}

impl<H: Hal> Moderated for CoalescedQueue<H> {
    /// A device may round the setting, so the driver reads back the actual one.
    fn program(&self, setting: Setting) -> Outcome {
        let queue = receive_queue(self.pair);
        if self.net.coalesce_queue(queue, setting.into()).is_err() {
            return Outcome::Failed;
        }
        Outcome::Done(self.net.coalescing_of(queue).map_or(setting, Setting::from))
    }
}

/// All receive queues together, as one device for a moderation controller.
pub struct CoalescedReceive<H: Hal>(
    /// The device.
    pub Arc<Net<H>>,
);

impl<H: Hal> Moderated for CoalescedReceive<H> {
    /// Only the command for one queue reports the device's actual value. Without it the driver assumes the requested
    /// value.
    fn program(&self, setting: Setting) -> Outcome {
        match self.0.coalesce_receive(setting.into()) {
            Ok(()) => Outcome::Done(self.0.coalescing_of(receive_queue(0)).map_or(setting, Setting::from)),
            Err(_) => Outcome::Failed,
        }
    }
}
