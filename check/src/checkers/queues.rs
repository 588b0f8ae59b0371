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

use super::truth::marks::{DISTURBED, answer_of};
use super::{Checker, Findings, Topic};
use crate::mark::Mark;
use drivers::nvme::QueueSnapshot;
use machine::model::ModelId;
use machine::observe::Fact;
use machine::time::Ps;

const NAME: &str = "queues";

/// A queue pair was made for the load of this number: its model, and its own number.
const OPENED: u32 = 0x320;
/// An installation of its handler has this number.
const INSTALLED: u32 = 0x321;
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

pub(crate) fn installed(load: u64, handler: u64) {
    mark(INSTALLED, load, handler);
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
    /// Completions by the device that others took before this run.
    certain: u64,
}

impl Queue {
    fn ended(&mut self, cpu: u32, failed: bool) {
        self.counts[3] += 1;
        self.counts[4] += u64::from(failed);
        self.perhaps |= failed;
        match self.running {
            Some(own) if own == cpu => self.inside += 1,
            Some(_) => self.during += 1,
            None => {
                self.before += 1;
                self.certain += u64::from(!failed);
            }
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
        let Self { inside, before, during, perhaps, certain, .. } = *self;
        self.certain = 0;
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
        let some = inside > 0 || before > 0 && !perhaps || certain > 0;
        some.then(|| format!("disowns an interrupt; it took {inside} entries, and others had taken {before} before"))
    }
}

/// The counts of all queues.
pub struct Queues {
    /// Handlers run in threads, which others may interrupt.
    forced: bool,
    /// By load.
    queues: Vec<Option<Queue>>,
    /// The load of a model's queue.
    loads: Vec<((ModelId, u16), u64)>,
    /// Messages by model and vector.
    messages: Vec<((ModelId, u16), u64)>,
    /// By handler: its load.
    handlers: Vec<Option<u64>>,
    /// Managers resent interrupts, or made the core resend them.
    disturbed: bool,
}

impl Queues {
    /// Checks these queues: their loads, models and numbers, and the numbers of their handlers; and all that are made from
    /// now on.
    pub fn new(forced: bool, known: impl IntoIterator<Item = (u64, ModelId, u16, u64)>) -> Self {
        let (queues, loads, messages, handlers) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut this = Self { forced, queues, loads, messages, handlers, disturbed: false };
        for (load, device, qid, handler) in known {
            this.open(load, device, qid);
            this.install(load, handler);
        }
        this
    }

    fn queue(&mut self, load: u64) -> Option<&mut Queue> {
        self.queues.get_mut(usize::try_from(load).ok()?)?.as_mut()
    }

    fn queue_of(&mut self, device: ModelId, qid: u16) -> Option<&mut Queue> {
        let load = self.loads.iter().find(|(of, _)| *of == (device, qid))?.1;
        self.queue(load)
    }

    fn install(&mut self, load: u64, handler: u64) {
        let index = handler as usize;
        if self.handlers.len() <= index {
            self.handlers.resize(index + 1, None);
        }
        self.handlers[index] = Some(load);
    }

    fn open(&mut self, load: u64, device: ModelId, qid: u16) {
        self.loads.retain(|(of, other)| *other != load && *of != (device, qid));
        self.loads.push(((device, qid), load));
        let next = self.queue(load).map_or(0, |queue| queue.next);
        let index = load as usize;
        if self.queues.len() <= index {
            self.queues.resize_with(index + 1, || None);
        }
        self.queues[index] = Some(Queue { first: next, next, ..Queue::default() });
    }

    /// Messages that a queue's drive sent for it.
    fn sent(&self, load: u64) -> u64 {
        let sender = self.queues.get(load as usize).and_then(|queue| queue.as_ref()?.sender);
        self.messages.iter().find(|(of, _)| Some(*of) == sender).map_or(0, |(_, count)| *count)
    }

    fn answered(&mut self, at: Ps, load: u64, handled: bool, findings: &mut Findings) {
        let is_forced = self.forced;
        let Some(queue) = self.queue(load) else { return };
        let wrong = queue.left(handled);
        if let Some(text) = wrong.filter(|_| !is_forced && !queue.lent) {
            findings.wrong(NAME, at, format!("the handler of queue {load} {text}"));
        }
    }

