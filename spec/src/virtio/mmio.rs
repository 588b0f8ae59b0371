//! Virtio over MMIO, version 2 (VIRTIO 4.2.2, "MMIO Device Register Layout"). Registers have 32 bits; offsets are in
//! bytes. `R`, `W` and `RW` say what a driver may do.

use bitfield_struct::bitfield;

/// R: [`MAGIC_VALUE`].
pub const MAGIC: u32 = 0x000;
/// "virt".
pub const MAGIC_VALUE: u32 = 0x7472_6976;
/// R: [`VERSION_VALUE`]; 1 is a legacy device.
pub const VERSION: u32 = 0x004;
/// The version described here.
pub const VERSION_VALUE: u32 = 2;
/// R: a [`super::DeviceId`].
pub const DEVICE_ID: u32 = 0x008;
/// R: vendor.
pub const VENDOR_ID: u32 = 0x00c;
/// R: the 32 feature bits that [`DEVICE_FEATURES_SEL`] names.
pub const DEVICE_FEATURES: u32 = 0x010;
/// W: n for bits 32n to 32n + 31.
pub const DEVICE_FEATURES_SEL: u32 = 0x014;
/// W: the 32 feature bits that the driver accepts of those that [`DRIVER_FEATURES_SEL`] names.
pub const DRIVER_FEATURES: u32 = 0x020;
/// W: as [`DEVICE_FEATURES_SEL`].
pub const DRIVER_FEATURES_SEL: u32 = 0x024;
/// W: the queue that the `QUEUE_` registers are about.
pub const QUEUE_SEL: u32 = 0x030;
/// R: most entries of the queue; 0 when there is no such queue.
pub const QUEUE_SIZE_MAX: u32 = 0x034;
/// W: entries of the queue.
pub const QUEUE_SIZE: u32 = 0x038;
/// RW: 1 starts the queue.
pub const QUEUE_READY: u32 = 0x044;
/// W: the number of a queue with new buffers.
pub const QUEUE_NOTIFY: u32 = 0x050;
/// R: an [`InterruptStatus`].
pub const INTERRUPT_STATUS: u32 = 0x060;
/// W: the bits of [`INTERRUPT_STATUS`] that were served.
pub const INTERRUPT_ACK: u32 = 0x064;
/// RW: a [`super::Status`]; writing 0 resets the device.
pub const STATUS: u32 = 0x070;
/// W: descriptor table, bits 31:0 of its address; the next register has bits 63:32. Likewise the next two.
pub const QUEUE_DESC_LOW: u32 = 0x080;
/// W: upper half.
pub const QUEUE_DESC_HIGH: u32 = 0x084;
/// W: driver area (available ring).
pub const QUEUE_DRIVER_LOW: u32 = 0x090;
/// W: upper half.
pub const QUEUE_DRIVER_HIGH: u32 = 0x094;
/// W: device area (used ring).
pub const QUEUE_DEVICE_LOW: u32 = 0x0a0;
/// W: upper half.
pub const QUEUE_DEVICE_HIGH: u32 = 0x0a4;
/// RW, with VIRTIO_F_RING_RESET: 1 resets the queue and reads 1 until that is done.
pub const QUEUE_RESET: u32 = 0x0c0;

/// R (MULTI_IRQ): how many interrupts the device has, 1 to [`VECTORS_MAX`]; 0 when it does not offer the extension.
///
/// Of the offsets that the standard leaves free (0x18, 0x1c, 0x28 to 0x2c of version 2, 0x54 to 0x5c, 0xc4 to 0xf8 and
/// some single ones) the extension takes one block. 0xc4 to 0xcc stay free beside QueueReset.
pub const VECTOR_COUNT: u32 = 0x0d0;
/// RW (MULTI_IRQ): the vector of configuration changes, or [`super::NO_VECTOR`].
pub const CONFIG_VECTOR: u32 = 0x0d4;
/// RW (MULTI_IRQ): the vector of the queue that [`QUEUE_SEL`] names, or [`super::NO_VECTOR`]. Changes only while the
/// queue is not ready.
pub const QUEUE_VECTOR: u32 = 0x0d8;
/// R (MULTI_IRQ): bit v says that vector v (below [`LEVEL_VECTORS`]) is level-triggered; all others are edges.
pub const VECTOR_LEVEL: u32 = 0x0dc;
/// R (MULTI_IRQ): bit v says that level-triggered vector v is asserted.
pub const VECTOR_STATUS: u32 = 0x0e0;
/// W (MULTI_IRQ): deasserts the level-triggered vectors whose bits are written as 1.
pub const VECTOR_ACK: u32 = 0x0e4;
/// Most vectors of a device (MULTI_IRQ): as many as MSI-X has.
pub const VECTORS_MAX: u32 = 2048;
/// Only vectors below this one may be level-triggered (MULTI_IRQ).
pub const LEVEL_VECTORS: u32 = 32;

/// R: changes whenever the configuration does.
pub const CONFIG_GENERATION: u32 = 0x0fc;
/// RW: the device type's configuration, accessed in the width of each field.
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
        let standard = [QUEUE_RESET, CONFIG_GENERATION, CONFIG];
        let ours = [VECTOR_COUNT, CONFIG_VECTOR, QUEUE_VECTOR, VECTOR_LEVEL, VECTOR_STATUS, VECTOR_ACK];
        assert!(ours.iter().all(|offset| offset.is_multiple_of(4) && !standard.contains(offset)));
        assert!(ours.iter().all(|&offset| offset > QUEUE_RESET && offset < CONFIG_GENERATION));
    }
}
