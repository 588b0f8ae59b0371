//! Which queue interrupts by which vector: the ladder of virtio-pci, for every transport.

use super::QueueWish;
use alloc::vec::Vec;
use spec::virtio::NO_VECTOR;

/// How vectors are shared out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum VectorPolicy {
    /// A vector for each queue that wants one and one for the configuration; else one for the configuration and the
    /// others shared round robin, of which there is one when the device has two; else the single interrupt.
    #[default]
    Ladder,
    /// As the ladder, but where vectors are fewer than that, the configuration shares vector 0 with queues and the k-th
    /// queue that wants interrupts gets k mod n.
    Modulo,
    /// Queue i gets (i / 2) mod n whether it wants interrupts or not, and the configuration shares vector 0: the fixed
    /// mapping of the virtio-mmio series of 2023, which knows that a network device's queues come in pairs.
    Pairs,
    /// The single interrupt, as without the extension. On PCI only while MSI-X is off.
    Single,
}

/// A step of the ladder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rung {
    /// A vector for each queue and one for the configuration.
    Each,
    /// Fewer vectors than that.
    Shared,
    /// One interrupt for all causes.
    Single,
}

/// A mapping to ask the device for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VectorMap {
    /// Which step it is.
    pub rung: Rung,
    /// The vector of configuration changes.
    pub configuration: u16,
    /// Queue number and its vector, in the order of the wishes.
    pub queues: Vec<(u16, u16)>,
}

impl VectorMap {
    /// Number of vectors in use, from 0 up. The single interrupt counts as one.
    pub fn vectors(&self) -> u16 {
        let used = self.queues.iter().map(|&(_, vector)| vector).chain([self.configuration]);
        used.filter(|&vector| vector != NO_VECTOR).max().map_or(1, |last| last + 1)
    }

    /// The queues that interrupt by `vector`.
    pub fn queues_of(&self, vector: u16) -> impl Iterator<Item = u16> + '_ {
        self.queues.iter().filter(move |&&(_, of)| of == vector).map(|&(queue, _)| queue)
    }

    fn single(wishes: &[QueueWish]) -> Self {
        let queues = wishes.iter().map(|wish| (wish.queue, NO_VECTOR)).collect();
        Self { rung: Rung::Single, configuration: NO_VECTOR, queues }
    }

    /// `of(k)` for the k-th queue that wants interrupts.
    fn wanting(rung: Rung, wishes: &[QueueWish], of: impl Fn(u16) -> u16) -> Self {
        let mut count = 0;
        let vector = |wish: &QueueWish| {
            let vector = if wish.interrupts { of(count) } else { NO_VECTOR };
            count += u16::from(wish.interrupts);
            (wish.queue, vector)
        };
        Self { rung, configuration: 0, queues: wishes.iter().map(vector).collect() }
    }
}

/// The mappings to try one after the other, with `vectors` at hand. The last is the single interrupt.
pub fn ladder(policy: VectorPolicy, vectors: u16, wishes: &[QueueWish]) -> Vec<VectorMap> {
    let wanting = wishes.iter().filter(|wish| wish.interrupts).count();
    let mut maps = Vec::new();
    let with_vectors = vectors >= 2 && policy != VectorPolicy::Single;
    if with_vectors && policy != VectorPolicy::Pairs && usize::from(vectors) > wanting {
        maps.push(VectorMap::wanting(Rung::Each, wishes, |k| 1 + k));
    }
    if with_vectors {
        maps.push(match policy {
            VectorPolicy::Modulo => VectorMap::wanting(Rung::Shared, wishes, |k| k % vectors),
            VectorPolicy::Pairs => {
                let queues = wishes.iter().map(|wish| (wish.queue, wish.queue / 2 % vectors)).collect();
                VectorMap { rung: Rung::Shared, configuration: 0, queues }
            }
            // A device that refused a vector for each may still have two.
            _ if usize::from(vectors) > wanting => VectorMap::wanting(Rung::Shared, wishes, |_| 1),
            _ => VectorMap::wanting(Rung::Shared, wishes, |k| 1 + k % (vectors - 1)),
        });
    }
    maps.push(VectorMap::single(wishes));
    maps
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec;

    fn wishes(interrupts: &[bool]) -> Vec<QueueWish> {
        (0..).zip(interrupts).map(|(queue, &interrupts)| QueueWish { queue, entries: 64, interrupts }).collect()
    }

    fn vectors(map: &VectorMap) -> (Rung, u16, Vec<u16>) {
        (map.rung, map.configuration, map.queues.iter().map(|&(_, vector)| vector).collect())
    }

    const NET: [bool; 5] = [true, false, true, false, false];

    #[test]
    fn the_ladder_is_that_of_virtio_pci() {
        let rungs = |n| ladder(VectorPolicy::Ladder, n, &wishes(&NET)).iter().map(vectors).collect::<Vec<_>>();
        let none = NO_VECTOR;
        let single = (Rung::Single, none, vec![none; 5]);
        let two = (Rung::Shared, 0, vec![1, none, 1, none, none]);
        assert_eq!(rungs(3), [(Rung::Each, 0, vec![1, none, 2, none, none]), two.clone(), single.clone()]);
        assert_eq!(rungs(2), [two, single.clone()]);
        assert_eq!(rungs(1), rungs(0));
        assert_eq!(rungs(0), [single]);
    }

    #[test]
    fn fewer_vectors_than_queues_are_shared_round_robin() {
        let all = wishes(&[true; 5]);
        let first = |policy, n| vectors(&ladder(policy, n, &all)[0]);
        assert_eq!(first(VectorPolicy::Ladder, 4), (Rung::Shared, 0, vec![1, 2, 3, 1, 2]));
        assert_eq!(first(VectorPolicy::Modulo, 4), (Rung::Shared, 0, vec![0, 1, 2, 3, 0]));
        assert_eq!(first(VectorPolicy::Modulo, 6), (Rung::Each, 0, vec![1, 2, 3, 4, 5]));
        assert_eq!(first(VectorPolicy::Pairs, 2), (Rung::Shared, 0, vec![0, 0, 1, 1, 0]));
        assert_eq!(first(VectorPolicy::Single, 9).0, Rung::Single);
    }

    proptest! {
        /// Every map names existing vectors only, and every queue that wants interrupts has one.
        #[test]
        fn maps_stay_within_the_vectors(n in 0u16..40, wanted in prop::collection::vec(any::<bool>(), 0..40)) {
            let wishes = wishes(&wanted);
            for policy in [VectorPolicy::Ladder, VectorPolicy::Modulo, VectorPolicy::Pairs, VectorPolicy::Single] {
                let maps = ladder(policy, n, &wishes);
                prop_assert_eq!(maps.last().map(|map| map.rung), Some(Rung::Single));
                for map in &maps {
                    prop_assert!(map.vectors() <= n.max(1));
                    prop_assert_eq!(map.queues.len(), wishes.len());
                    for (wish, &(queue, vector)) in wishes.iter().zip(&map.queues) {
                        prop_assert_eq!(wish.queue, queue);
                        prop_assert!(map.rung == Rung::Single || !wish.interrupts || vector < n);
                    }
                }
            }
        }
    }
}
