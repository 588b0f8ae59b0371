//! Virtio over PCI (VIRTIO 4.1): the vendor capabilities that say where the structures are, and the structures.

use super::DeviceId;
use bitfield_struct::bitfield;

/// PCI vendor of virtio devices.
pub const VENDOR: u16 = 0x1af4;

/// PCI device id of a non-transitional device (VIRTIO 4.1.2).
pub const fn device(id: DeviceId) -> u16 {
    0x1040 + id.0 as u16
}

/// Id of a vendor-specific capability.
pub const CAPABILITY_ID: u8 = 0x09;

/// Fields of a virtio capability, in bytes from its start (VIRTIO 4.1.4).
pub mod capability {
    /// Id, next, length and type: a [`super::CapabilityHead`].
    pub const HEAD: u32 = 0;
    /// BAR, id: a [`super::CapabilityPlace`].
    pub const PLACE: u32 = 4;
    /// Offset in the BAR, in bytes.
    pub const OFFSET: u32 = 8;
    /// Length of the structure, in bytes.
    pub const LENGTH: u32 = 12;
    /// Of the notification capability: bytes from one queue_notify_off to the next.
    pub const NOTIFY_MULTIPLIER: u32 = 16;
    /// Shortest capability, in bytes.
    pub const BYTES: u8 = 16;
    /// Shortest notification capability, in bytes.
    pub const NOTIFY_BYTES: u8 = 20;
}

/// First word of a virtio capability.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct CapabilityHead {
    /// [`CAPABILITY_ID`].
    pub id: u8,
    /// Offset of the next capability; 0 ends the list.
    pub next: u8,
    /// Length of this one in bytes.
    pub length_bytes: u8,
    /// A [`Structure`].
    pub structure: u8,
}

/// Second word of a virtio capability.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct CapabilityPlace {
    /// Base address register, 0 to 5; others are to be ignored.
    pub bar: u8,
    /// Tells several of one type apart.
    pub id: u8,
    __: u16,
}

/// What a capability points at (cfg_type).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Structure(pub u8);

impl Structure {
    /// [`common`].
    pub const COMMON: Self = Self(1);
    /// Notifications: a write of 16 bits at queue_notify_off times the multiplier.
    pub const NOTIFY: Self = Self(2);
    /// One byte, an [`Isr`].
    pub const ISR: Self = Self(3);
    /// The device type's configuration.
    pub const DEVICE: Self = Self(4);
    /// Access by way of configuration space.
    pub const PCI: Self = Self(5);
}

/// Fields of the common configuration, in bytes from its start; each is accessed in its own width (VIRTIO 4.1.4.3).
pub mod common {
    /// RW, 32 bits.
    pub const DEVICE_FEATURE_SELECT: u32 = 0;
    /// R, 32 bits.
    pub const DEVICE_FEATURE: u32 = 4;
    /// RW, 32 bits.
    pub const DRIVER_FEATURE_SELECT: u32 = 8;
    /// RW, 32 bits.
    pub const DRIVER_FEATURE: u32 = 12;
    /// RW, 16 bits: MSI-X entry of configuration changes, or [`NO_VECTOR`](crate::virtio::NO_VECTOR).
    pub const CONFIG_MSIX_VECTOR: u32 = 16;
    /// R, 16 bits.
    pub const NUM_QUEUES: u32 = 18;
    /// RW, 8 bits: a [`Status`](crate::virtio::Status).
    pub const DEVICE_STATUS: u32 = 20;
    /// R, 8 bits.
    pub const CONFIG_GENERATION: u32 = 21;
    /// RW, 16 bits: the queue that the rest is about.
    pub const QUEUE_SELECT: u32 = 22;
    /// RW, 16 bits: reads the most entries, until it is written.
    pub const QUEUE_SIZE: u32 = 24;
    /// RW, 16 bits: MSI-X entry of the queue, or [`NO_VECTOR`](crate::virtio::NO_VECTOR).
    pub const QUEUE_MSIX_VECTOR: u32 = 26;
    /// RW, 16 bits: 1 starts the queue; 0 must not be written.
    pub const QUEUE_ENABLE: u32 = 28;
    /// R, 16 bits.
    pub const QUEUE_NOTIFY_OFF: u32 = 30;
    /// RW, 64 bits, as two of 32: descriptor table.
    pub const QUEUE_DESC: u32 = 32;
    /// RW, 64 bits, as two of 32: available ring.
    pub const QUEUE_DRIVER: u32 = 40;
    /// RW, 64 bits, as two of 32: used ring.
    pub const QUEUE_DEVICE: u32 = 48;
    /// R, 16 bits: with VIRTIO_F_NOTIF_CONFIG_DATA.
    pub const QUEUE_NOTIF_CONFIG_DATA: u32 = 56;
    /// RW, 16 bits: with VIRTIO_F_RING_RESET.
    pub const QUEUE_RESET: u32 = 58;
    /// Length of what is described here, in bytes.
    pub const BYTES: u32 = 60;
}

/// Interrupt status; a read clears it (VIRTIO 4.1.4.5). Not used with MSI-X.
#[bitfield(u8)]
#[derive(PartialEq, Eq)]
pub struct Isr {
    /// A buffer was used in some queue.
    pub queue: bool,
    /// The configuration has changed.
    pub configuration: bool,
    #[bits(6)]
    __: u8,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_notification_capability() {
        let head = CapabilityHead::from_bits(0x0214_4009);
        assert_eq!((head.id(), head.next(), head.length_bytes()), (CAPABILITY_ID, 0x40, capability::NOTIFY_BYTES));
        assert_eq!(Structure(head.structure()), Structure::NOTIFY);
        assert_eq!(device(DeviceId::NET), 0x1041);
    }
}
