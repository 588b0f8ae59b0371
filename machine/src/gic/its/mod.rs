//! The Interrupt Translation Service. It turns a message of a device (its requester id and an event) into an LPI of a
//! CPU, and executes the commands in its queue.
//!
//! Sources: IHI 0069H, "The ITS", "The ITS register descriptions", "ITS commands and errors". Its tables are in the
//! memory that software gives it, flat, with entries of 8 bytes ([`tables`]); commands name redistributors by number
//! (PTA is 0). A command in error is recorded and skipped; a queue that is not in memory stalls.

mod commands;
mod effects;
mod tables;

use super::access::{Outcome, Refusal};
use super::{COMMAND, Gic, ItsConfig};
use crate::observe::Fact;
use crate::time::Ps;
use crate::world::World;
use effects::Outstanding;
use spec::gic::its::{self, Base, CommandBase, Control, Pointer, TableType, Type};
use std::collections::BTreeMap;

/// Bytes of an entry of each table.
const ENTRY_BYTES: u64 = 8;
/// The BASER register of each table.
const TABLES: [TableType; 2] = [TableType::DEVICES, TableType::COLLECTIONS];

/// Registers of an ITS, and its counters.
pub(super) struct Its {
    pub(super) config: ItsConfig,
    cpus: u32,
    pub(super) enabled: bool,
    /// A command is in progress.
    busy: bool,
    queue: CommandBase,
    written: Pointer,
    done: Pointer,
    tables: [Base; 2],
    /// Addresses of the translation tables of mapped devices, which are in the device table too.
    translations: BTreeMap<u32, u64>,
    /// What has not reached its redistributor yet, in order.
    outstanding: Vec<Outstanding>,
    pub(super) commands: u64,
    pub(super) errors: u64,
    /// It takes each command for one in error, and stalls.
    pub(super) refuses: bool,
    /// The index of the command that it has refused.
    refused: Option<u16>,
    /// It ends no command before this time.
    pub(super) silent_until: Ps,
    /// Commands before the silence.
    pub(super) last_words: u32,
}

impl Its {
    /// After reset: disabled, no tables.
    ///
    /// # Panics
    /// When a number of the configuration is out of the range that its documentation states.
    pub(super) fn new(config: ItsConfig, cpus: u32) -> Self {
        assert!((1..=20).contains(&config.device_bits), "{} bits of device id; there are 1 to 20", config.device_bits);
        assert!((1..=16).contains(&config.event_bits), "{} bits of event id; there are 1 to 16", config.event_bits);
        assert!((14..=16).contains(&config.intid_bits), "{} bits of INTID; there are 14 to 16", config.intid_bits);
        Self {
            config,
            cpus,
            enabled: false,
            busy: false,
            queue: CommandBase::new(),
            written: Pointer::new(),
            done: Pointer::new(),
            tables: TABLES.map(|kind| Base::new().with_kind(kind.0).with_entry_less_one(ENTRY_BYTES as u8 - 1)),
            translations: BTreeMap::new(),
            outstanding: Vec::new(),
            commands: 0,
            errors: 0,
            refuses: false,
            refused: None,
            silent_until: Ps(0),
            last_words: 0,
        }
    }

    /// Where queue and tables lie that the ITS uses (IHI 0069H, "GITS_CTLR", Enabled).
    pub(super) fn used_memory(&self) -> Vec<u64> {
        let tables = self.tables.iter().filter(|table| table.valid()).map(|table| table.page() << 12);
        let queue = self.queue.valid().then_some(self.queue.page() << 12);
        tables.chain(queue).chain(self.translations.values().copied()).filter(|_| self.enabled).collect()
    }

    /// Number of commands that fit in the queue.
    fn queue_length(&self) -> u32 {
        (u32::from(self.queue.pages_less_one()) + 1) * 4096 / its::COMMAND_BYTES as u32
    }

