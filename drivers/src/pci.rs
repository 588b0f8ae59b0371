//! PCI functions, as far as their interrupts need them.

pub(crate) mod list;
mod msix;

pub use msix::{MsixCapability, MsixError, MsixTable};
