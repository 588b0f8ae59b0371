//! The block device (VIRTIO 5.2).

use super::feature::Feature;

/// VIRTIO_BLK_F_SIZE_MAX: [`config::SIZE_MAX`] is valid.
pub const SIZE_MAX: Feature = Feature(1);
/// VIRTIO_BLK_F_SEG_MAX: [`config::SEG_MAX`] is valid.
pub const SEG_MAX: Feature = Feature(2);
/// VIRTIO_BLK_F_RO: read-only.
pub const RO: Feature = Feature(5);
/// VIRTIO_BLK_F_BLK_SIZE: [`config::BLK_SIZE`] is valid.
pub const BLK_SIZE: Feature = Feature(6);
/// VIRTIO_BLK_F_FLUSH: it can flush its cache.
pub const FLUSH: Feature = Feature(9);
/// VIRTIO_BLK_F_MQ: several queues, and [`config::NUM_QUEUES`] is valid.
pub const MQ: Feature = Feature(12);

/// Fields of the configuration, in bytes from its start (VIRTIO 5.2.4).
pub mod config {
    /// 64 bits, as two of 32: sectors of 512 bytes.
    pub const CAPACITY: u32 = 0;
    /// 32 bits: longest segment, in bytes.
    pub const SIZE_MAX: u32 = 8;
    /// 32 bits: most segments of a request.
    pub const SEG_MAX: u32 = 12;
    /// 32 bits: best block size, in bytes.
    pub const BLK_SIZE: u32 = 20;
    /// 16 bits.
    pub const NUM_QUEUES: u32 = 34;
}

/// Bytes of a sector, whatever the block size.
pub const SECTOR_BYTES: u32 = 512;

/// Header of a request, which the device reads first (VIRTIO 5.2.6): offsets in bytes. Data follow, then one byte that
/// the device writes: an [`Outcome`].
pub mod header {
    /// 32 bits: a [`super::Request`]; 32 reserved bits follow.
    pub const TYPE: usize = 0;
    /// 64 bits: the first sector; 0 for requests without a sector.
    pub const SECTOR: usize = 8;
    /// Length.
    pub const BYTES: usize = 16;
}

/// The type of the request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request(pub u32);

impl Request {
    /// Read.
    pub const IN: Self = Self(0);
    /// Write.
    pub const OUT: Self = Self(1);
    /// Flush.
    pub const FLUSH: Self = Self(4);
    /// The device's name, [`ID_BYTES`] long.
    pub const GET_ID: Self = Self(8);
}

/// Length of the device's name, in bytes; a shorter one ends with a zero.
pub const ID_BYTES: usize = 20;

/// How a request ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome(pub u8);

impl Outcome {
    /// Success.
    pub const OK: Self = Self(0);
    /// With an error of the device or the driver.
    pub const IOERR: Self = Self(1);
    /// The device cannot do that.
    pub const UNSUPP: Self = Self(2);
}
