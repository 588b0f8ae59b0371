//! `campanile check`: a search for interrupts that are lost, late, doubled or let in.
//!
//! Random machines, loads, management, faults and schedules, all from one seed a history; checkers that hear what the
//! hardware did and trust nothing that the code under test says; and, when one finds something, the shortest history
//! that still shows it. See docs/check.md.
//!
//! A stack is put under it by implementing [`subject::Subject`] and [`subject::Rig`].

pub mod campaign;
mod catch;
pub mod checkers;
pub mod cli;
pub mod coverage;
pub mod draw;
pub mod gic;
pub mod history;
pub mod mark;
pub mod moderation;
pub mod pc;
mod report;
pub mod run;
pub mod scenarios;
pub mod server;
pub mod shrink;
pub mod subject;
pub mod unrest;
pub mod verdict;
pub mod virtio;
