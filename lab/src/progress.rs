//! A progress bar on standard error for people. It appears only after two seconds.

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::io::IsTerminal;
use std::sync::mpsc;
use std::time::Duration;

/// A shorter run shows no bar.
const QUIET: Duration = Duration::from_secs(2);

/// The time that the rest takes, in seconds, if each item takes as long as those that are done; none before the first. Until
/// each worker has ended one, the others are under way for as long as the first.
fn left_s(elapsed_s: f64, done: u64, total: u64, workers: u64) -> Option<f64> {
    if done == 0 {
        return None;
    }
    let ended = done.max(workers.min(total));
    Some(elapsed_s / ended as f64 * total.saturating_sub(done) as f64)
}

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
        if let Ok(style) = ProgressStyle::with_template("{msg} [{bar:30}] {pos}/{len} {elapsed} ({left})") {
            let workers = rayon::current_num_threads() as u64;
            let left = move |state: &ProgressState, out: &mut dyn std::fmt::Write| {
                let elapsed_s = state.elapsed().as_secs_f64();
                let text = match left_s(elapsed_s, state.pos(), state.len().unwrap_or(0), workers) {
                    Some(seconds) => format!("about {} left", HumanDuration(Duration::from_secs_f64(seconds))),
                    None => "no estimate yet".to_owned(),
                };
                let _ = out.write_str(&text);
            };
            bar.set_style(style.with_key("left", left).progress_chars("=> "));
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
    fn the_estimate_is_right_from_the_second_item_on() {
        // Two workers, 100 items of a second each.
        assert_eq!(left_s(1.0, 0, 100, 2), None);
        assert_eq!(left_s(1.0, 2, 100, 2), Some(49.0));
        assert_eq!(left_s(25.0, 50, 100, 2), Some(25.0));
        assert!((left_s(1.0, 1, 100, 2).unwrap() - 49.5).abs() < 1e-9);
        assert_eq!(left_s(50.0, 100, 100, 2), Some(0.0));
        assert_eq!(left_s(4.0, 1, 1, 2), Some(0.0));
    }

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
