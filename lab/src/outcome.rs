//! The measurements of one run as plain data, and their summary over several runs.
//!
//! [`Outcome`] is one (variant, seed) run: counts and times over the measured span only, ramp excluded. [`Summary`]
//! reduces the outcomes of one variant to a mean and a confidence for every quantity of its kind.

use crate::kinds::{Measured, Section};
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::collections::BTreeMap;

mod bottleneck;
mod latency;
pub(crate) mod quantity;
mod steady;
mod summary;

pub use bottleneck::{Bottleneck, DevicePart, Finding, SATURATED};
pub(crate) use latency::histogram;
pub use latency::{Latency, PERCENTILES};
pub use quantity::{Published, Quantity, Unit};
pub use steady::{Span, Steadiness, Verdict};
pub use summary::{Estimate, Figure, Summary, student_t_95};

/// The result of one run: one variant, one seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(Default))]
pub struct Outcome {
    /// The variant's name in the tables: `remapped`, `posted`, `polled`.
    pub delivery: String,
    /// The seed of every random stream of the run.
    pub seed: u64,
    /// Measured simulated time in ns, ramp excluded. An interrupted run has less than requested.
    pub span_ns: u64,
    /// Counts of the delivery path, all devices together.
    pub interrupts: Interrupts,
    /// Times of each CPU that the scenario uses.
    pub cpus: Vec<CpuTime>,
    /// The shared servers of the MSI path. Links, media and CPUs are elsewhere.
    pub servers: Vec<Server>,
    /// All faults that the IOMMUs and controllers recorded.
    pub faults: Vec<Fault>,
    /// How the system delivers messages, and the reason where it cannot deliver them as wished. None for a system
    /// without such a choice.
    pub policy: Option<String>,
    /// The kernel's interrupt accounting at the end of the span, in the format of `/proc/interrupts`.
    pub interrupt_table: String,
    /// Activity over the measured span.
    pub timeline: Timeline,
    /// The cost of the simulation itself.
    pub engine: Engine,
    /// The phases of an experiment that has several, each measured over its own span.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<Phase>,
    /// The measurements that only this kind of experiment has.
    #[serde(flatten)]
    pub section: Section,
}

/// Phases whose shortening differs by more than this are shortened unevenly. Less than that comes of the last I/Os of each, which
/// are waited for.
pub(crate) const UNEVEN: f64 = 1.05;

/// Jobs that run between two barriers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// Their sections.
    pub name: String,
    /// What they did.
    pub outcome: Outcome,
}

/// The quantity that the page shows first, and one beside it.
pub struct Headline {
    /// [`Quantity::id`].
    pub id: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// Its name on the page, printed behind the figure.
    pub name: &'static str,
    /// Id, unit and name of the second quantity.
    pub beside: (&'static str, Unit, &'static str),
}

impl Outcome {
    /// True if its phases are shortened, and not all alike: counts and times of all together then mean nothing.
    pub fn is_unevenly_shortened(&self) -> bool {
        let factor = |phase: &Phase| {
            let outcome = &phase.outcome;
            Some(outcome.timeline.stands_for_ns? as f64 / outcome.span_ns.max(1) as f64)
        };
        let factors: Option<Vec<f64>> = self.phases.iter().map(factor).collect();
        // Some phase stands for nobody knows how much.
        let Some(factors) = factors else { return self.phases.iter().any(|phase| phase.outcome.timeline.is_phase) };
        let (least, most) = factors.iter().fold((f64::MAX, 0.0f64), |(least, most), &at| (least.min(at), most.max(at)));
        most > least * UNEVEN
    }

    /// The measurements that only its kind has, if they are a `T`.
    pub fn own<T: Measured>(&self) -> Option<&T> {
        let any: &dyn Any = self.section.measured();
        any.downcast_ref()
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
    /// Action handlers run. On shared lines there are more of them than `dispatched`.
    pub handlers: u64,
    /// Handlers that found no completion.
    pub empty_handlers: u64,
    /// Completion entries reaped inside a handler.
    pub reaped_by_interrupt: u64,
    /// Completion entries reaped by polling.
    pub reaped_by_poll: u64,
    /// Completion entries reaped by the look after a submission.
    pub reaped_by_check: u64,
    /// Handlers that found no completion because a look or a poll had taken it before.
    pub overtaken_handlers: u64,
    /// Looks at a completion queue after a batch of submissions.
    pub looks: u64,
    /// Looks that saw a completion.
    pub look_hits: u64,
    /// Looks that saw a completion but found another CPU reaping.
    pub look_lock_failures: u64,
    /// Completions on a CPU other than the submitter's.
    pub remote_completions: u64,
    /// Completions on the submitter's CPU.
    pub local_completions: u64,
    /// Of these, completions that another CPU reaped and sent there.
    #[serde(default)]
    pub sent_completions: u64,
    /// Interprocessor interrupts that carried them.
    #[serde(default)]
    pub ipis: u64,
    /// The longest time that one interrupt kept a CPU, in ns; measured only under a watchdog.
    pub longest_ns: Option<u64>,
}

impl Interrupts {
    /// Completion entries reaped in any way.
    pub fn completions(&self) -> u64 {
        self.reaped_by_interrupt + self.reaped_by_poll + self.reaped_by_check
    }
}

/// One CPU's time by use, in ns; the four parts add up to the span.
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
    /// The kind of server.
    pub kind: ServerKind,
    /// Which one of its kind.
    pub index: u32,
    /// Fraction of the span in which it could not take the next request. For a root port this is the stall by MSI
    /// ordering: data movement is excluded, and a port that waits for the IOMMU waits for another server.
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
    /// A description for people.
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
    /// Simulated time of the same load before the span, in ns.
    #[serde(default)]
    pub ramp_ns: u64,
    /// True if the span is a phase whose jobs all run to their own end.
    #[serde(default)]
    pub ends_itself: bool,
    /// The time that the span of a phase stands for, in ns: a runtime, or the span itself. None where no one says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stands_for_ns: Option<u64>,
    /// True of a phase, or of a run that is one.
    #[serde(skip)]
    pub is_phase: bool,
    /// Counts in each bucket, by name: `ios`, `msis`, `notifications`.
    #[serde(flatten)]
    pub counts: BTreeMap<String, Vec<u64>>,
}

/// The cost of the simulation itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Engine {
    /// Events executed.
    pub events: u64,
    /// Coroutine switches.
    pub switches: u64,
    /// Wall time of the host in ns for the measured span, set-up and ramp apart: the one figure that differs between equal runs, so never in a file by default.
    #[serde(skip)]
    pub host_ns: u64,
    /// Digest of the event log: equal inputs give equal digests.
    pub digest: u64,
}

/// `a / b`; none if `b` is zero.
pub(crate) fn ratio(a: u64, b: u64) -> Option<f64> {
    (b != 0).then(|| a as f64 / b as f64)
}

#[cfg(test)]
pub(crate) mod samples;
#[cfg(test)]
mod tests;
