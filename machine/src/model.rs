//! What a device or controller model is.

use crate::time::Ps;
use crate::world::World;

/// The number under which a model stands in its machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ModelId(pub u32);

/// What a model sends towards memory and CPUs: from a drive to its root port, from there to the IOMMU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Upstream {
    /// A posted write into the interrupt address range, in order behind the requester's earlier DMA.
    Message {
        /// PCI requester id, as the link reports it.
        requester: u16,
        /// 0xFEEx_xxxx.
        address: u64,
        /// The payload.
        data: u32,
    },
    /// Data that occupies the link for its length. When its last byte has passed, the bus schedules
    /// `event(code, arg)` for `model`, which then reads or writes memory.
    Transfer {
        /// Who is told.
        model: ModelId,
        /// Payload bytes.
        bytes: u32,
        /// The requester's own event code.
        code: u32,
        /// The requester's own argument.
        arg: u64,
    },
}

/// What an access to a register costs the CPU that makes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccessCosts {
    /// Until the value is back.
    pub read: Ps,
    /// Until the CPU goes on; the write itself is posted.
    pub write: Ps,
}

/// A device or controller: registers on one side, events on the other.
///
/// Models are called by the machine, one at a time, and never call coroutine code: what they cause happens through
/// [`World`], as an event at a later time, or at this one with a later sequence number.
pub trait Model {
    /// Shown in traces and faults.
    fn name(&self) -> &str;

    /// An event that this model scheduled, or that a bus scheduled for it. `code` and `arg` are its own.
    fn event(&mut self, world: &mut World<'_>, code: u32, arg: u64);

    /// A CPU reads `width_bytes` (1, 2, 4 or 8) of a register of `region`, the model's own numbering from 0.
    fn read(&mut self, world: &mut World<'_>, region: u8, offset: u32, width_bytes: u8) -> u64;

    /// A CPU's write arrives. `value` is zero-extended.
    fn write(&mut self, world: &mut World<'_>, region: u8, offset: u32, width_bytes: u8, value: u64);

    /// Which registers' posted writes stay in order among themselves, whatever CPUs they come from: those of one number.
    /// All of them, unless the model has registers that software writes independently of each other.
    fn write_order(&self, _region: u8, _offset: u32) -> u32 {
        0
    }

    /// Whether a hypervisor emulates the registers: a write is a point, as a read is, and has taken effect before the CPU
    /// that made it goes on. It is never late ([`crate::unrest::Kind::LateWrite`]).
    fn is_trapped(&self) -> bool {
        false
    }

    /// What an access to this register costs, where it differs from the platform's `register_read` and
    /// `register_write`: a portal that takes 64 bytes at once, a register behind a slow bus, one that a hypervisor traps.
    fn access_costs(&self, _region: u8, _offset: u32) -> Option<AccessCosts> {
        None
    }

    /// A model below asks for a transfer or sends a message. Only buses and IOMMUs serve this; elsewhere it is a
    /// recorded fault.
    fn upstream(&mut self, world: &mut World<'_>, from: ModelId, request: Upstream) {
        world.fault("upstream request to a model that is no bus", from.0.into(), format!("{request:?}"));
    }

    /// A CPU ended a level-triggered interrupt and its EOI is broadcast. Only I/O APICs care.
    fn eoi_broadcast(&mut self, _world: &mut World<'_>, _vector: u8) {}

    /// Cumulative counters for reports, in a fixed order: (name, value). Times are in picoseconds and end in `_ps`.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// For the laboratory's own questions of a concrete model.
    fn as_any(&mut self) -> &mut dyn core::any::Any;
}
