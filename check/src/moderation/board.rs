//! A board of small devices that produce items on request. Each has an interrupt that it can gather items for. Arming
//! the interrupt covers later items only: items produced before raise none, so the driver must look after arming.

use hal::Regs as _;
use irq::moderation::Setting;
use machine::Regs;
use machine::gic::{PULSE, wire_arg};
use machine::model::{Model, ModelId};
use machine::observe::Fact;
use machine::rdma::ModerationAnswer;
use machine::time::Ps;
use machine::world::World;

/// Registers of a device.
const STRIDE: u32 = 0x40;
/// A write makes the device produce items: their number in bits 63:32, the distance between them in ns in bits 31:0.
/// The first comes after one such distance.
const ASK: u32 = 0x00;
/// A read returns the number of items produced.
const PRODUCED: u32 = 0x08;
/// A write of 1 arms its interrupt, of 0 disarms it.
const ARM: u32 = 0x10;
/// The moderation: items in bits 31:0, µs in bits 63:32. A read returns the present one, or [`REFUSED`] if the device
/// did not take the last.
const MODERATION: u32 = 0x18;
const REFUSED: u64 = 1 << 31;

/// Event: an item is produced. arg: device, the time to the next one above bit 8, items after this one above bit 40.
const PRODUCE: u32 = 0;
/// Event: the first new item is as old as its period. arg: device, timer above bit 8.
const PERIOD: u32 = 1;

#[derive(Default)]
struct Device {
    produced: u64,
    armed: bool,
    /// Items since it was armed.
    new: u32,
    /// Items, and µs.
    moderation: (u32, u32),
    refused: bool,
    timer: u64,
}

/// The board.
pub(super) struct Board {
    gic: ModelId,
    /// The wire of the first device.
    intid: u32,
    devices: Vec<Device>,
    answer: ModerationAnswer,
    /// A fault: it answers so.
    fault: Option<ModerationAnswer>,
}

/// The moderation of a device that has `old` and is told another, and whether it refuses.
fn answered(how: ModerationAnswer, old: (u32, u32), (items, us): (u32, u32)) -> ((u32, u32), bool) {
    match how {
        ModerationAnswer::Exact => ((items, us), false),
        ModerationAnswer::Rounds { count, period_us } => {
            ((items.next_multiple_of(count.into()), us.next_multiple_of(period_us.into())), false)
        }
        ModerationAnswer::Refuses => (old, true),
    }
}

impl Board {
    pub(super) fn new(gic: ModelId, intid: u32, devices: u32) -> Self {
        let devices = (0..devices).map(|_| Device::default()).collect();
        Self { gic, intid, devices, answer: ModerationAnswer::Exact, fault: None }
    }

    /// Sets how the device answers a new moderation from now on.
    pub(super) fn set_answer(&mut self, answer: ModerationAnswer) {
        self.answer = answer;
    }

    /// As a fault: it answers so for now; none: as before.
    pub(super) fn set_fault(&mut self, answer: Option<ModerationAnswer>) {
        self.fault = answer;
    }

    fn produce(&mut self, world: &mut World<'_>, arg: u64) {
        let (index, gap_ns, more) = (arg & 0xff, arg >> 8 & 0xffff_ffff, arg >> 40);
        let device = &mut self.devices[index as usize];
        device.produced += 1;
        device.new += u32::from(device.armed);
        if more > 0 {
            let gap = world.jitter(Ps::from_ns(gap_ns));
            world.schedule(world.now() + gap, PRODUCE, index | gap_ns << 8 | (more - 1) << 40);
        }
        self.tell(world, index as usize);
    }

    /// Interrupts if it is armed and has gathered enough; otherwise arranges an event that will.
    fn tell(&mut self, world: &mut World<'_>, index: usize) {
        let device = &mut self.devices[index];
        if !device.armed || device.new == 0 {
            return;
        }
        let (items, us) = device.moderation;
        if items <= 1 || us == 0 || device.new >= items {
            device.armed = false;
            let wire = wire_arg(self.intid + index as u32, 0, true);
            world.schedule_for(self.gic, world.now(), PULSE, wire);
        } else if device.new == 1 {
            device.timer += 1;
            let at = world.now() + Ps::from_ns(u64::from(us) * 1_000);
            world.schedule(at, PERIOD, index as u64 | device.timer << 8);
        }
    }

