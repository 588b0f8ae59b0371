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
    /// Completions of the initiator's queues.
    pub completions: u64,
    /// Events of the initiator's queues.
    pub events: u64,
    /// Number of changes of a queue's level.
    pub level_changes: u64,
    /// Number of times that a level was programmed, even to the same value.
    pub programmed: u64,
    /// Share of the time at the highest level, on average over the queues.
    pub top_share: f64,
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
        [RDMA, CPU, LATENCIES].concat()
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
const LATENCY: &str = "Latency";

const RDMA: &[Quantity] = &[
    quantity("iops", "reads", PerSecond, THROUGHPUT, |o| per_second(o, o.rdma()?.ios)),
    quantity("iops_per_queue", "reads, a queue", PerSecond, THROUGHPUT, |o| {
        ratio_f(per_second(o, o.rdma()?.ios)?, o.rdma()?.queues.into())
    }),
    quantity("errors", "errors", PerSecond, THROUGHPUT, |o| per_second(o, o.rdma()?.errors)),
    quantity("events", "events", PerSecond, MODERATION, |o| per_second(o, o.rdma()?.events)),
    quantity("completions_per_event", "completions an event", Ratio, MODERATION, |o| {
        ratio(o.rdma()?.completions, o.rdma()?.events)
    }),
    quantity("level_changes", "level changes, a queue", PerSecond, MODERATION, |o| a_queue(o, o.rdma()?.level_changes)),
    quantity("programmed", "levels programmed, a queue", PerSecond, MODERATION, |o| a_queue(o, o.rdma()?.programmed)),
    quantity("top_level_share", "time at the highest level", Percent, MODERATION, |o| {
        Some(o.rdma()?.top_share * 100.0)
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
