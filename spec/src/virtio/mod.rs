//! Virtual I/O devices: features, the two register transports, split and packed virtqueues, the network and block devices.
//!
//! Source: OASIS Virtual I/O Device (VIRTIO) version 1.3, cited as "VIRTIO" with the clause. What belongs to our extension
//! of virtio over MMIO is marked "MULTI_IRQ" and defined in `docs/virtio-mmio-multi-irq.md`. All fields are
//! little-endian: legacy devices (before 1.0) are left out.

pub mod block;
pub mod feature;
pub mod mmio;
pub mod net;
pub mod packed;
pub mod pci;
pub mod ring;
pub mod wired;

use bitfield_struct::bitfield;

/// The vector that is none (VIRTIO 4.1.4.3, VIRTIO_MSI_NO_VECTOR; MULTI_IRQ the same).
pub const NO_VECTOR: u16 = 0xffff;

/// The device type (VIRTIO 5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceId(pub u32);

impl DeviceId {
    /// No device: a placeholder, to be passed over.
    pub const NONE: Self = Self(0);
    /// Network card.
    pub const NET: Self = Self(1);
    /// Block device.
    pub const BLOCK: Self = Self(2);
}

/// Device status (VIRTIO 2.1). Writing 0 resets.
#[bitfield(u8)]
#[derive(PartialEq, Eq)]
pub struct Status {
    /// The driver has noticed the device.
    pub acknowledge: bool,
    /// The driver knows how to drive it.
    pub driver: bool,
    /// The driver is ready.
    pub driver_ok: bool,
    /// The driver has chosen its features; reads back 0 when the device cannot work with them.
    pub features_ok: bool,
    #[bits(2)]
    __: u8,
    /// The device has met an error that only a reset ends.
    pub needs_reset: bool,
    /// The driver has given up.
    pub failed: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_bits_are_those_of_the_standard() {
        let all = Status::new().with_acknowledge(true).with_driver(true).with_features_ok(true).with_driver_ok(true);
        assert_eq!(all.into_bits(), 1 | 2 | 8 | 4);
        assert_eq!(Status::new().with_needs_reset(true).into_bits(), 64);
        assert_eq!(Status::new().with_failed(true).into_bits(), 128);
    }
}
