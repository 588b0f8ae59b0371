//! The delivery core: everything between a device's interrupt message and the completion handler.
//!
//! It has no global state: a kernel owns a value of it, [`IrqCore`], and several may live side by side.
//!
//! A *line* is one interrupt of one device. It passes through a hierarchy of [`IrqDomain`]s, in each of which it has a
//! hardware number and an [`IrqChip`]; its [`Flow`] says what is done to those chips round its handlers
//! ([`Action`]s). On x86 it ends as a vector on a CPU, and comes back in by [`IrqCore::handle_vector`]:
//!
//! ```text
//! device → PCI-MSI → INTEL-IR → VECTOR → CPU: handle_vector → table → line: flow → Action::handle
//! ```
//!
//! On Arm the root is a GIC, which has no vectors ([`IrqDomain::needs_vector`]): its root handler learns the line's
//! number from the controller and calls [`IrqCore::handle_irq`].
//!
//! A handler may leave its work to a thread ([`IrqCore::request_threaded`]), with the line held back until that is done.
//!
//! A line may also be another controller's output, with a domain of lines behind it ([`IrqCore::request_chained`]).
#![no_std]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod account;
mod affinity;
mod chained;
mod chip;
mod config;
mod debug;
mod delivery;
mod domain;
mod error;
mod flow;
pub mod handover;
mod hardware;
mod hotplug;
mod lifecycle;
mod line;
pub mod moderation;
mod percpu;
pub mod poll;
pub mod posted;
mod request;
mod state;
mod storm;
#[cfg(test)]
mod tests;
mod thread;
mod types;
mod vectors;

pub use account::Interrupts;
pub use chained::Demultiplexer;
pub use chip::{ChipOps, IrqChip};
pub use config::{CoreConfig, StormConfig};
pub use debug::{LevelView, LineView};
pub use delivery::{IrqCore, SystemHandler};
pub use domain::{AllocRequest, Delivery, IrqDomain, Level, LevelData};
pub use error::IrqError;
pub use flow::Flow;
pub use request::RequestFlags;
pub use types::{Action, HardwareIrq, Irq, IrqChipState, IrqReturn, MsiMessage, RequesterId, Target, Trigger, Vector};
pub use vectors::spread;
