//! Each CPU's physical timer (DDI 0487, "The Generic Timer in AArch64 state"). Its interrupt is a level on the PPI of
//! [`super::GicConfig::timer_ppi`]. The count follows the machine's time.
//!
//! **Left out**: the virtual timer, the timers of higher exception levels, a count that firmware sets.

use super::Gic;
use super::access::{Outcome, Refusal};
use crate::time::Ps;
use crate::world::World;
use spec::timer::{Control, FREQUENCY, PHYSICAL};

/// Ticks of the count in a second: the frequency that DDI 0487 fixes from Armv8.6 on.
pub const TIMER_HZ: u32 = 1_000_000_000;

/// The registers of one CPU's timer.
#[derive(Default)]
pub(super) struct Timer {
    enabled: bool,
    masked: bool,
    compare: u64,
    /// The count has reached the compare value since the timer was set.
    met: bool,
    /// Counts the settings, so that an event of an earlier setting is recognised as stale.
    setting: u64,
}

impl Gic {
    pub(super) fn timer_read(&self, now: Ps, cpu: u32, register: u32) -> Outcome<u64> {
        let timer = &self.cpus[cpu as usize].timer;
        Ok(match register {
            _ if register == FREQUENCY.offset() => TIMER_HZ.into(),
            _ if register == PHYSICAL.count.offset() => now.as_ns(),
            _ if register == PHYSICAL.compare.offset() => timer.compare,
            _ if register == PHYSICAL.value.offset() => u64::from(timer.compare.wrapping_sub(now.as_ns()) as u32),
            _ if register == PHYSICAL.control.offset() => Control::new()
                .with_enable(timer.enabled)
                .with_masked(timer.masked)
                .with_met(timer.enabled && timer.met)
                .into_bits(),
            _ => return Err(Refusal::Reserved),
        })
    }

    pub(super) fn timer_write(&mut self, world: &mut World<'_>, cpu: u32, register: u32, value: u64) -> Outcome<()> {
        let timer = &mut self.cpus[cpu as usize].timer;
        match register {
            _ if register == PHYSICAL.compare.offset() => timer.compare = value,
            _ if register == PHYSICAL.value.offset() => {
                timer.compare = world.now().as_ns().wrapping_add_signed(i64::from(value as i32));
            }
            _ if register == PHYSICAL.control.offset() => {
                let control = Control::from_bits(value);
                (timer.enabled, timer.masked) = (control.enable(), control.masked());
            }
            _ if [FREQUENCY, PHYSICAL.count].iter().any(|named| named.offset() == register) => {
                return Err(Refusal::ReadOnly);
            }
            _ => return Err(Refusal::Reserved),
        }
        self.set_timer(world, cpu);
        Ok(())
    }

    /// When the timer of `cpu` interrupts, or since when it does; none if it is stopped or masked.
    pub fn timer_due_ns(&self, cpu: u32) -> Option<u64> {
        let timer = &self.cpus.get(cpu as usize)?.timer;
        (timer.enabled && !timer.masked).then_some(timer.compare)
    }

    /// Begins a new wait for the compare value.
    fn set_timer(&mut self, world: &mut World<'_>, cpu: u32) {
        let timer = &mut self.cpus[cpu as usize].timer;
        timer.setting += 1;
        timer.met = timer.compare <= world.now().as_ns();
        if timer.enabled && !timer.met {
            let at = Ps::from_ns(timer.compare) + world.timer_delay();
            world.schedule(at, super::EXPIRED, timer.setting << 16 | u64::from(cpu));
        }
        self.drive_timer(world, cpu);
    }

    /// The compare value of this setting was reached.
    pub(super) fn expired(&mut self, world: &mut World<'_>, cpu: u32, setting: u64) {
        let timer = &mut self.cpus[cpu as usize].timer;
        if timer.setting == setting {
            timer.met = true;
            self.drive_timer(world, cpu);
        }
    }

    fn drive_timer(&mut self, world: &mut World<'_>, cpu: u32) {
        let timer = &self.cpus[cpu as usize].timer;
        let asserted = timer.enabled && !timer.masked && timer.met;
        self.wire(world, self.config.timer_ppi.into(), cpu, asserted);
    }
}
