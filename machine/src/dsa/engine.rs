//! Engines: from a queue to memory, completion record and message (DSA, "Engines", "Descriptor Processing").

use super::{Data, Dsa, code};
use crate::model::{Traffic, Upstream};
use crate::time::Ps;
use crate::world::World;
use spec::dsa::{CompletionRecord, CompletionStatus, Descriptor, Flags, Opcode, RecordHead};

/// One engine.
#[derive(Clone, Default)]
pub(super) struct Engine {
    /// The engine serves a descriptor; the next one waits.
    serving: bool,
    /// Descriptors in progress at the engine.
    in_flight: u8,
}

/// A descriptor that an engine processes.
#[derive(Clone, Copy)]
struct Job {
    descriptor: Descriptor,
    queue: usize,
    engine: usize,
    /// The queue's transfer limit when the descriptor was taken. A reset of the queue does not change it.
    transfer_bytes_max: u64,
}

/// All jobs of the engines. A ticket names a job once; a ticket of a job that is gone is invalid.
#[derive(Default)]
pub(super) struct Jobs {
    slots: Vec<(u32, Option<Job>)>,
    free: Vec<u32>,
}

impl Jobs {
    fn insert(&mut self, job: Job) -> u64 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            self.slots.len() as u32 - 1
        });
        let (generation, place) = &mut self.slots[slot as usize];
        *place = Some(job);
        u64::from(*generation) << 32 | u64::from(slot)
    }

    fn get(&self, ticket: u64) -> Option<Job> {
        let (generation, job) = self.slots.get(ticket as u32 as usize)?;
        job.filter(|_| u64::from(*generation) == ticket >> 32)
    }

    fn remove(&mut self, ticket: u64) -> Option<Job> {
        let job = self.get(ticket)?;
        self.free_slot(ticket as u32);
        Some(job)
    }

    fn free_slot(&mut self, slot: u32) {
        let (generation, job) = &mut self.slots[slot as usize];
        *generation = generation.wrapping_add(1);
        *job = None;
        self.free.push(slot);
    }

    pub(super) fn descriptors(&self) -> impl Iterator<Item = &Descriptor> {
        self.slots.iter().filter_map(|(_, job)| job.as_ref()).map(|job| &job.descriptor)
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Forgets every job; returns how many there were.
    pub(super) fn clear(&mut self) -> usize {
        let before = self.len();
        for slot in 0..self.slots.len() as u32 {
            if self.slots[slot as usize].1.is_some() {
                self.free_slot(slot);
            }
        }
        before
    }
}

/// Flags that are valid for a descriptor outside a batch on a device without the optional capabilities.
const FLAGS_VALID: Flags = Flags::new()
    .with_record_valid(true)
    .with_request_record(true)
    .with_request_interrupt(true)
    .with_cache_control(true)
    .with_strict_ordering(true);

impl Dsa {
    /// Gives descriptors of the group of `queue` to its idle engines.
    pub(super) fn dispatch(&mut self, world: &mut World<'_>, queue: usize) {
        let Some(group) = self.groups.iter().position(|group| group.queues() >> queue & 1 == 1) else { return };
        let engines = self.groups[group].engines();
        for engine in (0..self.engines.len()).filter(|engine| engines >> engine & 1 == 1) {
            let state = &self.engines[engine];
            if !state.serving && state.in_flight < self.config.timing.in_flight {
                let Some(queue) = self.next_queue(group) else { return };
                self.serve(world, queue, engine);
            }
        }
    }

    /// The next queue of the group that has a descriptor, round robin.
    fn next_queue(&mut self, group: usize) -> Option<usize> {
        let count = self.queues.len();
        let Self { groups, queues, .. } = self;
        let group = &mut groups[group];
        let bits = group.queues();
        let mut turn = (1..=count).map(|step| (group.last + step) % count);
        let next = turn.find(|&queue| bits >> queue & 1 == 1 && !queues[queue].waiting.is_empty())?;
        group.last = next;
        Some(next)
    }

