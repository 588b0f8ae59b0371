//! Every scalar that a run is judged by: its id, its name, its unit and how it follows from an [`Outcome`].

use serde::Serialize;

use super::{CpuTime, Latency, Outcome, ratio};
use Unit::{Nanoseconds, PerSecond, Percent, Ratio};

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

/// One scalar that follows from a run.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    /// Stable name in files; the published tables' name where they have one.
    pub id: &'static str,
    /// Its name in the table.
    pub label: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// The heading under which the table shows it.
    pub heading: &'static str,
    /// Its value in one run. None where it does not apply, for example notifications per MSI without an MSI.
    pub of: fn(&Outcome) -> Option<f64>,
}

/// Headings that several kinds have.
pub(crate) const THROUGHPUT: &str = "Throughput";
const INTERRUPTS: &str = "Interrupts";
const CPU_TIME: &str = "CPU time";

pub(crate) const fn quantity(
    id: &'static str,
    label: &'static str,
    unit: Unit,
    heading: &'static str,
    of: fn(&Outcome) -> Option<f64>,
) -> Quantity {
    Quantity { id, label, unit, heading, of }
}

/// Messages, notifications and handlers, for every kind whose interrupts are MSIs.
pub(crate) const MSI_PATH: &[Quantity] = &[
    quantity("msi", "MSIs sent", PerSecond, INTERRUPTS, |o| per_second(o, o.interrupts.msis)),
    quantity("interrupts", "MSIs handled", PerSecond, INTERRUPTS, |o| per_second(o, o.interrupts.dispatched)),
    quantity("msi_per_vector", "handled, a vector", PerSecond, INTERRUPTS, |o| {
        ratio_f(per_second(o, o.interrupts.dispatched)?, o.interrupts.vectors as f64)
    }),
    quantity("notifications", "notifications", PerSecond, INTERRUPTS, |o| per_second(o, o.interrupts.notifications)),
    quantity("notifications_per_msi", "notifications per MSI", Percent, INTERRUPTS, |o| {
        percent(o.interrupts.notifications, o.interrupts.dispatched)
    }),
    quantity("completions_per_interrupt", "completions per handler", Ratio, INTERRUPTS, |o| {
        ratio(o.interrupts.reaped_by_interrupt, o.interrupts.handlers)
    }),
    quantity("empty_handlers", "handlers that found none", Percent, INTERRUPTS, |o| {
        percent(o.interrupts.empty_handlers, o.interrupts.handlers)
    }),
    quantity("empty_notifications", "empty notifications", Percent, INTERRUPTS, |o| {
        percent(o.interrupts.empty_notifications, o.interrupts.notifications)
    }),
    quantity("reaped_by_poll", "completions by polling", Percent, INTERRUPTS, |o| {
        percent(o.interrupts.reaped_by_poll, o.interrupts.completions())
    }),
    quantity("reaped_by_check", "completions by the look", Percent, INTERRUPTS, |o| {
        percent(o.interrupts.reaped_by_check, o.interrupts.completions())
    }),
    quantity("look_hits", "looks that saw one", Percent, INTERRUPTS, |o| {
        percent(o.interrupts.look_hits, o.interrupts.looks)
    }),
    quantity("look_lock_failures", "hits while another reaped", Percent, INTERRUPTS, |o| {
        percent(o.interrupts.look_lock_failures, o.interrupts.look_hits)
    }),
    quantity("overtaken_handlers", "handlers that were overtaken", Percent, INTERRUPTS, |o| {
        percent(o.interrupts.overtaken_handlers, o.interrupts.handlers)
    }),
    quantity("remote_completions", "completions on another CPU", Percent, INTERRUPTS, |o| {
        percent(o.interrupts.remote_completions, o.interrupts.remote_completions + o.interrupts.local_completions)
    }),
    quantity("local_completions", "on their submitter's CPU", Percent, INTERRUPTS, |o| {
        percent(o.interrupts.local_completions, o.interrupts.remote_completions + o.interrupts.local_completions)
    }),
    quantity("sent_completions", "sent there by another CPU", Percent, INTERRUPTS, |o| {
        percent(o.interrupts.sent_completions, o.interrupts.remote_completions + o.interrupts.local_completions)
    }),
    quantity("ipis", "IPIs of the block layer", PerSecond, INTERRUPTS, |o| per_second(o, o.interrupts.ipis)),
    quantity("irq_longest", "longest interrupt", Nanoseconds, INTERRUPTS, |o| {
        o.interrupts.longest_ns.map(|ns| ns as f64)
    }),
];

/// The use of the CPUs' time, for every kind.
pub(crate) const CPU: &[Quantity] = &[
    quantity("cpu_user", "user", Percent, CPU_TIME, |o| cpu_share(o, |c| c.user_ns)),
    quantity("cpu_system", "system", Percent, CPU_TIME, |o| cpu_share(o, |c| c.system_ns)),
    quantity("cpu_irq", "interrupt", Percent, CPU_TIME, |o| cpu_share(o, |c| c.irq_ns)),
    quantity("cpu_idle", "idle", Percent, CPU_TIME, |o| cpu_share(o, |c| c.idle_ns)),
];

/// A quantity of the published tables whose name or unit differs from ours.
pub struct Published {
    /// As published.
    pub name: &'static str,
    /// Its value in one run, in the published unit.
    pub of: fn(&Outcome) -> Option<f64>,
}

pub(crate) fn per_second(outcome: &Outcome, count: u64) -> Option<f64> {
    ratio_f(count as f64 * 1e9, outcome.span_ns as f64)
}

pub(crate) fn percent(a: u64, b: u64) -> Option<f64> {
    ratio(a, b).map(|share| share * 100.0)
}

pub(crate) fn ratio_f(a: f64, b: f64) -> Option<f64> {
    (b != 0.0).then(|| a / b)
}

fn cpu_share(outcome: &Outcome, part: fn(&CpuTime) -> u64) -> Option<f64> {
    percent(outcome.cpus.iter().map(part).sum(), outcome.cpus.iter().map(CpuTime::total_ns).sum())
}

pub(crate) fn mean(latency: &Latency) -> Option<f64> {
    (latency.count != 0).then_some(latency.mean_ns)
}

pub(crate) fn at(latency: &Latency, percentile: usize) -> Option<f64> {
    (latency.count != 0).then(|| latency.percentiles_ns[percentile] as f64)
}
