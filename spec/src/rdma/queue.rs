//! Structures in memory: work requests, completions, events.

use bitfield_struct::bitfield;
use core::fmt;

/// Bytes of a send request.
pub const SEND_BYTES: usize = 64;
/// Bytes of a receive.
pub const RECEIVE_BYTES: usize = 32;
/// Bytes of a completion queue entry.
pub const CQE_BYTES: usize = 16;
/// Bytes of an event queue entry.
pub const EQE_BYTES: usize = 8;

/// The operation of a send request, and of the request that a completion reports.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Operation(pub u8);

impl Operation {
    /// A message into the memory of the other end's next receive.
    pub const SEND: Self = Self(0x01);
    /// RDMA write into the memory of the other end that the request names. No completion is written there.
    pub const WRITE: Self = Self(0x02);
    /// In completions alone: a receive was filled.
    pub const RECEIVE: Self = Self(0x80);
}

/// How a work request ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Status(pub u8);

impl Status {
    /// Success.
    pub const SUCCESS: Self = Self(0x00);
    /// The message is longer than the receive.
    pub const LENGTH: Self = Self(0x01);
    /// The request names an operation that the device lacks.
    pub const OPERATION: Self = Self(0x02);
    /// Memory of this end cannot be reached.
    pub const LOCAL_ACCESS: Self = Self(0x03);
    /// The key, the range or the right was wrong at the other end.
    pub const REMOTE_ACCESS: Self = Self(0x04);
    /// No receive was posted in time.
    pub const RECEIVER_NOT_READY: Self = Self(0x05);
    /// The queue pair stopped before.
    pub const FLUSHED: Self = Self(0x06);
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match *self {
            Self::SUCCESS => "success",
            Self::LENGTH => "message longer than the receive",
            Self::OPERATION => "operation unknown to the device",
            Self::LOCAL_ACCESS => "local memory out of reach",
            Self::REMOTE_ACCESS => "remote memory out of reach",
            Self::RECEIVER_NOT_READY => "no receive posted in time",
            Self::FLUSHED => "queue pair stopped",
            Self(code) => return write!(f, "status {code:#04x}"),
        };
        f.write_str(name)
    }
}

/// The first word of a send request.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct SendHead {
    /// An [`Operation`].
    pub operation: u8,
    /// A completion is wanted. One with an error comes always.
    pub signalled: bool,
    #[bits(23)]
    __: u32,
    /// Bytes.
    pub length: u32,
}

/// A send request: eight words, of which the last three are reserved.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Send {
    /// The operation.
    pub head: SendHead,
    /// Comes back in the completion.
    pub id: u64,
    /// Memory of this end.
    pub local: u64,
    /// For a write: memory of the other end.
    pub remote: u64,
    /// For a write: the other end's key, in the low half.
    pub key: u64,
    /// Reserved: 0.
    pub reserved: [u64; 3],
}
const _: () = assert!(size_of::<Send>() == SEND_BYTES);

impl Send {
    /// As it lies in memory.
    pub const fn to_words(self) -> [u64; 8] {
        [self.head.into_bits(), self.id, self.local, self.remote, self.key, 0, 0, 0]
    }

    /// From memory.
    pub const fn from_words(words: [u64; 5]) -> Self {
        let [head, id, local, remote, key] = words;
        Self { head: SendHead::from_bits(head), id, local, remote, key, reserved: [0; 3] }
    }
}

/// A receive: four words, of which the last is reserved.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Receive {
    /// Comes back in the completion.
    pub id: u64,
    /// Where the message goes.
    pub local: u64,
    /// Bytes of room.
    pub length: u64,
    /// Reserved: 0.
    pub reserved: u64,
}
const _: () = assert!(size_of::<Receive>() == RECEIVE_BYTES);

/// The last word of a completion, which the device writes last.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct CqeTail {
    /// Bytes received.
    #[bits(24)]
    pub length: u32,
    /// The queue pair.
    pub queue_pair: u16,
    /// An [`Operation`].
    pub operation: u8,
    /// A [`Status`].
    pub status: u8,
    #[bits(7)]
    __: u8,
    /// Inverted by each pass of the device through the queue; 1 in the first.
    pub phase: bool,
}

/// A completion queue entry.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Cqe {
    /// The request's.
    pub id: u64,
    /// The result.
    pub tail: CqeTail,
}
const _: () = assert!(size_of::<Cqe>() == CQE_BYTES);

/// The kind of an event.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EventKind(pub u8);

impl EventKind {
    /// An armed completion queue has new entries; it is disarmed now.
    pub const COMPLETION: Self = Self(0x01);
    /// A completion queue stopped.
    pub const CQ_ERROR: Self = Self(0x02);
    /// A queue pair stopped. The event goes to the event queue of its receive completion queue.
    pub const QP_ERROR: Self = Self(0x03);
}

/// An event queue entry: one word.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct Eqe {
    /// The completion queue or queue pair.
    pub object: u16,
    /// An [`EventKind`].
    pub kind: u8,
    #[bits(39)]
    __: u64,
    /// Inverted by each pass of the device through the queue; 1 in the first.
    pub phase: bool,
}
const _: () = assert!(size_of::<Eqe>() == EQE_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_composed_by_hand() {
        let head = SendHead::new().with_operation(2).with_signalled(true).with_length(512);
        let send = Send { head, id: 7, local: 0x1000, remote: 0x2000, key: 0x301, reserved: [0; 3] };
        let words = [0x0000_0200_0000_0102, 7, 0x1000, 0x2000, 0x301, 0, 0, 0];
        assert_eq!(send.to_words(), words);
        assert_eq!(Send::from_words([words[0], 7, 0x1000, 0x2000, 0x301]), send);
        let tail = CqeTail::from_bits(0x8006_8000_0300_0200);
        assert_eq!((tail.length(), tail.queue_pair()), (0x200, 3));
        assert_eq!((Operation(tail.operation()), Status(tail.status())), (Operation::RECEIVE, Status::FLUSHED));
        assert!(tail.phase());
        let event = Eqe::from_bits(0x8000_0000_0001_0005);
        assert_eq!((event.object(), EventKind(event.kind()), event.phase()), (5, EventKind::COMPLETION, true));
    }
}
