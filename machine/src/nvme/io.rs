//! I/O commands: read, write, flush, deallocate (NVM 3.2; Base 7.1), and the slots in which the drive works on them.

use super::latency::draw;
use super::prp::{DataPointer, Failure};
use super::storage::Cursor;
use super::{Counters, Nvme, code};
use crate::model::{Traffic, Upstream};
use crate::observe::Fact;
use crate::time::Ps;
use crate::world::World;
use spec::nvme::{Command, DatasetDw10, DatasetDw11, DatasetRange, IoOpcode, NSID_ALL, ReadWriteDw12, Status};

/// A command in progress.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    /// Distinguishes the command from earlier ones in the slot: an event of an earlier one is stale.
    generation: u32,
    busy: bool,
    opcode: IoOpcode,
    sqid: u16,
    cid: u16,
    status: Status,
    pub(super) lba: u64,
    pub(super) data: DataPointer,
    /// A write that must be on the media when it ends.
    pub(super) fua: bool,
    /// Dataset Management is asked to deallocate.
    deallocates: bool,
    since: Ps,
    on_link_since: Ps,
}

/// A slab of slots and the free ones among them.
pub(super) struct Slots {
    slots: Vec<Slot>,
    free: Vec<u16>,
}

impl Slot {
    /// Slot and generation, as an event's argument.
    pub(super) fn ticket(&self, index: u16) -> u64 {
        u64::from(self.generation) << 16 | u64::from(index)
    }
}

impl Slots {
    pub(super) fn new(count: u16) -> Self {
        let empty = Slot {
            generation: 0,
            busy: false,
            opcode: IoOpcode::FLUSH,
            sqid: 0,
            cid: 0,
            status: Status::SUCCESS,
            lba: 0,
            data: DataPointer::default(),
            fua: false,
            deallocates: false,
            since: Ps(0),
            on_link_since: Ps(0),
        };
        Self { slots: vec![empty; count.into()], free: (0..count).rev().collect() }
    }

    pub(super) fn in_use(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Takes a free slot for a command and returns its index.
    fn take(&mut self, command: &Command, sqid: u16, now: Ps) -> Option<u16> {
        let index = self.free.pop()?;
        let slot = &mut self.slots[usize::from(index)];
        *slot = Slot {
            generation: slot.generation,
            busy: true,
            opcode: IoOpcode(command.cdw0.opcode()),
            sqid,
            cid: command.cdw0.cid(),
            status: Status::SUCCESS,
            lba: command.slba(),
            data: DataPointer { prp1: command.prp1, prp2: command.prp2, bytes: 0 },
            fua: ReadWriteDw12::from_bits(command.cdw12).fua(),
            deallocates: DatasetDw11::from_bits(command.cdw11).ad(),
            since: now,
            on_link_since: now,
        };
        Some(index)
    }

    pub(super) fn get(&self, index: u16) -> &Slot {
        &self.slots[usize::from(index)]
    }

    /// The index of the slot to which `ticket` still belongs.
    pub(super) fn redeem(&self, ticket: u64) -> Option<u16> {
        let index = ticket as u16;
        let slot = self.slots.get(usize::from(index))?;
        (slot.busy && u64::from(slot.generation) == ticket >> 16).then_some(index)
    }

    /// Frees a slot and returns what was in it.
    fn release(&mut self, index: u16) -> Slot {
        let slot = &mut self.slots[usize::from(index)];
        slot.busy = false;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index);
        *slot
    }

    /// Frees all, lowest index on top as at the start.
    pub(super) fn clear(&mut self, now: Ps, counters: &mut Counters) {
        for index in (0..self.slots.len() as u16).rev() {
            if self.slots[usize::from(index)].busy {
                counters.slots_busy_ps += (now - self.release(index).since).0;
            }
        }
    }

    fn find(&self, sqid: u16, matches: impl Fn(u16) -> bool) -> Option<u16> {
        let found = |slot: &Slot| slot.busy && slot.sqid == sqid && matches(slot.cid);
        self.slots.iter().position(found).map(|index| index as u16)
    }
}

impl Nvme {
    /// Starts the next fetch, if there is a command, a slot for it, and no fetch under way.
    pub(super) fn begin_fetch(&mut self, world: &mut World<'_>) {
        if self.fetching || self.slots.free.is_empty() || !self.ready.any() || !self.controller.runs() {
            return;
        }
        self.fetching = true;
        let at = world.now() + world.jitter(self.config.timing.fetch);
        world.schedule(at, code::FETCH, self.controller.epoch.into());
    }

