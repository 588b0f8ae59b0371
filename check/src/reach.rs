//! What a history reaches: steps of the hardware, each with the state in which it happened.
//!
//! A **feature** is a kind of fact together with the state of the interrupt source it concerns (pending, in service, its
//! handler runs), how deep the CPU is in interrupts, and one of these: what that CPU did before, an operation of a manager
//! that is under way, two such operations, or an operation and a fault. Each is a number of [`BITS`] bits, a hash. A history
//! that has a feature which no other had is worth keeping ([`crate::guided`]).

use crate::coverage::Coverage;
use crate::draw::hash;
use crate::mark::Mark;
use machine::observe::{Arrival, Fact};
use std::collections::{BTreeMap, HashMap};
use std::mem::discriminant;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Features are numbers of so many bits.
pub const BITS: u32 = 18;

/// The INTIDs from this one on belong to no CPU (IHI 0069H, "INTIDs": SPIs).
const SHARED_FIRST: u32 = 32;
/// An acknowledged word: an INTID (IHI 0069H, "ICC_IAR1_EL1").
const INTID: u32 = 0xff_ffff;
/// The same with GICv2, where bits 12:10 are the sender (IHI 0048B, "GICC_IAR").
const INTID_V2: u32 = 0x3ff;
/// Acknowledged words from this one to 1023 are no interrupt.
const NONE_FIRST: u32 = 1020;
/// The first LPI.
const LPI_FIRST: u32 = 8192;

const PENDING: u8 = 1;
const ACTIVE: u8 = 2;
const HANDLED: u8 = 4;

/// Which interrupt source: the space of its number, and the number.
type Source = (u8, u64);

#[derive(Clone, Copy, Default)]
struct Cpu {
    depth: u32,
    last: u64,
}

/// Listens to one history.
pub struct Reach {
    seen: Vec<u64>,
    features: Vec<u32>,
    sources: HashMap<Source, u8>,
    cpus: Vec<Cpu>,
    /// The step of each manager that is under way, 0: none.
    at: Arc<Vec<AtomicU32>>,
    /// What each step does.
    operations: BTreeMap<u32, u64>,
    /// Faults that last now.
    faults: Vec<u64>,
    in_flight: u64,
}

