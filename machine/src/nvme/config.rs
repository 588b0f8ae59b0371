//! The configuration of a drive: sizes, times and habits.

use super::faults::FaultPlan;
use crate::time::Ps;
use core::fmt;

/// The duration of one step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Latency {
    /// The mean, without the tail.
    pub mean: Ps,
    /// The distribution of single latencies.
    pub spread: Spread,
    /// Rare slow operations.
    pub tail: Option<Tail>,
}

impl Latency {
    /// A latency with the platform's jitter and no tail.
    pub const fn of(mean: Ps) -> Self {
        Self { mean, spread: Spread::Platform, tail: None }
    }
}

/// How single latencies vary around their mean.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spread {
    /// No variation.
    Fixed,
    /// Like every hardware time of the machine.
    Platform,
    /// Uniformly, by at most this many percent of the mean to either side.
    Uniform {
        /// 0 to 100.
        percent: u32,
    },
    /// At least `floor`. The part above it has an exponential distribution, like queueing inside the drive.
    AboveFloor {
        /// The minimum; not above the mean.
        floor: Ps,
    },
}

/// One I/O in so many is slower by a factor: a program or erase operation in the way, or a retry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tail {
    /// One in this many, at random.
    pub one_in: u32,
    /// The factor.
    pub factor: u32,
}

/// Times of the drive's own parts. Except where said, each is drawn with the platform's jitter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Timing {
    /// From CC.EN = 1 to CSTS.RDY = 1. No jitter.
    pub enable: Ps,
    /// From CC.EN = 0 to CSTS.RDY = 0. No jitter.
    pub reset: Ps,
    /// From the notification to the end of the shutdown. No jitter.
    pub shutdown: Ps,
    /// One admin command.
    pub admin: Ps,
    /// Fetching one I/O command; the drive fetches one at a time, round robin over its submission queues.
    pub fetch: Ps,
    /// Maximum number of commands in progress at once.
    pub slots: u16,
    /// Media time of a read.
    pub read: Latency,
    /// Programming a write on the media, when they are free for it.
    pub write: Latency,
    /// A flush that finds every write on the media.
    pub flush: Latency,
    /// Deallocating the ranges of one command.
    pub deallocate: Latency,
    /// From a completion entry to its message. Entries posted in between for the same vector share the message.
    pub msi: Ps,
}

/// How writes reach the media.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Writes {
    /// Bytes that the write cache holds. 0: no cache; a write ends when the media have programmed it.
    pub cache_bytes: u64,
    /// The cache loses its content with the power: Identify reports it (VWC), and a host must flush.
    pub is_volatile: bool,
    /// From the data in the drive to the end of the write, when the cache takes them at once.
    pub cached: Latency,
    /// Bytes of sequential streams that the media take a second. 0: no limit.
    pub sequential_bytes_per_second: u64,
    /// Bytes of scattered writes that the media take a second, collection of garbage included. 0: no limit.
    pub random_bytes_per_second: u64,
    /// The media write scattered data in whole units of so many bytes.
    pub unit_bytes: u32,
}

impl Writes {
    /// No cache and no limit of rate.
    pub const DIRECT: Self = Self {
        cache_bytes: 0,
        is_volatile: false,
        cached: Latency::of(Ps(0)),
        sequential_bytes_per_second: 0,
        random_bytes_per_second: 0,
        unit_bytes: 512,
    };
}

/// When a vector sends again although its handler has not taken all entries yet. NVMe leaves it to
/// the drive, as long as no unacknowledged entry stays without a message (PCIe 3.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resend {
    /// Every window of [`Timing::msi`] in which an entry was posted ends with a message, also when the host has taken
    /// the entry by then. A handler may find nothing.
    PerEntry,
    /// The same, but without a message if the host has acknowledged every entry by then: it found the entries by
    /// itself.
    PerUnacknowledgedBatch,
    /// After a message, no other message until the host writes a head doorbell of the vector. Entries that are still
    /// unacknowledged then begin a new window.
    AfterDoorbell,
}

/// Coalescing that the drive does although feature 08h reads 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HiddenCoalescing {
    /// Entries that make a message; 0: the time alone counts.
    pub entries: u32,
    /// Maximum time from the first entry to the message.
    pub time: Ps,
}

/// The backing of the blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StorageKind {
    /// No data: transfers take their time, but no byte moves and PRP lists are not read.
    Null,
    /// The first 8 bytes of each block; a block that was never written reads its own number there. PRPs are followed.
    Tags,
    /// Every byte; a block that was never written reads zero.
    Memory,
}

