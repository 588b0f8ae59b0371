//! The simulated machine: CPUs that run the real driver code as coroutines, register-level models of controllers and
//! devices, and one deterministic order of events.
//!
//! Everything that happens is an event at an integer time in picoseconds; events at one time are ordered by the
//! sequence in which they were scheduled. CPUs run ordinary synchronous code that reaches the machine through
//! [`SimHal`]; models react to register accesses and events through [`world::World`]. See ARCHITECTURE.md, "How the
//! machine runs real code".

mod board;
mod clock;
mod config;
mod core;
mod costs;
mod cpu;
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
pub mod nvme;
pub mod observe;
pub mod outage;
pub mod pci;
mod posted_writes;
mod random;
pub mod rdma;
mod regs;
pub mod setback;
mod simhal;
mod stores;
#[cfg(test)]
mod tests;
mod threads;
pub mod time;
pub mod trace;
pub mod unrest;
pub mod virtio;
mod witness;
mod word;
mod work;

pub use board::{model, world};
pub use config::{Interrupts, MachineConfig};
pub use core::{
    affinity_of, begin_agent, begin_setback, declare_cpu, end_agent, end_setback, inspect, mark, peek_lapic, peek64,
    plug, push_writes, stop_run,
};
pub use costs::Costs;
pub use cpu::{CpuTimes, Exception, IrqInput};
pub use machine::{BootError, EngineCounters, Machine, NoMemory, RunEnd};
pub use random::Stream;
pub use regs::Regs;
pub use simhal::{NO_THREAD, SimHal};
pub use word::Word;
pub use work::{WorkKind, WorkKinds};