impl Reach {
    /// Nothing was reached. Each manager's step under way is in `at`; `steps` says what each step does.
    pub fn new<'a>(at: Arc<Vec<AtomicU32>>, steps: impl Iterator<Item = (u32, &'a str)>) -> Self {
        Self {
            seen: vec![0; 1 << (BITS - 6)],
            features: Vec::new(),
            sources: HashMap::new(),
            cpus: Vec::new(),
            at,
            operations: steps.map(|(number, text)| (number, verb(text))).collect(),
            faults: Vec::new(),
            in_flight: 0,
        }
    }

    /// A fault of this kind begins or ends.
    pub fn fault(&mut self, kind: &str, begins: bool) {
        let kind = hash(kind.bytes());
        match (begins, self.faults.iter().position(|other| *other == kind)) {
            (true, _) => self.faults.push(kind),
            (false, Some(index)) => drop(self.faults.swap_remove(index)),
            (false, None) => {}
        }
    }

    /// The hardware did something.
    pub fn hear(&mut self, fact: &Fact) {
        let Some((kind, cpu, source)) = self.kind(fact) else { return };
        let state = source.map_or(0, |source| self.turn(source, fact));
        let cpu = cpu.map(|cpu| self.cpu(cpu, fact));
        let place = (u64::from(state) << 8) | cpu.map_or(3, |cpu| u64::from(cpu.depth.min(2)));
        self.reach([1, kind, place, cpu.map_or(0, |cpu| cpu.last)]);
        if let Some(number) = cpu_of(fact) {
            self.cpus[number as usize].last = kind;
        }
        self.meet(kind, place);
    }

    /// What was reached, in order; and how often each transition was seen, by order of magnitude.
    pub fn features(mut self, coverage: &Coverage) -> Vec<u32> {
        for (name, times) in coverage.iter().filter(|(_, times)| *times > 0) {
            self.reach([6, hash(name.bytes()), times.ilog2().into(), 0]);
        }
        self.features.sort_unstable();
        self.features
    }

    /// With what is under way.
    fn meet(&mut self, kind: u64, place: u64) {
        let mut under_way = [0; crate::run::MANAGERS_MAX as usize];
        for (operation, at) in under_way.iter_mut().zip(self.at.iter()) {
            let number = at.load(Relaxed);
            *operation = if number == 0 { 0 } else { self.operations.get(&number).copied().unwrap_or(0) };
        }
        under_way.sort_unstable();
        for (index, &operation) in under_way.iter().enumerate().filter(|(_, operation)| **operation != 0) {
            self.reach([2, kind, place, operation]);
            for &other in &under_way[index + 1..] {
                self.reach([3, kind, operation, other]);
            }
            for fault in 0..self.faults.len() {
                self.reach([4, kind, operation, self.faults[fault]]);
            }
        }
        for fault in 0..self.faults.len() {
            self.reach([5, kind, place, self.faults[fault]]);
        }
    }

    fn reach(&mut self, parts: [u64; 4]) {
        let feature = (mix(parts) >> (64 - BITS)) as u32;
        let (word, bit) = (&mut self.seen[feature as usize / 64], 1 << (feature % 64));
        if *word & bit == 0 {
            *word |= bit;
            self.features.push(feature);
        }
    }

    /// What kind of fact it is, where it happened, and to which interrupt source.
    fn kind(&mut self, fact: &Fact) -> Option<(u64, Option<u32>, Option<Source>)> {
        let detail = match *fact {
            Fact::Worked { work, depth, .. } => hash(work.name().bytes()) ^ u64::from(depth.min(2)),
            Fact::Raised { level, arrival, .. } => 2 * hash_of(discriminant(&arrival)) + u64::from(level),
            Fact::Posted { again, post, .. } => 2 * hash_of(discriminant(&post)) + u64::from(again),
            Fact::Blocked { reason, recorded, .. } => 2 * u64::from(reason) + u64::from(recorded),
            Fact::Invalidated { count, .. } => count.ilog2().into(),
            Fact::Exception { pseudo_nmi, .. } => pseudo_nmi.into(),
            Fact::GicAcknowledged { word, .. } => (NONE_FIRST..1024).contains(&word).into(),
            Fact::GicDropped { in_order, .. } => in_order.into(),
            Fact::GicDeactivated { was_active, .. } => was_active.into(),
            Fact::Doorbell { is_completion, .. } => is_completion.into(),
            Fact::EntryPosted { vector, wrong_phase, .. } => 2 * u64::from(vector.is_some()) + u64::from(wrong_phase),
            Fact::Fault { kind, .. } => hash(kind.bytes()),
            Fact::Disturbed { kind, .. } => kind as u64,
            Fact::Tampered { act, .. } => hash(act.name().bytes()),
            Fact::Struck { fault, .. } => hash(fault.bytes()),
            Fact::Declared { online, .. } => online.into(),
            Fact::Mark { tag, .. } => self.mark(tag),
            // One a hop: where it arrives is told again.
            Fact::Message { .. } => return None,
            _ => 0,
        };
        Some((mix([hash_of(discriminant(fact)), detail, 0, 0]), cpu_of(fact), source_of(fact)))
    }

    fn mark(&mut self, tag: u32) -> u64 {
        match Mark::from_tag(tag) {
            Some(Mark::Submitted) => self.in_flight += 1,
            Some(Mark::Completed | Mark::Failed | Mark::Refused) => self.in_flight = self.in_flight.saturating_sub(1),
            _ => return tag.into(),
        }
        u64::from(tag) << 8 | u64::from((self.in_flight + 1).ilog2())
    }

    /// The source's state before `fact`, which changes it.
    fn turn(&mut self, source: Source, fact: &Fact) -> u8 {
        let state = self.sources.entry(source).or_default();
        let before = *state;
        *state = match *fact {
            Fact::Raised { arrival: Arrival::Refused, .. } => before,
            Fact::Raised { .. } | Fact::GicPending { .. } | Fact::Posted { .. } => before | PENDING,
            Fact::Accepted { .. } | Fact::GicAcknowledged { .. } => before & !PENDING | ACTIVE,
            Fact::Ended { .. } | Fact::GicDeactivated { .. } => before & !ACTIVE,
            Fact::Mark { tag, .. } if Mark::from_tag(tag) == Some(Mark::HandlerEntered) => before | HANDLED,
            Fact::Mark { tag, .. } if Mark::from_tag(tag) == Some(Mark::HandlerLeft) => before & !HANDLED,
            _ => before,
        };
        before
    }

    /// The CPU's state before `fact`, which changes it.
    fn cpu(&mut self, number: u32, fact: &Fact) -> Cpu {
        if self.cpus.len() <= number as usize {
            self.cpus.resize(number as usize + 1, Cpu::default());
        }
        let cpu = &mut self.cpus[number as usize];
        let before = *cpu;
        cpu.depth = match *fact {
            Fact::Accepted { .. } | Fact::Exception { .. } => before.depth + 1,
            Fact::Returned { depth, .. } => depth,
            _ => before.depth,
        };
        before
    }
}

fn cpu_of(fact: &Fact) -> Option<u32> {
    match *fact {
        Fact::Raised { cpu, .. }
        | Fact::Accepted { cpu, .. }
        | Fact::Exception { cpu, .. }
        | Fact::Returned { cpu, .. }
        | Fact::Ended { cpu, .. }
        | Fact::IdleEoi { cpu }
        | Fact::IpiSent { from: cpu, .. }
        | Fact::Halted { cpu }
        | Fact::Woken { cpu }
        | Fact::Worked { cpu, .. }
        | Fact::GicAcknowledged { cpu, .. }
        | Fact::GicDropped { cpu, .. }
        | Fact::GicDeactivated { cpu, .. }
        | Fact::Declared { cpu, .. }
        | Fact::Mark { cpu, .. } => Some(cpu),
        Fact::Disturbed { cpu, .. } | Fact::GicPending { cpu, .. } => cpu,
        _ => None,
    }
    // A LAPIC that does not exist may be told of.
    .filter(|cpu| *cpu < 1 << 10)
}

