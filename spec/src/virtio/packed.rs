//! Packed virtqueues (VIRTIO 2.8): one ring of descriptors that both sides write, and an event suppression structure of
//! each side in the driver area and the device area.

use bitfield_struct::bitfield;

/// Most entries of a queue (VIRTIO 2.8: 2^15). The number need not be a power of two.
pub const ENTRIES_MAX: u16 = 1 << 15;
/// A descriptor, 16 bytes (VIRTIO 2.8.13): bytes 0–7 are the buffer's address, bytes 8–15 a [`PackedTail`].
pub const DESCRIPTOR_BYTES: usize = 16;
/// Alignment of the descriptor ring, in bytes.
pub const DESCRIPTORS_ALIGN: usize = 16;
/// An event suppression structure, in bytes.
pub const EVENT_BYTES: usize = 4;
/// Its alignment, in bytes.
pub const EVENT_ALIGN: usize = 4;

/// Bytes 8–15 of a descriptor.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct PackedTail {
    /// Available: length of the buffer. Used: bytes that the device has written.
    pub len_bytes: u32,
    /// The buffer's id, in the last descriptor of a list; used: of the whole buffer.
    pub id: u16,
    /// VIRTQ_DESC_F_NEXT: the buffer goes on in the next descriptor of the ring.
    pub has_next: bool,
    /// VIRTQ_DESC_F_WRITE: the device writes it. Used: the length counts.
    pub device_writes: bool,
    /// VIRTQ_DESC_F_INDIRECT: the buffer holds a table of descriptors.
    pub indirect: bool,
    #[bits(4)]
    __: u8,
    /// VIRTQ_DESC_F_AVAIL.
    pub avail: bool,
    #[bits(7)]
    __: u8,
    /// VIRTQ_DESC_F_USED.
    pub used: bool,
}
const _: () = assert!(size_of::<PackedTail>() + 8 == DESCRIPTOR_BYTES);

impl PackedTail {
    /// Made available in the lap with wrap counter `wrap` (VIRTIO 2.8.1: AVAIL as the counter, USED the inverse).
    #[must_use]
    pub const fn available_in(self, wrap: bool) -> Self {
        self.with_avail(wrap).with_used(!wrap)
    }

    /// Used in the lap with wrap counter `wrap` (both bits as the counter).
    #[must_use]
    pub const fn used_in(self, wrap: bool) -> Self {
        self.with_avail(wrap).with_used(wrap)
    }

    /// True if the driver has made it available in that lap.
    pub const fn is_available(self, wrap: bool) -> bool {
        self.avail() == wrap && self.used() != wrap
    }

    /// True if the device has used it in that lap.
    pub const fn is_used(self, wrap: bool) -> bool {
        self.avail() == wrap && self.used() == wrap
    }
}

/// Event suppression (VIRTIO 2.8.14).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct EventSuppression {
    /// With [`event::DESC`]: notify me when the descriptor at this offset is written,
    #[bits(15)]
    pub offset: u16,
    /// in the lap with this wrap counter.
    pub wrap: bool,
    /// One of [`event`].
    #[bits(2)]
    pub flags: u8,
    #[bits(14)]
    __: u16,
}
const _: () = assert!(size_of::<EventSuppression>() == EVENT_BYTES);

/// Values of [`EventSuppression::flags`] (VIRTIO 2.8.10). 3 is reserved.
pub mod event {
    /// RING_EVENT_FLAGS_ENABLE: notify me.
    pub const ENABLE: u8 = 0;
    /// RING_EVENT_FLAGS_DISABLE: do not.
    pub const DISABLE: u8 = 1;
    /// RING_EVENT_FLAGS_DESC: notify me of one descriptor. Only with VIRTIO_F_EVENT_IDX.
    pub const DESC: u8 = 2;
}

/// A position in a ring, and the wrap counter of its lap, which begins at 1 (VIRTIO 2.8.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    /// The descriptor.
    pub slot: u16,
    /// The wrap counter.
    pub wrap: bool,
}

impl Position {
    /// Before the first descriptor.
    pub const START: Self = Self { slot: 0, wrap: true };

    /// `count` descriptors further on, at most the ring's `entries`.
    #[must_use]
    pub const fn after(self, count: u16, entries: u16) -> Self {
        let slot = self.slot as u32 + count as u32;
        if slot >= entries as u32 {
            Self { slot: (slot - entries as u32) as u16, wrap: !self.wrap }
        } else {
            Self { slot: slot as u16, wrap: self.wrap }
        }
    }

    /// The structure that asks for a notification here.
    pub const fn event(self) -> EventSuppression {
        EventSuppression::new().with_offset(self.slot).with_wrap(self.wrap).with_flags(event::DESC)
    }

    /// Whether the last `count` descriptors before this position, at most a lap, contain the one that `event` names
    /// (VIRTIO 2.8.10).
    pub const fn has_passed(self, event: EventSuppression, count: u16, entries: u16) -> bool {
        let (new, offset) = (self.slot as i32, event.offset() as i32);
        let at = if event.wrap() == self.wrap { offset } else { offset - entries as i32 };
        new - count as i32 <= at && at < new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// VIRTIO 2.8.13: le64 addr, le32 len, le16 id, le16 flags; AVAIL is bit 7 and USED bit 15 of the flags.
    #[test]
    fn descriptors_are_those_of_the_standard() {
        let tail = PackedTail::new().with_len_bytes(0x1000).with_id(7).with_device_writes(true).with_has_next(true);
        assert_eq!(tail.available_in(true).into_bits(), 0x0083_0007_0000_1000);
        assert_eq!(tail.available_in(false).into_bits(), 0x8003_0007_0000_1000);
        assert_eq!(PackedTail::new().used_in(true).into_bits(), 0x8080_0000_0000_0000);
        assert_eq!(PackedTail::new().with_indirect(true).used_in(false).into_bits(), 0x0004_0000_0000_0000);
        let zero = PackedTail::new();
        assert!(!zero.is_available(true) && !zero.is_used(true), "a ring begins zero, with both counters 1");
    }

    /// VIRTIO 2.8.14: desc_event_off and desc_event_wrap, then flags of 2 bits.
    #[test]
    fn event_suppression_is_that_of_the_standard() {
        assert_eq!(Position { slot: 5, wrap: true }.event().into_bits(), 0x0002_8005);
        assert_eq!(Position { slot: 5, wrap: false }.event().into_bits(), 0x0002_0005);
        assert_eq!(EventSuppression::new().with_flags(event::DISABLE).into_bits(), 0x0001_0000);
    }

    #[test]
    fn positions_wrap_at_the_end_of_the_ring() {
        assert_eq!(Position::START.after(3, 4), Position { slot: 3, wrap: true });
        assert_eq!(Position::START.after(4, 4), Position { slot: 0, wrap: false });
        assert_eq!(Position { slot: 3, wrap: false }.after(3, 4), Position { slot: 2, wrap: true });
    }

    /// In a ring of 4: descriptors 3 of one lap and 0 of the next were written.
    #[test]
    fn an_event_is_passed_in_its_own_lap_only() {
        let now = Position { slot: 1, wrap: false };
        let passed = |slot, wrap| now.has_passed(Position { slot, wrap }.event(), 2, 4);
        assert!(passed(3, true) && passed(0, false));
        assert!(!passed(2, true) && !passed(1, false) && !passed(3, false) && !passed(0, true));
    }
}
