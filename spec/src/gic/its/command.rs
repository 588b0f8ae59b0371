//! Commands (IHI 0069H, "ITS commands"): four 64-bit words each, the opcode in bits 7:0 of the first.

use crate::gic::IntId;
use bitfield_struct::bitfield;

/// The operation of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opcode(pub u8);

impl Opcode {
    /// Moves an event to another collection.
    pub const MOVI: Self = Self(0x01);
    /// Makes an event's interrupt pending.
    pub const INT: Self = Self(0x03);
    /// Takes its pending state away.
    pub const CLEAR: Self = Self(0x04);
    /// Waits until a redistributor has seen the effects of all before.
    pub const SYNC: Self = Self(0x05);
    /// Gives a device its translation table, or takes it.
    pub const MAPD: Self = Self(0x08);
    /// Points a collection at a redistributor.
    pub const MAPC: Self = Self(0x09);
    /// Maps an event to an interrupt.
    pub const MAPTI: Self = Self(0x0a);
    /// Maps an event to the interrupt of the same number.
    pub const MAPI: Self = Self(0x0b);
    /// Has the redistributor read an event's configuration byte again.
    pub const INV: Self = Self(0x0c);
    /// The same for all of a collection.
    pub const INVALL: Self = Self(0x0d);
    /// Moves all pending interrupts of a redistributor to another.
    pub const MOVALL: Self = Self(0x0e);
    /// Unmaps an event, and takes its pending state away.
    pub const DISCARD: Self = Self(0x0f);
}

/// How a command names a redistributor: its address in units of 64 KiB if GITS_TYPER.PTA, otherwise its number
/// (GICR_TYPER.Processor_Number). 35 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RedistributorBase(pub u64);

#[bitfield(u64)]
struct First {
    opcode: u8,
    #[bits(24)]
    __: u32,
    device: u32,
}

#[bitfield(u64)]
struct Event {
    event: u32,
    intid: u32,
}

#[bitfield(u64)]
struct Third {
    collection: u16,
    #[bits(35)]
    redistributor: u64,
    #[bits(12)]
    __: u16,
    valid: bool,
}

/// Bits 51:8 of a translation table's address, and the valid bit, in the third word.
#[bitfield(u64)]
struct Table {
    __: u8,
    #[bits(44)]
    address: u64,
    #[bits(11)]
    __: u16,
    valid: bool,
}

#[bitfield(u64)]
struct Redistributor {
    __: u16,
    #[bits(35)]
    number: u64,
    #[bits(13)]
    __: u16,
}

/// A command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// [`Opcode::MAPD`].
    MapDevice {
        /// The device.
        device: u32,
        /// Bits of its event ids, less one.
        event_bits_less_one: u8,
        /// Address of its translation table, a multiple of 256.
        table: u64,
        /// False takes the table away.
        valid: bool,
    },
    /// [`Opcode::MAPC`].
    MapCollection {
        /// The collection.
        collection: u16,
        /// Where its interrupts go.
        redistributor: RedistributorBase,
        /// False unmaps it.
        valid: bool,
    },
    /// [`Opcode::MAPTI`].
    MapEvent {
        /// The device.
        device: u32,
        /// Its event.
        event: u32,
        /// The interrupt.
        intid: IntId,
        /// Where it goes.
        collection: u16,
    },
    /// [`Opcode::MAPI`].
    MapInterrupt {
        /// The device.
        device: u32,
        /// Its event, and the interrupt's number.
        event: u32,
        /// Where it goes.
        collection: u16,
    },
    /// [`Opcode::MOVI`].
    Move {
        /// The device.
        device: u32,
        /// Its event.
        event: u32,
        /// Where it goes from now on; if pending, it moves along.
        collection: u16,
    },
    /// [`Opcode::MOVALL`].
    MoveAll {
        /// From here.
        from: RedistributorBase,
        /// To here.
        to: RedistributorBase,
    },
    /// [`Opcode::DISCARD`].
    Discard {
        /// The device.
        device: u32,
        /// Its event.
        event: u32,
    },
    /// [`Opcode::INT`].
    Interrupt {
        /// The device.
        device: u32,
        /// Its event.
        event: u32,
    },
    /// [`Opcode::CLEAR`].
    Clear {
        /// The device.
        device: u32,
        /// Its event.
        event: u32,
    },
    /// [`Opcode::INV`].
    Invalidate {
        /// The device.
        device: u32,
        /// Its event.
        event: u32,
    },
    /// [`Opcode::INVALL`].
    InvalidateAll {
        /// The collection.
        collection: u16,
    },
    /// [`Opcode::SYNC`].
    Sync {
        /// The redistributor.
        redistributor: RedistributorBase,
    },
}

