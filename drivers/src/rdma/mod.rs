//! A driver for the RDMA NIC of [`spec::rdma`]: queue pairs, and completion queues as an interface of their own.
//!
//! [`Device`] turns the NIC on, registers memory, and opens completion queues and queue pairs. Whoever posts to a
//! [`QueuePair`] is told of completions by the [`CqUser`] of its [`CompletionQueue`], in the context that its event queue was
//! given for it ([`EventQueue::attach`]):
//!
//! | context | who looks | budget |
//! |---|---|---|
//! | none | the user calls [`CompletionQueue::poll`] | the user's |
//! | [`CqContext::SoftPoll`] | [`irq::poll::SoftPoll`], at the end of interrupts | [`BUDGET_SOFT`] a turn |
//! | [`CqContext::Workqueue`] | a [`Worker`], a thread | [`BUDGET_WORKQUEUE`] a turn |
//!
//! Each takes batches of [`BATCH`]. A turn that found less than its budget is done: the queue is armed again, and looked
//! at once more; what came before it was armed, and would raise no event, is *missed events* and makes another turn.
//!
//! Moderation, a count and a period, is a property of a completion queue. One that several users share may not have it
//! changed by one of them ([`RdmaError::Shared`]). With a [`irq::moderation::Tuner`] the queue's turns feed a
//! controller, and the queue is the [`irq::moderation::Moderated`] of its programmer.
//!
//! Nothing on the data path allocates. Absent: reads and atomics, shared receive queues, recovery of a queue pair that
//! stopped (it is opened anew).

mod completion;
mod context;
mod device;
mod error;
mod event;
mod pair;
mod ring;

pub use completion::{BATCH, Completion, CompletionQueue, CqCounters, CqUse, CqUser, Missed};
pub use context::{BUDGET_SOFT, BUDGET_WORKQUEUE, CqContext, Worker};
pub use device::{CqConfig, Device, DeviceConfig, MemoryKey, QpConfig};
pub use error::{RdmaError, Refusal};
pub use event::{EventCounters, EventQueue};
pub use pair::{PostReceive, PostSend, QueuePair};
