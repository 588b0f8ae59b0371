//! The interrupts of a device on the MMIO transport: wires, pulsed or held.

use super::code;
use super::common::Common;
use super::device::{Cause, Wire};
use super::signal::{Irqfd, Line, Trigger};
use crate::time::Ps;
use crate::world::World;
use spec::virtio::NO_VECTOR;
use spec::virtio::feature::Feature;
use spec::virtio::mmio::InterruptStatus;

/// A wire and its state.
struct Wired {
    line: Line,
    /// Bit of VectorStatus, or for vector 0 without MULTI_IRQ: InterruptStatus has a bit.
    held: bool,
    /// Raised again while it was held. The end of an interrupt must not lose this.
    again: bool,
    /// The level that the controller sees.
    high: bool,
}

/// The wires, and the status register that goes with them.
pub(super) struct Lines {
    irqfd: Irqfd,
    wires: Vec<Wired>,
    pub(super) status: InterruptStatus,
    /// Bits of the status that the driver has read since they were set.
    seen: u32,
    /// Pulses, and levels that were not raised already.
    pub(super) raised: u64,
}

impl Lines {
    pub(super) fn new(irqfd: Irqfd, lines: &[Line]) -> Self {
        let wired = |&line| Wired { line, held: false, again: false, high: false };
        let wires = lines.iter().map(wired).collect();
        Self { irqfd, wires, status: InterruptStatus::new(), seen: 0, raised: 0 }
    }

    pub(super) fn count(&self) -> u32 {
        self.wires.len() as u32
    }

    fn mask(&self, is_set: impl Fn(&Wired) -> bool) -> u32 {
        self.wires.iter().take(32).enumerate().map(|(vector, wire)| u32::from(is_set(wire)) << vector).sum()
    }

    /// VectorLevel.
    pub(super) fn levels(&self) -> u32 {
        self.mask(|wire| wire.line.trigger == Trigger::Level)
    }

    /// VectorStatus.
    pub(super) fn held(&self) -> u32 {
        self.mask(|wire| wire.line.trigger == Trigger::Level && wire.held)
    }

    /// Raises one vector: a pulse, or the level until it is acknowledged.
    pub(super) fn raise_vector(&mut self, world: &mut World<'_>, vector: u16) -> Ps {
        let Some(wire) = self.wires.get_mut(usize::from(vector)) else { return Ps(0) };
        if wire.line.trigger == Trigger::Level {
            return self.hold(world, vector);
        }
        if wire.held {
            // The single interrupt is up, whatever the wire's trigger. A pulse would release it.
            return Ps(0);
        }
        self.raised += 1;
        let (line, at) = (wire.line, world.now() + self.irqfd.latency);
        world.schedule_for(line.controller, at, line.code, line.asserted);
        world.schedule_for(line.controller, at, line.code, line.released);
        self.irqfd.signal
    }

    /// Asserts the wire until [`Self::release`]. The assertion arrives later, if it is still wanted then.
    fn hold(&mut self, world: &mut World<'_>, vector: u16) -> Ps {
        let wire = &mut self.wires[usize::from(vector)];
        if wire.held {
            wire.again = true;
            return Ps(0);
        }
        wire.held = true;
        self.raised += 1;
        world.schedule(world.now() + self.irqfd.latency, code::ASSERT, vector.into());
        self.irqfd.signal
    }

    /// The assertion arrives.
    pub(super) fn assert(&mut self, world: &mut World<'_>, vector: u64) {
        let Some(wire) = self.wires.get_mut(vector as usize) else { return };
        if wire.held && !wire.high {
            wire.high = true;
            world.schedule_for(wire.line.controller, world.now(), wire.line.code, wire.line.asserted);
        }
    }

    fn release(&mut self, world: &mut World<'_>, vector: usize) {
        let wire = &mut self.wires[vector];
        (wire.held, wire.again) = (false, false);
        if std::mem::take(&mut wire.high) {
            world.schedule_for(wire.line.controller, world.now(), wire.line.code, wire.line.released);
        }
    }

    /// VectorAck.
    pub(super) fn acknowledge_vectors(&mut self, world: &mut World<'_>, bits: u32) {
        let held = self.held();
        (0..32).filter(|vector| held & bits & 1 << vector != 0).for_each(|vector| self.release(world, vector));
    }

    /// InterruptStatus, read by the driver.
    pub(super) fn read_status(&mut self) -> u32 {
        self.seen |= self.status.into_bits();
        self.status.into_bits()
    }

    /// InterruptACK. It says that the events have been handled (VIRTIO 4.2.2), so a driver that has not seen a bit loses what
    /// the bit stood for.
    pub(super) fn acknowledge_status(&mut self, world: &mut World<'_>, common: &Common, bits: u32) {
        let unseen = self.status.into_bits() & bits & !self.seen;
        if unseen != 0 {
            common.fault(world, "virtio interrupt acknowledged and never seen", format!("status {unseen:#x}"));
        }
        self.seen &= !bits;
        self.status = InterruptStatus::from_bits(self.status.into_bits() & !bits);
        if self.status.into_bits() == 0 && !common.has(Feature::MULTI_IRQ) && !self.wires.is_empty() {
            self.release(world, 0);
        }
    }

    /// The guest has ended the interrupt of this vector, and the resampler has taken the wire down. It goes up again if
    /// the driver has not acknowledged and there is something that it may not have seen (MULTI_IRQ 4.1, rule 4).
    pub(super) fn resample(&mut self, world: &mut World<'_>, common: &Common, vector: u64) {
        let is_status = !common.has(Feature::MULTI_IRQ);
        let Some(wire) = self.wires.get_mut(vector as usize) else { return };
        wire.high = false;
        let again = std::mem::take(&mut wire.again);
        if wire.held && (again || is_status) {
            world.schedule(world.now(), code::ASSERT, vector);
        } else {
            wire.held = false;
        }
    }

    /// Everything is down.
    pub(super) fn reset(&mut self, world: &mut World<'_>) {
        (self.status, self.seen) = (InterruptStatus::new(), 0);
        (0..self.wires.len()).for_each(|vector| self.release(world, vector));
    }
}

impl Wire for Lines {
    fn raise(&mut self, world: &mut World<'_>, common: &Common, cause: Cause) -> Ps {
        let multi = common.has(Feature::MULTI_IRQ);
        match cause {
            Cause::Used(vector) if multi => return self.raise_vector(world, vector),
            Cause::Used(_) => self.status.set_used_buffer(true),
            Cause::Config => self.status.set_config_change(true),
        }
        if !multi && !self.wires.is_empty() {
            // One interrupt for all, up until it is acknowledged, whatever the wire's trigger (VIRTIO 4.2.3.3).
            self.hold(world, 0)
        } else if common.config_vector != NO_VECTOR {
            self.raise_vector(world, common.config_vector)
        } else {
            Ps(0)
        }
    }
}
