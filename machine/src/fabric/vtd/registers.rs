//! The register file of a unit (VT-d, "Register Descriptions"), and the commands behind it.

use super::fault::EventDue;
use super::queue::Executed;
use super::{InvalidationFault, InvalidationTrouble, VtdUnit, code};
use crate::observe::Fact;
use crate::time::Ps;
use crate::world::World;
use spec::vtd::registers::{
    self as reg, Capability, ExtendedCapability, FAULT_RECORD_SIZE, GlobalCommand, GlobalStatus, QueueErrorInfo,
    TableAddress, Version,
};

// Offsets, as constants for `match` patterns.
const VER: u32 = reg::VER.offset();
const CAP: u32 = reg::CAP.offset();
const ECAP: u32 = reg::ECAP.offset();
const GCMD: u32 = reg::GCMD.offset();
const GSTS: u32 = reg::GSTS.offset();
const FSTS: u32 = reg::FSTS.offset();
const FECTL: u32 = reg::FECTL.offset();
const FEUADDR: u32 = reg::FEUADDR.offset();
const IQH: u32 = reg::IQH.offset();
const IQT: u32 = reg::IQT.offset();
const IQA: u32 = reg::IQA.offset();
const ICS: u32 = reg::ICS.offset();
const IECTL: u32 = reg::IECTL.offset();
const IEUADDR: u32 = reg::IEUADDR.offset();
const IQERCD: u32 = reg::IQERCD.offset();
const IRTA: u32 = reg::IRTA.offset();

/// Offset of the fault records. CAP.FRO announces it.
const FAULT_RECORDS: u32 = 0x400;

/// Writable bits of IRTA and of IQA; the reserved ones read as 0.
const IRTA_BITS: u64 = 0xffff_ffff_ffff_f80f;
const IQA_BITS: u64 = 0xffff_ffff_ffff_f807;

/// One half of a 64-bit register.
fn half(value: u64, offset: u32) -> u32 {
    (value >> (offset % 8 * 8)) as u32
}

/// `register` with one half replaced.
fn with_half(register: u64, offset: u32, value: u32) -> u64 {
    crate::memory::with_field(register, offset % 8 * 8, 32, value.into())
}

impl VtdUnit {
    fn capability(&self) -> u64 {
        Capability::new()
            .with_fault_record_offset_16_bytes((FAULT_RECORDS / 16) as u16)
            .with_fault_records_less_one((self.config.fault_records.clamp(1, 256) - 1) as u8)
            .with_posted_interrupts(self.config.posted_interrupts)
            .into_bits()
    }

    fn extended_capability(&self) -> u64 {
        ExtendedCapability::new()
            .with_coherent(true)
            .with_queued_invalidation(true)
            .with_interrupt_remapping(true)
            .with_extended_interrupt_mode(self.config.extended_interrupt_mode)
            .with_handle_mask_max(15)
            .into_bits()
    }

    /// Bytes of the fault records.
    fn records_size(&self) -> u32 {
        u32::from(self.config.fault_records.clamp(1, 256)) * FAULT_RECORD_SIZE
    }

    /// Reads 32 bits at `offset`; 0 where there is no register.
    pub(super) fn read_register(&self, offset: u32) -> u32 {
        match offset {
            VER => Version::new().with_major(1).into_bits(),
            GSTS => self.status.into_bits(),
            FSTS => self.faults.status(),
            FECTL..=FEUADDR => self.fault_event.read((offset - FECTL) / 4),
            ICS => self.invalidation_done.into(),
            IECTL..=IEUADDR => self.invalidation_event.read((offset - IECTL) / 4),
            _ if (FAULT_RECORDS..FAULT_RECORDS + self.records_size()).contains(&offset) => {
                self.faults.read_part(((offset - FAULT_RECORDS) / 4) as usize)
            }
            _ => half(self.wide_register(offset & !7), offset),
        }
    }

    /// Reads 64 bits at `offset`; 0 where there is no register.
    fn wide_register(&self, offset: u32) -> u64 {
        match offset {
            CAP => self.capability(),
            ECAP => self.extended_capability(),
            IQH => self.queue.head(),
            IQT => self.queue.tail(),
            IQA => self.queue.address,
            IQERCD => self.faults.queue_error(),
            IRTA => self.table_register,
            _ => 0,
        }
    }

