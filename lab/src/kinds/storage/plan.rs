//! Resolves the settings of a storage experiment: threads on CPUs, jobs under less load.

mod names;
mod offsets;
mod queues;
mod resolve;
mod stages;
mod turn;
mod validate;

pub use queues::{queue_cpus, topology};
pub(super) use resolve::resolve;
pub use validate::DEVICE_VECTORS;
pub(super) use validate::validate;

use super::keys::Detail;
use super::load::Load as JobLoad;
use super::{Storage, StorageVariant};
use crate::input::Place;
use crate::plan::{Load, Plan};
use hal::CpuSet;

impl Plan {
    /// The drives and jobs of a storage experiment.
    pub fn storage(&self) -> Option<&Storage> {
        Some(&self.work.of()?.experiment)
    }
}

impl Storage {
    /// Whether `job` polls for its completions in a run of `variant`.
    pub fn is_polled(&self, job: &JobPlan, variant: StorageVariant) -> bool {
        variant == StorageVariant::Polled || job.engine.polls()
    }
}

/// True if the two are the same experiment, even if their jobs come from different files.
pub(super) fn is_same(ours: &Storage, theirs: &Storage) -> bool {
    let somewhere = Place::file("");
    let placeless = |of: &Storage| Storage {
        jobs: of.jobs.iter().map(|job| JobPlan { source: somewhere.clone(), ..job.clone() }).collect(),
        reporting: Vec::new(),
        detail: Detail::None,
        ..of.clone()
    };
    placeless(ours) == placeless(theirs)
}

/// The jobs at depths 1, 2, 4, …, up to the depth of the deepest job.
pub(super) fn loads(storage: &Storage) -> Vec<Load<Storage>> {
    let deepest = storage.jobs.iter().map(|job| job.iodepth).max().unwrap_or(1);
    let depths = std::iter::successors(Some(1), |depth| Some(depth * 2)).take_while(|&depth| depth <= deepest);
    let at = |depth: u32| {
        let mut work = storage.clone();
        for job in &mut work.jobs {
            job.iodepth = depth;
            job.batch_submit = job.batch_submit.min(depth);
            job.batch_complete_min = job.batch_complete_min.min(depth);
            job.batch_complete_max = job.batch_complete_max.min(depth);
        }
        Load { depth, in_flight: u64::from(depth) * work.jobs.len() as u64, work }
    };
    depths.map(at).collect()
}

/// One thread that does I/O.
#[derive(Clone, PartialEq, Debug)]
pub struct JobPlan {
    /// The job's section, with `.n` when `numjobs` made several of it.
    pub name: String,
    /// The place where its section begins.
    pub source: Place,
    /// Index into [`Storage::drives`]: its only drive, or the first.
    pub drive: usize,
    /// The CPUs that it may run on: one under `cpus_allowed_policy=split`.
    pub cpus: CpuSet,
    /// Its engine for submission and completion.
    pub engine: IoEngine,
    /// What it reads and writes.
    pub pattern: Pattern,
    /// Bytes of one I/O, at most.
    pub block_bytes: u32,
    /// An fsync after so many writes; 0: none.
    pub fsync: u32,
    /// An fdatasync, likewise.
    pub fdatasync: u32,
    /// I/Os in flight at most.
    pub iodepth: u32,
    /// I/Os submitted by one call.
    pub batch_submit: u32,
    /// Completions that one call waits for.
    pub batch_complete_min: u32,
    /// Completions that one call takes at most.
    pub batch_complete_max: u32,
    /// Everything beyond an endless stream of I/Os of one size over one drive; none of a job that is one.
    pub load: Option<Box<JobLoad>>,
}

impl JobPlan {
    /// The drives that it uses.
    pub fn drives(&self) -> impl Iterator<Item = usize> {
        let files = self.load.iter().flat_map(|load| &load.files.list).map(|file| file.drive);
        std::iter::once(self.drive).chain(files)
    }

    /// The same, each once, in the order of their first files.
    pub fn distinct_drives(&self) -> Vec<usize> {
        let mut distinct = Vec::new();
        for drive in self.drives() {
            if !distinct.contains(&drive) {
                distinct.push(drive);
            }
        }
        distinct
    }

    /// Whether it spins on the completion ring that a thread of the kernel fills (`sqthread_poll`): fio's `getevents` then makes
    /// no call that sleeps.
    pub fn spins(&self) -> bool {
        self.load.as_ref().is_some_and(|load| load.pace.kernel_polls)
    }
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
        /// The job itself asks for polled queues (`hipri`), whatever the variant of the run.
        polled: bool,
    },
    /// One call an I/O, which returns when the I/O is done: `pread` and `pwrite` and their kin.
    Sync {
        /// The job itself asks for polled queues (`hipri` of `pvsync2`).
        polled: bool,
    },
    /// No I/O reaches a drive: each is done at once.
    Null,
}

impl IoEngine {
    /// Whether the job itself asks for polled queues.
    pub fn polls(self) -> bool {
        matches!(self, Self::IoUring { polled: true, .. } | Self::Sync { polled: true })
    }

    /// Takes back that the job asks for polled queues.
    pub fn stop_polling(&mut self) {
        if let Self::IoUring { polled, .. } | Self::Sync { polled } = self {
            *polled = false;
        }
    }
}

/// The pattern of offsets and directions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pattern {
    /// True for random offsets, false for ascending ones.
    pub random: bool,
    /// The percentage of I/Os that read; the rest write. 100: reads only. Without effect with trims.
    pub read_percent: u8,
    /// Whether it trims.
    pub trims: Trims,
}

impl Pattern {
    /// Whether it has reads.
    pub fn reads(&self) -> bool {
        self.trims == Trims::None && self.read_percent > 0
    }

    /// Whether it has writes.
    pub fn writes(&self) -> bool {
        match self.trims {
            Trims::None => self.read_percent < 100,
            Trims::Alone => false,
            Trims::ThenWrite => true,
        }
    }
}

/// Whether a job trims (deallocates) blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trims {
    /// It reads and writes.
    None,
    /// It does nothing else.
    Alone,
    /// It writes each block after trimming it.
    ThenWrite,
}
