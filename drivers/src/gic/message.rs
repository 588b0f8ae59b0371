//! SPIs that devices raise by a message: the v2m frame of GICv2 systems, and the distributor's own register in GICv3.
//!
//! Each has two levels. The root allocates an SPI of the range, and the message level composes the message. The root
//! does everything else, in particular ack and eoi.

use super::domain::check_delivery;
use super::frame::Frame;
use super::version::Version;
use super::{Gic, GicError, GicV3};
use alloc::sync::Arc;
use hal::{Hal, Regs};
use irq::{
    AllocRequest, ChipBehaviour, HardwareIrq, IrqChip, IrqDomain, IrqError, Level, LevelData, MsiMessage, Target,
};
use spec::gic::{IntId, Kind, gicd, msi};

/// The SPIs of a frame, as lines of the GIC.
struct Range<H: Hal, V> {
    gic: Arc<Gic<H, V>>,
    chip: Arc<IrqChip>,
    first: IntId,
    count: u32,
}

impl<H: Hal, V: Version<H>> IrqDomain for Range<H, V> {
    fn name(&self) -> &str {
        V::NAME
    }

    fn parent(&self) -> Option<Arc<dyn IrqDomain>> {
        None
    }

    fn needs_identity(&self) -> bool {
        false
    }

    fn allocate(&self, request: &AllocRequest) -> Result<LevelData, IrqError> {
        check_delivery(request)?;
        let intid = self.gic.lines.take_any(self.first, self.count);
        let intid = intid.ok_or(IrqError::Exhausted("SPIs for messages", self.count))?;
        Ok(LevelData { chip: self.chip.clone(), hwirq: HardwareIrq(intid.0.into()) })
    }

    /// A message is an edge.
    fn activate(&self, level: &Level<'_>, target: Target) -> Result<(), IrqError> {
        self.gic.set_edge(IntId(level.hwirq().0 as u32), true)?;
        self.gic.open(level, target)
    }

    fn release(&self, hwirq: HardwareIrq) {
        self.gic.close(hwirq);
    }
}

/// Implements the chip of SPIs raised by messages: it composes the message.
struct Doorbell {
    address: u64,
}

impl Doorbell {
    fn chip(self: &Arc<Self>, name: &'static str) -> Arc<IrqChip> {
        IrqChip::of(name, self)
            .behaviour(ChipBehaviour { oneshot_safe: true, ..ChipBehaviour::default() })
            .compose_message(Self::compose_message)
            .build()
    }

    /// Address of the register, and the INTID as data. The INTID is the line's number at the root.
    fn compose_message(&self, level: &Level<'_>) -> Result<MsiMessage, IrqError> {
        let root = level.parent().ok_or(IrqError::NotSupported("an SPI behind the message"))?;
        Ok(MsiMessage { address: self.address, data: root.hwirq().0 as u32 })
    }
}

/// A domain for devices that raise SPIs by message writes.
pub struct MessageSpiDomain<H: Hal, V> {
    range: Arc<Range<H, V>>,
    chip: Arc<IrqChip>,
}

impl<H: Hal, V: Version<H>> MessageSpiDomain<H, V> {
    /// The v2m frame behind `frame`. Devices reach it at the bus address `base`.
    ///
    /// # Errors
    /// [`GicError::MessageRange`] when the frame names INTIDs that are not SPIs of `gic`.
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
        let chip = Arc::new(Doorbell { address: doorbell }).chip(name);
        Ok(Self { range: Arc::new(Range { chip: gic.chip(), gic, first, count }), chip })
    }
}

impl<H: Hal> MessageSpiDomain<H, super::V3<H>> {
    /// Message-based SPIs: `count` from `first` on, which firmware reports as free for this use. Devices raise them by
    /// writes to the distributor at the bus address `distributor`.
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
        self.chip.name()
    }

    fn parent(&self) -> Option<Arc<dyn IrqDomain>> {
        Some(self.range.clone())
    }

    /// The root has allocated the SPI. At this level the device's own number identifies the line.
    fn allocate(&self, request: &AllocRequest) -> Result<LevelData, IrqError> {
        Ok(LevelData { chip: self.chip.clone(), hwirq: HardwareIrq(request.index.into()) })
    }

    fn activate(&self, _level: &Level<'_>, _target: Target) -> Result<(), IrqError> {
        Ok(())
    }

    /// The hardware number is the device's own number.
    fn release(&self, _hwirq: HardwareIrq) {}
}
