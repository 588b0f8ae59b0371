//! Requests and their ends.

use super::{Refusal, TransferError};
use alloc::vec::Vec;
use hal::DeviceAddress;

/// A memory fill.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fill {
    /// Eight bytes that are repeated, the lowest first.
    pub pattern: u64,
    /// Where the first byte goes; any alignment.
    pub destination: DeviceAddress,
    /// How many bytes, no multiple of eight needed.
    pub bytes: u32,
    /// The caller's own; comes back with the completion.
    pub tag: u64,
}

impl Fill {
    pub(super) fn check(&self, transfer_bytes_max: u32) -> Result<(), Refusal> {
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
    /// The bytes filled, or why not all were.
    pub result: Result<u32, TransferError>,
    /// When it was submitted.
    pub submitted_ns: u64,
}

/// How far a submission got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Submitted {
    /// So many requests from the front were accepted.
    pub accepted: usize,
    /// Why the next was not.
    pub refusal: Option<Refusal>,
}

/// What to submit after a batch of completions.
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
        fill.check(self.transfer_bytes_max)?;
        self.fills.push(fill);
        Ok(())
    }
}

/// The user of a work queue.
pub trait BatchDone: Send + Sync {
    /// These have ended. What is pushed to `next` is submitted when the call returns; when the queue is being closed,
    /// there is no room in it.
    ///
    /// Called from the interrupt or poll that found them, interrupts off, with the queue's lock held: it must not call
    /// the queue.
    fn batch_done(&self, done: &[Completed], next: &mut Next);
}