    fn wide_register(&self, offset: u32) -> Outcome<u64> {
        Ok(match offset {
            _ if offset == its::TYPER.offset() => Type::new()
                .with_physical_lpis(true)
                .with_itt_entry_less_one(ENTRY_BYTES as u8 - 1)
                .with_event_bits_less_one(self.config.event_bits - 1)
                .with_device_bits_less_one(self.config.device_bits - 1)
                .into_bits(),
            _ if offset == its::CBASER.offset() => self.queue.into_bits(),
            _ if offset == its::CWRITER.offset() => self.written.into_bits(),
            _ if offset == its::CREADR.offset() => self.done.into_bits(),
            _ => {
                let index = its::BASER.index_of(offset).ok_or(Refusal::Reserved)?;
                self.tables.get(index as usize).map_or(0, |base| base.into_bits())
            }
        })
    }

    fn read(&self, offset: u32, width: u8) -> Outcome<u64> {
        let wide = self.wide_register(offset & !7);
        if let Ok(value) = wide
            && offset.is_multiple_of(width.into())
        {
            let half = value >> (offset % 8 * 8);
            return Ok(if width == 8 { half } else { half & 0xffff_ffff });
        }
        if width != 4 || !offset.is_multiple_of(4) {
            return Err(Refusal::Width);
        }
        match offset {
            _ if offset == its::CTLR.offset() => {
                let quiescent = !self.enabled && !self.busy && self.outstanding.is_empty();
                Ok(Control::new().with_enable(self.enabled).with_quiescent(quiescent).into_bits().into())
            }
            _ if offset == its::IIDR.offset() => Ok(0),
            _ if offset == its::PIDR2.offset() => Ok(super::distributor::PIDR2_V3.into()),
            _ if offset == its::TRANSLATER.offset() => Err(Refusal::WriteOnly),
            _ => Err(Refusal::Reserved),
        }
    }

    fn write(&mut self, world: &mut World<'_>, offset: u32, width: u8, value: u64) -> Outcome<()> {
        if let Ok(old) = self.wide_register(offset & !7)
            && offset.is_multiple_of(width.into())
        {
            let whole = crate::memory::with_field(old, offset % 8 * 8, u32::from(width) * 8, value);
            return self.set_wide_register(world, offset & !7, whole);
        }
        if width != 4 || !offset.is_multiple_of(4) {
            return Err(Refusal::Width);
        }
        match offset {
            _ if offset == its::CTLR.offset() => self.enabled = Control::from_bits(value as u32).enable(),
            _ if offset == its::IIDR.offset() || offset == its::PIDR2.offset() => return Err(Refusal::ReadOnly),
            // A CPU is no device, so its message has no device id.
            _ => return Err(Refusal::Reserved),
        }
        Ok(())
    }

    /// Queue and tables cannot be changed while the ITS is enabled (unpredictable).
    fn set_wide_register(&mut self, world: &mut World<'_>, offset: u32, value: u64) -> Outcome<()> {
        match offset {
            _ if offset == its::CWRITER.offset() => return self.set_written(world, Pointer::from_bits(value)),
            _ if offset == its::TYPER.offset() || offset == its::CREADR.offset() => return Err(Refusal::ReadOnly),
            _ if self.enabled => return Err(Refusal::Busy),
            _ if offset == its::CBASER.offset() => {
                self.queue = CommandBase::from_bits(value);
                self.done = Pointer::new();
            }
            _ => {
                let index = its::BASER.index_of(offset).ok_or(Refusal::Reserved)? as usize;
                // The other BASERs are not implemented and stay zero.
                let Some(table) = self.tables.get_mut(index) else { return Ok(()) };
                if TABLES[index] == TableType::DEVICES {
                    self.translations.clear();
                }
                *table = Base::from_bits(value)
                    .with_kind(table.kind())
                    .with_entry_less_one(table.entry_less_one())
                    .with_indirect(false);
            }
        }
        Ok(())
    }

    fn set_written(&mut self, world: &mut World<'_>, written: Pointer) -> Outcome<()> {
        if u32::from(written.index()) >= self.queue_length() {
            let text = format!("command {} of {}", written.index(), self.queue_length());
            world.fault("GITS_CWRITER beyond the queue", written.index().into(), text);
            return Ok(());
        }
        self.written = Pointer::new().with_index(written.index());
        if written.stalled_or_retry() {
            self.done.set_stalled_or_retry(false);
        }
        Ok(())
    }

