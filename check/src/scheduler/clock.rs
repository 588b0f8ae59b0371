//! A device that interrupts a CPU now and then.

use machine::model::Model;
use machine::time::Ps;
use machine::world::World;

/// The vector of its interrupts, on each CPU.
pub(super) const VECTOR: u8 = 0x50;
/// It begins.
pub(super) const BEGIN: u32 = 0;

/// The device.
pub(super) struct Clock {
    pub(super) cpus: u32,
    pub(super) period: Ps,
}

impl Model for Clock {
    fn name(&self) -> &str {
        "clock"
    }

    fn event(&mut self, world: &mut World<'_>, code: u32, _arg: u64) {
        let cpu = (world.random() % u64::from(self.cpus)) as u32;
        world.interrupt(cpu, VECTOR, false);
        let next = world.now() + world.jitter(self.period);
        world.schedule(next, code, 0);
    }

    fn read(&mut self, _world: &mut World<'_>, _region: u8, _offset: u32, _width_bytes: u8) -> u64 {
        0
    }

    fn write(&mut self, _world: &mut World<'_>, _region: u8, _offset: u32, _width_bytes: u8, _value: u64) {}

    fn as_any(&mut self) -> &mut dyn core::any::Any {
        self
    }
}
