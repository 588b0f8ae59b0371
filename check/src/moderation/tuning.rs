//! Tuning of consumers: controllers whose times fit a history of a millisecond.

use super::watch::{Promise, Slow, Watched};
use super::work::Source;
use hal::Hal as _;
use irq::moderation::{Adaptive, AdaptiveConfig, Algorithm, Controller, LevelTable, Outcome, Setting, Tuner};
use machine::SimHal;
use std::sync::Arc;

/// Levels of another table than lib/dim's.
const FIVE: [Setting; 5] =
    [Setting::new(0, 1), Setting::new(4, 2), Setting::new(8, 8), Setting::new(16, 16), Setting::new(64, 32)];

/// The tables, by name.
pub(super) const TABLES: &[&str] = &["one", "five", "rdma_dim", "net_dim"];

pub(super) fn table(choice: usize) -> LevelTable {
    let levels = [&FIVE[..1], &FIVE, &LevelTable::RDMA_DIM, &LevelTable::NET_DIM_RX][choice];
    LevelTable::new(levels).expect("they are sorted")
}

/// Parameters of controllers.
#[derive(Clone)]
pub(super) struct Tuning {
    pub(super) table: LevelTable,
    pub(super) config: AdaptiveConfig,
}

impl Tuning {
    /// A controller by number; our own is the most frequent.
    pub(super) fn controller(&self, number: u32) -> (Box<dyn Controller>, Promise) {
        let published = match number % 8 {
            5 => Algorithm::IrqAm,
            6 => Algorithm::RdmaDim,
            7 => Algorithm::NetDim,
            _ => {
                let controller = Adaptive::new(self.table.clone(), self.config);
                let program_ns_max = self.config.program_ns_max;
                return (Box::new(controller), Promise::Adaptive { program_ns_max });
            }
        };
        let events = self.config.nr_events as u16;
        (published.build(self.table.clone(), events).expect("it has events"), Promise::Published)
    }

    /// The tuner of a consumer, by a controller of this number.
    pub(super) fn tuned(&self, number: u32, consumer: u32) -> Tuned {
        let (controller, promise) = self.controller(number);
        let watched = Watched::new(controller, promise, consumer);
        let tuner = Arc::new(Tuner::new(SimHal, watched.controller()));
        Tuned { watched, tuner }
    }
}

/// A tuner, and the harness's access to its controller.
#[derive(Clone)]
pub(super) struct Tuned {
    pub(super) watched: Watched,
    pub(super) tuner: Arc<Tuner<SimHal>>,
}

/// A consumer with all that belongs to it.
pub(super) struct Consumer {
    pub(super) source: Arc<dyn Source>,
    pub(super) device: Arc<Slow>,
    pub(super) tuned: Option<Tuned>,
}

/// A wanted level must be programmed within this time if nothing prevents it.
const CALLED_NS_MAX: u64 = 1_000_000;

impl Consumer {
    /// A defect of its tuning, once no command is under way and no fault is active; the tuning may need a while to
    /// rest.
    pub(super) fn unrest(&self, table: &LevelTable) -> Option<String> {
        let has = self.source.setting();
        let wrong = match self.device.last() {
            Some((_, Outcome::Done(actual))) if actual != has => {
                Some(format!("the device reported {actual}, and has {has}"))
            }
            _ => None,
        };
        let Some(Tuned { watched, .. }) = &self.tuned else { return wrong };
        let view = watched.view();
        let called = watched.called().map(|since| SimHal.now_ns().saturating_sub(since));
        if let Some(ns) = called.filter(|&ns| ns > CALLED_NS_MAX) {
            return Some(format!("a level was requested {ns} ns ago, and no thread programs it\n{view}"));
        }
        if called.is_some() || watched.is_adaptive() && (watched.waits() || view.wanted.is_some()) {
            return Some(format!("a level is not programmed\n{view}"));
        }
        // A published controller treats a failed step as done.
        let told = self.device.last().filter(|_| watched.is_adaptive() && view.actual.is_some());
        match told {
            Some((told, Outcome::Done(actual))) if told != table.setting(view.level) || view.actual != Some(actual) => {
                Some(format!("the device was set to {told} and has {actual}; its controller has another value\n{view}"))
            }
            _ => wrong,
        }
    }
}
