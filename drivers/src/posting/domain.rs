//! Lines that their device posts.

use super::PostingBlock;
use crate::apic::Lapic;
use crate::message::MessageSource;
use alloc::sync::Arc;
use hal::{CpuId, Hal};
use irq::{
    AllocRequest, DeliveryKind, HardwareIrq, IrqChip, IrqDomain, IrqError, Level, LevelData, MsiMessage, Target, Vector,
};

/// The chip's name, and the domain's.
pub(super) const NAME: &str = "SW-POST";

/// Serves the chip of lines that their device posts. A line's hardware number is its source.
struct Sources<H: Hal> {
    block: Arc<PostingBlock<H>>,
    lapic: Arc<Lapic<H>>,
    notification: Vector,
}

impl<H: Hal> Sources<H> {
    fn chip(self: &Arc<Self>) -> Arc<IrqChip> {
        IrqChip::of(NAME, self)
            .ack(Self::ack)
            .set_affinity(Self::set_affinity)
            .compose_message(Self::compose_message)
            .is_pending(Self::is_pending)
            .build()
    }

    fn source(level: &Level<'_>) -> u32 {
        level.hwirq().0 as u32
    }

    /// Notifies `cpu`.
    fn message(&self, cpu: CpuId) -> Result<MsiMessage, IrqError> {
        Ok(self.lapic.event_message(cpu, self.notification)?)
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
        level.set_parent_affinity(target)
    }

    /// The content of the source's own MSI-X entry. It never changes, and the device never sends it while the source
    /// is posted. If the device did, the CPU would get an empty notification.
    fn compose_message(&self, _level: &Level<'_>) -> Result<MsiMessage, IrqError> {
        self.message(CpuId(0))
    }

    /// In the descriptor, or in the LAPIC after a retrigger.
    fn is_pending(&self, level: &Level<'_>, target: Target) -> bool {
        self.block.posted().is_pending(target) || level.is_pending_at_parent(target)
    }
}

/// The lines of one function that posts: the parent of its MSI-X domain.
pub struct PostingDomain<H: Hal> {
    sources: Arc<Sources<H>>,
    chip: Arc<IrqChip>,
    parent: Arc<dyn IrqDomain>,
}

impl<H: Hal> PostingDomain<H> {
    /// Lines of `block`, whose vectors are those of `parent`, on the CPUs of `lapic`. Each notification is vector
    /// `notification`, sent as a plain message: a remapping unit in between would block it.
    pub fn new(
        block: Arc<PostingBlock<H>>,
        lapic: Arc<Lapic<H>>,
        notification: Vector,
        parent: Arc<dyn IrqDomain>,
    ) -> Self {
        let sources = Arc::new(Sources { block, lapic, notification });
        Self { chip: sources.chip(), sources, parent }
    }

    /// Has `cpus` CPUs notified through the function's MSI-X table, and lets sources post. Before the first line.
    ///
    /// # Errors
    /// [`IrqError`] for a CPU without an APIC id, or [`IrqError::Exhausted`] for a table without entries for
    /// notifications.
    pub fn start(&self, cpus: u32, table: &impl MessageSource) -> Result<(), IrqError> {
        for cpu in (0..cpus).map(CpuId) {
            let entry = self.sources.block.notification_entry(cpu);
            if entry >= table.entries() {
                return Err(IrqError::Exhausted("MSI-X entries for notifications", table.entries()));
            }
            table.write(entry, self.sources.message(cpu)?);
            table.unmask(entry);
        }
        self.sources.block.enable();
        Ok(())
    }
}

impl<H: Hal> IrqDomain for PostingDomain<H> {
    fn name(&self) -> &str {
        NAME
    }

    fn parent(&self) -> Option<Arc<dyn IrqDomain>> {
        Some(self.parent.clone())
    }

    fn is_posted(&self) -> bool {
        true
    }

    /// The source is the function's MSI-X vector: the request's index.
    fn allocate(&self, request: &AllocRequest) -> Result<LevelData, IrqError> {
        match request.delivery {
            DeliveryKind::Fixed => {}
            DeliveryKind::Nmi => return Err(IrqError::Undeliverable("a posted line cannot be an NMI")),
            DeliveryKind::Logical => {
                return Err(IrqError::Undeliverable("a posted line cannot have a logical destination"));
            }
            DeliveryKind::PrivateStack => {
                return Err(IrqError::Undeliverable("a posted line cannot have a stack of its own"));
            }
        }
        let sources = self.sources.block.sources();
        if request.index >= sources {
            return Err(IrqError::Exhausted("sources of the posting block", sources));
        }
        Ok(LevelData { chip: self.chip.clone(), hwirq: HardwareIrq(request.index.into()) })
    }

    fn activate(&self, level: &Level<'_>, target: Target) -> Result<(), IrqError> {
        level.chip().set_affinity(level, target)
    }

    fn release(&self, hwirq: HardwareIrq) {
        // The block never refuses to restore a source's reset state.
        _ = self.sources.block.route(hwirq.0 as u32, None);
    }
}
