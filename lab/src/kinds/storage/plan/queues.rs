//! Which CPUs submit to which queue of a drive: as Linux's `group_cpus_evenly` spreads them (`lib/group_cpus.c`).

use crate::platform::Platform;
use hal::{CpuId, CpuSet};
use sched::Topology;

/// The caches and memory nodes of a platform.
pub fn topology(platform: &Platform) -> Topology {
    let fabric = &platform.fabric;
    Topology { node_cpus: fabric.node_cpus.whole() as u32, cache_cpus: fabric.cache_cpus.whole() as u32 }
}

/// The CPUs of each of `queues` queues on a machine with `cpus`: every CPU in exactly one, and no queue without a CPU.
///
/// With no more queues than memory nodes, the nodes are dealt to the queues in turn. With more, each node has queues by
/// its share of the CPUs, at least one, the smallest node first; and a node's queues divide its CPUs in ascending order,
/// the first ones taking one more where they do not come out even. Linux would keep the siblings of a core together,
/// which are neighbours here, and since 6.18 clusters of cores too, which the modelled processors do not have.
pub fn queue_cpus(queues: u32, cpus: u32, topology: Topology) -> Vec<CpuSet> {
    let queues = queues.clamp(1, cpus.max(1));
    let size = topology.node_cpus.max(1);
    let mut nodes: Vec<_> = (0..cpus.div_ceil(size)).map(|node| node * size..((node + 1) * size).min(cpus)).collect();
    let mut sets = vec![CpuSet::new(); queues as usize];
    if queues as usize <= nodes.len() {
        for (number, node) in nodes.into_iter().enumerate() {
            node.for_each(|cpu| sets[number % queues as usize].insert(CpuId(cpu)));
        }
        return sets;
    }
    nodes.sort_by_key(|node| (node.len(), node.start));
    let (mut queues_left, mut cpus_left) = (queues, cpus);
    let mut sets_left = sets.iter_mut();
    for node in nodes {
        let count = node.len() as u32;
        let own = (queues_left * count / cpus_left).max(1);
        (queues_left, cpus_left) = (queues_left - own, cpus_left - count);
        let mut members = node;
        for (number, set) in (0..own).zip(sets_left.by_ref()) {
            let share = count / own + u32::from(number < count % own);
            members.by_ref().take(share as usize).for_each(|cpu| set.insert(CpuId(cpu)));
        }
    }
    sets
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn spread(queues: u32, cpus: u32, node_cpus: u32) -> Vec<String> {
        let sets = queue_cpus(queues, cpus, Topology { node_cpus, cache_cpus: node_cpus });
        sets.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_queue_a_cpu() {
        assert_eq!(spread(4, 4, 2), ["0", "1", "2", "3"]);
        assert_eq!(spread(9, 4, 2), ["0", "1", "2", "3"], "no more than CPUs");
    }

    #[test]
    fn neighbours_share() {
        assert_eq!(spread(4, 16, 8), ["0-3", "4-7", "8-11", "12-15"]);
        assert_eq!(spread(3, 8, 8), ["0-2", "3-5", "6-7"], "the first ones take one more");
    }

    /// The published guest: 80 CPUs in 10 nodes, 8 queues a drive. Two queues have 16 CPUs, the others 8.
    #[test]
    fn fewer_queues_than_nodes_share_whole_nodes() {
        let sets = spread(8, 80, 8);
        assert_eq!(sets[..3], ["0-7,64-71", "8-15,72-79", "16-23"]);
        assert_eq!(sets[7], "56-63");
    }

    #[test]
    fn a_smaller_node_comes_first_and_has_a_queue_of_its_own() {
        assert_eq!(spread(4, 10, 8), ["8-9", "0-2", "3-5", "6-7"]);
    }

    proptest! {
        #[test]
        fn every_cpu_has_one_queue(queues in 1u32..200, cpus in 1u32..200, node_cpus in 1u32..100) {
            let sets = queue_cpus(queues, cpus, Topology { node_cpus, cache_cpus: node_cpus });
            prop_assert_eq!(sets.len() as u32, queues.min(cpus));
            prop_assert!(sets.iter().all(|set| !set.is_empty()));
            for cpu in (0..cpus).map(CpuId) {
                prop_assert_eq!(sets.iter().filter(|set| set.contains(cpu)).count(), 1);
            }
        }
    }
}
