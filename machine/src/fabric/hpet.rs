//! A high precision event timer block: timers whose interrupts are messages.
//!
//! Source: IA-PC HPET specification 1.0a, "Register Overview", "Timer N Configuration and Capabilities Register", "Timer
//! N Comparator Register", "Timer N FSB Interrupt Route Register". It has no pins: no I/O APIC route, no legacy
//! replacement, so no level-triggered interrupts and nothing in the interrupt status register.

use crate::model::{Model, ModelId, Upstream};
use crate::time::Ps;
use crate::world::World;
use spec::hpet::{self as reg, Capabilities, FsbRoute, TIMER_STRIDE, TIMERS, TimerConfiguration};

// Offsets, as constants for `match` patterns.
const CAPABILITIES: u32 = reg::CAPABILITIES.offset();
const CONFIGURATION: u32 = reg::CONFIGURATION.offset();
const MAIN_COUNTER: u32 = reg::MAIN_COUNTER.offset();
const TIMER_CONFIGURATION: u32 = reg::TIMER_CONFIGURATION.offset();
const TIMER_COMPARATOR: u32 = reg::TIMER_COMPARATOR.offset();
const TIMER_FSB_ROUTE: u32 = reg::TIMER_FSB_ROUTE.offset();

/// The configuration of one timer block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HpetConfig {
    /// Name in traces and faults.
    pub name: String,
    /// Requester id of its messages, as ACPI's DMAR table would tell.
    pub requester: u16,
    /// Period of the counter in femtoseconds: at most 100,000,000 (10 MHz), and for the machine at least 1,000.
    pub period_fs: u32,
    /// Timers, 1 to 32.
    pub timers: u8,
}

/// A timer's registers, as they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimerRegisters {
    /// Configuration and capabilities.
    pub configuration: u64,
    /// The next match.
    pub comparator: u64,
    /// Its message: data in the low half, address in the high one.
    pub route: u64,
}

struct Timer {
    configuration: TimerConfiguration,
    comparator: u64,
    period: u64,
    route: FsbRoute,
    setting: u64,
}

/// Event: the counter reaches a comparator. Argument: the number of the comparator's setting, then the timer's in 5 bits.
const MATCH: u32 = 0;
/// Overall enable, bit 0 of the general configuration.
const ENABLE: u64 = 1;
/// Femtoseconds per picosecond.
const FS: u128 = 1000;

/// A timer block inside the root complex.
pub struct Hpet {
    iommu: ModelId,
    config: HpetConfig,
    enabled: bool,
    /// The counter's value at `since`. While enabled, the counter runs from that time on.
    counter: u64,
    since: Ps,
    timers: Vec<Timer>,
    messages: u64,
}

impl Hpet {
    /// After reset: halted at 0.
    pub fn new(iommu: ModelId, config: HpetConfig) -> Self {
        let (period_fs, timers) = (config.period_fs.clamp(1_000, 100_000_000), config.timers.clamp(1, 32));
        let config = HpetConfig { period_fs, timers, ..config };
        let configuration =
            TimerConfiguration::new().with_can_be_periodic(true).with_is_64_bit(true).with_can_fsb(true);
        let timer = |_| Timer { configuration, comparator: u64::MAX, period: 0, route: FsbRoute::new(), setting: 0 };
        Self {
            iommu,
            config,
            enabled: false,
            counter: 0,
            since: Ps::default(),
            timers: (0..timers).map(timer).collect(),
            messages: 0,
        }
    }

    /// A timer's registers; none of a timer that it lacks.
    pub fn timer(&self, timer: u32) -> Option<TimerRegisters> {
        let Timer { configuration, comparator, route, .. } = self.timers.get(timer as usize)?;
        let (configuration, route) = (configuration.into_bits(), route.into_bits());
        Some(TimerRegisters { configuration, comparator: *comparator, route })
    }

    /// The main counter.
    pub fn counter(&self, world: &World<'_>) -> u64 {
        self.now(world)
    }

    fn now(&self, world: &World<'_>) -> u64 {
        let elapsed = if self.enabled { (world.now() - self.since).0 } else { 0 };
        self.counter.wrapping_add((u128::from(elapsed) * FS / u128::from(self.config.period_fs)) as u64)
    }

    /// Schedules a timer's next match: the next time at which the counter equals its comparator. If the counter has just
    /// passed it, that is a whole turn away.
    fn arm(&mut self, world: &mut World<'_>, index: usize) {
        let timer = &mut self.timers[index];
        timer.setting += 1;
        let ticks = timer.comparator.wrapping_sub(self.counter);
        let after = (u128::from(ticks) * u128::from(self.config.period_fs)).div_ceil(FS);
        let at = u128::from(self.since.0) + after;
        if self.enabled
            && let Ok(at) = u64::try_from(at)
            && Ps(at) >= world.now()
        {
            world.schedule(Ps(at), MATCH, timer.setting << 5 | index as u64);
        }
    }

