//! A network experiment: flows through a guest whose network device has one or several interrupts.

use super::Plan;
use crate::input::InputError;
use std::fmt;

/// Flows from the host into a guest, which sends every packet back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Network {
    /// Flows, each with a receive queue of its own, and one more queue to send back by.
    pub flows: u32,
    /// How the lines of the device on the MMIO transport are wired.
    pub trigger: Trigger,
    /// Whether level-triggered lines have a resampler.
    pub resampler: bool,
    /// Threads of the back end.
    pub workers: Workers,
    /// Packets that a queue may be polled for before the next one's turn.
    pub weight: u32,
}

/// How a line is wired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trigger {
    /// An interrupt is a pulse.
    Edge,
    /// An interrupt is a level, until it is acknowledged.
    Level,
}

/// Threads of the back end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Workers {
    /// One a queue pair.
    Pair,
    /// One for the device.
    Device,
}

/// How the device is reached and its interrupts are shared out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum NetworkVariant {
    /// The MMIO transport.
    Mmio {
        /// Interrupts; vector n goes to CPU n, unless the configuration has one alone.
        irqs: u16,
        /// Which queue gets which.
        mapping: Mapping,
    },
    /// PCI with MSI-X: a vector for each queue and one for the configuration.
    Pci,
}

/// Which queue gets which vector, when there are fewer than queues and configuration want.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Mapping {
    /// The k-th queue that wants interrupts gets k mod n; the configuration shares vector 0.
    Spread,
    /// The configuration has vector 0 alone, queues share the rest: the ladder of virtio-pci.
    Ladder,
    /// Queue i gets (i / 2) mod n, whatever it wants: fixed, as in the series of 2023.
    Fixed,
}

impl Mapping {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Spread, Self::Ladder, Self::Fixed];

    /// Its name in scenario files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Spread => "spread",
            Self::Ladder => "ladder",
            Self::Fixed => "fixed",
        }
    }
}

impl NetworkVariant {
    /// What would be valid, for an error.
    pub const VALID: &str = "1 IRQ, 8 IRQs, 8 IRQs mapping=ladder, 8 IRQs mapping=fixed, virtio-pci";
}

impl fmt::Display for NetworkVariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pci => f.pad("virtio-pci"),
            Self::Mmio { irqs, mapping } => {
                let irqs = format!("{irqs} IRQ{}", if *irqs == 1 { "" } else { "s" });
                match mapping {
                    Mapping::Spread => f.pad(&irqs),
                    mapping => f.pad(&format!("{irqs} mapping={}", mapping.name())),
                }
            }
        }
    }
}

impl Network {
    /// Checks that the guest can be built on `plan`'s machine.
    pub(super) fn validate(&self, plan: &Plan) -> Result<(), InputError> {
        let wrong = |key: &str, value: String, why: &str, valid: String| {
            Err(InputError::value(&plan.source, key.to_owned(), value, why, valid))
        };
        if plan.platform.vhost.is_none() {
            let why = "has no virtual machine";
            return wrong("platform", plan.platform.name.clone(), why, "one with [vhost]".into());
        }
        if self.flows == 0 || self.flows > plan.cpus.min(FLOWS_MAX) {
            let valid = format!("1 to {}: a CPU each", plan.cpus.min(FLOWS_MAX));
            return wrong("network.flows", self.flows.to_string(), "is out of bounds", valid);
        }
        Ok(())
    }
}

/// Most flows; with a line each they still fit an I/O APIC.
pub const FLOWS_MAX: u32 = 64;
/// Most interrupts of a device on the MMIO transport: the pins of the guest's I/O APIC.
pub const IRQS_MAX: u16 = 64;
