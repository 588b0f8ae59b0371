//! Software posting: the device posts, without a remapping unit. Source: docs/software-posting.md ("SP").
//!
//! The hierarchy is that of posted delivery with the device's own block in the remapping unit's place:
//! VECTOR → SW-POST → PCI-MSIX. Descriptors, notification handler and vectors are those of [`irq::posted`].

mod block;
mod domain;
mod error;
#[cfg(test)]
mod tests;

pub use block::{PostingBlock, PostingCapability, PostingCounts, PostingFault};
pub use domain::PostingDomain;
pub use error::PostingError;
