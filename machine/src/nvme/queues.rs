//! Submission and completion queues (Base 3.3).

use crate::memory::BusError;
use crate::world::World;
use spec::nvme::{CQE_BYTES, Command, Completion, SQE_BYTES};
use std::collections::VecDeque;

/// A submission queue. `size` 0: it does not exist.
#[derive(Clone, Default)]
pub(super) struct SubmissionQueue {
    base: u64,
    pub(super) size: u32,
    /// The next entry to fetch.
    head: u32,
    /// What the doorbell said last.
    pub(super) tail: u32,
    pub(super) cqid: u16,
}

impl SubmissionQueue {
    pub(super) fn new(base: u64, size: u32, cqid: u16) -> Self {
        Self { base, size, head: 0, tail: 0, cqid }
    }

    pub(super) fn exists(&self) -> bool {
        self.size > 0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// Commands that the host has submitted and the drive has not fetched.
    pub(super) fn waiting(&self) -> u32 {
        (self.tail + self.size - self.head) % self.size.max(1)
    }

    /// Takes a doorbell's tail. False when it lies outside the queue, is the old one, or adds more than fits (Base
    /// 5.2.1, Invalid Doorbell Write Value).
    pub(super) fn advance(&mut self, tail: u32) -> bool {
        if tail >= self.size || tail == self.tail {
            return false;
        }
        let added = (tail + self.size - self.tail) % self.size;
        if self.waiting() + added >= self.size {
            return false;
        }
        self.tail = tail;
        true
    }

    /// Fetches the command at the head.
    pub(super) fn fetch(&mut self, world: &World<'_>) -> Result<Command, BusError> {
        let at = self.base + u64::from(self.head) * SQE_BYTES as u64;
        let words = world.read_words(at)?;
        self.head += 1;
        if self.head == self.size {
            self.head = 0;
        }
        Ok(Command::from_words(words))
    }
}

/// A completion queue. `size` 0: it does not exist.
#[derive(Clone, Default)]
pub(super) struct CompletionQueue {
    base: u64,
    pub(super) size: u32,
    /// What the doorbell said last.
    head: u32,
    /// Where the next entry goes.
    tail: u32,
    /// The phase of this pass; 1 in the first.
    phase: bool,
    /// The vector, if interrupts are enabled.
    pub(super) vector: Option<u16>,
    /// Submission queues that complete here.
    pub(super) users: u32,
    /// Entries that found it full.
    pub(super) waiting: VecDeque<Completion>,
}

impl CompletionQueue {
    pub(super) fn new(base: u64, size: u32, vector: Option<u16>) -> Self {
        Self { base, size, phase: true, vector, ..Self::default() }
    }

    pub(super) fn exists(&self) -> bool {
        self.size > 0
    }

    /// True if one more entry would make tail and head equal.
    pub(super) fn is_full(&self) -> bool {
        self.unacknowledged() + 1 == self.size
    }

    /// Entries posted but not yet behind the host's head.
    pub(super) fn unacknowledged(&self) -> u32 {
        if self.tail >= self.head { self.tail - self.head } else { self.tail + self.size - self.head }
    }

    /// Takes a doorbell's head and returns how many entries it acknowledged; none when it lies outside the queue, is
    /// the old one, or acknowledges what was not posted.
    pub(super) fn acknowledge(&mut self, head: u32) -> Option<u32> {
        if head >= self.size || head == self.head {
            return None;
        }
        let taken = (head + self.size - self.head) % self.size;
        (taken <= self.unacknowledged()).then(|| {
            self.head = head;
            taken
        })
    }

