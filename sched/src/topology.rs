//! Which CPUs share a cache, and which a memory node.

use core::ops::Range;
use hal::CpuId;

/// Equal memory nodes of consecutive CPUs, and in them equal cache domains of consecutive CPUs.
///
/// A scheduler with a topology follows Linux 6.12's fair class (`kernel/sched/fair.c`) in these rules:
///
/// - **A new thread** (`sched_balance_find_dst_cpu`) goes to the least loaded node of its affinity, there to the least
///   loaded cache domain, there to the least loaded CPU; the lowest number among equals.
/// - **A wake** (`select_task_rq_fair`) first chooses between the thread's last CPU and the waker's (`wake_affine`): an
///   idle waker wins if it shares the cache and the last CPU is not idle; else an idle last CPU wins; else the CPU with
///   fewer runnable threads, the last one among equals. Round the chosen CPU (`select_idle_sibling`) the thread takes
///   the CPU itself if it is idle, the last CPU if that shares the cache and is idle, else the next idle CPU of the
///   cache domain. If none idles, it queues on the chosen CPU.
/// - **A CPU that becomes idle** (`sched_balance_newidle`) takes the thread that waits longest on the CPU with the most
///   waiting threads, the lowest number among equals: of its cache domain, else of its node, else of the machine. A thread
///   that had a CPU within the last 500 µs is hot (`task_hot`, `sysctl_sched_migration_cost`) and stays.
/// - **The end of a slice** with a thread waiting (`nohz_balancer_kick`) sends the first that may go to the nearest idle
///   CPU: of the cache domain, else of the node, else of the machine, the next number among equals, round.
///
/// Urgent threads are placed and woken alike, and are not moved while they wait. A thread whose stack is lent is not moved
/// either. A node consists of whole cache domains.
///
/// Left out: bandwidth, priorities, load that decays, sibling threads of a core, `wake_wide`, `recent_used_cpu`, and
/// balancing between CPUs that are all busy. Linux 6.12 does not preempt at a wake before the running thread's slice
/// is over (`RUN_TO_PARITY`), and neither does this scheduler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Topology {
    /// CPUs of a memory node.
    pub node_cpus: u32,
    /// CPUs that share a last-level cache.
    pub cache_cpus: u32,
}

impl Topology {
    /// The CPUs, below `cpu_count`, that share a last-level cache with `cpu`.
    pub fn cache_domain(&self, cpu: CpuId, cpu_count: u32) -> Range<u32> {
        around(cpu.0, self.cache_cpus, cpu_count)
    }

    /// The CPUs, below `cpu_count`, of the memory node of `cpu`.
    pub fn node(&self, cpu: CpuId, cpu_count: u32) -> Range<u32> {
        around(cpu.0, self.node_cpus, cpu_count)
    }

    /// Whether two CPUs share a last-level cache.
    pub fn share_cache(&self, one: CpuId, other: CpuId) -> bool {
        one.0 / self.cache_cpus.max(1) == other.0 / self.cache_cpus.max(1)
    }
}

/// The block of `size` numbers that contains `number`, cut at `end`.
fn around(number: u32, size: u32, end: u32) -> Range<u32> {
    let size = size.max(1);
    let first = number / size * size;
    first..(first + size).min(end)
}
