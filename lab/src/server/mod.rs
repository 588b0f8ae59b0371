//! A server that somebody measured: from what fio and its kernel said to a platform file of its own.
//!
//! | file | content |
//! |---|---|
//! | `gather.rs` | the measurements of files |
//! | `host.rs` | which of several hosts is the server |
//! | `archived.rs` | the measurements of an archive, or of a folder |
//! | `beside.rs` | which readings stand before and after a run, in files of somebody's own |
//! | `run_name.rs` | what the name of a file says of its run |
//! | `chips.rs` | what the chips of the interrupts say of their delivery |
//! | `delivery.rs` | how the interrupts of a measurement's drives came |
//! | `used.rs` | whose interrupts a job's I/Os had: which controllers it used |
//! | `elapsed.rs` | the time between two readings |
//! | `facts.rs` | what the kernel says of the hardware: no fit needed |
//! | `choose.rs` | which of many measurements are fitted |
//! | `agrees.rs` | whether a job's options can have made what fio measured |
//! | `cost.rs` | what their runs cost, and how many a fit can afford |
//! | `cpu.rs` | the CPU time of a measurement |
//! | `idle.rs` | jobs that did nothing |
//! | `part.rs` | which sections of a job file made which jobs |
//! | `polled.rs` | whether a job that asks for polled queues had them |
//! | `together.rs` | whether the jobs of a measurement ran at the same time |
//! | `starts.rs` | where a fit begins |
//! | `syncs.rs` | what a measurement's syncs say of the drive's cache |
//! | `fit.rs` | the platform, and which of its constants the measurements decide |
//! | `named.rs` | which drives the names of a job's files stand for |
//! | `shape.rs` | what the platform's file says of its constants after a fit |
//! | `misses.rs` | what the fitted platform does not give back, and what may be the reason |
//! | `write.rs` | the files: platform, rows, a scenario and a job file a measurement |

mod agrees;
mod archived;
mod beside;
mod chips;
pub mod choose;
mod cost;
mod cpu;
pub mod delivery;
mod elapsed;
pub mod facts;
pub mod fit;
pub mod gather;
mod host;
mod idle;
mod job;
pub mod misses;
mod named;
mod part;
mod polled;
mod run_name;
mod shape;
mod starts;
mod syncs;
mod together;
mod used;
pub mod write;

/// The kind of drive in the platform file of a measured server.
pub const DRIVE: &str = "measured";
