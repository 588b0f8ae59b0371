//! PCI functions: what their interrupts need.

mod msix;

pub use msix::{MsixCapability, MsixError, MsixTable};
