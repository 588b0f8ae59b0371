//! A board of small devices. Each of them sometimes has an event to report: by a wire, by a message, or by a pin of a
//! block behind one wire (GPIO). It reports a count; reading the count serves the device.

use hal::Regs as _;
use machine::Regs;
use machine::gic::{PULSE, WIRE, wire_arg};
use machine::model::{Model, ModelId, Upstream};
use machine::observe::Fact;
use machine::time::Ps;
use machine::world::World;

/// PCI requester of the board's messages.
pub(crate) const REQUESTER: u16 = 0x0100;
/// Pins of the block.
pub(crate) const PINS: u32 = 2;

/// Registers of a bell.
const STRIDE: u32 = 0x40;
/// A write makes the bell report one more event, this many ns from now.
const RING: u32 = 0x00;
/// A read returns the number of reported events, and serves the bell.
const SERVE: u32 = 0x08;
pub(crate) const ADDRESS: u32 = 0x10;
pub(crate) const DATA: u32 = 0x18;
pub(crate) const MASK: u32 = 0x1c;
/// Whether its wire is level-triggered.
const LEVEL: u32 = 0x20;
/// Registers of the block: pins that want service and are enabled; a write clears edges.
pub(crate) const STATUS: u32 = 0xf000;
/// A write of 1 enables, or disables, or raises pins.
pub(crate) const ENABLE: u32 = 0xf004;
pub(crate) const DISABLE: u32 = 0xf008;
pub(crate) const SET: u32 = 0xf00c;

/// How a bell reports its events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sound {
    /// A wire to the GIC: an SPI, or a PPI of a CPU.
    Wire {
        /// Which.
        intid: u32,
        /// The CPU of a PPI.
        cpu: u32,
    },
    /// A message.
    Message,
    /// A pin of the block.
    Pin(u32),
}

/// A temporary fault of a bell.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Faults {
    /// Its wire stays raised.
    pub(crate) stuck: bool,
    /// When it is served next, its wire stays raised for this time; 0: it does not.
    pub(crate) sticks: Ps,
    /// Its next messages, this many, are lost.
    pub(crate) drop: u32,
    /// Its messages are sent twice.
    pub(crate) double: u32,
    /// Its messages are late by this time.
    pub(crate) late: Ps,
    /// It interrupts without end, at this distance; 0: not at all.
    pub(crate) storm: Ps,
}

impl Bell {
    /// Whether its wire is raised, if it is level-triggered.
    fn is_raised(&self) -> bool {
        self.told > self.served || self.faults.stuck || self.glitches
    }
}

struct Bell {
    sound: Sound,
    level: bool,
    told: u64,
    served: u64,
    address: u64,
    data: u32,
    masked: bool,
    /// A message that is sent once it is unmasked.
    held: bool,
    /// Its wire is raised without an event.
    glitches: bool,
    faults: Faults,
}

/// Event: the bell of this number rings.
const TELL: u32 = 0;
/// Event: a late message is sent.
const SEND: u32 = 1;
/// Event: the next sound of a storm.
const STORM: u32 = 2;
/// Event: a wire is released after a glitch.
const RELEASE: u32 = 3;

/// Event: a bell reports an event, now and periodically.
const TICK: u32 = 4;
/// Between two ticks.
const TICK_TIME: Ps = Ps::from_ns(100_000);

/// The board.
pub(crate) struct Bells {
    gic: ModelId,
    bells: Vec<Bell>,
    /// The INTID of the block's wire.
    block: u32,
    latched: u32,
    enabled: u32,
    block_raised: bool,
}

impl Bells {
    /// Silent bells.
    pub(crate) fn new(gic: ModelId, block: u32, sounds: impl Iterator<Item = (Sound, bool)>) -> Self {
        let bell = |(sound, level)| Bell {
            sound,
            level,
            told: 0,
            served: 0,
            address: 0,
            data: 0,
            masked: sound == Sound::Message,
            held: false,
            glitches: false,
            faults: Faults::default(),
        };
        Self { gic, bells: sounds.map(bell).collect(), block, latched: 0, enabled: 0, block_raised: false }
    }

