//! A table of lines: small numbers handed out lowest first.

use alloc::vec::Vec;

pub(crate) struct Slots<T>(Vec<Option<T>>);

impl<T> Slots<T> {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Puts `value` in the lowest free place below `limit`; none when all are taken.
    pub(crate) fn insert(&mut self, value: T, limit: usize) -> Option<usize> {
        let free = self.0.iter().position(Option::is_none).unwrap_or(self.0.len());
        if free >= limit {
            return None;
        }
        if free == self.0.len() {
            self.0.push(None);
        }
        self.0[free] = Some(value);
        Some(free)
    }

    pub(crate) fn remove(&mut self, index: usize) -> Option<T> {
        self.0.get_mut(index)?.take()
    }

    /// Places that were ever taken.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        self.0.get(index)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.0.get_mut(index)?.as_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_place_is_taken_first() {
        let mut slots = Slots::new();
        assert_eq!([slots.insert('a', 3), slots.insert('b', 3), slots.insert('c', 3)], [Some(0), Some(1), Some(2)]);
        assert_eq!(slots.insert('d', 3), None);
        assert_eq!(slots.remove(1), Some('b'));
        assert_eq!(slots.insert('e', 3), Some(1));
        assert_eq!((slots.get(1), slots.get(9)), (Some(&'e'), None));
        slots.remove(2);
        assert_eq!(slots.len(), 3, "a place that was given back is still looked at");
    }
}
