//! The unit: set-up, the table and its entries.

use super::queue::InvalidationQueue;
use super::{QueueFault, VtdError};
use crate::apic::ApicMode;
use crate::register::Typed as _;
use crate::slots::Slots;
use hal::{Dma, DmaExchange128, Hal, Lock, Word};
use irq::RequesterId;
use spec::vtd::irte::{Common, SIZE, SourceQualifier, SourceValidation};
use spec::vtd::registers::{
    CAP, Capability, ECAP, ExtendedCapability, GCMD, GSTS, GlobalCommand, GlobalStatus, IRTA, TableAddress,
};

/// How long a command may take. Hardware answers within microseconds, an emulated unit when its host gets round to it.
const COMMAND_TIMEOUT_NS: u64 = 1_000_000_000;
const COMMAND_POLL_NS: u64 = 1_000;

/// How a unit is set up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemapConfig {
    /// Entries of the table: a power of two from 2 to 65,536.
    pub table_entries: u32,
    /// The mode of the local APICs. x2APIC mode needs the unit's extended interrupt mode.
    pub apic_mode: ApicMode,
}

/// An entry of the table that a line has.
struct Entry {
    requester: RequesterId,
    /// The host's entry.
    host: u128,
    /// The guest's entry, while a guest has the line.
    guest: Option<u128>,
    /// The entry now in the table.
    written: u128,
    /// An invalidation failed: the unit may still remember what the table held before.
    owed: bool,
    /// No line uses the entry any more. It is freed once no invalidation is outstanding.
    freed: bool,
}

impl Entry {
    fn belief(&self) -> EntryBelief {
        EntryBelief { host: self.host, is_lent: self.guest.is_some(), written: self.written, owed: self.owed }
    }
}

/// What the driver believes of one entry of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EntryBelief {
    /// The host's entry, without its source.
    pub host: u128,
    /// A guest has the line, and the table holds the guest's entry.
    pub is_lent: bool,
    /// The entry in the table; 0 where no line has one.
    pub written: u128,
    /// The unit may still remember what the table held before, since an invalidation failed.
    pub owed: bool,
}

/// A remapping unit that remaps interrupts.
pub struct RemapUnit<H: Hal> {
    pub(super) regs: H::Regs,
    hal: H,
    pub(super) capability: Capability,
    apic_mode: ApicMode,
    table_entries: u32,
    table: H::Dma,
    /// Lock order: `entries` before this lock.
    queue: Lock<H, InvalidationQueue<H>>,
    entries: Lock<H, Slots<Entry>>,
}