    fn serve(&mut self, world: &mut World<'_>, queue: usize, engine: usize) {
        let Some((descriptor, arrival)) = self.queues[queue].waiting.pop_front() else { return };
        self.queues[queue].served += 1;
        self.engines[engine].serving = true;
        self.engines[engine].in_flight += 1;
        let service = world.jitter(self.config.timing.service);
        self.counters.queue_wait_ps += (world.now() - arrival).0;
        self.counters.service_ps += service.0;
        let transfer_bytes_max = 1 << self.queues[queue].limits().transfer_shift_max();
        let ticket = self.jobs.insert(Job { descriptor, queue, engine, transfer_bytes_max });
        world.schedule(world.now() + service, code::SERVED, ticket);
    }

    pub(super) fn served(&mut self, world: &mut World<'_>, ticket: u64) {
        let Some(job) = self.jobs.get(ticket) else { return };
        self.engines[job.engine].serving = false;
        match self.validate(&job) {
            Err(record) => self.finish(world, ticket, record),
            Ok(()) if self.config.timing.latency > Ps(0) => {
                let latency = world.jitter(self.config.timing.latency);
                world.schedule(world.now() + latency, code::READY, ticket);
            }
            Ok(()) => self.send_data(world, ticket),
        }
        self.dispatch(world, job.queue);
    }

    /// Asks the link to carry the job's data.
    pub(super) fn send_data(&mut self, world: &mut World<'_>, ticket: u64) {
        let Some(job) = self.jobs.get(ticket) else { return };
        // A no-op only writes its completion record, with which every operation ends.
        let data = if job.is(Opcode::FILL) { job.descriptor.size.bytes() } else { 0 };
        let bytes = data.saturating_add(CompletionRecord::BYTES as u32);
        let (model, requester) = (world.me(), self.pci.requester());
        let traffic = Traffic::Write { relaxed: false };
        let request = Upstream::Transfer { model, requester, traffic, bytes, code: code::PASSED, arg: ticket };
        world.upstream(self.pci.port(), request);
    }

    /// The data have passed the link: memory changes now.
    pub(super) fn passed(&mut self, world: &mut World<'_>, ticket: u64) {
        let Some(job) = self.jobs.get(ticket) else { return };
        let record = if job.is(Opcode::FILL) { self.fill(world, &job.descriptor) } else { success() };
        self.finish(world, ticket, record);
    }

    /// Checks a descriptor by itself, in the order of the status codes.
    fn validate(&self, job: &Job) -> Result<(), CompletionRecord> {
        let Descriptor { control, size, specific, .. } = job.descriptor;
        let opcode = Opcode(control.opcode());
        let fail = |status: CompletionStatus| Err(record(RecordHead::new().with_status(status.0)));
        if opcode != Opcode::NOOP && opcode != Opcode::FILL {
            return fail(CompletionStatus::INVALID_OPCODE);
        }
        let flags = Flags::from_bits(control.flags());
        let mut invalid = flags.into_bits() & !FLAGS_VALID.into_bits();
        if flags.request_record() && !flags.record_valid() {
            invalid |= Flags::new().with_request_record(true).into_bits();
        }
        if invalid != 0 {
            let head = RecordHead::new().with_status(CompletionStatus::INVALID_FLAGS.0);
            return Err(CompletionRecord { invalid_flags: invalid, ..record(head) });
        }
        if control.reserved() != 0 || size.reserved() != 0 || specific != [0; 3] {
            return fail(CompletionStatus::RESERVED_FIELD);
        }
        if opcode == Opcode::FILL && (size.bytes() == 0 || u64::from(size.bytes()) > job.transfer_bytes_max) {
            return fail(CompletionStatus::TRANSFER_SIZE);
        }
        if flags.request_interrupt() && size.interrupt_handle() >= self.config.vectors {
            return fail(CompletionStatus::INTERRUPT_HANDLE);
        }
        Ok(())
    }

