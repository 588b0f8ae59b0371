//! Every scalar that a run is judged by: its id, its name, its unit and how it follows from an [`Outcome`].

use serde::Serialize;

use super::{CpuTime, Latency, Outcome, ratio};

/// The unit of a quantity, which also says how it is printed and compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Unit {
    /// Events a second.
    #[serde(rename = "1/s")]
    PerSecond,
    /// Bytes a second.
    #[serde(rename = "B/s")]
    BytesPerSecond,
    /// A share in percent; compared in points.
    #[serde(rename = "%")]
    Percent,
    /// A plain ratio or mean count.
    #[serde(rename = "1")]
    Ratio,
    /// Nanoseconds.
    #[serde(rename = "ns")]
    Nanoseconds,
}

/// The block of the table that a quantity belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Section {
    /// I/Os and bytes.
    Throughput,
    /// MSIs, notifications, handlers.
    Interrupts,
    /// Where the CPUs' time goes.
    Cpu,
    /// From submission to the application's sight of the completion.
    CompletionLatency,
    /// Inside the submitting call.
    SubmissionLatency,
}

impl Section {
    /// As the table heads it.
    pub fn title(self) -> &'static str {
        match self {
            Self::Throughput => "Throughput",
            Self::Interrupts => "Interrupts",
            Self::Cpu => "CPU time",
            Self::CompletionLatency => "Completion latency",
            Self::SubmissionLatency => "Submission latency",
        }
    }
}

/// One scalar that follows from a run.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    /// Stable name in files; the published tables' name where they have one.
    pub id: &'static str,
    /// As the table prints it.
    pub label: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// Where the table shows it.
    pub section: Section,
    /// Its value in one run; none where it does not apply, as notifications per MSI without an MSI.
    pub of: fn(&Outcome) -> Option<f64>,
}

const fn quantity(
    id: &'static str,
    label: &'static str,
    unit: Unit,
    section: Section,
    of: fn(&Outcome) -> Option<f64>,
) -> Quantity {
    Quantity { id, label, unit, section, of }
}

