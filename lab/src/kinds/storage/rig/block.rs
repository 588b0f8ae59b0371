//! The block layer's end of an I/O: the CPU on which it completes, as Linux 6.12 chooses it
//! (`blk_mq_complete_request_remote` in `block/blk-mq.c`).
//!
//! A polled request completes where it is reaped. Every other one completes there too if its submitter's CPU is this one,
//! or near enough for `rq_affinity`. Else it is put on the list of the submitter's CPU (`blk_cpu_done`). Only a list that
//! was empty takes an interprocessor interrupt, so one can carry many. The receiver runs `BLOCK_SOFTIRQ` over all of its
//! list. A drive with one queue completes in the softirq of the CPU that reaps.

use super::mailbox::Mailbox;
use super::room::Room;
use crate::kinds::storage::RqAffinity;
use crate::work;
use drivers::apic::Lapic;
use drivers::nvme::{BatchDone, Completed};
use hal::{CpuId, Hal as _, Work};
use irq::Vector;
use machine::SimHal;
use sched::Topology;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use systems::pc::ExtraVector;

/// Linux's vector for a function call on one CPU (`CALL_FUNCTION_SINGLE_VECTOR`).
const CALL_FUNCTION_SINGLE: Vector = Vector(0xfb);

/// Where I/Os completed, counted.
#[derive(Clone, Copy, Default)]
pub(crate) struct Places {
    /// On the submitter's CPU, which reaped them.
    pub(crate) here: u64,
    /// On the submitter's CPU, sent there by another.
    pub(crate) sent: u64,
    /// On another CPU than the submitter's.
    pub(crate) elsewhere: u64,
    /// Interprocessor interrupts for those that were sent.
    pub(crate) ipis: u64,
}

/// A completion on its way to its submitter's CPU, and the CPU that reaped it.
type Sent = (Completed, CpuId);

/// The block layer of a server.
pub(crate) struct BlockLayer {
    /// By job index.
    mailboxes: Arc<[Arc<Mailbox<SimHal>>]>,
    /// The work of completing an I/O, by job index.
    work: Arc<[Work]>,
    affinity: RqAffinity,
    topology: Topology,
    /// For each CPU its `blk_cpu_done`.
    lists: Box<[Mutex<Vec<Sent>>]>,
    /// Known once the server is up.
    lapic: OnceLock<Arc<Lapic<SimHal>>>,
    places: Mutex<Places>,
}

impl BlockLayer {
    pub(crate) fn new(
        cpus: u32,
        (affinity, topology): (RqAffinity, Topology),
        mailboxes: Arc<[Arc<Mailbox<SimHal>>]>,
        work: Arc<[Work]>,
    ) -> Arc<Self> {
        let lists = (0..cpus).map(|_| Mutex::default()).collect();
        let (lapic, places) = (OnceLock::new(), Mutex::default());
        Arc::new(Self { mailboxes, work, affinity, topology, lists, lapic, places })
    }

    /// The interrupt by which another CPU hands completions over.
    pub(crate) fn vector(self: &Arc<Self>) -> ExtraVector {
        let block = self.clone();
        ExtraVector {
            vector: CALL_FUNCTION_SINGLE,
            abbreviation: "CAL",
            description: "Function call interrupts",
            run: Arc::new(move || block.softirq()),
        }
    }

    /// From now on interprocessor interrupts can be sent.
    pub(crate) fn send_by(&self, lapic: &Arc<Lapic<SimHal>>) {
        assert!(self.lapic.set(lapic.clone()).is_ok(), "a server is brought up once");
    }

    /// The counts so far.
    pub(crate) fn places(&self) -> Places {
        *self.places_mut()
    }

    /// Whether an I/O of `from`, reaped on `here`, goes back to `from`.
    fn goes_back(&self, from: CpuId, here: CpuId) -> bool {
        from != here
            && match self.affinity {
                RqAffinity::Here => false,
                RqAffinity::CacheDomain => !self.topology.share_cache(from, here),
                RqAffinity::Submitter => true,
            }
    }

    /// Charges for the lines of a request that another CPU wrote last.
    fn fetch(&self, from: CpuId, here: CpuId) {
        if from == here {
            return;
        }
        let near = self.topology.share_cache(from, here);
        SimHal.work(if near { work::NEAR_COMPLETION } else { Work::RemoteCompletion }, 1);
    }

    /// Completes an I/O on this CPU.
    fn complete(&self, completed: &Completed) {
        let job = (completed.tag >> 32) as usize;
        SimHal.work(self.work[job], 1);
        self.mailboxes[job].post(SimHal, completed);
    }

    /// Puts an I/O on the list of its submitter's CPU, and interrupts that CPU if the list was empty.
    fn send(&self, completed: &Completed, here: CpuId) {
        let was_empty = {
            let mut list = self.list(completed.cpu);
            list.push((*completed, here));
            list.len() == 1
        };
        self.places_mut().sent += 1;
        if was_empty {
            self.places_mut().ipis += 1;
            SimHal.work(work::IPI_SEND, 1);
            let lapic = self.lapic.get().expect("no I/O completes before the server is up");
            lapic.send(completed.cpu, CALL_FUNCTION_SINGLE).expect("x2APIC mode: an IPI is one write");
        }
    }

    /// `BLOCK_SOFTIRQ`: completes the whole list of this CPU.
    fn softirq(&self) {
        let here = SimHal.cpu();
        let list = mem::take(&mut *self.list(here));
        SimHal.work(work::BLOCK_SOFTIRQ, 1);
        for (completed, reaper) in &list {
            self.fetch(*reaper, here);
            self.complete(completed);
        }
    }

    fn list(&self, cpu: CpuId) -> MutexGuard<'_, Vec<Sent>> {
        self.lists[cpu.index()].lock().expect("no panic while a list is held")
    }

    fn places_mut(&self) -> MutexGuard<'_, Places> {
        self.places.lock().expect("no panic while the counts are held")
    }
}

/// The completion side's user of one queue.
pub(crate) struct QueueEnd {
    pub(crate) block: Arc<BlockLayer>,
    /// The jobs that wait until the queue has room.
    pub(crate) room: Room,
    /// Polled requests complete where they are reaped.
    pub(crate) polled: bool,
    /// The drive's only queue: what stays here completes in this CPU's softirq.
    pub(crate) only: bool,
}

impl BatchDone for QueueEnd {
    fn batch_done(&self, batch: &[Completed]) {
        self.room.freed(SimHal);
        let here = SimHal.cpu();
        let mut in_softirq = false;
        for completed in batch {
            let from = completed.cpu;
            self.block.fetch(from, here);
            if !self.polled && self.block.goes_back(from, here) {
                self.block.send(completed, here);
                continue;
            }
            if self.only && !self.polled && !mem::replace(&mut in_softirq, true) {
                SimHal.work(work::BLOCK_SOFTIRQ, 1);
            }
            let mut places = self.block.places_mut();
            *if from == here { &mut places.here } else { &mut places.elsewhere } += 1;
            drop(places);
            self.block.complete(completed);
        }
    }
}
