//! MSI-X: the table, the pending bits, the masks (PCI, "MSI-X Capability and Table Structures").

use super::identity::MsixPlace;
use spec::msi::{MsixControl, MsixVectorControl, msix_entry};

/// Where the pending bits begin in a BAR that holds nothing but MSI-X, with the table at 0.
pub const PBA_OFFSET: u32 = 0x8000;
/// Bytes of such a BAR: room for 2,048 vectors.
pub const MSIX_BAR_BYTES: u32 = 0x1_0000;

/// One table entry.
#[derive(Clone, Copy)]
struct Entry {
    address: u64,
    data: u32,
    control: MsixVectorControl,
}

/// Table, pending bits and message control.
pub(super) struct Msix {
    pub(super) control: MsixControl,
    entries: Box<[Entry]>,
    pending: Box<[u64]>,
    /// Bits set in `pending`, so that the common case is one comparison.
    pending_count: u32,
}

impl Msix {
    pub(super) fn new(vectors: u16) -> Self {
        let masked = Entry { address: 0, data: 0, control: MsixVectorControl::new().with_masked(true) };
        Self {
            control: MsixControl::new().with_table_size_less_one(vectors - 1),
            entries: vec![masked; vectors.into()].into(),
            pending: vec![0; usize::from(vectors).div_ceil(64)].into(),
            pending_count: 0,
        }
    }

    /// Reads 32 bits of table or pending bits. None at other offsets.
    pub(super) fn read(&self, place: MsixPlace, offset: u32) -> Option<u32> {
        if let Some(at) = offset.checked_sub(place.pending)
            && let Some(word) = self.pending.get(at as usize / 8)
        {
            return Some((word >> (at % 8 * 8)) as u32);
        }
        let at = offset.checked_sub(place.table)?;
        let entry = self.entries.get((at / msix_entry::SIZE) as usize)?;
        Some(match at % msix_entry::SIZE {
            msix_entry::ADDRESS_LOW => entry.address as u32,
            msix_entry::ADDRESS_HIGH => (entry.address >> 32) as u32,
            msix_entry::DATA => entry.data,
            _ => entry.control.into_bits(),
        })
    }

    /// Writes 32 bits of table or pending bits, which are read-only. False: of neither.
    pub(super) fn write(&mut self, place: MsixPlace, offset: u32, value: u32) -> bool {
        if offset.checked_sub(place.pending).is_some_and(|at| (at as usize / 8) < self.pending.len()) {
            return true;
        }
        let Some(at) = offset.checked_sub(place.table) else { return false };
        let Some(entry) = self.entries.get_mut((at / msix_entry::SIZE) as usize) else { return false };
        match at % msix_entry::SIZE {
            // Bits 1:0 of the address are zero always.
            msix_entry::ADDRESS_LOW => entry.address = entry.address >> 32 << 32 | u64::from(value & !3),
            msix_entry::ADDRESS_HIGH => entry.address = entry.address & 0xffff_ffff | u64::from(value) << 32,
            msix_entry::DATA => entry.data = value,
            _ => entry.control.set_masked(MsixVectorControl::from_bits(value).masked()),
        }
        true
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.control.enable()
    }

    pub(super) fn is_masked(&self, vector: u16) -> bool {
        self.control.function_mask() || self.entries[usize::from(vector)].control.masked()
    }

    pub(super) fn is_entry_masked(&self, vector: u16) -> bool {
        self.entries[usize::from(vector)].control.masked()
    }

    /// Address and data of the vector's message.
    pub(super) fn message(&self, vector: u16) -> (u64, u32) {
        let entry = &self.entries[usize::from(vector)];
        (entry.address, entry.data)
    }

    pub(super) fn set_pending(&mut self, vector: u16) {
        let word = &mut self.pending[usize::from(vector) / 64];
        self.pending_count += u32::from(*word >> (vector % 64) & 1 == 0);
        *word |= 1 << (vector % 64);
    }

    pub(super) fn clear_pending(&mut self, vector: u16) {
        if self.pending_count > 0 {
            let word = &mut self.pending[usize::from(vector) / 64];
            self.pending_count -= (*word >> (vector % 64) & 1) as u32;
            *word &= !(1 << (vector % 64));
        }
    }

    pub(super) fn forget_pending(&mut self) {
        self.pending.fill(0);
        self.pending_count = 0;
    }

    /// The first pending vector that may send now; its bit is cleared.
    pub(super) fn take_unmasked_pending(&mut self) -> Option<u16> {
        if self.pending_count == 0 || !self.is_enabled() {
            return None;
        }
        let pending = |vector: &u16| self.pending[usize::from(*vector) / 64] >> (vector % 64) & 1 == 1;
        let vector = (0..self.entries.len() as u16).filter(pending).find(|&vector| !self.is_masked(vector))?;
        self.clear_pending(vector);
        Some(vector)
    }
}
