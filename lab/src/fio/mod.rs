//! fio job files as users already have them.
//!
//! Grammar and meaning are those of fio 3.33: `[global]` sections hold for the job sections below them, later values
//! replace earlier ones, `;` and `#` begin comments, numbers are read as the C library reads them. The table in
//! [`options`] has every option with its type and its meaning here. An option is modelled, has no effect on the result,
//! is not modelled and told, or is an error because it cannot be honoured.

mod expression;
mod job;
pub mod json;
pub mod judge;
pub mod kind;
mod lines;
pub mod logs;
mod number;
pub mod options;
pub mod replay;
mod reporting;
mod special;
pub mod stat;
#[cfg(test)]
mod tests;
mod value;
mod variables;

pub(crate) use job::split_names;
pub use job::{FioJob, drive_of, jobs};
pub use lines::{Entry, Include, Section, read, sections};
pub use number::Unit;
pub use reporting::{Logs, Reporting, Unified};
pub use variables::Variables;
