//! What the queues of a drive report to its tuning: every entry that they take, whatever found it and whichever of them holds
//! the controller just then. Entries that a reset or a deletion takes are not reported, so a drive that had one is not judged.
//!
//! Nobody programs a level: the drives' coalescing is the managers'.

use super::stack::PcStack;
use crate::verdict::violate;
use drivers::nvme::{COALESCING_LEVELS, Controller as Drive, QueuePair};
use hal::Hal as _;
use irq::moderation::{Algorithm, Controller, Found, LevelTable, Next, Outcome, Step, Tuner, TuningView};
use machine::SimHal;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const TAKES_NS: u64 = 300;

/// A controller that counts what it is told, and never asks for a level.
struct Tally {
    told: Arc<AtomicU64>,
    /// How long it thinks. Meanwhile the other queues cannot report.
    takes_ns: u64,
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
        self.inner.level()
    }

    fn view(&self) -> TuningView {
        self.inner.view()
    }
}

/// A drive whose queues report.
struct Tuned {
    index: u32,
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
            drive.tune(Arc::new(Tuner::new(SimHal, Box::new(Tally { told: told.clone(), takes_ns: TAKES_NS, inner }))));
            Some(Tuned { index, drive, told })
        });
        Self(tuned.collect())
    }

    /// All is at rest. A queue that could not report the last time does so at the next look.
    pub(super) fn check(&self, stack: &PcStack) {
        for Tuned { index, drive, told } in &self.0 {
            let own = stack.drives.iter().find(|own| own.index == *index).expect("it is one of them");
            let is_same = own.controller().is_some_and(|now| Arc::ptr_eq(&now, drive));
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
        let mut tally = Tally { told: told.clone(), takes_ns: 0, inner };
        assert_eq!(tally.interrupt(1, Found::completions(3)), Next::Measure);
        assert_eq!(tally.polled(2, Found::completions(4)), Next::Measure);
        let told = told.load(Relaxed);
        assert_eq!((differs(0, 7, told), tally.step()), (None, None));
        assert!(differs(0, 8, told).is_some_and(|text| text.contains("took 8 entries") && text.contains("told of 7")));
    }
}
