//! Queued invalidation: the descriptors that interrupt remapping needs, 128 bits each.

use bitfield_struct::bitfield;

/// Bytes of one descriptor (128-bit form).
pub const SIZE: usize = 16;

/// Descriptor types: bits 3:0, with bits 6:4 of the type at 11:9 of the descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DescriptorType(pub u8);

impl DescriptorType {
    /// Interrupt-entry cache.
    pub const INTERRUPT_ENTRY_CACHE: Self = Self(0x4);
    /// Wait.
    pub const WAIT: Self = Self(0x5);
}

/// The type of a descriptor.
#[bitfield(u128)]
#[derive(PartialEq, Eq)]
pub struct Header {
    /// Bits 3:0 of the [`DescriptorType`].
    #[bits(4)]
    pub kind_low: u8,
    #[bits(5)]
    __: u8,
    /// Bits 6:4 of the [`DescriptorType`].
    #[bits(3)]
    pub kind_high: u8,
    #[bits(116)]
    __: u128,
}

/// VT-d, "Interrupt Entry Cache Invalidate Descriptor".
#[bitfield(u128)]
#[derive(PartialEq, Eq)]
pub struct InterruptEntryCache {
    /// [`DescriptorType::INTERRUPT_ENTRY_CACHE`].
    #[bits(4)]
    pub kind: u8,
    /// G: only the entries that index and mask name; 0 for all.
    pub selective: bool,
    #[bits(22)]
    __: u32,
    /// IM: the lowest bits of the index that do not count; at most ECAP.MHMV.
    #[bits(5)]
    pub index_mask: u8,
    /// IIDX: the entry.
    pub index: u16,
    #[bits(80)]
    __: u128,
}

impl InterruptEntryCache {
    /// Bits that must be 0 (bits 11:9 are the rest of the type).
    pub const RESERVED: u128 =
        !Self::new().with_kind(0xf).with_selective(true).with_index_mask(0x1f).with_index(u16::MAX).into_bits();
}

/// VT-d, "Invalidation Wait Descriptor".
#[bitfield(u128)]
#[derive(PartialEq, Eq)]
pub struct Wait {
    /// [`DescriptorType::WAIT`].
    #[bits(4)]
    pub kind: u8,
    /// IF: raise the invalidation completion event.
    pub interrupt: bool,
    /// SW: write the status.
    pub status_write: bool,
    /// FN: later descriptors wait for this one.
    pub fence: bool,
    /// PD: drain page requests.
    pub drain_page_requests: bool,
    #[bits(24)]
    __: u32,
    /// Written to the status address, 32 bits.
    pub status_data: u32,
    #[bits(2)]
    __: u8,
    /// Bits 63:2 of the address of the status.
    #[bits(62)]
    pub status_address_dwords: u64,
}

impl Wait {
    /// Bits that must be 0 (bits 11:9 are the rest of the type).
    pub const RESERVED: u128 = !Self::new()
        .with_kind(0xf)
        .with_interrupt(true)
        .with_status_write(true)
        .with_fence(true)
        .with_drain_page_requests(true)
        .with_status_data(u32::MAX)
        .with_status_address_dwords((1 << 62) - 1)
        .into_bits();
}

const _: () = {
    assert!(size_of::<Header>() == SIZE);
    assert!(size_of::<InterruptEntryCache>() == SIZE);
    assert!(size_of::<Wait>() == SIZE);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalidate_entry_0x17() {
        let descriptor = InterruptEntryCache::new()
            .with_kind(DescriptorType::INTERRUPT_ENTRY_CACHE.0)
            .with_selective(true)
            .with_index(0x17);
        assert_eq!(descriptor.into_bits(), 0x0000_0017_0000_0014);
        assert_eq!(InterruptEntryCache::new().with_index_mask(1).into_bits(), 1 << 27);
        assert_eq!(Header::from_bits(descriptor.into_bits()).kind_low(), 4);
    }

    #[test]
    fn wait_that_writes_5_to_0x1000() {
        let descriptor = Wait::new()
            .with_kind(DescriptorType::WAIT.0)
            .with_status_write(true)
            .with_fence(true)
            .with_status_data(5)
            .with_status_address_dwords(0x1000 >> 2);
        assert_eq!(descriptor.into_bits() as u64, 0x0000_0005_0000_0065);
        assert_eq!((descriptor.into_bits() >> 64) as u64, 0x1000);
        assert_eq!(Wait::RESERVED, 0x3 << 64 | 0xffff_ff00);
    }
}
