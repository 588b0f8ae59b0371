//! Lines on a remapping unit: remapped, posted, or lent to a guest.

use super::{RemapUnit, VtdError};
use crate::apic::{ApicMode, Lapic};
use alloc::sync::Arc;
use hal::{DeviceAddress, DmaExchange128, Hal};
use irq::posted::PostedMsi;
use irq::{
    AllocRequest, DeliveryKind, HardwareIrq, IrqChip, IrqDomain, IrqError, Level, LevelData, MsiMessage, Target, Vector,
};
use spec::apic::DeliveryMode;
use spec::msi::{ADDRESS_PREFIX, RemappableAddress};
use spec::vtd::irte::{Posted, Remapped};

/// A posted descriptor of a guest, to which an assigned device's interrupts go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GuestPosting {
    /// The virtual CPU's descriptor, 64-byte aligned.
    pub descriptor: DeviceAddress,
    /// The guest's vector.
    pub vector: Vector,
    /// Notify even while the descriptor suppresses notifications.
    pub urgent: bool,
}

/// State that the chips of both formats share.
struct Remapping<H: Hal> {
    unit: Arc<RemapUnit<H>>,
    lapic: Arc<Lapic<H>>,
}

impl<H: Hal> Remapping<H>
where
    H::Dma: DmaExchange128,
{
    /// The message in remappable format: it names the entry and never changes (VT-d, "Interrupt Requests in
    /// Remappable Format").
    fn message(&self, level: &Level<'_>) -> MsiMessage {
        let handle = level.hwirq().0 as u16;
        let address = RemappableAddress::new()
            .with_prefix(ADDRESS_PREFIX)
            .with_remappable(true)
            .with_handle_low(handle & 0x7fff)
            .with_handle_high(handle >> 15 != 0);
        MsiMessage { address: u64::from(address.into_bits()), data: 0 }
    }

    /// Writes the entry, then tells the levels towards the CPU.
    fn retarget(&self, level: &Level<'_>, target: Target, entry: u128) -> Result<(), IrqError> {
        self.unit.set_host(level.hwirq().0, entry)?;
        level.set_parent_affinity(target)
    }
}

/// Serves the chip of remapped lines.
struct RemappedLines<H: Hal> {
    remapping: Arc<Remapping<H>>,
    /// Chips differ by how their lines are delivered.
    delivery: DeliveryKind,
}

impl<H: Hal> RemappedLines<H>
where
    H::Dma: DmaExchange128,
{
    fn chip(self: &Arc<Self>) -> Arc<IrqChip> {
        IrqChip::of("INTEL-IR", self).set_affinity(Self::set_affinity).compose_message(Self::compose_message).build()
    }

    /// The trigger mode stays edge for level lines too: their controller is told of the end by itself, and the entry
    /// can change while the line is asserted.
    fn entry(&self, target: Target) -> Result<u128, IrqError> {
        let lapic = &self.remapping.lapic;
        let nowhere = IrqError::Target("INTEL-IR", target);
        let id = lapic.id(target.cpu).map_err(|_| nowhere)?;
        let vector = target.vector().ok_or(nowhere)?;
        let entry = Remapped::new()
            .with_present(true)
            .with_vector(vector.0)
            .with_destination(lapic.mode().destination_field(id));
        let entry = match self.delivery {
            DeliveryKind::Fixed | DeliveryKind::PrivateStack => entry.with_delivery_mode(DeliveryMode::FIXED.0),
            DeliveryKind::Nmi => entry.with_delivery_mode(DeliveryMode::NMI.0),
            // SDM vol. 3, "Logical Destination Mode in x2APIC Mode": cluster id>>4, one bit of sixteen inside it.
            DeliveryKind::Logical => entry.with_logical(true).with_destination((id.0 >> 4) << 16 | 1 << (id.0 & 0xf)),
        };
        Ok(entry.into_bits())
    }

    fn set_affinity(&self, level: &Level<'_>, target: Target) -> Result<(), IrqError> {
        self.remapping.retarget(level, target, self.entry(target)?)
    }

    fn compose_message(&self, level: &Level<'_>) -> Result<MsiMessage, IrqError> {
        Ok(self.remapping.message(level))
    }
}

