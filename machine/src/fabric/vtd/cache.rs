//! The interrupt-entry cache.

use std::collections::VecDeque;

/// Entries as they were at their first use. Entries that are not present or malformed are not cached, as without
/// CAP.CM (VT-d, "Caching Mode"). A slot of 0 is empty, because a cached entry has its present bit set.
#[derive(Default)]
pub(super) struct EntryCache {
    entries: Vec<u128>,
    /// So many places, after which the oldest entry is forgotten; 0: no bound. Software cannot know how many there are.
    places: usize,
    /// The indices in them, the oldest first; only with a bound.
    kept: VecDeque<u16>,
}

impl EntryCache {
    pub(super) fn get(&self, index: u16) -> Option<u128> {
        self.entries.get(usize::from(index)).copied().filter(|&bits| bits != 0)
    }

    /// Forgets everything, and has so many places from now on; 0: no bound.
    pub(super) fn set_places(&mut self, places: usize) {
        *self = Self { places, ..Self::default() };
    }

    pub(super) fn keep(&mut self, index: u16, bits: u128) {
        if self.places > 0 {
            self.make_room(index);
        }
        let index = usize::from(index);
        if self.entries.len() <= index {
            self.entries.resize((index + 1).next_power_of_two(), 0);
        }
        self.entries[index] = bits;
    }

    fn make_room(&mut self, index: u16) {
        self.kept.retain(|&other| other != index);
        if self.kept.len() == self.places
            && let Some(oldest) = self.kept.pop_front()
        {
            self.invalidate(oldest, 0);
        }
        self.kept.push_back(index);
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

    #[test]
    fn a_small_cache_forgets_the_oldest_entry() {
        let mut cache = EntryCache::default();
        cache.set_places(2);
        for index in [1, 2, 1, 3] {
            cache.keep(index, 1);
        }
        assert_eq!([1, 2, 3].map(|index| cache.get(index).is_some()), [true, false, true]);
    }
}
