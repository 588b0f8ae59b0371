//! The poster: a function that only raises its sources, from several threads at once, so that software posting
//! can be tried to its limits (SP, "The poster").
//!
//! A source is raised like this: its *sequence word* in memory is incremented by one atomic access; then its interrupt is
//! delivered. The handler of the interrupt after the last raise must find the word's final value.

use crate::register::{ReadOnly, ReadWrite, Register, Registers};
use bitfield_struct::bitfield;

/// PCI vendor: an id that is assigned to nobody.
pub const PCI_VENDOR: u16 = 0xfffe;
/// PCI device.
pub const PCI_DEVICE: u16 = 0x5057;
/// Class code: unassigned (PCI Code and ID Assignment Specification, class FFh).
pub const PCI_CLASS: u32 = 0xff_0000;

/// A [`Shape`].
pub const SHAPE: Register<u32, ReadOnly> = Register::at(0x00);
/// A [`Status`].
pub const STATUS: Register<u32, ReadWrite> = Register::at(0x04);
/// Address of the sequence words, 8 bytes a source.
pub const SEQUENCE: Register<u64, ReadWrite> = Register::at(0x08);
/// How often sources are to be raised, over all threads.
pub const RAISES: Register<u64, ReadWrite> = Register::at(0x10);
/// Seed of the threads' choices of sources.
pub const SEED: Register<u64, ReadWrite> = Register::at(0x18);
/// A thread raises 1 to so many sources at once, then lets others run. 0 is 1.
pub const BURST: Register<u32, ReadWrite> = Register::at(0x20);
/// Raises made in this run or the last.
pub const MADE: Register<u64, ReadOnly> = Register::at(0x28);
/// Sources that there is room for.
pub const SOURCES_MAX: u32 = 512;
/// How often each source was raised, once the run is over.
pub const FINALS: Registers<u64, ReadOnly> = Registers::at(0x1000, SOURCES_MAX);

/// The features of the function.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Shape {
    /// Sources that are raised: the first of its MSI-X vectors.
    pub sources: u16,
    /// Threads.
    pub threads: u16,
}

/// State of a run.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Status {
    /// Writing 1 begins a run, unless one is going on.
    pub running: bool,
    /// The last run ended because a sequence word was not in memory.
    pub no_memory: bool,
    #[bits(30)]
    __: u32,
}

const _: () = {
    assert!(size_of::<Shape>() == 4 && size_of::<Status>() == 4);
    assert!(MADE.offset() + 8 <= FINALS.first());
};
