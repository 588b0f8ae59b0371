//! From a posted entry to a message: the window in which entries share a message, and repeated messages.

use super::config::Resend;
use super::{Nvme, code};
use crate::time::Ps;
use crate::world::World;

/// One MSI-X vector's state in the controller.
#[derive(Clone, Copy, Default)]
pub(super) struct Vector {
    /// A window is open: a message will follow.
    pub(super) armed: bool,
    /// End of the window.
    window_end: Ps,
    /// A message was sent and no head doorbell has followed ([`Resend::AfterDoorbell`]).
    unanswered: bool,
    /// Entries posted that the host has not acknowledged, over the queues of the vector.
    pub(super) unacknowledged: u32,
    /// Entries that coalescing holds back.
    pub(super) held: u32,
    /// Distinguishes the current coalescing timer from stale ones.
    pub(super) generation: u32,
}

impl Vector {
    /// A controller reset. The generation continues, so that earlier events are recognised as stale.
    pub(super) fn reset(&mut self) {
        *self = Self { generation: self.generation.wrapping_add(1), ..Self::default() };
    }
}

impl Nvme {
    fn vector(&mut self, vector: u16) -> &mut Vector {
        &mut self.vectors[usize::from(vector)]
    }

    /// An entry was posted to a completion queue of `vector`.
    pub(super) fn posted(&mut self, world: &mut World<'_>, vector: u16, admin: bool) {
        let state = self.vector(vector);
        state.unacknowledged += 1;
        if state.armed {
            self.counters.message_wait_ps += state.window_end.saturating_sub(world.now()).0;
            self.counters.msis_merged += 1;
        } else if admin || !self.hold_back(world, vector) {
            self.arm(world, vector);
        }
    }

    /// Opens the window after which a message is sent.
    pub(super) fn arm(&mut self, world: &mut World<'_>, vector: u16) {
        self.release_held(vector);
        let resend = self.config.resend;
        let state = self.vector(vector);
        if state.armed || (resend == Resend::AfterDoorbell && state.unanswered) {
            return;
        }
        state.armed = true;
        let window = world.jitter(self.config.timing.msi);
        let at = world.now() + window;
        self.vector(vector).window_end = at;
        self.counters.message_wait_ps += window.0;
        world.schedule(at, code::MESSAGE, u64::from(self.controller.epoch) << 32 | u64::from(vector));
    }

    /// Signals again after a signal for an entry that the host could not see.
    pub(super) fn signal_again(&mut self, world: &mut World<'_>, vector: u16) {
        self.vector(vector).unanswered = false;
        self.arm(world, vector);
    }

    pub(super) fn window_ends(&mut self, world: &mut World<'_>, arg: u64) {
        if arg >> 32 != u64::from(self.controller.epoch) {
            return;
        }
        let vector = arg as u16;
        let resend = self.config.resend;
        let state = self.vector(vector);
        state.armed = false;
        if state.unacknowledged == 0 && resend != Resend::PerEntry {
            self.counters.msis_spared += 1;
            return;
        }
        state.unanswered = true;
        self.signal(world, vector);
    }

    /// A vector's message is due; the fault plan may drop it.
    fn signal(&mut self, world: &mut World<'_>, vector: u16) {
        self.messages_tried += 1;
        if self.config.faults.drop_msi == Some(self.messages_tried) {
            self.pci.lose();
        } else {
            self.pci.signal(world, vector);
        }
    }

    /// The host has acknowledged `taken` entries of a queue of `vector`.
    pub(super) fn acknowledged(&mut self, world: &mut World<'_>, vector: u16, taken: u32) {
        let state = self.vector(vector);
        state.unacknowledged = state.unacknowledged.saturating_sub(taken);
        let again = core::mem::take(&mut state.unanswered) && state.unacknowledged > 0 && state.held == 0;
        if state.unacknowledged == 0 {
            // The condition is gone: no entry is held, and unmasking sends no message (PCI, "Per-vector Masking and
            // Function Masking": the pending bit must be cleared).
            self.release_held(vector);
            self.pci.clear_pending(vector);
        } else if again && self.config.resend == Resend::AfterDoorbell {
            self.arm(world, vector);
        }
    }

    /// A completion queue of `vector` is deleted with so many entries unacknowledged.
    pub(super) fn forget_entries(&mut self, vector: u16, entries: u32) {
        let state = self.vector(vector);
        state.unacknowledged = state.unacknowledged.saturating_sub(entries);
        if state.unacknowledged == 0 {
            self.release_held(vector);
            self.pci.clear_pending(vector);
        }
    }
}