    /// Sets the present fault of a bell; no fault heals it. The machine stands still.
    pub(crate) fn faults_mut(&mut self, index: usize) -> &mut Faults {
        let count = self.bells.len();
        &mut self.bells[index % count].faults
    }

    /// Updates its wire or pin to its present state.
    fn sound(&mut self, world: &mut World<'_>, index: usize, new: bool) {
        let bell = &self.bells[index];
        let raised = bell.is_raised();
        match bell.sound {
            Sound::Wire { intid, cpu } if bell.level => {
                world.schedule_for(self.gic, world.now(), WIRE, wire_arg(intid, cpu, raised));
            }
            Sound::Wire { intid, cpu } if new => {
                world.schedule_for(self.gic, world.now(), PULSE, wire_arg(intid, cpu, true));
            }
            // The wire of an edge rests low, even if the wire was level-triggered when it was raised.
            Sound::Wire { intid, cpu } => {
                world.schedule_for(self.gic, world.now(), WIRE, wire_arg(intid, cpu, false));
            }
            Sound::Message if new => self.message(world, index),
            Sound::Message => {}
            Sound::Pin(pin) => {
                self.latched |= u32::from(new && !bell.level) << pin;
                self.block(world);
            }
        }
    }

    fn message(&mut self, world: &mut World<'_>, index: usize) {
        let bell = &mut self.bells[index];
        if bell.masked {
            bell.held = true;
            return;
        }
        if bell.faults.drop > 0 {
            bell.faults.drop -= 1;
            return world.tell(|| Fact::Struck { source: world.me(), fault: "dropped message" });
        }
        if bell.faults.late > Ps(0) {
            let at = world.now() + bell.faults.late;
            world.tell(|| Fact::Struck { source: world.me(), fault: "late message" });
            return world.schedule(at, SEND, index as u64);
        }
        if bell.faults.double > 0 {
            world.tell(|| Fact::Struck { source: world.me(), fault: "doubled message" });
        }
        let times = 1 + u32::from(bell.faults.double > 0);
        bell.faults.double = bell.faults.double.saturating_sub(1);
        (0..times).for_each(|_| self.send(world, index));
    }

    fn send(&mut self, world: &mut World<'_>, index: usize) {
        let Bell { address, data, .. } = self.bells[index];
        world.upstream(self.gic, Upstream::Message { requester: REQUESTER, address, data });
    }

    /// Its wire or pin is raised for `time`, or its message is sent, without an event.
    fn glitch(&mut self, world: &mut World<'_>, index: usize, time: Ps) {
        let bell = &mut self.bells[index];
        if bell.level && bell.sound != Sound::Message {
            bell.glitches = true;
            world.schedule(world.now() + time, RELEASE, index as u64);
        }
        match bell.sound {
            Sound::Message if bell.masked => {}
            Sound::Message => {
                world.tell(|| Fact::Struck { source: world.me(), fault: "spurious message" });
                self.send(world, index);
            }
            // A wire that stayed up would swallow the next edge of the bell itself.
            _ => self.sound(world, index, true),
        }
    }

    fn wants(&self) -> u32 {
        let levels = self.bells.iter().filter(|bell| bell.level && bell.is_raised());
        let levels = levels.filter_map(|bell| if let Sound::Pin(pin) = bell.sound { Some(1 << pin) } else { None });
        (self.latched | levels.sum::<u32>()) & self.enabled
    }

    fn block(&mut self, world: &mut World<'_>) {
        let raised = self.wants() != 0;
        if raised != self.block_raised {
            self.block_raised = raised;
            world.schedule_for(self.gic, world.now(), WIRE, wire_arg(self.block, 0, raised));
        }
    }

    fn write_block(&mut self, world: &mut World<'_>, offset: u32, pins: u32) {
        match offset {
            STATUS => self.latched &= !pins,
            ENABLE => self.enabled |= pins,
            DISABLE => self.enabled &= !pins,
            _ => self.latched |= pins,
        }
        self.block(world);
    }
}

impl Model for Bells {
    fn name(&self) -> &str {
        "bells"
    }

