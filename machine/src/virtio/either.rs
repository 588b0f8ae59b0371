//! A queue in the format that was negotiated: split or packed.

use super::packed::PackedRing;
use super::ring::{Chain, Layout, QueueError, RingFeatures, SplitRing};
use crate::world::World;

enum Format {
    Split(SplitRing),
    Packed(PackedRing),
}

/// One queue in operation.
pub(super) struct Ring(Format);

impl Ring {
    /// A queue that starts at its first entry.
    ///
    /// # Errors
    /// [`QueueError`] for a bad size or alignment, or an area outside memory.
    pub(super) fn new(world: &World<'_>, layout: Layout, features: RingFeatures) -> Result<Self, QueueError> {
        Ok(Self(if features.packed {
            Format::Packed(PackedRing::new(world, layout, features)?)
        } else {
            Format::Split(SplitRing::new(world, layout, features)?)
        }))
    }

    /// Takes the next chain into `chain`; false when there is none.
    ///
    /// # Errors
    /// [`QueueError`]. No further chain can be taken then.
    pub(super) fn take(&mut self, world: &World<'_>, chain: &mut Chain) -> Result<bool, QueueError> {
        match &mut self.0 {
            Format::Split(ring) => ring.take(world, chain),
            Format::Packed(ring) => ring.take(world, chain),
        }
    }

    /// Gives a chain back, of which `written_bytes` were written. The driver sees it after [`Self::publish`].
    ///
    /// # Errors
    /// No memory there.
    pub(super) fn fill(&mut self, world: &mut World<'_>, head: u16, written_bytes: u32) -> Result<(), QueueError> {
        match &mut self.0 {
            Format::Split(ring) => ring.fill(world, head, written_bytes),
            Format::Packed(ring) => ring.fill(world, head, written_bytes),
        }
    }

    /// Shows the filled entries to the driver. Returns their number.
    ///
    /// # Errors
    /// No memory there.
    pub(super) fn publish(&mut self, world: &mut World<'_>) -> Result<u16, QueueError> {
        match &mut self.0 {
            Format::Split(ring) => ring.publish(world),
            Format::Packed(ring) => ring.publish(world),
        }
    }

    /// Whether the driver wants to be notified of what was published since the last time that this was asked
    /// (VIRTIO 2.7.7.2, 2.8.10).
    ///
    /// # Errors
    /// No memory there, or a wish that the standard reserves.
    pub(super) fn wants_notification(&mut self, world: &World<'_>) -> Result<bool, QueueError> {
        match &mut self.0 {
            Format::Split(ring) => ring.wants_notification(world),
            Format::Packed(ring) => ring.wants_notification(world),
        }
    }

    /// Asks the driver to notify of the next buffer, or not to. Returns whether one is there already: it may have come
    /// without a notification.
    ///
    /// # Errors
    /// No memory there, or an index that jumps.
    pub(super) fn want_kicks(&mut self, world: &mut World<'_>, wanted: bool) -> Result<bool, QueueError> {
        match &mut self.0 {
            Format::Split(ring) => ring.want_kicks(world, wanted),
            Format::Packed(ring) => ring.want_kicks(world, wanted),
        }
    }

    /// Misbehaves: publishes `by` entries that were never filled.
    pub(super) fn jump(&mut self, world: &mut World<'_>, by: u16) -> Result<(), QueueError> {
        match &mut self.0 {
            Format::Split(ring) => ring.jump(world, by),
            Format::Packed(ring) => ring.jump(world, by),
        }
    }
}
