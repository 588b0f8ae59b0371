//! The delivery core: everything between a device's interrupt message and the completion handler.
//!
//! It has no global state: a kernel owns a value of it, and several may live side by side.
#![no_std]
extern crate alloc;

mod account;
mod affinity;
mod chip;
mod config;
mod core;
mod debug;
mod domain;
mod error;
mod flow;
mod hotplug;
mod lifecycle;
mod line;
pub mod posted;
mod storm;
mod types;
mod vectors;

pub use self::core::{IrqCore, SystemHandler};
pub use account::Interrupts;
pub use chip::{ChipOps, IrqChip};
pub use config::{CoreConfig, StormConfig};
pub use debug::{LevelView, LineView};
pub use domain::{AllocRequest, Delivery, IrqDomain, Level, LevelData};
pub use error::IrqError;
pub use flow::Flow;
pub use lifecycle::RequestFlags;
pub use types::{Action, HardwareIrq, Irq, IrqReturn, MsiMessage, RequesterId, Target, Vector};
pub use vectors::spread;
