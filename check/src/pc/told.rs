//! What the queues of a drive report to its tuning: every entry that they take, whatever found it and whichever of them holds
//! the controller just then. Entries that a reset or a deletion takes are not reported, so a drive that had one is not judged.
//!
//! The level of a tuning never changes, and the drives' coalescing is the managers' until a reset, which programs the level of the
//! tuning.

use super::stack::PcStack;
use crate::verdict::violate;
use drivers::nvme::{COALESCING_LEVELS, Controller as Drive, QueuePair};
use hal::Hal as _;
use irq::moderation::{Algorithm, Controller, Found, LevelTable, Next, Outcome, Setting, Step, Tuner, TuningView};
use machine::model::ModelId;
use machine::nvme::Nvme;
use machine::{SimHal, inspect};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const TAKES_NS: u64 = 300;

/// A controller that counts what it is told, and never asks for a level.
struct Tally {
    told: Arc<AtomicU64>,
    /// How long it thinks. Meanwhile the other queues cannot report.
    takes_ns: u64,
    level: usize,
    inner: Box<dyn Controller>,
}

impl Controller for Tally {
    fn interrupt(&mut self, now_ns: u64, found: Found) -> Next {
        self.polled(now_ns, found)
    }

    fn polled(&mut self, _: u64, found: Found) -> Next {
        self.told.fetch_add(found.completions.into(), Relaxed);
        if self.takes_ns > 0 {
            SimHal.delay_ns(self.takes_ns);
        }
        Next::Measure
    }

    fn deadline_ns(&self) -> Option<u64> {
        None
    }

    fn elapsed(&mut self, _: u64) -> Next {
        Next::Measure
    }

    fn step(&self) -> Option<Step> {
        None
    }

    fn programmed(&mut self, _: u64, _: u32, _: Outcome) -> Next {
        Next::Measure
    }

    fn level(&self) -> usize {
        self.level
    }

    fn view(&self) -> TuningView {
        TuningView { level: self.level, setting: COALESCING_LEVELS[self.level], ..self.inner.view() }
    }
}

/// A drive whose queues report.
struct Tuned {
    index: u32,
    level: usize,
    drive: Arc<Drive<SimHal>>,
    told: Arc<AtomicU64>,
}

/// All drives of a stack.
pub(super) struct Tunings(Vec<Tuned>);

fn entries(pairs: &[Arc<QueuePair<SimHal>>]) -> u64 {
    pairs.iter().map(|pair| pair.snapshot().completion.entries).sum()
}

fn pairs(drive: &Drive<SimHal>) -> Vec<Arc<QueuePair<SimHal>>> {
    (1..=drive.queue_pairs_max()).filter_map(|qid| drive.queue_pair(qid)).collect()
}

impl Tunings {
    /// From now on the queues of all drives report. Nothing has been in flight.
    pub(super) fn begin(stack: &PcStack) -> Self {
        let tuned = stack.drives.iter().filter_map(|drive| {
            let (index, drive) = (drive.index, drive.controller()?);
            let told = Arc::new(AtomicU64::new(0));
            let table = LevelTable::new(COALESCING_LEVELS).expect("sorted");
            let inner = Algorithm::Adaptive.build(table, 64).expect("not 0");
            // Not the first: it is the default of a drive.
            let level = 1 + index as usize % (COALESCING_LEVELS.len() - 1);
            let tally = Tally { told: told.clone(), takes_ns: TAKES_NS, level, inner };
            drive.tune(Arc::new(Tuner::new(SimHal, Box::new(tally))));
            Some(Tuned { index, level, drive, told })
        });
        Self(tuned.collect())
    }

    /// A reset has put the drive of `model` back, and nothing was faulty (NVMe Base, "Interrupt Coalescing (Feature Identifier
    /// 08h)": 7:0 THR, 0's based, 15:8 TIME, of 100 us).
    pub(super) fn check_level(&self, drive: &Arc<Drive<SimHal>>, model: ModelId) {
        let Some(tuned) = self.0.iter().find(|tuned| Arc::ptr_eq(&tuned.drive, drive)) else { return };
        let Setting { delay_us, completions } = COALESCING_LEVELS[tuned.level];
        let (wanted, held) =
            (((delay_us / 100) << 8) | (completions - 1), inspect(model, |drive: &Nvme, _| drive.coalescing()));
        if held.is_some_and(|held| held != wanted) {
            violate(
                "tuning",
                format!("after a reset, drive {} has coalescing {held:x?}, and not {wanted:#x}", tuned.index),
            );
        }
    }

    /// All is at rest. A queue that could not report the last time does so at the next look.
    pub(super) fn check(&self, stack: &PcStack) {
        for Tuned { index, drive, told, .. } in &self.0 {
            let own = stack.drives.iter().find(|own| own.index == *index).expect("it is one of them");
            let is_same = own.controller().is_some_and(|now| Arc::ptr_eq(&now, drive));
            if is_same && !stack.promises.faulty {
                pairs(drive).iter().for_each(|pair| check_tuned(*index, own.model, pair));
            }
            if !is_same || stack.loads_of(own).iter().any(|load| load.was_disrupted.load(Relaxed)) {
                continue;
            }
            let pairs = pairs(drive);
            pairs.iter().for_each(|pair| _ = pair.poll(0));
            let (told, taken) = (told.load(Relaxed), entries(&pairs));
            if let Some(text) = differs(*index, taken, told) {
                violate("tuning", text);
            }
            stack.saw("tuning: a drive's entries add up");
        }
    }
}

/// A queue feeds its drive's tuning, unless the drive never holds the interrupts of its vector back.
fn check_tuned(index: u32, model: ModelId, pair: &QueuePair<SimHal>) {
    let Some(vector) = pair.vector() else { return };
    let held = inspect(model, |drive: &Nvme, _| drive.is_immediate(vector)).flatten();
    if held.is_some_and(|is_immediate| is_immediate == pair.is_tuned()) {
        let (own, tuned) = (pair.qid(), pair.is_tuned());
        let text = format!(
            "drive {index}, vector {vector}: never held back: {held:?}, and queue {own} feeds the tuning: {tuned}"
        );
        violate("tuning", text);
    }
}

fn differs(index: u32, taken: u64, told: u64) -> Option<String> {
    (told != taken)
        .then(|| format!("the queues of drive {index} took {taken} entries, and their tuning was told of {told}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_is_told_however_it_was_found() {
        let told = Arc::new(AtomicU64::new(0));
        let table = LevelTable::new(COALESCING_LEVELS).expect("sorted");
        let inner = Algorithm::Adaptive.build(table, 64).expect("not 0");
        let mut tally = Tally { told: told.clone(), takes_ns: 0, level: 2, inner };
        assert_eq!(tally.interrupt(1, Found::completions(3)), Next::Measure);
        assert_eq!(tally.polled(2, Found::completions(4)), Next::Measure);
        let told = told.load(Relaxed);
        assert_eq!((differs(0, 7, told), tally.step()), (None, None));
        assert!(differs(0, 8, told).is_some_and(|text| text.contains("took 8 entries") && text.contains("told of 7")));
    }
}
