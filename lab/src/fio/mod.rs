//! fio job files as users already have them.
//!
//! Grammar and meaning are those of fio's own documentation (HOWTO, "Job file format" and "Job file parameters"):
//! `[global]` sections hold for the job sections below them, later values replace earlier ones, a bare key of a
//! boolean is 1, `;` and `#` begin comments. The table in [`options`] gives each option's meaning here. An option is
//! modelled, has no effect on the result, is ignored with a warning, or is an error because it cannot be honoured.

mod job;
mod lines;
pub mod options;
#[cfg(test)]
mod tests;
mod value;

pub use job::{FioJob, jobs};
pub use lines::{Entry, Include, Section, sections};
