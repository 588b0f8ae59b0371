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
        /// What else differs from the extension's driver.
        apart: Apart,
    },
    /// PCI with MSI-X: a vector for each queue and one for the configuration.
    Pci,
}

/// A variant that has one of the two effects of several interrupts and lacks the other: queues on CPUs of their own, and
/// interrupts that cost no exit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Apart {
    /// Both effects: the extension as it is.
    Nothing,
    /// Queue k is polled on CPU k modulo the CPUs, whichever CPU is interrupted: what Linux does with a NAPI thread a
    /// queue, each on a CPU of its own. With one interrupt: the CPUs of several.
    Polls,
    /// Each interrupt costs a read of the status and an acknowledgement, as a single interrupt does.
    Status,
}

impl Apart {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Nothing, Self::Polls, Self::Status];

    /// Its words in a variant's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing => "",
            Self::Polls => "polls=spread",
            Self::Status => "status=read",
        }
    }
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
    /// The extension's driver with `irqs` interrupts, shared out by [`Mapping::Spread`].
    pub fn mmio(irqs: u16) -> Self {
        Self::Mmio { irqs, mapping: Mapping::Spread, apart: Apart::Nothing }
    }

    /// What differs from the extension's driver.
    pub fn apart(self) -> Apart {
        match self {
            Self::Mmio { apart, .. } => apart,
            Self::Pci => Apart::Nothing,
        }
    }

    /// The valid names, for an error message.
    pub const VALID: &str = "1 IRQ, 8 IRQs, 8 IRQs mapping=ladder, 8 IRQs mapping=fixed, \
                              1 IRQ polls=spread, 8 IRQs status=read, virtio-pci";
}

impl fmt::Display for NetworkVariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pci => f.pad("virtio-pci"),
            Self::Mmio { irqs, mapping, apart } => {
                let mut name = format!("{irqs} IRQ{}", if *irqs == 1 { "" } else { "s" });
                if *mapping != Mapping::Spread {
                    name = format!("{name} mapping={}", mapping.name());
                }
                if *apart != Apart::Nothing {
                    name = format!("{name} {}", apart.name());
                }
                f.pad(&name)
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
        let (mut mapping, mut apart) = (None, None);
        for word in words {
            let is_new = match word.strip_prefix("mapping=") {
                Some(name) => {
                    let found = Mapping::ALL.into_iter().find(|mapping| mapping.name() == name).ok_or_else(wrong)?;
                    mapping.replace(found).is_none()
                }
                None => {
                    let found = Apart::ALL.into_iter().find(|apart| apart.name() == word).ok_or_else(wrong)?;
                    apart.replace(found).is_none()
                }
            };
            if !is_new {
                return Err(wrong());
            }
        }
        if !matches!(noun, "IRQ" | "IRQs") {
            return Err(wrong());
        }
        let irqs = Setting { text: irqs.into(), ..name.clone() };
        let irqs = Unit::Count.read(&irqs, 1.0, IRQS_MAX.into())? as u16;
        let (mapping, apart) = (mapping.unwrap_or(Mapping::Spread), apart.unwrap_or(Apart::Nothing));
        Ok(Self::Mmio { irqs, mapping, apart })
    }
}
