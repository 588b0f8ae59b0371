//! Lines that their device posts.

use super::PostingBlock;
use crate::apic::Lapic;
use crate::message::{MessageSource, parent_with};
use alloc::sync::Arc;
use hal::{CpuId, Hal};
use irq::{
    AllocRequest, ChipOps, Delivery, HardwareIrq, IrqChip, IrqDomain, IrqError, Level, LevelData, MsiMessage, Target,
    Vector,
};

/// The chip's name, and the domain's.
pub(super) const NAME: &str = "SW-POST";

/// The chip of lines that their device posts. A line's hardware number is its source.
pub struct PostingChip<H: Hal> {
    block: Arc<PostingBlock<H>>,
    lapic: Arc<Lapic<H>>,
    notification: Vector,
}

impl<H: Hal> PostingChip<H> {
    fn source(level: &Level<'_>) -> u32 {
        level.hwirq().0 as u32
    }

    /// Notifies `cpu`.
    fn message(&self, cpu: CpuId) -> Result<MsiMessage, IrqError> {
        Ok(self.lapic.event_message(cpu, self.notification)?)
    }
}

impl<H: Hal> IrqChip for PostingChip<H> {
    fn name(&self) -> &'static str {
        NAME
    }

    fn provides(&self) -> ChipOps {
        ChipOps { ack: true, set_affinity: true, compose_message: true, is_pending: true, ..ChipOps::default() }
    }

    /// As with every posted line: under the notification handler there is nothing to acknowledge, and a vector taken
    /// directly (a retrigger's IPI) must be ended.
    fn ack(&self, _level: &Level<'_>) {
        if !self.block.posted().is_serving() {
            self.lapic.eoi();
        }
    }

    fn set_affinity(&self, level: &Level<'_>, target: Target) -> Result<(), IrqError> {
        self.block.route(Self::source(level), Some(target))?;
        let mover = parent_with(level, |ops| ops.set_affinity)?;
        mover.chip().set_affinity(&mover, target)
    }

    /// What the source's own MSI-X entry holds, which never changes and is never sent while the source is posted. Were
    /// it sent, it would be an empty notification.
    fn compose_message(&self, _level: &Level<'_>) -> Result<MsiMessage, IrqError> {
        self.message(CpuId(0))
    }

    /// In the descriptor, or in the LAPIC after a retrigger.
    fn is_pending(&self, level: &Level<'_>, target: Target) -> bool {
        self.block.posted().is_pending(target)
            || parent_with(level, |ops| ops.is_pending).is_ok_and(|parent| parent.chip().is_pending(&parent, target))
    }

    fn release(&self, hwirq: HardwareIrq) {
        // Writing back what a source is after reset is never refused.
        _ = self.block.route(hwirq.0 as u32, None);
    }
}

/// The lines of one function that posts: the parent of its MSI-X domain.
pub struct PostingDomain<H: Hal> {
    chip: Arc<PostingChip<H>>,
    parent: Arc<dyn IrqDomain>,
}

impl<H: Hal> PostingDomain<H> {
    /// Lines of `block`, whose vectors are those of `parent`, on the CPUs of `lapic`. Each notification is vector
    /// `notification`.
    pub fn new(
        block: Arc<PostingBlock<H>>,
        lapic: Arc<Lapic<H>>,
        notification: Vector,
        parent: Arc<dyn IrqDomain>,
    ) -> Self {
        Self { chip: Arc::new(PostingChip { block, lapic, notification }), parent }
    }

    /// Has `cpus` CPUs notified through the function's MSI-X table, and lets sources post. Before the first line.
    ///
    /// # Errors
    /// [`IrqError`] for a CPU without an APIC id, or [`IrqError::Exhausted`] for a table without entries for
    /// notifications.
    pub fn start(&self, cpus: u32, table: &impl MessageSource) -> Result<(), IrqError> {
        for cpu in (0..cpus).map(CpuId) {
            let entry = self.chip.block.notification_entry(cpu);
            if entry >= table.entries() {
                return Err(IrqError::Exhausted("MSI-X entries for notifications", table.entries()));
            }
            table.write(entry, self.chip.message(cpu)?);
            table.unmask(entry);
        }
        self.chip.block.enable();
        Ok(())
    }
}

impl<H: Hal> IrqDomain for PostingDomain<H> {
    fn name(&self) -> &str {
        NAME
    }

    fn parent(&self) -> Option<&dyn IrqDomain> {
        Some(&*self.parent)
    }

    fn is_posted(&self) -> bool {
        true
    }

    /// The source is the function's MSI-X vector: the request's index.
    fn allocate(&self, request: &AllocRequest) -> Result<LevelData, IrqError> {
        match request.delivery {
            Delivery::Fixed => {}
            Delivery::Nmi => return Err(IrqError::Delivery("a posted line cannot be an NMI")),
            Delivery::Logical => return Err(IrqError::Delivery("a posted line cannot have a logical destination")),
            Delivery::PrivateStack => return Err(IrqError::Delivery("a posted line cannot have a stack of its own")),
        }
        let sources = self.chip.block.sources();
        if request.index >= sources {
            return Err(IrqError::Exhausted("sources of the posting block", sources));
        }
        Ok(LevelData { chip: self.chip.clone(), hwirq: HardwareIrq(request.index.into()) })
    }

    fn activate(&self, level: &Level<'_>, target: Target) -> Result<(), IrqError> {
        level.chip().set_affinity(level, target)
    }
}
