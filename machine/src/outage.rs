//! Silence, removal and refusal: faults that can happen to any device, as a wrapper round its model.
//!
//! The model does not know the wrapper. A device's own errors (a status, a wrong completion entry, a fatal state)
//! belong to the model.

use crate::event::PLUG;
use crate::model::{AccessCosts, Model, ModelId, Upstream};
use crate::observe::Fact;
use crate::pci::all_ones;
use crate::time::Ps;
use crate::world::World;
use core::ops::Range;
use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

/// The outage of a device, and its times.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outage {
    /// From this time on the device is silent: no event of it happens, and no register write takes effect. Registers
    /// can still be read.
    pub silent_at: Option<Ps>,
    /// End of the silence. Events and register writes that came during it are then processed in their order.
    pub silent_until: Option<Ps>,
    /// Writes to this region take effect in a silence too: configuration space is the link's, and a write there waits for its
    /// completion (PCI Express, "Transaction Ordering").
    pub prompt_region: Option<u8>,
    /// From this time on the device refuses register accesses as unsupported: reads return all ones, writes are lost.
    /// Work in progress continues.
    pub refuses_at: Option<Ps>,
    /// From this time on it accepts accesses again.
    pub refuses_until: Option<Ps>,
    /// It refuses accesses to this region alone; none: to all.
    pub refuses_region: Option<u8>,
    /// The device is pulled out: from then on every register reads all ones, and writes have no effect.
    pub gone_at: Option<Ps>,
}

/// An [`Outage`] shared by the wrapper and the code that controls it.
#[derive(Clone, Default, Debug)]
pub struct Outages(Rc<Cell<Outage>>);

impl Outages {
    /// Begins with `outage`.
    pub fn new(outage: Outage) -> Self {
        Self(Rc::new(Cell::new(outage)))
    }

    /// Changes the outage from now on.
    pub fn change(&self, change: impl FnOnce(&mut Outage)) {
        let mut outage = self.0.get();
        change(&mut outage);
        self.0.set(outage);
    }
}

impl Outage {
    /// Silences the device from `from` until `until`. Overlapping silences become one: events kept during the first
    /// must wait for its end, so that they stay in order.
    pub fn silence(&mut self, from: Ps, until: Ps) {
        let earlier = self.silent_until.filter(|&end| end > from);
        if earlier.is_none() {
            self.silent_at = Some(from);
        }
        self.silent_until = earlier.max(Some(until));
    }

    fn is_gone(&self, now: Ps) -> bool {
        reached(self.gone_at, now)
    }

    fn refuses(&self, now: Ps, region: u8) -> bool {
        let refuses = reached(self.refuses_at, now) && !reached(self.refuses_until, now);
        self.is_gone(now) || refuses && self.refuses_region.is_none_or(|only| only == region)
    }

    /// True while the device is silent, for now or for ever.
    fn is_mute(&self, now: Ps) -> bool {
        self.is_gone(now) || reached(self.silent_at, now) && !reached(self.silent_until, now)
    }

    /// The time when a silent device processes what it kept; None if it never does.
    fn speaks_again(&self, now: Ps) -> Option<Ps> {
        self.silent_until.filter(|_| !self.is_gone(now))
    }
}

fn reached(at: Option<Ps>, now: Ps) -> bool {
    at.is_some_and(|at| now >= at)
}

/// The wrapper's own event: processes a register write that came during a silence. No model uses this code.
const WRITE: u32 = (1 << 28) - 1;

/// Names of the faults, for [`Fact::Struck`].
const SILENT: &str = "silence";
const REFUSED: &str = "refused access";

/// A register write that waits for the end of a silence.
struct LateWrite {
    region: u8,
    offset: u32,
    width_bytes: u8,
    value: u64,
}

/// A model to which an [`Outage`] may happen. [`Model::as_any`] returns the inner model.
pub struct Unreliable<M> {
    model: M,
    outage: Outages,
    late_writes: VecDeque<LateWrite>,
    /// Pulled out by hand, until it is put in again.
    pulled: bool,
    lose_power: fn(&mut M, &mut World<'_>),
}

impl<M: Model> Unreliable<M> {
    /// Wraps `model`. `outage` controls its fate. Pulled out and put in, it is as it was.
    pub fn new(model: M, outage: Outages) -> Self {
        Self::removable(model, outage, |_, _| ())
    }

