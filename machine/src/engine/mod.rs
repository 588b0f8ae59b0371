//! The engine: pending events, and the stacks that they resume.

mod calendar;
mod occupied;
mod resumes;
mod sort;
mod tasks;
pub mod workload;

pub use calendar::Calendar;
pub(crate) use calendar::{key, time};
pub(crate) use resumes::Resumes;
pub use tasks::{Seat, TaskError, TaskId, Tasks, Turn};
