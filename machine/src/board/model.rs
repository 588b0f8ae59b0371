//! The interface of a device or controller model.

pub use crate::event::ModelId;

use super::world::World;
use crate::time::Ps;
use core::ops::Range;

/// A request that a model sends towards memory and CPUs: from a drive to its root port, and from there to the IOMMU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Upstream {
    /// A posted write into the interrupt address range. It stays in order behind the requester's earlier DMA.
    Message {
        /// PCI requester id, as the link reports it.
        requester: u16,
        /// Address of the form 0xFEEx_xxxx.
        address: u64,
        /// The payload.
        data: u32,
    },
    /// Data that occupies the link according to its length. When the last byte has passed, the bus schedules
    /// `event(code, arg)` for `model`, which then reads or writes memory.
    Transfer {
        /// The model that gets the event.
        model: ModelId,
        /// PCI requester id, as the link reports it.
        requester: u16,
        /// The requests that carry the data.
        traffic: Traffic,
        /// Payload bytes.
        bytes: u32,
        /// The requester's own event code.
        code: u32,
        /// The requester's own argument.
        arg: u64,
    },
}

/// The requests that carry a transfer's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Traffic {
    /// Posted writes to memory.
    Write {
        /// The writes carry the Relaxed Ordering attribute (PCI Express Base Specification, "Attributes Field"). What
        /// the device writes when the transfer has ended, such as a completion entry, carries no attribute.
        relaxed: bool,
    },
    /// Read requests; their completions bring the data, by the link's other direction.
    Read,
}

/// Cost of a register access for the CPU that makes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccessCosts {
    /// Time until the value is back.
    pub read: Ps,
    /// Time until the CPU continues; the write itself is posted.
    pub write: Ps,
}

/// A device or controller: registers on one side, events on the other.
///
/// The machine calls models one at a time, and models never call coroutine code. Everything that a model causes
/// happens through [`World`] as an event: at a later time, or at the same time with a later sequence number.
pub trait Model {
    /// Name in traces and faults.
    fn name(&self) -> &str;

    /// An event that this model scheduled, or that a bus scheduled for it. `code` and `arg` are its own.
    fn event(&mut self, world: &mut World<'_>, code: u32, arg: u64);

    /// A CPU reads `width_bytes` (1, 2, 4 or 8) of a register of `region`, the model's own numbering from 0.
    fn read(&mut self, world: &mut World<'_>, region: u8, offset: u32, width_bytes: u8) -> u64;

    /// A CPU's write arrives. `value` is zero-extended.
    fn write(&mut self, world: &mut World<'_>, region: u8, offset: u32, width_bytes: u8, value: u64);

    /// Ordering class of a register: posted writes within a class stay in order, whatever CPUs they come from.
    /// One class for all registers, unless the model has registers that software writes independently of each other.
    fn write_order(&self, _region: u8, _offset: u32) -> u32 {
        0
    }

    /// True if a hypervisor emulates the registers. A write is then a point of the seam, as a read is, and takes
    /// effect before the CPU continues. Such a write is never late ([`crate::unrest::Kind::LateWrite`]).
    fn is_trapped(&self) -> bool {
        false
    }

    /// True if writes to this unposted region may be acknowledged before they arrive (Arm ARM, "Device memory": Early
    /// Write Acknowledgement). They are late only if [`crate::unrest::Kind::LateWrite`] strikes; a read pushes them.
    fn acknowledges_early(&self, _region: u8) -> bool {
        false
    }

    /// True for a function behind PCI Express: a posted write to it may wait for credits
    /// ([`crate::unrest::Kind::FarWrite`]).
    fn is_far(&self) -> bool {
        false
    }

    /// Cost of an access to this register, if it differs from the platform's `register_read` and `register_write`.
    /// Examples: a portal that takes 64 bytes at once, a register behind a slow bus, a register that a hypervisor
    /// traps.
    fn access_costs(&self, _region: u8, _offset: u32) -> Option<AccessCosts> {
        None
    }

    /// A model below asks for a transfer or sends a message. Only buses and IOMMUs implement this; for other models
    /// the call is recorded as a fault.
    fn upstream(&mut self, world: &mut World<'_>, from: ModelId, request: Upstream) {
        world.fault("upstream request to a model that is no bus", from.0.into(), format!("{request:?}"));
    }

    /// A CPU ended a level-triggered interrupt and its EOI is broadcast. Only I/O APICs use this.
    fn eoi_broadcast(&mut self, _world: &mut World<'_>, _vector: u8) {}

    /// An address of `range` that the model uses by itself: a queue that exists, a table that is in use.
    fn uses(&self, _range: &Range<u64>) -> Option<u64> {
        None
    }

    /// A driver gives back the memory of `range`. Returns an address there that the model still uses.
    fn given_back(&mut self, range: &Range<u64>) -> Option<u64> {
        self.uses(range)
    }

    /// Cumulative counters for reports, in a fixed order: (name, value). Times are in picoseconds and end in `_ps`.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Lets the laboratory query the concrete model type.
    fn as_any(&mut self) -> &mut dyn core::any::Any;
}
