//! Physical region pages: where a command's data lies (Base 4.1.1).

use crate::memory::BusError;
use crate::world::World;
use spec::nvme::Status;

/// A contiguous piece of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Segment {
    pub(super) address: u64,
    pub(super) bytes: u32,
}

/// The data pointer of one command.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct DataPointer {
    pub(super) prp1: u64,
    pub(super) prp2: u64,
    pub(super) bytes: u32,
}

impl From<BusError> for Failure {
    fn from(error: BusError) -> Self {
        Self::Bus(error)
    }
}

/// Why data could not be moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Failure {
    /// A pointer breaks a rule of Base 4.1.1: PRP Offset Invalid.
    Offset,
    /// It points to no memory: Data Transfer Error.
    Bus(BusError),
    /// The blocks could not be read or written.
    Media(Status),
}

impl Failure {
    pub(super) fn status(self) -> Status {
        match self {
            Self::Offset => Status::PRP_OFFSET_INVALID,
            Self::Bus(_) => Status::DATA_TRANSFER_ERROR,
            Self::Media(status) => status,
        }
    }
}

impl DataPointer {
    /// Bytes that PRP1 covers: up to its page's end.
    fn first(&self, page: u64) -> u64 {
        (page - self.prp1 % page).min(self.bytes.into())
    }

    /// Checks what can be checked without memory: PRP1 is dword aligned; PRP2 is page aligned when it is a page and
    /// qword aligned when it is a list.
    pub(super) fn validate(&self, page: u64) -> Result<(), Failure> {
        let rest = u64::from(self.bytes) - self.first(page);
        let prp2_align = match rest {
            0 => 1,
            1.. if rest <= page => page,
            _ => 8,
        };
        if self.prp1.is_multiple_of(4) && self.prp2.is_multiple_of(prp2_align) { Ok(()) } else { Err(Failure::Offset) }
    }

    /// Calls `act` with each segment and its offset in the transfer. It ends: every list page but the last yields at
    /// least one page of data, because only the first list may begin away from its page's beginning.
    pub(super) fn for_each(
        &self,
        world: &mut World<'_>,
        page: u64,
        mut act: impl FnMut(&mut World<'_>, u64, Segment) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.validate(page)?;
        let first = self.first(page);
        act(world, 0, Segment { address: self.prp1, bytes: first as u32 })?;
        let bytes = u64::from(self.bytes);
        let mut done = first;
        let mut list = self.prp2;
        while done < bytes {
            let left = bytes - done;
            let address = if bytes - first <= page { self.prp2 } else { next_entry(world, &mut list, left, page)? };
            act(world, done, Segment { address, bytes: left.min(page) as u32 })?;
            done += left.min(page);
        }
        Ok(())
    }
}

/// The next page of a list. The last entry of a list page is a pointer to the next list when it is not the last page
/// of the data.
fn next_entry(world: &World<'_>, list: &mut u64, left: u64, page: u64) -> Result<u64, Failure> {
    let mut entry = aligned(world.read64(*list)?, page)?;
    if *list % page == page - 8 && left > page {
        *list = entry;
        entry = aligned(world.read64(*list)?, page)?;
    }
    *list = list.checked_add(8).ok_or(Failure::Offset)?;
    Ok(entry)
}

fn aligned(entry: u64, page: u64) -> Result<u64, Failure> {
    if entry.is_multiple_of(page) { Ok(entry) } else { Err(Failure::Offset) }
}
