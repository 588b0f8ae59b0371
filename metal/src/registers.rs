//! Registers in memory or in the CPU.

use crate::{CpuRegisters, Mmio};
use hal::Regs;

/// A window of registers, for kernels that have both kinds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Registers {
    /// In memory.
    Mmio(Mmio),
    /// Registers of the interrupt controller in the CPU itself. They have no narrow accesses.
    Cpu(CpuRegisters),
}

impl Regs for Registers {
    #[inline]
    fn read32(&self, offset: u32) -> u32 {
        match self {
            Self::Mmio(mmio) => mmio.read32(offset),
            Self::Cpu(cpu) => cpu.read32(offset),
        }
    }
    #[inline]
    fn write32(&self, offset: u32, value: u32) {
        match self {
            Self::Mmio(mmio) => mmio.write32(offset, value),
            Self::Cpu(cpu) => cpu.write32(offset, value),
        }
    }
    #[inline]
    fn read64(&self, offset: u32) -> u64 {
        match self {
            Self::Mmio(mmio) => mmio.read64(offset),
            Self::Cpu(cpu) => cpu.read64(offset),
        }
    }
    #[inline]
    fn write64(&self, offset: u32, value: u64) {
        match self {
            Self::Mmio(mmio) => mmio.write64(offset, value),
            Self::Cpu(cpu) => cpu.write64(offset, value),
        }
    }
    #[inline]
    fn read8(&self, offset: u32) -> u8 {
        match self {
            Self::Mmio(mmio) => mmio.read8(offset),
            Self::Cpu(cpu) => cpu.read8(offset),
        }
    }
    #[inline]
    fn write8(&self, offset: u32, value: u8) {
        match self {
            Self::Mmio(mmio) => mmio.write8(offset, value),
            Self::Cpu(cpu) => cpu.write8(offset, value),
        }
    }
    #[inline]
    fn read16(&self, offset: u32) -> u16 {
        match self {
            Self::Mmio(mmio) => mmio.read16(offset),
            Self::Cpu(cpu) => cpu.read16(offset),
        }
    }
    #[inline]
    fn write16(&self, offset: u32, value: u16) {
        match self {
            Self::Mmio(mmio) => mmio.write16(offset, value),
            Self::Cpu(cpu) => cpu.write16(offset, value),
        }
    }
}
