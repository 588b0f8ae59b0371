//! Virtio over MMIO, version 2 (VIRTIO 4.2.2, "MMIO Device Register Layout"). A register's type says its width
//! and what a driver may do.

use crate::register::{ReadOnly, ReadWrite, Register, WriteOnly};
use bitfield_struct::bitfield;

/// [`MAGIC_VALUE`].
pub const MAGIC: Register<u32, ReadOnly> = Register::at(0x000);
/// "virt".
pub const MAGIC_VALUE: u32 = 0x7472_6976;
/// [`VERSION_VALUE`]; 1 is a legacy device.
pub const VERSION: Register<u32, ReadOnly> = Register::at(0x004);
/// The version described here.
pub const VERSION_VALUE: u32 = 2;
/// A [`super::DeviceId`].
pub const DEVICE_ID: Register<u32, ReadOnly> = Register::at(0x008);
/// Vendor.
pub const VENDOR_ID: Register<u32, ReadOnly> = Register::at(0x00c);
/// The 32 feature bits that [`DEVICE_FEATURES_SEL`] names.
pub const DEVICE_FEATURES: Register<u32, ReadOnly> = Register::at(0x010);
/// Which half [`DEVICE_FEATURES`] shows: n for bits 32n to 32n + 31.
pub const DEVICE_FEATURES_SEL: Register<u32, WriteOnly> = Register::at(0x014);
/// The feature bits that the driver accepts, of the 32 bits that [`DRIVER_FEATURES_SEL`] selects.
pub const DRIVER_FEATURES: Register<u32, WriteOnly> = Register::at(0x020);
/// Which half [`DRIVER_FEATURES`] is, as [`DEVICE_FEATURES_SEL`].
pub const DRIVER_FEATURES_SEL: Register<u32, WriteOnly> = Register::at(0x024);
/// The queue that the `QUEUE_` registers are about.
pub const QUEUE_SEL: Register<u32, WriteOnly> = Register::at(0x030);
/// Most entries of the queue; 0 when there is no such queue.
pub const QUEUE_SIZE_MAX: Register<u32, ReadOnly> = Register::at(0x034);
/// Entries of the queue.
pub const QUEUE_SIZE: Register<u32, WriteOnly> = Register::at(0x038);
/// 1 starts the queue.
pub const QUEUE_READY: Register<u32, ReadWrite> = Register::at(0x044);
/// The number of a queue with new buffers.
pub const QUEUE_NOTIFY: Register<u32, WriteOnly> = Register::at(0x050);
/// An [`InterruptStatus`].
pub const INTERRUPT_STATUS: Register<u32, ReadOnly> = Register::at(0x060);
/// The bits of [`INTERRUPT_STATUS`] that were served.
pub const INTERRUPT_ACK: Register<u32, WriteOnly> = Register::at(0x064);
/// A [`super::Status`]; writing 0 resets the device.
pub const STATUS: Register<u32, ReadWrite> = Register::at(0x070);
/// Descriptor table, bits 31:0 of its address.
pub const QUEUE_DESC_LOW: Register<u32, WriteOnly> = Register::at(0x080);
/// Bits 63:32.
pub const QUEUE_DESC_HIGH: Register<u32, WriteOnly> = Register::at(0x084);
/// Driver area (available ring), bits 31:0.
pub const QUEUE_DRIVER_LOW: Register<u32, WriteOnly> = Register::at(0x090);
/// Bits 63:32.
pub const QUEUE_DRIVER_HIGH: Register<u32, WriteOnly> = Register::at(0x094);
/// Device area (used ring), bits 31:0.
pub const QUEUE_DEVICE_LOW: Register<u32, WriteOnly> = Register::at(0x0a0);
/// Bits 63:32.
pub const QUEUE_DEVICE_HIGH: Register<u32, WriteOnly> = Register::at(0x0a4);
/// With VIRTIO_F_RING_RESET: 1 resets the queue and reads 1 until that is done.
pub const QUEUE_RESET: Register<u32, ReadWrite> = Register::at(0x0c0);

/// MULTI_IRQ: how many interrupts the device has, 1 to [`VECTORS_MAX`]; 0 when it does not offer the extension.
///
/// Of the offsets that the standard leaves free (0x18, 0x1c, 0x28 to 0x2c of version 2, 0x54 to 0x5c, 0xc4 to 0xf8 and
/// some single ones) the extension takes one block. 0xc4 to 0xcc stay free beside QueueReset.
pub const VECTOR_COUNT: Register<u32, ReadOnly> = Register::at(0x0d0);
/// MULTI_IRQ: the vector of configuration changes, or [`super::NO_VECTOR`].
pub const CONFIG_VECTOR: Register<u32, ReadWrite> = Register::at(0x0d4);
/// MULTI_IRQ: the vector of the queue that [`QUEUE_SEL`] names, or [`super::NO_VECTOR`]. Changes only while the
/// queue is not ready.
pub const QUEUE_VECTOR: Register<u32, ReadWrite> = Register::at(0x0d8);
/// MULTI_IRQ: bit v says that vector v (below [`LEVEL_VECTORS`]) is level-triggered; all others are edges.
pub const VECTOR_LEVEL: Register<u32, ReadOnly> = Register::at(0x0dc);
/// MULTI_IRQ: bit v says that level-triggered vector v is asserted.
pub const VECTOR_STATUS: Register<u32, ReadOnly> = Register::at(0x0e0);
/// MULTI_IRQ: deasserts the level-triggered vectors whose bits are written as 1.
pub const VECTOR_ACK: Register<u32, WriteOnly> = Register::at(0x0e4);
/// Most vectors of a device (MULTI_IRQ): as many as MSI-X has.
pub const VECTORS_MAX: u32 = 2048;
/// Only vectors below this one may be level-triggered (MULTI_IRQ).
pub const LEVEL_VECTORS: u32 = 32;

/// Changes whenever the configuration does.
pub const CONFIG_GENERATION: Register<u32, ReadOnly> = Register::at(0x0fc);
/// The device type's configuration, accessed in the width of each field.
pub const CONFIG: u32 = 0x100;

/// Why the device interrupts (VIRTIO 4.2.2).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct InterruptStatus {
    /// A buffer was used in some queue. With MULTI_IRQ negotiated: never set.
    pub used_buffer: bool,
    /// The configuration has changed.
    pub config_change: bool,
    #[bits(30)]
    __: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_magic_value_spells_virt() {
        assert_eq!(&MAGIC_VALUE.to_le_bytes(), b"virt");
        assert_eq!(InterruptStatus::new().with_config_change(true).into_bits(), 2);
    }

    #[test]
    fn the_extension_is_clear_of_the_standard() {
        let standard = [QUEUE_RESET.offset(), CONFIG_GENERATION.offset(), CONFIG];
        let ours = [
            VECTOR_COUNT.offset(),
            CONFIG_VECTOR.offset(),
            QUEUE_VECTOR.offset(),
            VECTOR_LEVEL.offset(),
            VECTOR_STATUS.offset(),
            VECTOR_ACK.offset(),
        ];
        assert!(ours.iter().all(|offset| offset.is_multiple_of(4) && !standard.contains(offset)));
        assert!(ours.iter().all(|&offset| offset > QUEUE_RESET.offset() && offset < CONFIG_GENERATION.offset()));
    }
}