impl<H: Hal> RemapUnit<H>
where
    H::Dma: DmaExchange128,
{
    /// Sets up the unit behind `regs` and turns interrupt remapping on, with compatibility-format requests blocked
    /// (VT-d, "Programming in the Interrupt-Remapping Mode"). What firmware left enabled is turned off first, and
    /// its fault event masked. A unit that fails half-way is turned off again; if that fails too, the memory that it may
    /// still use stays allocated.
    ///
    /// # Errors
    /// [`VtdError`] when a capability or memory is missing, or a command does not take effect.
    pub fn new(hal: H, regs: H::Regs, config: RemapConfig) -> Result<Self, VtdError> {
        let RemapConfig { table_entries, apic_mode } = config;
        if !table_entries.is_power_of_two() || !(2..=1 << 16).contains(&table_entries) {
            return Err(VtdError::TableEntries(table_entries));
        }
        let extended = ExtendedCapability::from_bits(regs.read(ECAP));
        let wide = apic_mode == ApicMode::X2Apic;
        let needs = [
            (extended.interrupt_remapping(), "interrupt remapping (ECAP.IR)"),
            (extended.queued_invalidation(), "queued invalidation (ECAP.QI)"),
            (extended.extended_interrupt_mode() || !wide, "extended interrupt mode (ECAP.EIM), which x2APIC needs"),
        ];
        if let Some((_, missing)) = needs.iter().find(|(present, _)| !present) {
            return Err(VtdError::Missing(missing));
        }
        let table_bytes = table_entries as usize * SIZE;
        let unit = Self {
            capability: Capability::from_bits(regs.read(CAP)),
            regs,
            hal,
            apic_mode,
            table_entries,
            table: hal.dma_alloc(table_bytes, table_bytes.max(4096))?,
            queue: Lock::new(hal, InvalidationQueue::new(hal)?),
            entries: Lock::new(hal, Slots::new()),
        };
        let Err(error) = unit.turn_on() else { return Ok(unit) };
        // A command that is late may still take effect, and the unit takes no other one before.
        let is_late = matches!(error, VtdError::CommandTimeout(..));
        if is_late || unit.turn_off().is_err() {
            // The unit may still read the table and descriptors, and write the status of a wait descriptor.
            core::mem::forget(unit);
        }
        Err(error)
    }

    fn turn_on(&self) -> Result<(), VtdError> {
        self.turn_off()?;
        self.clear_old_status();
        self.queue.lock().announce(&self.regs);
        self.command("QIE", |c| c.with_queued_invalidation(true), |s| s.queued_invalidation())?;
        let address = TableAddress::new()
            .with_size((self.table_entries.ilog2() - 1) as u8)
            .with_extended_interrupt_mode(self.apic_mode == ApicMode::X2Apic)
            .with_page(self.table.device_address().0 >> 12);
        self.regs.write(IRTA, address.into_bits());
        self.command("SIRTP", |c| c.with_set_interrupt_table(true), |s| s.interrupt_table_set())?;
        self.invalidate(None)?;
        self.command("CFI off", |c| c.with_compatibility_format(false), |s| !s.compatibility_format())?;
        self.command("IRE", |c| c.with_interrupt_remapping(true), |s| s.interrupt_remapping())
    }

    /// Masks the fault event and turns remapping off: the unit then uses no memory of this driver, and messages pass it as they
    /// are. For a system that ends, or that does not come up; no line may be left behind the unit.
    ///
    /// # Errors
    /// [`VtdError::CommandTimeout`], or [`VtdError::Queue`] of a queue that does not drain, which must not be disabled: the unit goes on
    /// with its table and queue, so this value must not be dropped.
    pub fn shut_down(&self) -> Result<(), VtdError> {
        self.mask_fault_event();
        self.queue.lock().drain(&self.regs)?;
        self.turn_off()
    }

    /// Once this has returned Ok, the unit uses no table and no queue.
    fn turn_off(&self) -> Result<(), VtdError> {
        pass_unremapped(self.hal, &self.regs)?;
        self.command("QIE off", |c| c.with_queued_invalidation(false), |s| !s.queued_invalidation())
    }

    fn command(
        &self,
        name: &'static str,
        change: impl FnOnce(GlobalCommand) -> GlobalCommand,
        done: impl Fn(GlobalStatus) -> bool,
    ) -> Result<(), VtdError> {
        command(self.hal, &self.regs, name, change, done)
    }

    fn invalidate(&self, index: Option<u16>) -> Result<(), QueueFault> {
        self.queue.lock().invalidate_entries(&self.regs, index)
    }

    /// Clears the errors of the invalidation queue; false if somebody waits for it, who has to see them and clears them.
    pub(super) fn clear_unawaited_errors(&self) -> bool {
        self.queue.try_lock().map(|mut queue| queue.clear_errors(&self.regs)).is_some()
    }

    /// Whether the unit can post (CAP.PI).
    pub fn supports_posting(&self) -> bool {
        self.capability.posted_interrupts()
    }

    /// Takes an entry for messages of `requester`. Nothing is delivered yet.
    pub(super) fn allocate(&self, requester: RequesterId) -> Result<u64, VtdError> {
        let entry = Entry { requester, host: 0, guest: None, written: 0, owed: false, freed: false };
        let index = self.entries.lock().insert(entry, self.table_entries as usize);
        index.map(|index| index as u64).ok_or(VtdError::TableFull(self.table_entries))
    }

    /// Calls `tell` with the number of each entry that a line ever had, and the driver's belief of it. No entry changes
    /// meanwhile, so `tell` must call nothing of this unit. Does not allocate.
    pub fn for_each_belief(&self, mut tell: impl FnMut(u16, EntryBelief)) {
        let entries = self.entries.lock();
        for index in 0..entries.len() {
            tell(index as u16, entries.get(index).map_or(EntryBelief::default(), Entry::belief));
        }
    }

    /// The driver's belief of one entry, if a line has it.
    pub fn belief(&self, index: u64) -> Option<EntryBelief> {
        self.entries.lock().get(index as usize).map(Entry::belief)
    }

    /// Makes the line deliver `host` (an entry without its source): now, or when a guest gives the line back.
    pub(super) fn set_host(&self, index: u64, host: u128) -> Result<(), VtdError> {
        self.update(index, |entry| entry.host = host)
    }

    /// Makes the line deliver `guest` (an entry without its source) instead of the host's entry. None ends that.
    pub(super) fn set_guest(&self, index: u64, guest: Option<u128>) -> Result<(), VtdError> {
        self.update(index, |entry| entry.guest = guest)
    }

    /// Changes the wanted content of an entry, and writes the table if the content differs. On failure restores entry
    /// and table.
    fn update(&self, index: u64, change: impl FnOnce(&mut Entry)) -> Result<(), VtdError> {
        let mut entries = self.entries.lock();
        let entry = entries.get_mut(index as usize).filter(|entry| !entry.freed).ok_or(VtdError::NoEntry(index))?;
        let before = (entry.host, entry.guest, entry.written);
        change(entry);
        let wanted = with_source(entry.guest.unwrap_or(entry.host), entry.requester);
        if wanted == entry.written && !entry.owed {
            return Ok(());
        }
        let outcome = self.write(index, entry.written, wanted);
        match outcome {
            Ok(()) => (entry.written, entry.owed) = (wanted, false),
            Err(VtdError::Queue(_)) => {
                (entry.host, entry.guest, entry.written) = before;
                // The queue has already failed; the error below reports it. The table at least keeps its old entry.
                entry.owed = self.write(index, wanted, entry.written).is_err();
            }
            Err(_) => (entry.host, entry.guest, entry.written) = before,
        }
        outcome
    }

    /// Frees an entry. An entry that the unit may still cache is not reused before [`RemapUnit::settles`]. An entry
    /// that other software wrote is never reused.
    pub(super) fn free(&self, index: u64) {
        let mut entries = self.entries.lock();
        let Some(entry) = entries.get_mut(index as usize) else { return };
        if entry.written != 0 {
            match self.write(index, entry.written, 0) {
                Ok(()) => entry.owed = false,
                Err(VtdError::Queue(_)) => entry.owed = true,
                Err(_) => return entry.written = 0,
            }
            entry.written = 0;
        }
        entry.freed = true;
        if !entry.owed {
            entries.remove(index as usize);
        }
    }

    /// True once the unit caches no older content of an entry. Retries a failed invalidation once.
    pub(super) fn settles(&self, index: u64) -> bool {
        let mut entries = self.entries.lock();
        let Some(entry) = entries.get_mut(index as usize) else { return true };
        entry.owed = entry.owed && self.invalidate(Some(index as u16)).is_err();
        if entry.owed {
            return false;
        }
        if entry.freed {
            entries.remove(index as usize);
        }
        true
    }

    /// Changes an entry of the table from `old` to `new`, then has the unit drop the cached old entry. In between the
    /// unit may use either.
    fn write(&self, index: u64, old: u128, new: u128) -> Result<(), VtdError> {
        if Common::from_bits(old).posted() || Common::from_bits(new).posted() {
            // One access: a half-written descriptor address would post into foreign memory ("Interrupt Remapping
            // Table Entry (IRTE) for Posted Interrupts").
            self.table
                .compare_exchange_128(index as usize * SIZE, old, new)
                .map_err(|_| VtdError::Overwritten(index))?;
        } else {
            self.write_halves(index, new);
        }
        Ok(self.invalidate(Some(index as u16))?)
    }

    /// Remapped to remapped: the low half has all that changes while the entry is present.
    fn write_halves(&self, index: u64, new: u128) {
        let first = index as usize * 2;
        let (low, high) = (&self.table.words()[first], &self.table.words()[first + 1]);
        if Common::from_bits(new).present() {
            high.set((new >> 64) as u64);
            low.set(new as u64);
        } else {
            low.set(new as u64);
            high.set((new >> 64) as u64);
        }
    }
}