    fn event(&mut self, world: &mut World<'_>, code: u32, arg: u64) {
        let index = arg as usize;
        match code {
            TELL => {
                self.bells[index].told += 1;
                self.sound(world, index, true);
            }
            SEND => self.send(world, index),
            SETTLE => self.sound(world, index, false),
            RELEASE => {
                self.bells[index].glitches = false;
                self.sound(world, index, false);
            }
            TICK => {
                self.bells[index].told += 1;
                self.sound(world, index, true);
                world.schedule(world.now() + TICK_TIME, TICK, arg);
            }
            STORM => {
                let period = self.bells[index].faults.storm;
                if period > Ps(0) {
                    self.sound(world, index, true);
                    world.schedule(world.now() + period, STORM, arg);
                }
            }
            glitch => self.glitch(world, index, Ps::from_ns(u64::from(glitch - GLITCH))),
        }
    }

    fn read(&mut self, world: &mut World<'_>, _region: u8, offset: u32, _width: u8) -> u64 {
        if offset == STATUS {
            return self.wants().into();
        }
        let index = (offset / STRIDE) as usize;
        let Some(bell) = self.bells.get_mut(index) else { return 0 };
        match offset % STRIDE {
            SERVE => {
                let (told, sticks) = (bell.told, bell.faults.sticks);
                if bell.level && bell.is_raised() && bell.sound != Sound::Message && sticks > Ps(0) {
                    bell.faults.sticks = Ps(0);
                    bell.glitches = true;
                    world.schedule(world.now() + sticks, RELEASE, index as u64);
                    world.tell(|| Fact::Struck { source: world.me(), fault: "stuck wire" });
                }
                let bell = &mut self.bells[index];
                bell.served = told;
                self.sound(world, index, false);
                told
            }
            MASK => bell.masked.into(),
            _ => 0,
        }
    }

    fn write(&mut self, world: &mut World<'_>, _region: u8, offset: u32, _width: u8, value: u64) {
        if offset >= STATUS {
            return self.write_block(world, offset, value as u32);
        }
        let index = (offset / STRIDE) as usize;
        let Some(bell) = self.bells.get_mut(index) else { return };
        match offset % STRIDE {
            RING => {
                let delay = world.jitter(Ps::from_ns(value));
                world.schedule(world.now() + delay, TELL, index as u64);
            }
            ADDRESS => bell.address = value,
            DATA => bell.data = value as u32,
            MASK => {
                bell.masked = value != 0;
                if !bell.masked && std::mem::take(&mut bell.held) {
                    self.message(world, index);
                }
            }
            LEVEL => {
                bell.level = value != 0;
                // The bell reports its remaining events in the new manner.
                let new = bell.told > bell.served;
                if let (Sound::Wire { intid, cpu }, false) = (bell.sound, bell.level) {
                    world.schedule_for(self.gic, world.now(), WIRE, wire_arg(intid, cpu, false));
                }
                self.sound(world, index, new);
            }
            _ => {}
        }
    }

    fn as_any(&mut self) -> &mut dyn core::any::Any {
        self
    }
}

/// Event codes from here on: a wire is raised without an event, for as many ns as the rest of the code says.
pub(crate) const GLITCH: u32 = 16;
/// Event code that makes a bell a clock.
pub(crate) const BEGIN_TICKS: u32 = TICK;
/// Event code that begins a storm.
pub(crate) const BEGIN_STORM: u32 = STORM;
/// Event code that updates a wire to the present state.
pub(crate) const SETTLE: u32 = 5;

/// The driver's side of one bell.
#[derive(Clone, Copy)]
pub(crate) struct BellPort {
    pub(crate) regs: Regs,
    pub(crate) index: u32,
}

impl BellPort {
    pub(crate) fn at(&self, register: u32) -> u32 {
        self.index * STRIDE + register
    }

    /// Makes the bell report one more event, this many ns from now.
    pub(crate) fn ring(&self, delay_ns: u64) {
        self.regs.write64(self.at(RING), delay_ns);
    }

    /// Returns the number of reported events, and serves the bell.
    pub(crate) fn serve(&self) -> u64 {
        self.regs.read64(self.at(SERVE))
    }

    /// Changes how its wire behaves. The write takes effect before any later access.
    pub(crate) fn set_level(&self, level: bool) {
        self.regs.write32(self.at(LEVEL), level.into());
        self.regs.read32(self.at(MASK));
    }
}
