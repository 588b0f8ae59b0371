//! What one run measured, as plain data, and what several runs say together.
//!
//! [`Outcome`] is one (variant, seed) run: counts and times over the measured span only, ramp excluded. [`Summary`]
//! reduces the outcomes of one variant to a mean and a confidence for every quantity of its kind.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

mod accelerator;
mod bottleneck;
mod latency;
mod network;
mod quantity;
mod rdma;
mod storage;
mod summary;
mod threaded;

pub use accelerator::{AcceleratorOutcome, StreamDevice};
pub use bottleneck::{Bottleneck, Finding, SATURATED};
pub use latency::{Latency, PERCENTILES};
pub use network::{FlowOutcome, NetworkOutcome};
pub use quantity::{Published, Quantity, Unit};
pub use rdma::{LevelChange, RdmaOutcome};
pub use storage::{Drive, Stages, StorageOutcome};
pub use summary::{Estimate, Figure, Summary, student_t_95};
pub use threaded::{Accesses, ThreadedOutcome};

/// The result of one run: one variant, one seed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The variant, as the tables name it: `remapped`, `posted`, `polled`.
    pub delivery: String,
    /// The seed of every random stream of the run.
    pub seed: u64,
    /// Simulated time that was measured, ramp excluded, in ns. Shorter than asked for in an interrupted run.
    pub span_ns: u64,
    /// What the delivery path did, all devices together.
    pub interrupts: Interrupts,
    /// Where each CPU's time went; only the CPUs that the scenario uses.
    pub cpus: Vec<CpuTime>,
    /// The shared servers of the MSI path. Links, media and CPUs are elsewhere.
    pub servers: Vec<Server>,
    /// Everything the IOMMUs and controllers recorded as faulty.
    pub faults: Vec<Fault>,
    /// The kernel's interrupt accounting at the end of the span, in the format of `/proc/interrupts`.
    pub interrupt_table: String,
    /// Activity over the measured span.
    pub timeline: Timeline,
    /// What the simulation itself cost.
    pub engine: Engine,
    /// What only this kind of experiment measures.
    #[serde(flatten)]
    pub section: Section,
}

/// What one kind of experiment measures, beside what all do. In files its fields stand among the others, with the kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Section {
    /// Jobs on NVMe drives.
    Storage(StorageOutcome),
    /// Streams of an accelerator.
    Accelerator(AcceleratorOutcome),
    /// NVMe over RDMA under moderation.
    Rdma(RdmaOutcome),
    /// Flows through a guest.
    Network(NetworkOutcome),
    /// A threaded interrupt, raised and waited for.
    Threaded(ThreadedOutcome),
}

/// The quantity that the page shows first, and one beside it.
pub struct Headline {
    /// [`Quantity::id`].
    pub id: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// As the page names it, behind the figure.
    pub name: &'static str,
    /// Id, unit and name of the one beside it.
    pub beside: (&'static str, Unit, &'static str),
}

impl Default for Section {
    fn default() -> Self {
        Self::Storage(StorageOutcome::default())
    }
}

impl Section {
    /// Every scalar of this kind, in the table's order.
    pub fn quantities(&self) -> Vec<Quantity> {
        match self {
            Self::Storage(_) => storage::quantities(),
            Self::Accelerator(_) => accelerator::quantities(),
            Self::Rdma(_) => rdma::quantities(),
            Self::Network(_) => network::quantities(),
            Self::Threaded(_) => threaded::quantities(),
        }
    }

    /// A published value's counterpart, in the published unit.
    pub fn published(&self) -> &'static [Published] {
        match self {
            Self::Storage(_) => storage::PUBLISHED,
            Self::Rdma(_) => rdma::PUBLISHED,
            Self::Accelerator(_) | Self::Network(_) | Self::Threaded(_) => &[],
        }
    }

    /// What the page shows first.
    pub fn headline(&self) -> Headline {
        match self {
            Self::Storage(_) => storage::HEADLINE,
            Self::Accelerator(_) => accelerator::HEADLINE,
            Self::Rdma(_) => rdma::HEADLINE,
            Self::Network(_) => network::HEADLINE,
            Self::Threaded(_) => threaded::HEADLINE,
        }
    }

    /// How busy this kind's devices were, as fractions, nearest to the work first.
    fn devices(&self) -> Vec<(Bottleneck, f64)> {
        match self {
            Self::Storage(storage) => storage.devices(),
            Self::Accelerator(accelerator) => accelerator.devices(),
            // Of a threaded interrupt nothing but its CPU is busy.
            Self::Rdma(_) | Self::Threaded(_) => Vec::new(),
            Self::Network(network) => network.devices(),
        }
    }
}

impl Outcome {
    /// The streams of an accelerator experiment.
    pub fn accelerator(&self) -> Option<&AcceleratorOutcome> {
        match &self.section {
            Section::Accelerator(accelerator) => Some(accelerator),
            _ => None,
        }
    }

    /// The flows of a network experiment.
    pub fn network(&self) -> Option<&NetworkOutcome> {
        match &self.section {
            Section::Network(network) => Some(network),
            _ => None,
        }
    }

    /// Rates and accesses of an experiment on a threaded interrupt.
    pub fn threaded(&self) -> Option<&ThreadedOutcome> {
        match &self.section {
            Section::Threaded(threaded) => Some(threaded),
            _ => None,
        }
    }

    /// The drives, latencies and stages of a storage experiment.
    pub fn storage(&self) -> Option<&StorageOutcome> {
        match &self.section {
            Section::Storage(storage) => Some(storage),
            _ => None,
        }
    }

