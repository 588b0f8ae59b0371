//! A job's load as fio's options describe it: where, how long, how fast, and when it begins and ends.
//!
//! The values are those of the job file. What depends on the drive's size is resolved when the job starts
//! (`rig/course/files.rs`), as fio does it.

mod defaults;
mod estimate;

use super::Pattern;
use std::sync::Arc;

/// Reads, writes and trims.
pub const DIRECTIONS: usize = 3;

/// The load of one thread beyond an endless stream of I/Os of one size over a whole drive.
#[derive(Clone, PartialEq, Debug)]
pub struct Load {
    /// Sizes of I/Os: of reads, writes and trims.
    pub sizes: [Sizes; DIRECTIONS],
    /// Where they lie.
    pub order: Order,
    /// The files.
    pub files: Files,
    /// When the job ends.
    pub ends: Ends,
    /// How fast it goes.
    pub pace: Pace,
    /// When it begins.
    pub start: Start,
    /// What makes its writes durable.
    pub syncs: Syncs,
    /// The data that it checks.
    pub verify: Verify,
    /// I/Os that it repeats from a log, in place of its own.
    pub replay: Option<Arc<[Replayed]>>,
    /// `iodepth_low`: a full queue is emptied to this depth before it is filled again; 0: by one batch.
    pub depth_low: u32,
}

/// Sizes of I/Os in one direction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// The smallest, in bytes.
    pub min: u64,
    /// The largest, in bytes.
    pub max: u64,
    /// Sizes with their share in per cent, the smallest share first; empty: even between `min` and `max`.
    pub split: Vec<(u64, u8)>,
    /// Offsets are multiples of this; `min` unless `blockalign` says otherwise.
    pub align: u64,
}

impl Sizes {
    /// One size.
    pub fn of(bytes: u64) -> Self {
        Self { min: bytes, max: bytes, split: Vec::new(), align: bytes }
    }

    /// The mean size, in bytes.
    pub fn mean(&self) -> u64 {
        if self.split.is_empty() {
            return (self.min + self.max) / 2;
        }
        let sum: u64 = self.split.iter().map(|(bytes, percent)| bytes * u64::from(*percent)).sum();
        (sum / 100).max(1)
    }
}

/// Where the I/Os lie.
#[derive(Clone, PartialEq, Debug)]
pub struct Order {
    /// `percentage_random`, by direction.
    pub random_percent: [u8; DIRECTIONS],
    /// `random_distribution`.
    pub distribution: Distribution,
    /// Each block once in a pass; not with `norandommap`.
    pub map: bool,
    /// `random_generator`.
    pub generator: Generator,
    /// `rw=...:N` of a sequential job: bytes skipped after each I/O; backwards if negative.
    pub skip_bytes: i64,
    /// `rw=...:N` of a random job: I/Os from one new offset to the next; 0: none is new.
    pub offset_every: u32,
    /// `rw_sequencer=identical`: the I/Os between stay at the offset; else they follow it.
    pub identical: bool,
    /// `bs_unaligned`: any size in the range.
    pub unaligned: bool,
    /// `bs_is_seq_rand`: the sizes of reads are those of sequential I/Os, the sizes of writes those of random ones.
    pub sizes_by_order: bool,
    /// `zonesize`, `zonerange` and `zoneskip` of `zonemode=strided`, in bytes.
    pub zones: Option<Zones>,
    /// `randseed`; fio's default without it.
    pub seed: u64,
    /// `randrepeat`: the same offsets in every run with the first seed.
    pub repeats: bool,
}

/// A strided walk: so many bytes of each zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Zones {
    /// Bytes done in a zone before the next one.
    pub size: u64,
    /// Bytes that the zone spans.
    pub range: u64,
    /// Bytes between zones.
    pub skip: u64,
}

/// How random offsets are drawn.
#[derive(Clone, PartialEq, Debug)]
pub enum Distribution {
    /// Evenly.
    Even,
    /// By Zipf's law with this theta; the centre as a fraction of the file, if it is set.
    Zipf(f64, Option<f64>),
    /// By Pareto's law with this power.
    Pareto(f64, Option<f64>),
    /// Around the middle, with this deviation in per cent.
    Normal(f64, Option<f64>),
    /// Shares of the accesses in per cent, and of the file in per cent.
    Zoned([Vec<(u8, u8)>; DIRECTIONS]),
    /// Shares of the accesses in per cent, and bytes of the file.
    ZonedAbsolute([Vec<(u8, u64)>; DIRECTIONS]),
}

/// `random_generator`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Generator {
    /// Three registers of 32 bits.
    Tausworthe,
    /// Five registers of 64 bits.
    Tausworthe64,
    /// A shift register that visits each block once.
    Lfsr,
}

/// Bytes, or a share of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Amount {
    /// In bytes.
    Bytes(u64),
    /// In per cent.
    Percent(u8),
}

impl Amount {
    /// The bytes, unless it is a share.
    pub fn bytes(self) -> Option<u64> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Percent(_) => None,
        }
    }
}

