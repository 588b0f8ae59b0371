//! Register windows: memory-mapped, and the local APIC's model-specific registers.

use super::{read_msr, write_msr};
use crate::kernel::mmio::Mmio;
use hal::Regs;

/// A window of registers.
#[derive(Clone, Copy)]
pub(crate) enum Registers {
    /// Memory-mapped.
    Mmio(Mmio),
    /// Model-specific, by their number.
    Msr,
}

impl Regs for Registers {
    fn read32(&self, offset: u32) -> u32 {
        match self {
            Self::Mmio(mmio) => mmio.read(offset),
            Self::Msr => read_msr(offset) as u32,
        }
    }
    fn write32(&self, offset: u32, value: u32) {
        match self {
            Self::Mmio(mmio) => mmio.write(offset, value),
            Self::Msr => write_msr(offset, value.into()),
        }
    }
    fn read64(&self, offset: u32) -> u64 {
        match self {
            Self::Mmio(mmio) => mmio.read(offset),
            Self::Msr => read_msr(offset),
        }
    }
    fn write64(&self, offset: u32, value: u64) {
        match self {
            Self::Mmio(mmio) => mmio.write(offset, value),
            Self::Msr => write_msr(offset, value),
        }
    }
}
