//! The simulated machine: CPUs that run the real driver code as coroutines, register-level models of controllers and
//! devices, and one deterministic order of events.
//!
//! Everything that happens is an event at an integer time in picoseconds; events at one time are ordered by the
//! sequence in which they were scheduled. CPUs run ordinary synchronous code that reaches the machine through
//! [`SimHal`]; models react to register accesses and events through [`world::World`]. See ARCHITECTURE.md, "How the
//! machine runs real code".

mod arrival;
mod core;
mod cpu;
mod current;
pub mod dsa;
pub mod engine;
mod event;
pub mod fabric;
pub mod fault;
pub mod gic;
mod lapic;
pub mod lent;
mod livelock;
mod machine;
pub mod memory;
pub mod model;
mod msix;
pub mod nvme;
pub mod observe;
mod pci;
mod posted_writes;
mod random;
pub mod rdma;
mod simhal;
#[cfg(test)]
mod tests;
mod threads;
pub mod time;
pub mod trace;
pub mod unrest;
pub mod virtio;
mod word;
pub mod world;

pub use cpu::{CpuTimes, Exception, IrqInput};
pub use machine::{BootError, Costs, EngineCounters, Machine, MachineConfig, RunEnd};
pub use random::Stream;
pub use simhal::{NO_THREAD, Regs, SimHal};
pub use word::Word;
