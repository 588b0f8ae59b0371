//! What GICv2 and GICv3 differ in.

use super::GicError;
use super::frame::Frame;
use hal::{CpuId, Hal};
use spec::gic::IntId;

/// How an interrupt is ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EoiMode {
    /// EOImode 0: EOIR drops the priority and deactivates. A line that must wait for its thread is masked.
    Together,
    /// EOImode 1: EOIR drops the priority, DIR deactivates, and the line waits for its thread by being active.
    Split,
}

/// A version of the architecture: where its registers are, and its CPU interface. Implemented by [`super::V2`] and
/// [`super::V3`].
///
/// What concerns a CPU concerns the one that calls, whose interrupts are off.
pub trait Version<H: Hal>: Send + Sync + 'static {
    /// Name of the chip.
    const NAME: &'static str;
    /// Whether priorities can serve as pseudo-NMIs.
    const HAS_PSEUDO_NMI: bool;

    /// The frame that has the interrupt's bits, at the distributor's offsets.
    fn frame(&self, intid: IntId) -> Frame<'_, H::Regs>;
    /// Waits until the frame's disabling writes have taken effect.
    ///
    /// # Errors
    /// [`GicError::Timeout`].
    fn wait_disabled(&self, intid: IntId) -> Result<(), GicError>;
    /// Sets up the distributor: everything disabled, inactive, of ordinary priority, level-triggered, and forwarded.
    ///
    /// # Errors
    /// [`GicError`].
    fn start(&self, spi_end: u32) -> Result<(), GicError>;
    /// Sets up this CPU's private interrupts and its interface, and lets interrupts in.
    ///
    /// # Errors
    /// [`GicError`].
    fn start_cpu(&self, mode: EoiMode) -> Result<(), GicError>;
    /// Lets no more interrupts into this CPU.
    ///
    /// # Errors
    /// [`GicError::Timeout`].
    fn stop_cpu(&self) -> Result<(), GicError>;
    /// Takes the most urgent interrupt: its INTID, or a special one.
    fn acknowledge(&self) -> IntId;
    /// EOIR.
    fn end(&self, intid: IntId);
    /// DIR.
    fn deactivate(&self, intid: IntId);
    /// Runs `body` with ordinary interrupts masked by priority.
    fn without_ordinary(&self, body: impl FnOnce());
    /// Has an SPI go to `cpu`.
    ///
    /// # Errors
    /// [`GicError::NoCpu`], [`GicError::NoInterface`].
    fn route(&self, intid: IntId, cpu: CpuId) -> Result<(), GicError>;
    /// Sends a software-generated interrupt.
    ///
    /// # Errors
    /// [`GicError::NoCpu`], [`GicError::NoInterface`], [`GicError::Range`].
    fn send(&self, intid: IntId, cpu: CpuId) -> Result<(), GicError>;
    /// Makes an interrupt pending, or not.
    fn set_pending(&self, intid: IntId, pending: bool);
}
