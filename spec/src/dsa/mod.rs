//! Intel Data Streaming Accelerator, version 1.0: registers, tables, portals, descriptors and completion records.
//!
//! Source: Intel Data Streaming Accelerator Architecture Specification, order number 341204 ("DSA"), cited by the names
//! of its clauses. Offsets and codes were compared with the public kernel headers of the same device.

mod descriptor;
pub mod registers;
mod tables;

pub use descriptor::{CompletionRecord, CompletionStatus, Control, Descriptor, Flags, Opcode, RecordHead, Size};
pub use tables::{
    GRPCFG_BYTES, GRPCFG_ENGINES, GRPCFG_FLAGS, GRPCFG_QUEUES, GroupFlags, PORTAL_BYTES, PORTALS_PER_QUEUE, Portal,
    QueueState, WQCFG_BYTES_MIN, WqLimits, WqMode, WqSize, WqStatus, WqThreshold, portal, wqcfg,
};