/// The files of a job and the part of them that it uses.
#[derive(Clone, PartialEq, Debug)]
pub struct Files {
    /// Drives and extents in the job's order.
    pub list: Vec<FilePlan>,
    /// `size`.
    pub size: Option<Amount>,
    /// `filesize`: bounds in bytes.
    pub file_size: Option<(u64, u64)>,
    /// `offset`.
    pub offset: Amount,
    /// `offset_increment`, times the number of the thread in its section.
    pub increment: Amount,
    /// `offset_align`, in bytes; 0: the smallest I/O.
    pub offset_align: u64,
    /// The thread's number in its section.
    pub clone: u32,
    /// `file_service_type`.
    pub service: Service,
    /// I/Os to a file before the next one.
    pub service_ios: u32,
}

/// One file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FilePlan {
    /// Its name.
    pub name: String,
    /// Index into [`super::Storage::drives`].
    pub drive: usize,
    /// True if it is the whole drive; else it is an extent on it.
    pub is_drive: bool,
}

/// `file_service_type`: which file is next.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Service {
    /// One after the other.
    RoundRobin,
    /// The next one when this one is done.
    Sequential,
    /// Any.
    Random,
    /// By Zipf's law.
    Zipf(f64),
    /// By Pareto's law.
    Pareto(f64),
    /// Around the middle one.
    Normal(f64),
}

/// When a job ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ends {
    /// `io_size`.
    pub io_size: Option<Amount>,
    /// `number_ios`; 0: any number.
    pub number_ios: u64,
    /// `loops`; 0 as fio has it: 1.
    pub loops: u64,
    /// `time_based`: after the last block it begins again.
    pub time_based: bool,
    /// `runtime`.
    pub runtime_ns: Option<u64>,
    /// `ramp_time`.
    pub ramp_ns: u64,
    /// `fill_device`: until the file system is full.
    pub fill: bool,
    /// `steadystate`.
    pub steady: Option<Steady>,
    /// `exitall`: the end of any job ends others. One job with the option is enough for all jobs of the file.
    pub exitall: bool,
    /// `exitall_on_error`: its end ends others if it is an error: `max_latency`, `rate_min` or a missed `latency_target`.
    pub exits_on_error: bool,
    /// `exit_what`: which others.
    pub exit_what: EndsOthers,
    /// `max_latency` by direction, in ns; 0: any.
    pub latency_ns_max: [u64; DIRECTIONS],
    /// The simulated time after which the job is stopped, ramp included; it stands for its runtime. None: it runs to its
    /// own end.
    pub stand_in_ns: Option<u64>,
    /// The job is stopped together with others of its phase, not before it has run for this time, ramp included. None: it
    /// ends for itself.
    pub together_ns: Option<u64>,
}

impl Ends {
    /// The simulated time after which the job stops for itself, whatever the others do.
    pub fn own_span_ns(&self) -> Option<u64> {
        self.stand_in_ns.filter(|_| self.together_ns.is_none())
    }
}

/// `exit_what`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndsOthers {
    /// The jobs of its reporting group.
    Group,
    /// The jobs that run.
    Stonewall,
    /// Every job.
    All,
}

/// `steadystate`: the job ends when a rate has settled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Steady {
    /// Watches bytes, not I/Os.
    pub bandwidth: bool,
    /// Watches the slope, not the deviation from the mean.
    pub slope: bool,
    /// The limit in millionths of the mean, or in the unit itself.
    pub limit: u64,
    /// True if `limit` is a share.
    pub is_share: bool,
    /// `group_reporting`: the jobs of a group are watched together, and end together.
    pub is_grouped: bool,
    /// `steadystate_duration`.
    pub window_ns: u64,
    /// `steadystate_ramp_time`.
    pub ramp_ns: u64,
}

/// How fast a job goes.
#[derive(Clone, PartialEq, Debug)]
pub struct Pace {
    /// `rate` by direction, in bytes a second; 0: none.
    pub bytes: [u64; DIRECTIONS],
    /// `rate_iops` by direction; 0: none.
    pub ios: [u64; DIRECTIONS],
    /// `rate_min`, in bytes a second.
    pub bytes_min: [u64; DIRECTIONS],
    /// `rate_iops_min`.
    pub ios_min: [u64; DIRECTIONS],
    /// `rate_process=poisson`.
    pub poisson: bool,
    /// `rate_cycle`, in ns.
    pub cycle_ns: u64,
    /// `rate_ignore_thinktime`.
    pub ignore_think: bool,
    /// `io_submit_mode=offload`: a thread for each I/O in flight submits it and waits for it, so that a wait for the rate
    /// does not wait for I/Os in flight, and each is taken when it completes. Those threads are not simulated apart.
    pub offloads: bool,
    /// `sqthread_poll`: a thread of the kernel submits: the job does not pay for it, and spins for completions.
    pub kernel_polls: bool,
    /// `thinktime`, in ns.
    pub think_ns: u64,
    /// `thinktime_spin`, in ns.
    pub think_spin_ns: u64,
    /// `thinktime_blocks`; none if only `thinktime_iotime` is set.
    pub think_blocks: Option<u32>,
    /// `thinktime_blocks_type=issue`.
    pub think_by_issue: bool,
    /// `thinktime_iotime`, in ns.
    pub think_every_ns: u64,
    /// `latency_target` and its window.
    pub target: Option<LatencyTarget>,
    /// `flow` with its group.
    pub flow: Option<Flow>,
}

