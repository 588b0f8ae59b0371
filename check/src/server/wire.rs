//! Two functions on one level-triggered pin: it stays asserted until both have been served.

use hal::Regs as _;
use machine::Regs;
use machine::fabric::ioapic::{PIN, pin_arg};
use machine::model::{Model, ModelId};
use machine::world::World;

/// Functions that want service, a bit each; a write sets.
const RAISE: u32 = 0;
/// The same; a write clears.
const SERVE: u32 = 4;

/// The functions.
pub struct Wire {
    ioapic: ModelId,
    pin: u8,
    status: u32,
}

impl Wire {
    /// Quiet functions on `pin` of `ioapic`.
    pub fn new(ioapic: ModelId, pin: u8) -> Self {
        Self { ioapic, pin, status: 0 }
    }
}

impl Model for Wire {
    fn name(&self) -> &str {
        "wire"
    }
    fn event(&mut self, _: &mut World<'_>, _code: u32, _arg: u64) {}
    fn read(&mut self, _: &mut World<'_>, _region: u8, _offset: u32, _width: u8) -> u64 {
        self.status.into()
    }
    fn write(&mut self, world: &mut World<'_>, _region: u8, offset: u32, _width: u8, value: u64) {
        match offset {
            RAISE => self.status |= value as u32,
            _ => self.status &= !(value as u32),
        }
        world.schedule_for(self.ioapic, world.now(), PIN, pin_arg(self.pin, self.status != 0));
    }
    fn as_any(&mut self) -> &mut dyn core::any::Any {
        self
    }
}

/// Their driver.
#[derive(Clone, Copy)]
pub struct WirePort(pub Regs);

impl WirePort {
    /// Function `function` wants service.
    pub fn raise(&self, function: u32) {
        self.0.write32(RAISE, 1 << function);
    }

    /// Serves the function, if it wants service.
    pub fn serve(&self, function: u32) -> bool {
        let wants = self.0.read32(RAISE) & (1 << function) != 0;
        if wants {
            self.0.write32(SERVE, 1 << function);
            // The read waits for the write: the pin is released before the end of the interrupt.
            self.0.read32(RAISE);
        }
        wants
    }
}
