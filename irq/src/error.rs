use crate::Target;
use core::fmt;

/// Why an interrupt operation was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IrqError {
    /// A chip lacks the named operation.
    NotSupported(&'static str),
    /// A domain has no number left of the named kind, of which there are this many.
    Exhausted(&'static str, u32),
    /// The target's CPU or vector is none that the named controller can deliver to.
    Target(&'static str, Target),
    /// The line cannot be delivered as asked, for this reason.
    Delivery(&'static str),
    /// The named controller did not do what it was told, for this reason.
    Hardware(&'static str, &'static str),
}

impl fmt::Display for IrqError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSupported(operation) => write!(f, "the interrupt chip has no {operation}"),
            Self::Exhausted(kind, count) => write!(f, "all {count} {kind} are taken"),
            Self::Target(controller, target) => {
                write!(f, "{controller} cannot deliver to CPU {} vector {:#04x}", target.cpu, target.vector.0)
            }
            Self::Delivery(reason) => write!(f, "{reason}"),
            Self::Hardware(controller, reason) => write!(f, "{controller}: {reason}"),
        }
    }
}

impl core::error::Error for IrqError {}