/// `latency_target`: the depth at which the latency stays below a limit.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LatencyTarget {
    /// The limit, in ns.
    pub latency_ns: u64,
    /// `latency_window`, in ns.
    pub window_ns: u64,
    /// `latency_percentile`: so many per cent must keep to it.
    pub percent: f64,
    /// `latency_run`: go on after the depth is found.
    pub goes_on: bool,
}

/// `flow`: the jobs of a group share the I/Os by weight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    /// `flow_id`.
    pub id: u32,
    /// `flow`, the weight.
    pub weight: u32,
    /// `flow_sleep`, in ns.
    pub sleep_ns: u64,
}

/// When a job begins.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Start {
    /// `stonewall`: after all jobs before it.
    pub stonewall: bool,
    /// `wait_for`: after the threads of this section.
    pub wait_for: Option<String>,
    /// `startdelay`, at least and at most, from the beginning of the run, in ns.
    pub delay_ns: (u64, u64),
    /// The reporting group, from 0.
    pub group: u32,
    /// The phase that measures it, from 0.
    pub phase: u32,
    /// The name of its section.
    pub section: String,
}

/// What makes writes durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Syncs {
    /// `sync_file_range`: after so many writes; 0: never.
    pub range: u32,
    /// `end_fsync` or `fsync_on_close`.
    pub at_end: bool,
    /// `sync=1` or `sync=dsync`: each write is durable when it ends.
    pub each: bool,
    /// `direct=0`: through the page cache.
    pub buffered: bool,
}

/// `verify`: the data that a job writes are read again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Verify {
    /// A phase of reads follows the writes (`do_verify`).
    pub after: bool,
    /// Reads are checked.
    pub checks: bool,
}

/// One entry of a log that is repeated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Replayed {
    /// An I/O: direction, file, offset and bytes.
    Io(usize, usize, u64, u64),
    /// A sync of a file.
    Sync(usize),
    /// Wait until so many ns after the beginning of the run.
    Until(u64),
    /// Wait until so many ns after the last entry was begun.
    Gap(u64),
}

/// fio's `randseed` without the option (options.c of 3.33).
pub const DEFAULT_SEED: u64 = 0x89;

impl Load {
    /// The load of a job with this block size that sets nothing else.
    pub fn of_block(bytes: u64) -> Self {
        Self {
            sizes: [(); DIRECTIONS].map(|()| Sizes::of(bytes)),
            order: Order::default(),
            files: Files::default(),
            ends: Ends::default(),
            pace: Pace::default(),
            start: Start::default(),
            syncs: Syncs::default(),
            verify: Verify::default(),
            replay: None,
            depth_low: 0,
        }
    }

    /// True if the load is an endless stream of I/Os of one size, over the whole of one drive. The time that it runs, its
    /// random map and its seed make no difference then.
    pub fn is_plain(&self) -> bool {
        let [first, ..] = &self.sizes;
        let plain = Self {
            order: Order {
                map: self.order.map,
                generator: self.order.generator,
                seed: self.order.seed,
                repeats: self.order.repeats,
                ..Order::default()
            },
            files: Files { list: self.files.list.clone(), clone: self.files.clone, ..Files::default() },
            ends: Ends {
                time_based: self.ends.time_based,
                runtime_ns: self.ends.runtime_ns,
                ramp_ns: self.ends.ramp_ns,
                loops: self.ends.loops,
                exitall: self.ends.exitall,
                exits_on_error: self.ends.exits_on_error,
                exit_what: self.ends.exit_what,
                ..Ends::default()
            },
            pace: Pace {
                think_ns: self.pace.think_ns,
                think_blocks: self.pace.think_blocks,
                cycle_ns: self.pace.cycle_ns,
                ..Pace::default()
            },
            start: Start { group: self.start.group, section: self.start.section.clone(), ..Start::default() },
            ..Self::of_block(first.min)
        };
        *self == plain
            && self.pace.think_ns == 0
            && self.files.list.iter().all(|file| file.is_drive)
            && self.files.list.len() <= 1
    }

    /// The directions that a pattern has, and the share of reads in per cent where there are both.
    pub fn directions(pattern: &Pattern) -> [bool; DIRECTIONS] {
        use super::Trims;
        match pattern.trims {
            Trims::Alone => [false, false, true],
            Trims::ThenWrite => [false, true, true],
            Trims::None => [pattern.reads(), pattern.writes(), false],
        }
    }
}
