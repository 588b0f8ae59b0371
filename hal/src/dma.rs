use crate::Word;
use core::fmt;

/// An address as a device puts it on the bus.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct DeviceAddress(pub u64);

impl DeviceAddress {
    /// The address `bytes` further on.
    #[must_use]
    pub fn offset(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }
}

impl fmt::Display for DeviceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// Why memory for a device could not be allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DmaError {
    /// The length is zero.
    Empty,
    /// The alignment is no power of two; in bytes.
    Alignment(usize),
    /// No memory left for a buffer of this many bytes.
    Exhausted(usize),
}

impl fmt::Display for DmaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "a DMA buffer of 0 bytes was asked for; at least 1 is needed"),
            Self::Alignment(bytes) => write!(f, "DMA alignment of {bytes} bytes is no power of two"),
            Self::Exhausted(bytes) => write!(f, "no DMA memory left for a buffer of {bytes} bytes"),
        }
    }
}

impl core::error::Error for DmaError {}

/// Memory that a device reads and writes. The driver owns it, and it is freed on drop, which may be with interrupts off and locks
/// held: what then cannot be done must be put off.
///
/// It gives out no references to plain data, only words and sized accesses, so that driver and device share it
/// soundly. All accesses are little-endian and free (no point of the seam). An access that is out of bounds or
/// unaligned panics: it is a bug of the driver. Plain reads are relaxed, plain writes have release order.
pub trait Dma: Send + Sync {
    /// The type of its words.
    type Word: Word;
    /// Length in bytes.
    fn len_bytes(&self) -> usize;
    /// The bus address of its first byte.
    fn device_address(&self) -> DeviceAddress;
    /// Its 64-bit words. A length that is no multiple of 8 is rounded up.
    fn words(&self) -> &[Self::Word];
    /// Reads 8 bits at a byte offset.
    fn read8(&self, offset_bytes: usize) -> u8;
    /// Reads 16 bits.
    fn read16(&self, offset_bytes: usize) -> u16;
    /// Reads 32 bits.
    fn read32(&self, offset_bytes: usize) -> u32;
    /// Writes 8 bits.
    fn write8(&self, offset_bytes: usize, value: u8);
    /// Writes 16 bits.
    fn write16(&self, offset_bytes: usize, value: u16);
    /// Writes 32 bits.
    fn write32(&self, offset_bytes: usize, value: u32);
}

/// A 128-bit compare-exchange on DMA memory. Only VT-d needs it: an interrupt-remapping entry that is or becomes
/// posted must change in one access (VT-d specification, "Interrupt Remapping Table Entry").
pub trait DmaExchange128: Dma {
    /// Stores `new` at `offset_bytes` (a multiple of 16) if the memory there equals `current`. A point of the seam.
    ///
    /// # Errors
    /// The value read, when it is not `current`.
    fn compare_exchange_128(&self, offset_bytes: usize, current: u128, new: u128) -> Result<u128, u128>;
}
