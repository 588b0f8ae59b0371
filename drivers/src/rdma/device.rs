//! The device: bring-up, memory, completion queues and queue pairs.

use super::completion::{ARMS_MAX, CqParts};
use super::{CompletionQueue, CqUse, CqUser, EventQueue, QueuePair, RdmaError};
use crate::register::Typed as _;
use alloc::sync::Arc;
use alloc::vec::Vec;
use hal::{DeviceAddress, Hal, Lock};
use irq::moderation::Tuner;
use spec::rdma::registers::{
    self as reg, CQ, CQ_STRIDE, Capabilities, Control, CqControl, DeviceStatus, EQ, EQ_STRIDE, EqControl, MR,
    MR_STRIDE, MrControl, QP, QP_STRIDE, QpQueues, cq, eq, mr, qp,
};
use spec::register::{ReadWrite, Register};

/// The least entries of a queue.
const ENTRIES_MIN: u32 = 16;
/// Interval between two reads of STATUS.
const STATUS_POLL_NS: u64 = 1_000;

/// How a device is brought up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceConfig {
    /// Event queues, and MSI-X entries in use: at least 1, at most what the device has.
    pub event_queues: u16,
    /// How long the device may take to get ready, in nanoseconds.
    pub ready_timeout_ns: u64,
}

/// Parameters of a new completion queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CqConfig {
    /// A power of two, at least 16. As many as its users' requests in flight: the device stops a queue that overruns.
    pub entries: u32,
    /// The event queue of its events.
    pub event_queue: u16,
    /// Owner of the queue.
    pub owner: CqUse,
}

/// Parameters of a new queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpConfig {
    /// Send requests, a power of two, at least 16.
    pub sends: u32,
    /// Receives, a power of two, at least 16.
    pub receives: u32,
}

/// The right to write to a region of memory, for the other end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MemoryKey(pub u32);

/// Numbers that are in use.
#[derive(Default)]
struct Used {
    regions: u8,
    generation: u32,
    completion_queues: u16,
    queue_pairs: u16,
    /// By completion queue: the requests that its queue pairs can have under way.
    promised: Vec<u32>,
}

/// An RDMA NIC.
///
/// Objects are opened one after the other and live as long as the device, which [`Device::shutdown`] turns off; call it
/// before dropping anything, since the device writes to their memory until then.
pub struct Device<H: Hal> {
    hal: H,
    regs: Arc<H::Regs>,
    doorbells: Arc<H::Regs>,
    capabilities: Capabilities,
    event_queues: Vec<Arc<EventQueue<H>>>,
    used: Lock<H, Used>,
}

/// log2 of the most entries that a device may take: from the least queue to what counts of 16 bits can tell.
const ENTRIES_SHIFTS: core::ops::RangeInclusive<u8> = 4..=16;

impl<H: Hal> Device<H> {
    /// Turns the NIC on and its event queues, armed.
    ///
    /// # Errors
    /// Any [`RdmaError`]; the NIC is then off or gone.
    pub fn new(hal: H, regs: H::Regs, doorbells: H::Regs, config: DeviceConfig) -> Result<Self, RdmaError> {
        let identity = regs.read(reg::ID);
        match identity {
            u32::MAX => return Err(RdmaError::Gone),
            reg::IDENTITY => {}
            other => return Err(RdmaError::Identity(other)),
        }
        let capabilities = Capabilities::from_bits(regs.read(reg::CAPABILITIES));
        if config.event_queues == 0 || config.event_queues > capabilities.event_queues() {
            return Err(RdmaError::NoEventQueue(config.event_queues, capabilities.event_queues()));
        }
        let shift_max = capabilities.entries_shift_max();
        if !ENTRIES_SHIFTS.contains(&shift_max) {
            return Err(RdmaError::EntriesShift(shift_max));
        }
        let mut device = Self {
            hal,
            regs: Arc::new(regs),
            doorbells: Arc::new(doorbells),
            capabilities,
            event_queues: Vec::new(),
            used: Lock::new(hal, Used::default()),
        };
        // Turns the device off first, which clears its configuration.
        device.shutdown();
        let turned_on = device.turn_on(config);
        if turned_on.is_err() {
            // It would go on with queues whose memory is given back.
            device.shutdown();
        }
        turned_on.map(|()| device)
    }

    fn turn_on(&mut self, config: DeviceConfig) -> Result<(), RdmaError> {
        self.regs.write(reg::CONTROL, Control::new().with_enable(true).into_bits());
        let deadline_ns = self.hal.now_ns().saturating_add(config.ready_timeout_ns);
        while !DeviceStatus::from_bits(self.regs.read(reg::STATUS)).ready() {
            if self.hal.now_ns() >= deadline_ns {
                return Err(RdmaError::Timeout(config.ready_timeout_ns));
            }
            self.hal.delay_ns(STATUS_POLL_NS);
        }
        for number in 0..config.event_queues {
            let queue = self.open_event_queue(number)?;
            self.event_queues.push(Arc::new(queue));
        }
        Ok(())
    }

