//! Access to registers, limited to what their declarations allow ([`spec::register`]).
//!
//! A register that can be read and written:
//!
//! ```
//! use campanile_drivers::register::Typed;
//! fn stop(regs: &impl hal::Regs) {
//!     regs.modify(spec::nvme::registers::CC, |word| word & !1);
//! }
//! ```
//!
//! A read-only register cannot be written:
//!
//! ```compile_fail
//! use campanile_drivers::register::Typed;
//! fn wrong(regs: &impl hal::Regs) {
//!     regs.write(spec::nvme::registers::CAP, 0);
//! }
//! ```
//!
//! A write-only register cannot be read:
//!
//! ```compile_fail
//! use campanile_drivers::register::Typed;
//! fn wrong(regs: &impl hal::Regs) -> u32 {
//!     regs.read(spec::vtd::registers::GCMD)
//! }
//! ```
//!
//! A register in which 1 clears a bit cannot be changed by reading and writing back, which would clear every bit that is
//! set:
//!
//! ```compile_fail
//! use campanile_drivers::register::Typed;
//! fn wrong(regs: &impl hal::Regs) {
//!     regs.modify(spec::vtd::registers::FSTS, |word| word | 1);
//! }
//! ```
//!
//! Nor can one in which 1 sets a bit:
//!
//! ```compile_fail
//! use campanile_drivers::register::Typed;
//! fn wrong(regs: &impl hal::Regs) {
//!     regs.modify(spec::nvme::registers::INTMS, |word| word | 1);
//! }
//! ```
//!
//! Both act where ones are written:
//!
//! ```
//! use campanile_drivers::register::Typed;
//! fn right(regs: &impl hal::Regs) -> u64 {
//!     regs.strobe(spec::vtd::registers::FSTS, 1);
//!     regs.strobe(spec::nvme::registers::INTMS, 1);
//!     regs.write(spec::vtd::registers::GCMD, 0);
//!     regs.read(spec::nvme::registers::CAP)
//! }
//! ```
//!
//! The width of a value is its register's:
//!
//! ```compile_fail
//! use campanile_drivers::register::Typed;
//! fn wrong(regs: &impl hal::Regs) -> u32 {
//!     regs.read(spec::nvme::registers::CAP)
//! }
//! ```

use hal::Regs;
use spec::register::{Readable, Register, Strobe, Writable};

/// A register's width.
pub trait Width: Copy {
    /// Reads it.
    fn read(regs: &(impl Regs + ?Sized), offset: u32) -> Self;
    /// Writes it.
    fn write(self, regs: &(impl Regs + ?Sized), offset: u32);
}

impl Width for u8 {
    #[inline]
    fn read(regs: &(impl Regs + ?Sized), offset: u32) -> Self {
        regs.read8(offset)
    }
    #[inline]
    fn write(self, regs: &(impl Regs + ?Sized), offset: u32) {
        regs.write8(offset, self);
    }
}

impl Width for u16 {
    #[inline]
    fn read(regs: &(impl Regs + ?Sized), offset: u32) -> Self {
        regs.read16(offset)
    }
    #[inline]
    fn write(self, regs: &(impl Regs + ?Sized), offset: u32) {
        regs.write16(offset, self);
    }
}

impl Width for u32 {
    #[inline]
    fn read(regs: &(impl Regs + ?Sized), offset: u32) -> Self {
        regs.read32(offset)
    }
    #[inline]
    fn write(self, regs: &(impl Regs + ?Sized), offset: u32) {
        regs.write32(offset, self);
    }
}

impl Width for u64 {
    #[inline]
    fn read(regs: &(impl Regs + ?Sized), offset: u32) -> Self {
        regs.read64(offset)
    }
    #[inline]
    fn write(self, regs: &(impl Regs + ?Sized), offset: u32) {
        regs.write64(offset, self);
    }
}

/// A window of registers, by their declarations.
pub trait Typed: Regs {
    /// The value of a register.
    #[inline]
    fn read<T: Width, A: Readable>(&self, register: Register<T, A>) -> T {
        T::read(self, register.offset())
    }

    /// Gives a register a value.
    #[inline]
    fn write<T: Width, A: Writable>(&self, register: Register<T, A>, value: T) {
        value.write(self, register.offset());
    }

    /// Changes a register. The caller keeps others from doing so meanwhile.
    #[inline]
    fn modify<T: Width, A: Readable + Writable>(&self, register: Register<T, A>, change: impl FnOnce(T) -> T) {
        self.write(register, change(self.read(register)));
    }

    /// Acts where `bits` has ones, and nowhere else: no lock is needed.
    #[inline]
    fn strobe<T: Width, A: Strobe>(&self, register: Register<T, A>, bits: T) {
        bits.write(self, register.offset());
    }
}

impl<R: Regs + ?Sized> Typed for R {}