fn source_of(fact: &Fact) -> Option<Source> {
    let vector = |cpu: u32, vector: u8| Some((0, u64::from(cpu) << 8 | u64::from(vector)));
    let of_gic = |cpu: u32, word: u32| {
        let word = word & INTID;
        let intid = if word < LPI_FIRST { word & INTID_V2 } else { word };
        let cpu = if intid < SHARED_FIRST { cpu } else { 0 };
        Some((1, u64::from(cpu) << 32 | u64::from(intid)))
    };
    match *fact {
        Fact::Raised { cpu, vector: number, .. } | Fact::Accepted { cpu, vector: number } => vector(cpu, number),
        Fact::Ended { cpu, vector: number } => vector(cpu, number),
        Fact::Posted { descriptor, vector, .. } => Some((2, descriptor << 8 | u64::from(vector))),
        Fact::GicPending { cpu, intid } => of_gic(cpu.unwrap_or(0), intid),
        Fact::GicAcknowledged { cpu, word } | Fact::GicDropped { cpu, word, .. } => of_gic(cpu, word),
        Fact::GicDeactivated { cpu, word, .. } => of_gic(cpu, word),
        Fact::Mark { tag, value, .. } => match Mark::from_tag(tag)? {
            Mark::LineOpened | Mark::LineClosed | Mark::HandlerEntered | Mark::HandlerLeft => Some((3, value)),
            _ => None,
        },
        _ => None,
    }
}

/// What a step does, without its numbers.
fn verb(text: &str) -> u64 {
    hash(text.split(' ').filter(|word| !word.starts_with(|c: char| c.is_ascii_digit())).flat_map(str::bytes)).max(1)
}

/// The number of a variant. Debug prints it; there is no other way without a cast.
fn hash_of<T>(variant: std::mem::Discriminant<T>) -> u64 {
    use std::hash::{Hash as _, Hasher};
    struct Number(u64);
    impl Hasher for Number {
        fn finish(&self) -> u64 {
            self.0
        }
        fn write(&mut self, bytes: &[u8]) {
            bytes.iter().for_each(|byte| self.0 = self.0.wrapping_shl(8) | u64::from(*byte));
        }
        fn write_isize(&mut self, number: isize) {
            self.0 = number as u64;
        }
    }
    let mut number = Number(0);
    variant.hash(&mut number);
    number.0
}

/// A multiplicative hash, whose high bits depend on all parts.
fn mix(parts: [u64; 4]) -> u64 {
    parts.into_iter().fold(0x9e37_79b9_7f4a_7c15, |hash: u64, part| {
        let mixed = (hash ^ part).wrapping_mul(0xff51_afd7_ed55_8ccd);
        mixed ^ (mixed >> 32)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach(steps: &[(u32, &'static str)]) -> (Reach, Arc<Vec<AtomicU32>>) {
        let at = Arc::new((0..2).map(|_| AtomicU32::new(0)).collect::<Vec<_>>());
        (Reach::new(at.clone(), steps.iter().copied()), at)
    }

    #[test]
    fn the_same_fact_in_another_state_is_new() {
        let (mut reach, _) = reach(&[]);
        let raised = Fact::Raised { cpu: 1, vector: 0x40, level: false, arrival: Arrival::Pending };
        reach.hear(&raised);
        assert_eq!(reach.features.len(), 1);
        reach.hear(&raised);
        assert_eq!(reach.features.len(), 2, "it was pending");
        reach.hear(&raised);
        assert_eq!(reach.features.len(), 2, "nothing is new");
    }

    #[test]
    fn an_operation_that_is_under_way_makes_a_fact_new_and_its_numbers_do_not() {
        let (mut reach, at) = reach(&[(5, "move line 3 to CPUs of mask 0x5"), (6, "move line 4 to CPUs of mask 0x1")]);
        let halted = Fact::Halted { cpu: 0 };
        let mut news = |step: u32, other: u32| {
            let before = reach.features.len();
            at[0].store(step, Relaxed);
            at[1].store(other, Relaxed);
            reach.hear(&halted);
            reach.features.len() - before
        };
        news(0, 0);
        news(0, 0);
        assert_eq!([news(0, 0), news(5, 0), news(6, 0), news(5, 6), news(6, 5)], [0, 1, 0, 1, 0]);
    }

    #[test]
    fn a_fault_that_ended_counts_no_more() {
        let (mut reach, _) = reach(&[]);
        let halted = Fact::Halted { cpu: 0 };
        (0..2).for_each(|_| reach.hear(&halted));
        let calm = reach.features.len();
        reach.fault("storm", true);
        reach.fault("storm", false);
        reach.hear(&halted);
        assert_eq!(reach.features.len(), calm);
        reach.fault("storm", true);
        reach.hear(&halted);
        assert_eq!(reach.features.len(), calm + 1);
    }
}
