//! The resolved experiment: plain data, everything decided, nothing left to look up.

mod validate;

pub use validate::DEVICE_VECTORS;

use crate::input::{Place, Warning};
use crate::platform::{Platform, Unit};
use drivers::nvme::CompletionCheck;
use hal::CpuSet;
use std::fmt;

/// One experiment: a machine, a workload and how its interrupts are delivered.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// Its name: the scenario's, or the job file's without its ending.
    pub name: String,
    /// Where it was read.
    pub source: Place,
    /// The server's constants.
    pub platform: Platform,
    /// CPUs of the machine, from 0; at most those of the platform.
    pub cpus: u32,
    /// The drives, in the order of their first job.
    pub drives: Vec<DrivePlan>,
    /// One entry a thread: `numjobs` is expanded.
    pub jobs: Vec<JobPlan>,
    /// What is run and compared, in order, each once.
    pub deliveries: Vec<Delivery>,
    /// One run a seed, in order, each once.
    pub seeds: Vec<u64>,
    /// How long is simulated, and for how much it stands.
    pub spans: Spans,
    /// Everything else that can be set.
    pub options: Options,
    /// What the result must be read with.
    pub warnings: Vec<Warning>,
}

impl Plan {
    /// Whether `job` polls for its completions in a run with `delivery`.
    pub fn is_polled(&self, job: &JobPlan, delivery: Delivery) -> bool {
        delivery == Delivery::Polled || matches!(job.engine, IoEngine::IoUring { polled: true, .. })
    }
}

/// A simulated span that stands for a longer one: fio's 30 s are long past the steady state of a simulated drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spans {
    /// Simulated before anything is counted.
    pub ramp_ns: u64,
    /// Simulated and counted.
    pub measured_ns: u64,
    /// The `ramp_time` that the job asks for, for which `ramp_ns` stands.
    pub asked_ramp_ns: u64,
    /// The `runtime` that the job asks for, for which `measured_ns` stands; none when it names none.
    pub asked_runtime_ns: Option<u64>,
}

impl fmt::Display for Spans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |ns: u64| Unit::Time.format(ns as f64);
        write!(f, "simulated {} after {} of ramp", time(self.measured_ns), time(self.ramp_ns))?;
        match self.asked_runtime_ns {
            Some(runtime_ns) => write!(f, ", standing for {} after {}", time(runtime_ns), time(self.asked_ramp_ns)),
            None => Ok(()),
        }
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
    /// Index into [`Plan::drives`].
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

/// How completions reach the CPU.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Delivery {
    /// Every MSI is an interrupt, through the remapping table.
    Remapped,
    /// MSIs are posted to a descriptor, and a notification tells of several.
    Posted,
    /// No interrupts: the submitter looks.
    Polled,
}

impl Delivery {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Remapped, Self::Posted, Self::Polled];

    /// Its name on the command line and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Remapped => "remapped",
            Self::Posted => "posted",
            Self::Polled => "polled",
        }
    }
}

impl fmt::Display for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What can be set beside the workload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Harvest passes of the notification handler before the final one.
    pub harvest_passes: u32,
    /// When the driver looks at the completion queue after a batch of submissions.
    pub check_queue: CompletionCheck,
    /// Every read is compared with what the drive must hold, every write with what was sent.
    pub verify_data: bool,
    /// The watchdog: a longer interrupt is a recorded fault, and the longest is told. None: no watchdog.
    pub interrupt_limit_ns: Option<u64>,
    /// Mean time between MSIs that a stranger sends in the first drive's name; none by default. They must be refused.
    pub rogue_msi_ns: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            harvest_passes: 2,
            check_queue: CompletionCheck::Auto,
            verify_data: false,
            interrupt_limit_ns: None,
            rogue_msi_ns: None,
        }
    }
}
