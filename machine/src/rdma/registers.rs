//! Registers and doorbells.

use super::objects::{CompletionQueue, EventQueue, MemoryRegion};
use super::{ModerationAnswer, Nic, REGION_MSIX};
use crate::observe::Fact;
use crate::pci::{Bar, Identity, MSIX_BAR_BYTES, MsixPlace, PBA_OFFSET, Widths};
use crate::world::World;
use spec::rdma::registers::{
    self as reg, Capabilities, Control, CqControl, DeviceStatus, EqControl, Moderation, MrControl, QpControl, QpQueues,
    cq, doorbell, eq, mr, qp,
};

// Offsets, for patterns.
const ID: u32 = reg::ID.offset();
const CAPABILITIES: u32 = reg::CAPABILITIES.offset();
const CONTROL: u32 = reg::CONTROL.offset();
const STATUS: u32 = reg::STATUS.offset();
const MR_BASE: u32 = mr::BASE.offset();
const MR_LENGTH: u32 = mr::LENGTH.offset();
const MR_CONTROL: u32 = mr::CONTROL.offset();
const EQ_BASE: u32 = eq::BASE.offset();
const EQ_CONTROL: u32 = eq::CONTROL.offset();
const CQ_BASE: u32 = cq::BASE.offset();
const CQ_RECORD: u32 = cq::RECORD.offset();
const CQ_CONTROL: u32 = cq::CONTROL.offset();
const CQ_MODERATION: u32 = cq::MODERATION.offset();
const QP_SEND_BASE: u32 = qp::SEND_BASE.offset();
const QP_RECEIVE_BASE: u32 = qp::RECEIVE_BASE.offset();
const QP_QUEUES: u32 = qp::QUEUES.offset();
const QP_REMOTE: u32 = qp::REMOTE.offset();
const QP_CONTROL: u32 = qp::CONTROL.offset();
const DOORBELL_SEND: u32 = doorbell::SEND.offset();
const DOORBELL_RECEIVE: u32 = doorbell::RECEIVE.offset();
const DOORBELL_ARM: u32 = doorbell::ARM.offset();
const DOORBELL_EVENTS: u32 = doorbell::EVENTS.offset();

/// A vendor number that is assigned to no company; network controller, other (class 02_80h).
pub(super) fn identity() -> Identity {
    Identity {
        vendor: 0xca4d,
        device: 0x0001,
        class: 0x02_80_00,
        bars: vec![
            Bar::new(0, QP_END.next_power_of_two()),
            Bar { writes: Widths::Dword, ..Bar::new(2, DOORBELLS_BYTES) },
            Bar::new(4, MSIX_BAR_BYTES),
        ],
        msix: MsixPlace { region: REGION_MSIX, table: 0, pending: PBA_OFFSET },
        capabilities: Vec::new(),
    }
}

/// Puts `value` into the low (offset 0 of 8) or high half of a 64-bit register.
fn set_half(register: &mut u64, offset: u32, value: u32) {
    let shift = offset % 8 * 8;
    *register = *register & !(0xffff_ffff << shift) | u64::from(value) << shift;
}

fn half(register: u64, offset: u32) -> u32 {
    (register >> (offset % 8 * 8)) as u32
}

/// Which object of a table, and where in its block.
fn place(offset: u32, table: u32, stride: u32) -> (usize, u32) {
    (((offset - table) / stride) as usize, (offset - table) % stride)
}

/// Bytes of the doorbells' BAR: a page an object.
const DOORBELLS_BYTES: u32 = ((reg::QP_MAX + reg::CQ_MAX + reg::EQ_MAX) * doorbell::PAGE_BYTES).next_power_of_two();
const MR_END: u32 = reg::MR + reg::MR_MAX * reg::MR_STRIDE;
const EQ_END: u32 = reg::EQ + reg::EQ_MAX * reg::EQ_STRIDE;
const CQ_END: u32 = reg::CQ + reg::CQ_MAX * reg::CQ_STRIDE;
const QP_END: u32 = reg::QP + reg::QP_MAX * reg::QP_STRIDE;

/// The moderation of a queue that had `old` and is told another.
fn answered(how: ModerationAnswer, old: Moderation, told: Moderation) -> Moderation {
    match how {
        ModerationAnswer::Exact => told,
        ModerationAnswer::Rounds { count, period_us } => {
            // The fields' own most bounds what rounding up gives.
            let count_up = u32::from(told.count()).next_multiple_of(count.into()).min(u16::MAX.into()) as u16;
            let period_up = told.period_us().next_multiple_of(period_us).min(u16::MAX >> 1);
            told.with_count(count_up).with_period_us(period_up)
        }
        ModerationAnswer::Refuses => old.with_refused(true),
    }
}

