//! The Interrupt Translation Service (IHI 0069H, "Locality-specific Peripheral Interrupts and the ITS"). Devices write
//! an event id. The ITS finds the LPI from device and event, and the CPU from the LPI's collection. This driver gives
//! every CPU one collection, with the CPU's number.

mod domain;
mod queue;

pub use domain::ItsDomain;

use super::GicError;
use super::distributor::wait;
use super::frame::Frame;
use super::lpi::Lpis;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use hal::{CpuId, Dma, Hal, Lock, Word};
use queue::CommandQueue;
use spec::gic::IntId;
use spec::gic::gicr::{Cacheability, Shareability};
use spec::gic::its::{BASER, Base, CTLR, Command, Control, RedistributorBase, TRANSLATER, TYPER, TableType, Type};

/// Device ids are PCI requester ids.
const DEVICE_BITS: u32 = 16;
/// Maximum number of pages in a table.
const PAGES_MAX: usize = 256;
const TABLE_ALIGN: usize = 0x1_0000;
/// Alignment of a device's translation table, in bytes.
const DEVICE_TABLE_ALIGN: usize = 256;

/// Configuration of an ITS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ItsConfig {
    /// Bus address of the ITS. The translation register lies above it.
    pub base: u64,
    /// Maximum number of events for each device: a power of two, at least 2. A PCI function has up to 2,048.
    pub events_per_device: u32,
}

/// The event of a line.
#[derive(Default)]
struct Event {
    /// The event's mapping, once its line has been activated.
    mapped: Option<(IntId, CpuId)>,
    masked: bool,
}

struct Device<H: Hal> {
    /// Used by the ITS; freed after the ITS has unmapped the device.
    table: H::Dma,
    events: Vec<Option<Event>>,
    /// The ITS was told to unmap the device: whether it has, it did not say.
    is_leaving: bool,
}

/// An ITS.
pub struct Its<H: Hal> {
    regs: H::Regs,
    config: ItsConfig,
    kind: Type,
    lpis: Arc<Lpis<H>>,
    hal: H,
    /// Tables in which the ITS keeps its state. Only the ITS accesses them.
    _tables: Vec<H::Dma>,
    devices: Lock<H, BTreeMap<u32, Device<H>>>,
    /// Lock order: `devices` before `queue`.
    queue: Lock<H, CommandQueue<H>>,
    /// Indexed by CPU: 1 once the CPU can be a target.
    online: Vec<H::Word>,
}

/// Commands that failed.
struct Failed {
    error: GicError,
    /// Nothing of them is done, and nothing will be.
    is_undone: bool,
}

impl From<Failed> for GicError {
    fn from(failed: Failed) -> Self {
        failed.error
    }
}

impl<H: Hal> Its<H> {
    /// Sets up the ITS with its own tables, and makes this CPU a target.
    ///
    /// # Errors
    /// [`GicError`] when the ITS does not become quiescent, has no room for devices or CPUs, or does not snoop caches. Then
    /// LPIs are disabled on all CPUs, if no other ITS uses `lpis`, until [`Lpis::start_cpu`] or another ITS enables them again. Where
    /// that is not supported, redistributors go on with the tables, so these stay allocated.
    pub fn new(hal: H, regs: H::Regs, lpis: Arc<Lpis<H>>, config: ItsConfig) -> Result<Self, GicError> {
        lpis.join()?;
        let its = match Self::set_up(hal, regs, lpis.clone(), config) {
            Ok(its) => its,
            Err(error) => {
                lpis.leave();
                return Err(error);
            }
        };
        let off = hal.irq_save();
        let online = its.cpu_online(hal.cpu());
        hal.irq_restore(off);
        let Err(error) = online else { return Ok(its) };
        if stop(hal, &Frame::new(&its.regs, 0)).is_ok() {
            lpis.leave();
        } else {
            // An ITS that does not stop may still use its tables and LPIs, so they stay allocated.
            core::mem::forget(its);
        }
        Err(error)
    }

    /// The ITS with its own tables, enabled.
    fn set_up(hal: H, regs: H::Regs, lpis: Arc<Lpis<H>>, config: ItsConfig) -> Result<Self, GicError> {
        let frame = Frame::new(&regs, 0);
        let kind = Type::from_bits(frame.read(TYPER));
        let events_end = 1u64 << (u32::from(kind.event_bits_less_one()) + 1);
        let events = u64::from(config.events_per_device);
        if !events.is_power_of_two() || events < 2 || events > events_end {
            return Err(GicError::TooLarge("number of events of a device", events, events_end + 1));
        }
        stop(hal, &frame)?;
        let cpus = lpis.gic().version.cpus();
        let tables = make_tables(hal, &frame, kind, cpus)?;
        let queue = CommandQueue::new(hal, &frame)?;
        frame.write(CTLR, Control::new().with_enable(true).into_bits());
        Ok(Self {
            regs,
            config,
            kind,
            lpis,
            hal,
            _tables: tables,
            devices: Lock::new(hal, BTreeMap::new()),
            queue: Lock::new(hal, queue),
            online: (0..cpus).map(|_| H::Word::new(0)).collect(),
        })
    }

