//! The target: a null block device, which answers every capsule at once.

use super::initiator::{ANSWER_BYTES, Buffer, CAPSULE_BYTES, SIGNAL_EVERY, SPARE_RECEIVES, capsule};
use crate::kinds::rdma::Rdma;
use crate::run::error::SetupError;
use crate::work;
use drivers::rdma::{Completion, CqUser, MemoryKey, PostReceive, PostSend, QueuePair};
use hal::{DeviceAddress, Dma as _, Hal as _, Lock, Word as _};
use machine::SimHal;
use spec::rdma::{Operation, Status};
use std::sync::{Arc, OnceLock};

/// One target queue: the user of its completion queue.
pub(super) struct Target {
    pair: OnceLock<Arc<QueuePair<SimHal>>>,
    capsules: Buffer,
    answers: Buffer,
    /// The content of every read; its value does not matter.
    block: Buffer,
    /// Answers since the last answer that asked for a completion.
    unsignalled: Lock<SimHal, u32>,
}

/// Sends for each read: the data and the answer.
pub(super) const SENDS_A_READ: u32 = 2;

impl Target {
    pub(super) fn new(rdma: &Rdma) -> Result<Self, SetupError> {
        let memory = |bytes: u32| SimHal.dma_alloc(bytes as usize, 4096).map_err(SetupError::Memory);
        let slots = rdma.depth_max() + SPARE_RECEIVES;
        Ok(Self {
            pair: OnceLock::new(),
            capsules: memory(slots * CAPSULE_BYTES)?,
            answers: memory(slots * ANSWER_BYTES)?,
            block: memory(rdma.block_bytes)?,
            unsignalled: Lock::new(SimHal, 0),
        })
    }

    /// Called once the pair is connected: posts the receives.
    pub(super) fn begin(&self, pair: Arc<QueuePair<SimHal>>, rdma: &Rdma) {
        for slot in 0..rdma.depth_max() + SPARE_RECEIVES {
            pair.post_receive(&self.receive(slot.into())).expect("the queue was opened for as many");
        }
        pair.ring_receives();
        assert!(self.pair.set(pair).is_ok(), "connected once");
    }

    fn receive(&self, id: u64) -> PostReceive {
        let local = self.capsules.device_address().offset(id * u64::from(CAPSULE_BYTES));
        PostReceive { id, local, bytes: CAPSULE_BYTES }
    }

    /// Writes the data, then answers. The wire keeps their order.
    fn serve(&self, pair: &QueuePair<SimHal>, receive: u64) {
        let words = &self.capsules.words()[receive as usize * CAPSULE_BYTES as usize / 8..];
        let answer = receive * u64::from(ANSWER_BYTES);
        self.answers.words()[answer as usize / 8].set(words[capsule::SLOT].get());
        let mut unsignalled = self.unsignalled.lock();
        *unsignalled += 1;
        let signalled = *unsignalled == SIGNAL_EVERY;
        if signalled {
            *unsignalled = 0;
        }
        let remote = (MemoryKey(words[capsule::KEY].get() as u32), DeviceAddress(words[capsule::ADDRESS].get()));
        let block = self.block.device_address();
        let bytes = (words[capsule::BYTES].get() as u32).min(self.block.len_bytes() as u32);
        let data = PostSend { id: receive, local: block, bytes, remote: Some(remote), signalled: false };
        let local = self.answers.device_address().offset(answer);
        let answer = PostSend { id: receive, local, bytes: ANSWER_BYTES, remote: None, signalled };
        // The queue has room for the sends of every receive. A stopped queue pair accepts nothing more.
        let _ = pair.post_send(&data).and_then(|()| pair.post_send(&answer));
        let _ = pair.post_receive(&self.receive(receive));
    }
}

impl CqUser for Target {
    fn completions(&self, batch: &[Completion]) {
        let Some(pair) = self.pair.get() else { return };
        for completion in batch.iter().filter(|completion| completion.status == Status::SUCCESS) {
            if completion.operation == Operation::RECEIVE {
                SimHal.work(work::FABRIC_SERVE, 1);
                pair.receives_ended(1);
                self.serve(pair, completion.id);
            } else {
                pair.sends_ended(SENDS_A_READ * SIGNAL_EVERY);
            }
        }
        pair.ring_receives();
        pair.ring_sends();
    }
}
