//! The delivery core: everything between a device's interrupt message and the completion handler.
//!
//! The core has no global state. A kernel owns a value of type [`IrqCore`]; several may live side by side.
//!
//! A *line* is one interrupt of one device. It passes through a hierarchy of [`IrqDomain`]s. In each domain it has a
//! hardware number and an [`IrqChip`]. Its [`Flow`] says which chip operations run around its handlers ([`Action`]s).
//! Where CPUs take interrupts by an [`Identity`] (a vector on x86), the line ends as one identity of a CPU, and enters
//! the core by [`IrqCore::handle_vector`]:
//!
//! ```text
//! device → PCI-MSI → INTEL-IR → VECTOR → CPU: handle_vector → table → line: flow → Action::handle
//! ```
//!
//! On Arm the root is a GIC, which has no such identities ([`IrqDomain::needs_identity`]). Its root handler learns the
//! line's number from the controller and calls [`IrqCore::handle_irq`].
//!
//! A handler may leave its work to a thread ([`IrqCore::request_threaded`]). The line may then be held back until that
//! work is done.
//!
//! A line may also be the output of another controller, with a domain of lines behind it
//! ([`IrqCore::request_chained`]).
#![no_std]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod account;
mod affinity;
mod belief;
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
mod resend;
mod state;
mod storm;
#[cfg(test)]
mod tests;
mod thread;
mod types;
mod vectors;

pub use account::Interrupts;
pub use belief::Belief;
pub use chained::Demultiplexer;
pub use chip::{ChipBehaviour, IrqChip, IrqChipBuilder};
pub use config::{CoreConfig, IdentitySpace, StormConfig};
pub use debug::{LevelView, LineView};
pub use delivery::{DeadlineHook, IrqCore, SystemHandler};
pub use domain::{AllocRequest, DeliveryKind, IrqDomain, Level, LevelData};
pub use error::IrqError;
pub use flow::Flow;
pub use request::RequestFlags;
pub use types::{
    Action, HardwareIrq, Identity, Irq, IrqChipState, IrqReturn, MsiMessage, RequesterId, Target, Trigger, Vector,
};
pub use vectors::{IdentityUse, spread};
