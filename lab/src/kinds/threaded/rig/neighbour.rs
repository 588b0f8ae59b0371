//! Another device: its wire interrupts the bench's CPU now and again.

use machine::gic::{PULSE, wire_arg};
use machine::model::{Model, ModelId};
use machine::time::Ps;
use machine::world::World;

/// The events: one starts the device, each later one raises an interrupt.
pub(super) const BEGIN: u32 = 0;

/// A device with an edge-triggered wire to a GIC.
pub(super) struct Neighbour {
    pub(super) gic: ModelId,
    pub(super) intid: u32,
    /// Mean time between two interrupts.
    pub(super) every: Ps,
}

impl Model for Neighbour {
    fn name(&self) -> &str {
        "neighbour"
    }

    /// The next interrupt comes after half to one and a half of the mean time.
    fn event(&mut self, world: &mut World<'_>, _code: u32, _arg: u64) {
        let at = world.now() + Ps(self.every.0 / 2 + world.random() % self.every.0.max(1));
        world.schedule_for(self.gic, at, PULSE, wire_arg(self.intid, 0, true));
        world.schedule(at, BEGIN, 0);
    }

    fn read(&mut self, _: &mut World<'_>, _: u8, _: u32, _: u8) -> u64 {
        0
    }

    fn write(&mut self, _: &mut World<'_>, _: u8, _: u32, _: u8, _: u64) {}

    fn as_any(&mut self) -> &mut dyn core::any::Any {
        self
    }
}
