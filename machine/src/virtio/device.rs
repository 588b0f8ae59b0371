//! The transport-independent part of a device, and its operations.

use super::common::Common;
use super::either::Ring;
use super::ring::{Chain, QueueError};
use crate::time::Ps;
use crate::world::World;
use spec::virtio::DeviceId;
use spec::virtio::feature::{Feature, Features};

/// A kind of device: its features, its queues' meaning, its configuration.
pub trait Device: 'static {
    /// The kind.
    fn id(&self) -> DeviceId;

    /// Features of the kind; those of rings and transport are not its own.
    fn features(&self) -> Features;

    /// Most entries of each queue.
    fn queue_entries(&self) -> Vec<u16>;

    /// Its configuration space now.
    fn config(&self) -> Vec<u8>;

    /// The driver notifies of new buffers in `queue`, which is ready.
    fn kicked(&mut self, bus: &mut Bus<'_, '_>, queue: u16);

    /// An event that it scheduled, or that a test or the laboratory sends.
    fn event(&mut self, bus: &mut Bus<'_, '_>, code: u32, arg: u64);

    /// The driver has started it.
    fn started(&mut self, _bus: &mut Bus<'_, '_>) {}

    /// The driver has reset one queue: the device must forget the queue's state.
    fn queue_reset(&mut self, _queue: u16) {}

    /// The driver has reset the device: pending events are void.
    fn reset(&mut self) {}

    /// Cumulative counters, as [`crate::model::Model::counters`].
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// How interrupts leave the device.
pub(super) trait Wire {
    /// Raises a vector. Returns how long this keeps the sender busy.
    fn raise(&mut self, world: &mut World<'_>, common: &Common, cause: Cause) -> Ps;
}

/// Why an interrupt is raised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cause {
    /// Buffers were used, in a queue with this vector.
    Used(u16),
    /// The configuration changed, or the device needs a reset.
    Config,
}

/// A device's view of its transport and machine while it handles one call.
pub struct Bus<'a, 'w> {
    pub(super) world: &'a mut World<'w>,
    pub(super) common: &'a mut Common,
    pub(super) wire: &'a mut dyn Wire,
}

impl<'w> Bus<'_, 'w> {
    /// The machine.
    pub fn world(&mut self) -> &mut World<'w> {
        self.world
    }

    /// The present.
    pub fn now(&self) -> Ps {
        self.world.now()
    }

    /// Sends the device an event after `delay`.
    pub fn schedule(&mut self, delay: Ps, code: u32, arg: u64) {
        self.world.schedule(self.world.now() + delay, code, arg);
    }

    /// Whether the driver has accepted `feature`.
    pub fn has(&self, feature: Feature) -> bool {
        self.common.has(feature)
    }

    /// Whether the driver has started the device and nothing has broken it since.
    pub fn is_running(&self) -> bool {
        self.common.is_running()
    }

    /// Whether `queue` is ready.
    pub fn is_ready(&self, queue: u16) -> bool {
        self.common.queues.get(usize::from(queue)).is_some_and(|queue| queue.ring.is_some())
    }

    /// The driver made an error that the device cannot handle. Records it and stops the device until a reset (VIRTIO
    /// 2.1.2: sets DEVICE_NEEDS_RESET, and announces it by a configuration change if the driver has started the
    /// device).
    pub fn fail(&mut self, kind: &'static str, text: String) {
        self.common.fault(self.world, kind, text);
        if !self.common.status.needs_reset() {
            self.common.status.set_needs_reset(true);
            if self.common.status.driver_ok() {
                self.config_changed();
            }
        }
    }

    /// Signals a change of the configuration to the driver.
    pub(super) fn config_changed(&mut self) {
        self.common.config_generation = self.common.config_generation.wrapping_add(1);
        self.wire.raise(self.world, self.common, Cause::Config);
    }

    /// The configuration changes. The driver hears of it if it has started the device; until then only the generation tells
    /// (VIRTIO 1.3, 2.5).
    pub(super) fn announce(&mut self) {
        if self.common.is_running() {
            self.config_changed();
        } else {
            self.common.config_generation = self.common.config_generation.wrapping_add(1);
        }
    }

    /// Runs an operation on a ring of a running device. An error of the driver stops the device.
    fn with<R>(
        &mut self,
        queue: u16,
        act: impl FnOnce(&mut Ring, &mut World<'w>) -> Result<R, QueueError>,
    ) -> Option<R> {
        if self.common.status.needs_reset() {
            return None;
        }
        let ring = self.common.queues.get_mut(usize::from(queue))?.ring.as_mut()?;
        match act(ring, self.world) {
            Ok(value) => Some(value),
            Err(error) => {
                self.fail("virtio driver broke a queue", format!("queue {queue}: {error}"));
                None
            }
        }
    }

    /// Takes the next chain of `queue` into `chain`; false when there is none.
    pub fn take(&mut self, queue: u16, chain: &mut Chain) -> bool {
        self.is_running() && self.with(queue, |ring, world| ring.take(world, chain)) == Some(true)
    }

    /// Gives a chain back; seen with [`Self::publish`].
    pub fn fill(&mut self, queue: u16, head: u16, written_bytes: u32) {
        self.with(queue, |ring, world| ring.fill(world, head, written_bytes));
    }

    /// Shows the returned chains to the driver. Returns their number.
    pub fn publish(&mut self, queue: u16) -> u16 {
        self.with(queue, |ring, world| ring.publish(world)).unwrap_or(0)
    }

    /// Notifies the driver of published buffers, if it wants that. Returns how long the interrupt keeps its sender
    /// busy: zero when none is sent.
    pub fn notify(&mut self, queue: u16) -> Ps {
        if self.with(queue, |ring, world| ring.wants_notification(world)) != Some(true) {
            return Ps(0);
        }
        let vector = self.common.queues[usize::from(queue)].vector;
        self.wire.raise(self.world, self.common, Cause::Used(vector))
    }

    /// Asks the driver to notify of new buffers in `queue`, or not to. Returns whether one is there already.
    pub fn want_kicks(&mut self, queue: u16, wanted: bool) -> bool {
        self.with(queue, |ring, world| ring.want_kicks(world, wanted)) == Some(true)
    }
}
