//! fio job files, as people have them.
//!
//! Grammar and meaning are those of fio's own documentation (HOWTO, "Job file format" and "Job file parameters"):
//! `[global]` sections hold for the job sections below them, later values replace earlier ones, a bare key of a
//! boolean is 1, `;` and `#` begin comments. What an option means here is in [`options`]: it is modelled, or nothing
//! in the result depends on it, or it is ignored with a warning, or it cannot be honoured and is an error.

mod job;
mod lines;
pub mod options;
#[cfg(test)]
mod tests;
mod value;

pub use job::{FioJob, jobs};
pub use lines::{Entry, Include, Section, sections};
