//! The laboratory: joins machine, drivers and workloads, and reports the measurements.

pub mod atomic_file;
pub mod bench;
pub mod calibrate;
pub mod cli;
pub mod coalescing;
pub mod commands;
pub mod document;
pub mod fio;
pub mod input;
pub mod interrupt;
pub mod kinds;
pub mod lint;
pub mod outcome;
pub mod plan;
pub mod platform;
pub mod progress;
pub mod published;
pub mod report;
pub mod reproduce;
pub mod run;
pub mod scenario;
pub mod server;
pub mod setting;
pub mod transfer;
pub mod work;
