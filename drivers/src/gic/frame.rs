//! Register access, restricted to the operations that each register allows.

use crate::register::Width;
use hal::Regs;
use spec::gic::IntId;
use spec::register::{Readable, Register, Registers, Strobe, Writable};

/// A part of a window of registers: the distributor, one redistributor, the CPU interface.
pub struct Frame<'a, R> {
    regs: &'a R,
    base: u32,
}

impl<'a, R: Regs> Frame<'a, R> {
    /// The frame that begins `base` bytes into the window.
    pub fn new(regs: &'a R, base: u32) -> Self {
        Self { regs, base }
    }

    /// Reads a register.
    pub fn read<T: Width, A: Readable>(&self, register: Register<T, A>) -> T {
        T::read(self.regs, self.base + register.offset())
    }

    /// Writes a register.
    pub fn write<T: Width, A: Writable>(&self, register: Register<T, A>, value: T) {
        value.write(self.regs, self.base + register.offset());
    }

    /// Reads, changes and writes back a register. The caller must exclude concurrent changes.
    pub fn modify<T: Width, A: Readable + Writable>(&self, register: Register<T, A>, change: impl FnOnce(T) -> T) {
        self.write(register, change(self.read(register)));
    }

    /// Writes `bits`. The register acts on the ones and ignores the zeros, so no lock is needed.
    pub fn strobe<A: Strobe>(&self, register: Register<u32, A>, bits: u32) {
        bits.write(self.regs, self.base + register.offset());
    }

    /// Writes the bit of one interrupt.
    pub fn strobe_one<A: Strobe>(&self, registers: Registers<u32, A>, intid: IntId) {
        self.strobe(registers.get(intid.0 / 32), 1 << (intid.0 % 32));
    }

    /// The bit of one interrupt.
    pub fn bit<A: Readable>(&self, registers: Registers<u32, A>, intid: IntId) -> bool {
        self.read(registers.get(intid.0 / 32)) & (1 << (intid.0 % 32)) != 0
    }

    /// Changes one interrupt's `BITS`-wide field in a shared register. The caller must exclude concurrent changes.
    pub fn modify_field<A: Readable + Writable>(
        &self,
        registers: Registers<u32, A>,
        intid: IntId,
        bits: u32,
        change: impl FnOnce(u32) -> u32,
    ) {
        let (per_register, mask) = (32 / bits, (1u32 << bits) - 1);
        let shift = intid.0 % per_register * bits;
        self.modify(registers.get(intid.0 / per_register), |word| {
            word & !(mask << shift) | (change((word >> shift) & mask) & mask) << shift
        });
    }
}
