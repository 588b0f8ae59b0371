//! Lines whose device writes a message: PCI MSI-X, HPET timers, the fault event of a remapping unit.
//!
//! They differ in where the message and the mask are kept ([`MessageSource`]); the chip and the domain are the same.

use alloc::sync::Arc;
use alloc::vec::Vec;
use hal::{Hal, Lock};
use irq::{AllocRequest, ChipOps, HardwareIrq, IrqChip, IrqDomain, IrqError, Level, LevelData, MsiMessage, Target};
use spec::msi::{ADDRESS_PREFIX, PlainAddress};

/// Where a device keeps the messages of its interrupts.
pub trait MessageSource: Send + Sync {
    /// Name of the chip.
    fn chip_name(&self) -> &'static str;
    /// How many messages there are.
    fn entries(&self) -> u32;
    /// Whether addresses above 4 GiB, that is APIC ids above 0xff without remapping, can be written.
    fn has_wide_address(&self) -> bool {
        false
    }
    /// Whether the messages may go through posted descriptors; only those of PCI functions may.
    fn may_be_posted(&self) -> bool {
        false
    }
    /// Lets `entry` send nothing more, once it returns.
    fn mask(&self, entry: u32);
    /// Lets it send again, and at once what was held back.
    fn unmask(&self, entry: u32);
    /// Changes the message of `entry`, which is below [`MessageSource::entries`].
    fn write(&self, entry: u32, message: MsiMessage);
}

/// The nearest level towards the CPU whose chip `has` an operation.
pub(crate) fn parent_with<'a>(level: &Level<'a>, has: impl Fn(ChipOps) -> bool) -> Result<Level<'a>, IrqError> {
    let mut next = level.parent();
    while let Some(parent) = next {
        if has(parent.chip().provides()) {
            return Ok(parent);
        }
        next = parent.parent();
    }
    Err(IrqError::NotSupported("operation at any level towards the CPU"))
}

/// An entry that a line has, and its message once it has one.
#[derive(Clone, Copy)]
struct Taken(Option<MsiMessage>);

/// The chip of message lines. A line's hardware number is its entry.
pub struct MessageChip<H: Hal, S> {
    source: S,
    entries: Lock<H, Vec<Option<Taken>>>,
}

impl<H: Hal, S: MessageSource> MessageChip<H, S> {
    /// Has the device write what the levels towards the CPU now compose.
    fn refresh(&self, level: &Level<'_>) -> Result<(), IrqError> {
        let composer = parent_with(level, |ops| ops.compose_message)?;
        let message = composer.chip().compose_message(&composer)?;
        // Other controllers' doorbells may lie anywhere.
        let for_apic = PlainAddress::from_bits(message.address).prefix() == ADDRESS_PREFIX;
        if for_apic && message.address >> 32 != 0 && !self.source.has_wide_address() {
            return Err(IrqError::Delivery("an APIC id above 0xff needs interrupt remapping"));
        }
        self.write_message(level, message);
        Ok(())
    }
}

impl<H: Hal, S: MessageSource> IrqChip for MessageChip<H, S> {
    fn name(&self) -> &'static str {
        self.source.chip_name()
    }

    fn provides(&self) -> ChipOps {
        ChipOps { mask: true, set_affinity: true, write_message: true, oneshot_safe: true, ..ChipOps::default() }
    }

    fn mask(&self, level: &Level<'_>) {
        self.source.mask(level.hwirq().0 as u32);
    }

    fn unmask(&self, level: &Level<'_>) {
        self.source.unmask(level.hwirq().0 as u32);
    }

    /// The levels towards the CPU move first; the device is told only when its message changed, which it does not
    /// where an entry of a remapping table stands between.
    fn set_affinity(&self, level: &Level<'_>, target: Target) -> Result<(), IrqError> {
        let mover = parent_with(level, |ops| ops.set_affinity)?;
        mover.chip().set_affinity(&mover, target)?;
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

    fn release(&self, hwirq: HardwareIrq) {
        self.source.mask(hwirq.0 as u32);
        if let Some(entry) = self.entries.lock().get_mut(hwirq.0 as usize) {
            *entry = None;
        }
    }
}

/// A device's messages as a domain.
pub struct MessageDomain<H: Hal, S> {
    parent: Arc<dyn IrqDomain>,
    chip: Arc<MessageChip<H, S>>,
}

impl<H: Hal, S: MessageSource> MessageDomain<H, S> {
    /// The messages of `source`, delivered through `parent`.
    ///
    /// # Errors
    /// [`IrqError::Delivery`] for a parent that posts, when the messages may not be posted.
    pub fn new(hal: H, source: S, parent: Arc<dyn IrqDomain>) -> Result<Self, IrqError> {
        if parent.is_posted() && !source.may_be_posted() {
            return Err(IrqError::Delivery("only messages of PCI functions can be posted"));
        }
        let entries = (0..source.entries()).map(|_| None).collect();
        Ok(Self { parent, chip: Arc::new(MessageChip { source, entries: Lock::new(hal, entries) }) })
    }

    /// Where the messages are kept.
    pub fn source(&self) -> &S {
        &self.chip.source
    }
}

impl<H: Hal, S: MessageSource + 'static> IrqDomain for MessageDomain<H, S> {
    fn name(&self) -> &str {
        self.chip.source.chip_name()
    }

    fn parent(&self) -> Option<&dyn IrqDomain> {
        Some(&*self.parent)
    }

    fn allocate(&self, request: &AllocRequest) -> Result<LevelData, IrqError> {
        let mut entries = self.chip.entries.lock();
        let exhausted = IrqError::Exhausted("messages of the device", entries.len() as u32);
        match entries.get_mut(request.index as usize) {
            Some(entry @ None) => *entry = Some(Taken(None)),
            Some(Some(_)) | None => return Err(exhausted),
        }
        Ok(LevelData { chip: self.chip.clone(), hwirq: HardwareIrq(u64::from(request.index)) })
    }

    fn activate(&self, level: &Level<'_>, _target: Target) -> Result<(), IrqError> {
        self.chip.refresh(level)
    }
}
