//! Split virtqueues (VIRTIO 2.7): descriptor table, available ring (driver area), used ring (device area).

use bitfield_struct::bitfield;

/// Most entries of a queue (VIRTIO 2.7: 32768); the number is a power of two.
pub const ENTRIES_MAX: u16 = 1 << 15;

/// A descriptor, 16 bytes (VIRTIO 2.7.5): bytes 0–7 are the buffer's address, bytes 8–15 a [`DescriptorTail`].
pub const DESCRIPTOR_BYTES: usize = 16;
/// Alignment of the descriptor table, in bytes.
pub const DESCRIPTORS_ALIGN: usize = 16;
/// Alignment of the available ring, in bytes.
pub const AVAILABLE_ALIGN: usize = 2;
/// Alignment of the used ring, in bytes.
pub const USED_ALIGN: usize = 4;

/// Bytes 8–15 of a descriptor.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct DescriptorTail {
    /// Length of the buffer in bytes.
    pub len_bytes: u32,
    /// VIRTQ_DESC_F_NEXT: the buffer goes on in the descriptor [`DescriptorTail::next`].
    pub has_next: bool,
    /// VIRTQ_DESC_F_WRITE: the device writes it (otherwise: reads).
    pub device_writes: bool,
    /// VIRTQ_DESC_F_INDIRECT: the buffer holds a table of descriptors.
    pub indirect: bool,
    #[bits(13)]
    __: u16,
    /// Index of the next descriptor.
    pub next: u16,
}
const _: () = assert!(size_of::<DescriptorTail>() + 8 == DESCRIPTOR_BYTES);

/// The available ring (VIRTIO 2.7.6): flags, index, one descriptor index an entry, used_event. Fields have 16 bits.
pub mod available {
    /// Offset of the flags.
    pub const FLAGS: usize = 0;
    /// Flag VIRTQ_AVAIL_F_NO_INTERRUPT: do not notify me of used buffers. 0 with VIRTIO_F_EVENT_IDX.
    pub const NO_INTERRUPT: u16 = 1;
    /// Offset of the index: where the driver puts the next entry, wrapping at 16 bits.
    pub const INDEX: usize = 2;

    /// Offset of entry `slot`, below `entries`.
    pub const fn entry(slot: u16) -> usize {
        4 + 2 * slot as usize
    }

    /// Offset of used_event: with VIRTIO_F_EVENT_IDX, notify me when the used index passes this one.
    pub const fn used_event(entries: u16) -> usize {
        4 + 2 * entries as usize
    }

    /// Length of the ring in bytes.
    pub const fn bytes(entries: u16) -> usize {
        6 + 2 * entries as usize
    }
}

/// The used ring (VIRTIO 2.7.8): flags, index, entries of id and length (32 bits each), avail_event.
pub mod used {
    /// Offset of the flags, 16 bits.
    pub const FLAGS: usize = 0;
    /// Flag VIRTQ_USED_F_NO_NOTIFY: do not notify me of new buffers. 0 with VIRTIO_F_EVENT_IDX.
    pub const NO_NOTIFY: u16 = 1;
    /// Offset of the index, 16 bits: where the device puts the next entry, wrapping.
    pub const INDEX: usize = 2;

    /// Offset of the id in entry `slot`, below `entries`: the first descriptor of the chain.
    pub const fn id(slot: u16) -> usize {
        4 + 8 * slot as usize
    }

    /// Offset of the length in entry `slot`: bytes that the device has written.
    pub const fn length(slot: u16) -> usize {
        8 + 8 * slot as usize
    }

    /// Offset of avail_event, 16 bits: with VIRTIO_F_EVENT_IDX, notify me when the available index passes this one.
    pub const fn avail_event(entries: u16) -> usize {
        4 + 8 * entries as usize
    }

    /// Length of the ring in bytes.
    pub const fn bytes(entries: u16) -> usize {
        6 + 8 * entries as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// VIRTIO 2.7: 16, 6 + 2·entries and 6 + 8·entries bytes.
    #[test]
    fn a_queue_of_256_entries() {
        assert_eq!((available::bytes(256), available::used_event(256), available::entry(255)), (518, 516, 514));
        assert_eq!(
            (used::bytes(256), used::avail_event(256), used::id(255), used::length(255)),
            (2054, 2052, 2044, 2048)
        );
        let tail =
            DescriptorTail::new().with_len_bytes(0x1000).with_device_writes(true).with_has_next(true).with_next(7);
        assert_eq!(tail.into_bits(), 0x0007_0003_0000_1000);
        assert_eq!(DescriptorTail::new().with_indirect(true).into_bits(), 0x0004_0000_0000);
    }
}
