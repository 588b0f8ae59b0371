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

use crate::model::{Model, ModelId, Upstream};
use crate::msix::Msix;
use crate::world::World;
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

/// Cumulative counts, in the order of [`Model::counters`].
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
    /// The bus above it: its root port.
    port: ModelId,
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
    msix: Msix,
    counters: Counters,
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
        Ok(Self {
            port,
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
            msix: Msix::new(config.event_queues),
            counters: Counters::default(),
            config,
        })
    }

    /// Cumulative counts.
    pub fn counts(&self) -> Counters {
        self.counters
    }

    /// What it does from now on with a moderation that it is told; it was valid in a [`Config`].
    pub fn set_moderation_answer(&mut self, answer: ModerationAnswer) {
        self.config.moderation = answer;
    }

    /// An event queue's message: sent, or pending while its vector is masked (PCI, "Per-vector Masking and Function
    /// Masking").
    fn signal(&mut self, world: &mut World<'_>, vector: u16) {
        if !self.msix.is_enabled() {
            self.counters.msis_lost += 1;
        } else if self.msix.is_masked(vector) {
            self.msix.set_pending(vector);
            self.counters.msis_pended += 1;
        } else {
            self.send_message(world, vector);
        }
    }

    fn send_message(&mut self, world: &mut World<'_>, vector: u16) {
        self.counters.msis += 1;
        let (address, data) = self.msix.message(vector);
        world.upstream(self.port, Upstream::Message { requester: self.config.requester, address, data });
    }

    fn fault(&self, world: &mut World<'_>, kind: &'static str, text: String) {
        world.fault(kind, self.config.requester.into(), text);
    }

    fn read32(&mut self, world: &mut World<'_>, region: u8, offset: u32) -> u32 {
        match region {
            REGION_REGISTERS => self.register_read(offset),
            REGION_DOORBELLS => 0,
            REGION_MSIX => self.msix.read(offset),
            REGION_CONFIG => registers::FUNCTION.read(&self.msix, offset),
            _ => {
                self.fault(world, "read of a region that an RDMA NIC lacks", format!("region {region}"));
                u32::MAX
            }
        }
    }

    fn write32(&mut self, world: &mut World<'_>, region: u8, offset: u32, value: u32) {
        match region {
            REGION_REGISTERS => self.register_write(world, offset, value),
            REGION_DOORBELLS => self.doorbell(world, offset, value),
            REGION_MSIX => self.msix.write(offset, value),
            REGION_CONFIG => crate::pci::write(&mut self.msix, offset, value),
            _ => self.fault(world, "write to a region that an RDMA NIC lacks", format!("region {region}")),
        }
        while let Some(vector) = self.msix.take_unmasked_pending() {
            self.send_message(world, vector);
        }
    }
}

impl Model for Nic {
    fn name(&self) -> &str {
        &self.config.name
    }

    fn event(&mut self, world: &mut World<'_>, code: u32, arg: u64) {
        let (number, epoch) = (arg as u16, (arg >> 32) as u32);
        match code {
            code::SERVED => self.served(world, number, epoch),
            code::ARRIVES => self.arrives(world, arg),
            code::PERIOD => self.period_ends(world, number, epoch),
            code::PATIENCE => self.patience_ends(world, number, epoch),
            _ => self.fault(world, "event that an RDMA NIC does not know", format!("code {code}")),
        }
    }

    fn read(&mut self, world: &mut World<'_>, region: u8, offset: u32, width_bytes: u8) -> u64 {
        if !offset.is_multiple_of(4) || !matches!(width_bytes, 4 | 8) {
            self.fault(world, "unaligned read of an RDMA NIC", format!("{width_bytes} bytes at {offset:#x}"));
            return 0;
        }
        let low = self.read32(world, region, offset);
        let high = if width_bytes == 8 { self.read32(world, region, offset.wrapping_add(4)) } else { 0 };
        u64::from(low) | u64::from(high) << 32
    }

    /// Doorbells of different pages are independent of each other.
    fn write_order(&self, region: u8, offset: u32) -> u32 {
        if region == REGION_DOORBELLS { 4 + 4 * (offset / spec::rdma::registers::doorbell::PAGE_BYTES) } else { 0 }
    }

    fn write(&mut self, world: &mut World<'_>, region: u8, offset: u32, width_bytes: u8, value: u64) {
        let wide_doorbell = region == REGION_DOORBELLS && width_bytes != 4;
        if !offset.is_multiple_of(4) || !matches!(width_bytes, 4 | 8) || wide_doorbell {
            return self.fault(world, "unaligned write to an RDMA NIC", format!("{width_bytes} bytes at {offset:#x}"));
        }
        self.write32(world, region, offset, value as u32);
        if width_bytes == 8 {
            self.write32(world, region, offset.wrapping_add(4), (value >> 32) as u32);
        }
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let c = &self.counters;
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

    fn as_any(&mut self) -> &mut dyn core::any::Any {
        self
    }
}