/// Turns off the remapping of interrupts that earlier software left on at the unit behind `regs`: plain messages pass it then. What
/// else the unit does goes on, and a unit that remaps nothing is left alone.
///
/// # Errors
/// [`VtdError::CommandTimeout`].
pub fn pass_unremapped<H: Hal>(hal: H, regs: &H::Regs) -> Result<(), VtdError> {
    command(hal, regs, "IRE off", |c| c.with_interrupt_remapping(false), |s| !s.interrupt_remapping())
}

/// Writes the enabled features again with one `change`, if it is one, and waits until the status is `done` (VT-d, "Global
/// Command Register").
fn command<H: Hal>(
    hal: H,
    regs: &H::Regs,
    name: &'static str,
    change: impl FnOnce(GlobalCommand) -> GlobalCommand,
    done: impl Fn(GlobalStatus) -> bool,
) -> Result<(), VtdError> {
    let status = || GlobalStatus::from_bits(regs.read(GSTS));
    // The status shows one-shot commands as set for ever after; written back, they would run again.
    let enabled = GlobalCommand::from_bits(status().into_bits())
        .with_set_root_table(false)
        .with_set_fault_log(false)
        .with_write_buffer_flush(false)
        .with_set_interrupt_table(false);
    let command = change(enabled);
    if command == enabled {
        return Ok(());
    }
    regs.write(GCMD, command.into_bits());
    let deadline_ns = hal.now_ns().saturating_add(COMMAND_TIMEOUT_NS);
    while !done(status()) {
        if hal.now_ns() >= deadline_ns {
            return Err(VtdError::CommandTimeout(name, COMMAND_TIMEOUT_NS));
        }
        hal.delay_ns(COMMAND_POLL_NS);
    }
    Ok(())
}

/// `entry` for messages of `requester` alone: every entry that is present is checked ("Source-ID Validation").
fn with_source(entry: u128, requester: RequesterId) -> u128 {
    let entry = Common::from_bits(entry);
    if !entry.present() {
        return 0;
    }
    entry
        .with_source(requester.0)
        .with_qualifier(SourceQualifier::ALL_16.0)
        .with_validation(SourceValidation::REQUESTER.0)
        .into_bits()
}
