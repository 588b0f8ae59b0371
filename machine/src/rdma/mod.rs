//! The RDMA NIC of [`spec::rdma`], down to its registers, and the wire between two of them.
//!
//! | region | what |
//! |---|---|
//! | [`REGION_REGISTERS`] | registers |
//! | [`REGION_DOORBELLS`] | doorbells, a page an object |
//! | [`REGION_MSIX`] | MSI-X table, pending bits at 8000h |
//! | [`REGION_CONFIG`] | PCI configuration space with the MSI-X capability |
//!
//! **Time.** One engine takes send requests from the queue pairs, round robin, one each [`Timing::service`]; their bytes
//! then pass the wire one after the other, and arrive [`Timing::latency`] later. Arrivals cost the receiver nothing but
//! that; an acknowledgement comes back after the same latency. Both hosts' memory is that of the one machine, and a NIC
//! reaches all of it: regions protect one end from the other, not the host from its own NIC.
//!
//! Absent: loss on the wire and so retransmission, congestion, PCI transfers' own time.

mod completion;
mod config;
mod objects;
mod receive;
mod registers;
mod send;
mod wire;

pub use config::{Config, ConfigError, ModerationAnswer, Timing};
pub use wire::Wire;

use crate::model::ModelId;
use crate::pci::{Function, MessageCounts, Place, Shell};
use crate::world::World;
use core::ops::Range;
use objects::{CompletionQueue, EventQueue, MemoryRegion, QueuePair};
use std::collections::VecDeque;

/// Registers.
pub const REGION_REGISTERS: u8 = 0;
/// Doorbells.
pub const REGION_DOORBELLS: u8 = 1;
/// MSI-X table and pending bits.
pub const REGION_MSIX: u8 = 2;
/// PCI configuration space.
pub const REGION_CONFIG: u8 = 3;

/// The device's own events.
mod code {
    /// The engine has served a send request. arg: queue pair, and its epoch above bit 32.
    pub(super) const SERVED: u32 = 0;
    /// A packet arrives. arg: its ticket on the wire.
    pub(super) const ARRIVES: u32 = 1;
    /// A completion queue's first new entry is as old as its period. arg: queue, and its timer above bit 32.
    pub(super) const PERIOD: u32 = 2;
    /// Patience with a queue pair without receives ends. arg: queue pair, and its patience above bit 32.
    pub(super) const PATIENCE: u32 = 3;
}

/// Cumulative counts, in the order of [`Function::counters`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Send requests taken.
    pub requests: u64,
    /// Bytes that left.
    pub bytes: u64,
    /// Completion queue entries written.
    pub completions: u64,
    /// Events of completion queues.
    pub events: u64,
    /// Of them, those that a period ended.
    pub period_events: u64,
    /// Messages sent.
    pub msis: u64,
    /// Messages turned into a pending bit because the vector was masked.
    pub msis_pended: u64,
    /// Messages lost because MSI-X was off.
    pub msis_lost: u64,
    /// Messages that had to wait for a receive.
    pub waited: u64,
    /// Queue pairs that stopped.
    pub stopped: u64,
    /// Completions and events that found no room.
    pub overruns: u64,
    /// Changes of a moderation that were rounded or refused.
    pub moderation_changed: u64,
}

/// The device.
pub struct Nic {
    config: Config,
    pci: Shell,
    wire: Wire,
    enabled: bool,
    regions: Box<[MemoryRegion]>,
    event_queues: Box<[EventQueue]>,
    completion_queues: Box<[CompletionQueue]>,
    queue_pairs: Box<[QueuePair]>,
    /// Queue pairs with requests for the engine, each once.
    ready: VecDeque<u16>,
    serving: bool,
    link_free: crate::time::Ps,
    byte_time_q20: u64,
    counters: Counters,
    /// A fault: it treats moderation so, and not as configured.
    moderation_fault: Option<ModerationAnswer>,
}

