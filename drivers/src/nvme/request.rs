//! Requests into a queue, and their completions.

use super::{IoError, Refusal};
use hal::{CpuId, DeviceAddress};

/// What an I/O does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IoOp {
    /// Blocks to buffer.
    Read,
    /// Buffer to blocks.
    Write,
    /// Makes completed writes durable; LBA, buffer and length are not looked at. Only a device with a volatile write
    /// cache needs it ([`super::ControllerInfo::volatile_write_cache`]).
    Flush,
    /// Deallocates the blocks (Dataset Management, one range); the buffer is not looked at, and the length may be above
    /// the longest transfer. Not every device can ([`super::ControllerInfo::deallocates`]).
    Deallocate,
}

/// One I/O to submit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IoRequest {
    /// The caller's own; comes back in [`Completed::tag`].
    pub tag: u64,
    /// The operation.
    pub op: IoOp,
    /// The first block.
    pub lba: u64,
    /// The buffer, contiguous for the device, aligned to 4 bytes. It must stay until the completion.
    pub buffer: DeviceAddress,
    /// Bytes to transfer, a multiple of the block size.
    pub len_bytes: u32,
}

/// Result of submitting a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a batch may be accepted in part"]
pub struct Submitted {
    /// So many requests, from the first on, are on their way; each completes exactly once.
    pub accepted: usize,
    /// Why the next one, and with it the rest, was not accepted; none when all were.
    pub refused: Option<Refusal>,
}

/// One command that is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completed {
    /// [`IoRequest::tag`].
    pub tag: u64,
    /// Dword 0 of the completion, or what went wrong.
    pub result: Result<u32, IoError>,
    /// When it was submitted, in [`hal::Hal::now_ns`] time.
    pub submitted_ns: u64,
    /// The CPU that submitted it.
    pub cpu: CpuId,
}

/// The receiver of completions.
pub trait BatchDone: Send + Sync {
    /// Commands are over, in the device's order; the device knows already that their entries were taken.
    ///
    /// Called in whatever context reaped: often an interrupt handler, always with interrupts off and the queue's
    /// completion side locked. It may submit and wake threads; it must not reap the same queue, nor block.
    fn batch_done(&self, batch: &[Completed]);
}
