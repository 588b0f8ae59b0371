//! The measurements of a storage experiment.

use super::detail::{Details, JobFigures};
use super::{jobs, page};
use crate::kinds::{Means, Measured, Section};
use crate::outcome::quantity::{CPU, MSI_PATH, THROUGHPUT, at, mean, per_second, percent, quantity, ratio_f};
use crate::outcome::{Bottleneck, CpuTime, DevicePart, Headline, Latency, Outcome, Published, Quantity, Unit};
use crate::report::RunReport;
use Unit::{BytesPerSecond, Nanoseconds, PerSecond, Percent};
use drivers::nvme::CompletionLook;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A drive's media slots are all in use.
pub const DRIVE_MEDIA: Bottleneck = Bottleneck::Device(DevicePart { id: "drive_media", name: "drive media" });
/// The link of a drive is never free: it moves data, or must stay idle behind an MSI that data may not overtake.
pub const DRIVE_LINK: Bottleneck = Bottleneck::Device(DevicePart { id: "drive_link", name: "drive link" });

/// The measurements of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StorageOutcome {
    /// One entry a drive, in the platform's order.
    pub drives: Vec<Drive>,
    /// The time from submission until the application sees the completion.
    pub completion_latency: Latency,
    /// Reads, writes, trims and flushes, apart and in this order.
    #[serde(default)]
    pub directions: Vec<Direction>,
    /// The time inside the submitting call.
    pub submission_latency: Latency,
    /// What each job did from its beginning to its end; empty if all of them run as long as the span.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ends: Vec<JobEnd>,
    /// The time of one I/O by stage.
    pub stages: Stages,
    /// The jobs, those with `group_reporting` together; empty if a run did not measure its threads apart.
    #[serde(default)]
    pub jobs: Vec<JobFigures>,
    /// The look at completions that every column has by `options.check_queue`; none: each its own.
    #[serde(skip)]
    pub look: Option<CompletionLook>,
    /// What the jobs should have had in flight.
    #[serde(skip)]
    pub turns: Turns,
    /// What `jobs` was made of, for reports in fio's form.
    #[serde(skip)]
    pub details: Option<Arc<Details>>,
}

/// The jobs of a span that nothing but the server makes wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    /// These jobs.
    pub jobs: u64,
    /// Those of them that saw an I/O end.
    pub served: u64,
    /// The I/Os that they are set to keep in flight.
    pub in_flight: u64,
}

impl StorageOutcome {
    /// I/Os of all drives.
    pub fn ios(&self) -> u64 {
        self.drives.iter().map(|drive| drive.ios).sum()
    }
}

/// What a job did until it ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobEnd {
    /// Its name.
    pub name: String,
    /// Completed reads, writes and trims.
    pub ios: [u64; 3],
    /// Their bytes.
    pub bytes: [u64; 3],
    /// From its beginning, or the end of its ramp, to its end, in ns.
    pub ran_ns: u64,
    /// Why it ended: `done`, `runtime`, `span` (the simulated span stands for its runtime), `rate_min`, `max_latency`,
    /// `latency_target`, `latency_target_missed`, `steadystate`, `full`, `stopped`.
    pub reason: String,
}

/// One kind of operation in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Direction {
    /// Completed operations.
    pub ios: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The time from submission until the application sees the completion.
    pub latency: Latency,
}