    fn post(&self, commands: &[Command]) -> Result<(), GicError> {
        self.queue.lock().post(&Frame::new(&self.regs, 0), commands)
    }

    /// Posts `commands`. If the ITS refuses one behind the first, the first has been done; then `undo` follows.
    fn post_or_undo(&self, commands: &[Command], undo: &[Command]) -> Result<(), Failed> {
        let (mut queue, frame) = (self.queue.lock(), Frame::new(&self.regs, 0));
        let first = queue.next();
        queue.post(&frame, commands).map_err(|error| {
            let is_undone = match error {
                GicError::Stalled(index) => index == first || queue.post_firmly(&frame, undo).is_ok(),
                // What an ITS did not do in time it may do yet.
                _ => false,
            };
            Failed { error, is_undone }
        })
    }

    /// Posts `commands`, and once more from the one on that the ITS refuses: for what must not be left undone.
    fn post_firmly(&self, commands: &[Command]) -> Result<(), GicError> {
        self.queue.lock().post_firmly(&Frame::new(&self.regs, 0), commands)
    }

    fn redistributor(&self, cpu: CpuId) -> Result<RedistributorBase, GicError> {
        self.lpis.gic().version.its_target(cpu, self.kind.physical_targets())
    }

    fn sync(&self, cpu: CpuId) -> Result<Command, GicError> {
        Ok(Command::Sync { redistributor: self.redistributor(cpu)? })
    }

    /// Makes `cpu` a target of LPIs. [`Lpis::start_cpu`] must have run there.
    ///
    /// # Errors
    /// [`GicError::NoCpu`], [`GicError::Timeout`], [`GicError::Stalled`].
    pub fn cpu_online(&self, cpu: CpuId) -> Result<(), GicError> {
        let (collection, redistributor) = (cpu.0 as u16, self.redistributor(cpu)?);
        self.post_firmly(&[
            Command::MapCollection { collection, redistributor, valid: true },
            Command::InvalidateAll { collection },
            Command::Sync { redistributor },
        ])?;
        self.online[cpu.index()].set(1);
        Ok(())
    }

    /// Moves all that is left at `from` to `to`: the events of managed lines that are shut down, and pending LPIs. Call it
    /// after `IrqCore::cpu_offline`, which has moved the other lines one by one, and before [`super::Gic::stop_cpu`].
    ///
    /// # Errors
    /// [`GicError::NoCpu`], [`GicError::Timeout`], [`GicError::Stalled`]. Then `from` stays a target, unless the ITS does
    /// not take it back either.
    pub fn cpu_offline(&self, from: CpuId, to: CpuId) -> Result<(), GicError> {
        let (old, new) = (self.redistributor(from)?, self.redistributor(to)?);
        self.online[from.index()].set(0);
        let gone = self.leave(from, to).and_then(|()| self.empty(from, old, new));
        if gone.is_err() {
            _ = self.cpu_online(from);
        }
        gone
    }

    /// A message for a line that is shut down stays pending where its event is, and moves back with it.
    fn leave(&self, from: CpuId, to: CpuId) -> Result<(), GicError> {
        let mut devices = self.devices.lock();
        for (&device, state) in devices.iter_mut() {
            for (number, event) in (0..).zip(&mut state.events) {
                if let Some((_, cpu)) = event.as_mut().and_then(|event| event.mapped.as_mut())
                    && *cpu == from
                {
                    // Once more if the ITS refuses it: the CPU should be able to go.
                    self.move_event(device, number, from, to).or_else(|_| self.move_event(device, number, from, to))?;
                    *cpu = to;
                }
            }
        }
        Ok(())
    }

    fn empty(&self, from: CpuId, old: RedistributorBase, new: RedistributorBase) -> Result<(), GicError> {
        let collection = from.0 as u16;
        self.post_firmly(&[
            Command::MapCollection { collection, redistributor: new, valid: true },
            Command::Sync { redistributor: new },
            Command::MoveAll { from: old, to: new },
            Command::Sync { redistributor: old },
            Command::Sync { redistributor: new },
        ])
    }

    /// A pending interrupt moves too (IHI 0069H, "MOVI"). Waits for both redistributors: afterwards the old one delivers
    /// nothing more, and the new one delivers.
    fn move_event(&self, device: u32, event: u32, from: CpuId, to: CpuId) -> Result<(), GicError> {
        let (sync_old, sync_new) = (self.sync(from)?, self.sync(to)?);
        let move_to = |cpu: CpuId| Command::Move { device, event, collection: cpu.0 as u16 };
        let commands = [move_to(to), sync_old, sync_new];
        Ok(self.post_or_undo(&commands, &[move_to(from), sync_new, sync_old])?)
    }

    /// The LPIs that its events become.
    pub fn lpis(&self) -> &Arc<Lpis<H>> {
        &self.lpis
    }

