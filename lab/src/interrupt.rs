//! Ctrl-C as a flag: a run stops at its next seed and prints what it has.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether Ctrl-C was pressed.
#[derive(Clone, Debug, Default)]
pub struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// Listens for Ctrl-C. A second Ctrl-C ends the program at once, with code 130. Call it once in a program.
    ///
    /// # Errors
    /// The system's error, or a second listener.
    pub fn install() -> Result<Self, ctrlc::Error> {
        let flag = Self::default();
        let seen = flag.clone();
        ctrlc::set_handler(move || {
            if seen.0.swap(true, Ordering::Relaxed) {
                std::process::exit(130);
            }
            eprintln!("stopping; once more ends at once");
        })?;
        Ok(flag)
    }

    /// Whether to stop.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// The flag, for rooms that do not know this type.
    pub fn shared(&self) -> Arc<AtomicBool> {
        self.0.clone()
    }

    /// Stops as Ctrl-C does.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
