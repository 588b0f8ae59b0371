//! The resolved experiment: plain data, everything decided, nothing left to look up.
//!
//! What every experiment has is in [`Plan`]; what it runs is in its [`Experiment`], a module a kind.

pub mod accelerator;
pub mod network;
mod rdma;
pub mod storage;
pub mod threaded;
mod variant;

pub use accelerator::{Accelerator, StreamVariant};
pub use network::{Network, NetworkVariant};
pub use rdma::{Controlled, LoadStep, Moderation, Rdma};
pub use storage::{Coalescing, DEVICE_VECTORS, DrivePlan, IoEngine, JobPlan, Pattern, Storage};
pub use threaded::{Threaded, ThreadedVariant};
pub use variant::{Delivery, Variant};

use crate::input::{InputError, Place, Warning};
use crate::platform::{Platform, Unit};
use std::fmt;

/// One experiment: a machine, a workload, and the variants of it that are compared.
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
    /// What runs on it.
    pub experiment: Experiment,
    /// What is run and compared, in order, each once; the columns of the table.
    pub variants: Vec<Variant>,
    /// One run a seed, in order, each once.
    pub seeds: Vec<u64>,
    /// How long is simulated, and for how much it stands.
    pub spans: Spans,
    /// What can be set whatever runs.
    pub options: Options,
    /// What the result must be read with.
    pub warnings: Vec<Warning>,
}

/// What runs on the machine.
#[derive(Clone, PartialEq, Debug)]
pub enum Experiment {
    /// Jobs on NVMe drives.
    Storage(Storage),
    /// Streams of a Data Streaming Accelerator.
    Accelerator(Accelerator),
    /// NVMe over RDMA under moderation.
    Rdma(Rdma),
    /// Flows through a guest.
    Network(Network),
    /// A threaded interrupt, raised and waited for.
    Threaded(Threaded),
}

impl Experiment {
    /// Its kind, in words.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Storage(_) => "storage",
            Self::Accelerator(_) => "accelerator",
            Self::Rdma(_) => "moderation",
            Self::Network(_) => "network",
            Self::Threaded(_) => "threaded",
        }
    }

    /// Whether `variant` is one of this kind's.
    pub fn has(&self, variant: Variant) -> bool {
        matches!(
            (self, variant),
            (Self::Storage(_), Variant::Delivery(_))
                | (Self::Accelerator(_), Variant::Stream(_))
                | (Self::Rdma(_), Variant::Moderation(_))
                | (Self::Network(_), Variant::Network(_))
                | (Self::Threaded(_), Variant::Threaded(_))
        )
    }

    /// Whether it is the same experiment as `other`, wherever the two were read.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Storage(ours), Self::Storage(theirs)) => ours.is_same(theirs),
            (ours, theirs) => ours == theirs,
        }
    }
}

impl Plan {
    /// The drives and jobs of a storage experiment.
    pub fn storage(&self) -> Option<&Storage> {
        match &self.experiment {
            Experiment::Storage(storage) => Some(storage),
            _ => None,
        }
    }

    /// Checks that the machine can be built and the experiment can run.
    ///
    /// # Errors
    /// The first thing that cannot be, with its place, and what would be valid.
    pub fn validate(&self) -> Result<(), InputError> {
        let wrong = |key: &str, value: String, why: &str, valid: String| {
            Err(InputError::value(&self.source, key, value, why, valid))
        };
        self.platform.check()?;
        let most = self.platform.fabric.cpus.whole();
        if self.cpus == 0 || u64::from(self.cpus) > most {
            return wrong("cpus", self.cpus.to_string(), "is out of bounds", format!("1 to {most}"));
        }
        if self.variants.is_empty() {
            return wrong("deliveries", "[]".into(), "is empty", "at least one".into());
        }
        if let Some(variant) = self.variants.iter().find(|&&variant| !self.experiment.has(variant)) {
            let why = format!("is no way to run a {} experiment", self.experiment.kind());
            return wrong("deliveries", variant.to_string(), &why, "one of its own".into());
        }
        if self.seeds.is_empty() {
            return wrong("seeds", "[]".into(), "is empty", "at least one".into());
        }
        if self.spans.measured_ns == 0 {
            return wrong("duration", "0".into(), "measures nothing", "a time such as 10 ms".into());
        }
        match &self.experiment {
            Experiment::Storage(storage) => storage.validate(self),
            Experiment::Accelerator(accelerator) => accelerator.validate(self),
            Experiment::Rdma(rdma) => rdma.validate(self),
            Experiment::Network(network) => network.validate(self),
            Experiment::Threaded(threaded) => threaded.validate(self),
        }
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

/// What can be set whatever runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Harvest passes of the notification handler before the final one.
    pub harvest_passes: u32,
    /// The watchdog: a longer interrupt is a recorded fault, and the longest is told. None: no watchdog.
    pub interrupt_limit_ns: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self { harvest_passes: 2, interrupt_limit_ns: None }
    }
}
