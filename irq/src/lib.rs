//! The delivery core: everything between a device's interrupt message and the completion handler.
//!
//! It has no global state: a kernel owns a value of it, and several may live side by side.
#![no_std]
extern crate alloc;

mod chip;
mod domain;
mod error;
pub mod posted;
mod types;

pub use chip::{ChipOps, IrqChip};
pub use domain::{AllocRequest, Delivery, IrqDomain, Level, LevelData};
pub use error::IrqError;
pub use types::{Action, HardwareIrq, Irq, IrqReturn, MsiMessage, RequesterId, Target, Vector};
