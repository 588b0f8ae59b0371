//! An NVMe driver's counts of each queue are what happened, and its handler tells the truth.
//!
//! The hardware tells of entries and doorbells, the harness of commands, runs of the handler, and polls. In a history without
//! faults each count of the driver is known exactly once all is at rest. A reset, a deletion or a removal may leave entries
//! that nobody takes; the counts that depend on them are then only bounds.
//!
//! A run of the handler takes one ring's worth at most.
//!
//! A handler that says "not mine" took nothing, and nothing had been taken by a look or a poll since its last run: else that
//! interrupt would count as a stray. One that says "mine" took something, or something had been taken.

use super::truth::marks::DISTURBED;
use super::{Checker, Findings};
use crate::mark::Mark;
use drivers::nvme::QueueSnapshot;
use machine::model::ModelId;
use machine::observe::Fact;
use machine::time::Ps;
use std::collections::BTreeMap;

const NAME: &str = "queues";

/// A queue pair was made for the load of this number: its model, and its own number.
const OPENED: u32 = 0x320;
/// The interrupt handler of the queue begins.
const ENTERED: u32 = 0x321;
/// It says whether the interrupt was its own.
const LEFT: u32 = 0x322;
/// A poll has found so many entries.
const POLLED: u32 = 0x323;
/// From now on entries may be lost, or taken without a word; 1: others than its interrupts run its handler.
const DISRUPTED: u32 = 0x324;
/// From here on: what the driver counts, by [`COUNTS`].
const CLAIMED: u32 = 0x328;

/// Entries of a ring: the most that a run may take, so that threads and other interrupts have their turn.
const RING: u64 = 32;

/// The load in the bits from here on, the rest below.
const LOAD_BIT: u32 = 48;

/// The driver's counts in the order of their marks.
const COUNTS: [&str; 14] = [
    "commands",
    "doorbells of commands",
    "entries",
    "completions",
    "errors",
    "doorbells of entries",
    "interrupts",
    "interrupts that found nothing",
    "interrupts whose entries were taken before",
    "entries taken by interrupts",
    "polls",
    "polls that found nothing",
    "interrupts by the entries that they took",
    "looks that took entries without having seen one",
];
/// Of them, those that depend on what a device still did for a queue that was ended.
const LOOSE: [usize; 3] = [1, 2, 5];
/// Those that depend on who runs the handler.
const BY_RUNS: [usize; 5] = [6, 7, 8, 9, 12];

fn mark(tag: u32, load: u64, rest: u64) {
    machine::mark(tag, load << LOAD_BIT | rest);
}

pub(crate) fn opened(load: u64, device: ModelId, qid: u16) {
    mark(OPENED, load, u64::from(device.0) << 16 | u64::from(qid));
}

pub(crate) fn entered(load: u64) {
    mark(ENTERED, load, 0);
}

pub(crate) fn left(load: u64, handled: bool) {
    mark(LEFT, load, handled.into());
}

pub(crate) fn polled(load: u64, found: usize) {
    mark(POLLED, load, found as u64);
}

pub(crate) fn disrupted(load: u64, lent: bool) {
    mark(DISRUPTED, load, lent.into());
}

/// Marks what the driver counts of a queue at rest.
pub(crate) fn claim(load: u64, queue: &QueueSnapshot) {
    let (sent, ended) = (&queue.submission, &queue.completion);
    let counts = [
        sent.commands,
        sent.doorbells,
        ended.entries,
        ended.completed,
        ended.errors,
        ended.doorbells,
        ended.interrupts,
        ended.empty_interrupts,
        ended.overtaken_interrupts,
        ended.interrupt_entries,
        ended.polls,
        ended.empty_polls,
        ended.per_interrupt.iter().sum(),
        ended.look_reaps.saturating_sub(sent.look_hits),
    ];
    (0..).zip(counts).for_each(|(index, count)| mark(CLAIMED + index, load, count));
}

#[derive(Default)]
struct Queue {
    counts: [u64; COUNTS.len()],
    /// The first command that may be given to it, and the next of its load.
    first: u64,
    next: u64,
    disrupted: bool,
    /// Others than its interrupts have run its handler.
    lent: bool,
    /// Where its messages come from.
    sender: Option<(ModelId, u16)>,
    /// The CPU on which its handler runs, and completions there since it began.
    running: Option<u32>,
    inside: u64,
    /// Completions that others took since its last run, before this run and during it.
    before: u64,
    during: u64,
    /// Others may have taken something: the last run did not tell.
    perhaps: bool,
}

