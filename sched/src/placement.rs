//! Placing and moving threads by a [`Topology`]; its documentation has the rules.

use crate::Scheduler;
use crate::mask::Mask;
use crate::scheduler::{State, Thread};
use crate::topology::Topology;
use core::ops::Range;
use hal::{CpuId, ThreadId};

/// How long after its last run a thread is taken to have its data in its CPU's cache: Linux's
/// `sysctl_sched_migration_cost`.
const HOT_NS: u64 = 500_000;

impl Scheduler {
    /// At the end of a slice of `cpu`: moves the first waiting thread that may go to the nearest idle CPU. Returns
    /// that CPU, which the caller kicks.
    pub fn offload(&mut self, cpu: CpuId) -> Option<CpuId> {
        let topology = self.topology?;
        let count = self.cpus.len() as u32;
        let ranges = [topology.cache_domain(cpu, count), topology.node(cpu, count), 0..count];
        for idle in ranges.into_iter().flat_map(|range| cpus_from(range, cpu)) {
            if !self.idle.contains(idle) {
                continue;
            }
            let queue = &mut self.cpus[cpu.index()].normal;
            if let Some(index) = queue.remove_first(&mut self.threads, |thread| may_go(thread, idle)) {
                self.left_queue(cpu);
                return self.queue_on(ThreadId(index), idle);
            }
        }
        None
    }

    /// Takes a waiting thread from another CPU for `cpu`, which has none of its own.
    pub(crate) fn pull(&mut self, cpu: CpuId, now_ns: u64) -> Option<u32> {
        let topology = self.topology.filter(|_| !self.crowded.is_empty())?;
        let count = self.cpus.len() as u32;
        let cold = |thread: &Thread| {
            may_go(thread, cpu) && thread.ran_ns.is_none_or(|ran_ns| now_ns.saturating_sub(ran_ns) >= HOT_NS)
        };
        for range in [topology.cache_domain(cpu, count), topology.node(cpu, count), 0..count] {
            // What an offline CPU holds may run on no other.
            let others = |other: &CpuId| *other != cpu && self.online.contains(*other);
            let busiest = self.crowded.within(range).filter(others);
            let Some(busiest) = busiest.max_by_key(|&other| (self.waiting(other), core::cmp::Reverse(other))) else {
                continue;
            };
            let queue = &mut self.cpus[busiest.index()].normal;
            if let Some(index) = queue.remove_first(&mut self.threads, cold) {
                self.left_queue(busiest);
                self.threads[index as usize].state = State::Ready(cpu);
                return Some(index);
            }
        }
        None
    }

    /// Where a woken thread goes.
    pub(crate) fn place_near(&self, topology: Topology, thread: &Thread, waker: Option<CpuId>) -> CpuId {
        let last = thread.home;
        let idle = |cpu: CpuId| self.idle.contains(cpu);
        if idle(last) || thread.allowed.is_single() {
            return last;
        }
        let attracts = |waker: &CpuId| {
            let usable = thread.allowed.contains(*waker) && self.online.contains(*waker);
            let near_and_idle = idle(*waker) && topology.share_cache(*waker, last);
            usable && (near_and_idle || self.runnable(*waker) < self.runnable(last))
        };
        let target = waker.filter(attracts).unwrap_or(last);
        if idle(target) {
            return target;
        }
        let domain = topology.cache_domain(target, self.cpus.len() as u32);
        cpus_from(domain, target).find(|&cpu| idle(cpu) && thread.allowed.contains(cpu)).unwrap_or(target)
    }

    /// The online CPU of `allowed` for a new thread: in the least loaded node the least loaded cache domain, and there
    /// the least loaded CPU.
    pub(crate) fn least_loaded(&self, topology: Topology, allowed: &Mask) -> Option<CpuId> {
        let count = self.cpus.len() as u32;
        let usable = |cpu: &CpuId| allowed.contains(*cpu) && self.online.contains(*cpu);
        // Loads count per usable CPU, so that a node of which only a part is allowed is not taken for an empty one.
        let load = |range: &Range<u32>| {
            let cpus = range.clone().map(CpuId).filter(usable);
            let (threads, cpus) = cpus.fold((0, 0), |(threads, cpus), cpu| (threads + self.runnable(cpu), cpus + 1));
            (cpus > 0).then(|| u64::from(threads) * 1024 / cpus)
        };
        let lightest = |ranges: &mut dyn Iterator<Item = Range<u32>>| {
            ranges
                .filter_map(|range| Some((load(&range)?, range.start, range)))
                .min_by_key(|&(load, start, _)| (load, start))
        };
        let (_, _, node) = lightest(&mut blocks(0..count, topology.node_cpus))?;
        let (_, _, domain) = lightest(&mut blocks(node, topology.cache_cpus))?;
        domain.map(CpuId).filter(usable).min_by_key(|&cpu| (self.runnable(cpu), cpu))
    }

    /// Threads that run on `cpu` or wait for it.
    fn runnable(&self, cpu: CpuId) -> u32 {
        let state = &self.cpus[cpu.index()];
        u32::from(state.current.is_some()) + state.urgent.len() + state.normal.len()
    }

    fn waiting(&self, cpu: CpuId) -> u32 {
        self.cpus[cpu.index()].normal.len()
    }
}

/// The CPUs of `range`, upwards from behind `start` and then round.
fn cpus_from(range: Range<u32>, start: CpuId) -> impl Iterator<Item = CpuId> {
    let from = (start.0 + 1).clamp(range.start, range.end);
    (from..range.end).chain(range.start..from).map(CpuId)
}

/// `range` in blocks of `size`.
fn blocks(range: Range<u32>, size: u32) -> impl Iterator<Item = Range<u32>> {
    let size = size.max(1);
    let count = (range.end - range.start).div_ceil(size);
    (0..count).map(move |block| range.start + block * size..(range.start + (block + 1) * size).min(range.end))
}

/// Whether a waiting thread may move to `cpu`.
fn may_go(thread: &Thread, cpu: CpuId) -> bool {
    thread.lent_to.is_none() && thread.allowed.contains(cpu)
}

#[cfg(test)]
mod tests;
