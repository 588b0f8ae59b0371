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
    /// In the notification capability: bytes from one queue_notify_off to the next.
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

/// The structure to which a capability points (cfg_type).
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

/// Registers of the common configuration, from its start; each is accessed in its own width (VIRTIO 4.1.4.3).
pub mod common {
    use crate::register::{ReadOnly, ReadWrite, Register, Registers};

    /// Which 32 bits [`DEVICE_FEATURE`] shows.
    pub const DEVICE_FEATURE_SELECT: Register<u32, ReadWrite> = Register::at(0);
    /// Features that the device offers.
    pub const DEVICE_FEATURE: Register<u32, ReadOnly> = Register::at(4);
    /// Which 32 bits [`DRIVER_FEATURE`] shows.
    pub const DRIVER_FEATURE_SELECT: Register<u32, ReadWrite> = Register::at(8);
    /// Features that the driver accepts.
    pub const DRIVER_FEATURE: Register<u32, ReadWrite> = Register::at(12);
    /// MSI-X entry of configuration changes, or [`NO_VECTOR`](crate::virtio::NO_VECTOR).
    pub const CONFIG_MSIX_VECTOR: Register<u16, ReadWrite> = Register::at(16);
    /// Queues.
    pub const NUM_QUEUES: Register<u16, ReadOnly> = Register::at(18);
    /// A [`Status`](crate::virtio::Status).
    pub const DEVICE_STATUS: Register<u8, ReadWrite> = Register::at(20);
    /// Changes whenever the configuration does.
    pub const CONFIG_GENERATION: Register<u8, ReadOnly> = Register::at(21);
    /// The queue that the rest is about.
    pub const QUEUE_SELECT: Register<u16, ReadWrite> = Register::at(22);
    /// Reads the most entries, until it is written.
    pub const QUEUE_SIZE: Register<u16, ReadWrite> = Register::at(24);
    /// MSI-X entry of the queue, or [`NO_VECTOR`](crate::virtio::NO_VECTOR).
    pub const QUEUE_MSIX_VECTOR: Register<u16, ReadWrite> = Register::at(26);
    /// 1 starts the queue; 0 must not be written.
    pub const QUEUE_ENABLE: Register<u16, ReadWrite> = Register::at(28);
    /// Place of the queue's notification register.
    pub const QUEUE_NOTIFY_OFF: Register<u16, ReadOnly> = Register::at(30);
    /// Lower and upper half of the address of the descriptor table.
    pub const QUEUE_DESC: Registers<u32, ReadWrite> = Registers::at(32, 2);
    /// Lower and upper half of the address of the available ring.
    pub const QUEUE_DRIVER: Registers<u32, ReadWrite> = Registers::at(40, 2);
    /// Lower and upper half of the address of the used ring.
    pub const QUEUE_DEVICE: Registers<u32, ReadWrite> = Registers::at(48, 2);
    /// With VIRTIO_F_NOTIF_CONFIG_DATA.
    pub const QUEUE_NOTIF_CONFIG_DATA: Register<u16, ReadOnly> = Register::at(56);
    /// With VIRTIO_F_RING_RESET.
    pub const QUEUE_RESET: Register<u16, ReadWrite> = Register::at(58);
    /// Length of the described structure, in bytes.
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
