//! The rules of a topology (`sched::Topology`), which are those of Linux' fair class.

use super::oracle::{Domains, Oracle, Place, round};

/// A thread that had a CPU within this time is hot.
pub(super) const HOT_NS: u64 = 500_000;

impl Oracle {
    /// Threads that run on a CPU or wait for it.
    fn load(&self, cpu: u32) -> usize {
        let of = &self.cpus[cpu as usize];
        usize::from(of.runs.is_some()) + of.urgent.len() + of.normal.len()
    }

    fn is_idle(&self, cpu: u32) -> bool {
        self.cpus[cpu as usize].idles
    }

    fn is_free(&self, cpu: u32, thread: u32) -> bool {
        self.is_idle(cpu) && self.threads[thread as usize].allowed.contains(&cpu)
    }

    /// In the least loaded node the least loaded cache domain, and there the least loaded CPU; the first of equals.
    pub(super) fn least_loaded(&self, domains: Domains, usable: &[u32]) -> u32 {
        let lightest = |cpus: Vec<u32>, size: u32| {
            let blocks: std::collections::BTreeSet<_> = cpus.iter().map(|cpu| cpu / size).collect();
            let within = |block: u32| cpus.iter().copied().filter(|cpu| cpu / size == block).collect::<Vec<_>>();
            let lighter = |best: Vec<u32>, other: Vec<u32>| {
                let sum = |cpus: &[u32]| cpus.iter().map(|&cpu| self.load(cpu)).sum::<usize>();
                // The average of the other is less.
                if sum(&other) * best.len() < sum(&best) * other.len() { other } else { best }
            };
            blocks.into_iter().map(within).reduce(lighter).expect("one is usable")
        };
        let node = lightest(usable.to_vec(), domains.node);
        let cache = lightest(node, domains.cache);
        lightest(cache, 1)[0]
    }

    /// Where a woken thread goes whose last CPU is online.
    pub(super) fn near(&mut self, domains: Domains, thread: u32, waker: Option<u32>) -> u32 {
        let last = self.threads[thread as usize].last;
        if self.is_idle(last) {
            return last;
        }
        let shares = |one: u32, other: u32| one / domains.cache == other / domains.cache;
        let usable = self.usable(&self.threads[thread as usize].allowed);
        let wins = |waker: u32| self.is_idle(waker) && shares(waker, last) || self.load(waker) < self.load(last);
        let chosen = waker.filter(|waker| usable.contains(waker) && wins(*waker)).unwrap_or(last);
        if chosen != last {
            self.seen.add("wake: to its waker", 1);
        }
        if self.is_idle(chosen) {
            return chosen;
        }
        let siblings = (0..self.cpus.len() as u32).filter(|&cpu| shares(cpu, chosen));
        let idle = round(siblings.filter(|&cpu| self.is_free(cpu, thread)), chosen);
        if idle.is_some() {
            self.seen.add("wake: to an idle sibling", 1);
        }
        idle.unwrap_or(chosen)
    }

    /// The CPUs of the cache domain of `cpu`, those of its node, and all.
    fn wider(&self, domains: Domains, cpu: u32) -> [Vec<u32>; 3] {
        let all = || 0..self.cpus.len() as u32;
        let block = |size: u32| all().filter(|other| other / size == cpu / size).collect();
        [block(domains.cache), block(domains.node), all().collect()]
    }

    fn may_go(&self, thread: u32, to: u32) -> bool {
        let thread = &self.threads[thread as usize];
        thread.lent.is_none() && thread.allowed.contains(&to)
    }

    /// A CPU that becomes idle takes the thread that waits longest on the busiest CPU near it.
    pub(super) fn pull(&mut self, cpu: u32, now_ns: u64) -> Option<u32> {
        let domains = self.domains?;
        let from = ["pull: from the cache domain", "pull: from the node", "pull: from another node"];
        for (near, from) in self.wider(domains, cpu).into_iter().zip(from) {
            let waiting = |other: &u32| self.cpus[*other as usize].normal.len();
            let others = near.into_iter().filter(|&other| other != cpu && self.cpus[other as usize].online);
            // The last one of a search from the highest number downwards is the first of equals.
            let busiest = others.rev().max_by_key(waiting).filter(|other| waiting(other) > 0);
            let Some(busiest) = busiest else { continue };
            let is_cold =
                |thread: u32| self.threads[thread as usize].ran_ns.is_none_or(|ran_ns| now_ns - ran_ns >= HOT_NS);
            let mut queue = self.cpus[busiest as usize].normal.iter().copied();
            match queue.find(|&thread| self.may_go(thread, cpu) && is_cold(thread)) {
                Some(thread) => {
                    self.seen.add(from, 1);
                    self.leave(busiest, thread);
                    self.thread(thread).place = Place::Waits(cpu);
                    return Some(thread);
                }
                None => self.seen.add("pull: only hot or bound threads", 1),
            }
        }
        None
    }

    /// The end of a slice: the first thread that may goes to the nearest idle CPU, which is kicked.
    pub(super) fn offload(&mut self, cpu: u32) -> Option<u32> {
        let domains = self.domains?;
        for near in self.wider(domains, cpu) {
            let mut idle: Vec<_> = near.into_iter().filter(|&other| self.is_idle(other)).collect();
            idle.sort_by_key(|&other| (other <= cpu, other));
            for other in idle {
                let mut queue = self.cpus[cpu as usize].normal.iter().copied();
                if let Some(thread) = queue.find(|&thread| self.may_go(thread, other)) {
                    self.seen.add("slice: a thread went to an idle CPU", 1);
                    self.leave(cpu, thread);
                    return self.join(thread, other);
                }
            }
        }
        None
    }
}
