//! Counters of a queue, and views of it for people.

use super::DeviceFault;
use core::fmt;

/// Buckets of [`CompletionCounters::per_interrupt`].
pub const PER_INTERRUPT_BUCKETS: usize = 17;

/// Counters of the submission side.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SubmissionCounters {
    /// Commands accepted.
    pub commands: u64,
    /// Doorbell writes: batches with at least one command accepted.
    pub doorbells: u64,
    /// Batches cut short because the queue was full.
    pub full: u64,
    /// Looks at the completion queue after a batch ([`super::CompletionLook`]).
    pub looks: u64,
    /// Of them, those that saw a new entry and so tried for the completion side.
    pub look_hits: u64,
}

/// Counters of the completion side.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CompletionCounters {
    /// Entries taken from the completion queue, faulty ones included.
    pub entries: u64,
    /// Commands told to their user, those that failed with their queue or controller included.
    pub completed: u64,
    /// Of them, those that failed.
    pub errors: u64,
    /// Of the reported commands, those reported on another CPU than their submitter's. Each costs transfers of its
    /// request's cache lines ([`hal::Work::RemoteCompletion`]).
    pub remote: u64,
    /// Doorbell writes: batches taken.
    pub doorbells: u64,
    /// Calls of the interrupt handler.
    pub interrupts: u64,
    /// Of them, those that found nothing.
    pub empty_interrupts: u64,
    /// Of those, interrupts whose entries a look or a poll had already taken. The handler reports them as handled.
    pub overtaken_interrupts: u64,
    /// Entries taken by the interrupt handler.
    pub interrupt_entries: u64,
    /// Interrupts by entries taken: bucket 0 none, bucket n from `2^(n-1)` up to below `2^n`.
    pub per_interrupt: [u64; PER_INTERRUPT_BUCKETS],
    /// Calls of [`super::QueuePair::poll`].
    pub polls: u64,
    /// Of them, those that found nothing.
    pub empty_polls: u64,
    /// Looks after a submission that got hold of the completion side.
    pub look_reaps: u64,
    /// Entries taken by them.
    pub look_entries: u64,
    /// Faults of the device.
    pub device_faults: u64,
}

impl CompletionCounters {
    /// `overtaken`: the entries of an empty interrupt had been taken before.
    #[inline]
    pub(super) fn count_interrupt(&mut self, entries: usize, overtaken: bool) {
        self.interrupts += 1;
        if entries == 0 {
            self.empty_interrupts += 1;
            self.overtaken_interrupts += u64::from(overtaken);
        }
        let bucket = entries.checked_ilog2().map_or(0, |log| log as usize + 1);
        self.per_interrupt[bucket.min(PER_INTERRUPT_BUCKETS - 1)] += 1;
    }

    pub(super) fn count_look_reap(&mut self, entries: usize) {
        self.look_reaps += 1;
        self.look_entries += entries as u64;
    }

    /// Completions told on their submitter's own CPU.
    pub fn local(&self) -> u64 {
        self.completed - self.remote
    }

    pub(super) fn count_poll(&mut self, entries: usize) {
        self.polls += 1;
        self.empty_polls += u64::from(entries == 0);
    }
}

/// Whether a queue takes requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueState {
    /// It does.
    Running,
    /// Not now: it is being made or deleted, or its controller was stopped.
    Stopped,
}

/// A queue pair at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueSnapshot {
    /// Its number; 0 is the admin queue.
    pub qid: u16,
    /// The interrupt vector of its completion queue; none when it is polled.
    pub vector: Option<u16>,
    /// Whether it takes requests.
    pub state: QueueState,
    /// Entries of each of its two rings.
    pub entries: u16,
    /// Commands in flight.
    pub in_flight: u16,
    /// The position of the next command.
    pub sq_tail: u16,
    /// The submission queue's head that the device reported last.
    pub sq_head: u16,
    /// The position of the next completion.
    pub cq_head: u16,
    /// The phase that it will have.
    pub phase: bool,
    /// Submission counters.
    pub submission: SubmissionCounters,
    /// Completion counters.
    pub completion: CompletionCounters,
    /// The last thing that the device did against the specification.
    pub last_fault: Option<DeviceFault>,
}

impl QueueSnapshot {
    /// How often a look saw a new entry while another CPU was reaping. A snapshot between a look and its attempt counts
    /// one too many.
    pub fn look_lock_failures(&self) -> u64 {
        self.submission.look_hits.saturating_sub(self.completion.look_reaps)
    }
}

impl fmt::Display for QueueSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "queue {}: {:?}, ", self.qid, self.state)?;
        match self.vector {
            Some(vector) => write!(f, "vector {vector}")?,
            None => write!(f, "polled")?,
        }
        write!(
            f,
            ", {} of {} in flight, SQ head {} tail {}, CQ head {} phase {}, {} commands, {} completed ({} errors), \
             {} interrupts ({} empty, of them {} overtaken), {} looks ({} hits, {} lock failures, {} entries), \
             {} remote, {} device faults",
            self.in_flight,
            self.entries - 1,
            self.sq_head,
            self.sq_tail,
            self.cq_head,
            u8::from(self.phase),
            self.submission.commands,
            self.completion.completed,
            self.completion.errors,
            self.completion.interrupts,
            self.completion.empty_interrupts,
            self.completion.overtaken_interrupts,
            self.submission.looks,
            self.submission.look_hits,
            self.look_lock_failures(),
            self.completion.look_entries,
            self.completion.remote,
            self.completion.device_faults,
        )?;
        self.last_fault.map_or(Ok(()), |fault| write!(f, ", last: {fault}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_fall_into_their_buckets() {
        let mut counters = CompletionCounters::default();
        for entries in [0, 1, 2, 3, 4, 65_535] {
            counters.count_interrupt(entries, entries == 0);
        }
        assert_eq!(counters.per_interrupt[..4], [1, 1, 2, 1]);
        assert_eq!(counters.per_interrupt[16], 1);
        assert_eq!((counters.interrupts, counters.overtaken_interrupts), (6, 1));
        counters.count_interrupt(usize::MAX, false);
        assert_eq!(counters.per_interrupt[PER_INTERRUPT_BUCKETS - 1], 2, "the last bucket has all above");
    }
}
