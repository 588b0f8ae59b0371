//! The measurements of an accelerator experiment.

use super::page;
use crate::kinds::{Measured, Section};
use crate::outcome::quantity::{CPU, MSI_PATH, THROUGHPUT, at, mean, per_second, percent, quantity};
use crate::outcome::{Bottleneck, DevicePart, Headline, Latency, Outcome, Quantity, Unit, ratio};
use crate::report::RunReport;
use Unit::{BytesPerSecond, Nanoseconds, PerSecond, Percent, Ratio};
use serde::{Deserialize, Serialize};

/// An engine is busy all the time.
const ENGINE: Bottleneck = Bottleneck::Device(DevicePart { id: "engine", name: "engine" });
/// The link of a device is never free.
const DEVICE_LINK: Bottleneck = Bottleneck::Device(DevicePart { id: "device_link", name: "device link" });

/// The measurements of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AcceleratorOutcome {
    /// Descriptors whose completion the handlers saw.
    pub descriptors: u64,
    /// Bytes that they filled.
    pub bytes: u64,
    /// Descriptors that ended with an error.
    pub errors: u64,
    /// Harvest passes that found something, final ones included.
    pub passes: u64,
    /// The time from submission until the handler sees the completion.
    pub latency: Latency,
    /// From the local timer's expiry to its handler.
    pub timer_wait: Latency,
    /// One entry a device.
    pub devices: Vec<StreamDevice>,
}

/// One device's share of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StreamDevice {
    /// Descriptors that it completed.
    pub descriptors: u64,
    /// Fraction of the span in which its engine served.
    pub engine_busy: f64,
    /// Fraction of the span in which its link was moving data.
    pub link_busy: f64,
    /// Fraction of the span in which the link had to stay free behind the device's own MSIs.
    pub link_held: f64,
}

impl Measured for AcceleratorOutcome {
    fn quantities(&self) -> Vec<Quantity> {
        [STREAMS, MSI_PATH, CPU, LATENCIES].concat()
    }

    fn headline(&self) -> Headline {
        Headline {
            id: "irqs",
            unit: PerSecond,
            name: "descriptors a second",
            beside: ("timer_wait_p99", Nanoseconds, "p99 of a timer's waiting"),
        }
    }

    fn page(&self, report: &RunReport) -> String {
        page::sections(report)
    }

    fn devices(&self) -> Vec<(Bottleneck, f64)> {
        let busiest = |of: fn(&StreamDevice) -> f64| self.devices.iter().map(of).fold(0.0, f64::max);
        vec![
            (ENGINE, busiest(|device| device.engine_busy)),
            (DEVICE_LINK, busiest(|device| device.link_busy + device.link_held)),
        ]
    }
}

impl From<AcceleratorOutcome> for Section {
    fn from(outcome: AcceleratorOutcome) -> Self {
        Self::Accelerator(outcome)
    }
}

impl Outcome {
    /// The streams of an accelerator experiment.
    pub fn accelerator(&self) -> Option<&AcceleratorOutcome> {
        self.own()
    }
}

const LATENCY: &str = "Descriptor latency";
const WAITING: &str = "Waiting of the local timer";

const STREAMS: &[Quantity] = &[
    // The published tables count a completed descriptor as an interrupt, and so name it.
    quantity("irqs", "descriptors together", PerSecond, THROUGHPUT, |o| per_second(o, o.accelerator()?.descriptors)),
    quantity("bandwidth", "bandwidth", BytesPerSecond, THROUGHPUT, |o| per_second(o, o.accelerator()?.bytes)),
    quantity("errors", "descriptors in error", Percent, THROUGHPUT, |o| {
        percent(o.accelerator()?.errors, o.accelerator()?.descriptors)
    }),
    // A fair share is 100 % over the number of devices. A stream that another stream's interrupts starve has none.
    quantity("slowest_stream", "slowest stream's share", Percent, THROUGHPUT, |o| {
        let devices = &o.accelerator()?.devices;
        let all = devices.iter().map(|device| device.descriptors).sum();
        percent(devices.iter().map(|device| device.descriptors).min()?, all)
    }),
    quantity("descriptors_per_notification", "descriptors a notification", Ratio, THROUGHPUT, |o| {
        ratio(o.accelerator()?.descriptors, o.interrupts.notifications)
    }),
    quantity("passes_per_notification", "harvests a notification", Ratio, THROUGHPUT, |o| {
        ratio(o.accelerator()?.passes, o.interrupts.notifications)
    }),
];

const LATENCIES: &[Quantity] = &[
    quantity("latency", "mean", Nanoseconds, LATENCY, |o| mean(&o.accelerator()?.latency)),
    quantity("latency_p50", "p50", Nanoseconds, LATENCY, |o| at(&o.accelerator()?.latency, 0)),
    quantity("latency_p99", "p99", Nanoseconds, LATENCY, |o| at(&o.accelerator()?.latency, 2)),
    quantity("timer_wait", "mean", Nanoseconds, WAITING, |o| mean(&o.accelerator()?.timer_wait)),
    quantity("timer_wait_p99", "p99", Nanoseconds, WAITING, |o| at(&o.accelerator()?.timer_wait, 2)),
    quantity("timer_wait_max", "longest", Nanoseconds, WAITING, |o| {
        let wait = &o.accelerator()?.timer_wait;
        (wait.count != 0).then_some(wait.max_ns as f64)
    }),
];