impl Command {
    /// Its four words.
    pub const fn encode(self) -> [u64; 4] {
        match self {
            Self::MapDevice { device, event_bits_less_one, table, valid } => {
                let third = Table::new().with_address((table >> 8) & ((1 << 44) - 1)).with_valid(valid);
                [first(Opcode::MAPD, device), event_bits_less_one as u64 & 0x1f, third.into_bits(), 0]
            }
            Self::MapCollection { collection, redistributor, valid } => {
                let third = Third::new().with_collection(collection).with_redistributor(redistributor.0);
                [first(Opcode::MAPC, 0), 0, third.with_valid(valid).into_bits(), 0]
            }
            Self::MapEvent { device, event, intid, collection } => {
                let second = Event::new().with_event(event).with_intid(intid.0);
                [first(Opcode::MAPTI, device), second.into_bits(), collection as u64, 0]
            }
            Self::MapInterrupt { device, event, collection } => {
                [first(Opcode::MAPI, device), event as u64, collection as u64, 0]
            }
            Self::Move { device, event, collection } => {
                [first(Opcode::MOVI, device), event as u64, collection as u64, 0]
            }
            Self::MoveAll { from, to } => [first(Opcode::MOVALL, 0), 0, redistributor(from), redistributor(to)],
            Self::Discard { device, event } => [first(Opcode::DISCARD, device), event as u64, 0, 0],
            Self::Interrupt { device, event } => [first(Opcode::INT, device), event as u64, 0, 0],
            Self::Clear { device, event } => [first(Opcode::CLEAR, device), event as u64, 0, 0],
            Self::Invalidate { device, event } => [first(Opcode::INV, device), event as u64, 0, 0],
            Self::InvalidateAll { collection } => [first(Opcode::INVALL, 0), 0, collection as u64, 0],
            Self::Sync { redistributor: base } => [first(Opcode::SYNC, 0), 0, redistributor(base), 0],
        }
    }

    /// What four words say.
    ///
    /// # Errors
    /// The opcode, when it is none of these.
    pub const fn decode(words: [u64; 4]) -> Result<Self, Opcode> {
        let (opcode, device) = (Opcode(words[0] as u8), First::from_bits(words[0]).device());
        let event = words[1] as u32;
        let third = Third::from_bits(words[2]);
        let collection = third.collection();
        Ok(match opcode {
            Opcode::MAPD => {
                let table = Table::from_bits(words[2]);
                let (event_bits_less_one, valid) = (words[1] as u8 & 0x1f, table.valid());
                Self::MapDevice { device, event_bits_less_one, table: table.address() << 8, valid }
            }
            Opcode::MAPC => {
                let redistributor = RedistributorBase(third.redistributor());
                Self::MapCollection { collection, redistributor, valid: third.valid() }
            }
            Opcode::MAPTI => {
                Self::MapEvent { device, event, intid: IntId(Event::from_bits(words[1]).intid()), collection }
            }
            Opcode::MAPI => Self::MapInterrupt { device, event, collection },
            Opcode::MOVI => Self::Move { device, event, collection },
            Opcode::MOVALL => Self::MoveAll { from: base(words[2]), to: base(words[3]) },
            Opcode::DISCARD => Self::Discard { device, event },
            Opcode::INT => Self::Interrupt { device, event },
            Opcode::CLEAR => Self::Clear { device, event },
            Opcode::INV => Self::Invalidate { device, event },
            Opcode::INVALL => Self::InvalidateAll { collection },
            Opcode::SYNC => Self::Sync { redistributor: base(words[2]) },
            other => return Err(other),
        })
    }
}

const fn first(opcode: Opcode, device: u32) -> u64 {
    First::new().with_opcode(opcode.0).with_device(device).into_bits()
}

const fn redistributor(base: RedistributorBase) -> u64 {
    Redistributor::new().with_number(base.0).into_bits()
}

const fn base(word: u64) -> RedistributorBase {
    RedistributorBase(Redistributor::from_bits(word).number())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CPU_3: RedistributorBase = RedistributorBase(3);

    /// Commands beside the words that the manual's figures give.
    fn words() -> [(Command, [u64; 4]); 12] {
        let (device, event) = (0x0100, 5);
        [
            (
                Command::MapDevice { device, event_bits_less_one: 4, table: 0x4567_8900, valid: true },
                [0x0000_0100_0000_0008, 4, 0x8000_0000_4567_8900, 0],
            ),
            (
                Command::MapCollection { collection: 2, redistributor: CPU_3, valid: true },
                [9, 0, 0x8000_0000_0003_0002, 0],
            ),
            (
                Command::MapEvent { device, event, intid: IntId(8200), collection: 2 },
                [0x0000_0100_0000_000a, 0x0000_2008_0000_0005, 2, 0],
            ),
            (Command::MapInterrupt { device, event: 8192, collection: 1 }, [0x0000_0100_0000_000b, 8192, 1, 0]),
            (Command::Move { device, event, collection: 1 }, [0x0000_0100_0000_0001, 5, 1, 0]),
            (Command::MoveAll { from: RedistributorBase(1), to: CPU_3 }, [0xe, 0, 0x1_0000, 0x3_0000]),
            (Command::Discard { device, event }, [0x0000_0100_0000_000f, 5, 0, 0]),
            (Command::Interrupt { device, event }, [0x0000_0100_0000_0003, 5, 0, 0]),
            (Command::Clear { device, event }, [0x0000_0100_0000_0004, 5, 0, 0]),
            (Command::Invalidate { device, event }, [0x0000_0100_0000_000c, 5, 0, 0]),
            (Command::InvalidateAll { collection: 2 }, [0xd, 0, 2, 0]),
            (Command::Sync { redistributor: CPU_3 }, [5, 0, 0x3_0000, 0]),
        ]
    }

    #[test]
    fn words_are_the_manuals_both_ways() {
        for (command, words) in words() {
            assert_eq!(command.encode(), words, "{command:?}");
            assert_eq!(Command::decode(words), Ok(command));
        }
        assert_eq!(Command::decode([0x2a, 0, 0, 0]), Err(Opcode(0x2a)), "a command of GICv4");
    }
}