    /// The capabilities of the device.
    pub fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    /// The event queue of an MSI-X entry.
    pub fn event_queue(&self, number: u16) -> Option<&Arc<EventQueue<H>>> {
        self.event_queues.get(usize::from(number))
    }

    /// Room for as many events of every completion queue as it may be armed, and one of every queue pair and every
    /// completion queue that stops.
    fn open_event_queue(&self, number: u16) -> Result<EventQueue<H>, RdmaError> {
        let capabilities = self.capabilities;
        let events = (ARMS_MAX as u32 + 1) * u32::from(capabilities.completion_queues());
        let events = events + u32::from(capabilities.queue_pairs());
        let shift = (events.next_power_of_two().trailing_zeros() as u8).clamp(4, capabilities.entries_shift_max());
        let queues = capabilities.completion_queues();
        let queue = EventQueue::new(self.hal, number, shift, queues, self.doorbells.clone())?;
        let block = EQ + u32::from(number) * EQ_STRIDE;
        self.regs.write(eq::BASE.behind(block), queue.address());
        let control = EqControl::new().with_enable(true).with_entries_shift(shift);
        self.enable("event queue", eq::CONTROL.behind(block), control.into_bits())?;
        queue.arm();
        Ok(queue)
    }

    /// Writes a control register whose bit 0 is the enable, and checks that the device accepted it.
    fn enable(&self, what: &'static str, register: Register<u32, ReadWrite>, value: u32) -> Result<(), RdmaError> {
        self.regs.write(register, value);
        let control = self.regs.read(register);
        if control & 1 == 0 { Err(RdmaError::Rejected(what, control)) } else { Ok(()) }
    }

    fn shift(&self, entries: u32) -> Result<u8, RdmaError> {
        let max = 1 << self.capabilities.entries_shift_max();
        if !entries.is_power_of_two() || !(ENTRIES_MIN..=max).contains(&entries) {
            return Err(RdmaError::Entries(entries, max));
        }
        Ok(entries.trailing_zeros() as u8)
    }

    /// Lends memory to the other end, which may write there with the key.
    ///
    /// # Errors
    /// [`RdmaError::Exhausted`], [`RdmaError::Rejected`].
    pub fn lend(&self, base: DeviceAddress, bytes: u64) -> Result<MemoryKey, RdmaError> {
        let mut used = self.used.lock();
        let number = used.regions;
        if number >= self.capabilities.memory_regions() {
            return Err(RdmaError::Exhausted("memory regions", number.into()));
        }
        used.generation = (used.generation + 1) & 0xff_ffff;
        let generation = used.generation;
        let block = MR + u32::from(number) * MR_STRIDE;
        self.regs.write(mr::BASE.behind(block), base.0);
        self.regs.write(mr::LENGTH.behind(block), bytes);
        let control = MrControl::new().with_enable(true).with_remote_write(true).with_generation(generation);
        self.enable("memory region", mr::CONTROL.behind(block), control.into_bits())?;
        used.regions += 1;
        Ok(MemoryKey(generation << 8 | u32::from(number)))
    }

    /// Opens a completion queue without moderation, disarmed; [`EventQueue::attach`] says where it is polled. Turns in
    /// its context feed `tuner`.
    ///
    /// # Errors
    /// [`RdmaError::Entries`], [`RdmaError::NoEventQueue`], [`RdmaError::Exhausted`], [`RdmaError::Shared`] for a
    /// shared queue with a tuner, no memory.
    pub fn open_cq(
        &self,
        config: CqConfig,
        user: Arc<dyn CqUser>,
        tuner: Option<Arc<Tuner<H>>>,
    ) -> Result<Arc<CompletionQueue<H>>, RdmaError> {
        let shift = self.shift(config.entries)?;
        let events = self.event_queues.len() as u16;
        if config.event_queue >= events {
            return Err(RdmaError::NoEventQueue(config.event_queue, events));
        }
        if config.owner == CqUse::Shared && tuner.is_some() {
            return Err(RdmaError::Shared);
        }
        let mut used = self.used.lock();
        let number = used.completion_queues;
        if number >= self.capabilities.completion_queues() {
            return Err(RdmaError::Exhausted("completion queues", number.into()));
        }
        let (regs, doorbells) = (self.regs.clone(), self.doorbells.clone());
        let told = self.event_queues[usize::from(config.event_queue)].told().clone();
        let parts = CqParts { hal: self.hal, number, shift, regs, doorbells, user, owner: config.owner, tuner, told };
        let queue = CompletionQueue::new(parts)?;
        let block = CQ + u32::from(number) * CQ_STRIDE;
        let (ring, record) = queue.addresses();
        self.regs.write(cq::BASE.behind(block), ring);
        self.regs.write(cq::RECORD.behind(block), record);
        let control = CqControl::new().with_enable(true).with_entries_shift(shift).with_event_queue(config.event_queue);
        self.enable("completion queue", cq::CONTROL.behind(block), control.into_bits())?;
        used.completion_queues += 1;
        used.promised.push(0);
        Ok(Arc::new(queue))
    }

