//! The differences between GICv2 and GICv3.

use super::GicError;
use super::frame::Frame;
use hal::{CpuId, Hal};
use spec::gic::IntId;

/// How the CPU ends an interrupt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EoiMode {
    /// EOImode 0: EOIR drops the priority and deactivates. A line whose thread is still working must be masked.
    Together,
    /// EOImode 1: EOIR drops the priority, DIR deactivates. The active state holds the line back until its thread is
    /// done.
    Split,
    /// EOImode 1, but the end of an interrupt writes EOIR and DIR one after the other. A line whose thread is still
    /// working must be masked, as with [`EoiMode::Together`]. Linux does this on CPUs that booted at EL2 (`irq-gic.c`
    /// and `irq-gic-v3.c`, `supports_deactivate_key`). Only for comparison: it has one write more and gains nothing.
    SplitAtOnce,
}

impl EoiMode {
    /// The value of EOImode in the CPU interface.
    pub(super) fn is_split(self) -> bool {
        self != Self::Together
    }
}

/// The writes to a distributor or redistributor after which the driver polls RWP. A GICv2 has no RWP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RwpPolls {
    /// Writes that disable an interrupt. RWP covers these and no others that a line makes (IHI 0069H, "GICD_CTLR").
    /// Linux does the same since 5.19.
    #[default]
    Disabling,
    /// Every write that enables or disables an interrupt, or changes its pending or active state. Linux did this until
    /// 5.18 (`irq-gic-v3.c`, `gic_poke_irq`). Only for comparison: the additional polls wait for nothing.
    Every,
}

/// A version of the architecture: where its registers are, and its CPU interface. Implemented by [`super::V2`] and
/// [`super::V3`].
///
/// Methods that act on a CPU act on the calling CPU, whose interrupts must be off.
pub trait Version<H: Hal>: Send + Sync + 'static {
    /// Name of the chip.
    const NAME: &'static str;
    /// True when interrupt priorities can provide pseudo-NMIs.
    const HAS_PSEUDO_NMI: bool;

    /// The frame that contains the interrupt's bits, at the distributor's offsets.
    fn frame(&self, intid: IntId) -> Frame<'_, H::Regs>;
    /// Polls RWP: waits until earlier disabling writes to the frame have taken effect. Does nothing without RWP.
    ///
    /// # Errors
    /// [`GicError::Timeout`].
    fn wait_written(&self, intid: IntId) -> Result<(), GicError>;
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
    /// Stops interrupts to this CPU.
    ///
    /// # Errors
    /// [`GicError::Timeout`].
    fn stop_cpu(&self) -> Result<(), GicError>;
    /// Acknowledges the most urgent interrupt. Returns its INTID, or a special one.
    fn acknowledge(&self) -> IntId;
    /// Writes EOIR.
    fn end(&self, intid: IntId);
    /// Writes DIR.
    fn deactivate(&self, intid: IntId);
    /// Runs `body` with ordinary interrupts masked by priority.
    fn without_ordinary(&self, body: impl FnOnce());
    /// Routes an SPI to `cpu`.
    ///
    /// # Errors
    /// [`GicError::NoCpu`], [`GicError::NoInterface`].
    fn route(&self, intid: IntId, cpu: CpuId) -> Result<(), GicError>;
    /// Sends a software-generated interrupt.
    ///
    /// # Errors
    /// [`GicError::NoCpu`], [`GicError::NoInterface`], [`GicError::Range`].
    fn send(&self, intid: IntId, cpu: CpuId) -> Result<(), GicError>;
    /// Sets or clears an interrupt's pending state.
    fn set_pending(&self, intid: IntId, pending: bool);
}