    fn fire(&mut self, world: &mut World<'_>, index: usize) {
        let timer = &mut self.timers[index];
        if timer.configuration.interrupt_enable() && timer.configuration.fsb_enable() {
            self.messages += 1;
            let (address, data) = (timer.route.address().into(), timer.route.data());
            world.upstream(self.iommu, Upstream::Message { requester: self.config.requester, address, data });
        }
        if timer.configuration.periodic() && timer.period > 0 {
            timer.comparator = timer.comparator.wrapping_add(timer.period);
            self.arm(world, index);
        }
    }

    /// The timer whose registers begin at or before this offset, and the offset behind its first.
    fn timer_at(offset: u32) -> Option<(usize, u32)> {
        let behind = offset.checked_sub(TIMERS)?;
        Some(((behind / TIMER_STRIDE) as usize, behind % TIMER_STRIDE))
    }

    fn register(&self, world: &World<'_>, offset: u32) -> u64 {
        match offset {
            CAPABILITIES => Capabilities::new()
                .with_revision(1)
                .with_timers_less_one(self.config.timers - 1)
                .with_counter_64(true)
                .with_vendor(0x8086)
                .with_period_fs(self.config.period_fs)
                .into_bits(),
            CONFIGURATION => self.enabled.into(),
            MAIN_COUNTER => self.now(world),
            _ => {
                let place = Self::timer_at(offset);
                let Some((timer, behind)) = place.and_then(|(index, behind)| Some((self.timers.get(index)?, behind)))
                else {
                    return 0;
                };
                match behind {
                    TIMER_CONFIGURATION => timer.configuration.into_bits(),
                    TIMER_COMPARATOR => timer.comparator,
                    TIMER_FSB_ROUTE => timer.route.into_bits(),
                    _ => 0,
                }
            }
        }
    }

    fn set_register(&mut self, world: &mut World<'_>, offset: u32, value: u64) {
        match offset {
            CONFIGURATION => {
                self.counter = self.now(world);
                self.since = world.now();
                self.enabled = value & ENABLE != 0;
            }
            // Software writes the counter while it is halted.
            MAIN_COUNTER if !self.enabled => self.counter = value,
            _ => return self.set_timer(world, offset, value),
        }
        (0..self.timers.len()).for_each(|index| self.arm(world, index));
    }

    fn set_timer(&mut self, world: &mut World<'_>, offset: u32, value: u64) {
        let Some((index, behind)) = Self::timer_at(offset) else { return };
        let Some(timer) = self.timers.get_mut(index) else { return };
        match behind {
            TIMER_CONFIGURATION => {
                let wanted = TimerConfiguration::from_bits(value);
                timer.configuration = timer
                    .configuration
                    .with_interrupt_enable(wanted.interrupt_enable())
                    .with_periodic(wanted.periodic())
                    .with_set_value(wanted.set_value())
                    .with_fsb_enable(wanted.fsb_enable());
            }
            TIMER_COMPARATOR if timer.configuration.periodic() && !timer.configuration.set_value() => {
                timer.period = value;
            }
            TIMER_COMPARATOR => {
                timer.comparator = value;
                timer.configuration.set_set_value(false);
                self.arm(world, index);
            }
            TIMER_FSB_ROUTE => timer.route = FsbRoute::from_bits(value),
            _ => {}
        }
    }
}

impl Model for Hpet {
    fn name(&self) -> &str {
        &self.config.name
    }

    fn event(&mut self, world: &mut World<'_>, code: u32, arg: u64) {
        let index = (arg & 0x1f) as usize;
        if code == MATCH && self.timers.get(index).is_some_and(|timer| timer.setting == arg >> 5) {
            self.fire(world, index);
        }
    }

    fn read(&mut self, world: &mut World<'_>, _region: u8, offset: u32, width_bytes: u8) -> u64 {
        let value = self.register(world, offset & !7) >> (offset % 8 * 8);
        if width_bytes == 8 { value } else { value & 0xffff_ffff }
    }

    fn write(&mut self, world: &mut World<'_>, _region: u8, offset: u32, width_bytes: u8, value: u64) {
        let whole = if width_bytes == 8 {
            value
        } else {
            crate::memory::with_field(self.register(world, offset & !7), offset % 8 * 8, 32, value)
        };
        self.set_register(world, offset & !7, whole);
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![("messages", self.messages)]
    }

    fn as_any(&mut self) -> &mut dyn core::any::Any {
        self
    }
}
