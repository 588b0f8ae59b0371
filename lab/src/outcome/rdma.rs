//! What an experiment on moderation measures: of the initiator, over all its completion queues.

use super::quantity::{CPU, THROUGHPUT, at, mean, per_second, quantity, ratio_f};
use super::{Headline, Latency, Outcome, Published, Quantity, Unit, ratio};
use Unit::{Nanoseconds, PerSecond, Percent, Ratio};
use serde::{Deserialize, Serialize};

/// Of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RdmaOutcome {
    /// Completion queues of the initiator.
    pub queues: u32,
    /// Reads.
    pub ios: u64,
    /// Reads that ended with an error.
    pub errors: u64,
    /// From before the submitting call to the thread's sight of the completion.
    pub latency: Latency,
    /// Completions of the initiator's queues.
    pub completions: u64,
    /// Events of them.
    pub events: u64,
    /// Times that a queue's level changed.
    pub level_changes: u64,
    /// Times that a level was programmed, changes or not.
    pub programmed: u64,
    /// Share of the time at the highest level, on average over the queues.
    pub top_share: f64,
    /// The first queue's level from the start of the load, ramp included.
    pub levels: Vec<LevelChange>,
    /// Levels of the table.
    pub level_count: u32,
    /// Since the start of the load, at the end, in ns.
    pub end_ns: u64,
    /// Since the start of the load, when counting began, in ns.
    pub begin_ns: u64,
    /// The state of the first queue's tuning at the end, for people.
    pub tuning: Option<String>,
}

/// A level and from when it was in effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LevelChange {
    /// Since the start of the load, in ns.
    pub from_ns: u64,
    /// The level.
    pub level: u32,
}

pub(super) const HEADLINE: Headline =
    Headline { id: "iops", unit: PerSecond, name: "IOPS", beside: ("latency", Nanoseconds, "mean latency") };

const MODERATION: &str = "Moderation";
const LATENCY: &str = "Latency";

/// Every quantity, in the table's order.
pub(super) fn quantities() -> Vec<Quantity> {
    [RDMA, CPU, LATENCIES].concat()
}

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

/// The published tables call nothing otherwise.
pub(super) const PUBLISHED: &[Published] = &[];

fn a_queue(outcome: &Outcome, count: u64) -> Option<f64> {
    ratio_f(per_second(outcome, count)?, outcome.rdma()?.queues.into())
}
