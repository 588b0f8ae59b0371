//! A Data Streaming Accelerator, down to its registers: Intel Data Streaming Accelerator Architecture Specification,
//! version 1.0 ("DSA"), and MSI-X as in the PCI Express Base Specification.
//!
//! | region | what |
//! |---|---|
//! | [`REGION_REGISTERS`] | BAR 0: registers, tables, the MSI-X table at 2000h and its pending bits at 3000h |
//! | [`REGION_PORTALS`] | BAR 2: four portals a queue |
//! | [`REGION_CONFIG`] | PCI configuration space with the MSI-X capability |
//!
//! **Portals.** The hardware takes a descriptor as one write of 64 bytes (MOVDIR64B). The machine's widest write has 64
//! bits: a portal gathers eight quadwords, and the one at byte 56 of a 64-byte block submits them.
//!
//! **Time.** An engine takes descriptors from its group's queues, round robin, one each [`Timing::service`]; their data
//! then pass the link, and when the last byte has passed memory changes, the completion record follows, and the message
//! if the descriptor asks for one: one for each descriptor, never merged here. The message goes the data's way, behind
//! them.
//!
//! **Operations**: No-op and Memory Fill. Absent: the others, batches, shared queues, PASID and ATS, block on fault,
//! interrupt message storage, priorities, read buffers, traffic classes, occupancy interrupts, performance counters,
//! halting.

mod command;
mod config;
mod engine;
mod portal;
mod registers;
mod tables;

pub use config::{Config, ConfigError, Data, Timing};

use crate::model::{AccessCosts, Model, ModelId, Upstream};
use crate::msix::Msix;

use crate::time::Ps;
use crate::world::World;
use command::Commands;
use engine::{Engine, Jobs};
use spec::dsa::registers::DeviceState;
use tables::{Group, Queue};

/// BAR 0: registers, tables, MSI-X.
pub const REGION_REGISTERS: u8 = 0;
/// BAR 2: portals.
pub const REGION_PORTALS: u8 = 1;
/// PCI configuration space.
pub const REGION_CONFIG: u8 = 2;

/// The device's own events.
mod code {
    /// The command has run. arg: 0.
    pub(super) const COMMAND: u32 = 0;
    /// An engine has served a descriptor. arg: the job's ticket.
    pub(super) const SERVED: u32 = 1;
    /// Its data may go. arg: ticket.
    pub(super) const READY: u32 = 2;
    /// Its data have passed the link. arg: ticket.
    pub(super) const PASSED: u32 = 3;
}

/// Cumulative counts, in the order of [`Model::counters`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Descriptors taken into a queue.
    pub submitted: u64,
    /// Descriptors refused at a portal.
    pub refused: u64,
    /// Descriptors that ended well.
    pub completed: u64,
    /// Descriptors that ended with an error.
    pub errors: u64,
    /// Descriptors abandoned by a command.
    pub abandoned: u64,
    /// Bytes filled.
    pub bytes: u64,
    /// Messages sent.
    pub msis: u64,
    /// Messages turned into a pending bit because the vector was masked.
    pub msis_pended: u64,
    /// Messages lost because MSI-X was off.
    pub msis_lost: u64,
    /// Engines' busy time, summed over engines.
    pub service_ps: u64,
    /// Time that descriptors waited in their queue, summed over descriptors.
    pub queue_wait_ps: u64,
}

/// The device.
pub struct Dsa {
    config: Config,
    /// The bus above it: its root port.
    port: ModelId,
    state: DeviceState,
    registers: registers::Registers,
    commands: Commands,
    groups: Box<[Group]>,
    queues: Box<[Queue]>,
    engines: Box<[Engine]>,
    jobs: Jobs,
    msix: Msix,
    counters: Counters,
}

