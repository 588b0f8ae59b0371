//! The engine: pending events and the stacks that they resume.

mod calendar;
mod occupied;
mod sort;

pub use calendar::Calendar;
