//! The variants of a network experiment: the transport of the device and the distribution of its interrupts.

use super::Network;
use super::plan::IRQS_MAX;
use crate::input::InputError;
use crate::kinds::Variant;
use crate::platform::Unit;
use crate::setting::Setting;
use std::fmt;

/// The transport of the device and the distribution of its interrupts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum NetworkVariant {
    /// The MMIO transport.
    Mmio {
        /// The number of interrupts. Vector n goes to CPU n, unless one vector serves the configuration alone.
        irqs: u16,
        /// The mapping of queues to vectors.
        mapping: Mapping,
    },
    /// PCI with MSI-X: a vector for each queue and one for the configuration.
    Pci,
}

/// The mapping of queues to vectors when queues and configuration want more vectors than there are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Mapping {
    /// The k-th queue that wants interrupts gets k mod n; the configuration shares vector 0.
    Spread,
    /// Vector 0 serves the configuration alone, and queues share the rest: the ladder of virtio-pci.
    Ladder,
    /// Queue i gets (i / 2) mod n, even if it wants no interrupts: fixed, as in the series of 2023.
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
    /// The valid names, for an error message.
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

impl Variant for NetworkVariant {
    type Kind = Network;

    /// For example `8 IRQs mapping=fixed`.
    fn read(name: &Setting) -> Result<Self, InputError> {
        let wrong = || name.wrong("is no variant", Self::VALID);
        let mut words = name.text.split_whitespace();
        let (Some(irqs), Some(noun)) = (words.next(), words.next()) else {
            return if name.text.trim() == "virtio-pci" { Ok(Self::Pci) } else { Err(wrong()) };
        };
        let mapping = match words.next().map(|word| word.split_once('=')) {
            None => Mapping::Spread,
            Some(Some(("mapping", name))) => {
                Mapping::ALL.into_iter().find(|mapping| mapping.name() == name).ok_or_else(wrong)?
            }
            Some(_) => return Err(wrong()),
        };
        if !matches!(noun, "IRQ" | "IRQs") || words.next().is_some() {
            return Err(wrong());
        }
        let irqs = Setting { text: irqs.into(), ..name.clone() };
        let irqs = Unit::Count.read(&irqs, 1.0, IRQS_MAX.into())? as u16;
        Ok(Self::Mmio { irqs, mapping })
    }
}