    /// Opens a queue pair, not connected, whose completions go to these queues of this device. Each must hold what all
    /// its queue pairs can have under way: an overrun would lose completions.
    ///
    /// # Errors
    /// [`RdmaError::Entries`], [`RdmaError::Capacity`], [`RdmaError::Exhausted`], no memory.
    pub fn open_qp(
        &self,
        config: QpConfig,
        send_cq: &CompletionQueue<H>,
        receive_cq: &CompletionQueue<H>,
    ) -> Result<Arc<QueuePair<H>>, RdmaError> {
        let (send_shift, receive_shift) = (self.shift(config.sends)?, self.shift(config.receives)?);
        let mut used = self.used.lock();
        let number = used.queue_pairs;
        if number >= self.capabilities.queue_pairs() {
            return Err(RdmaError::Exhausted("queue pairs", number.into()));
        }
        let mut promised = used.promised.clone();
        for (cq, requests) in [(send_cq, config.sends), (receive_cq, config.receives)] {
            let count = &mut promised[usize::from(cq.number())];
            *count = count.saturating_add(requests);
            if *count > cq.entries() {
                return Err(RdmaError::Capacity(*count, cq.entries()));
            }
        }
        let (regs, doorbells) = (self.regs.clone(), self.doorbells.clone());
        let pair = QueuePair::new(self.hal, number, (send_shift, receive_shift), regs, doorbells)?;
        let block = QP + u32::from(number) * QP_STRIDE;
        let (sends, receives) = pair.addresses();
        self.regs.write(qp::SEND_BASE.behind(block), sends);
        self.regs.write(qp::RECEIVE_BASE.behind(block), receives);
        let queues = QpQueues::new()
            .with_send_cq(send_cq.number())
            .with_receive_cq(receive_cq.number())
            .with_send_shift(send_shift)
            .with_receive_shift(receive_shift);
        self.regs.write(qp::QUEUES.behind(block), queues.into_bits());
        used.queue_pairs += 1;
        used.promised = promised;
        Ok(Arc::new(pair))
    }

    /// Turns the NIC off. Requests in flight end without a completion; the device touches no memory any more.
    pub fn shutdown(&self) {
        self.regs.write(reg::CONTROL, Control::new().into_bits());
        // The read waits for the write.
        self.regs.read(reg::CONTROL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Script;
    use hal::host::HostHal;

    #[test]
    fn a_device_that_does_not_get_ready_is_turned_off() {
        let (script, regs) = Script::new();
        script.answer(reg::ID.offset(), &[reg::IDENTITY.into()]);
        let capabilities = Capabilities::new().with_event_queues(1).with_entries_shift_max(10);
        script.answer(reg::CAPABILITIES.offset(), &[capabilities.into_bits()]);
        let config = DeviceConfig { event_queues: 1, ready_timeout_ns: 5_000 };
        let (_, doorbells) = Script::new();
        let device = Device::new(HostHal::manual(1), regs, doorbells, config);
        assert_eq!(device.err(), Some(RdmaError::Timeout(5_000)));
        let controls = script.writes().into_iter().filter(|(offset, ..)| *offset == reg::CONTROL.offset());
        assert_eq!(controls.map(|(.., value)| value).collect::<Vec<_>>(), [0, 1, 0]);
        assert!(script.is_pushed(), "it may be on when its memory goes back");
    }

    #[test]
    fn a_device_whose_queues_can_have_no_size_is_refused() {
        for shift in [0, 3, 17, 31] {
            let (script, regs) = Script::new();
            script.answer(reg::ID.offset(), &[reg::IDENTITY.into()]);
            let capabilities = Capabilities::new().with_event_queues(1).with_entries_shift_max(shift);
            script.answer(reg::CAPABILITIES.offset(), &[capabilities.into_bits()]);
            let config = DeviceConfig { event_queues: 1, ready_timeout_ns: 1000 };
            let (_, doorbells) = Script::new();
            let device = Device::new(HostHal::manual(1), regs, doorbells, config);
            assert_eq!(device.err(), Some(RdmaError::EntriesShift(shift)));
        }
    }
}