    fn moderate(&mut self, world: &mut World<'_>, index: usize, told: u64) {
        let told = ((told & !REFUSED) as u32, (told >> 32) as u32);
        let device = &mut self.devices[index];
        let right = answered(self.answer, device.moderation, told);
        let answer = self.fault.map_or(right, |fault| answered(fault, device.moderation, told));
        if answer != right {
            world.tell(|| Fact::Struck { source: world.me(), fault: "moderation" });
        }
        (device.moderation, device.refused) = answer;
        // The new moderation applies to waiting items at once, and they have a whole period again.
        device.new = device.new.min(1);
        self.tell(world, index);
    }
}

impl Model for Board {
    fn name(&self) -> &str {
        "board"
    }

    fn event(&mut self, world: &mut World<'_>, code: u32, arg: u64) {
        if code == PRODUCE {
            return self.produce(world, arg);
        }
        let (index, timer) = ((arg & 0xff) as usize, arg >> 8);
        let device = &mut self.devices[index];
        if device.timer == timer && device.armed && device.new > 0 {
            device.new = u32::MAX;
            self.tell(world, index);
        }
    }

    fn read(&mut self, _world: &mut World<'_>, _region: u8, offset: u32, _width: u8) -> u64 {
        let Some(device) = self.devices.get((offset / STRIDE) as usize) else { return 0 };
        match offset % STRIDE {
            PRODUCED => device.produced,
            MODERATION => {
                let refused = if device.refused { REFUSED } else { 0 };
                u64::from(device.moderation.0) | u64::from(device.moderation.1) << 32 | refused
            }
            _ => 0,
        }
    }

    fn write(&mut self, world: &mut World<'_>, _region: u8, offset: u32, _width: u8, value: u64) {
        let index = (offset / STRIDE) as usize;
        let Some(device) = self.devices.get_mut(index) else { return };
        match offset % STRIDE {
            ASK if value >> 32 > 0 => {
                let gap_ns = value & 0xffff_ffff;
                let first = world.jitter(Ps::from_ns(gap_ns));
                let more = (value >> 32) - 1;
                world.schedule(world.now() + first, PRODUCE, index as u64 | gap_ns << 8 | more << 40);
            }
            ARM => {
                (device.armed, device.new) = (value & 1 == 1, 0);
                device.timer += 1;
            }
            MODERATION => self.moderate(world, index, value),
            _ => {}
        }
    }

    fn as_any(&mut self) -> &mut dyn core::any::Any {
        self
    }
}

/// The driver's side of one device.
#[derive(Clone, Copy)]
pub(super) struct Port {
    pub(super) regs: Regs,
    pub(super) index: u32,
}

impl Port {
    fn at(self, register: u32) -> u32 {
        self.index * STRIDE + register
    }

    /// Makes the device produce `count` items, this far apart.
    pub(super) fn ask(self, count: u32, gap_ns: u32) {
        self.regs.write64(self.at(ASK), u64::from(count) << 32 | u64::from(gap_ns));
    }

    /// The number of items it has produced.
    pub(super) fn produced(self) -> u64 {
        self.regs.read64(self.at(PRODUCED))
    }

    /// Arms or disarms its interrupt; takes effect before the next read.
    pub(super) fn arm(self, armed: bool) {
        self.regs.write32(self.at(ARM), armed.into());
    }

    /// Programs a moderation and returns the one now in effect; the error holds the one that the device kept.
    pub(super) fn moderate(self, setting: Setting) -> Result<Setting, Setting> {
        let told = u64::from(setting.completions) | u64::from(setting.delay_us) << 32;
        self.regs.write64(self.at(MODERATION), told);
        self.moderation()
    }

    /// The moderation in effect; an error if the device refused the last one.
    pub(super) fn moderation(self) -> Result<Setting, Setting> {
        let now = self.regs.read64(self.at(MODERATION));
        let has = Setting::new((now >> 32) as u32, (now & !REFUSED) as u32);
        if now & REFUSED == 0 { Ok(has) } else { Err(has) }
    }
}
