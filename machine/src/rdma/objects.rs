//! The state of each object.

use super::wire::Packet;
use crate::time::Ps;
use spec::rdma::Operation;
use spec::rdma::registers::{CqControl, EqControl, Moderation, MrControl, QpControl, QpQueues};
use std::collections::VecDeque;

#[derive(Clone, Copy, Default)]
pub(super) struct MemoryRegion {
    pub(super) base: u64,
    pub(super) length: u64,
    pub(super) control: MrControl,
}

impl MemoryRegion {
    /// Whether the other end may write these bytes.
    pub(super) fn may_be_written(&self, key: u32, address: u64, bytes: u64) -> bool {
        let control = self.control;
        let offset = address.wrapping_sub(self.base);
        control.enable()
            && control.remote_write()
            && control.generation() == key >> 8
            && address >= self.base
            && bytes <= self.length
            && offset <= self.length - bytes
    }
}

#[derive(Clone, Copy, Default)]
pub(super) struct EventQueue {
    pub(super) base: u64,
    pub(super) control: EqControl,
    pub(super) produced: u32,
    pub(super) taken: u32,
    pub(super) armed: bool,
}

#[derive(Clone, Copy, Default)]
pub(super) struct CompletionQueue {
    pub(super) base: u64,
    /// Address of the doorbell record.
    pub(super) record: u64,
    pub(super) control: CqControl,
    pub(super) moderation: Moderation,
    pub(super) produced: u32,
    /// The last value read from the doorbell record.
    pub(super) taken: u32,
    pub(super) armed: bool,
    /// Entries since it was armed.
    pub(super) new: u32,
    /// Counts periods; an event of an earlier one is stale.
    pub(super) timer: u32,
    pub(super) timing: bool,
}

/// A request that was sent and is not answered yet.
#[derive(Clone, Copy)]
pub(super) struct Flying {
    pub(super) sequence: u32,
    pub(super) id: u64,
    pub(super) operation: Operation,
    pub(super) signalled: bool,
}

#[derive(Default)]
pub(super) struct QueuePair {
    pub(super) send_base: u64,
    pub(super) receive_base: u64,
    pub(super) queues: QpQueues,
    pub(super) remote: u32,
    pub(super) control: QpControl,
    /// Counts enables; an event of an earlier one is stale.
    pub(super) epoch: u32,
    /// The requests that software has posted, and those that the device has taken.
    pub(super) send_posted: u32,
    pub(super) send_taken: u32,
    pub(super) receive_posted: u32,
    pub(super) receive_taken: u32,
    /// The engine is processing it, or it waits for the engine.
    pub(super) queued: bool,
    pub(super) flying: VecDeque<Flying>,
    /// Arrival time of its last request: later requests do not overtake it.
    pub(super) last_arrival: Ps,
    pub(super) last_answer: Ps,
    /// Requests of the other end that wait; the first one waits for a receive.
    pub(super) waiting: VecDeque<Packet>,
    /// The first of them waits for a receive, and an end of patience is under way.
    pub(super) is_patient: bool,
    /// Counts waits; an end of patience with an earlier one is stale.
    pub(super) patience: u32,
}

impl QueuePair {
    pub(super) fn runs(&self) -> bool {
        self.control.enable() && !self.control.error()
    }

    /// Software turns it on or off. Its old state is lost.
    pub(super) fn restart(&mut self, enable: bool) {
        *self = Self {
            send_base: self.send_base,
            receive_base: self.receive_base,
            queues: self.queues,
            remote: self.remote,
            control: QpControl::new().with_enable(enable),
            epoch: self.epoch.wrapping_add(1),
            patience: self.patience.wrapping_add(1),
            ..Self::default()
        };
    }
}
