//! What the blocks of one load may hold: nobody else writes there.
//!
//! A read returns what the last completed write of a block wrote (NVM Command Set Specification, "Read command"). After a
//! write or a deallocation that ended with an error, a block holds the old data or the new ones. A deallocated block reads
//! as zeros, as ones, or as the last data written (the same, "Deallocated or Unwritten Logical Blocks"); the model's drive
//! gives its number, as for a block that nobody wrote.

use crate::draw::Draw;
use std::collections::BTreeSet;

/// Blocks of an extent: commands under way have one each for themselves.
pub(super) const EXTENT_BLOCKS: u32 = 32;
/// Extents of a load: few, so that what was written is read again; more than commands can be in flight.
const EXTENTS: u32 = 64;

/// How a load's commands are drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mix {
    /// Of 100 commands those that are no reads.
    pub(super) changes_percent: u64,
    /// Blocks of a command at most.
    pub(super) blocks_max: u32,
}

/// What a command does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Op {
    Read,
    Write,
    Flush,
    Deallocate,
}

/// A command's part of the blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Access {
    pub(super) op: Op,
    pub(super) lba: u64,
    /// None for a flush.
    pub(super) blocks: u32,
}

/// How a command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// It was never given to the drive.
    Refused,
    /// It is done.
    Done,
    /// It may be done, or not, or in part.
    Unknown,
}

/// Counts of commands that are done.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Done {
    pub(super) writes: u64,
    pub(super) flushes: u64,
    pub(super) deallocations: u64,
    /// Blocks read that had been written.
    pub(super) read_back: u64,
}

/// The blocks of a load.
pub(super) struct Blocks {
    first: u64,
    draw: Draw,
    mix: Mix,
    /// Extents of commands under way.
    busy: BTreeSet<u64>,
    /// What each block may hold; nothing for one that was never written or deallocated.
    may: Vec<Vec<u64>>,
    pub(super) done: Done,
}

impl Blocks {
    /// The blocks of load `number` of a history.
    pub(super) fn new(seed: u64, number: u32, mix: Mix) -> Self {
        let first = u64::from(number) * u64::from(EXTENTS * EXTENT_BLOCKS);
        let (busy, may) = (BTreeSet::new(), vec![Vec::new(); (EXTENTS * EXTENT_BLOCKS) as usize]);
        Self { first, draw: Draw::new(seed, "blocks", number), mix, busy, may, done: Done::default() }
    }

    /// Draws the next command. Its extent is its own until [`Blocks::end`].
    ///
    /// # Panics
    /// If commands under way have all extents.
    pub(super) fn begin(&mut self) -> Access {
        let op = match self.draw.percent(self.mix.changes_percent) {
            false => Op::Read,
            true => *self.draw.pick(&[Op::Write, Op::Write, Op::Write, Op::Write, Op::Flush, Op::Deallocate]),
        };
        let from = self.draw.below(EXTENTS.into());
        let blocks = self.draw.within(1..=self.mix.blocks_max.into()) as u32;
        if op == Op::Flush {
            return Access { op, lba: 0, blocks: 0 };
        }
        let extents = (0..u64::from(EXTENTS)).map(|step| (from + step) % u64::from(EXTENTS));
        let extent = { extents }.find(|extent| !self.busy.contains(extent)).expect("more extents than commands");
        self.busy.insert(extent);
        Access { op, lba: self.first + extent * u64::from(EXTENT_BLOCKS), blocks }
    }

    /// Ends a command. `data` is the first word of each of its blocks: what it wrote, or what it was to write.
    pub(super) fn end(&mut self, access: Access, end: End, data: impl Iterator<Item = u64>) {
        let Access { op, lba, blocks } = access;
        if op != Op::Flush {
            self.busy.remove(&((lba - self.first) / u64::from(EXTENT_BLOCKS)));
        }
        let is_done = end == End::Done;
        match op {
            _ if end == End::Refused => {}
            Op::Read => {}
            Op::Flush => self.done.flushes += u64::from(is_done),
            Op::Write => {
                self.done.writes += u64::from(is_done);
                for (lba, data) in (lba..).zip(data).take(blocks as usize) {
                    let may = self.may(lba);
                    if is_done {
                        may.clear();
                    }
                    may.push(data);
                }
            }
            Op::Deallocate => {
                self.done.deallocations += u64::from(is_done);
                for lba in lba..lba + u64::from(blocks) {
                    self.may(lba).extend([0, u64::MAX, lba]);
                }
            }
        }
    }

    /// What a block may hold from now on: at first what the drive gives for one that nobody wrote.
    fn may(&mut self, lba: u64) -> &mut Vec<u64> {
        let may = &mut self.may[(lba - self.first) as usize];
        if may.is_empty() {
            may.push(lba);
        }
        may
    }

    /// A read found this in block `lba`, which is part of an access under way. The error says what it may find.
    pub(super) fn found(&mut self, lba: u64, found: u64) -> Result<(), String> {
        match &self.may[(lba - self.first) as usize][..] {
            [] if found == lba => Ok(()),
            [] => Err(format!("{lba:#x}, as nobody wrote it")),
            may if may.contains(&found) => {
                self.done.read_back += 1;
                Ok(())
            }
            may => Err(format!("one of {may:#x?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks() -> Blocks {
        Blocks::new(1, 2, Mix { changes_percent: 50, blocks_max: 4 })
    }

    #[test]
    fn commands_under_way_share_no_block() {
        let mut blocks = blocks();
        let under_way: Vec<Access> = (0..40).map(|_| blocks.begin()).filter(|access| access.op != Op::Flush).collect();
        let lbas: BTreeSet<u64> = under_way.iter().map(|access| access.lba).collect();
        assert_eq!(lbas.len(), under_way.len());
        assert!(lbas.iter().all(|lba| lba / 2048 == 2 && lba % 32 == 0));
        let ops: BTreeSet<_> = under_way.iter().map(|access| format!("{:?}", access.op)).collect();
        assert_eq!(ops.len(), 3, "{ops:?}");
    }

    #[test]
    fn a_read_sees_the_last_write_that_was_done_and_each_that_may_be() {
        let (mut blocks, lba) = (blocks(), 4096);
        let write = Access { op: Op::Write, lba, blocks: 2 };
        assert!(blocks.found(lba, lba).is_ok() && blocks.found(lba, 7).is_err());
        blocks.end(write, End::Refused, [6, 6].into_iter());
        assert!(blocks.found(lba, lba).is_ok() && blocks.found(lba, 6).is_err());
        blocks.end(write, End::Done, [7, 8].into_iter());
        assert!(blocks.found(lba, 7).is_ok() && blocks.found(lba + 1, 8).is_ok());
        assert!(blocks.found(lba, lba).is_err(), "a write that is done is lost");
        blocks.end(write, End::Unknown, [9, 9].into_iter());
        assert!(blocks.found(lba, 7).is_ok() && blocks.found(lba, 9).is_ok() && blocks.found(lba, 8).is_err());
        blocks.end(Access { op: Op::Deallocate, lba, blocks: 1 }, End::Done, [].into_iter());
        assert!(blocks.found(lba, 0).is_ok() && blocks.found(lba, u64::MAX).is_ok());
        assert!(blocks.found(lba + 1, 0).is_err(), "a block behind the deallocated one");
        assert_eq!(blocks.done, Done { writes: 1, deallocations: 1, flushes: 0, read_back: 6 });
    }
}
