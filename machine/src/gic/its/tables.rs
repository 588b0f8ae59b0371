//! The tables of an ITS, in memory: devices, collections, and a translation table for each device.
//!
//! Their format is the implementation's own. Here an entry has 64 bits, bit 63 says that it is valid, and an entry of
//! zeros is none:
//!
//! | table | 62:48 | 47:32 | 31:0 |
//! |---|---|---|---|
//! | devices | address of the translation table in 51:8 | | bits of an event, less one, in 4:0 |
//! | collections | | | the CPU's number |
//! | translations | | collection | INTID |

use super::{ENTRY_BYTES, Its};
use crate::memory::BusError;
use crate::world::World;
use spec::gic::its::Base;
use std::fmt;

const VALID: u64 = 1 << 63;
const TABLE_ADDRESS: u64 = 0x000f_ffff_ffff_ff00;

/// Why a command or message failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::gic) enum ItsError {
    /// The opcode does not exist.
    Opcode(u8),
    /// The device id is beyond the device table or has too many bits.
    DeviceRange(u32),
    /// The device is not mapped.
    Device(u32),
    /// More event bits than the ITS has.
    EventBits(u8),
    /// The event is beyond the device's translation table.
    EventRange(u32),
    /// The event is not mapped.
    Event(u32),
    /// The collection is beyond the collection table.
    CollectionRange(u16),
    /// The collection is not mapped.
    Collection(u16),
    /// No redistributor has this number.
    Redistributor(u64),
    /// The INTID is no LPI.
    Intid(u32),
    /// A table is not in memory.
    Memory(u64),
}

impl fmt::Display for ItsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Opcode(code) => write!(f, "there is no command {code:#04x}"),
            Self::DeviceRange(device) => write!(f, "device {device:#x} has no place in the device table"),
            Self::Device(device) => write!(f, "device {device:#x} is not mapped"),
            Self::EventBits(bits) => write!(f, "events of {bits} bits are too wide"),
            Self::EventRange(event) => write!(f, "event {event} has no place in the device's table"),
            Self::Event(event) => write!(f, "event {event} is not mapped"),
            Self::CollectionRange(collection) => write!(f, "collection {collection} has no place in the table"),
            Self::Collection(collection) => write!(f, "collection {collection} is not mapped"),
            Self::Redistributor(number) => write!(f, "there is no redistributor {number}"),
            Self::Intid(intid) => write!(f, "INTID {intid} is no LPI"),
            Self::Memory(address) => write!(f, "no memory at {address:#x}"),
        }
    }
}

impl From<BusError> for ItsError {
    fn from(error: BusError) -> Self {
        Self::Memory(error.address)
    }
}

/// A mapped event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Event {
    pub(super) intid: u32,
    pub(super) collection: u16,
    /// Address of its entry.
    entry: u64,
}

/// Address of entry `index` of a table; None when the table has no such entry.
fn entry(table: Base, index: u64) -> Option<u64> {
    let page_bytes = 4096_u64 << (u32::from(table.page_size().min(2)) * 2);
    let bytes = (u64::from(table.pages_less_one()) + 1) * page_bytes;
    // With pages of 64 KiB, the lowest bits of the field are the highest bits of the address.
    let page = table.page();
    let base = if table.page_size() >= 2 { (page & !0xf) << 12 | (page & 0xf) << 48 } else { page << 12 };
    (table.valid() && (index + 1) * ENTRY_BYTES <= bytes).then_some(base + index * ENTRY_BYTES)
}

impl Its {
    fn device_entry(&self, device: u32) -> Result<u64, ItsError> {
        let in_range = device >> self.config.device_bits == 0;
        entry(self.tables[0], device.into()).filter(|_| in_range).ok_or(ItsError::DeviceRange(device))
    }

    fn collection_entry(&self, collection: u16) -> Result<u64, ItsError> {
        entry(self.tables[1], collection.into()).ok_or(ItsError::CollectionRange(collection))
    }

