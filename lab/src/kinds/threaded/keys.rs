//! The workload of an experiment on a threaded interrupt, and the keys that set it.

use super::plan::ITERATIONS_MAX;
use crate::plan::Plan;
use crate::platform::Unit;
use crate::scenario::key::{Key, Value};

/// One line whose handler runs in a thread. Each cycle raises the line and waits for the thread. All run on one CPU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Threaded {
    /// Number of equal parts of the measured span. Each part gives a rate.
    pub iterations: u32,
    /// Mean time between two interrupts of another device on the same CPU, whose handler has no thread. None: no such
    /// device.
    pub neighbour_ns: Option<u64>,
    /// The kernel that all variants but ours stand for.
    pub linux: Linux,
}

/// Linux by the writes after which its GICv3 driver polls RWP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Linux {
    /// Until 5.18: after every write to a line's registers, the raise of the bench included (`gic_poke_irq`).
    Before5_19,
    /// Since 5.19: after a write that disables a line.
    Since5_19,
}

impl Threaded {
    /// How long an iteration of `plan` lasts.
    pub fn iteration_ns(&self, plan: &Plan) -> u64 {
        plan.spans.measured_ns / u64::from(self.iterations)
    }
}

/// The values without any key set.
pub(super) const BLANK: Threaded = Threaded { iterations: 0, neighbour_ns: None, linux: Linux::Before5_19 };

/// Its keys. Their defaults are the published experiment: nothing else on the CPU.
pub(super) const KEYS: &[Key<Threaded>] = &[
    Key {
        name: "threaded.iterations",
        about: "equal parts of the duration, over whose rates mean and percentiles are taken",
        default: Some("20"),
        value: Value::Quantity {
            unit: Unit::Count,
            min: 1.0,
            max: ITERATIONS_MAX as f64,
            set: |threaded, iterations| threaded.iterations = iterations as u32,
        },
    },
    Key {
        name: "threaded.neighbour",
        about: "another device interrupts the CPU so often on average; by default none",
        default: None,
        value: Value::Quantity {
            unit: Unit::Time,
            min: 10e3,
            max: 10e9,
            set: |threaded, ns| threaded.neighbour_ns = Some(ns as u64),
        },
    },
    Key {
        name: "threaded.linux",
        about: "the kernel of the baseline; until 5.18 its GICv3 driver polls RWP after each write, since then after a mask",
        default: Some("before 5.19"),
        value: Value::Word {
            words: &["before 5.19", "since 5.19"],
            wrong: "is none of the words",
            set: |threaded, word| threaded.linux = [Linux::Before5_19, Linux::Since5_19][word],
        },
    },
];
