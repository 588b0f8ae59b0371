//! When commands act on redistributors, and messages arrive there.
//!
//! The ITS changes its own tables at once, and the redistributors later: "SYNC ensures that all outstanding ITS operations
//! associated with physical interrupts for the Redistributor specified by RDbase are globally observed" (IHI 0069H,
//! "SYNC"). So an effect on a redistributor may be late ([`crate::unrest::Kind::LateCommand`]) until a SYNC names that
//! redistributor. Effects on one redistributor keep their order.

use super::Its;
use crate::gic::{EFFECT, Gic};
use crate::time::Ps;
use crate::unrest::Kind;
use crate::world::World;

/// What an operation does at a redistributor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::gic) enum Effect {
    /// The LPI becomes pending.
    Pend(u32),
    /// The LPI is no longer pending.
    Clear(u32),
    /// The same, and its configuration is forgotten.
    Discard(u32),
    /// The redistributor reads the LPI's configuration again.
    Load(u32),
    /// The LPI, if it is pending, is pending at this CPU instead.
    Move(u32, u32),
    /// All pending LPIs move to this CPU.
    MoveAll(u32),
}

/// An effect that is to come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Outstanding {
    cpu: u32,
    effect: Effect,
    due: Ps,
}

impl Its {
    /// True while a command that moves, clears or discards an LPI has not taken effect. A message or an INT that makes it pending
    /// does not count, nor does a configuration that is to be read again: an INVALL asks for those of all LPIs.
    pub(in crate::gic) fn has_outstanding(&self, intid: u32) -> bool {
        self.outstanding.iter().any(|one| match one.effect {
            Effect::Clear(of) | Effect::Discard(of) | Effect::Move(of, _) => of == intid,
            Effect::Pend(_) | Effect::Load(_) | Effect::MoveAll(_) => false,
        })
    }
}

impl Gic {
    /// A command acts on the redistributor of `cpu`: now, or late.
    pub(super) fn its_act(&mut self, world: &mut World<'_>, cpu: u32, effect: Effect) {
        let late = world.effect_delay(Kind::LateCommand);
        self.its_act_after(world, cpu, effect, late);
    }

    /// A message makes an LPI pending at `cpu`: now, or late.
    pub(super) fn its_pend(&mut self, world: &mut World<'_>, cpu: u32, intid: u32) {
        let late = world.message_delay();
        self.its_act_after(world, cpu, Effect::Pend(intid), late);
    }

    fn its_act_after(&mut self, world: &mut World<'_>, cpu: u32, effect: Effect, late: Ps) {
        let outstanding = self.its.iter().flat_map(|its| &its.outstanding).filter(|before| before.cpu == cpu);
        // One that is due at this very time is still to come.
        let last = outstanding.map(|before| before.due).max();
        let due = last.unwrap_or_default().max(world.now() + late);
        match &mut self.its {
            Some(its) if last.is_some() || due > world.now() => {
                its.outstanding.push(Outstanding { cpu, effect, due });
                world.schedule(due, EFFECT, 0);
            }
            _ => self.take_effect(world, cpu, effect),
        }
    }

    /// Effects whose time has come; or all of the redistributor that a SYNC names.
    pub(in crate::gic) fn its_effects(&mut self, world: &mut World<'_>, synced: Option<u32>) {
        let now = world.now();
        let is_due = |one: &mut Outstanding| if synced.is_none() { one.due <= now } else { synced == Some(one.cpu) };
        let due: Vec<_> = self.its.iter_mut().flat_map(|its| its.outstanding.extract_if(.., is_due)).collect();
        due.into_iter().for_each(|one| self.take_effect(world, one.cpu, one.effect));
    }

    /// The LPI is mapped anew: a discard that is still to come leaves the new configuration.
    pub(super) fn its_keep(&mut self, intid: u32) {
        let outstanding = self.its.iter_mut().flat_map(|its| &mut its.outstanding);
        for one in outstanding.filter(|one| one.effect == Effect::Discard(intid)) {
            one.effect = Effect::Clear(intid);
        }
    }

    fn take_effect(&mut self, world: &mut World<'_>, cpu: u32, effect: Effect) {
        match effect {
            Effect::Pend(intid) => self.pend_lpi(world, cpu, intid),
            Effect::Clear(intid) => {
                self.clear_lpi(cpu, intid);
            }
            Effect::Discard(intid) => {
                self.clear_lpi(cpu, intid);
                self.properties.remove(&intid);
            }
            Effect::Load(intid) => self.load_property(world, cpu, intid),
            Effect::Move(intid, to) => {
                if self.clear_lpi(cpu, intid) {
                    self.pend_lpi(world, to, intid);
                }
            }
            Effect::MoveAll(to) => {
                let mut moved = std::mem::take(&mut self.cpus[cpu as usize].redistributor.pending);
                self.cpus[to as usize].redistributor.pending.append(&mut moved);
            }
        }
    }
}