/// One drive's share of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Drive {
    /// The name in the platform.
    pub name: String,
    /// Completed I/Os.
    pub ios: u64,
    /// Payload bytes of the completed I/Os; trims have none.
    pub bytes: u64,
    /// I/Os that completed with an error status.
    pub errors: u64,
    /// MSI writes that the drive emitted.
    pub msis: u64,
    /// Fraction of the span in which the link was moving data, in its busier direction.
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
    /// Every stage as files name it, in the order of an I/O's life.
    fn fields(&self) -> [(&'static str, f64); 8] {
        [
            ("user_ns", self.user_ns),
            ("submit_ns", self.submit_ns),
            ("queue_ns", self.queue_ns),
            ("media_ns", self.media_ns),
            ("link_ns", self.link_ns),
            ("post_to_msi_ns", self.post_to_msi_ns),
            ("msi_to_handler_ns", self.msi_to_handler_ns),
            ("handler_to_application_ns", self.handler_to_application_ns),
        ]
    }

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

impl Measured for StorageOutcome {
    fn quantities(&self) -> Vec<Quantity> {
        [STORAGE, APART, MSI_PATH, CPU, LATENCIES].concat()
    }

    fn headline(&self) -> Headline {
        Headline { id: "iops", unit: PerSecond, name: "IOPS", beside: ("clat", Nanoseconds, "mean latency") }
    }

    fn page(&self, report: &RunReport) -> String {
        page::sections(report)
    }

    fn devices(&self) -> Vec<(Bottleneck, f64)> {
        let busiest = |of: fn(&Drive) -> f64| self.drives.iter().map(of).fold(0.0, f64::max);
        vec![
            (DRIVE_MEDIA, busiest(|drive| drive.media_busy)),
            (DRIVE_LINK, busiest(|drive| drive.link_busy + drive.link_held)),
        ]
    }

    fn turn_ns(&self, span_ns: u64) -> Option<f64> {
        let measured = self.completion_latency.mean_ns + self.submission_latency.mean_ns;
        let Turns { jobs, served, in_flight } = self.turns;
        let span_ns = span_ns as f64;
        // Latencies are of the I/Os that ended. What waits for its turn counts by the number in flight (Little's law).
        let by_rate = in_flight as f64 * span_ns / self.ios().max(1) as f64;
        let by_jobs = if served < jobs { span_ns * jobs as f64 / served.max(1) as f64 } else { 0.0 };
        Some(measured.max(by_rate).max(by_jobs))
    }

    fn left_out(&self) -> u64 {
        self.turns.jobs - self.turns.served
    }

    fn tables(&self, report: &RunReport) -> String {
        jobs::tables(report)
    }

    fn columns(&self) -> Option<&'static str> {
        Some(match self.look {
            None => COLUMNS,
            Some(CompletionLook::Off) => COLUMNS_OFF,
            Some(CompletionLook::Auto) => COLUMNS_AUTO,
            Some(CompletionLook::On) => COLUMNS_ON,
        })
    }

    fn published(&self) -> &'static [Published] {
        PUBLISHED
    }

    fn means(&self, runs: &[Outcome]) -> Option<Means> {
        let fields = mean_stages(runs)?.fields().to_vec();
        Some(Means { name: "stages", fields })
    }
}

impl From<StorageOutcome> for Section {
    fn from(outcome: StorageOutcome) -> Self {
        Self::Storage(outcome)
    }
}

impl Outcome {
    /// The drives, latencies and stages of a storage experiment.
    pub fn storage(&self) -> Option<&StorageOutcome> {
        self.own()
    }
}

/// Under the table.
const COLUMNS: &str = "Columns: stock Linux, and where they say ours, with this driver's look at completions.";
/// The same where a setting replaces the columns' own look.
const COLUMNS_OFF: &str =
    "Columns: stock Linux. With options.check_queue=off none looks at completions, not even those that say ours.";
const COLUMNS_AUTO: &str =
    "Columns: stock Linux, but by options.check_queue=auto all have this driver's look at completions, where it helps.";
const COLUMNS_ON: &str = "Columns: stock Linux, but by options.check_queue=on all have this driver's look at completions, after every batch.";

const DIRECTIONS: &str = "Reads, writes, trims, flushes";
const COMPLETION: &str = "Completion latency";
const SUBMISSION: &str = "Submission latency";

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

