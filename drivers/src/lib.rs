//! See ARCHITECTURE.md.
#![no_std]
extern crate alloc;

pub mod nvme;
