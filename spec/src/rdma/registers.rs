//! Registers of region 0, and the doorbells of region 1.
//!
//! Objects are numbered from 0 and have a block of registers each. Their registers are written while the object is off;
//! while it is on, only `CONTROL` and a completion queue's [`cq::MODERATION`] take writes, others are ignored. A read or
//! write that is not 32 or 64 bits wide and aligned, or beyond the last object, is ignored and reads 0.

use crate::register::{ReadOnly, ReadWrite, Register};
use bitfield_struct::bitfield;

/// [`IDENTITY`].
pub const ID: Register<u32, ReadOnly> = Register::at(0x00);
/// The value of [`ID`]: "CRN", version 1.
pub const IDENTITY: u32 = 0x4352_4e01;
/// [`Capabilities`].
pub const CAPABILITIES: Register<u64, ReadOnly> = Register::at(0x08);
/// [`Control`].
pub const CONTROL: Register<u32, ReadWrite> = Register::at(0x10);
/// [`DeviceStatus`].
pub const STATUS: Register<u32, ReadOnly> = Register::at(0x14);

/// Memory regions: block `n` at `MR + n * MR_STRIDE`.
pub const MR: u32 = 0x1000;
/// Bytes of a memory region's block.
pub const MR_STRIDE: u32 = 0x20;
/// Most memory regions.
pub const MR_MAX: u32 = 64;
/// Event queues: block `n` at `EQ + n * EQ_STRIDE`.
pub const EQ: u32 = 0x4000;
/// Bytes of an event queue's block.
pub const EQ_STRIDE: u32 = 0x20;
/// Most event queues.
pub const EQ_MAX: u32 = 256;
/// Completion queues: block `n` at `CQ + n * CQ_STRIDE`.
pub const CQ: u32 = 0x1_0000;
/// Bytes of a completion queue's block.
pub const CQ_STRIDE: u32 = 0x40;
/// Most completion queues.
pub const CQ_MAX: u32 = 1024;
/// Queue pairs: block `n` at `QP + n * QP_STRIDE`.
pub const QP: u32 = 0x4_0000;
/// Bytes of a queue pair's block.
pub const QP_STRIDE: u32 = 0x40;
/// Most queue pairs.
pub const QP_MAX: u32 = 1024;

const _: () = assert!(MR + MR_MAX * MR_STRIDE <= EQ, "blocks do not overlap");
const _: () = assert!(EQ + EQ_MAX * EQ_STRIDE <= CQ && CQ + CQ_MAX * CQ_STRIDE <= QP);

/// A memory region's block.
pub mod mr {
    use crate::register::{ReadWrite, Register};

    /// First byte.
    pub const BASE: Register<u64, ReadWrite> = Register::at(0x00);
    /// Bytes.
    pub const LENGTH: Register<u64, ReadWrite> = Register::at(0x08);
    /// [`super::MrControl`].
    pub const CONTROL: Register<u32, ReadWrite> = Register::at(0x10);
}

/// An event queue's block.
pub mod eq {
    use crate::register::{ReadWrite, Register};

    /// Its memory, aligned to 64 bytes.
    pub const BASE: Register<u64, ReadWrite> = Register::at(0x00);
    /// [`super::EqControl`].
    pub const CONTROL: Register<u32, ReadWrite> = Register::at(0x08);
}

/// A completion queue's block.
pub mod cq {
    use crate::register::{ReadWrite, Register};

    /// Its memory, aligned to 64 bytes.
    pub const BASE: Register<u64, ReadWrite> = Register::at(0x00);
    /// Address of the 64-bit doorbell record. Its low half counts the entries that software has taken, modulo 2^32.
    pub const RECORD: Register<u64, ReadWrite> = Register::at(0x08);
    /// [`super::CqControl`].
    pub const CONTROL: Register<u32, ReadWrite> = Register::at(0x10);
    /// [`super::Moderation`].
    pub const MODERATION: Register<u32, ReadWrite> = Register::at(0x14);
}

