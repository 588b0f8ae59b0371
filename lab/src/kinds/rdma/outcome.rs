//! The measurements of an experiment on moderation: those of the initiator, over all its completion queues.

use super::page;
use crate::kinds::{Measured, Section, State};
use crate::outcome::quantity::{CPU, THROUGHPUT, at, mean, per_second, quantity, ratio_f};
use crate::outcome::{Headline, Latency, Outcome, Quantity, Unit, ratio};
use crate::report::RunReport;
use Unit::{Nanoseconds, PerSecond, Percent, Ratio};
use serde::{Deserialize, Serialize};

/// The measurements of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RdmaOutcome {
    /// Completion queues of the initiator.
    pub queues: u32,
    /// Reads.
    pub ios: u64,
    /// Reads that ended with an error.
    pub errors: u64,
    /// The time from before the submitting call until the thread sees the completion.
    pub latency: Latency,
    /// The initiator's completion queues.
    pub initiator: SideOutcome,
    /// The target's completion queues.
    pub target: SideOutcome,
    /// The first queue's level from the start of the load, ramp included.
    pub levels: Vec<LevelChange>,
    /// Number of levels in the table.
    pub level_count: u32,
    /// Time from the start of the load to the end, in ns.
    pub end_ns: u64,
    /// Time from the start of the load to the start of the measured span, in ns.
    pub begin_ns: u64,
    /// The state of the first queue's tuning at the end, for people.
    pub tuning: Option<String>,
}

/// One host's completion queues, all together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SideOutcome {
    /// Completions.
    pub completions: u64,
    /// Events.
    pub events: u64,
    /// Number of times that a level was programmed, even to the same value.
    pub programmed: u64,
    /// Their levels.
    pub levels: Held,
}

/// The levels of one host's completion queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Held {
    /// Number of changes of a queue's level.
    pub changes: u64,
    /// Share of the time at the highest level, on average over the queues.
    pub top_share: f64,
}

/// A level and the time from which it was in effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LevelChange {
    /// Time since the start of the load, in ns.
    pub from_ns: u64,
    /// The level.
    pub level: u32,
}

impl Measured for RdmaOutcome {
    fn quantities(&self) -> Vec<Quantity> {
        [RDMA, TARGETS, CPU, LATENCIES].concat()
    }

    fn headline(&self) -> Headline {
        Headline { id: "iops", unit: PerSecond, name: "IOPS", beside: ("latency", Nanoseconds, "mean latency") }
    }

    fn page(&self, report: &RunReport) -> String {
        page::sections(report)
    }

    fn state(&self) -> Option<State> {
        let heading = "State of the tuning at the end, first queue of the first seed";
        self.tuning.clone().map(|text| State { heading, text })
    }
}

impl From<RdmaOutcome> for Section {
    fn from(outcome: RdmaOutcome) -> Self {
        Self::Rdma(outcome)
    }
}

impl Outcome {
    /// Reads, events and levels of an experiment on moderation.
    pub fn rdma(&self) -> Option<&RdmaOutcome> {
        self.own()
    }
}

const MODERATION: &str = "Moderation";
const TARGET: &str = "Moderation of the target";
const LATENCY: &str = "Latency";

const RDMA: &[Quantity] = &[
    quantity("iops", "reads", PerSecond, THROUGHPUT, |o| per_second(o, o.rdma()?.ios)),
    quantity("iops_per_queue", "reads, a queue", PerSecond, THROUGHPUT, |o| {
        ratio_f(per_second(o, o.rdma()?.ios)?, o.rdma()?.queues.into())
    }),
    quantity("errors", "errors", PerSecond, THROUGHPUT, |o| per_second(o, o.rdma()?.errors)),
    // Little's law: the rate times the mean latency.
    quantity("in_flight", "reads under way, a queue", Ratio, THROUGHPUT, |o| {
        ratio_f(per_second(o, o.rdma()?.ios)? * mean(&o.rdma()?.latency)? / 1e9, o.rdma()?.queues.into())
    }),
    quantity("events", "events", PerSecond, MODERATION, |o| per_second(o, o.rdma()?.initiator.events)),
    quantity("completions_per_event", "completions an event", Ratio, MODERATION, |o| {
        ratio(o.rdma()?.initiator.completions, o.rdma()?.initiator.events)
    }),
    quantity("level_changes", "level changes, a queue", PerSecond, MODERATION, |o| {
        a_queue(o, o.rdma()?.initiator.levels.changes)
    }),
    quantity("programmed", "levels programmed, a queue", PerSecond, MODERATION, |o| {
        a_queue(o, o.rdma()?.initiator.programmed)
    }),
    quantity("top_level_share", "time at the highest level", Percent, MODERATION, |o| {
        Some(o.rdma()?.initiator.levels.top_share * 100.0)
    }),
];

const TARGETS: &[Quantity] = &[
    quantity("target_events", "events", PerSecond, TARGET, |o| per_second(o, o.rdma()?.target.events)),
    quantity("target_completions_per_event", "completions an event", Ratio, TARGET, |o| {
        ratio(o.rdma()?.target.completions, o.rdma()?.target.events)
    }),
    quantity("target_level_changes", "level changes, a queue", PerSecond, TARGET, |o| {
        a_queue(o, o.rdma()?.target.levels.changes)
    }),
    quantity("target_programmed", "levels programmed, a queue", PerSecond, TARGET, |o| {
        a_queue(o, o.rdma()?.target.programmed)
    }),
    quantity("target_top_level_share", "time at the highest level", Percent, TARGET, |o| {
        Some(o.rdma()?.target.levels.top_share * 100.0)
    }),
];

const LATENCIES: &[Quantity] = &[
    quantity("latency", "mean", Nanoseconds, LATENCY, |o| mean(&o.rdma()?.latency)),
    quantity("latency_p50", "p50", Nanoseconds, LATENCY, |o| at(&o.rdma()?.latency, 0)),
    quantity("latency_p99", "p99", Nanoseconds, LATENCY, |o| at(&o.rdma()?.latency, 2)),
    quantity("latency_p99_9", "p99.9", Nanoseconds, LATENCY, |o| at(&o.rdma()?.latency, 3)),
];

fn a_queue(outcome: &Outcome, count: u64) -> Option<f64> {
    ratio_f(per_second(outcome, count)?, outcome.rdma()?.queues.into())
}