    fn can_target(&self, cpu: CpuId) -> bool {
        self.online.get(cpu.index()).is_some_and(|word| word.get() != 0)
    }

    /// The address to which devices write their event ids.
    pub fn doorbell(&self) -> u64 {
        self.config.base + u64::from(TRANSLATER.offset())
    }

    /// Allocates a device's translation table, and maps the device in the ITS.
    fn make_device(&self, device: u32) -> Result<Device<H>, GicError> {
        let bits = DEVICE_BITS.min(u32::from(self.kind.device_bits_less_one()) + 1);
        if device >> bits != 0 {
            return Err(GicError::TooLarge("device id", device.into(), 1 << bits));
        }
        let events = self.config.events_per_device;
        let bytes = events as usize * (usize::from(self.kind.itt_entry_less_one()) + 1);
        let table = self.hal.dma_alloc(bytes.max(DEVICE_TABLE_ALIGN), DEVICE_TABLE_ALIGN)?;
        let event_bits_less_one = events.ilog2() as u8 - 1;
        let address = table.device_address().0;
        match self.post(&[Command::MapDevice { device, event_bits_less_one, table: address, valid: true }]) {
            Ok(()) => Ok(Device { table, events: (0..events).map(|_| None).collect(), is_leaving: false }),
            Err(refused @ GicError::Stalled(_)) => Err(refused),
            Err(late) => {
                // What an ITS did not do in time it may do yet. The memory is its own then, for good.
                core::mem::forget(table);
                Err(late)
            }
        }
    }
}

/// Disables the ITS, and waits until it uses its tables no more (IHI 0069H, "GITS_CTLR").
fn stop<H: Hal>(hal: H, frame: &Frame<'_, H::Regs>) -> Result<(), GicError> {
    frame.write(CTLR, Control::new().into_bits());
    wait(hal, "GITS_CTLR.Quiescent = 1", || Control::from_bits(frame.read(CTLR)).quiescent())
}

/// Gives the ITS the memory that it requests (IHI 0069H, "GITS_BASERn").
fn make_tables<H: Hal>(hal: H, frame: &Frame<'_, H::Regs>, kind: Type, cpus: u32) -> Result<Vec<H::Dma>, GicError> {
    let device_bits = DEVICE_BITS.min(u32::from(kind.device_bits_less_one()) + 1);
    let mut tables = Vec::new();
    let mut has_collections = cpus <= u32::from(kind.hardware_collections());
    for index in 0..BASER.count() {
        let base = Base::from_bits(frame.read(BASER.get(index)));
        let entries = match TableType(base.kind()) {
            TableType::DEVICES => 1 << device_bits,
            TableType::COLLECTIONS => {
                has_collections = true;
                cpus
            }
            _ => continue,
        };
        tables.push(make_table(hal, frame, index, entries as usize)?);
    }
    if has_collections {
        Ok(tables)
    } else {
        Err(GicError::TooLarge("CPU", cpus.into(), kind.hardware_collections().into()))
    }
}

fn page_bytes(size: u8) -> usize {
    0x1000 << (2 * usize::from(size.min(2)))
}

/// Allocates a table of `entries`. An implementation with only one page size reads that size back.
fn make_table<H: Hal>(hal: H, frame: &Frame<'_, H::Regs>, index: u32, entries: usize) -> Result<H::Dma, GicError> {
    let register = BASER.get(index);
    let bytes = entries * (usize::from(Base::from_bits(frame.read(register)).entry_less_one()) + 1);
    let mut size = (0..2).find(|&size| bytes <= PAGES_MAX * page_bytes(size)).unwrap_or(2);
    frame.modify(register, |bits| Base::from_bits(bits).with_valid(false).with_page_size(size).into_bits());
    size = Base::from_bits(frame.read(register)).page_size();
    let pages = bytes.div_ceil(page_bytes(size)).max(1);
    if pages > PAGES_MAX {
        return Err(GicError::TooLarge("number of pages of an ITS table", pages as u64, PAGES_MAX as u64 + 1));
    }
    let table = hal.dma_alloc(pages * page_bytes(size), TABLE_ALIGN)?;
    let address = table.device_address().0;
    if address >> 48 != 0 {
        return Err(GicError::TooLarge("address of an ITS table", address, 1 << 48));
    }
    frame.modify(register, |bits| {
        Base::from_bits(bits)
            .with_pages_less_one((pages - 1) as u8)
            .with_page_size(size)
            .with_shareability(Shareability::INNER.0)
            .with_inner_cache(Cacheability::WRITE_BACK.0)
            .with_page(address >> 12)
            .with_indirect(false)
            .with_valid(true)
            .into_bits()
    });
    let taken = Base::from_bits(frame.read(register));
    if taken.shareability() == Shareability::NONE.0 {
        return Err(GicError::Missing("ITS that snoops caches (GITS_BASER.Shareability)"));
    }
    Ok(table)
}
