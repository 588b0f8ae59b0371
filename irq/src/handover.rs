//! How an interrupt hands work over to the threads of its line, and learns that they are done.

use hal::Word;

/// Threads that a line can have.
pub const THREADS_MAX: u32 = 16;

/// The hand-over between a line's interrupt and its threads: one word with four bits a thread, so that a wake and the
/// end of a thread can never miss each other.
///
/// - *wanted*: it is to run (once more);
/// - *busy*: it runs its function;
/// - *held*: the line is held back until it is done (ONESHOT);
/// - *leaving*: it is to end itself, and has not yet.
///
/// Generic over [`Word`] alone, so that the model checker runs the very code that hardware runs.
pub struct Handover<W>(W);

/// What a thread does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// It was wanted, and is busy from now on.
    Run,
    /// It ends itself.
    Leave,
    /// It waits until it is woken.
    Sleep,
}

/// What a thread's end means for its line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finished {
    /// It is wanted again, and keeps holding the line.
    Again,
    /// Others hold the line, or nobody did.
    Done,
    /// It was the last one that held the line.
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

    /// The interrupt wants each of `threads`, a bit a thread, to run, and with `hold` the line held back until they
    /// have. Returns those to be woken: the others are about to look.
    pub fn want(&self, threads: u16, hold: bool) -> u16 {
        let threads = u64::from(threads);
        let held = if hold { threads << HELD } else { 0 };
        (threads & !(self.0.fetch_or(threads << WANTED | held) >> WANTED)) as u16
    }

    /// What `thread` does next, from one look: a look for work and then one for leave would miss a wake in between.
    pub fn next(&self, thread: u8) -> Next {
        let (wanted, busy, leaving) = (1 << thread << WANTED, 1 << thread << BUSY, 1 << thread << LEAVING);
        match self.update(|word| (word & wanted != 0).then_some(word & !wanted | busy)) {
            Ok(_) => Next::Run,
            Err(word) if word & leaving != 0 => Next::Leave,
            Err(_) => Next::Sleep,
        }
    }

    /// `thread` has run its function. To be called with the line's lock where it may hold the line: who finds the line
    /// held, or learns that it is not any more, acts on it under that lock.
    pub fn finish(&self, thread: u8) -> Finished {
        let (wanted, busy, held) = (1 << thread << WANTED, 1 << thread << BUSY, 1 << thread << HELD);
        match self.update(|word| (word & wanted == 0).then_some(word & !(busy | held))) {
            Err(_) => Finished::Again,
            Ok(word) if word & field(HELD) == held => Finished::Last,
            Ok(_) => Finished::Done,
        }
    }

    /// Whether a thread holds the line back.
    #[inline]
    pub fn is_held(&self) -> bool {
        self.0.load() & field(HELD) != 0
    }

    /// The threads that are wanted or busy, a bit a thread.
    pub fn working(&self) -> u16 {
        let word = self.0.load();
        (word >> WANTED | word >> BUSY) as u16
    }

    /// Asks `thread` to end itself once it is not wanted any more.
    pub fn dismiss(&self, thread: u8) {
        self.0.fetch_or(1 << thread << LEAVING);
    }

    /// Whether `thread` has been asked to, and has not ended yet.
    pub fn is_leaving(&self, thread: u8) -> bool {
        self.0.load() & 1 << thread << LEAVING != 0
    }

    /// `thread` ends: the last it says.
    pub fn leave(&self, thread: u8) {
        self.0.fetch_and(!(1 << thread << LEAVING));
    }

    /// The word, to wait on.
    pub fn word(&self) -> &W {
        &self.0
    }

    /// Replaces the word by what `change` makes of it, unless that is none; the word as it was.
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