    /// Writes 32 bits at `offset`. Read-only registers ignore it.
    pub(super) fn write_register(&mut self, world: &mut World<'_>, offset: u32, value: u32) {
        match offset {
            GCMD => self.accept_command(world, value),
            FSTS => self.clear_faults(world, value),
            FECTL..=FEUADDR => {
                if let Some(message) = self.fault_event.write((offset - FECTL) / 4, value) {
                    self.send(world, message);
                }
            }
            IQT => {
                self.queue.set_tail(value.into());
                self.go_on(world);
            }
            _ if offset & !7 == IQA => self.queue.address = with_half(self.queue.address, offset, value) & IQA_BITS,
            ICS if value & 1 != 0 => {
                self.invalidation_done = false;
                self.invalidation_event.served();
            }
            IECTL..=IEUADDR => {
                if let Some(message) = self.invalidation_event.write((offset - IECTL) / 4, value) {
                    self.send(world, message);
                }
            }
            _ if offset & !7 == IRTA => self.table_register = with_half(self.table_register, offset, value) & IRTA_BITS,
            FAULT_RECORDS.. => {
                self.faults.write_part(((offset - FAULT_RECORDS) / 4) as usize, value);
                self.settle_faults();
            }
            _ => {}
        }
    }

    /// The status follows the command after a while; software waits for it before the next command.
    fn accept_command(&mut self, world: &mut World<'_>, value: u32) {
        if self.commands_pending > 0 {
            world.fault("global command before the last one's status", 0, format!("{value:#x}"));
        }
        self.commands_pending += 1;
        if GlobalCommand::from_bits(value).set_interrupt_table() {
            self.status.set_interrupt_table_set(false);
        }
        let at = world.now() + world.jitter(self.config.command_time);
        world.schedule(at, code::COMMAND, value.into());
    }

    /// A command takes effect (VT-d, "Global Command Register").
    pub(super) fn command(&mut self, world: &mut World<'_>, value: u32) {
        self.commands_pending -= 1;
        let (command, status) = (GlobalCommand::from_bits(value), self.status);
        let changes = [
            command.interrupt_remapping() != status.interrupt_remapping(),
            command.queued_invalidation() != status.queued_invalidation(),
            command.compatibility_format() != status.compatibility_format(),
            command.set_interrupt_table(),
        ];
        if changes.iter().filter(|&&change| change).count() > 1 {
            world.fault("several changes in one global command", 0, format!("{value:#x}"));
        }
        if command.translation() || command.set_root_table() {
            world.fault("address translation, which this unit lacks", 0, format!("{value:#x}"));
        }
        if command.set_interrupt_table() {
            self.set_table(world);
        }
        if command.interrupt_remapping() && !self.status.interrupt_table_set() {
            world.fault("interrupt remapping enabled without a table", 0, format!("{value:#x}"));
        }
        self.status.set_compatibility_format(command.compatibility_format());
        self.status.set_interrupt_remapping(command.interrupt_remapping());
        if changes[1] {
            self.status.set_queued_invalidation(command.queued_invalidation());
            self.queue.reset();
            self.draining = false;
            self.go_on(world);
        }
    }

    /// Where the table and the queue lie that the unit reads as it is set up now.
    pub(super) fn used_memory(&self) -> [Option<u64>; 2] {
        let table = self.table.into_bits() & !0xfff;
        let queue = self.queue.address & !0xfff;
        [self.status.interrupt_remapping().then_some(table), self.status.queued_invalidation().then_some(queue)]
    }

    /// Takes IRTA. The cache keeps what it has: CAP.ESIRTPS is 0, so software invalidates it.
    fn set_table(&mut self, world: &mut World<'_>) {
        self.table = TableAddress::from_bits(self.table_register);
        if self.table.extended_interrupt_mode() && !self.config.extended_interrupt_mode {
            world.fault("extended interrupt mode, which this unit lacks", 0, format!("{:#x}", self.table_register));
            self.table.set_extended_interrupt_mode(false);
        }
        self.status = GlobalStatus::with_interrupt_table_set(self.status, true);
    }

    fn clear_faults(&mut self, world: &mut World<'_>, value: u32) {
        self.faults.clear_status(value);
        self.settle_faults();
        self.go_on(world);
    }

    /// When software has handled every fault, a pending event is cleared (VT-d, "Fault Event Control Register").
    fn settle_faults(&mut self) {
        if !self.faults.any() {
            self.fault_event.served();
        }
    }

    pub(super) fn announce_fault(&mut self, world: &mut World<'_>, due: EventDue) {
        if due.0
            && let Some(message) = self.fault_event.raise()
        {
            self.send(world, message);
        }
    }

