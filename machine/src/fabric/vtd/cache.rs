//! The interrupt-entry cache.

/// Entries as they were at their first use. Entries that are not present or malformed are not cached, as without
/// CAP.CM (VT-d, "Caching Mode"). A slot of 0 is empty, because a cached entry has its present bit set.
#[derive(Default)]
pub(super) struct EntryCache {
    entries: Vec<u128>,
}

impl EntryCache {
    pub(super) fn get(&self, index: u16) -> Option<u128> {
        self.entries.get(usize::from(index)).copied().filter(|&bits| bits != 0)
    }

    pub(super) fn keep(&mut self, index: u16, bits: u128) {
        let index = usize::from(index);
        if self.entries.len() <= index {
            self.entries.resize((index + 1).next_power_of_two(), 0);
        }
        self.entries[index] = bits;
    }

    /// Invalidates `index` and all indices that differ from it only in the lowest `mask` bits.
    pub(super) fn invalidate(&mut self, index: u16, mask: u8) {
        let size = 1usize << mask.min(16);
        let first = usize::from(index) & !(size - 1);
        let end = (first + size).min(self.entries.len());
        if first < end {
            self.entries[first..end].fill(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_mask_names_an_aligned_group() {
        let mut cache = EntryCache::default();
        for index in 0..16 {
            cache.keep(index, 1);
        }
        cache.invalidate(0xb, 2);
        let left: Vec<u16> = (0..16).filter(|&index| cache.get(index).is_some()).collect();
        assert_eq!(left, [0, 1, 2, 3, 4, 5, 6, 7, 12, 13, 14, 15]);
        cache.invalidate(0xffff, 16);
        assert_eq!(cache.get(0), None);
    }
}