/// Serves the chip of posted lines.
struct PostedLines<H: Hal> {
    remapping: Arc<Remapping<H>>,
    posted: Arc<PostedMsi<H>>,
}

fn posted_entry(DeviceAddress(descriptor): DeviceAddress, vector: Vector, urgent: bool) -> u128 {
    Posted::new()
        .with_present(true)
        .with_posted(true)
        .with_urgent(urgent)
        .with_vector(vector.0)
        .with_descriptor_low((descriptor as u32) >> 6)
        .with_descriptor_high((descriptor >> 32) as u32)
        .into_bits()
}

impl<H: Hal> PostedLines<H>
where
    H::Dma: DmaExchange128,
{
    fn chip(self: &Arc<Self>) -> Arc<IrqChip> {
        IrqChip::of("INTEL-IR-POST", self)
            .ack(Self::ack)
            .set_affinity(Self::set_affinity)
            .compose_message(Self::compose_message)
            .is_pending(Self::is_pending)
            .build()
    }

    fn entry(&self, target: Target) -> Result<u128, IrqError> {
        let nowhere = IrqError::Target("INTEL-IR-POST", target);
        let descriptor = self.posted.descriptor_address(target.cpu).ok_or(nowhere)?;
        Ok(posted_entry(descriptor, target.vector().ok_or(nowhere)?, false))
    }

    /// Under the notification handler the LAPIC has only the notification in service, and its EOI comes once, at the
    /// handler's end. Taken directly (a retrigger's IPI), the vector is in service itself, and without an EOI it and
    /// all of lower priority would never be taken on this CPU again.
    fn ack(&self, _level: &Level<'_>) {
        if !self.posted.is_serving() {
            self.remapping.lapic.eoi();
        }
    }

    fn set_affinity(&self, level: &Level<'_>, target: Target) -> Result<(), IrqError> {
        self.remapping.retarget(level, target, self.entry(target)?)
    }

    fn compose_message(&self, level: &Level<'_>) -> Result<MsiMessage, IrqError> {
        Ok(self.remapping.message(level))
    }

    /// In the descriptor, or in the LAPIC after a retrigger.
    fn is_pending(&self, level: &Level<'_>, target: Target) -> bool {
        self.posted.is_pending(target) || level.is_pending_at_parent(target)
    }
}

/// Lines on a remapping unit. A unit may have several domains: a posted one for PCI messages, a remapped one for
/// everything else.
pub struct RemapDomain<H: Hal> {
    remapping: Arc<Remapping<H>>,
    parent: Arc<dyn IrqDomain>,
    /// The chip of posted lines; remapped ones have a chip each.
    posted: Option<Arc<IrqChip>>,
}

