//! What goes wrong in a GIC, beside messages, which [`crate::fabric::tamper`] loses, delays and doubles.

use super::{AGAIN, Gic};
use crate::time::Ps;
use crate::world::World;
use spec::gic::{IntId, Kind};

/// Event: from now on a wire sticks asserted, or sticks no more and is what its device says; the argument is
/// [`super::wire_arg`]'s. By [`crate::Machine::poke`].
pub const STICK: u32 = 10;

/// Random faults, for a while. Their numbers come from a stream of their own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GicFaults {
    /// Of the stream.
    pub seed: u64,
    /// Nothing happens before.
    pub from: Ps,
    /// Nor at this time and later.
    pub until: Ps,
    /// Of 1,000 acknowledgements: reads INTID 1023 and acknowledges nothing, as when the interrupt was withdrawn between
    /// the exception and the read; it is signalled again at once (IHI 0069H, "Special INTIDs"; IHI 0048B, "Special
    /// interrupt numbers").
    pub spurious: u32,
    /// Of 1,000 assertions of a wire that is edge-triggered: the edge comes once more, up to [`Self::again_within`]
    /// later.
    pub doubled: u32,
    /// How late a second edge is at most.
    pub again_within: Ps,
}

impl Default for GicFaults {
    /// Nothing ever happens.
    fn default() -> Self {
        let again_within = Ps::from_ns(5_000);
        Self { seed: 1, from: Ps(0), until: Ps::MAX, spurious: 0, doubled: 0, again_within }
    }
}

impl Gic {
    /// What goes wrong from now on. The seed stays what it was at the start.
    pub fn faults_mut(&mut self) -> &mut GicFaults {
        &mut self.config.faults
    }

    /// A number from 0 to below `end` with a chance of `per_mille`; none is drawn when nothing can happen.
    fn strikes(&mut self, now: Ps, per_mille: u32, end: u64) -> Option<u64> {
        let GicFaults { from, until, .. } = self.config.faults;
        if per_mille == 0 || !(from..until).contains(&now) {
            return None;
        }
        let number = self.fault_stream.next();
        let happens = (u64::from(number as u32) * 1_000) >> 32 < per_mille.into();
        happens.then_some(((u128::from(number >> 32) * u128::from(end)) >> 32) as u64)
    }

    /// Whether what is signalled is gone when it is to be acknowledged.
    pub(super) fn is_withdrawn(&mut self, now: Ps) -> bool {
        let is_withdrawn = self.strikes(now, self.config.faults.spurious, 1).is_some();
        self.counts.withdrawn += u64::from(is_withdrawn);
        is_withdrawn
    }

    /// An assertion may come twice.
    pub(super) fn perhaps_again(&mut self, world: &mut World<'_>, intid: u32, cpu: u32) {
        let is_edge = self.change(cpu, intid, |interrupt| interrupt.edge) == Some(true);
        let within = self.config.faults.again_within.0;
        let after = if is_edge { self.strikes(world.now(), self.config.faults.doubled, within) } else { None };
        if let Some(after) = after {
            self.counts.doubled += 1;
            world.schedule(world.now() + Ps(1 + after), AGAIN, super::wire_arg(intid, cpu, true));
        }
    }

    /// A wire sticks, or no more.
    pub(super) fn stick(&mut self, world: &mut World<'_>, intid: u32, cpu: u32, stuck: bool) {
        let changed = match IntId(intid).kind() {
            Kind::Ppi | Kind::Spi => self.change(cpu, intid, |interrupt| interrupt.set_stuck(stuck)),
            _ => None,
        };
        if changed.is_none() {
            world.fault("GIC wire that does not exist", intid.into(), format!("INTID {intid} of CPU {cpu}"));
        }
    }
}