    /// MAPD.
    pub(super) fn map_device(
        &mut self,
        world: &mut World<'_>,
        device: u32,
        table: Option<(u64, u8)>,
    ) -> Result<(), ItsError> {
        let entry = self.device_entry(device)?;
        let word = match table {
            None => 0,
            Some((_, bits)) if bits >= self.config.event_bits => return Err(ItsError::EventBits(bits + 1)),
            Some((address, bits)) => {
                world.read64(address)?;
                world.read64(address + ((2_u64 << bits) - 1) * ENTRY_BYTES)?;
                VALID | address & TABLE_ADDRESS | u64::from(bits)
            }
        };
        world.write64(entry, word)?;
        if word & VALID == 0 {
            self.translations.remove(&device);
        } else {
            self.translations.insert(device, word & TABLE_ADDRESS);
        }
        Ok(())
    }

    /// MAPC.
    pub(super) fn map_collection(
        &self,
        world: &mut World<'_>,
        collection: u16,
        cpu: Option<u32>,
    ) -> Result<(), ItsError> {
        let entry = self.collection_entry(collection)?;
        Ok(world.write64(entry, cpu.map_or(0, |cpu| VALID | u64::from(cpu)))?)
    }

    /// The CPU of a collection.
    pub(super) fn target(&self, world: &World<'_>, collection: u16) -> Result<u32, ItsError> {
        let word = world.read64(self.collection_entry(collection)?)?;
        // Software may write anything into this memory.
        match word as u32 {
            _ if word & VALID == 0 => Err(ItsError::Collection(collection)),
            cpu if cpu >= self.cpus => Err(ItsError::Redistributor(cpu.into())),
            cpu => Ok(cpu),
        }
    }

    /// Address of an event's entry.
    fn event_entry(&self, world: &World<'_>, device: u32, event: u32) -> Result<u64, ItsError> {
        let word = world.read64(self.device_entry(device)?)?;
        if word & VALID == 0 {
            return Err(ItsError::Device(device));
        }
        if u64::from(event) >> ((word & 0x1f) + 1) != 0 {
            return Err(ItsError::EventRange(event));
        }
        Ok((word & TABLE_ADDRESS) + u64::from(event) * ENTRY_BYTES)
    }

    /// A mapped event of a device.
    pub(super) fn event(&self, world: &World<'_>, device: u32, event: u32) -> Result<Event, ItsError> {
        let entry = self.event_entry(world, device, event)?;
        let word = world.read64(entry)?;
        if word & VALID == 0 {
            return Err(ItsError::Event(event));
        }
        if !self.config.has_lpi(word as u32) {
            return Err(ItsError::Intid(word as u32));
        }
        Ok(Event { intid: word as u32, collection: (word >> 32) as u16, entry })
    }

    /// MAPTI, MAPI.
    pub(super) fn map_event(
        &self,
        world: &mut World<'_>,
        device: u32,
        event: u32,
        intid: u32,
        collection: u16,
    ) -> Result<(), ItsError> {
        self.collection_entry(collection)?;
        let entry = self.event_entry(world, device, event)?;
        Ok(world.write64(entry, VALID | u64::from(collection) << 32 | u64::from(intid))?)
    }

    /// MOVI.
    pub(super) fn move_event(&self, world: &mut World<'_>, event: Event, to: u16) -> Result<(), ItsError> {
        Ok(world.write64(event.entry, VALID | u64::from(to) << 32 | u64::from(event.intid))?)
    }

    /// DISCARD.
    pub(super) fn unmap_event(&self, world: &mut World<'_>, event: Event) -> Result<(), ItsError> {
        Ok(world.write64(event.entry, 0)?)
    }

    /// True if the device has a translation table.
    pub(in crate::gic) fn maps(&self, world: &World<'_>, device: u32) -> bool {
        let word = self.device_entry(device).and_then(|entry| Ok(world.read64(entry)?));
        word.is_ok_and(|word| word & VALID != 0)
    }

    /// The CPU and the LPI of an event.
    pub(in crate::gic) fn translate(&self, world: &World<'_>, device: u32, event: u32) -> Result<(u32, u32), ItsError> {
        let event = self.event(world, device, event)?;
        Ok((self.target(world, event.collection)?, event.intid))
    }
}
