//! A small RDMA NIC of our own design.
//!
//! No vendor makes this device. Its habits are those of public RDMA NICs: queue pairs with a send and a receive queue of
//! work requests in memory and a doorbell for each; completion queues whose entries carry a phase bit, with the
//! consumer's index in a *doorbell record* in memory; completion queues that are armed for one event; moderation of
//! those events by count and period, for each completion queue; event queues that tell which completion queue has
//! something, each with an MSI-X vector. The rules ("RNIC") stand beside the registers and structures here, and this
//! module is their source.
//!
//! **Order.** Work requests of a send queue execute in order. The device writes an entry's last word last. An event queue
//! entry is in memory before its message; a completion is in memory before its event.
//!
//! **Connection.** A queue pair is bound to one queue pair of the NIC at the other end of the wire, which loses and
//! reorders nothing. A send that finds no receive posted waits at the receiver for [`registers::Capabilities`]'
//! patience; then both ends stop with [`Status::RECEIVER_NOT_READY`].
//!
//! Absent: reads, atomics, inline data, gather lists, shared receive queues, datagrams, partitions, virtual functions.

mod queue;
pub mod registers;

pub use queue::{
    CQE_BYTES, Cqe, CqeTail, EQE_BYTES, Eqe, EventKind, Operation, RECEIVE_BYTES, Receive, SEND_BYTES, Send, SendHead,
    Status,
};
