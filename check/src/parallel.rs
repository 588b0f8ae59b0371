//! Work on several cores, whose results do not depend on their number.

use rayon::ThreadPool;
use rayon::iter::{IndexedParallelIterator as _, IntoParallelRefIterator as _, ParallelIterator as _};

/// Worker threads.
///
/// # Panics
/// If the host has no thread left.
pub(crate) fn pool(jobs: usize) -> ThreadPool {
    rayon::ThreadPoolBuilder::new().num_threads(jobs).build().expect("the host has threads")
}

/// The result of each item, in their order.
///
/// # Panics
/// As [`pool`], or if a worker panics, which is a defect of this program.
pub(crate) fn map<'a, T: Sync, R: Send>(
    items: &'a [T],
    jobs: usize,
    work: impl Fn(&'a T) -> R + Send + Sync,
) -> Vec<R> {
    // An item may take a thousand times as long as another.
    pool(jobs).install(|| items.par_iter().with_max_len(1).map(work).collect())
}
