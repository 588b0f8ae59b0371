//! What the jobs of a server share.

use super::sleepers::Sleepers;
use super::starter::Starter;
use super::steady::{Settling, Watched};
use crate::kinds::storage::Storage;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// The shared part of all jobs.
pub(crate) struct Shared {
    pub(crate) sleepers: Arc<Sleepers>,
    /// None if all jobs begin at once and none ends.
    pub(crate) starter: Option<Arc<Starter>>,
    /// Issued I/Os and the sum of the weights of each flow.
    flows: Mutex<BTreeMap<u32, (u64, u64)>>,
    /// The steady states that jobs wait for, each alone or as a group.
    settling: Mutex<BTreeMap<Watched, Settling>>,
    /// The share of buffered reads that the page cache answers, in per cent.
    pub(super) page_cache_hits: u64,
    /// Copying a page, in ns.
    pub(super) page_copy_ns: u64,
}

impl Shared {
    pub(crate) fn new(storage: &Storage, sleepers: Arc<Sleepers>, starter: Option<Arc<Starter>>) -> Arc<Self> {
        Arc::new(Self {
            sleepers,
            starter,
            flows: Mutex::default(),
            settling: Mutex::default(),
            page_cache_hits: storage.page_cache_hits.into(),
            page_copy_ns: storage.page_copy_ns,
        })
    }

    /// A job joins its flow.
    pub(super) fn join_flow(&self, id: u32, weight: u32) {
        self.flows().entry(id).or_insert((1, 0)).1 += u64::from(weight);
    }

    /// A job that has had `own` I/Os leaves its flow, and takes its I/Os and its weight with it.
    pub(super) fn leave_flow(&self, id: u32, weight: u32, own: u64) {
        if let Some((all, weights)) = self.flows().get_mut(&id) {
            *all -= own;
            *weights -= u64::from(weight);
        }
    }

    /// Takes a place of the flow for a job that has had `own`; false if it is ahead of its share.
    pub(super) fn take_flow(&self, id: u32, weight: u32, own: u64) -> bool {
        let mut flows = self.flows();
        let Some((all, weights)) = flows.get_mut(&id) else { return true };
        if own * *weights > u64::from(weight) * *all {
            return false;
        }
        *all += 1;
        true
    }

    /// The steady state that `watched` waits for.
    pub(super) fn settling<T>(&self, watched: Watched, use_it: impl FnOnce(&mut Settling) -> T) -> T {
        use_it(self.settling.lock().expect("no panic while steady states are held").entry(watched).or_default())
    }

    fn flows(&self) -> std::sync::MutexGuard<'_, BTreeMap<u32, (u64, u64)>> {
        self.flows.lock().expect("no panic while flows are held")
    }
}
