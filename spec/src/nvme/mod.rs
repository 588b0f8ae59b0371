//! NVM Express: the layout of registers, queue entries and identify data.
//!
//! Clauses are those of the NVM Express Base Specification 2.0 ("Base"), of the NVM Command Set Specification 1.0
//! ("NVM") and of the NVMe over PCIe Transport Specification 1.0 ("PCIe"). Only what a driver or a model of ours uses
//! is here; numbers that hardware may invent are newtypes with constants, so that an unknown one stays a value.

mod command;
mod completion;
pub mod identify;
pub mod registers;

pub use command::{
    AbortDw10, AdminOpcode, Cdw0, Command, CreateCqDw11, CreateSqDw11, DatasetDw10, DatasetDw11, DatasetRange,
    FeatureDw10, FeatureId, FeatureSelect, IdentifyDw10, InterruptCoalescing, InterruptVector, IoOpcode,
    NumberOfQueues, QueueDw10, ReadWriteDw12,
};
pub use completion::{Completion, Status, StatusCodeType, StatusField};

/// Bytes of a submission queue entry (Base 3.3.3.1).
pub const SQE_BYTES: usize = 64;
/// Bytes of a completion queue entry (Base 3.3.3.2).
pub const CQE_BYTES: usize = 16;
/// The namespace id that means every namespace (Base 3.2.1.2).
pub const NSID_ALL: u32 = 0xffff_ffff;
