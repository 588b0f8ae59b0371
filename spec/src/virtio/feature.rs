//! Feature bits (VIRTIO 2.2 and 6) of transports and queues. The bits of a device type are in its module.
//!
//! A driver and a device have 64 of them; bits 64 to 127, which no device of this tree has, are left out.

use core::fmt;

/// The number of a feature bit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Feature(pub u8);

impl Feature {
    /// VIRTIO_F_INDIRECT_DESC: descriptors may point at tables of descriptors.
    pub const INDIRECT_DESC: Self = Self(28);
    /// VIRTIO_F_EVENT_IDX: either side says at which index it wants to be notified.
    pub const EVENT_IDX: Self = Self(29);
    /// VIRTIO_F_VERSION_1: not a legacy device.
    pub const VERSION_1: Self = Self(32);
    /// VIRTIO_F_ACCESS_PLATFORM: the device's memory accesses are translated.
    pub const ACCESS_PLATFORM: Self = Self(33);
    /// VIRTIO_F_RING_PACKED: packed virtqueues.
    pub const RING_PACKED: Self = Self(34);
    /// VIRTIO_F_IN_ORDER: buffers are used in the order in which they were made available.
    pub const IN_ORDER: Self = Self(35);
    /// VIRTIO_F_ORDER_PLATFORM: the device needs the barriers of real hardware.
    pub const ORDER_PLATFORM: Self = Self(36);
    /// VIRTIO_F_NOTIFICATION_DATA: notifications carry more than the queue's number.
    pub const NOTIFICATION_DATA: Self = Self(38);
    /// VIRTIO_F_NOTIF_CONFIG_DATA: the device sets the data that a notification must carry.
    pub const NOTIF_CONFIG_DATA: Self = Self(39);
    /// VIRTIO_F_RING_RESET: queues can be reset one at a time.
    pub const RING_RESET: Self = Self(40);
    /// VIRTIO_F_ADMIN_VQ: there is an administration virtqueue.
    pub const ADMIN_VQ: Self = Self(41);
    /// VIRTIO_F_MULTI_IRQ (MULTI_IRQ): a device on the MMIO transport has several interrupts. The lowest bit that the
    /// standard leaves free: 24 to 43 are taken or held back, 50 to 127 belong to device types.
    pub const MULTI_IRQ: Self = Self(44);
}

/// A set of features.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Features(pub u64);

impl Features {
    /// None.
    pub const NONE: Self = Self(0);

    /// These.
    pub const fn of(list: &[Feature]) -> Self {
        let mut bits = 0;
        let mut index = 0;
        while index < list.len() {
            bits |= 1 << list[index].0;
            index += 1;
        }
        Self(bits)
    }

    /// True if the set contains `feature`.
    pub const fn has(self, feature: Feature) -> bool {
        self.0 >> feature.0 & 1 != 0
    }

    /// With `feature` too.
    #[must_use]
    pub const fn with(self, feature: Feature) -> Self {
        Self(self.0 | 1 << feature.0)
    }

    /// Without `feature`.
    #[must_use]
    pub const fn without(self, feature: Feature) -> Self {
        Self(self.0 & !(1 << feature.0))
    }

    /// The features in both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The features in either set.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Debug for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Features({:#x})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_bits_by_number() {
        let set = Features::of(&[Feature::VERSION_1, Feature::EVENT_IDX, Feature::MULTI_IRQ]);
        assert_eq!(set.0, 0x1001_2000_0000);
        assert!(set.has(Feature::MULTI_IRQ) && !set.has(Feature::INDIRECT_DESC));
        assert_eq!(set.without(Feature::VERSION_1), Features::of(&[Feature(29), Feature(44)]));
    }
}
