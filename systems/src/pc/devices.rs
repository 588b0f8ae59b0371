//! Domains for devices: messages, pins, and posting blocks of devices that post.

use super::Pc;
use super::error::PcError;
use alloc::sync::Arc;
use drivers::ioapic::{IoApicDomain, IoApicRoute, PinWiring};
use drivers::message::{MessageDomain, MessageSource};
use drivers::posting::{PostingBlock, PostingCapability, PostingDomain};
use hal::{DmaExchange128, Hal};
use irq::{IrqDomain, Vector};

impl<H: Hal> Pc<H>
where
    H::Dma: DmaExchange128,
{
    /// The parent domain for messages of PCI functions behind remapping unit `unit`, as the policy decided. On a
    /// machine without units, `unit` is 0.
    ///
    /// # Errors
    /// [`PcError::NoUnit`].
    pub fn pci(&self, unit: usize) -> Result<Arc<dyn IrqDomain>, PcError> {
        self.units.get(unit).map(|unit| unit.pci().clone()).ok_or(PcError::NoUnit(unit, self.units.len()))
    }

    /// The parent domain for interrupts behind remapping unit `unit` that are never posted: pins, timers.
    ///
    /// # Errors
    /// [`PcError::NoUnit`].
    pub fn unposted(&self, unit: usize) -> Result<Arc<dyn IrqDomain>, PcError> {
        self.units.get(unit).map(|unit| unit.unposted().clone()).ok_or(PcError::NoUnit(unit, self.units.len()))
    }

    /// The domain for messages of `source`, a device behind remapping unit `unit`: an MSI-X table, an HPET. They are
    /// posted only where that is allowed.
    ///
    /// # Errors
    /// [`PcError::NoUnit`].
    pub fn message_domain<S: MessageSource + 'static>(
        &self,
        unit: usize,
        source: S,
    ) -> Result<MessageDomain<H, S>, PcError> {
        let parent = if source.may_be_posted() { self.pci(unit)? } else { self.unposted(unit)? };
        Ok(MessageDomain::new(self.parts().hal, source, parent)?)
    }

    /// The I/O APIC behind `regs`. Its messages pass remapping unit `unit`. `wiring` describes each pin.
    ///
    /// # Errors
    /// [`PcError::NoUnit`], [`PcError::IoApic`].
    pub fn io_apic(&self, unit: usize, regs: H::Regs, wiring: &[PinWiring]) -> Result<IoApicDomain<H>, PcError> {
        let parent = self.unposted(unit)?;
        let route = match self.units[unit].remapping() {
            Some(_) => IoApicRoute::Remapped,
            None => IoApicRoute::Plain(self.lapic().clone()),
        };
        Ok(IoApicDomain::new(self.parts().hal, regs, wiring, route, parent)?)
    }

    /// The posting block of a function that posts by itself: see [`PostingBlock::new`].
    ///
    /// # Errors
    /// [`PcError::NoDescriptors`], [`PcError::Posting`].
    pub fn posting_block(&self, bar: H::Regs, capability: PostingCapability) -> Result<Arc<PostingBlock<H>>, PcError> {
        let posted = self.posted().ok_or(PcError::NoDescriptors)?;
        Ok(Arc::new(PostingBlock::new(bar, capability, posted.clone())?))
    }

    /// The parent domain for messages of a function that posts by itself. Its messages go through `unit`, which must not
    /// remap: notifications are plain messages, and a unit that remaps blocks them (VT-d, "Interrupt Requests in Intel
    /// 64 Compatibility Format"). Before the function can post, [`PcBuilder`](super::PcBuilder) must give it
    /// descriptors, and [`PostingDomain::start`] its MSI-X table.
    ///
    /// # Errors
    /// [`PcError::NoUnit`], [`PcError::PostsBehindUnit`].
    pub fn posting_domain(&self, unit: usize, block: Arc<PostingBlock<H>>) -> Result<PostingDomain<H>, PcError> {
        let parent = self.unposted(unit)?;
        if self.units[unit].remapping().is_some() {
            return Err(PcError::PostsBehindUnit(unit));
        }
        Ok(PostingDomain::new(block, self.lapic().clone(), self.notification(), parent))
    }

    /// The vector of notifications.
    pub fn notification(&self) -> Vector {
        self.posted().map_or_else(|| irq::posted::PostedConfig::default().notification_vector, |posted| posted.vector())
    }
}