    /// Posts an entry with this pass's phase, or the other phase. The second word, with the phase tag, is written
    /// last. Returns that word's address and value.
    pub(super) fn post(
        &mut self,
        world: &mut World<'_>,
        mut entry: Completion,
        wrong_phase: bool,
    ) -> Result<(u64, u64), BusError> {
        entry.status.set_phase(self.phase != wrong_phase);
        let at = self.base + u64::from(self.tail) * CQE_BYTES as u64;
        let words = entry.to_words();
        world.write64(at, words[0])?;
        world.write64(at + 8, words[1])?;
        self.tail += 1;
        if self.tail == self.size {
            self.tail = 0;
            self.phase = !self.phase;
        }
        Ok((at + 8, words[1]))
    }
}

/// All queues, by id; 0 are the admin queues.
pub(super) struct Queues {
    pub(super) sqs: Vec<SubmissionQueue>,
    pub(super) cqs: Vec<CompletionQueue>,
}

/// A queue pair as the drive has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueState {
    /// Entries of the submission and of the completion queue.
    pub entries: [u32; 2],
    /// The submission queue's tail, by its doorbell.
    pub sq_tail: u32,
    /// The completion queue's head, by its doorbell.
    pub cq_head: u32,
    /// Where the drive puts its next completion.
    pub cq_tail: u32,
    /// The phase of the completion queue's present pass.
    pub phase: bool,
    /// The MSI-X vector, if the completion queue has interrupts.
    pub vector: Option<u16>,
}

impl Queues {
    /// Queue pair `qid`, if both of its queues exist.
    pub(super) fn state(&self, qid: u16) -> Option<QueueState> {
        let sq = self.sqs.get(usize::from(qid)).filter(|sq| sq.exists())?;
        let cq = self.cqs.get(usize::from(qid)).filter(|cq| cq.exists())?;
        Some(QueueState {
            entries: [sq.size, cq.size],
            sq_tail: sq.tail,
            cq_head: cq.head,
            cq_tail: cq.tail,
            phase: cq.phase,
            vector: cq.vector,
        })
    }
    pub(super) fn new(io_queues_max: u16) -> Self {
        let count = usize::from(io_queues_max) + 1;
        Self { sqs: vec![SubmissionQueue::default(); count], cqs: vec![CompletionQueue::default(); count] }
    }

    pub(super) fn clear(&mut self) {
        self.sqs.fill(SubmissionQueue::default());
        self.cqs.fill(CompletionQueue::default());
    }

    /// The admin completion queue has vector 0 and interrupts enabled (Base 3.3.1.1; PCIe 3.5).
    pub(super) fn create_admin(&mut self, sq: (u64, u32), cq: (u64, u32)) {
        self.sqs[0] = SubmissionQueue::new(sq.0, sq.1, 0);
        self.cqs[0] = CompletionQueue::new(cq.0, cq.1, Some(0));
    }

    /// A submission queue that exists.
    pub(super) fn sq(&mut self, qid: u16) -> Option<&mut SubmissionQueue> {
        self.sqs.get_mut(usize::from(qid)).filter(|sq| sq.exists())
    }

    /// A completion queue that exists.
    pub(super) fn cq(&mut self, qid: u16) -> Option<&mut CompletionQueue> {
        self.cqs.get_mut(usize::from(qid)).filter(|cq| cq.exists())
    }

    /// True if commands of `sq` may be fetched: their completion queue accepts entries.
    pub(super) fn may_fetch(&self, qid: u16) -> bool {
        let sq = &self.sqs[usize::from(qid)];
        sq.exists() && !sq.is_empty() && self.cqs[usize::from(sq.cqid)].waiting.is_empty()
    }

    /// Where the queues that exist lie.
    pub(super) fn bases(&self) -> impl Iterator<Item = u64> {
        let sqs = self.sqs.iter().filter(|sq| sq.exists()).map(|sq| sq.base);
        sqs.chain(self.cqs.iter().filter(|cq| cq.exists()).map(|cq| cq.base))
    }

    /// Whether any I/O queue exists.
    pub(super) fn any_io(&self) -> bool {
        self.sqs[1..].iter().any(SubmissionQueue::exists) || self.cqs[1..].iter().any(CompletionQueue::exists)
    }

    /// SQHD for an entry: the head of the queue that fetched it, or 0 when that is gone.
    pub(super) fn sq_head(&self, sqid: u16) -> u16 {
        self.sqs[usize::from(sqid)].head as u16
    }
}
