//! Whole systems: everything that an embedder needs to bring up interrupt delivery and keep it in order.
//!
//! The delivery core and the drivers are parts. This crate puts them together in the order that hardware demands, so
//! that no kernel has to know it: interrupt entry, system vectors, CPU hotplug, and timers for the core's own
//! deadlines. It has no unsafe code and no state outside its values.
//!
//! [`Line`] and [`Handler`] are guards. A line is freed when its guard and the guards of all its handlers are dropped.
//! A handler is removed when its guard is dropped. [`pc::Pc`] is a PC, [`arm::Arm`] an Arm system. [`Alarm`] lets each
//! CPU's timer serve both the kernel and the core.
#![no_std]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod alarm;
pub mod arm;
mod line;
pub mod pc;
#[cfg(test)]
mod tests;

pub use alarm::{Alarm, CpuTimers, Expired};
pub use line::{Disabled, Handler, Line};
