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
//! if the descriptor asks for one: one for each descriptor, never merged here. The order is the device's own: a message follows the data and the record
//! of its own descriptor, and nothing orders it against other descriptors. The device is a root-complex integrated
//! endpoint, so no root port lies on its way ([`crate::fabric::integrated`]).
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

pub use command::CommandTrouble;
pub use config::{Config, ConfigError, Data, Timing};

use crate::model::{AccessCosts, ModelId};
use crate::pci::{Function, MessageCounts, Place, Shell};
use crate::time::Ps;
use crate::world::World;
use command::Commands;
use core::ops::Range;
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
    /// The command's time has passed. arg: 0.
    pub(super) const COMMAND: u32 = 0;
    /// An engine has served a descriptor. arg: the job's ticket.
    pub(super) const SERVED: u32 = 1;
    /// The job's data may go on the link. arg: ticket.
    pub(super) const READY: u32 = 2;
    /// The job's data have passed the link. arg: ticket.
    pub(super) const PASSED: u32 = 3;
}

/// Cumulative counts, in the order of [`Function::counters`].
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
    pci: Shell,
    state: DeviceState,
    registers: registers::Registers,
    commands: Commands,
    groups: Box<[Group]>,
    queues: Box<[Queue]>,
    engines: Box<[Engine]>,
    jobs: Jobs,
    counters: Counters,
}

impl Dsa {
    /// A device whose way into the root complex is `port`, which takes its [`crate::model::Upstream`] requests.
    ///
    /// # Errors
    /// [`ConfigError`] for a field that is out of range.
    pub fn new(port: ModelId, config: Config) -> Result<Self, ConfigError> {
        config.validate()?;
        let place = Place { name: config.name.clone(), requester: config.requester, port };
        Ok(Self {
            pci: Shell::new(place, &registers::identity(), config.vectors),
            state: DeviceState::DISABLED,
            registers: registers::Registers::default(),
            commands: Commands::default(),
            groups: vec![Group::default(); config.groups.into()].into(),
            queues: (0..config.queues).map(|_| Queue::default()).collect(),
            engines: vec![Engine::default(); config.engines.into()].into(),
            jobs: Jobs::default(),
            counters: Counters::default(),
            config,
        })
    }

    /// Cumulative counts.
    pub fn counts(&self) -> Counters {
        let MessageCounts { sent, pended, lost } = self.pci.message_counts();
        Counters { msis: sent, msis_pended: pended, msis_lost: lost, ..self.counters }
    }

    /// A register or a word of a table in BAR 0, as it is.
    pub fn held(&self, offset: u32) -> u32 {
        self.register_read(offset)
    }

    /// Address, data and mask of a vector's MSI-X table entry; none of a vector that the device lacks.
    pub fn msix_entry(&self, vector: u16) -> Option<(u64, u32, bool)> {
        self.pci.entry(vector)
    }

    /// Commands fail or are late from now on.
    pub fn set_command_trouble(&mut self, trouble: CommandTrouble) {
        self.commands.trouble = trouble;
    }

    /// Descriptors in queues and engines now.
    pub fn in_flight(&self) -> usize {
        self.jobs.len() + self.queues.iter().map(|queue| queue.waiting.len()).sum::<usize>()
    }
}

impl Function for Dsa {
    fn shell(&self) -> &Shell {
        &self.pci
    }

    fn shell_mut(&mut self) -> &mut Shell {
        &mut self.pci
    }

    fn on_event(&mut self, world: &mut World<'_>, code: u32, arg: u64) {
        match code {
            code::COMMAND => self.command_ends(world),
            code::SERVED => self.served(world, arg),
            code::READY => self.send_data(world, arg),
            code::PASSED => self.passed(world, arg),
            _ => world.fault("event that a DSA does not know", code.into(), format!("argument {arg:#x}")),
        }
    }

    /// A portal reads as zeros: a submitter gets no information from it (DSA, "Portals").
    fn read_bar(&mut self, _world: &mut World<'_>, region: u8, offset: u32, _width_bytes: u8) -> u64 {
        if region == REGION_REGISTERS { self.register_read(offset).into() } else { 0 }
    }

    fn write_bar(&mut self, world: &mut World<'_>, region: u8, offset: u32, _width_bytes: u8, value: u64) {
        match region {
            REGION_PORTALS => self.portal_write(world, offset, value),
            _ => self.register_write(world, offset, value as u32),
        }
    }

    /// The portals of a queue are independent of other queues' portals and of the registers.
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

    /// Records and destinations of what is in flight.
    fn uses(&self, range: &Range<u64>) -> Option<u64> {
        let waiting = self.queues.iter().flat_map(|queue| &queue.waiting).map(|(descriptor, _)| descriptor);
        let all = waiting.chain(self.jobs.descriptors());
        let mut used = all.flat_map(|descriptor| [descriptor.record, descriptor.destination]);
        used.find(|address| range.contains(address))
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let c = self.counts();
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
}
