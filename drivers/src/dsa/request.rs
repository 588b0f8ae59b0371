//! Requests and their results.

use super::{Refusal, TransferError};
use alloc::vec::Vec;
use hal::DeviceAddress;

/// A memory fill.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fill {
    /// Eight bytes to repeat, lowest byte first.
    pub pattern: u64,
    /// Address of the first byte, at any alignment.
    pub destination: DeviceAddress,
    /// Number of bytes; need not be a multiple of eight.
    pub bytes: u32,
    /// Chosen by the caller; the completion returns it.
    pub tag: u64,
}

impl Fill {
    pub(super) fn validate(&self, transfer_bytes_max: u32) -> Result<(), Refusal> {
        if self.bytes == 0 || self.bytes > transfer_bytes_max {
            return Err(Refusal::Length(self.bytes, transfer_bytes_max));
        }
        match self.destination.0.checked_add(u64::from(self.bytes) - 1) {
            Some(_) => Ok(()),
            None => Err(Refusal::Wraps(self.destination.0, self.bytes)),
        }
    }
}

/// A request that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completed {
    /// [`Fill::tag`].
    pub tag: u64,
    /// The number of bytes filled, or the error that stopped the fill.
    pub result: Result<u32, TransferError>,
    /// Time of submission.
    pub submitted_ns: u64,
}

/// Result of a submission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Submitted {
    /// Number of requests accepted, from the front.
    pub accepted: usize,
    /// Why the queue refused the next request.
    pub refusal: Option<Refusal>,
}

/// Collects the requests to submit after a batch of completions.
pub struct Next {
    pub(super) fills: Vec<Fill>,
    pub(super) room: usize,
    pub(super) transfer_bytes_max: u32,
}

impl Next {
    /// Adds a request.
    ///
    /// # Errors
    /// [`Refusal`] when the queue would not take it; nothing was added.
    pub fn push(&mut self, fill: Fill) -> Result<(), Refusal> {
        if self.fills.len() >= self.room {
            return Err(Refusal::Full);
        }
        fill.validate(self.transfer_bytes_max)?;
        self.fills.push(fill);
        Ok(())
    }
}

/// The user of a work queue.
pub trait BatchDone: Send + Sync {
    /// The batch of requests that have ended. The queue submits all requests pushed to `next` when the call returns.
    /// While the queue is being closed, `next` has no room.
    ///
    /// Runs in the interrupt or poll that found the completions, with interrupts off and the queue's lock held. It
    /// must not call the queue.
    fn batch_done(&self, done: &[Completed], next: &mut Next);
}
