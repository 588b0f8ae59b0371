//! The workload of a network experiment, and the keys that set it.

use super::plan::FLOWS_MAX;
use crate::platform::Unit;
use crate::scenario::key::{Key, Value};

/// Flows from the host into a guest, which sends every packet back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Network {
    /// Flows. Each has a receive queue of its own, and one more queue for the way back.
    pub flows: u32,
    /// How the lines of the device on the MMIO transport are wired.
    pub trigger: Trigger,
    /// Whether level-triggered lines have a resampler.
    pub resampler: bool,
    /// Threads of the back end.
    pub workers: Workers,
    /// Most packets per poll of a queue before the next queue's turn.
    pub weight: u32,
    /// Mean time between two packets of a flow. None: its sender sends as fast as it can.
    pub packet_every_ns: Option<u64>,
}

/// How a line is wired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trigger {
    /// An interrupt is a pulse.
    Edge,
    /// An interrupt is a level that stays until it is acknowledged.
    Level,
}

/// Threads of the back end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Workers {
    /// One thread per queue pair.
    Pair,
    /// One thread for the device.
    Device,
}

/// The values without any key set.
pub(super) const BLANK: Network = Network {
    flows: 0,
    trigger: Trigger::Edge,
    resampler: false,
    workers: Workers::Pair,
    weight: 0,
    packet_every_ns: None,
};

/// Its keys. Their defaults are the published experiment: a host thread a queue pair, Linux's weight.
pub(super) const KEYS: &[Key<Network>] = &[
    Key {
        name: "network.flows",
        about: "each with a receive queue, and a transmit queue to send back by",
        default: Some("8"),
        value: Value::Quantity {
            unit: Unit::Count,
            min: 1.0,
            max: FLOWS_MAX as f64,
            set: |network, flows| network.flows = flows as u32,
        },
    },
    Key {
        name: "network.trigger",
        about: "how the lines are wired; or \"level\"",
        default: Some("edge"),
        value: Value::Word {
            words: &["edge", "level"],
            wrong: "is none of the words",
            set: |network, word| network.trigger = [Trigger::Edge, Trigger::Level][word],
        },
    },
    Key {
        name: "network.resampler",
        about: "the end of a level-triggered interrupt takes its line down",
        default: Some("false"),
        value: Value::Quantity {
            unit: Unit::Flag,
            min: 0.0,
            max: 1.0,
            set: |network, flag| network.resampler = flag != 0.0,
        },
    },
    Key {
        name: "network.workers",
        about: "host threads: one a queue pair; or \"device\": one for all",
        default: Some("pair"),
        value: Value::Word {
            words: &["pair", "device"],
            wrong: "is none of the words",
            set: |network, word| network.workers = [Workers::Pair, Workers::Device][word],
        },
    },
    Key {
        name: "network.weight",
        about: "packets that a queue is polled for before the next one's turn",
        default: Some("64"),
        value: Value::Quantity {
            unit: Unit::Count,
            min: 1.0,
            max: 65_536.0,
            set: |network, packets| network.weight = packets as u32,
        },
    },
    Key {
        name: "network.packet_every",
        about: "mean time between two packets of a flow; by default its sender sends as fast as it can",
        default: None,
        value: Value::Quantity {
            unit: Unit::Time,
            min: 100.0,
            max: 1e9,
            set: |network, ns| network.packet_every_ns = Some(ns as u64),
        },
    },
];
