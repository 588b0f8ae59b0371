//! The description of the device.

use crate::time::Ps;
use core::fmt;
use spec::rdma::registers::{CQ_MAX, EQ_MAX, MR_MAX, QP_MAX};

/// Times of the device's own parts, each drawn with the platform's jitter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Timing {
    /// The engine's time for one send request.
    pub service: Ps,
    /// From the end of a packet on the wire to its effect at the other end, memory included.
    pub latency: Ps,
    /// Bytes that the wire carries a second, at least 1.
    pub link_bytes_per_second: u64,
}

/// How the device handles a moderation request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ModerationAnswer {
    /// It accepts the request.
    Exact,
    /// It rounds count and period up to multiples, and its registers read the rounded values.
    Rounds {
        /// Multiple of the count; at least 1.
        count: u16,
        /// Multiple of the period, in microseconds; at least 1.
        period_us: u16,
    },
    /// It refuses every change.
    Refuses,
}

/// The description of the device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Shown in traces and faults.
    pub name: String,
    /// PCI requester id: bus 15:8, device 7:3, function 2:0.
    pub requester: u16,
    /// Queue pairs, 1 to 1024.
    pub queue_pairs: u16,
    /// Completion queues, 1 to 1024.
    pub completion_queues: u16,
    /// Event queues and MSI-X vectors, 1 to 256.
    pub event_queues: u16,
    /// Memory regions, 1 to 64.
    pub memory_regions: u8,
    /// Queues have at most 2^n entries, n from 4 to 16.
    pub entries_shift_max: u8,
    /// For how long a send waits for a receive, in units of 10 µs, at least 1.
    pub patience_10us: u8,
    /// How long things take.
    pub timing: Timing,
    /// How it treats moderation.
    pub moderation: ModerationAnswer,
}

impl Default for Config {
    /// 100 Gbit/s, 16 million requests a second, 1.5 µs one way; 64 queue pairs.
    fn default() -> Self {
        let timing =
            Timing { service: Ps::from_ns(60), latency: Ps::from_ns(1_500), link_bytes_per_second: 12_500_000_000 };
        Self {
            name: "rnic".into(),
            requester: 0x3b00,
            queue_pairs: 64,
            completion_queues: 64,
            event_queues: 64,
            memory_regions: 64,
            entries_shift_max: 14,
            patience_10us: 100,
            timing,
            moderation: ModerationAnswer::Exact,
        }
    }
}

/// A device that cannot be built.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigError {
    /// The field.
    pub field: &'static str,
    /// The capacities.
    pub value: u64,
    /// The least and the most that is valid.
    pub valid: (u64, u64),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RDMA NIC: {} is {}, valid is {} to {}", self.field, self.value, self.valid.0, self.valid.1)
    }
}

impl std::error::Error for ConfigError {}

impl Config {
    /// Checks every field.
    ///
    /// # Errors
    /// The first field that is out of range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let (count, period_us) = match self.moderation {
            ModerationAnswer::Rounds { count, period_us } => (count, period_us),
            _ => (1, 1),
        };
        let fields = [
            ("queue_pairs", u64::from(self.queue_pairs), (1, u64::from(QP_MAX))),
            ("completion_queues", self.completion_queues.into(), (1, CQ_MAX.into())),
            ("event_queues", self.event_queues.into(), (1, EQ_MAX.into())),
            ("memory_regions", self.memory_regions.into(), (1, MR_MAX.into())),
            ("entries_shift_max", self.entries_shift_max.into(), (4, 16)),
            ("patience_10us", self.patience_10us.into(), (1, u8::MAX.into())),
            ("timing.link_bytes_per_second", self.timing.link_bytes_per_second, (1, u64::MAX)),
            ("moderation.count", count.into(), (1, u16::MAX.into())),
            ("moderation.period_us", period_us.into(), (1, (u16::MAX >> 1).into())),
        ];
        match fields.into_iter().find(|&(_, value, (least, most))| value < least || value > most) {
            Some((field, value, valid)) => Err(ConfigError { field, value, valid }),
            None => Ok(()),
        }
    }
}
