//! Ctrl-C as a flag: a run stops at its next seed and prints what it has.

use crate::atomic_file::say;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Whether Ctrl-C was pressed, or a time is over.
#[derive(Clone, Debug, Default)]
pub struct StopFlag(Arc<AtomicBool>, Option<Instant>);

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
            say(format_args!("stopping; once more ends at once"));
        })?;
        Ok(flag)
    }

    /// Whether to stop.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed) || self.1.is_some_and(|end| Instant::now() >= end)
    }

    /// A flag that is set by this one, and when this time is over.
    #[must_use]
    pub fn until(&self, time: Duration) -> Self {
        let end = Instant::now() + time;
        Self(self.0.clone(), Some(self.1.map_or(end, |earlier| earlier.min(end))))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_with_a_time_is_set_by_either() {
        let flag = StopFlag::default();
        let (later, over) = (flag.until(Duration::from_secs(3600)), flag.until(Duration::ZERO));
        assert!(over.is_set() && !later.is_set() && !flag.is_set());
        assert!(over.until(Duration::from_secs(3600)).is_set(), "the earlier end counts");
        flag.set();
        assert!(later.is_set());
    }
}
