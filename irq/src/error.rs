use core::fmt;

/// Why an interrupt operation was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IrqError {
    /// A chip lacks the named operation.
    NotSupported(&'static str),
}

impl fmt::Display for IrqError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSupported(operation) => write!(f, "the interrupt chip has no {operation}"),
        }
    }
}

impl core::error::Error for IrqError {}
