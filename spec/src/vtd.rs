//! Intel VT-d, as far as interrupts go: registers, remapping entries, posted descriptors, queued invalidation.
//!
//! Source: Intel Virtualization Technology for Directed I/O, Architecture Specification (revisions 3.x and 4.x agree on
//! all of it); clauses are named by their titles, whose numbers differ between revisions.

pub mod invalidation;
pub mod irte;
pub mod posted;
pub mod registers;
