use alloc::vec::Vec;
use core::fmt;

/// A CPU's number: dense, from 0. Not its APIC id or MPIDR, which drivers keep.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct CpuId(pub u32);

impl CpuId {
    /// The number as an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for CpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The interrupt state that [`crate::Hal::irq_save`] saved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "interrupts stay off until it is restored"]
pub struct IrqState {
    /// Interrupts were on.
    pub were_on: bool,
}

/// A set of CPUs, in ascending order.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct CpuSet {
    words: Vec<u64>,
}

impl CpuSet {
    /// The empty set.
    pub const fn new() -> Self {
        Self { words: Vec::new() }
    }

    /// The CPUs with numbers below `count`.
    pub fn first(count: u32) -> Self {
        (0..count).map(CpuId).collect()
    }

    /// The set of one CPU.
    pub fn of(cpu: CpuId) -> Self {
        core::iter::once(cpu).collect()
    }

    /// Adds `cpu`.
    pub fn insert(&mut self, cpu: CpuId) {
        let word = cpu.index() / 64;
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (cpu.0 % 64);
    }

    /// Removes `cpu`. Trailing zero words are removed too, so that equal sets compare equal.
    pub fn remove(&mut self, cpu: CpuId) {
        if let Some(word) = self.words.get_mut(cpu.index() / 64) {
            *word &= !(1 << (cpu.0 % 64));
        }
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
    }

    /// True if the set contains `cpu`.
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.words.get(cpu.index() / 64).is_some_and(|word| word & (1 << (cpu.0 % 64)) != 0)
    }

    /// True if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    /// The number of CPUs in the set.
    pub fn len(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }

    /// The CPUs of the set, ascending.
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + '_ {
        self.words.iter().enumerate().flat_map(|(index, &word)| {
            (0..64).filter(move |bit| word & (1 << bit) != 0).map(move |bit| CpuId(index as u32 * 64 + bit))
        })
    }

    /// The CPUs that are in both sets.
    pub fn and(&self, other: &Self) -> Self {
        self.iter().filter(|&cpu| other.contains(cpu)).collect()
    }
}

impl FromIterator<CpuId> for CpuSet {
    fn from_iter<I: IntoIterator<Item = CpuId>>(cpus: I) -> Self {
        let mut set = Self::new();
        for cpu in cpus {
            set.insert(cpu);
        }
        set
    }
}

/// Prints the set as `/proc/irq/*/smp_affinity_list` does: `0-3,8`.
impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while let Some(next) = cpus.next_if(|cpu| cpu.0 == last.0 + 1) {
                last = next;
            }
            if first == last {
                write!(f, "{separator}{first}")?;
            } else {
                write!(f, "{separator}{first}-{last}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuSet({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_set_prints_as_ranges() {
        let set: CpuSet = [3, 0, 1, 2, 8, 70].into_iter().map(CpuId).collect();
        assert_eq!(set.to_string(), "0-3,8,70");
        assert_eq!(set.len(), 6);
    }

    #[test]
    fn equal_sets_are_equal_whatever_was_removed() {
        let mut set = CpuSet::of(CpuId(2));
        set.insert(CpuId(200));
        set.remove(CpuId(200));
        assert_eq!(set, CpuSet::of(CpuId(2)));
    }
}
