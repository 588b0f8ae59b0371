//! SPIs that devices raise by a message: the v2m frame of GICv2 systems, and the distributor's own register in GICv3.
//!
//! Two levels each: the root takes an SPI of the range, and the message's level says what to write. Everything else,
//! ack and eoi above all, the root does.

use super::domain::check_delivery;
use super::frame::Frame;
use super::version::Version;
use super::{Gic, GicError, GicV3};
use alloc::sync::Arc;
use hal::{Hal, Regs};
use irq::{AllocRequest, ChipOps, HardwareIrq, IrqChip, IrqDomain, IrqError, Level, LevelData, MsiMessage, Target};
use spec::gic::{IntId, Kind, gicd, msi};

/// The SPIs of a frame, as lines of the GIC.
struct Range<H: Hal, V> {
    gic: Arc<Gic<H, V>>,
    first: IntId,
    count: u32,
}

impl<H: Hal, V: Version<H>> IrqDomain for Range<H, V> {
    fn name(&self) -> &str {
        V::NAME
    }

    fn parent(&self) -> Option<&dyn IrqDomain> {
        None
    }

    fn needs_vector(&self) -> bool {
        false
    }

    fn allocate(&self, request: &AllocRequest) -> Result<LevelData, IrqError> {
        check_delivery(request)?;
        let intid = self.gic.lines.take_any(self.first, self.count);
        let intid = intid.ok_or(IrqError::Exhausted("SPIs for messages", self.count))?;
        Ok(LevelData { chip: self.gic.clone(), hwirq: HardwareIrq(intid.0.into()) })
    }

    /// A message is an edge.
    fn activate(&self, level: &Level<'_>, target: Target) -> Result<(), IrqError> {
        self.gic.set_edge(IntId(level.hwirq().0 as u32), true)?;
        self.gic.open(level, target)
    }
}

/// The chip of SPIs raised by messages: it says what to write.
pub struct MessageSpiChip {
    name: &'static str,
    doorbell: u64,
}

impl IrqChip for MessageSpiChip {
    fn name(&self) -> &'static str {
        self.name
    }

    fn provides(&self) -> ChipOps {
        ChipOps { compose_message: true, oneshot_safe: true, ..ChipOps::default() }
    }

    /// The register's address, and the INTID, which is the root's number of the line.
    fn compose_message(&self, level: &Level<'_>) -> Result<MsiMessage, IrqError> {
        let root = level.parent().ok_or(IrqError::NotSupported("an SPI behind the message"))?;
        Ok(MsiMessage { address: self.doorbell, data: root.hwirq().0 as u32 })
    }
}

/// A domain for devices that write messages, which become SPIs.
pub struct MessageSpiDomain<H: Hal, V> {
    range: Range<H, V>,
    chip: Arc<MessageSpiChip>,
}

impl<H: Hal, V: Version<H>> MessageSpiDomain<H, V> {
    /// The v2m frame behind `frame`, which devices find at the bus address `base`.
    ///
    /// # Errors
    /// [`GicError::MessageRange`] when the frame names what are no SPIs of `gic`.
    pub fn v2m(gic: Arc<Gic<H, V>>, frame: &impl Regs, base: u64) -> Result<Self, GicError> {
        let kind = msi::V2mType::from_bits(Frame::new(frame, 0).read(msi::TYPER));
        let doorbell = base + u64::from(msi::SETSPI_NS.offset());
        Self::new(gic, "V2M", doorbell, IntId(kind.first().into()), kind.count().into())
    }

    fn new(gic: Arc<Gic<H, V>>, name: &'static str, doorbell: u64, first: IntId, count: u32) -> Result<Self, GicError> {
        let end = gic.kind.spi_end();
        if first.kind() != Kind::Spi || count == 0 || count > end.saturating_sub(first.0) {
            return Err(GicError::MessageRange(first.0, count, end));
        }
        let chip = Arc::new(MessageSpiChip { name, doorbell });
        Ok(Self { range: Range { gic, first, count }, chip })
    }
}

impl<H: Hal> MessageSpiDomain<H, super::V3<H>> {
    /// Message-based SPIs: `count` from `first` on, which firmware says are free for it, raised by writes to the
    /// distributor that devices find at the bus address `distributor`.
    ///
    /// # Errors
    /// [`GicError::Missing`] without message-based SPIs (GICD_TYPER.MBIS), [`GicError::MessageRange`].
    pub fn mbi(gic: Arc<GicV3<H>>, distributor: u64, first: IntId, count: u32) -> Result<Self, GicError> {
        if !gic.kind.message_spis() {
            return Err(GicError::Missing("message-based SPIs (GICD_TYPER.MBIS)"));
        }
        Self::new(gic, "MBI", distributor + u64::from(gicd::SETSPI_NSR.offset()), first, count)
    }
}

impl<H: Hal, V: Version<H>> IrqDomain for MessageSpiDomain<H, V> {
    fn name(&self) -> &str {
        self.chip.name
    }

    fn parent(&self) -> Option<&dyn IrqDomain> {
        Some(&self.range)
    }

    /// The root has taken the SPI; at this level a line is known by what its device calls it.
    fn allocate(&self, request: &AllocRequest) -> Result<LevelData, IrqError> {
        Ok(LevelData { chip: self.chip.clone(), hwirq: HardwareIrq(request.index.into()) })
    }

    fn activate(&self, _level: &Level<'_>, _target: Target) -> Result<(), IrqError> {
        Ok(())
    }
}
