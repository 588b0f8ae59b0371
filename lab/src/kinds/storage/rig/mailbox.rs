//! Holds completions until the job that submitted them takes them.

use drivers::nvme::Completed;
use hal::{ThreadId, Threads, Word as _};

/// A completion in a mailbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Letter {
    /// The buffer of the I/O, without the job's index.
    pub(crate) tag: u64,
    pub(crate) submitted_ns: u64,
    /// The time when the driver completed it.
    pub(crate) completed_ns: u64,
    pub(crate) ok: bool,
}

/// Set in the first word of a letter that carries an error, and in the count of commands of an I/O that had one.
const FAILED: u64 = 1 << 63;

/// A ring from the queue's completion side to one job's thread. The completion side posts one letter at a time under
/// its lock.
///
/// The ring consists of words only, so that neither side ever waits for the other.
pub(crate) struct Mailbox<H: Threads> {
    /// Three words a letter: tag, submission time, completion time.
    ring: Box<[[H::Word; 3]]>,
    /// For each buffer whose I/O takes several commands: those that are still to complete, and the submission time of
    /// the first. 0: a single command.
    split: Box<[[H::Word; 2]]>,
    /// Letters ever posted; written by the poster.
    posted: H::Word,
    /// Letters ever taken; written by the thread.
    taken: H::Word,
    /// The count of posted letters at which the thread wants to be woken; `u64::MAX`: it does not sleep.
    wanted: H::Word,
    /// The thread's id, plus 1.
    thread: H::Word,
}

impl<H: Threads> Mailbox<H> {
    /// Room for `depth` letters: the I/Os that a job can have in flight.
    pub(crate) fn new(depth: u32) -> Self {
        let word = || H::Word::new(0);
        Self {
            ring: (0..depth.next_power_of_two()).map(|_| [word(), word(), word()]).collect(),
            split: (0..depth).map(|_| [word(), word()]).collect(),
            posted: word(),
            taken: word(),
            wanted: H::Word::new(u64::MAX),
            thread: word(),
        }
    }

    /// Registers the calling thread as the one that waits here.
    pub(crate) fn attend(&self, thread: ThreadId) {
        self.thread.set(u64::from(thread.0) + 1);
    }

    /// The number of waiting letters.
    pub(crate) fn len(&self) -> u64 {
        self.posted.get() - self.taken.get()
    }

    /// The I/O of `buffer` takes so many commands, more than one. Its letter comes with the last.
    pub(crate) fn expect(&self, buffer: u32, commands: u32) {
        let [left, first_ns] = &self.split[buffer as usize];
        left.set(commands.into());
        first_ns.set(u64::MAX);
    }

    /// Posts a completion, and wakes the thread if it waits for this one.
    pub(crate) fn post(&self, hal: H, completed: &Completed) {
        let mut failed = if completed.result.is_err() { FAILED } else { 0 };
        let mut submitted_ns = completed.submitted_ns;
        let [left, first_ns] = &self.split[completed.tag as u32 as usize];
        if left.get() != 0 {
            let rest = (left.get() | failed) - 1;
            submitted_ns = submitted_ns.min(first_ns.get());
            failed = rest & FAILED;
            let is_last = rest == failed;
            left.set(if is_last { 0 } else { rest });
            first_ns.set(submitted_ns);
            if !is_last {
                return;
            }
        }
        let posted = self.posted.get();
        let slot = &self.ring[posted as usize & (self.ring.len() - 1)];
        slot[0].set(completed.tag & 0xffff_ffff | failed);
        slot[1].set(submitted_ns);
        slot[2].set(hal.now_ns());
        self.posted.set(posted + 1);
        if posted + 1 >= self.wanted.get() {
            self.wanted.set(u64::MAX);
            hal.wake(ThreadId((self.thread.get() - 1) as u32));
        }
    }

    /// Sleeps until at least `count` letters wait.
    pub(crate) fn wait(&self, hal: H, count: u64) {
        while self.len() < count {
            self.wanted.set(self.taken.get() + count);
            // A letter that came before the wish was set is seen by this second look.
            if self.len() < count {
                hal.park();
            }
            self.wanted.set(u64::MAX);
        }
    }

    /// A letter wakes the thread once `count` wait, though it sleeps for another reason.
    pub(crate) fn call_at(&self, count: u64) {
        self.wanted.set(self.taken.get() + count);
    }

    /// Letters wake the thread no more.
    pub(crate) fn call_off(&self) {
        self.wanted.set(u64::MAX);
    }

    /// Takes the oldest letter.
    pub(crate) fn take(&self) -> Option<Letter> {
        if self.len() == 0 {
            return None;
        }
        let taken = self.taken.get();
        let slot = &self.ring[taken as usize & (self.ring.len() - 1)];
        let first = slot[0].get();
        let letter = Letter {
            tag: first & !FAILED,
            submitted_ns: slot[1].get(),
            completed_ns: slot[2].get(),
            ok: first & FAILED == 0,
        };
        self.taken.set(taken + 1);
        Some(letter)
    }
}