/// The configuration of a drive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Shown in traces and faults.
    pub name: String,
    /// PCI requester id: bus 15:8, device 7:3, function 2:0.
    pub requester: u16,
    /// Size of namespace 1 in blocks.
    pub blocks: u64,
    /// Block of 2^n bytes, 9 or 12.
    pub block_shift: u8,
    /// I/O queue pairs at most, 1 to 1,023.
    pub io_queues_max: u16,
    /// Entries of an I/O queue at most, 2 to 65,536.
    pub queue_entries_max: u32,
    /// MSI-X vectors, 1 to 2,048.
    pub vectors: u16,
    /// CAP.DSTRD: doorbells stand 2^(2 + n) bytes apart, n from 0 to 8.
    pub doorbell_stride: u8,
    /// MDTS: transfers of at most 2^n pages of 4 KiB, 1 to 9.
    pub transfer_shift_max: u8,
    /// How long things take.
    pub timing: Timing,
    /// The data that the drive writes to memory carry the Relaxed Ordering attribute. Completion entries and messages
    /// never do: an entry must stay behind its data, and a message behind its entry.
    pub relaxed_ordering: bool,
    /// How writes reach the media.
    pub writes: Writes,
    /// When messages are repeated.
    pub resend: Resend,
    /// Coalescing that the drive does not report.
    pub hidden_coalescing: Option<HiddenCoalescing>,
    /// What lies behind the blocks.
    pub storage: StorageKind,
    /// The fault plan.
    pub faults: FaultPlan,
}

impl Default for Config {
    /// 1 TB of 512-byte blocks, 128 queue pairs, and times of a fast drive; no hidden habits, no faults.
    fn default() -> Self {
        Self {
            name: "nvme".into(),
            requester: 0x0100,
            blocks: 1 << 31,
            block_shift: 9,
            io_queues_max: 128,
            queue_entries_max: 1024,
            vectors: 129,
            doorbell_stride: 0,
            transfer_shift_max: 5,
            timing: Timing::default(),
            relaxed_ordering: false,
            writes: Writes::DIRECT,
            resend: Resend::PerUnacknowledgedBatch,
            hidden_coalescing: None,
            storage: StorageKind::Null,
            faults: FaultPlan::default(),
        }
    }
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            enable: Ps::from_ns(1_000_000),
            reset: Ps::from_ns(100_000),
            shutdown: Ps::from_ns(1_000_000),
            admin: Ps::from_ns(5_000),
            fetch: Ps::from_ns(100),
            slots: 256,
            read: Latency::of(Ps::from_ns(60_000)),
            write: Latency::of(Ps::from_ns(15_000)),
            flush: Latency::of(Ps::from_ns(20_000)),
            deallocate: Latency::of(Ps::from_ns(20_000)),
            msi: Ps::from_ns(457),
        }
    }
}

/// A drive that cannot be built.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigError {
    /// The invalid field.
    pub field: &'static str,
    /// Its value.
    pub value: u64,
    /// The valid values.
    pub valid: &'static str,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NVMe drive: {} is {}, valid is {}", self.field, self.value, self.valid)
    }
}

impl std::error::Error for ConfigError {}

impl Config {
    /// Whether the power may take writes with it that have ended.
    pub(super) fn has_volatile_cache(&self) -> bool {
        self.writes.is_volatile && self.writes.cache_bytes > 0
    }

    /// Checks every field.
    ///
    /// # Errors
    /// The first field that is out of range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let within = |field, value: u64, range: core::ops::RangeInclusive<u64>, valid| {
            if range.contains(&value) { Ok(()) } else { Err(ConfigError { field, value, valid }) }
        };
        within("blocks", self.blocks, 1..=1 << 48, "1 to 2^48")?;
        if self.block_shift != 9 && self.block_shift != 12 {
            return within("block_shift", self.block_shift.into(), 9..=9, "9 or 12");
        }
        within("io_queues_max", self.io_queues_max.into(), 1..=1023, "1 to 1023")?;
        within("queue_entries_max", self.queue_entries_max.into(), 2..=65_536, "2 to 65536")?;
        within("vectors", self.vectors.into(), 1..=2048, "1 to 2048")?;
        within("doorbell_stride", self.doorbell_stride.into(), 0..=8, "0 to 8")?;
        within("transfer_shift_max", self.transfer_shift_max.into(), 1..=9, "1 to 9")?;
        within("timing.slots", self.timing.slots.into(), 1..=65_535, "1 to 65535")?;
        within("writes.unit_bytes", self.writes.unit_bytes.into(), 1..=1 << 20, "1 to 2^20")?;
        let Timing { read, write, flush, deallocate, .. } = self.timing;
        for latency in [read, write, flush, deallocate, self.writes.cached] {
            if let Spread::Uniform { percent } = latency.spread {
                within("spread percent", percent.into(), 0..=100, "0 to 100")?;
            }
            if let Spread::AboveFloor { floor } = latency.spread {
                within("spread floor in ps", floor.0, 0..=latency.mean.0, "0 to the mean")?;
            }
            if let Some(tail) = latency.tail {
                within("tail.one_in", tail.one_in.into(), 1..=u64::from(u32::MAX), "at least 1")?;
                within("tail.factor", tail.factor.into(), 1..=10_000, "1 to 10000")?;
            }
        }
        if let Some(hidden) = self.hidden_coalescing {
            within(
                "hidden_coalescing.time",
                hidden.time.0,
                1..=u64::MAX,
                "more than 0: a last entry must not wait for ever",
            )?;
        }
        Ok(())
    }
}