    pub(super) fn fetched(&mut self, world: &mut World<'_>, epoch: u64) {
        if epoch != u64::from(self.controller.epoch) {
            return;
        }
        self.fetching = false;
        if !self.controller.runs() {
            return;
        }
        // The queue may have gone since the fetch began.
        let Some(qid) = self.ready.take_turn() else { return };
        let sq = &mut self.queues.sqs[usize::from(qid)];
        let command = match sq.fetch(world) {
            Ok(command) => command,
            Err(error) => {
                return self.fatal(world, "NVMe submission queue outside memory", format!("queue {qid}: {error}"));
            }
        };
        world.tell(|| Fact::Fetched { device: world.me(), sqid: qid, cid: command.cdw0.cid() });
        self.ready.set(qid, !sq.is_empty());
        self.backlog_is(world, self.backlog.0 - 1);
        if let Some(index) = self.slots.take(&command, qid, world.now()) {
            self.begin(world, index, &command);
        }
        self.begin_fetch(world);
    }

    /// Begins a command. A write fetches its data first, and Dataset Management its ranges. Other commands go to the
    /// media. An invalid command is completed at once.
    fn begin(&mut self, world: &mut World<'_>, index: u16, command: &Command) {
        match self.validate(command) {
            Err(status) => self.end(world, index, status),
            Ok(bytes) => {
                let slot = &mut self.slots.slots[usize::from(index)];
                slot.data.bytes = bytes;
                match slot.opcode {
                    IoOpcode::WRITE | IoOpcode::DATASET_MANAGEMENT => self.transfer(world, index),
                    _ => self.use_media(world, index),
                }
            }
        }
    }

    /// The byte count of a command, or its error.
    fn validate(&self, command: &Command) -> Result<u32, Status> {
        let opcode = IoOpcode(command.cdw0.opcode());
        let known = [IoOpcode::READ, IoOpcode::WRITE, IoOpcode::FLUSH, IoOpcode::DATASET_MANAGEMENT];
        if !known.contains(&opcode) {
            return Err(Status::INVALID_OPCODE);
        }
        // Fused operations and SGLs are not offered.
        if command.cdw0.fuse() != 0 || command.cdw0.psdt() != 0 {
            return Err(Status::INVALID_FIELD);
        }
        let all = opcode == IoOpcode::FLUSH && command.nsid == NSID_ALL;
        if command.nsid != super::identify::NSID && !all {
            return Err(Status::INVALID_NAMESPACE);
        }
        if opcode == IoOpcode::FLUSH {
            return Ok(0);
        }
        if opcode == IoOpcode::DATASET_MANAGEMENT {
            let ranges = u32::from(DatasetDw10::from_bits(command.cdw10).nr()) + 1;
            return self.check_pointer(command, ranges * size_of::<DatasetRange>() as u32);
        }
        let blocks = u64::from(ReadWriteDw12::from_bits(command.cdw12).nlb()) + 1;
        if command.slba().checked_add(blocks).is_none_or(|end| end > self.config.blocks) {
            return Err(Status::LBA_OUT_OF_RANGE);
        }
        let bytes = blocks << self.config.block_shift;
        // MDTS is in units of the smallest page, 4 KiB; beyond it: Invalid Field (Base 5.17.2.1).
        if bytes > 4096 << self.config.transfer_shift_max {
            return Err(Status::INVALID_FIELD);
        }
        self.check_pointer(command, bytes as u32)
    }

    fn check_pointer(&self, command: &Command, bytes: u32) -> Result<u32, Status> {
        let data = DataPointer { prp1: command.prp1, prp2: command.prp2, bytes };
        data.validate(self.controller.page()).map_err(Failure::status)?;
        Ok(bytes)
    }

    fn use_media(&mut self, world: &mut World<'_>, index: u16) {
        let slot = self.slots.get(index);
        let (ticket, opcode) = (slot.ticket(index), slot.opcode);
        let (from, latency) = match opcode {
            IoOpcode::READ => (world.now(), self.config.timing.read),
            IoOpcode::FLUSH => (self.durable_at(world), self.config.timing.flush),
            _ => (world.now(), self.config.timing.deallocate),
        };
        let at = from + draw(world, latency);
        self.counters.media_ps += (at - world.now()).0;
        self.counters.enter_media(world.now());
        world.schedule(at, code::MEDIA, ticket);
    }

    fn transfer(&mut self, world: &mut World<'_>, index: u16) {
        let slot = &mut self.slots.slots[usize::from(index)];
        slot.on_link_since = world.now();
        let arg = slot.ticket(index);
        // The data of a read are written to memory. Those of a write, and ranges, are read from it.
        let traffic = match slot.opcode {
            IoOpcode::READ => Traffic::Write { relaxed: self.config.relaxed_ordering },
            _ => Traffic::Read,
        };
        let (model, requester, bytes) = (world.me(), self.pci.requester(), slot.data.bytes);
        let request = Upstream::Transfer { model, requester, traffic, bytes, code: code::LINK, arg };
        world.upstream(self.pci.port(), request);
    }

    pub(super) fn media_done(&mut self, world: &mut World<'_>, ticket: u64) {
        self.counters.leave_media(world.now());
        let Some(index) = self.slots.redeem(ticket) else { return };
        if self.controller.csts.cfs() {
            return;
        }
        match self.slots.slots[usize::from(index)].opcode {
            IoOpcode::READ => self.transfer(world, index),
            _ => self.end(world, index, self.slots.slots[usize::from(index)].status),
        }
    }

