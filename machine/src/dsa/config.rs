//! The configuration of a device.

use crate::time::Ps;
use core::fmt;

/// Times of the device's own parts. Each is drawn with the platform's jitter unless stated otherwise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Timing {
    /// One command of the CMD register. No jitter.
    pub command: Ps,
    /// Time that an engine needs for one descriptor. It then begins the next one.
    pub service: Ps,
    /// From the end of that service until the descriptor's data is on the link: time that an engine can overlap. No
    /// event when zero.
    pub latency: Ps,
    /// Maximum number of descriptors that an engine processes at once, including those whose data is still on the
    /// link.
    pub in_flight: u8,
}

/// The effect of a fill on memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Data {
    /// Every byte is written.
    Written,
    /// The fill takes its time and both ends must be in memory, but no byte changes.
    Timed,
}

/// The configuration of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Shown in traces and faults.
    pub name: String,
    /// PCI requester id: bus 15:8, device 7:3, function 2:0.
    pub requester: u16,
    /// Work queues, 1 to 64.
    pub queues: u8,
    /// Entries of all queues together, at least 1.
    pub entries: u16,
    /// Groups, 1 to 16.
    pub groups: u8,
    /// Engines, 1 to 64.
    pub engines: u8,
    /// MSI-X vectors, 1 to 256; number 0 is for errors and commands.
    pub vectors: u16,
    /// Transfers of at most 2^n bytes, n from 0 to 31.
    pub transfer_shift_max: u8,
    /// How long things take.
    pub timing: Timing,
    /// Whether bytes are written.
    pub data: Data,
    /// A cause that software has not cleared yet sends no further message. DSA, "INTCAUSE", does not say which it is.
    pub merges_causes: bool,
    /// Cost of one MOVDIR64B to a portal for its CPU. None: the cost of eight register writes.
    pub portal_write: Option<Ps>,
}

impl Default for Config {
    /// The shape of a Sapphire Rapids device: 8 queues, 128 entries, 4 groups, 4 engines, 9 vectors, 2 GiB transfers.
    fn default() -> Self {
        let timing = Timing { command: Ps::from_ns(1_000), service: Ps::from_ns(115), latency: Ps(0), in_flight: 16 };
        Self {
            name: "dsa".into(),
            requester: 0x6a08,
            queues: 8,
            entries: 128,
            groups: 4,
            engines: 4,
            vectors: 9,
            transfer_shift_max: 31,
            timing,
            data: Data::Written,
            merges_causes: false,
            portal_write: None,
        }
    }
}

/// A device that cannot be built.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigError {
    /// The invalid field.
    pub field: &'static str,
    /// Its value.
    pub value: u64,
    /// The smallest and the largest valid value.
    pub valid: (u64, u64),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DSA: {} is {}, valid is {} to {}", self.field, self.value, self.valid.0, self.valid.1)
    }
}

impl std::error::Error for ConfigError {}

impl Config {
    /// Checks every field.
    ///
    /// # Errors
    /// The first field that is out of range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let fields = [
            ("queues", u64::from(self.queues), (1, 64)),
            ("entries", self.entries.into(), (1, u16::MAX.into())),
            ("groups", self.groups.into(), (1, 16)),
            ("engines", self.engines.into(), (1, 64)),
            ("vectors", self.vectors.into(), (1, 256)),
            ("transfer_shift_max", self.transfer_shift_max.into(), (0, 31)),
            ("timing.in_flight", self.timing.in_flight.into(), (1, u8::MAX.into())),
        ];
        match fields.into_iter().find(|&(_, value, (least, most))| value < least || value > most) {
            Some((field, value, valid)) => Err(ConfigError { field, value, valid }),
            None => Ok(()),
        }
    }
}
