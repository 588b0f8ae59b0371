//! CPU masks of fixed length, which do not allocate when they change.

use alloc::boxed::Box;
use core::ops::Range;
use hal::{Affinity, CpuId};

/// A set of CPUs. Their numbers are below the count given at construction.
#[derive(Clone, Debug)]
pub(crate) struct Mask(Box<[u64]>);

impl Mask {
    pub(crate) fn empty(cpu_count: u32) -> Self {
        Self((0..cpu_count.div_ceil(64)).map(|_| 0).collect())
    }

    pub(crate) fn all(cpu_count: u32) -> Self {
        let mut mask = Self::empty(cpu_count);
        (0..cpu_count).for_each(|cpu| mask.insert(CpuId(cpu)));
        mask
    }

    /// The CPUs of `affinity` that exist.
    pub(crate) fn of(affinity: &Affinity, cpu_count: u32) -> Self {
        let mut mask = Self::empty(cpu_count);
        mask.set(affinity, cpu_count);
        mask
    }

    /// Sets the mask to the CPUs of `affinity` that exist.
    pub(crate) fn set(&mut self, affinity: &Affinity, cpu_count: u32) {
        self.0.fill(0);
        match affinity {
            Affinity::Any => (0..cpu_count).for_each(|cpu| self.insert(CpuId(cpu))),
            Affinity::Cpu(cpu) if cpu.0 < cpu_count => self.insert(*cpu),
            Affinity::Cpu(_) => {}
            Affinity::Set(set) => set.iter().filter(|cpu| cpu.0 < cpu_count).for_each(|cpu| self.insert(cpu)),
        }
    }

    pub(crate) fn insert(&mut self, cpu: CpuId) {
        self.0[cpu.index() / 64] |= 1 << (cpu.0 % 64);
    }

    pub(crate) fn remove(&mut self, cpu: CpuId) {
        self.0[cpu.index() / 64] &= !(1 << (cpu.0 % 64));
    }

    pub(crate) fn contains(&self, cpu: CpuId) -> bool {
        self.0[cpu.index() / 64] & (1 << (cpu.0 % 64)) != 0
    }

    /// The CPUs of `range` in the set, upwards.
    pub(crate) fn within(&self, range: Range<u32>) -> impl Iterator<Item = CpuId> {
        let words = range.start / 64..range.end.div_ceil(64);
        words.flat_map(move |word| {
            let below = |end: u32| u64::MAX.checked_shl(end.saturating_sub(word * 64)).map_or(u64::MAX, |above| !above);
            let mut bits = self.0[word as usize] & below(range.end) & !below(range.start);
            core::iter::from_fn(move || {
                let bit = (bits != 0).then(|| bits.trailing_zeros())?;
                bits &= bits - 1;
                Some(CpuId(word * 64 + bit))
            })
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }

    /// Whether it has no more than one CPU.
    pub(crate) fn is_single(&self) -> bool {
        self.0.iter().map(|word| word.count_ones()).sum::<u32>() <= 1
    }

    /// The first CPU in both sets, searched upwards from `start` and then round.
    pub(crate) fn first_common(&self, other: &Self, start: CpuId) -> Option<CpuId> {
        let words = self.0.len();
        let common = |word: usize| self.0[word] & other.0[word];
        let (first, below) = (start.index() / 64, (1_u64 << (start.0 % 64)) - 1);
        let found = |word: usize, bits: u64| CpuId(word as u32 * 64 + bits.trailing_zeros());
        let upper = common(first) & !below;
        if upper != 0 {
            return Some(found(first, upper));
        }
        let round = (1..words).map(|step| (first + step) % words).find(|&word| common(word) != 0);
        match round {
            Some(word) => Some(found(word, common(word))),
            None => Some(common(first) & below).filter(|&bits| bits != 0).map(|bits| found(first, bits)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_goes_round_to_the_bits_below_its_start() {
        let mut mask = Mask::empty(200);
        mask.insert(CpuId(3));
        let all = Mask::all(200);
        assert_eq!(mask.first_common(&all, CpuId(4)), Some(CpuId(3)));
        assert_eq!(mask.first_common(&all, CpuId(190)), Some(CpuId(3)));
        mask.insert(CpuId(199));
        assert_eq!(mask.first_common(&all, CpuId(4)), Some(CpuId(199)));
        assert_eq!(mask.first_common(&Mask::empty(200), CpuId(4)), None);
    }

    #[test]
    fn a_range_cuts_words_at_both_ends() {
        let mut mask = Mask::empty(200);
        assert!(mask.is_empty());
        let cpus = [0, 3, 63, 64, 100, 127, 128, 199];
        cpus.iter().for_each(|&cpu| mask.insert(CpuId(cpu)));
        assert!(!mask.is_empty());
        for start in 0..200 {
            for end in start..=200 {
                let expected = cpus.into_iter().filter(|cpu| (start..end).contains(cpu)).map(CpuId);
                assert!(mask.within(start..end).eq(expected), "{start}..{end}");
            }
        }
    }
}