    /// Wraps a `model` that can be pulled out and put in again ([`crate::plug`]). `lose_power` makes it what it will be when
    /// its power comes on. Its earlier events still come, and must find nothing to act on or to send.
    pub fn removable(model: M, outage: Outages, lose_power: fn(&mut M, &mut World<'_>)) -> Self {
        Self { model, outage, late_writes: VecDeque::new(), pulled: false, lose_power }
    }

    fn plug(&mut self, world: &mut World<'_>, present: bool) {
        world.tell(|| Fact::Plugged { device: world.me(), present });
        self.pulled = !present;
        if self.pulled {
            self.late_writes.clear();
            (self.lose_power)(&mut self.model, world);
        }
    }
}

impl<M: Model> Model for Unreliable<M> {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn event(&mut self, world: &mut World<'_>, code: u32, arg: u64) {
        let (outage, now) = (self.outage.0.get(), world.now());
        if code == PLUG {
            return self.plug(world, arg != 0);
        }
        if outage.is_mute(now) {
            world.tell(|| Fact::Struck { source: world.me(), fault: SILENT });
            if let Some(until) = outage.speaks_again(now) {
                world.schedule(until, code, arg);
            }
        } else if code == WRITE {
            if let Some(LateWrite { region, offset, width_bytes, value }) = self.late_writes.pop_front() {
                self.model.write(world, region, offset, width_bytes, value);
            }
        } else {
            self.model.event(world, code, arg);
        }
    }

    fn read(&mut self, world: &mut World<'_>, region: u8, offset: u32, width_bytes: u8) -> u64 {
        if self.pulled {
            return all_ones(width_bytes);
        }
        if self.outage.0.get().refuses(world.now(), region) {
            world.tell(|| Fact::Struck { source: world.me(), fault: REFUSED });
            return all_ones(width_bytes);
        }
        self.model.read(world, region, offset, width_bytes)
    }

    fn write(&mut self, world: &mut World<'_>, region: u8, offset: u32, width_bytes: u8, value: u64) {
        let (outage, now) = (self.outage.0.get(), world.now());
        if self.pulled {
            return;
        }
        if outage.refuses(now, region) {
            return world.tell(|| Fact::Struck { source: world.me(), fault: REFUSED });
        }
        if !outage.is_mute(now) || outage.prompt_region == Some(region) {
            return self.model.write(world, region, offset, width_bytes, value);
        }
        world.tell(|| Fact::Struck { source: world.me(), fault: SILENT });
        if let Some(until) = outage.speaks_again(now) {
            self.late_writes.push_back(LateWrite { region, offset, width_bytes, value });
            world.schedule(until, WRITE, 0);
        }
    }

    fn write_order(&self, region: u8, offset: u32) -> u32 {
        self.model.write_order(region, offset)
    }

    fn is_trapped(&self) -> bool {
        self.model.is_trapped()
    }

    fn is_far(&self) -> bool {
        self.model.is_far()
    }

    fn access_costs(&self, region: u8, offset: u32) -> Option<AccessCosts> {
        self.model.access_costs(region, offset)
    }

    fn upstream(&mut self, world: &mut World<'_>, from: ModelId, request: Upstream) {
        self.model.upstream(world, from, request);
    }

    fn eoi_broadcast(&mut self, world: &mut World<'_>, vector: u8) {
        self.model.eoi_broadcast(world, vector);
    }

    fn uses(&self, range: &Range<u64>) -> Option<u64> {
        self.model.uses(range)
    }

    fn given_back(&mut self, range: &Range<u64>) -> Option<u64> {
        self.model.given_back(range)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.model.counters()
    }

    fn as_any(&mut self) -> &mut dyn core::any::Any {
        self.model.as_any()
    }
}

#[cfg(test)]
mod tests;