impl Dsa {
    /// A device behind `port`, which takes its [`Upstream`] requests.
    ///
    /// # Errors
    /// [`ConfigError`] for a field that is out of range.
    pub fn new(port: ModelId, config: Config) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self {
            port,
            state: DeviceState::DISABLED,
            registers: registers::Registers::default(),
            commands: Commands::default(),
            groups: vec![Group::default(); config.groups.into()].into(),
            queues: (0..config.queues).map(|_| Queue::default()).collect(),
            engines: vec![Engine::default(); config.engines.into()].into(),
            jobs: Jobs::default(),
            msix: Msix::new(config.vectors),
            counters: Counters::default(),
            config,
        })
    }

    /// Cumulative counts.
    pub fn counts(&self) -> Counters {
        self.counters
    }

    /// Descriptors in queues and engines now.
    pub fn in_flight(&self) -> usize {
        self.jobs.len() + self.queues.iter().map(|queue| queue.waiting.len()).sum::<usize>()
    }

    /// A vector's message is due: sends it, or makes it pending while the vector is masked (PCI, "Per-vector Masking
    /// and Function Masking").
    fn signal(&mut self, world: &mut World<'_>, vector: u16) {
        if !self.msix.is_enabled() {
            self.counters.msis_lost += 1;
        } else if self.msix.is_masked(vector) {
            self.msix.set_pending(vector);
            self.counters.msis_pended += 1;
        } else {
            self.send(world, vector);
        }
    }

    fn send(&mut self, world: &mut World<'_>, vector: u16) {
        self.counters.msis += 1;
        let (address, data) = self.msix.message(vector);
        world.upstream(self.port, Upstream::Message { requester: self.config.requester, address, data });
    }

    /// After a change of masks: sends what has become possible.
    fn send_unmasked(&mut self, world: &mut World<'_>) {
        while let Some(vector) = self.msix.take_unmasked_pending() {
            self.send(world, vector);
        }
    }

    fn read32(&mut self, world: &mut World<'_>, region: u8, offset: u32) -> u32 {
        match region {
            REGION_REGISTERS => self.register_read(offset),
            // A portal reads as zeros: a submitter learns nothing there (DSA, "Portals").
            REGION_PORTALS => 0,
            REGION_CONFIG => registers::FUNCTION.read(&self.msix, offset),
            _ => {
                world.fault("read of a region that a DSA lacks", region.into(), format!("offset {offset:#x}"));
                u32::MAX
            }
        }
    }

    fn write32(&mut self, world: &mut World<'_>, region: u8, offset: u32, value: u32) {
        match region {
            REGION_REGISTERS => self.register_write(world, offset, value),
            REGION_CONFIG => crate::pci::write(&mut self.msix, offset, value),
            _ => {
                let text = format!("offset {offset:#x}, value {value:#x}");
                world.fault("write to a region that a DSA lacks", region.into(), text);
            }
        }
        self.send_unmasked(world);
    }
}

impl Model for Dsa {
    fn name(&self) -> &str {
        &self.config.name
    }

    fn event(&mut self, world: &mut World<'_>, code: u32, arg: u64) {
        match code {
            code::COMMAND => self.command_ends(world),
            code::SERVED => self.served(world, arg),
            code::READY => self.send_data(world, arg),
            code::PASSED => self.passed(world, arg),
            _ => world.fault("event that a DSA does not know", code.into(), format!("argument {arg:#x}")),
        }
    }

    fn read(&mut self, world: &mut World<'_>, region: u8, offset: u32, width_bytes: u8) -> u64 {
        if !offset.is_multiple_of(4) || !matches!(width_bytes, 4 | 8) {
            world.fault("unaligned read of a DSA", offset.into(), format!("{width_bytes} bytes"));
            return 0;
        }
        let low = self.read32(world, region, offset);
        let high = if width_bytes == 8 { self.read32(world, region, offset.wrapping_add(4)) } else { 0 };
        u64::from(low) | u64::from(high) << 32
    }

    /// Queues' portals are independent of each other and of the registers.
    fn write_order(&self, region: u8, offset: u32) -> u32 {
        if region == REGION_PORTALS { 4 + 4 * (offset / (4 * spec::dsa::PORTAL_BYTES)) } else { 0 }
    }

    /// The eighth quadword of a descriptor stands for the MOVDIR64B that all eight are on hardware.
    fn access_costs(&self, region: u8, offset: u32) -> Option<AccessCosts> {
        let portal_write = self.config.portal_write.filter(|_| region == REGION_PORTALS)?;
        let write = if offset % 64 == 56 { portal_write } else { Ps(0) };
        // A portal is not read on the data path.
        Some(AccessCosts { read: portal_write, write })
    }

    fn write(&mut self, world: &mut World<'_>, region: u8, offset: u32, width_bytes: u8, value: u64) {
        if region == REGION_PORTALS {
            return self.portal_write(world, offset, width_bytes, value);
        }
        if !offset.is_multiple_of(4) || !matches!(width_bytes, 4 | 8) {
            world.fault("unaligned write to a DSA", offset.into(), format!("{width_bytes} bytes"));
            return;
        }
        self.write32(world, region, offset, value as u32);
        if width_bytes == 8 {
            self.write32(world, region, offset.wrapping_add(4), (value >> 32) as u32);
        }
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let c = &self.counters;
        vec![
            ("submitted", c.submitted),
            ("refused", c.refused),
            ("completed", c.completed),
            ("errors", c.errors),
            ("abandoned", c.abandoned),
            ("bytes", c.bytes),
            ("msis", c.msis),
            ("msis_pended", c.msis_pended),
            ("msis_lost", c.msis_lost),
            ("service_ps", c.service_ps),
            ("queue_wait_ps", c.queue_wait_ps),
        ]
    }

    fn as_any(&mut self) -> &mut dyn core::any::Any {
        self
    }
}