    /// A device completes what nobody asked of it.
    pub(super) fn completed(&mut self, world: &mut World<'_>, requester: u16) {
        world.tell(|| Fact::Struck { source: world.me(), fault: "unexpected completion" });
        let due = self.faults.answer(requester);
        self.announce_fault(world, due);
        world.fault("invalidation completion that nobody asked for", requester.into(), String::new());
    }

    /// The queue's fault at this time.
    fn trouble(&self, now: Ps) -> Option<InvalidationTrouble> {
        match self.config.invalidation_fault {
            InvalidationFault::Within { from, until, trouble } => (from..until).contains(&now).then_some(trouble),
            _ => None,
        }
    }

    /// Starts the descriptor at the head, if there is one and the queue may run.
    fn go_on(&mut self, world: &mut World<'_>) {
        if !self.status.queued_invalidation() || self.faults.queue_stands() || self.queue.busy {
            return;
        }
        match self.queue.pending() {
            Ok(false) => {}
            Ok(true) => {
                self.queue.busy = true;
                let late = match (self.config.invalidation_fault, self.trouble(world.now())) {
                    (InvalidationFault::Late(by), _) | (_, Some(InvalidationTrouble::Late(by))) => by,
                    _ => Ps(0),
                };
                if late > Ps(0) {
                    world.tell(|| Fact::Struck { source: world.me(), fault: "late invalidation" });
                }
                let at = world.now() + world.jitter(self.config.invalidation_time) + late;
                world.schedule(at, code::INVALIDATE, self.queue.epoch);
            }
            Err(info) => self.stop_queue(world, info),
        }
    }

    fn stop_queue(&mut self, world: &mut World<'_>, info: QueueErrorInfo) {
        self.queue.busy = false;
        let due = self.faults.stop_queue(info);
        self.announce_fault(world, due);
        let text = format!("error information {}, head {:#x}", info.0, self.queue.head());
        world.fault("invalidation queue stopped", 0, text);
    }

    /// Whether the fetch of the descriptor at the head fails.
    fn refuses(&self, trouble: InvalidationTrouble) -> bool {
        match trouble {
            InvalidationTrouble::FetchFails => true,
            InvalidationTrouble::FirstFetchFails => self.refused_at != Some(self.descriptors),
            InvalidationTrouble::Late(_) | InvalidationTrouble::Stands => false,
        }
    }

    /// Executes the descriptor at the head.
    pub(super) fn invalidate(&mut self, world: &mut World<'_>, epoch: u64) {
        if epoch != self.queue.epoch {
            return;
        }
        match self.config.invalidation_fault {
            InvalidationFault::Hangs(after) if self.descriptors >= after => {
                self.queue.busy = false;
                return;
            }
            InvalidationFault::Within { until, .. } => match self.trouble(world.now()) {
                Some(InvalidationTrouble::Stands) => return world.schedule(until, code::INVALIDATE, epoch),
                Some(trouble) if self.refuses(trouble) => {
                    self.refused_at = Some(self.descriptors);
                    world.tell(|| Fact::Struck { source: world.me(), fault: "failed invalidation" });
                    return self.stop_queue(world, QueueErrorInfo::FETCH);
                }
                _ => {}
            },
            InvalidationFault::FetchFails(after) if self.descriptors >= after => {
                self.config.invalidation_fault = InvalidationFault::None;
                return self.stop_queue(world, QueueErrorInfo::FETCH);
            }
            _ => {}
        }
        match self.queue.execute(world, &mut self.cache) {
            Ok(Executed::Done) => self.drained(world, epoch),
            Ok(Executed::Drain) => self.drain(world),
            Ok(Executed::Event) => {
                self.complete(world);
                self.drained(world, epoch);
            }
            Err(info) => self.stop_queue(world, info),
        }
    }

    /// Ends the descriptor and starts the next one.
    pub(super) fn drained(&mut self, world: &mut World<'_>, epoch: u64) {
        if epoch != self.queue.epoch {
            return;
        }
        self.descriptors += 1;
        self.queue.busy = false;
        self.queue.advance();
        self.go_on(world);
    }

    /// Sets ICS.IWC. No second event until software has cleared it (VT-d, "Invalidation Completion Status Register").
    fn complete(&mut self, world: &mut World<'_>) {
        if !core::mem::replace(&mut self.invalidation_done, true)
            && let Some(message) = self.invalidation_event.raise()
        {
            self.send(world, message);
        }
    }
}
