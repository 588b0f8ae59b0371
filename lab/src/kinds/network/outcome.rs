//! The measurements of a network experiment.

use super::page;
use crate::kinds::{Measured, Section};
use crate::outcome::quantity::{CPU, THROUGHPUT, per_second, percent, quantity, ratio_f};
use crate::outcome::{Headline, Outcome, Quantity, Unit, ratio};
use crate::report::RunReport;
use Unit::{Nanoseconds, PerSecond, Percent, Ratio};
use serde::{Deserialize, Serialize};

/// The measurements of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NetworkOutcome {
    /// One entry a flow.
    pub flows: Vec<FlowOutcome>,
    /// Interrupts that the device raised.
    pub interrupts: u64,
    /// Notifications of queues by the guest, each an exit.
    pub kicks: u64,
    /// Reads of the interrupt status, each an exit.
    pub status_reads: u64,
    /// Acknowledgements of interrupts, each an exit.
    pub acknowledgements: u64,
    /// Polls of receive queues.
    pub polls: u64,
    /// Packets that the guest took.
    pub packets: u64,
    /// Packets that the guest could not send back because the queue had no room.
    pub reflect_drops: u64,
    /// Packets that came back behind a later one of their flow.
    pub disordered: u64,
}

/// One flow's share of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowOutcome {
    /// Packets that its sender sent.
    pub sent: u64,
    /// Packets that came back to its receiver.
    pub returned: u64,
    /// Of them: those whose time from sender to receiver is in `under_way_ns`.
    pub timed: u64,
    /// Sum of those times.
    pub under_way_ns: u64,
}

impl FlowOutcome {
    /// Share of its packets that did not come back.
    pub fn loss(&self) -> Option<f64> {
        percent(self.sent.saturating_sub(self.returned), self.sent)
    }
}

impl NetworkOutcome {
    fn sum(&self, of: impl Fn(&FlowOutcome) -> u64) -> u64 {
        self.flows.iter().map(of).sum()
    }

    /// Smallest and largest number of packets that came back, over flows.
    fn range(&self) -> (u64, u64) {
        let returned = || self.flows.iter().map(|flow| flow.returned);
        (returned().min().unwrap_or(0), returned().max().unwrap_or(0))
    }
}

impl Measured for NetworkOutcome {
    fn quantities(&self) -> Vec<Quantity> {
        [RATES, EXITS, CPU].concat()
    }

    fn headline(&self) -> Headline {
        Headline {
            id: "rx_pps_per_flow",
            unit: PerSecond,
            name: "packets a second, a flow",
            beside: ("loss", Percent, "lost"),
        }
    }

    fn page(&self, report: &RunReport) -> String {
        page::sections(report)
    }
}

impl From<NetworkOutcome> for Section {
    fn from(outcome: NetworkOutcome) -> Self {
        Self::Network(outcome)
    }
}

impl Outcome {
    /// The flows of a network experiment.
    pub fn network(&self) -> Option<&NetworkOutcome> {
        self.own()
    }
}

const FLOWS: &str = "Flows";
const SIGNALS: &str = "Signals";
const GUEST: &str = "Guest";

const RATES: &[Quantity] = &[
    quantity("rx_pps", "received back, together", PerSecond, THROUGHPUT, |o| {
        per_second(o, o.network()?.sum(|flow| flow.returned))
    }),
    quantity("rx_pps_per_flow", "received back, a flow", PerSecond, FLOWS, |o| {
        ratio_f(per_second(o, o.network()?.sum(|flow| flow.returned))?, o.network()?.flows.len() as f64)
    }),
    quantity("tx_pps_per_flow", "sent, a flow", PerSecond, FLOWS, |o| {
        ratio_f(per_second(o, o.network()?.sum(|flow| flow.sent))?, o.network()?.flows.len() as f64)
    }),
    quantity("loss", "lost", Percent, FLOWS, |o| {
        let all = o.network()?;
        percent(all.sum(|flow| flow.sent).saturating_sub(all.sum(|flow| flow.returned)), all.sum(|flow| flow.sent))
    }),
    quantity("latency", "from sender to receiver, mean", Nanoseconds, FLOWS, |o| {
        ratio(o.network()?.sum(|flow| flow.under_way_ns), o.network()?.sum(|flow| flow.timed))
    }),
    quantity("slowest_flow", "slowest flow", PerSecond, FLOWS, |o| per_second(o, o.network()?.range().0)),
    quantity("fastest_flow", "fastest flow", PerSecond, FLOWS, |o| per_second(o, o.network()?.range().1)),
    quantity("disordered", "out of order", Percent, FLOWS, |o| {
        percent(o.network()?.disordered, o.network()?.sum(|flow| flow.returned))
    }),
];

const EXITS: &[Quantity] = &[
    quantity("irqs", "interrupts raised", PerSecond, SIGNALS, |o| per_second(o, o.network()?.interrupts)),
    quantity("packets_per_irq", "packets an interrupt", Ratio, SIGNALS, |o| {
        ratio(o.network()?.packets, o.network()?.interrupts)
    }),
    quantity("irq_exits", "exits an interrupt, status and acknowledgement", Ratio, SIGNALS, |o| {
        ratio(o.network()?.status_reads + o.network()?.acknowledgements, o.network()?.interrupts)
    }),
    quantity("kicks", "kicks", PerSecond, SIGNALS, |o| per_second(o, o.network()?.kicks)),
    quantity("packets_per_poll", "packets a poll", Ratio, GUEST, |o| ratio(o.network()?.packets, o.network()?.polls)),
    quantity("reflect_drops", "not sent back for want of room", Percent, GUEST, |o| {
        percent(o.network()?.reflect_drops, o.network()?.packets)
    }),
];
