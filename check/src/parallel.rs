//! Work on several cores, whose results do not depend on their number.

use crate::campaign::QUIET;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rayon::ThreadPool;
use rayon::iter::{IndexedParallelIterator as _, IntoParallelRefIterator as _, ParallelIterator as _};
use std::time::Instant;

/// Worker threads.
///
/// # Panics
/// If the host has no thread left.
pub(crate) fn pool(jobs: usize) -> ThreadPool {
    rayon::ThreadPoolBuilder::new().num_threads(jobs).build().expect("the host has threads")
}

/// A bar at the terminal, once the work has taken a while.
pub(crate) struct Progress {
    bar: ProgressBar,
    begun: Instant,
}

impl Progress {
    /// Of so many, of this kind.
    pub(crate) fn new(count: u64, kind: &str) -> Self {
        let style =
            ProgressStyle::with_template(&format!("{{bar:30}} {{pos}}/{{len}} {kind}")).expect("a valid template");
        let bar = ProgressBar::with_draw_target(Some(count), ProgressDrawTarget::hidden()).with_style(style);
        Self { bar, begun: Instant::now() }
    }

    /// One more is done.
    pub(crate) fn step(&self) {
        self.bar.inc(1);
        if self.bar.is_hidden() && self.begun.elapsed() > QUIET {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// The result of each item, in their order. `kind` is what items are called.
///
/// # Panics
/// As [`pool`], or if a worker panics, which is a defect of this program.
pub(crate) fn map<'a, T: Sync, R: Send>(
    items: &'a [T],
    kind: &str,
    jobs: usize,
    work: impl Fn(&'a T) -> R + Send + Sync,
) -> Vec<R> {
    let progress = Progress::new(items.len() as u64, kind);
    let one = |item| {
        let result = work(item);
        progress.step();
        result
    };
    // An item may take a thousand times as long as another.
    pool(jobs).install(|| items.par_iter().with_max_len(1).map(one).collect())
}