    /// Memory Fill: the pattern from the destination on, cut off at the transfer's end (DSA, "Memory Fill").
    fn fill(&mut self, world: &mut World<'_>, descriptor: &Descriptor) -> CompletionRecord {
        let (start, bytes) = (descriptor.destination, u64::from(descriptor.size.bytes()));
        let written = match self.config.data {
            Data::Written => write_pattern(world, descriptor.source, start, bytes),
            Data::Timed => reachable(world, start, bytes),
        };
        match written {
            Ok(()) => {
                self.counters.bytes += bytes;
                success()
            }
            Err(fault_address) => {
                let done = fault_address.saturating_sub(start).min(bytes);
                self.counters.bytes += done;
                let status = CompletionStatus::PAGE_FAULT.0;
                let head = RecordHead::new().with_status(status).with_fault_write(true);
                CompletionRecord { fault_address, ..record(head.with_bytes_completed(done as u32)) }
            }
        }
    }

    /// Writes the completion record if requested, sends the message if requested, and frees the engine's slot.
    fn finish(&mut self, world: &mut World<'_>, ticket: u64, record: CompletionRecord) {
        let Some(job) = self.jobs.remove(ticket) else { return };
        self.engines[job.engine].in_flight -= 1;
        self.queues[job.queue].served -= 1;
        let good = record.head.status() == CompletionStatus::SUCCESS.0;
        if good {
            self.counters.completed += 1
        } else {
            self.counters.errors += 1
        }
        let flags = Flags::from_bits(job.descriptor.control.flags());
        let told = match (flags.record_valid(), good && !flags.request_record()) {
            (_, true) => Ok(()),
            (true, false) => write_record(world, job.descriptor.record, record),
            (false, false) => Err(CompletionStatus(record.head.status())),
        };
        if let Err(error) = told {
            self.software_error(world, job.queue as u8, error.0, &job.descriptor);
        }
        let vector = job.descriptor.size.interrupt_handle();
        if flags.request_interrupt() && vector < self.config.vectors {
            self.pci.signal(world, vector);
        }
        self.end_drained(world);
        self.dispatch(world, job.queue);
    }
}

impl Job {
    fn is(&self, opcode: Opcode) -> bool {
        self.descriptor.control.opcode() == opcode.0
    }
}

fn record(head: RecordHead) -> CompletionRecord {
    CompletionRecord { head, ..CompletionRecord::default() }
}

fn success() -> CompletionRecord {
    record(RecordHead::new().with_status(CompletionStatus::SUCCESS.0))
}

/// Writes a completion record, its status last.
fn write_record(world: &mut World<'_>, address: u64, record: CompletionRecord) -> Result<(), CompletionStatus> {
    if !address.is_multiple_of(CompletionRecord::BYTES as u64) {
        return Err(CompletionStatus::RECORD_ALIGNMENT);
    }
    let third = u64::from(record.invalid_flags) | u64::from(record.reserved) << 32;
    let words = [(24, record.specific), (16, third), (8, record.fault_address), (0, record.head.into_bits())];
    for (offset, word) in words {
        // The address is aligned, so the sum does not overflow.
        world.write64(address + offset, word).map_err(|_| CompletionStatus::RECORD_ADDRESS)?;
    }
    Ok(())
}

/// Repeats `pattern` over `bytes` bytes from `start` on, its first byte at `start`.
///
/// # Errors
/// The first address that is not in memory.
fn write_pattern(world: &mut World<'_>, pattern: u64, start: u64, bytes: u64) -> Result<(), u64> {
    let shifted = pattern.rotate_left((start % 8 * 8) as u32);
    let mut at = start;
    let mut left = bytes;
    while left > 0 {
        let (skip, word) = (at % 8, at & !7);
        let count = (8 - skip).min(left);
        let mask = (u64::MAX >> (64 - 8 * count)) << (8 * skip);
        world.update64(word, |old| old & !mask | shifted & mask).map_err(|_| at)?;
        left -= count;
        at = at.wrapping_add(count);
    }
    Ok(())
}

/// Checks that both ends are in memory.
///
/// # Errors
/// The end that is not in memory.
fn reachable(world: &World<'_>, start: u64, bytes: u64) -> Result<(), u64> {
    let last = start.checked_add(bytes - 1).ok_or(start)?;
    for end in [start, last] {
        world.read64(end & !7).map_err(|_| end)?;
    }
    Ok(())
}