impl Nic {
    /// A device with the number `id` behind `port`, at an end of `wire`.
    ///
    /// # Errors
    /// [`ConfigError`] for a field that is out of range, or a wire that has two ends already.
    pub fn new(id: ModelId, port: ModelId, wire: &Wire, config: Config) -> Result<Self, ConfigError> {
        config.validate()?;
        wire.attach(id)?;
        let byte_time_q20 = (1_000_000_000_000_u128 << 20) / u128::from(config.timing.link_bytes_per_second);
        let place = Place { name: config.name.clone(), requester: config.requester, port };
        Ok(Self {
            pci: Shell::new(place, &registers::identity(), config.event_queues),
            wire: wire.clone(),
            enabled: false,
            regions: vec![MemoryRegion::default(); config.memory_regions.into()].into(),
            event_queues: vec![EventQueue::default(); config.event_queues.into()].into(),
            completion_queues: vec![CompletionQueue::default(); config.completion_queues.into()].into(),
            queue_pairs: (0..config.queue_pairs).map(|_| QueuePair::default()).collect(),
            ready: VecDeque::new(),
            serving: false,
            link_free: crate::time::Ps(0),
            byte_time_q20: u64::try_from(byte_time_q20).unwrap_or(u64::MAX),
            counters: Counters::default(),
            moderation_fault: None,
            config,
        })
    }

    /// Cumulative counts.
    pub fn counts(&self) -> Counters {
        let MessageCounts { sent, pended, lost } = self.pci.message_counts();
        Counters { msis: sent, msis_pended: pended, msis_lost: lost, ..self.counters }
    }

    /// Sets how it treats moderation from now on. The value was valid in a [`Config`].
    pub fn set_moderation_answer(&mut self, answer: ModerationAnswer) {
        self.config.moderation = answer;
    }

    /// As a fault: it treats moderation so for now; none: as configured again. An answer that differs is told
    /// ([`crate::observe::Fact::Struck`]).
    pub fn set_moderation_fault(&mut self, answer: Option<ModerationAnswer>) {
        self.moderation_fault = answer;
    }

    fn fault(&self, world: &mut World<'_>, kind: &'static str, text: String) {
        self.pci.fault(world, kind, text);
    }
}

impl Function for Nic {
    fn shell(&self) -> &Shell {
        &self.pci
    }

    fn shell_mut(&mut self) -> &mut Shell {
        &mut self.pci
    }

    fn on_event(&mut self, world: &mut World<'_>, code: u32, arg: u64) {
        let (number, epoch) = (arg as u16, (arg >> 32) as u32);
        match code {
            code::SERVED => self.served(world, number, epoch),
            code::ARRIVES => self.arrives(world, arg),
            code::PERIOD => self.period_ends(world, number, epoch),
            code::PATIENCE => self.patience_ends(world, number, epoch),
            _ => self.fault(world, "event that an RDMA NIC does not know", format!("code {code}")),
        }
    }

    fn read_bar(&mut self, _world: &mut World<'_>, region: u8, offset: u32, _width_bytes: u8) -> u64 {
        if region == REGION_REGISTERS { self.register_read(offset).into() } else { 0 }
    }

    fn write_bar(&mut self, world: &mut World<'_>, region: u8, offset: u32, _width_bytes: u8, value: u64) {
        match region {
            REGION_REGISTERS => self.register_write(world, offset, value as u32),
            REGION_DOORBELLS => self.doorbell(world, offset, value as u32),
            _ => {}
        }
    }

    /// Doorbells of different pages are independent of each other.
    fn write_order(&self, region: u8, offset: u32) -> u32 {
        if region == REGION_DOORBELLS { 4 + 4 * (offset / spec::rdma::registers::doorbell::PAGE_BYTES) } else { 0 }
    }

    fn uses(&self, range: &Range<u64>) -> Option<u64> {
        let events = self.event_queues.iter().filter(|queue| queue.control.enable()).map(|queue| queue.base);
        let completions = self.completion_queues.iter().filter(|queue| queue.control.enable());
        let pairs = self.queue_pairs.iter().filter(|pair| pair.runs());
        let pairs = pairs.flat_map(|pair| [pair.send_base, pair.receive_base]);
        let mut all = events.chain(completions.flat_map(|queue| [queue.base, queue.record])).chain(pairs);
        all.find(|address| self.enabled && range.contains(address))
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let c = self.counts();
        vec![
            ("requests", c.requests),
            ("bytes", c.bytes),
            ("completions", c.completions),
            ("events", c.events),
            ("period_events", c.period_events),
            ("msis", c.msis),
            ("msis_pended", c.msis_pended),
            ("msis_lost", c.msis_lost),
            ("waited", c.waited),
            ("stopped", c.stopped),
            ("overruns", c.overruns),
            ("moderation_changed", c.moderation_changed),
        ]
    }
}