impl Nic {
    fn capabilities(&self) -> u64 {
        let config = &self.config;
        Capabilities::new()
            .with_queue_pairs(config.queue_pairs)
            .with_completion_queues(config.completion_queues)
            .with_event_queues(config.event_queues)
            .with_memory_regions(config.memory_regions)
            .with_entries_shift_max(config.entries_shift_max)
            .with_patience_10us(config.patience_10us)
            .into_bits()
    }

    /// Reads 32 bits. 0 outside the registers.
    pub(super) fn register_read(&self, offset: u32) -> u32 {
        match offset {
            ID => reg::IDENTITY,
            CAPABILITIES..CONTROL => half(self.capabilities(), offset),
            CONTROL => Control::new().with_enable(self.enabled).into_bits(),
            STATUS => {
                let link = self.wire.is_whole();
                DeviceStatus::new().with_ready(self.enabled).with_link(link).into_bits()
            }
            reg::MR..MR_END => self.region_read(place(offset, reg::MR, reg::MR_STRIDE)),
            reg::EQ..EQ_END => self.event_queue_read(place(offset, reg::EQ, reg::EQ_STRIDE)),
            reg::CQ..CQ_END => self.completion_queue_read(place(offset, reg::CQ, reg::CQ_STRIDE)),
            reg::QP..QP_END => self.queue_pair_read(place(offset, reg::QP, reg::QP_STRIDE)),
            _ => 0,
        }
    }

    fn region_read(&self, (number, field): (usize, u32)) -> u32 {
        let Some(region) = self.regions.get(number) else { return 0 };
        match field {
            MR_BASE..MR_LENGTH => half(region.base, field),
            MR_LENGTH..MR_CONTROL => half(region.length, field),
            MR_CONTROL => region.control.into_bits(),
            _ => 0,
        }
    }

    fn event_queue_read(&self, (number, field): (usize, u32)) -> u32 {
        let Some(queue) = self.event_queues.get(number) else { return 0 };
        match field {
            EQ_BASE..EQ_CONTROL => half(queue.base, field),
            EQ_CONTROL => queue.control.into_bits(),
            _ => 0,
        }
    }

    fn completion_queue_read(&self, (number, field): (usize, u32)) -> u32 {
        let Some(queue) = self.completion_queues.get(number) else { return 0 };
        match field {
            CQ_BASE..CQ_RECORD => half(queue.base, field),
            CQ_RECORD..CQ_CONTROL => half(queue.record, field),
            CQ_CONTROL => queue.control.into_bits(),
            CQ_MODERATION => queue.moderation.into_bits(),
            _ => 0,
        }
    }

    fn queue_pair_read(&self, (number, field): (usize, u32)) -> u32 {
        let Some(pair) = self.queue_pairs.get(number) else { return 0 };
        match field {
            QP_SEND_BASE..QP_RECEIVE_BASE => half(pair.send_base, field),
            QP_RECEIVE_BASE..QP_QUEUES => half(pair.receive_base, field),
            QP_QUEUES..QP_REMOTE => half(pair.queues.into_bits(), field),
            QP_REMOTE => pair.remote,
            QP_CONTROL => pair.control.into_bits(),
            _ => 0,
        }
    }

    /// Writes 32 bits. Read-only and reserved offsets, and objects that the device lacks, ignore it.
    pub(super) fn register_write(&mut self, world: &mut World<'_>, offset: u32, value: u32) {
        match offset {
            CONTROL => self.control(Control::from_bits(value).enable() && !world.refuses()),
            reg::MR..MR_END => self.region_write(world, place(offset, reg::MR, reg::MR_STRIDE), value),
            reg::EQ..EQ_END => self.event_queue_write(world, place(offset, reg::EQ, reg::EQ_STRIDE), value),
            reg::CQ..CQ_END => self.completion_queue_write(world, place(offset, reg::CQ, reg::CQ_STRIDE), value),
            reg::QP..QP_END => self.queue_pair_write(world, place(offset, reg::QP, reg::QP_STRIDE), value),
            _ => {}
        }
    }

    fn control(&mut self, enable: bool) {
        if !enable {
            self.regions.fill(MemoryRegion::default());
            self.event_queues.fill(EventQueue::default());
            self.completion_queues.iter_mut().for_each(|queue| {
                *queue = CompletionQueue { timer: queue.timer.wrapping_add(1), ..CompletionQueue::default() };
            });
            self.queue_pairs.iter_mut().for_each(|pair| pair.restart(false));
            self.pci.forget_pending();
        }
        self.enabled = enable;
    }

    fn region_write(&mut self, world: &World<'_>, (number, field): (usize, u32), value: u32) {
        let Some(region) = self.regions.get_mut(number) else { return };
        match field {
            MR_CONTROL => {
                let control = MrControl::from_bits(value);
                region.control = control.with_enable(control.enable() && !world.refuses());
            }
            _ if region.control.enable() => {}
            MR_BASE..MR_LENGTH => set_half(&mut region.base, field, value),
            MR_LENGTH..MR_CONTROL => set_half(&mut region.length, field, value),
            _ => {}
        }
    }

