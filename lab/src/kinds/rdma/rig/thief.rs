//! A thief of CPU time: a hypervisor, or firmware, that takes a CPU away for a while.

use irq::Vector;
use machine::model::Model;
use machine::time::Ps;
use machine::world::World;

/// The event that starts the thief.
pub(super) const BEGIN: u32 = 0;
/// The event of a theft.
const STRIKE: u32 = 1;

/// Duration of a theft.
pub(super) const THEFT_NS: u64 = 1_000_000;

/// Raises a vector at one CPU. The vector's handler keeps the CPU for [`THEFT_NS`].
pub(super) struct Thief {
    cpu: u32,
    vector: Vector,
    every: Ps,
}

impl Thief {
    pub(super) fn new(cpu: u32, vector: Vector, every: Ps) -> Self {
        Self { cpu, vector, every }
    }

    /// The next theft comes after half to one and a half of the mean time.
    fn plan(&self, world: &mut World<'_>) {
        let wait = Ps(self.every.0 / 2 + world.random() % self.every.0.max(1));
        world.schedule(world.now() + wait, STRIKE, 0);
    }
}

impl Model for Thief {
    fn name(&self) -> &str {
        "thief"
    }

    fn event(&mut self, world: &mut World<'_>, code: u32, _arg: u64) {
        if code == STRIKE {
            // Edge-triggered. APIC ids are CPU numbers.
            world.interrupt(self.cpu, self.vector.0, false);
        }
        self.plan(world);
    }

    fn read(&mut self, _: &mut World<'_>, _: u8, _: u32, _: u8) -> u64 {
        0
    }

    fn write(&mut self, _: &mut World<'_>, _: u8, _: u32, _: u8, _: u64) {}

    fn as_any(&mut self) -> &mut dyn core::any::Any {
        self
    }
}
