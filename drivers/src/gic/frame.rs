//! Access to registers by what they allow.

use hal::Regs;
use spec::gic::{IntId, Readable, Register, Registers, Strobe, Writable};

/// A register's width.
pub trait Width: Copy {
    /// Reads it.
    fn read(regs: &impl Regs, offset: u32) -> Self;
    /// Writes it.
    fn write(self, regs: &impl Regs, offset: u32);
}

impl Width for u32 {
    fn read(regs: &impl Regs, offset: u32) -> Self {
        regs.read32(offset)
    }
    fn write(self, regs: &impl Regs, offset: u32) {
        regs.write32(offset, self);
    }
}

impl Width for u64 {
    fn read(regs: &impl Regs, offset: u32) -> Self {
        regs.read64(offset)
    }
    fn write(self, regs: &impl Regs, offset: u32) {
        regs.write64(offset, self);
    }
}

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

    /// What a register reads.
    pub fn read<T: Width, A: Readable>(&self, register: Register<T, A>) -> T {
        T::read(self.regs, self.base + register.offset())
    }

    /// Gives a register a value.
    pub fn write<T: Width, A: Writable>(&self, register: Register<T, A>, value: T) {
        value.write(self.regs, self.base + register.offset());
    }

    /// Changes a register. The caller keeps others from doing so meanwhile.
    pub fn modify<T: Width, A: Readable + Writable>(&self, register: Register<T, A>, change: impl FnOnce(T) -> T) {
        self.write(register, change(self.read(register)));
    }

    /// Acts where `bits` has ones, and nowhere else: no lock is needed.
    pub fn strobe<A: Strobe>(&self, register: Register<u32, A>, bits: u32) {
        bits.write(self.regs, self.base + register.offset());
    }

    /// Acts on one interrupt.
    pub fn strobe_one<A: Strobe>(&self, registers: Registers<u32, A>, intid: IntId) {
        self.strobe(registers.get(intid.0 / 32), 1 << (intid.0 % 32));
    }

    /// The bit of one interrupt.
    pub fn bit<A: Readable>(&self, registers: Registers<u32, A>, intid: IntId) -> bool {
        self.read(registers.get(intid.0 / 32)) & (1 << (intid.0 % 32)) != 0
    }

    /// Changes one interrupt's field of `BITS` bits among those that share a register. The caller keeps others away.
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