/// A queue pair's block.
pub mod qp {
    use crate::register::{ReadWrite, Register};

    /// Memory of the send queue, aligned to 64 bytes.
    pub const SEND_BASE: Register<u64, ReadWrite> = Register::at(0x00);
    /// Memory of the receive queue, aligned to 64 bytes.
    pub const RECEIVE_BASE: Register<u64, ReadWrite> = Register::at(0x08);
    /// [`super::QpQueues`].
    pub const QUEUES: Register<u64, ReadWrite> = Register::at(0x10);
    /// The queue pair at the other end.
    pub const REMOTE: Register<u32, ReadWrite> = Register::at(0x18);
    /// [`super::QpControl`].
    pub const CONTROL: Register<u32, ReadWrite> = Register::at(0x1c);
}

/// Region 1: one page of doorbells an object, so that a page can be given away. 32-bit writes; reads give 0.
pub mod doorbell {
    use crate::register::{Register, WriteOnly};

    /// Bytes of a page.
    pub const PAGE_BYTES: u32 = 0x1000;
    /// Page of queue pair 0; the others follow.
    pub const QP: u32 = 0;
    /// Page of completion queue 0.
    pub const CQ: u32 = super::QP_MAX * PAGE_BYTES;
    /// Page of event queue 0.
    pub const EQ: u32 = CQ + super::CQ_MAX * PAGE_BYTES;
    /// In a queue pair's page: send requests posted, modulo 2^32.
    pub const SEND: Register<u32, WriteOnly> = Register::at(0x00);
    /// In a queue pair's page: receives posted, modulo 2^32.
    pub const RECEIVE: Register<u32, WriteOnly> = Register::at(0x04);
    /// In a completion queue's page: arms it for one event; the value is how many entries software has taken, modulo
    /// 2^32. Entries beyond that count as new at once.
    pub const ARM: Register<u32, WriteOnly> = Register::at(0x00);
    /// In an event queue's page: arms it for one message; the value is how many entries software has taken, modulo
    /// 2^32. If there are more, the message goes at once.
    pub const EVENTS: Register<u32, WriteOnly> = Register::at(0x00);

    /// A doorbell of a queue pair.
    pub const fn qp(number: u32, doorbell: Register<u32, WriteOnly>) -> Register<u32, WriteOnly> {
        doorbell.behind(QP + number * PAGE_BYTES)
    }

    /// The arm doorbell of a completion queue.
    pub const fn cq(number: u32) -> Register<u32, WriteOnly> {
        ARM.behind(CQ + number * PAGE_BYTES)
    }

    /// The doorbell of an event queue.
    pub const fn eq(number: u32) -> Register<u32, WriteOnly> {
        EVENTS.behind(EQ + number * PAGE_BYTES)
    }
}

/// The features of the device.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct Capabilities {
    /// Queue pairs, at most [`QP_MAX`].
    pub queue_pairs: u16,
    /// Completion queues, at most [`CQ_MAX`].
    pub completion_queues: u16,
    /// Event queues, at most [`EQ_MAX`]; queue `n` interrupts through MSI-X entry `n`.
    #[bits(9)]
    pub event_queues: u16,
    /// Memory regions, at most [`MR_MAX`].
    #[bits(7)]
    pub memory_regions: u8,
    /// Queues of every kind have at most 2^n entries.
    #[bits(5)]
    pub entries_shift_max: u8,
    /// For how long a send waits for a receive, in units of 10 µs.
    pub patience_10us: u8,
    #[bits(3)]
    __: u8,
}

/// The whole device.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Control {
    /// The device is on. Turning it off turns every object off and clears its configuration.
    pub enable: bool,
    #[bits(31)]
    __: u32,
}

/// The whole device.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct DeviceStatus {
    /// It is on.
    pub ready: bool,
    /// The other end of the wire answers.
    pub link: bool,
    #[bits(30)]
    __: u32,
}

