//! A progress bar on standard error for people. It appears only after two seconds.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::mpsc;
use std::time::Duration;

/// A shorter run shows no bar.
const QUIET: Duration = Duration::from_secs(2);

/// Progress over `total` runs. May be shared by threads; it disappears when dropped.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    /// Dropped first, which ends the two-second wait.
    _done: mpsc::Sender<()>,
}

impl Progress {
    /// Starts the display. It shows only on a terminal.
    pub fn new(total: u64, what: &str) -> Self {
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template("{msg} [{bar:30}] {pos}/{len} {elapsed} (about {eta} left)") {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_message(what.to_owned());
        let (done, wait) = mpsc::channel::<()>();
        if std::io::stderr().is_terminal() {
            let bar = bar.clone();
            std::thread::spawn(move || {
                if wait.recv_timeout(QUIET) == Err(mpsc::RecvTimeoutError::Timeout) && !bar.is_finished() {
                    bar.set_draw_target(ProgressDrawTarget::stderr());
                    bar.enable_steady_tick(Duration::from_millis(250));
                }
            });
        }
        Self { bar, _done: done }
    }

    /// Notes that one more run is done.
    pub fn step(&self) {
        self.bar.inc(1);
    }

    /// How many are done.
    pub fn done(&self) -> u64 {
        self.bar.position()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_counted_from_any_thread() {
        let progress = Progress::new(8, "runs");
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| progress.step());
            }
        });
        assert_eq!(progress.done(), 8);
        assert!(progress.bar.is_hidden(), "nothing within two seconds");
    }
}
