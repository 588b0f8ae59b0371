//! The path of PCI messages to their CPUs: the wished one where the hardware supports it, else the next best.

use alloc::vec::Vec;
use core::fmt;
use drivers::vtd::VtdError;

/// A path of messages, in ascending order of preference.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Path {
    /// Straight to the local APIC: any device can raise any vector of any CPU.
    Plain,
    /// Through an entry of a remapping table.
    Remapped,
    /// Through an entry of a remapping table and a posted descriptor: many interrupts, one notification.
    #[default]
    Posted,
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "plain",
            Self::Remapped => "remapped",
            Self::Posted => "posted",
        })
    }
}

/// Why messages take another path than wished.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fallback {
    /// The machine has no remapping unit.
    NoUnit,
    /// The unit lacks what remapping needs.
    Remapping(VtdError),
    /// The unit remaps and cannot post.
    Posting(VtdError),
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoUnit => write!(f, "there is no remapping unit"),
            Self::Remapping(error) | Self::Posting(error) => write!(f, "{error}"),
        }
    }
}

/// The path of the messages behind one remapping unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnitPolicy {
    /// The path that they take.
    pub path: Path,
    /// Why it is not the wished path; none if it is.
    pub fallback: Option<Fallback>,
}

/// The paths of all messages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    /// The wished path.
    pub wish: Path,
    /// The result per remapping unit. A machine without units has one entry.
    pub units: Vec<UnitPolicy>,
}

impl Policy {
    /// True if all messages take the wished path.
    pub fn is_met(&self) -> bool {
        self.units.iter().all(|unit| unit.fallback.is_none())
    }
}

/// Prints one line if all units agree, else one clause per unit.
impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clause = |f: &mut fmt::Formatter<'_>, unit: &UnitPolicy| match unit.fallback {
            Some(why) => write!(f, "{}, not {}: {why}", unit.path, self.wish),
            None => write!(f, "{}", unit.path),
        };
        write!(f, "messages ")?;
        let Some(first) = self.units.first() else { return write!(f, "{}", self.wish) };
        if self.units.iter().all(|unit| unit == first) {
            return clause(f, first);
        }
        for (index, unit) in self.units.iter().enumerate() {
            write!(f, "{}unit {index} ", if index == 0 { "" } else { "; " })?;
            clause(f, unit)?;
        }
        Ok(())
    }
}