impl<H: Hal> RemapDomain<H>
where
    H::Dma: DmaExchange128,
{
    /// Remapped lines, for any device.
    pub fn remapped(unit: Arc<RemapUnit<H>>, lapic: Arc<Lapic<H>>, parent: Arc<dyn IrqDomain>) -> Self {
        Self { remapping: Arc::new(Remapping { unit, lapic }), parent, posted: None }
    }

    /// Posted lines, for PCI MSI and MSI-X only.
    ///
    /// # Errors
    /// [`VtdError::Missing`] when the unit cannot post.
    pub fn posted(
        unit: Arc<RemapUnit<H>>,
        lapic: Arc<Lapic<H>>,
        parent: Arc<dyn IrqDomain>,
        posted: Arc<PostedMsi<H>>,
    ) -> Result<Self, VtdError> {
        if !unit.supports_posting() {
            return Err(VtdError::Missing("posted interrupts (CAP.PI, bit 59)"));
        }
        let remapping = Arc::new(Remapping { unit, lapic });
        let lines = Arc::new(PostedLines { remapping: remapping.clone(), posted });
        Ok(Self { remapping, parent, posted: Some(lines.chip()) })
    }

    /// Posts the line of entry `hwirq` to a guest from now on, in one step. The host's affinity changes meanwhile are
    /// remembered and change nothing in hardware.
    ///
    /// # Errors
    /// [`VtdError`] when the unit cannot post, the descriptor is not aligned, no line has the entry, or the unit fails: it
    /// may then still post to `guest`, until [`RemapDomain::take_back`] succeeds.
    pub fn lend_to_guest(&self, hwirq: HardwareIrq, guest: GuestPosting) -> Result<(), VtdError> {
        if !self.remapping.unit.supports_posting() {
            return Err(VtdError::Missing("posted interrupts (CAP.PI, bit 59)"));
        }
        if !guest.descriptor.0.is_multiple_of(64) {
            return Err(VtdError::Descriptor(guest.descriptor));
        }
        let entry = posted_entry(guest.descriptor, guest.vector, guest.urgent);
        self.remapping.unit.set_guest(hwirq.0, Some(entry))
    }

    /// Takes the line of entry `hwirq` back: the host's latest target, in the format of this domain.
    ///
    /// # Errors
    /// [`VtdError`] when no line has the entry, or the unit fails.
    pub fn take_back(&self, hwirq: HardwareIrq) -> Result<(), VtdError> {
        self.remapping.unit.set_guest(hwirq.0, None)
    }

    fn validate(&self, delivery: DeliveryKind) -> Result<(), IrqError> {
        match (delivery, self.posted.is_some()) {
            (DeliveryKind::Nmi, true) => Err(IrqError::Undeliverable("a posted line cannot be an NMI")),
            (DeliveryKind::Logical, true) => {
                Err(IrqError::Undeliverable("a posted line cannot have a logical destination"))
            }
            (DeliveryKind::PrivateStack, true) => {
                Err(IrqError::Undeliverable("a posted line cannot have a stack of its own"))
            }
            (DeliveryKind::Logical, false) if self.remapping.lapic.mode() == ApicMode::XApic => {
                Err(IrqError::Undeliverable("a logical destination needs x2APIC mode"))
            }
            _ => Ok(()),
        }
    }
}

impl<H: Hal> IrqDomain for RemapDomain<H>
where
    H::Dma: DmaExchange128,
{
    fn name(&self) -> &str {
        if self.posted.is_some() { "INTEL-IR-POST" } else { "INTEL-IR" }
    }

    fn parent(&self) -> Option<Arc<dyn IrqDomain>> {
        Some(self.parent.clone())
    }

    fn is_posted(&self) -> bool {
        self.posted.is_some()
    }

    fn allocate(&self, request: &AllocRequest) -> Result<LevelData, IrqError> {
        self.validate(request.delivery)?;
        let hwirq = HardwareIrq(self.remapping.unit.allocate(request.requester)?);
        let remapped = || RemappedLines { remapping: self.remapping.clone(), delivery: request.delivery };
        let chip = self.posted.clone().unwrap_or_else(|| Arc::new(remapped()).chip());
        Ok(LevelData { chip, hwirq })
    }

    fn activate(&self, level: &Level<'_>, target: Target) -> Result<(), IrqError> {
        level.chip().set_affinity(level, target)
    }

    fn deactivate(&self, hwirq: HardwareIrq) -> Result<(), IrqError> {
        Ok(self.remapping.unit.set_host(hwirq.0, 0)?)
    }

    fn settles(&self, hwirq: HardwareIrq) -> bool {
        self.remapping.unit.settles(hwirq.0)
    }

    fn release(&self, hwirq: HardwareIrq) {
        self.remapping.unit.free(hwirq.0);
    }
}