impl Queue {
    fn ended(&mut self, cpu: u32, failed: bool) {
        self.counts[3] += 1;
        self.counts[4] += u64::from(failed);
        self.perhaps |= failed;
        match self.running {
            Some(own) if own == cpu => self.inside += 1,
            Some(_) => self.during += 1,
            None => self.before += 1,
        }
    }

    /// What is wrong about the handler's answer.
    fn left(&mut self, handled: bool) -> Option<String> {
        let taken = self.inside;
        let wrong = self.answered(handled);
        let much = || format!("took {taken} entries in one run, and its ring has {RING}");
        wrong.or_else(|| (taken > RING).then(much))
    }

    fn answered(&mut self, handled: bool) -> Option<String> {
        let Self { inside, before, during, perhaps, .. } = *self;
        self.counts[6] += 1;
        self.counts[12] += 1;
        self.counts[7] += u64::from(inside == 0);
        self.counts[8] += u64::from(inside == 0 && handled);
        self.counts[9] += inside;
        (self.inside, self.before, self.during, self.perhaps) = (0, 0, 0, during > 0);
        self.running = None;
        if handled {
            let nothing = inside + before + during == 0 && !perhaps;
            return nothing.then(|| "claims an interrupt, and nothing was taken since the last".into());
        }
        let some = inside > 0 || before > 0 && !perhaps;
        some.then(|| format!("disowns an interrupt; it took {inside} entries, and others had taken {before} before"))
    }
}

/// The counts of all queues.
pub struct Queues {
    /// Handlers run in threads, which others may interrupt.
    forced: bool,
    queues: BTreeMap<u64, Queue>,
    /// The load of a model's queue.
    loads: BTreeMap<(ModelId, u16), u64>,
    /// Messages by model and vector.
    messages: BTreeMap<(ModelId, u16), u64>,
    /// Managers resent interrupts, or made the core resend them.
    disturbed: bool,
}

impl Queues {
    /// Checks these queues: their loads, models and numbers; and all that are made from now on.
    pub fn new(forced: bool, known: impl IntoIterator<Item = (u64, ModelId, u16)>) -> Self {
        let mut this = Self {
            forced,
            queues: BTreeMap::new(),
            loads: BTreeMap::new(),
            messages: BTreeMap::new(),
            disturbed: false,
        };
        known.into_iter().for_each(|(load, device, qid)| this.open(load, device, qid));
        this
    }

    fn open(&mut self, load: u64, device: ModelId, qid: u16) {
        self.loads.retain(|_, other| *other != load);
        self.loads.insert((device, qid), load);
        let next = self.queues.get(&load).map_or(0, |queue| queue.next);
        self.queues.insert(load, Queue { first: next, next, ..Queue::default() });
    }

    fn count(&mut self, device: ModelId, qid: u16, which: usize) {
        if let Some(load) = self.loads.get(&(device, qid))
            && let Some(queue) = self.queues.get_mut(load)
        {
            queue.counts[which] += 1;
        }
    }

    fn told(&mut self, at: Ps, cpu: u32, tag: u32, value: u64, findings: &mut Findings) {
        let (load, rest) = (value >> LOAD_BIT, value & ((1 << LOAD_BIT) - 1));
        if tag == OPENED {
            return self.open(load, ModelId((rest >> 16) as u32), rest as u16);
        }
        let Some(queue) = self.queues.get_mut(&load) else { return };
        match tag {
            ENTERED => queue.running = Some(cpu),
            LEFT => {
                let wrong = queue.left(rest != 0);
                if let Some(text) = wrong.filter(|_| !self.forced && !queue.lent) {
                    findings.wrong(NAME, at, format!("the handler of queue {load} {text}"));
                }
            }
            POLLED => {
                queue.counts[10] += 1;
                queue.counts[11] += u64::from(rest == 0);
            }
            DISRUPTED => {
                (queue.disrupted, queue.perhaps) = (true, true);
                queue.lent |= rest != 0;
            }
            _ => {
                let which = tag.wrapping_sub(CLAIMED) as usize;
                if let Some(&known) = queue.counts.get(which) {
                    let loose = queue.disrupted && LOOSE.contains(&which);
                    let wrong = if loose { rest > known && which == 2 } else { rest != known };
                    // A thread's run may be interrupted by another's poll.
                    let by_runs = self.forced && (7..10).contains(&which) || queue.lent && BY_RUNS.contains(&which);
                    if wrong && !by_runs {
                        let text = format!("the driver counts {rest} {} of queue {load}", COUNTS[which]);
                        findings.wrong(NAME, at, format!("{text}, and there were {known}"));
                    }
                    let sent = queue.sender.map_or(0, |sender| self.messages.get(&sender).copied().unwrap_or(0));
                    if which == 6 && !self.disturbed && rest > sent {
                        let text = format!("queue {load} had {rest} interrupts, and its drive sent {sent} messages");
                        findings.wrong(NAME, at, text);
                    }
                    if which == 0 {
                        findings.coverage.add("account: counts of a queue are known", 1);
                    }
                }
            }
        }
    }
}

