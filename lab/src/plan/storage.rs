//! A storage experiment: jobs on NVMe drives, delivery beside delivery.

mod validate;

pub use validate::DEVICE_VECTORS;

use super::Delivery;
use crate::input::Place;
use drivers::nvme::{CompletionCheck, ReapBound};
use hal::CpuSet;

/// Drives, and jobs that keep them busy.
#[derive(Clone, PartialEq, Debug)]
pub struct Storage {
    /// The drives, in the order of their first job.
    pub drives: Vec<DrivePlan>,
    /// One entry a thread: `numjobs` is expanded.
    pub jobs: Vec<JobPlan>,
    /// When the driver looks at the completion queue after a batch of submissions.
    pub check_queue: CompletionCheck,
    /// How much one interrupt of a queue may take.
    pub reap_bound: ReapBound,
    /// Every read is compared with what the drive must hold, every write with what was sent.
    pub verify_data: bool,
    /// Mean time between MSIs that a stranger sends in the first drive's name; none by default. They must be refused.
    pub rogue_msi_ns: Option<u64>,
}

impl Storage {
    /// Whether `job` polls for its completions in a run with `delivery`.
    pub fn is_polled(&self, job: &JobPlan, delivery: Delivery) -> bool {
        delivery == Delivery::Polled || matches!(job.engine, IoEngine::IoUring { polled: true, .. })
    }

    /// Whether it is the same experiment as `other`, wherever the jobs of the two were read.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let somewhere = Place::file("");
        let placeless = |of: &Self| Self {
            jobs: of.jobs.iter().map(|job| JobPlan { source: somewhere.clone(), ..job.clone() }).collect(),
            ..of.clone()
        };
        placeless(self) == placeless(other)
    }
}

/// One drive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DrivePlan {
    /// Its name: the job's `filename`.
    pub name: String,
    /// Its kind, a key of [`Platform::drives`].
    pub model: String,
    /// I/O queue pairs, each with a vector unless it is polled.
    pub queues: u32,
    /// Entries of each queue.
    pub queue_entries: u32,
    /// Interrupt coalescing (NVMe feature 08h), when it is set.
    pub coalescing: Option<Coalescing>,
}

/// NVMe feature 08h, in the units of NVM Express Base 2.0, clause 5.27.1.6.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Coalescing {
    /// Aggregation threshold in entries, 1 to 256 (the field is 0's based).
    pub entries: u16,
    /// Aggregation time in units of 100 µs; 0: no delay.
    pub time_100us: u8,
}

/// One thread that does I/O to one drive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobPlan {
    /// The job's section, with `.n` when `numjobs` made several of it.
    pub name: String,
    /// Where its section begins.
    pub source: Place,
    /// Index into [`Storage::drives`].
    pub drive: usize,
    /// Where it may run. One CPU under `cpus_allowed_policy=split`.
    pub cpus: CpuSet,
    /// How it submits and learns of completions.
    pub engine: IoEngine,
    /// What it reads and writes.
    pub pattern: Pattern,
    /// Bytes of one I/O.
    pub block_bytes: u32,
    /// I/Os in flight at most.
    pub iodepth: u32,
    /// I/Os submitted by one call.
    pub batch_submit: u32,
    /// Completions that one call waits for.
    pub batch_complete_min: u32,
    /// Completions that one call takes at most.
    pub batch_complete_max: u32,
    /// Pause after every `think_blocks` I/Os.
    pub think_ns: u64,
    /// See `think_ns`.
    pub think_blocks: u32,
}

/// How a job submits and learns of completions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IoEngine {
    /// `io_submit` and `io_getevents`.
    Libaio,
    /// `io_uring_enter`.
    IoUring {
        /// Buffers are registered once.
        fixed_buffers: bool,
        /// Files are registered once.
        registered_files: bool,
        /// The job itself asks for polled queues (`hipri`), whatever the delivery of the run.
        polled: bool,
    },
}

/// Where in the drive, and which way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pattern {
    /// Random offsets; else ascending ones.
    pub random: bool,
    /// How many of a hundred I/Os read; the rest write. 100: reads only.
    pub read_percent: u8,
}