    fn told(&mut self, at: Ps, tag: u32, value: u64, findings: &mut Findings) {
        if let Some((load, handled)) = answer_of(tag, value) {
            return self.answered(at, load, handled, findings);
        }
        let (load, rest) = (value >> LOAD_BIT, value & ((1 << LOAD_BIT) - 1));
        if tag == OPENED {
            return self.open(load, ModelId((rest >> 16) as u32), rest as u16);
        }
        if tag == INSTALLED {
            return self.install(load, rest);
        }
        if let Some(which) = tag.checked_sub(CLAIMED).filter(|&which| which < COUNTS.len() as u32) {
            return self.claimed(at, load, which as usize, rest, findings);
        }
        let Some(queue) = self.queue(load) else { return };
        match tag {
            POLLED => {
                queue.counts[10] += 1;
                queue.counts[11] += u64::from(rest == 0);
            }
            DISRUPTED => {
                (queue.disrupted, queue.perhaps) = (true, true);
                queue.lent |= rest != 0;
            }
            _ => {}
        }
    }

    fn claimed(&mut self, at: Ps, load: u64, which: usize, claimed: u64, findings: &mut Findings) {
        let (sent, is_forced, is_disturbed) = (self.sent(load), self.forced, self.disturbed);
        let Some(queue) = self.queue(load) else { return };
        let known = queue.counts[which];
        let loose = queue.disrupted && LOOSE.contains(&which);
        let wrong = if loose { claimed > known && which == 2 } else { claimed != known };
        // A thread's run may be interrupted by another's poll.
        let by_runs = is_forced && (7..10).contains(&which) || queue.lent && BY_RUNS.contains(&which);
        if wrong && !by_runs {
            let text = format!("the driver counts {claimed} {} of queue {load}", COUNTS[which]);
            findings.wrong(NAME, at, format!("{text}, and there were {known}"));
        }
        if which == 6 && !is_disturbed && claimed > sent {
            let text = format!("queue {load} had {claimed} interrupts, and its drive sent {sent} messages");
            findings.wrong(NAME, at, text);
        }
        if which == 0 {
            findings.coverage.add("account: counts of a queue are known", 1);
        }
    }
}

impl Checker for Queues {
    fn topics(&self) -> &'static [Topic] {
        &[Topic::Device, Topic::Message, Topic::Declared, Topic::Mark]
    }

    fn hear(&mut self, at: Ps, fact: &Fact, findings: &mut Findings) {
        match *fact {
            Fact::EntryPosted { device, cqid, vector, .. } => {
                if let Some(queue) = self.queue_of(device, cqid) {
                    queue.counts[2] += 1;
                    queue.sender = vector.map(|vector| (device, vector)).or(queue.sender);
                }
            }
            Fact::Signalled { device, vector } => {
                match self.messages.iter_mut().find(|(of, _)| *of == (device, vector)) {
                    Some((_, count)) => *count += 1,
                    None => self.messages.push(((device, vector), 1)),
                }
            }
            Fact::Doorbell { device, queue, is_completion, .. } => {
                if let Some(queue) = self.queue_of(device, queue) {
                    queue.counts[if is_completion { 5 } else { 1 }] += 1;
                }
            }
            Fact::Declared { online: false, .. } | Fact::Mark { tag: DISTURBED, .. } => self.disturbed = true,
            Fact::Mark { cpu, tag, value } => match Mark::from_tag(tag) {
                Some(Mark::HandlerEntered) => {
                    let load = self.handlers.get(value as usize).copied().flatten();
                    if let Some(queue) = load.and_then(|load| self.queue(load)) {
                        queue.running = Some(cpu);
                    }
                }
                Some(mark @ (Mark::Submitted | Mark::Refused | Mark::Completed | Mark::Failed)) => {
                    let Some(queue) = self.queue(value >> 32) else { return };
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
                None => self.told(at, tag, value, findings),
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
        says(Queues::new(false, [(1, ModelId(9), 2, 3)]), facts)
    }

    fn run(inside: &[Fact], handled: bool) -> Vec<Fact> {
        let entered = Fact::Mark { cpu: 0, tag: Mark::HandlerEntered as u32, value: 3 };
        let answered = Fact::Mark { cpu: 0, tag: 0x300, value: 2 << 8 | u64::from(handled) };
        [&[entered], inside, &[answered]].concat()
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