impl Checker for Queues {
    fn hear(&mut self, at: Ps, fact: &Fact, findings: &mut Findings) {
        match *fact {
            Fact::EntryPosted { device, cqid, vector, .. } => {
                self.count(device, cqid, 2);
                let queue = self.loads.get(&(device, cqid)).and_then(|load| self.queues.get_mut(load));
                if let (Some(queue), Some(vector)) = (queue, vector) {
                    queue.sender = Some((device, vector));
                }
            }
            Fact::Signalled { device, vector } => *self.messages.entry((device, vector)).or_default() += 1,
            Fact::Declared { online: false, .. } | Fact::Mark { tag: DISTURBED, .. } => self.disturbed = true,
            Fact::Doorbell { device, queue, is_completion, .. } => {
                self.count(device, queue, if is_completion { 5 } else { 1 });
            }
            Fact::Mark { cpu, tag, value } => match Mark::from_tag(tag) {
                Some(mark @ (Mark::Submitted | Mark::Refused | Mark::Completed | Mark::Failed)) => {
                    let Some(queue) = self.queues.get_mut(&(value >> 32)) else { return };
                    match mark {
                        Mark::Submitted => {
                            queue.counts[0] += 1;
                            queue.next = value + 1;
                        }
                        // An earlier one was for the queue pair before.
                        Mark::Refused => queue.counts[0] -= u64::from(value >= queue.first),
                        _ => queue.ended(cpu, mark == Mark::Failed),
                    }
                }
                Some(_) => {}
                None => self.told(at, cpu, tag, value, findings),
            },
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::says;
    use super::*;

    fn told(tag: u32, rest: u64) -> Fact {
        Fact::Mark { cpu: 0, tag, value: 1 << LOAD_BIT | rest }
    }

    fn command(mark: Mark, cpu: u32) -> Fact {
        Fact::Mark { cpu, tag: mark as u32, value: 1 << 32 | 7 }
    }

    fn of(facts: &[Fact]) -> Vec<String> {
        says(Queues::new(false, [(1, ModelId(9), 2)]), facts)
    }

    fn run(inside: &[Fact], handled: bool) -> Vec<Fact> {
        [&[told(ENTERED, 0)], inside, &[told(LEFT, handled.into())]].concat()
    }

    #[test]
    fn an_answer_is_true_of_what_was_taken() {
        let done = [command(Mark::Completed, 0)];
        assert!(of(&run(&done, true)).is_empty());
        assert_eq!(of(&run(&done, false)).len(), 1);
        assert!(of(&[&done[..], &run(&[], true)].concat()).is_empty());
        let early = of(&[&done[..], &run(&[], false)].concat());
        let text = "the handler of queue 1 disowns an interrupt; it took 0 entries, and others had taken 1 before";
        assert_eq!(early, [text]);
        assert_eq!(of(&run(&[], true)).len(), 1);
        let during = run(&[command(Mark::Completed, 3)], false);
        assert!(of(&[during, run(&[], true)].concat()).is_empty(), "either may be true of the two");
    }

    #[test]
    fn counts_are_those_of_the_hardware() {
        let entry =
            Fact::EntryPosted { device: ModelId(9), cqid: 2, sqid: 2, cid: 0, vector: None, wrong_phase: false };
        let bell = Fact::Doorbell { device: ModelId(9), queue: 2, value: 1, is_completion: true };
        assert!(of(&[entry, bell, told(CLAIMED + 2, 1), told(CLAIMED + 5, 1)]).is_empty());
        let wrong = of(&[entry, told(CLAIMED + 2, 2)]);
        assert_eq!(wrong, ["the driver counts 2 entries of queue 1, and there were 1"]);
        assert!(of(&[entry, told(DISRUPTED, 0), told(CLAIMED + 2, 0)]).is_empty(), "nobody took it");
        assert_eq!(of(&[entry, told(DISRUPTED, 0), told(CLAIMED + 2, 2)]).len(), 1);
    }
}
