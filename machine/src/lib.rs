//! The simulated machine.
pub mod time;