    /// The data have passed: they are in memory (read) or in the drive (write, ranges).
    pub(super) fn link_done(&mut self, world: &mut World<'_>, ticket: u64) {
        let Some(index) = self.slots.redeem(ticket) else { return };
        if self.controller.csts.cfs() {
            return;
        }
        let status = match self.slots.get(index).opcode {
            IoOpcode::DATASET_MANAGEMENT => self.deallocate(world, index),
            _ => self.move_data(world, index),
        };
        let slot = &mut self.slots.slots[usize::from(index)];
        slot.status = status;
        self.counters.link_ps += (world.now() - slot.on_link_since).0;
        match slot.opcode {
            IoOpcode::WRITE if status == Status::SUCCESS => self.write_arrived(world, index),
            IoOpcode::DATASET_MANAGEMENT if status == Status::SUCCESS => self.use_media(world, index),
            _ => self.end(world, index, status),
        }
    }

    /// Deallocates the ranges of Dataset Management, or none if one of them is wrong. Hints alone change nothing.
    fn deallocate(&mut self, world: &mut World<'_>, index: u16) -> Status {
        let Slot { data, deallocates, .. } = *self.slots.get(index);
        let mut words = Vec::with_capacity(data.bytes as usize / 8);
        let read = data.for_each(world, self.controller.page(), |world, _, segment| {
            for address in (segment.address..).step_by(4).take(segment.bytes as usize / 4) {
                words.push(world.read32(address)?);
            }
            Ok(())
        });
        if let Err(failure) = read {
            return failure.status();
        }
        let word = |pair: &[u32]| u64::from(pair[0]) | u64::from(pair[1]) << 32;
        let ranges =
            words.chunks_exact(4).map(|range| DatasetRange::from_words([word(&range[..2]), word(&range[2..])]));
        let ranges: Vec<_> = ranges.map(|range| (range.slba, range.slba.saturating_add(range.blocks.into()))).collect();
        if ranges.iter().any(|&(_, end)| end > self.config.blocks) {
            return Status::LBA_OUT_OF_RANGE;
        }
        if deallocates {
            ranges.into_iter().for_each(|(first, end)| self.storage.deallocate(first, end));
        }
        Status::SUCCESS
    }

    fn move_data(&mut self, world: &mut World<'_>, index: u16) -> Status {
        if !self.storage.moves_bytes() {
            return Status::SUCCESS;
        }
        let Slot { opcode, lba, data, .. } = self.slots.slots[usize::from(index)];
        let (storage, block_shift) = (&mut self.storage, self.config.block_shift);
        let moved = data.for_each(world, self.controller.page(), |world, offset, segment| {
            let at = Cursor { lba, block_shift, offset };
            if opcode == IoOpcode::READ { storage.read(world, at, segment) } else { storage.write(world, at, segment) }
        });
        moved.map_or_else(Failure::status, |()| Status::SUCCESS)
    }

    /// Frees the slot and completes its command.
    fn end(&mut self, world: &mut World<'_>, index: u16, status: Status) {
        let slot = self.slots.release(index);
        let took = world.now() - slot.since;
        let counters = &mut self.counters;
        counters.slots_busy_ps += took.0;
        if status == Status::SUCCESS {
            let bytes = u64::from(slot.data.bytes);
            match slot.opcode {
                IoOpcode::READ => {
                    (counters.reads, counters.read_bytes) = (counters.reads + 1, counters.read_bytes + bytes)
                }
                IoOpcode::WRITE => {
                    (counters.writes, counters.write_bytes) = (counters.writes + 1, counters.write_bytes + bytes);
                }
                IoOpcode::FLUSH => counters.flushes += 1,
                _ => counters.deallocates += 1,
            }
        }
        world.trace(span_name(slot.opcode), slot.since, took, slot.lba);
        self.complete(world, slot.sqid, slot.cid, status, 0);
        self.begin_fetch(world);
    }

    /// Aborts one command in progress. False when no such command is in progress: not fetched yet, or done.
    pub(super) fn abort_command(&mut self, world: &mut World<'_>, sqid: u16, cid: u16) -> bool {
        let found = self.slots.find(sqid, |other| other == cid);
        if let Some(index) = found {
            self.end(world, index, Status::ABORT_REQUESTED);
        }
        found.is_some()
    }

    /// Aborts the commands of a submission queue that are in progress.
    pub(super) fn abort_queue(&mut self, world: &mut World<'_>, sqid: u16) {
        while let Some(index) = self.slots.find(sqid, |_| true) {
            self.end(world, index, Status::ABORTED_SQ_DELETION);
        }
    }
}

fn span_name(opcode: IoOpcode) -> &'static str {
    match opcode {
        IoOpcode::READ => "read",
        IoOpcode::WRITE => "write",
        IoOpcode::FLUSH => "flush",
        IoOpcode::DATASET_MANAGEMENT => "deallocate",
        _ => "unknown command",
    }
}
