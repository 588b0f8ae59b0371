//! The blocks.

use super::config::StorageKind;
use super::prp::{Failure, Segment};
use crate::memory::BusError;
use crate::world::World;
use spec::nvme::Status;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Blocks that the host keeps, for a lent drive ([`crate::lent`]): a file, or memory that outlives the drive.
pub trait Blocks: Send + Sync {
    /// Reads from `offset_bytes`, a multiple of 4, as much as fits into `to`.
    ///
    /// # Errors
    /// The store's own; the command ends with Unrecovered Read Error.
    fn read(&self, offset_bytes: u64, to: &mut [u8]) -> std::io::Result<()>;

    /// Writes all of `from` at `offset_bytes`, a multiple of 4. When it returns, it is as durable as it gets: the drive
    /// declares no volatile cache.
    ///
    /// # Errors
    /// The store's own; the command ends with Write Fault.
    fn write(&self, offset_bytes: u64, from: &[u8]) -> std::io::Result<()>;
}

/// Block contents by block number. Only written blocks are kept.
pub(super) enum Storage {
    Null,
    Tags(BTreeMap<u64, u64>),
    Memory(BTreeMap<u64, Box<[u32]>>),
    /// Blocks of 2^n bytes of the host.
    Host(Arc<dyn Blocks>, u8),
}

/// The position of a transfer in the blocks.
#[derive(Clone, Copy)]
pub(super) struct Cursor {
    /// First block of the command.
    pub(super) lba: u64,
    /// log2 of the block's bytes.
    pub(super) block_shift: u8,
    /// Bytes from the first block's beginning.
    pub(super) offset: u64,
}

impl Cursor {
    fn block(&self) -> u64 {
        self.lba + (self.offset >> self.block_shift)
    }
    fn byte(&self) -> u64 {
        (self.lba << self.block_shift) + self.offset
    }
    fn dword(&self) -> usize {
        (self.offset & ((1 << self.block_shift) - 1)) as usize / 4
    }
}

impl Storage {
    pub(super) fn new(kind: StorageKind) -> Self {
        match kind {
            StorageKind::Null => Self::Null,
            StorageKind::Tags => Self::Tags(BTreeMap::new()),
            StorageKind::Memory => Self::Memory(BTreeMap::new()),
        }
    }

    /// Whether the data pointers of a command need to be followed at all.
    pub(super) fn moves_bytes(&self) -> bool {
        !matches!(self, Self::Null)
    }

    /// The first 8 bytes of a block: the written data, or the value of a block that was never written.
    pub(super) fn first_word(&self, lba: u64) -> u64 {
        match self {
            Self::Null => 0,
            Self::Tags(tags) => tags.get(&lba).copied().unwrap_or(lba),
            Self::Memory(blocks) => blocks.get(&lba).map_or(0, |block| u64::from(block[0]) | u64::from(block[1]) << 32),
            Self::Host(blocks, shift) => {
                let mut word = [0; 8];
                blocks.read(lba << shift, &mut word).map_or(0, |()| u64::from_le_bytes(word))
            }
        }
    }

    /// Forgets what was written from block `first` up to, not including, `end`. A host's blocks stay as they are, which
    /// the command set allows.
    pub(super) fn deallocate(&mut self, first: u64, end: u64) {
        match self {
            Self::Null | Self::Host(..) => {}
            Self::Tags(tags) => forget(tags, first, end),
            Self::Memory(blocks) => forget(blocks, first, end),
        }
    }

    /// Moves `segment` from the blocks to memory.
    pub(super) fn read(&self, world: &mut World<'_>, at: Cursor, segment: Segment) -> Result<(), Failure> {
        match self {
            Self::Null => Ok(()),
            Self::Tags(_) => {
                Ok(each_block(at, segment, |address, lba| write_pair(world, address, self.first_word(lba)))?)
            }
            Self::Memory(blocks) => {
                let mut at = at;
                for address in (segment.address..).step_by(4).take(segment.bytes as usize / 4) {
                    let value = blocks.get(&at.block()).map_or(0, |block| block[at.dword()]);
                    world.write32(address, value)?;
                    at.offset += 4;
                }
                Ok(())
            }
            Self::Host(blocks, _) => {
                let mut bytes = vec![0; segment.bytes as usize];
                blocks.read(at.byte(), &mut bytes).map_err(|_| Failure::Media(Status::UNRECOVERED_READ_ERROR))?;
                for (address, dword) in (segment.address..).step_by(4).zip(bytes.as_chunks().0) {
                    world.write32(address, u32::from_le_bytes(*dword))?;
                }
                Ok(())
            }
        }
    }

    /// Moves `segment` from memory to the blocks.
    pub(super) fn write(&mut self, world: &mut World<'_>, at: Cursor, segment: Segment) -> Result<(), Failure> {
        match self {
            Self::Null => Ok(()),
            Self::Tags(tags) => Ok(each_block(at, segment, |address, lba| {
                tags.insert(lba, read_pair(world, address)?);
                Ok(())
            })?),
            Self::Memory(blocks) => {
                let mut at = at;
                for address in (segment.address..).step_by(4).take(segment.bytes as usize / 4) {
                    let value = world.read32(address)?;
                    let block = blocks.entry(at.block());
                    block.or_insert_with(|| vec![0; (1 << at.block_shift) / 4].into())[at.dword()] = value;
                    at.offset += 4;
                }
                Ok(())
            }
            Self::Host(blocks, _) => {
                let mut bytes = vec![0; segment.bytes as usize];
                for (address, dword) in (segment.address..).step_by(4).zip(bytes.as_chunks_mut::<4>().0) {
                    *dword = world.read32(address)?.to_le_bytes();
                }
                blocks.write(at.byte(), &bytes).map_err(|_| Failure::Media(Status::WRITE_FAULT))
            }
        }
    }
}

fn forget<V>(blocks: &mut BTreeMap<u64, V>, first: u64, end: u64) {
    while let Some((&block, _)) = blocks.range(first..end).next() {
        blocks.remove(&block);
    }
}

/// Calls `act` with the address and number of each block that begins in the segment. A tag that the segment's end
/// cuts in two (data that begins 4 bytes before a page's end) is left out.
fn each_block(
    at: Cursor,
    segment: Segment,
    mut act: impl FnMut(u64, u64) -> Result<(), BusError>,
) -> Result<(), BusError> {
    let block = 1u64 << at.block_shift;
    let mut skip = at.offset.next_multiple_of(block) - at.offset;
    while skip + 8 <= u64::from(segment.bytes) {
        act(segment.address + skip, at.lba + ((at.offset + skip) >> at.block_shift))?;
        skip += block;
    }
    Ok(())
}

/// 64 bits at an address that is a multiple of 4.
fn write_pair(world: &mut World<'_>, address: u64, value: u64) -> Result<(), BusError> {
    if address.is_multiple_of(8) {
        return world.write64(address, value);
    }
    world.write32(address, value as u32)?;
    world.write32(address + 4, (value >> 32) as u32)
}

fn read_pair(world: &World<'_>, address: u64) -> Result<u64, BusError> {
    if address.is_multiple_of(8) {
        return world.read64(address);
    }
    Ok(u64::from(world.read32(address)?) | u64::from(world.read32(address + 4)?) << 32)
}
