//! `campanile check`: a search for interrupts that are lost, late, doubled or let in.
//!
//! One seed per history determines a random machine, load, management, faults and schedule. Checkers observe the
//! hardware and trust no report of the code under test. When a checker finds something, the search looks for the
//! shortest history that still shows it. See docs/check.md.
//!
//! To check a stack, implement [`subject::Subject`] and [`subject::Rig`] for it.

mod about;
pub mod campaign;
mod catch;
pub mod checkers;
pub mod cli;
pub mod coverage;
mod deadlines;
mod deeds;
pub mod draw;
pub mod firmware;
mod fullness;
pub mod gic;
pub mod guided;
pub mod history;
pub mod mark;
pub mod metamorphic;
pub mod minutes;
pub mod moderation;
mod parallel;
pub mod parts;
pub mod pc;
pub mod reach;
mod report;
mod rest;
pub mod run;
pub mod scenarios;
pub mod scheduler;
pub mod server;
pub mod setbacks;
pub mod shrink;
pub mod single;
pub mod subject;
pub mod systematic;
mod touched;
pub mod trials;
pub mod unrest;
pub mod verdict;
pub mod virtio;