    /// Begins the next command, if there is one and none is in progress.
    pub(super) fn advance(&mut self, world: &mut World<'_>) {
        let waits = self.done.index() != self.written.index() && !self.done.stalled_or_retry();
        if self.enabled && self.queue.valid() && waits && !self.busy {
            self.busy = true;
            let time = world.jitter(self.config.command_time);
            let speaks = self.last_words > 0;
            self.last_words = self.last_words.saturating_sub(1);
            let silent_until = if speaks { Ps(0) } else { self.silent_until };
            world.schedule(silent_until.max(world.now() + time), COMMAND, 0);
        }
    }

    /// The words of the next command. A queue outside memory stalls.
    fn fetch(&mut self, world: &mut World<'_>) -> Option<[u64; 4]> {
        // What software puts into the place of a refused command is taken.
        let is_other = self.refused.take() != Some(self.done.index());
        if is_other && (self.refuses || world.refuses()) {
            self.refused = Some(self.done.index());
            self.done.set_stalled_or_retry(true);
            world.tell(|| Fact::Struck { source: world.me(), fault: "stalled command" });
            return None;
        }
        let address = (self.queue.page() << 12) + u64::from(self.done.index()) * its::COMMAND_BYTES as u64;
        let word = |index: u64| world.read64(address + index * 8);
        if let (Ok(first), Ok(second), Ok(third), Ok(fourth)) = (word(0), word(1), word(2), word(3)) {
            let next = (u32::from(self.done.index()) + 1) % self.queue_length();
            self.done.set_index(next as u16);
            return Some([first, second, third, fourth]);
        }
        self.done.set_stalled_or_retry(true);
        self.errors += 1;
        world.fault("ITS command queue outside of memory", address, format!("command at {address:#x}"));
        None
    }
}

impl Gic {
    /// See [`crate::Machine::set_its_refuses`].
    pub(crate) fn set_its_refuses(&mut self, refuses: bool) {
        if let Some(its) = &mut self.its {
            its.refuses = refuses;
        }
    }

    /// See [`crate::Machine::set_its_silent`].
    pub(crate) fn set_its_silent(&mut self, until: Ps, last_words: u32) {
        if let Some(its) = &mut self.its {
            (its.silent_until, its.last_words) = (until, last_words);
        }
    }

    pub(super) fn its_read(&mut self, offset: u32, width: u8) -> Outcome<u64> {
        self.its.as_ref().ok_or(Refusal::Reserved)?.read(offset, width)
    }

    pub(super) fn its_write(&mut self, world: &mut World<'_>, offset: u32, width: u8, value: u64) -> Outcome<()> {
        let its = self.its.as_mut().ok_or(Refusal::Reserved)?;
        its.write(world, offset, width, value)?;
        its.advance(world);
        Ok(())
    }

    /// A command's time has passed.
    pub(super) fn its_command(&mut self, world: &mut World<'_>) {
        let Some(its) = &mut self.its else { return };
        its.busy = false;
        let words = if its.enabled { its.fetch(world) } else { None };
        if let Some(words) = words {
            its.commands += 1;
            if let Err(error) = self.its_execute(world, words) {
                let its = self.its.as_mut().expect("it has a command");
                its.errors += 1;
                world.fault("ITS command error", words[0] & 0xff, format!("{words:#x?}: {error}"));
            }
        }
        if let Some(its) = &mut self.its {
            its.advance(world);
        }
    }

    /// A device's message: makes the LPI that it is mapped to pending.
    pub(super) fn its_message(&mut self, world: &mut World<'_>, device: u32, event: u32) {
        let Some(its) = self.its.as_ref().filter(|its| its.enabled) else {
            return world.fault("message for an ITS that is disabled", device.into(), format!("event {event}"));
        };
        match its.translate(world, device, event) {
            Ok((cpu, intid)) => self.its_pend(world, cpu, intid),
            Err(error) => world.fault("message without a translation", device.into(), error.to_string()),
        }
    }
}
