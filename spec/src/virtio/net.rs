//! The network device (VIRTIO 5.1).

use super::feature::Feature;
use bitfield_struct::bitfield;

/// VIRTIO_NET_F_CSUM: the device completes checksums.
pub const CSUM: Feature = Feature(0);
/// VIRTIO_NET_F_GUEST_CSUM: the driver takes packets without complete checksums.
pub const GUEST_CSUM: Feature = Feature(1);
/// VIRTIO_NET_F_MTU: [`config::MTU`] is valid.
pub const MTU: Feature = Feature(3);
/// VIRTIO_NET_F_MAC: [`config::MAC`] is valid.
pub const MAC: Feature = Feature(5);
/// VIRTIO_NET_F_MRG_RXBUF: a packet may fill several receive buffers.
pub const MRG_RXBUF: Feature = Feature(15);
/// VIRTIO_NET_F_STATUS: [`config::STATUS`] is valid.
pub const STATUS: Feature = Feature(16);
/// VIRTIO_NET_F_CTRL_VQ: there is a control queue.
pub const CTRL_VQ: Feature = Feature(17);
/// VIRTIO_NET_F_MQ: several queue pairs, and [`config::MAX_QUEUE_PAIRS`] is valid.
pub const MQ: Feature = Feature(22);
/// VIRTIO_NET_F_VQ_NOTF_COAL: coalescing of each queue by itself.
pub const VQ_NOTF_COAL: Feature = Feature(52);
/// VIRTIO_NET_F_NOTF_COAL: coalescing of all receive and of all transmit queues.
pub const NOTF_COAL: Feature = Feature(53);

/// Fields of the configuration, in bytes from its start (VIRTIO 5.1.4).
pub mod config {
    /// Six bytes.
    pub const MAC: u32 = 0;
    /// 16 bits: a [`super::LinkStatus`].
    pub const STATUS: u32 = 6;
    /// 16 bits: 1 to 0x8000.
    pub const MAX_QUEUE_PAIRS: u32 = 8;
    /// 16 bits, bytes.
    pub const MTU: u32 = 10;
}

/// Most queue pairs (VIRTIO 5.1.5.1).
pub const QUEUE_PAIRS_MAX: u16 = 0x8000;

/// Configuration field `status`.
#[bitfield(u16)]
#[derive(PartialEq, Eq)]
pub struct LinkStatus {
    /// The link is up.
    pub link_up: bool,
    /// The driver is to announce itself.
    pub announce: bool,
    #[bits(14)]
    __: u16,
}

/// The number of receive queue `pair`, from 0 (VIRTIO 5.1.2).
pub const fn receive_queue(pair: u16) -> u16 {
    2 * pair
}

/// The number of transmit queue `pair`, from 0.
pub const fn transmit_queue(pair: u16) -> u16 {
    2 * pair + 1
}

/// The number of the control queue of a device with `pairs` queue pairs, used or not.
pub const fn control_queue(pairs: u16) -> u16 {
    2 * pairs
}

/// The header before each packet (VIRTIO 5.1.6): offsets in bytes. It has 12 with VIRTIO_F_VERSION_1.
pub mod header {
    /// 8 bits.
    pub const FLAGS: usize = 0;
    /// 8 bits; 0: no segmentation.
    pub const GSO_TYPE: usize = 1;
    /// 16 bits.
    pub const HDR_LEN: usize = 2;
    /// 16 bits.
    pub const GSO_SIZE: usize = 4;
    /// 16 bits.
    pub const CSUM_START: usize = 6;
    /// 16 bits.
    pub const CSUM_OFFSET: usize = 8;
    /// 16 bits: receive buffers that the packet fills; 1 without VIRTIO_NET_F_MRG_RXBUF.
    pub const NUM_BUFFERS: usize = 10;
    /// Length.
    pub const BYTES: usize = 12;
}

/// Class of a control command (VIRTIO 5.1.6.5). A command is class and command, a byte each, then its data; the device
/// writes one byte, an [`Ack`], and behind it the result, if the command has one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Class(pub u8);

impl Class {
    /// Queue pairs and steering.
    pub const MQ: Self = Self(4);
    /// Notification coalescing.
    pub const NOTF_COAL: Self = Self(6);
}

/// Command of [`Class::MQ`]: use so many queue pairs (16 bits).
pub const MQ_VQ_PAIRS_SET: u8 = 0;
/// Command of [`Class::NOTF_COAL`]: all transmit queues, a [`coalescing`] of 8 bytes.
pub const NOTF_COAL_TX_SET: u8 = 0;
/// Command of [`Class::NOTF_COAL`]: all receive queues, a [`coalescing`] of 8 bytes.
pub const NOTF_COAL_RX_SET: u8 = 1;
/// Command of [`Class::NOTF_COAL`]: one queue, a [`coalescing_queue`].
pub const NOTF_COAL_VQ_SET: u8 = 2;
/// Command of [`Class::NOTF_COAL`]: asks for one queue's. Its data are the first 4 bytes of a [`coalescing_queue`]
/// (Linux sends 2), its result is a [`coalescing`] behind the [`Ack`].
pub const NOTF_COAL_VQ_GET: u8 = 3;

/// struct virtio_net_ctrl_coal (VIRTIO 5.1.6.5.7): offsets in bytes.
pub mod coalescing {
    /// 32 bits: packets after which a notification is due.
    pub const MAX_PACKETS: usize = 0;
    /// 32 bits: microseconds after which one is due.
    pub const MAX_USECS: usize = 4;
    /// Length.
    pub const BYTES: usize = 8;
}

/// struct virtio_net_ctrl_coal_vq (VIRTIO 5.1.6.5.7): offsets in bytes.
pub mod coalescing_queue {
    /// 16 bits: number of the queue; 16 reserved bits follow.
    pub const QUEUE: usize = 0;
    /// A [`super::coalescing`].
    pub const COALESCING: usize = 4;
    /// Length.
    pub const BYTES: usize = 12;
}

/// The device's answer to a control command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ack(pub u8);

impl Ack {
    /// Done.
    pub const OK: Self = Self(0);
    /// Refused.
    pub const ERR: Self = Self(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_numbered_in_pairs() {
        assert_eq!([receive_queue(0), transmit_queue(0), receive_queue(7), transmit_queue(7)], [0, 1, 14, 15]);
        assert_eq!(control_queue(8), 16);
        assert_eq!(header::BYTES, header::NUM_BUFFERS + 2);
        assert_eq!(coalescing_queue::BYTES, coalescing_queue::COALESCING + coalescing::BYTES);
    }
}
