//! The simulated machine.
pub mod engine;
pub mod time;
