//! PCI functions, as far as their interrupts need them.

mod msix;

pub use msix::{MsixCapability, MsixError, MsixTable};
