//! Lines whose device writes a message: PCI MSI-X, HPET timers, the fault event of a remapping unit.
//!
//! The devices differ in where they keep message and mask ([`MessageSource`]). They share the chip and the domain.

use alloc::sync::Arc;
use alloc::vec::Vec;
use hal::{Hal, Lock};
use irq::{
    AllocRequest, ChipBehaviour, HardwareIrq, IrqChip, IrqDomain, IrqError, Level, LevelData, MsiMessage, Target,
};
use spec::msi::{ADDRESS_PREFIX, PlainAddress};

/// The place where a device keeps the messages of its interrupts.
pub trait MessageSource: Send + Sync {
    /// Name of the chip.
    fn chip_name(&self) -> &'static str;
    /// Number of messages.
    fn entries(&self) -> u32;
    /// True if the device can write to addresses above 4 GiB. Without remapping, APIC ids above 0xff need such
    /// addresses.
    fn has_wide_address(&self) -> bool {
        false
    }
    /// True if the messages may go through posted descriptors. Only messages of PCI functions may.
    fn may_be_posted(&self) -> bool {
        false
    }
    /// True if what comes while an entry is masked is lost. Otherwise [`MessageSource::unmask`] sends it.
    fn forgets_masked(&self) -> bool {
        false
    }
    /// Masks `entry`. Once this returns, the entry sends nothing more.
    fn mask(&self, entry: u32);
    /// Unmasks `entry`. A message that was held back is sent at once, unless [`MessageSource::forgets_masked`].
    fn unmask(&self, entry: u32);
    /// Changes the message of `entry`, which is below [`MessageSource::entries`]. Once this returns, the entry does not send
    /// its earlier message any more: the CPU that it named may go offline.
    fn write(&self, entry: u32, message: MsiMessage);
}

/// The entry of a line, and its message once it has one.
#[derive(Clone, Copy)]
struct Taken(Option<MsiMessage>);

/// Implements the chip of message lines. A line's hardware number is its entry.
struct Messages<H: Hal, S> {
    source: S,
    entries: Lock<H, Vec<Option<Taken>>>,
}

impl<H: Hal, S: MessageSource + 'static> Messages<H, S> {
    fn chip(self: &Arc<Self>) -> Arc<IrqChip> {
        let forgets_masked = self.source.forgets_masked();
        IrqChip::of(self.source.chip_name(), self)
            .behaviour(ChipBehaviour { oneshot_safe: true, forgets_masked, ..ChipBehaviour::default() })
            .mask(Self::mask, Self::unmask)
            .set_affinity(Self::set_affinity)
            .write_message(Self::write_message)
            .build()
    }

    /// Writes the message that the parent levels now compose into the device.
    fn refresh(&self, level: &Level<'_>) -> Result<(), IrqError> {
        let message = level.parent_message()?;
        // Doorbells of other controllers may have any address.
        let for_apic = PlainAddress::from_bits(message.address).prefix() == ADDRESS_PREFIX;
        if for_apic && message.address >> 32 != 0 && !self.source.has_wide_address() {
            return Err(IrqError::Undeliverable("an APIC id above 0xff needs interrupt remapping"));
        }
        self.write_message(level, message);
        Ok(())
    }

    fn mask(&self, level: &Level<'_>) {
        self.source.mask(level.hwirq().0 as u32);
    }

    fn unmask(&self, level: &Level<'_>) {
        self.source.unmask(level.hwirq().0 as u32);
    }

    /// Moves the parent levels first. The device gets a new message only if the message has changed; behind a
    /// remapping table entry it stays the same.
    fn set_affinity(&self, level: &Level<'_>, target: Target) -> Result<(), IrqError> {
        level.set_parent_affinity(target)?;
        self.refresh(level)
    }

    fn write_message(&self, level: &Level<'_>, message: MsiMessage) {
        let entry = level.hwirq().0 as usize;
        let mut entries = self.entries.lock();
        if let Some(Some(Taken(last))) = entries.get_mut(entry)
            && *last != Some(message)
        {
            self.source.write(entry as u32, message);
            *last = Some(message);
        }
    }
}

/// A device's messages as a domain.
pub struct MessageDomain<H: Hal, S> {
    parent: Arc<dyn IrqDomain>,
    messages: Arc<Messages<H, S>>,
    chip: Arc<IrqChip>,
}

impl<H: Hal, S: MessageSource + 'static> MessageDomain<H, S> {
    /// The messages of `source`, delivered through `parent`.
    ///
    /// # Errors
    /// [`IrqError::Undeliverable`] for a parent that posts, when the messages may not be posted.
    pub fn new(hal: H, source: S, parent: Arc<dyn IrqDomain>) -> Result<Self, IrqError> {
        if parent.is_posted() && !source.may_be_posted() {
            return Err(IrqError::Undeliverable("only messages of PCI functions can be posted"));
        }
        let entries = (0..source.entries()).map(|_| None).collect();
        let messages = Arc::new(Messages { source, entries: Lock::new(hal, entries) });
        Ok(Self { parent, chip: messages.chip(), messages })
    }

    /// Where the messages are kept.
    pub fn source(&self) -> &S {
        &self.messages.source
    }
}

impl<H: Hal, S: MessageSource + 'static> IrqDomain for MessageDomain<H, S> {
    fn name(&self) -> &str {
        self.chip.name()
    }

    fn parent(&self) -> Option<Arc<dyn IrqDomain>> {
        Some(self.parent.clone())
    }

    fn allocate(&self, request: &AllocRequest) -> Result<LevelData, IrqError> {
        let mut entries = self.messages.entries.lock();
        let exhausted = IrqError::Exhausted("messages of the device", entries.len() as u32);
        match entries.get_mut(request.index as usize) {
            Some(entry @ None) => *entry = Some(Taken(None)),
            Some(Some(_)) | None => return Err(exhausted),
        }
        Ok(LevelData { chip: self.chip.clone(), hwirq: HardwareIrq(u64::from(request.index)) })
    }

    fn activate(&self, level: &Level<'_>, _target: Target) -> Result<(), IrqError> {
        self.messages.refresh(level)
    }

    fn release(&self, hwirq: HardwareIrq) {
        self.messages.source.mask(hwirq.0 as u32);
        if let Some(entry) = self.messages.entries.lock().get_mut(hwirq.0 as usize) {
            *entry = None;
        }
    }
}