/// Every quantity, in the table's order.
pub const QUANTITIES: &[Quantity] = {
    use Section::{CompletionLatency as Clat, Cpu, Interrupts, SubmissionLatency as Slat, Throughput};
    use Unit::{BytesPerSecond, Nanoseconds, PerSecond, Percent, Ratio};
    &[
        quantity("iops", "IOPS together", PerSecond, Throughput, |o| per_second(o, ios(o))),
        quantity("iops_per_drive", "IOPS a drive", PerSecond, Throughput, |o| {
            ratio_f(per_second(o, ios(o))?, o.drives.len() as f64)
        }),
        quantity("bandwidth", "bandwidth", BytesPerSecond, Throughput, |o| {
            per_second(o, o.drives.iter().map(|d| d.bytes).sum())
        }),
        quantity("errors", "I/O errors", Percent, Throughput, |o| {
            percent(o.drives.iter().map(|d| d.errors).sum(), ios(o))
        }),
        quantity("msi", "MSIs sent", PerSecond, Interrupts, |o| per_second(o, o.interrupts.msis)),
        quantity("interrupts", "MSIs handled", PerSecond, Interrupts, |o| per_second(o, o.interrupts.dispatched)),
        quantity("msi_per_vector", "handled, a vector", PerSecond, Interrupts, |o| {
            ratio_f(per_second(o, o.interrupts.dispatched)?, o.interrupts.vectors as f64)
        }),
        quantity("notifications", "notifications", PerSecond, Interrupts, |o| {
            per_second(o, o.interrupts.notifications)
        }),
        quantity("notifications_per_msi", "notifications per MSI", Percent, Interrupts, |o| {
            percent(o.interrupts.notifications, o.interrupts.dispatched)
        }),
        quantity("completions_per_interrupt", "completions per handler", Ratio, Interrupts, |o| {
            ratio(o.interrupts.reaped_by_interrupt, o.interrupts.handlers)
        }),
        quantity("empty_handlers", "handlers that found none", Percent, Interrupts, |o| {
            percent(o.interrupts.empty_handlers, o.interrupts.handlers)
        }),
        quantity("empty_notifications", "empty notifications", Percent, Interrupts, |o| {
            percent(o.interrupts.empty_notifications, o.interrupts.notifications)
        }),
        quantity("reaped_by_poll", "completions by polling", Percent, Interrupts, |o| {
            percent(o.interrupts.reaped_by_poll, o.interrupts.completions())
        }),
        quantity("reaped_by_check", "completions by the check", Percent, Interrupts, |o| {
            percent(o.interrupts.reaped_by_check, o.interrupts.completions())
        }),
        quantity("look_hits", "looks that saw one", Percent, Interrupts, |o| {
            percent(o.interrupts.look_hits, o.interrupts.looks)
        }),
        quantity("look_lock_failures", "hits while another reaped", Percent, Interrupts, |o| {
            percent(o.interrupts.look_lock_failures, o.interrupts.look_hits)
        }),
        quantity("overtaken_handlers", "handlers that were overtaken", Percent, Interrupts, |o| {
            percent(o.interrupts.overtaken_handlers, o.interrupts.handlers)
        }),
        quantity("remote_completions", "completions on another CPU", Percent, Interrupts, |o| {
            percent(o.interrupts.remote_completions, o.interrupts.remote_completions + o.interrupts.local_completions)
        }),
        quantity("irq_longest", "longest interrupt", Nanoseconds, Interrupts, |o| {
            o.interrupts.longest_ns.map(|ns| ns as f64)
        }),
        quantity("cpu_user", "user", Percent, Cpu, |o| cpu_share(o, |c| c.user_ns)),
        quantity("cpu_system", "system", Percent, Cpu, |o| cpu_share(o, |c| c.system_ns)),
        quantity("cpu_irq", "interrupt", Percent, Cpu, |o| cpu_share(o, |c| c.irq_ns)),
        quantity("cpu_idle", "idle", Percent, Cpu, |o| cpu_share(o, |c| c.idle_ns)),
        quantity("clat", "mean", Nanoseconds, Clat, |o| mean(&o.completion_latency)),
        quantity("clat_p50", "p50", Nanoseconds, Clat, |o| at(&o.completion_latency, 0)),
        quantity("clat_p90", "p90", Nanoseconds, Clat, |o| at(&o.completion_latency, 1)),
        quantity("clat_p99", "p99", Nanoseconds, Clat, |o| at(&o.completion_latency, 2)),
        quantity("clat_p99_9", "p99.9", Nanoseconds, Clat, |o| at(&o.completion_latency, 3)),
        quantity("clat_p99_99", "p99.99", Nanoseconds, Clat, |o| at(&o.completion_latency, 4)),
        quantity("slat", "mean", Nanoseconds, Slat, |o| mean(&o.submission_latency)),
        quantity("slat_p50", "p50", Nanoseconds, Slat, |o| at(&o.submission_latency, 0)),
        quantity("slat_p99", "p99", Nanoseconds, Slat, |o| at(&o.submission_latency, 2)),
    ]
};

fn ios(outcome: &Outcome) -> u64 {
    outcome.drives.iter().map(|drive| drive.ios).sum()
}

fn per_second(outcome: &Outcome, count: u64) -> Option<f64> {
    ratio_f(count as f64 * 1e9, outcome.span_ns as f64)
}

fn percent(a: u64, b: u64) -> Option<f64> {
    ratio(a, b).map(|share| share * 100.0)
}

fn ratio_f(a: f64, b: f64) -> Option<f64> {
    (b != 0.0).then(|| a / b)
}

fn cpu_share(outcome: &Outcome, part: fn(&CpuTime) -> u64) -> Option<f64> {
    percent(outcome.cpus.iter().map(part).sum(), outcome.cpus.iter().map(CpuTime::total_ns).sum())
}

fn mean(latency: &Latency) -> Option<f64> {
    (latency.count != 0).then_some(latency.mean_ns)
}

fn at(latency: &Latency, percentile: usize) -> Option<f64> {
    (latency.count != 0).then(|| latency.percentiles_ns[percentile] as f64)
}