/// A memory region. A request that names it has its number in bits 7:0 of the key and the generation in 31:8.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct MrControl {
    /// On.
    pub enable: bool,
    /// The other end may write.
    pub remote_write: bool,
    #[bits(6)]
    __: u8,
    /// Generation: a key of another is refused.
    #[bits(24)]
    pub generation: u32,
}

/// An event queue.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct EqControl {
    /// On. Entries start with phase 1 at index 0, disarmed.
    pub enable: bool,
    /// Overflow (read only): entries were lost.
    pub overrun: bool,
    #[bits(6)]
    __: u8,
    /// 2^n entries.
    #[bits(5)]
    pub entries_shift: u8,
    #[bits(19)]
    __: u32,
}

/// A completion queue.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct CqControl {
    /// On. Entries start with phase 1 at index 0, disarmed.
    pub enable: bool,
    /// The queue stopped because it overflowed, or because its doorbell record was out of range (read only).
    pub error: bool,
    #[bits(6)]
    __: u8,
    /// 2^n entries.
    #[bits(5)]
    pub entries_shift: u8,
    #[bits(3)]
    __: u8,
    /// The event queue of its events.
    pub event_queue: u16,
}

/// When an armed completion queue sends its event: at `count` new entries, or when the first of them is
/// `period_us` old, whichever is first. With a count of 0 or 1, or a period of 0: at once. A device may round up the
/// values; the register then reads the rounded ones.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Moderation {
    /// New entries.
    pub count: u16,
    /// Age of the first of them, in microseconds.
    #[bits(15)]
    pub period_us: u16,
    /// The last write was refused, and the former value holds (read only).
    pub refused: bool,
}

/// The completion queues of a queue pair, and the lengths of its queues.
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct QpQueues {
    /// Completion queue of the send queue.
    pub send_cq: u16,
    /// Completion queue of the receive queue.
    pub receive_cq: u16,
    /// 2^n send requests.
    #[bits(5)]
    pub send_shift: u8,
    #[bits(3)]
    __: u8,
    /// 2^n receives.
    #[bits(5)]
    pub receive_shift: u8,
    #[bits(3)]
    __: u8,
    __: u16,
}

/// A queue pair.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct QpControl {
    /// On. Turning it off forgets its requests without completions.
    pub enable: bool,
    /// The queue pair stopped (read only): all its requests end with an error.
    pub error: bool,
    #[bits(30)]
    __: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words composed by hand from the layout above.
    #[test]
    fn fields_lie_where_the_layout_says() {
        assert_eq!(Moderation::new().with_count(0x20).with_period_us(0x10).into_bits(), 0x0010_0020);
        assert!(Moderation::from_bits(0x8000_0000).refused());
        assert_eq!(
            CqControl::new().with_enable(true).with_entries_shift(9).with_event_queue(3).into_bits(),
            0x0003_0901
        );
        assert_eq!(EqControl::new().with_enable(true).with_entries_shift(6).into_bits(), 0x0601);
        let queues = QpQueues::new().with_send_cq(1).with_receive_cq(2).with_send_shift(7).with_receive_shift(8);
        assert_eq!(queues.into_bits(), 0x0807_0002_0001);
        assert_eq!(MrControl::new().with_enable(true).with_remote_write(true).with_generation(5).into_bits(), 0x503);
        let capabilities = Capabilities::from_bits(0x0000_8150_0004_0008_u64 | 9 << 48);
        assert_eq!((capabilities.queue_pairs(), capabilities.completion_queues()), (8, 4));
        assert_eq!((capabilities.event_queues(), capabilities.memory_regions()), (0x150, 0x40));
        assert_eq!(capabilities.entries_shift_max(), 9);
    }

    #[test]
    fn doorbells_have_pages_of_their_own() {
        assert_eq!(doorbell::qp(3, doorbell::RECEIVE).offset(), 0x3004);
        assert_eq!(doorbell::cq(1).offset(), 0x40_1000);
        assert_eq!(doorbell::eq(2).offset(), 0x80_2000);
    }
}
