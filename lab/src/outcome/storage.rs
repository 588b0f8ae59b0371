//! What a storage experiment measures.

use super::quantity::{CPU, MSI_PATH, THROUGHPUT, at, mean, per_second, percent, quantity, ratio_f};
use super::{Bottleneck, CpuTime, Headline, Latency, Outcome, Published, Quantity, Unit};
use Unit::{BytesPerSecond, Nanoseconds, PerSecond, Percent};
use serde::{Deserialize, Serialize};

/// Of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StorageOutcome {
    /// One entry a drive, in the platform's order.
    pub drives: Vec<Drive>,
    /// From submission to the application's sight of the completion.
    pub completion_latency: Latency,
    /// Spent inside the submitting call.
    pub submission_latency: Latency,
    /// Where the time of one I/O goes.
    pub stages: Stages,
}

impl StorageOutcome {
    /// I/Os of all drives.
    pub fn ios(&self) -> u64 {
        self.drives.iter().map(|drive| drive.ios).sum()
    }

    pub(super) fn devices(&self) -> Vec<(Bottleneck, f64)> {
        let busiest = |of: fn(&Drive) -> f64| self.drives.iter().map(of).fold(0.0, f64::max);
        vec![
            (Bottleneck::DriveMedia, busiest(|drive| drive.media_busy)),
            (Bottleneck::DriveLink, busiest(|drive| drive.link_busy + drive.link_held)),
        ]
    }
}

/// One drive's share of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Drive {
    /// As the platform names it.
    pub name: String,
    /// Completed I/Os.
    pub ios: u64,
    /// Payload bytes of the completed I/Os.
    pub bytes: u64,
    /// I/Os that completed with an error status.
    pub errors: u64,
    /// MSI writes that the drive emitted.
    pub msis: u64,
    /// Fraction of the span in which the link was moving data.
    pub link_busy: f64,
    /// Fraction of the span in which the link had to stay free behind the drive's own MSIs, which data may not
    /// overtake.
    pub link_held: f64,
    /// Fraction of the media's slots in use, averaged over the span.
    pub media_busy: f64,
}

/// Mean time of one I/O in each stage, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stages {
    /// Application code.
    pub user_ns: f64,
    /// The submitting call, to the doorbell.
    pub submit_ns: f64,
    /// In the submission queue, until the drive fetches it.
    pub queue_ns: f64,
    /// In the drive's media.
    pub media_ns: f64,
    /// Waiting for and on the link and root port.
    pub link_ns: f64,
    /// From the posted completion entry to its MSI.
    pub post_to_msi_ns: f64,
    /// From the MSI to its handler's first instruction.
    pub msi_to_handler_ns: f64,
    /// From the handler to the application.
    pub handler_to_application_ns: f64,
}

impl Stages {
    /// Every stage in the order of an I/O's life, with its name.
    pub fn named(&self) -> [(&'static str, f64); 8] {
        [
            ("user", self.user_ns),
            ("submit", self.submit_ns),
            ("drive queue", self.queue_ns),
            ("media", self.media_ns),
            ("link and port", self.link_ns),
            ("entry to MSI", self.post_to_msi_ns),
            ("MSI to handler", self.msi_to_handler_ns),
            ("handler to application", self.handler_to_application_ns),
        ]
    }
}

pub(super) const HEADLINE: Headline =
    Headline { id: "iops", unit: PerSecond, name: "IOPS", beside: ("clat", Nanoseconds, "mean latency") };

const COMPLETION: &str = "Completion latency";
const SUBMISSION: &str = "Submission latency";

/// Every quantity, in the table's order.
pub(super) fn quantities() -> Vec<Quantity> {
    [STORAGE, MSI_PATH, CPU, LATENCIES].concat()
}

const STORAGE: &[Quantity] = &[
    quantity("iops", "IOPS together", PerSecond, THROUGHPUT, |o| per_second(o, ios(o)?)),
    quantity("iops_per_drive", "IOPS a drive", PerSecond, THROUGHPUT, |o| {
        ratio_f(per_second(o, ios(o)?)?, o.storage()?.drives.len() as f64)
    }),
    quantity("bandwidth", "bandwidth", BytesPerSecond, THROUGHPUT, |o| {
        per_second(o, o.storage()?.drives.iter().map(|d| d.bytes).sum())
    }),
    quantity("errors", "I/O errors", Percent, THROUGHPUT, |o| {
        percent(o.storage()?.drives.iter().map(|d| d.errors).sum(), ios(o)?)
    }),
];

const LATENCIES: &[Quantity] = &[
    quantity("clat", "mean", Nanoseconds, COMPLETION, |o| mean(&o.storage()?.completion_latency)),
    quantity("clat_p50", "p50", Nanoseconds, COMPLETION, |o| at(&o.storage()?.completion_latency, 0)),
    quantity("clat_p90", "p90", Nanoseconds, COMPLETION, |o| at(&o.storage()?.completion_latency, 1)),
    quantity("clat_p99", "p99", Nanoseconds, COMPLETION, |o| at(&o.storage()?.completion_latency, 2)),
    quantity("clat_p99_9", "p99.9", Nanoseconds, COMPLETION, |o| at(&o.storage()?.completion_latency, 3)),
    quantity("clat_p99_99", "p99.99", Nanoseconds, COMPLETION, |o| at(&o.storage()?.completion_latency, 4)),
    quantity("slat", "mean", Nanoseconds, SUBMISSION, |o| mean(&o.storage()?.submission_latency)),
    quantity("slat_p50", "p50", Nanoseconds, SUBMISSION, |o| at(&o.storage()?.submission_latency, 0)),
    quantity("slat_p99", "p99", Nanoseconds, SUBMISSION, |o| at(&o.storage()?.submission_latency, 2)),
];

/// Seconds of CPU time that the published tables count: 30 s and their ramp of 3 s.
const PUBLISHED_CPU_SECONDS: f64 = 33.0;

/// What the published tables call otherwise or state in another unit.
pub(super) const PUBLISHED: &[Published] = &[
    // A kernel counts the MSIs that it handles, and so did whoever published: two that met in a request bit are one.
    Published { name: "msi", of: |o| per_second(o, o.interrupts.dispatched) },
    // Interrupts that CPUs took.
    Published {
        name: "interrupts",
        of: |o| match o.interrupts.notifications {
            0 => per_second(o, o.interrupts.dispatched),
            notifications => per_second(o, notifications),
        },
    },
    Published { name: "user_time", of: |o| cpu_seconds(o, |cpu| cpu.user_ns) },
    Published { name: "system_time", of: |o| cpu_seconds(o, |cpu| cpu.system_ns + cpu.irq_ns) },
    Published { name: "clat", of: |o| Some(o.storage()?.completion_latency.mean_ns / 1000.0) },
];

fn ios(outcome: &Outcome) -> Option<u64> {
    Some(outcome.storage()?.ios())
}

/// CPU seconds in the published span.
fn cpu_seconds(outcome: &Outcome, part: fn(&CpuTime) -> u64) -> Option<f64> {
    let ns: u64 = outcome.cpus.iter().map(part).sum();
    Some(ns as f64 / outcome.span_ns.max(1) as f64 * PUBLISHED_CPU_SECONDS)
}