    /// Reads, events and levels of an experiment on moderation.
    pub fn rdma(&self) -> Option<&RdmaOutcome> {
        match &self.section {
            Section::Rdma(rdma) => Some(rdma),
            _ => None,
        }
    }
}

/// Counts of the delivery path over the measured span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interrupts {
    /// Device vectors that were allocated to the workload's queues.
    pub vectors: u64,
    /// MSI writes by devices (device messages).
    pub msis: u64,
    /// Posted-MSI notifications taken by CPUs (PMN).
    pub notifications: u64,
    /// Notifications whose handler found no PIR bit set.
    pub empty_notifications: u64,
    /// Device vectors dispatched through the vector table, directly or from a notification.
    pub dispatched: u64,
    /// Action handlers run; more than `dispatched` on shared lines.
    pub handlers: u64,
    /// Handlers that found no completion.
    pub empty_handlers: u64,
    /// Completion entries reaped inside a handler.
    pub reaped_by_interrupt: u64,
    /// Completion entries reaped by polling.
    pub reaped_by_poll: u64,
    /// Completion entries reaped by the check after a submission.
    pub reaped_by_check: u64,
    /// Of the handlers that found none, those whose completions a check or a poll had taken before.
    pub overtaken_handlers: u64,
    /// Looks at a completion queue after a batch of submissions.
    pub looks: u64,
    /// Of them, those that saw a completion.
    pub look_hits: u64,
    /// Of these, those that found another CPU reaping.
    pub look_lock_failures: u64,
    /// Completions on another CPU than their submitter's.
    pub remote_completions: u64,
    /// Completions on their submitter's CPU.
    pub local_completions: u64,
    /// The longest that one interrupt kept a CPU, in ns; only under a watchdog.
    pub longest_ns: Option<u64>,
}

impl Interrupts {
    /// Completion entries reaped, either way.
    pub fn completions(&self) -> u64 {
        self.reaped_by_interrupt + self.reaped_by_poll + self.reaped_by_check
    }
}

/// Where one CPU's time went, in ns; the four add up to the span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuTime {
    /// The CPU's number.
    pub cpu: u32,
    /// Application code.
    pub user_ns: u64,
    /// System calls and kernel threads.
    pub system_ns: u64,
    /// Interrupt entry, handlers, exit.
    pub irq_ns: u64,
    /// Waiting for an interrupt.
    pub idle_ns: u64,
}

impl CpuTime {
    /// The span as this CPU saw it, in ns.
    pub fn total_ns(&self) -> u64 {
        self.user_ns + self.system_ns + self.irq_ns + self.idle_ns
    }

    /// Fraction not idle; zero of an empty span.
    pub fn busy(&self) -> f64 {
        ratio(self.total_ns() - self.idle_ns, self.total_ns()).unwrap_or(0.0)
    }
}

/// One server of the MSI path and how much of the span it was occupied.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Server {
    /// What it is.
    pub kind: ServerKind,
    /// Which one of its kind.
    pub index: u32,
    /// Fraction of the span in which it could not take the next request. For a root port that is the stall by MSI
    /// ordering plus the time blocked by waiting MSIs, data movement excluded.
    pub busy: f64,
}

/// The servers of the MSI path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerKind {
    /// A root port, held by MSIs that may not be overtaken.
    #[default]
    RootPort,
    /// An IOMMU's interrupt-remapping unit.
    Remapping,
    /// A socket's unit that delivers interrupts to LAPICs.
    Dispatch,
    /// The cache line of one CPU's posted-interrupt descriptor.
    PostedLine,
}

impl ServerKind {
    /// As texts name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::RootPort => "root port",
            Self::Remapping => "remapping unit",
            Self::Dispatch => "dispatch unit",
            Self::PostedLine => "posted descriptor line",
        }
    }
}

/// A kind of recorded fault and how often it occurred.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Fault {
    /// Kind as the recording unit names it, for example `source-id mismatch`.
    pub kind: String,
    /// PCI requester id: bus 15:8, device 7:3, function 2:0.
    pub requester: u16,
    /// How often.
    pub count: u64,
    /// What happened, for a person.
    pub text: String,
}

impl Fault {
    /// The requester as `bus:device.function`.
    pub fn requester_name(&self) -> String {
        let id = self.requester;
        format!("{:02x}:{:02x}.{}", id >> 8, id >> 3 & 0x1f, id & 7)
    }
}

/// Activity in equal buckets of the measured span; its rows are equally long.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeline {
    /// Width of a bucket in ns.
    pub bucket_ns: u64,
    /// What happened in each bucket, by name: `ios`, `msis`, `notifications`.
    #[serde(flatten)]
    pub counts: BTreeMap<String, Vec<u64>>,
}

/// What the simulation itself cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Engine {
    /// Events executed.
    pub events: u64,
    /// Coroutine switches.
    pub switches: u64,
    /// Wall time of the host in ns for the measured span, set-up and ramp apart: the one figure that differs between equal runs, so never in a file by default.
    #[serde(skip)]
    pub host_ns: u64,
    /// Digest of the event log: equal inputs, equal digest.
    pub digest: u64,
}

/// `a / b`, or nothing of nothing.
fn ratio(a: u64, b: u64) -> Option<f64> {
    (b != 0).then(|| a as f64 / b as f64)
}

#[cfg(test)]
pub(crate) mod samples;
#[cfg(test)]
mod tests;
