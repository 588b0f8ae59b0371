//! Registers as constants: an offset with a width and an access.
//!
//! What may be done to a register follows from its type, so that a write to a read-only register does not compile. A
//! model takes the offsets ([`Register::offset`]).

use core::marker::PhantomData;

/// The accesses that a register allows.
pub trait Access {}
/// A register that can be read.
pub trait Readable: Access {}
/// A write replaces the whole value.
pub trait Writable: Access {}
/// A write acts where it has ones, and leaves alone where it has zeros. Reading such a register and writing the value
/// back acts on every bit that reads 1, so there is no way to do it.
pub trait Strobe: Access {}

macro_rules! access {
    ($($(#[$doc:meta])* $name:ident: $($can:ident)*;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum $name {}
        impl Access for $name {}
        $(impl $can for $name {})*
    )*};
}

access! {
    /// Reads only; a write is ignored.
    ReadOnly: Readable;
    /// Write-only; a read returns an unknown value.
    WriteOnly: Writable;
    /// Can be read, changed and written back.
    ReadWrite: Readable Writable;
    /// Reads the state; a write of 1 sets it.
    OneToSet: Readable Strobe;
    /// Reads the state; a write of 1 clears it.
    OneToClear: Readable Strobe;
}

/// A register: its offset, its width `T` (`u8` to `u64`) and its access `A`.
#[derive(Debug)]
pub struct Register<T, A> {
    offset: u32,
    marker: PhantomData<fn() -> (T, A)>,
}

impl<T, A> Clone for Register<T, A> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T, A> Copy for Register<T, A> {}

impl<T, A> Register<T, A> {
    /// The register at `offset` of its frame: bytes, or the encoding of a system register ([`crate::gic::icc`]).
    pub const fn at(offset: u32) -> Self {
        Self { offset, marker: PhantomData }
    }

    /// Its offset.
    pub const fn offset(self) -> u32 {
        self.offset
    }

    /// The same register of a block that begins at `base`.
    pub const fn behind(self, base: u32) -> Self {
        Self::at(base + self.offset)
    }
}

/// Registers of one kind at equal distances.
#[derive(Debug)]
pub struct Registers<T, A> {
    first: u32,
    count: u32,
    stride: u32,
    marker: PhantomData<fn() -> (T, A)>,
}

impl<T, A> Clone for Registers<T, A> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T, A> Copy for Registers<T, A> {}

impl<T, A> Registers<T, A> {
    /// `count` registers from `first` on, each right behind the one before.
    pub const fn at(first: u32, count: u32) -> Self {
        Self::spaced(first, count, size_of::<T>() as u32)
    }

    /// `count` registers from `first` on, each `stride` behind the one before.
    pub const fn spaced(first: u32, count: u32, stride: u32) -> Self {
        Self { first, count, stride, marker: PhantomData }
    }

    /// Offset of the first.
    pub const fn first(self) -> u32 {
        self.first
    }

    /// How many there are room for.
    pub const fn count(self) -> u32 {
        self.count
    }

    /// The one numbered `index`.
    ///
    /// # Panics
    /// When there are not that many.
    pub const fn get(self, index: u32) -> Register<T, A> {
        assert!(index < self.count, "register beyond the last of its kind");
        Register::at(self.first + index * self.stride)
    }

    /// Which of them is at `offset`; none when it lies outside or inside of one.
    pub const fn index_of(self, offset: u32) -> Option<u32> {
        if offset < self.first {
            return None;
        }
        let bytes = offset - self.first;
        if bytes.is_multiple_of(self.stride) && bytes / self.stride < self.count {
            Some(bytes / self.stride)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_is_found_and_nothing_beside_it() {
        let registers: Registers<u64, ReadWrite> = Registers::at(0x6000, 1020);
        assert_eq!(registers.get(32).offset(), 0x6100);
        assert_eq!(registers.index_of(0x6100), Some(32));
        assert_eq!(registers.index_of(0x6104), None, "the upper half of one");
        assert_eq!(registers.index_of(0x5ff8), None);
        assert_eq!(registers.index_of(0x6000 + 8 * 1020), None);
        let banks: Registers<u32, ReadOnly> = Registers::spaced(0x200, 8, 0x10);
        assert_eq!((banks.get(7).offset(), banks.index_of(0x270), banks.index_of(0x204)), (0x270, Some(7), None));
        assert_eq!(banks.get(1).behind(0x1000).offset(), 0x1210);
    }
}
