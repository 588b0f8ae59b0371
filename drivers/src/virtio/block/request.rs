//! Requests into a queue, and their completions.

use super::super::{QueueFault, Refusal};
use core::fmt;
use hal::DeviceAddress;
use spec::virtio::block::Outcome;

/// The operation of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockOp {
    /// Sectors to buffer.
    Read,
    /// Buffer to sectors.
    Write,
    /// Makes completed writes durable; sector, buffer and length are not looked at.
    Flush,
    /// The device's name into the buffer, of 20 bytes; sector and length are not looked at.
    GetId,
}

/// One request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockRequest {
    /// The caller's own; comes back in [`Completed::tag`].
    pub tag: u64,
    /// The operation.
    pub op: BlockOp,
    /// The first sector, of 512 bytes.
    pub sector: u64,
    /// The buffer, contiguous for the device. It must stay until the completion.
    pub buffer: DeviceAddress,
    /// Bytes to transfer, a multiple of 512.
    pub len_bytes: u32,
}

/// Result of submitting a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a batch may be accepted in part"]
pub struct Submitted {
    /// So many requests, from the first on, are on their way; each completes exactly once.
    pub accepted: usize,
    /// The refusal of the next request. None if all were accepted.
    pub refused: Option<Refusal>,
}

/// Why a request that was accepted did not succeed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockError {
    /// The device says so.
    Device(Outcome),
    /// The device used its buffer without saying how it went, or moved less than was asked for: bytes it wrote.
    Short(u32),
    /// Its queue was reset.
    QueueReset,
    /// The device was shut down.
    Shutdown,
}

impl fmt::Display for BlockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(Outcome::IOERR) => write!(f, "the device reports an I/O error"),
            Self::Device(Outcome::UNSUPP) => write!(f, "the device does not know this request"),
            Self::Device(outcome) => write!(f, "status {}; 0 to 2 are valid", outcome.0),
            Self::Short(bytes) => write!(f, "the device wrote {bytes} bytes, less than data and status"),
            Self::QueueReset => write!(f, "its queue was reset"),
            Self::Shutdown => write!(f, "the device was shut down"),
        }
    }
}

impl core::error::Error for BlockError {}

/// A request that is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completed {
    /// [`BlockRequest::tag`].
    pub tag: u64,
    /// How it went.
    pub result: Result<(), BlockError>,
    /// When it was submitted, in [`hal::Hal::now_ns`] time.
    pub submitted_ns: u64,
}

/// The receiver of completions.
pub trait BatchDone: Send + Sync {
    /// Requests of `queue` are over, in the device's order. In whatever context looked: often an interrupt handler. No
    /// lock of the driver is held: it may submit and wake threads; it must not block.
    fn batch_done(&self, queue: u16, batch: &[Completed]);
    /// The device broke `queue`, which is stopped: have a thread call [`super::Block::recover`]. Called once a fault, in
    /// the same context.
    fn queue_broken(&self, _queue: u16, _fault: QueueFault) {}
}
