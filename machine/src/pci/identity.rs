//! The identity of a function: a type 0 header, its BARs, the MSI-X capability and further capabilities.
//!
//! Base addresses are not programmable here: regions are identified by number. Memory space and bus master are always
//! on, as firmware leaves a boot device.

use spec::msi::{MSIX_CAPABILITY_ID, MsixControl, MsixLocation, msix_capability};

/// Offset of the MSI-X capability.
pub const MSIX_CAPABILITY_OFFSET: u32 = 0x40;
/// Memory space and bus master enabled; capabilities list present.
const COMMAND_STATUS: u32 = 0x0010_0006;
/// A 64-bit memory BAR.
const BAR_64: u32 = 0x4;
/// 32-bit registers of configuration space that a conventional function has.
const WORDS: usize = 64;

/// The widths of access that the registers of a BAR take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Widths {
    /// 4 bytes at a multiple of 4, and 8 as two of them, the lower first.
    Dwords,
    /// 4 bytes at a multiple of 4.
    Dword,
    /// 8 bytes at a multiple of 8.
    Qword,
    /// Any: each register has its own width, which the device checks.
    Any,
}

/// A base address register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bar {
    /// Which of the six: 0 to 5.
    pub number: u8,
    /// Length of its window.
    pub bytes: u32,
    /// Its address has 64 bits; it takes the next number as well.
    pub wide: bool,
    /// Widths of reads.
    pub reads: Widths,
    /// Widths of writes.
    pub writes: Widths,
}

impl Bar {
    /// A BAR with a 64-bit address and 32-bit registers.
    pub const fn new(number: u8, bytes: u32) -> Self {
        Self { number, bytes, wide: true, reads: Widths::Dwords, writes: Widths::Dwords }
    }
}

/// Places of the MSI-X table and of the pending bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MsixPlace {
    /// The region that holds both: an index into [`Identity::bars`].
    pub region: u8,
    /// Offset of the table.
    pub table: u32,
    /// Offset of the pending bits.
    pub pending: u32,
}

/// A capability behind that of MSI-X.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Capability {
    /// Its offset: a multiple of 4 below 256.
    pub offset: u8,
    /// Its registers. The pointer to the next capability (bits 15:8 of the first one) is filled in.
    pub words: Vec<u32>,
}

/// The identity of a function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Vendor id.
    pub vendor: u16,
    /// Device id.
    pub device: u16,
    /// Class code: base class, subclass, programming interface.
    pub class: u32,
    /// Its BARs, in the order of the model's regions.
    pub bars: Vec<Bar>,
    /// Place of MSI-X.
    pub msix: MsixPlace,
    /// Further capabilities, in the order of the list.
    pub capabilities: Vec<Capability>,
}

/// Configuration space as software reads it.
#[derive(Clone)]
pub struct ConfigSpace {
    words: [u32; WORDS],
}

impl ConfigSpace {
    /// The space of a function.
    ///
    /// # Panics
    /// When a BAR's number is above 5, MSI-X is in no BAR, or a capability does not end below 256.
    pub fn new(identity: &Identity) -> Self {
        let mut words = [0; WORDS];
        let mut put = |offset: u32, value: u32| words[offset as usize / 4] = value;
        let id = u32::from(identity.device) << 16 | u32::from(identity.vendor);
        put(0x00, id);
        put(0x04, COMMAND_STATUS);
        put(0x08, identity.class << 8);
        for bar in &identity.bars {
            assert!(bar.number < 6, "BAR {} of a PCI function; valid: 0 to 5", bar.number);
            put(0x10 + 4 * u32::from(bar.number), if bar.wide { BAR_64 } else { 0 });
        }
        put(0x2c, id);
        put(0x34, MSIX_CAPABILITY_OFFSET);
        let bar = identity.bars[usize::from(identity.msix.region)].number;
        let location = |at: u32| MsixLocation::new().with_bar(bar).with_offset_qwords(at / 8).into_bits();
        let mut next = identity.capabilities.iter().map(|capability| u32::from(capability.offset));
        put(MSIX_CAPABILITY_OFFSET, u32::from(MSIX_CAPABILITY_ID) | next.next().unwrap_or(0) << 8);
        put(MSIX_CAPABILITY_OFFSET + msix_capability::TABLE, location(identity.msix.table));
        put(MSIX_CAPABILITY_OFFSET + msix_capability::PENDING, location(identity.msix.pending));
        for capability in &identity.capabilities {
            for (at, &word) in (u32::from(capability.offset)..).step_by(4).zip(&capability.words) {
                put(at, word);
            }
            let head = capability.words[0] & !0xff00 | next.next().unwrap_or(0) << 8;
            put(capability.offset.into(), head);
        }
        Self { words }
    }

    /// Reads 32 bits at a multiple of 4, with the present message control. Zero outside capabilities.
    pub fn read(&self, control: MsixControl, offset: u32) -> u32 {
        let word = self.words.get(offset as usize / 4).copied().unwrap_or(0);
        if offset == MSIX_CAPABILITY_OFFSET { word | u32::from(control.into_bits()) << 16 } else { word }
    }

    /// The message control after a write of 32 bits: only MSI-X enable and function mask can change.
    #[must_use]
    pub fn written(control: MsixControl, offset: u32, value: u32) -> MsixControl {
        if offset != MSIX_CAPABILITY_OFFSET {
            return control;
        }
        let wanted = MsixControl::from_bits((value >> 16) as u16);
        control.with_enable(wanted.enable()).with_function_mask(wanted.function_mask())
    }
}
