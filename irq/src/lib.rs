//! The delivery core: everything between a device's interrupt message and the completion handler.
//!
//! It has no global state: a kernel owns a value of it, and several may live side by side.
#![no_std]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod account;
mod affinity;
mod chip;
mod config;

mod debug;
mod delivery;
mod domain;
mod error;
mod flow;
mod hotplug;
mod lifecycle;
mod line;
pub mod posted;
mod storm;
#[cfg(test)]
mod tests;
mod types;
mod vectors;

pub use account::Interrupts;
pub use chip::{ChipOps, IrqChip};
pub use config::{CoreConfig, StormConfig};
pub use debug::{LevelView, LineView};
pub use delivery::{IrqCore, SystemHandler};
pub use domain::{AllocRequest, Delivery, IrqDomain, Level, LevelData};
pub use error::IrqError;
pub use flow::Flow;
pub use lifecycle::RequestFlags;
pub use types::{Action, HardwareIrq, Irq, IrqReturn, MsiMessage, RequesterId, Target, Vector};
pub use vectors::spread;
