//! Faults of a GIC. Lost, delayed and doubled messages are not here but in [`crate::fabric::tamper`].

use super::{AGAIN, Gic};
use crate::time::Ps;
use crate::world::World;
use spec::gic::{IntId, Kind};

/// Event: a fault holds a wire asserted from now on, or ends and the wire follows its device again. The argument has
/// the format of [`super::wire_arg`]. Sent with [`crate::Machine::poke`].
pub const STICK: u32 = 10;

/// Random faults for a limited time. Their random numbers come from a separate stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GicFaults {
    /// Seed of that stream.
    pub seed: u64,
    /// No faults before this time.
    pub from: Ps,
    /// No faults at this time or later.
    pub until: Ps,
    /// Rate per 1,000 acknowledgements: IAR reads INTID 1023 and acknowledges nothing, as if the interrupt was
    /// withdrawn between the exception and the read. The interrupt is signalled again at once (IHI 0069H, "Special
    /// INTIDs"; IHI 0048B, "Special interrupt numbers").
    pub spurious: u32,
    /// Rate per 1,000 assertions of an edge-triggered wire: the edge is repeated, up to [`Self::again_within`] later.
    pub doubled: u32,
    /// Maximum delay of a repeated edge.
    pub again_within: Ps,
}

impl Default for GicFaults {
    /// No faults.
    fn default() -> Self {
        let again_within = Ps::from_ns(5_000);
        Self { seed: 1, from: Ps(0), until: Ps::MAX, spurious: 0, doubled: 0, again_within }
    }
}

impl Gic {
    /// The fault plan from now on. The seed keeps its initial value.
    pub fn faults_mut(&mut self) -> &mut GicFaults {
        &mut self.config.faults
    }

    /// With a chance of `per_mille`, a random number below `end`. Draws no number when no fault can happen.
    fn strikes(&mut self, now: Ps, per_mille: u32, end: u64) -> Option<u64> {
        let GicFaults { from, until, .. } = self.config.faults;
        if per_mille == 0 || !(from..until).contains(&now) {
            return None;
        }
        let number = self.fault_stream.next();
        let happens = (u64::from(number as u32) * 1_000) >> 32 < per_mille.into();
        happens.then_some(((u128::from(number >> 32) * u128::from(end)) >> 32) as u64)
    }

    /// True if the signalled interrupt is withdrawn at its acknowledgement.
    pub(super) fn is_withdrawn(&mut self, now: Ps) -> bool {
        let is_withdrawn = self.strikes(now, self.config.faults.spurious, 1).is_some();
        self.counts.withdrawn += u64::from(is_withdrawn);
        is_withdrawn
    }

    /// Repeats an edge if the fault plan says so.
    pub(super) fn perhaps_again(&mut self, world: &mut World<'_>, intid: u32, cpu: u32) {
        let is_edge = self.change(cpu, intid, |interrupt| interrupt.edge) == Some(true);
        let within = self.config.faults.again_within.0;
        let after = if is_edge { self.strikes(world.now(), self.config.faults.doubled, within) } else { None };
        if let Some(after) = after {
            self.counts.doubled += 1;
            world.schedule(world.now() + Ps(1 + after), AGAIN, super::wire_arg(intid, cpu, true));
        }
    }

    /// Holds a wire asserted, or releases it.
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
