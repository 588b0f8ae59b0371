//! How an interrupt hands work over to its line's threads, and how they report that they are done.

use hal::Word;

/// The most threads that a line can have.
pub const THREADS_MAX: u32 = 16;

/// The hand-over between a line's interrupt and its threads. It is one word with four bits per thread, so that a wake
/// and the end of a thread can never miss each other.
///
/// - *wanted*: the thread is to run (once more);
/// - *busy*: the thread runs its function;
/// - *held*: the line is held back until the thread is done (ONESHOT);
/// - *leaving*: the thread is to end, and has not ended yet.
///
/// Generic over [`Word`] alone, so that the model checker runs the very code that hardware runs.
pub struct Handover<W>(W);

/// The next step of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Run the function: the thread was wanted, and is now busy.
    Run,
    /// End the thread.
    Leave,
    /// Wait until woken.
    Sleep,
}

/// The effect on the line when a thread is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finished {
    /// The thread is wanted again, and keeps holding the line.
    Again,
    /// Other threads still hold the line, or no thread held it.
    Done,
    /// This thread was the last one that held the line.
    Last,
}

const WANTED: u32 = 0;
const BUSY: u32 = THREADS_MAX;
const HELD: u32 = 2 * THREADS_MAX;
const LEAVING: u32 = 3 * THREADS_MAX;

/// The bits of all threads in one field.
const fn field(shift: u32) -> u64 {
    ((1 << THREADS_MAX) - 1) << shift
}

impl<W: Word> Handover<W> {
    /// No thread wanted.
    pub fn new() -> Self {
        Self(W::new(0))
    }

    /// Marks each of `threads` (one bit per thread) as wanted. With `hold` the line is held back until they have run.
    /// Returns the threads that must be woken: the others will look at the word anyway.
    pub fn want(&self, threads: u16, hold: bool) -> u16 {
        let threads = u64::from(threads);
        let held = if hold { threads << HELD } else { 0 };
        (threads & !(self.0.fetch_or(threads << WANTED | held) >> WANTED)) as u16
    }

    /// Decides from one look what `thread` does next. Two looks, for work and then for leave, would miss a wake in
    /// between.
    pub fn next(&self, thread: u8) -> Next {
        let (wanted, busy, leaving) = (1 << thread << WANTED, 1 << thread << BUSY, 1 << thread << LEAVING);
        match self.update(|word| (word & wanted != 0).then_some(word & !wanted | busy)) {
            Ok(_) => Next::Run,
            Err(word) if word & leaving != 0 => Next::Leave,
            Err(_) => Next::Sleep,
        }
    }

    /// `thread` has run its function. If the thread may hold the line, the caller must have the line's lock: all code
    /// that tests whether the line is held acts on the answer under that lock.
    pub fn finish(&self, thread: u8) -> Finished {
        let (wanted, busy, held) = (1 << thread << WANTED, 1 << thread << BUSY, 1 << thread << HELD);
        match self.update(|word| (word & wanted == 0).then_some(word & !(busy | held))) {
            Err(_) => Finished::Again,
            Ok(word) if word & field(HELD) == held => Finished::Last,
            Ok(_) => Finished::Done,
        }
    }

    /// True if any thread holds the line back.
    #[inline]
    pub fn is_held(&self) -> bool {
        self.0.load() & field(HELD) != 0
    }

    /// The threads that are wanted or busy, one bit per thread.
    pub fn working(&self) -> u16 {
        let word = self.0.load();
        (word >> WANTED | word >> BUSY) as u16
    }

    /// Asks `thread` to end once it is no longer wanted.
    pub fn dismiss(&self, thread: u8) {
        self.0.fetch_or(1 << thread << LEAVING);
    }

    /// True if `thread` was asked to end and has not ended yet.
    pub fn is_leaving(&self, thread: u8) -> bool {
        self.0.load() & 1 << thread << LEAVING != 0
    }

    /// Reports that `thread` ends. This is its last access to the word.
    pub fn leave(&self, thread: u8) {
        self.0.fetch_and(!(1 << thread << LEAVING));
    }

    /// The word, to wait on.
    pub fn word(&self) -> &W {
        &self.0
    }

    /// Replaces the word by the result of `change`, unless that is none. Returns the old word.
    fn update(&self, change: impl Fn(u64) -> Option<u64>) -> Result<u64, u64> {
        let mut word = self.0.load();
        loop {
            let Some(new) = change(word) else { return Err(word) };
            match self.0.compare_exchange(word, new) {
                Ok(_) => return Ok(word),
                Err(now) => word = now,
            }
        }
    }
}

impl<W: Word> Default for Handover<W> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hal::AtomicWord;

    #[test]
    fn a_thread_wanted_while_it_runs_runs_again() {
        let handover = Handover::<AtomicWord>::new();
        assert_eq!(handover.want(0b11, true), 0b11);
        assert_eq!(handover.want(0b10, true), 0, "it is about to look");
        assert_eq!([0, 1, 1].map(|thread| handover.next(thread)), [Next::Run, Next::Run, Next::Sleep]);
        assert_eq!(handover.finish(0), Finished::Done);
        assert_eq!(handover.want(0b10, true), 0b10);
        assert_eq!(handover.finish(1), Finished::Again);
        assert!(handover.is_held() && handover.next(1) == Next::Run);
        assert_eq!((handover.finish(1), handover.is_held(), handover.working()), (Finished::Last, false, 0));
    }

    #[test]
    fn a_thread_that_did_not_hold_the_line_is_never_the_last_that_did() {
        let handover = Handover::<AtomicWord>::new();
        handover.want(0b1, false);
        assert_eq!(handover.next(0), Next::Run);
        assert_eq!(handover.finish(0), Finished::Done);
    }

    #[test]
    fn a_thread_serves_its_last_wake_before_it_leaves() {
        let handover = Handover::<AtomicWord>::new();
        handover.want(0b1, true);
        handover.dismiss(0);
        assert_eq!(handover.next(0), Next::Run);
        handover.finish(0);
        assert_eq!((handover.next(0), handover.is_leaving(0)), (Next::Leave, true));
        handover.leave(0);
        assert!(!handover.is_leaving(0));
    }
}
