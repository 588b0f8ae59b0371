//! The root domain: lines that are wires to the GIC, and the private interrupts.

use super::Gic;
use super::version::Version;
use alloc::sync::Arc;
use hal::Hal;
use irq::{AllocRequest, DeliveryKind, HardwareIrq, IrqChip, IrqDomain, IrqError, Level, LevelData, Target};
use spec::gic::{IntId, Kind};

/// Rejects kinds of delivery that no GIC supports.
pub(super) fn check_delivery(request: &AllocRequest) -> Result<(), IrqError> {
    match request.delivery {
        DeliveryKind::Fixed => Ok(()),
        _ => Err(IrqError::Undeliverable(
            "a GIC delivers to one CPU; pseudo-NMIs are asked for when a line is requested",
        )),
    }
}

/// Lines of a GIC. [`AllocRequest::index`] is the INTID.
///
/// SGIs and PPIs are [`irq::Flow::PerCpu`] lines, SPIs have [`Gic::flow`], and come up level-triggered.
pub struct GicDomain<H: Hal, V> {
    gic: Arc<Gic<H, V>>,
    chip: Arc<IrqChip>,
}

impl<H: Hal, V: Version<H>> GicDomain<H, V> {
    /// The lines of `gic`.
    pub fn new(gic: Arc<Gic<H, V>>) -> Self {
        Self { chip: gic.chip(), gic }
    }
}

impl<H: Hal, V: Version<H>> IrqDomain for GicDomain<H, V> {
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
        let intid = self.gic.validate(IntId(request.index))?;
        if !self.gic.lines.take(intid) {
            return Err(IrqError::Hardware("GIC", "the INTID has a line already"));
        }
        if intid.kind() == Kind::Spi {
            // The line before may have made it an edge. One whose trigger is fixed keeps it.
            _ = self.gic.set_edge(intid, false);
        }
        Ok(LevelData { chip: self.chip.clone(), hwirq: HardwareIrq(intid.0.into()) })
    }

    fn activate(&self, level: &Level<'_>, target: Target) -> Result<(), IrqError> {
        self.gic.open(level, target)
    }

    fn release(&self, hwirq: HardwareIrq) {
        self.gic.close(hwirq);
    }
}