    fn event_queue_write(&mut self, world: &World<'_>, (number, field): (usize, u32), value: u32) {
        let shift_max = self.config.entries_shift_max;
        let Some(queue) = self.event_queues.get_mut(number) else { return };
        match field {
            EQ_CONTROL => {
                let control = EqControl::from_bits(value);
                let enable =
                    control.enable() && self.enabled && control.entries_shift() <= shift_max && !world.refuses();
                let control = control.with_enable(enable).with_overrun(false);
                *queue = EventQueue { base: queue.base, control, ..EventQueue::default() };
            }
            EQ_BASE..EQ_CONTROL if !queue.control.enable() => set_half(&mut queue.base, field, value),
            _ => {}
        }
    }

    fn completion_queue_write(&mut self, world: &mut World<'_>, (number, field): (usize, u32), value: u32) {
        let (shift_max, events) = (self.config.entries_shift_max, self.event_queues.len());
        let Some(queue) = self.completion_queues.get_mut(number) else { return };
        match field {
            CQ_CONTROL => {
                let control = CqControl::from_bits(value);
                let valid = control.entries_shift() <= shift_max && usize::from(control.event_queue()) < events;
                let enable = control.enable() && self.enabled && valid && !world.refuses();
                let control = control.with_enable(enable).with_error(false);
                let CompletionQueue { base, record, timer, .. } = *queue;
                let timer = timer.wrapping_add(1);
                *queue = CompletionQueue { base, record, control, timer, ..CompletionQueue::default() };
            }
            CQ_MODERATION => self.moderate(world, number, Moderation::from_bits(value)),
            _ if queue.control.enable() => {}
            CQ_BASE..CQ_RECORD => set_half(&mut queue.base, field, value),
            CQ_RECORD..CQ_CONTROL => set_half(&mut queue.record, field, value),
            _ => {}
        }
    }

    /// A moderation as the device does it; what waits is judged by it at once.
    fn moderate(&mut self, world: &mut World<'_>, number: usize, told: Moderation) {
        let queue = &mut self.completion_queues[number];
        let told = told.with_refused(false);
        let right = answered(self.config.moderation, queue.moderation, told);
        let answer = self.moderation_fault.map_or(right, |fault| answered(fault, queue.moderation, told));
        if answer != right {
            world.tell(|| Fact::Struck { source: world.me(), fault: "moderation" });
        }
        queue.moderation = answer;
        self.counters.moderation_changed += u64::from(queue.moderation != told);
        self.tell(world, number as u16);
    }

    fn queue_pair_write(&mut self, world: &World<'_>, (number, field): (usize, u32), value: u32) {
        let (shift_max, queues) = (self.config.entries_shift_max, self.completion_queues.len());
        let Some(pair) = self.queue_pairs.get_mut(number) else { return };
        match field {
            QP_CONTROL => {
                let own = pair.queues;
                let valid = own.send_shift() <= shift_max
                    && own.receive_shift() <= shift_max
                    && usize::from(own.send_cq()) < queues
                    && usize::from(own.receive_cq()) < queues;
                pair.restart(QpControl::from_bits(value).enable() && self.enabled && valid && !world.refuses());
            }
            _ if pair.control.enable() => {}
            QP_SEND_BASE..QP_RECEIVE_BASE => set_half(&mut pair.send_base, field, value),
            QP_RECEIVE_BASE..QP_QUEUES => set_half(&mut pair.receive_base, field, value),
            QP_QUEUES..QP_REMOTE => {
                let mut bits = pair.queues.into_bits();
                set_half(&mut bits, field, value);
                pair.queues = QpQueues::from_bits(bits);
            }
            QP_REMOTE => pair.remote = value,
            _ => {}
        }
    }

    /// A doorbell rings.
    pub(super) fn doorbell(&mut self, world: &mut World<'_>, offset: u32, value: u32) {
        let page = offset / doorbell::PAGE_BYTES;
        let number = match offset {
            doorbell::QP..doorbell::CQ => page,
            doorbell::CQ..doorbell::EQ => page - reg::QP_MAX,
            _ => page - reg::QP_MAX - reg::CQ_MAX,
        } as u16;
        let is_completion = offset >= doorbell::CQ;
        world.tell(|| Fact::Doorbell { device: world.me(), queue: number, value, is_completion });
        match (offset, offset % doorbell::PAGE_BYTES) {
            (doorbell::QP..doorbell::CQ, DOORBELL_SEND) => self.sends_posted(world, number, value),
            (doorbell::QP..doorbell::CQ, DOORBELL_RECEIVE) => self.receives_posted(world, number, value),
            (doorbell::CQ..doorbell::EQ, DOORBELL_ARM) => self.arm(world, number, value),
            (doorbell::EQ.., DOORBELL_EVENTS) => self.events_taken(world, number, value),
            _ => self.fault(world, "write beside the doorbells of an RDMA NIC", format!("offset {offset:#x}")),
        }
    }
}