/// Reads, writes, trims and flushes apart; without writes, trims and flushes there is nothing to tell apart.
const APART: &[Quantity] = &[
    quantity("read_iops", "reads", PerSecond, DIRECTIONS, |o| per_second(o, apart(o, 0)?.ios)),
    quantity("write_iops", "writes", PerSecond, DIRECTIONS, |o| per_second(o, apart(o, 1)?.ios)),
    quantity("trim_iops", "trims", PerSecond, DIRECTIONS, |o| per_second(o, apart(o, 2)?.ios)),
    quantity("flush_rate", "flushes", PerSecond, DIRECTIONS, |o| per_second(o, apart(o, 3)?.ios)),
    quantity("read_bandwidth", "bandwidth of reads", BytesPerSecond, DIRECTIONS, |o| per_second(o, apart(o, 0)?.bytes)),
    quantity("write_bandwidth", "bandwidth of writes", BytesPerSecond, DIRECTIONS, |o| {
        per_second(o, apart(o, 1)?.bytes)
    }),
    quantity("trim_bandwidth", "bandwidth of trims", BytesPerSecond, DIRECTIONS, |o| per_second(o, apart(o, 2)?.bytes)),
    quantity("read_clat", "latency of reads", Nanoseconds, DIRECTIONS, |o| mean(&apart(o, 0)?.latency)),
    quantity("read_clat_p99", "p99 of reads", Nanoseconds, DIRECTIONS, |o| at(&apart(o, 0)?.latency, 2)),
    quantity("write_clat", "latency of writes", Nanoseconds, DIRECTIONS, |o| mean(&apart(o, 1)?.latency)),
    quantity("write_clat_p99", "p99 of writes", Nanoseconds, DIRECTIONS, |o| at(&apart(o, 1)?.latency, 2)),
    quantity("trim_clat", "latency of trims", Nanoseconds, DIRECTIONS, |o| mean(&apart(o, 2)?.latency)),
    quantity("flush_clat", "latency of flushes", Nanoseconds, DIRECTIONS, |o| mean(&apart(o, 3)?.latency)),
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

/// Quantities whose published name or unit differs from ours.
const PUBLISHED: &[Published] = &[
    // A kernel counts the MSIs that it handles, and so do the published tables: two MSIs that merge in a request bit
    // count once.
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
    Published { name: "read_clat", of: |o| Some(apart(o, 0)?.latency.mean_ns / 1000.0) },
    Published { name: "write_clat", of: |o| Some(apart(o, 1)?.latency.mean_ns / 1000.0) },
    Published { name: "trim_clat", of: |o| Some(apart(o, 2)?.latency.mean_ns / 1000.0) },
];

/// The stages averaged over several runs; none if a run is of another kind.
pub(super) fn mean_stages(runs: &[Outcome]) -> Option<Stages> {
    let stages: Vec<&Stages> = runs.iter().map(|o| Some(&o.storage()?.stages)).collect::<Option<_>>()?;
    let mean = |stage: fn(&Stages) -> f64| stages.iter().map(|s| stage(s)).sum::<f64>() / stages.len() as f64;
    Some(Stages {
        user_ns: mean(|s| s.user_ns),
        submit_ns: mean(|s| s.submit_ns),
        queue_ns: mean(|s| s.queue_ns),
        media_ns: mean(|s| s.media_ns),
        link_ns: mean(|s| s.link_ns),
        post_to_msi_ns: mean(|s| s.post_to_msi_ns),
        msi_to_handler_ns: mean(|s| s.msi_to_handler_ns),
        handler_to_application_ns: mean(|s| s.handler_to_application_ns),
    })
}

/// One kind of operation, if there was one and the run did not only read.
fn apart(outcome: &Outcome, number: usize) -> Option<&Direction> {
    let directions = &outcome.storage()?.directions;
    let only_reads = directions.iter().skip(1).all(|direction| direction.ios == 0);
    directions.get(number).filter(|direction| !only_reads && direction.ios > 0)
}

fn ios(outcome: &Outcome) -> Option<u64> {
    Some(outcome.storage()?.ios())
}

/// CPU seconds in the published span.
fn cpu_seconds(outcome: &Outcome, part: fn(&CpuTime) -> u64) -> Option<f64> {
    let ns: u64 = outcome.cpus.iter().map(part).sum();
    Some(ns as f64 / outcome.span_ns.max(1) as f64 * PUBLISHED_CPU_SECONDS)
}
