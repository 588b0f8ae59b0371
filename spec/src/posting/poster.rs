//! The poster: a function that does nothing but raise its sources, from several threads at once, so that software posting
//! can be tried to its limits (SP, "The poster").
//!
//! A source is raised like this: its *sequence word* in memory is incremented by one atomic access; then its interrupt is
//! delivered. Whoever takes the interrupt after the last raise must find the word's final value.

use bitfield_struct::bitfield;

/// PCI vendor: one that is nobody's.
pub const PCI_VENDOR: u16 = 0xfffe;
/// PCI device.
pub const PCI_DEVICE: u16 = 0x5057;
/// Class code: unassigned (PCI Code and ID Assignment Specification, class FFh).
pub const PCI_CLASS: u32 = 0xff_0000;

/// 32 bits, a [`Shape`]. Read-only.
pub const SHAPE: u32 = 0x00;
/// 32 bits, a [`Status`].
pub const STATUS: u32 = 0x04;
/// 64 bits: address of the sequence words, 8 bytes a source.
pub const SEQUENCE: u32 = 0x08;
/// 64 bits: how often sources are to be raised, over all threads.
pub const RAISES: u32 = 0x10;
/// 64 bits: what the threads' choices of sources begin with.
pub const SEED: u32 = 0x18;
/// 32 bits: a thread raises 1 to so many sources at once, then lets others run. 0 is 1.
pub const BURST: u32 = 0x20;
/// 64 bits: raises made in this run or the last. Read-only.
pub const MADE: u32 = 0x28;
/// Read-only, 64 bits a source: how often it was raised, once the run is over.
pub const FINALS: u32 = 0x1000;

/// What the function has.
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
    assert!(MADE + 8 <= FINALS);
};
