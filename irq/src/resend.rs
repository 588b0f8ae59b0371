//! Interrupts that the hardware could not bring back at once.
//!
//! A line that comes back enabled fires once more if it is marked as pending. The hardware may be unable to do that at
//! the moment: a local APIC is still busy with another interrupt, an ITS refuses a command. Its device waits, and will
//! not interrupt again. So housekeeping tries again, each time after twice the time.

use crate::delivery::IrqCore;
use crate::line::LineState;
use hal::Hal;

/// The longest time between two tries. Each may wait for a controller that does not answer.
const WAIT_NS_MAX: u64 = 1_000_000_000;

/// When the next try of a pending line is due. Has a meaning only while [`LineState::waits_for_resend`].
#[derive(Clone, Copy, Default)]
pub(crate) struct Resend {
    due_ns: u64,
    /// The time between the last try and the next.
    wait_ns: u64,
}

impl<H: Hal> IrqCore<H> {
    /// Unmasks the line if it may deliver, and brings back an interrupt that came meanwhile: now, or as soon as the
    /// hardware can.
    pub(crate) fn unmask(&self, state: &mut LineState) {
        state.unmask();
        if state.waits_for_resend() {
            self.resend_later(state, 0);
        }
    }

    /// Lets housekeeping bring the line's pending interrupt back, after `wait_ns` or a message's longest time.
    #[cold]
    pub(crate) fn resend_later(&self, state: &mut LineState, wait_ns: u64) {
        let wait_ns = wait_ns.min(WAIT_NS_MAX).max(self.config.flight_ns).max(1);
        let due_ns = self.hal.now_ns().saturating_add(wait_ns);
        state.resend = Resend { due_ns, wait_ns };
        // Any CPU does for a line without a target of its own.
        let own = state.target().map(|target| target.cpu);
        if let Some(cpu) = own.or_else(|| self.matrix.lock().online().iter().next()) {
            self.schedule(cpu, due_ns);
        }
    }

    /// Tries again if that is due. This is housekeeping of the current CPU, which began at `now_ns`.
    pub(crate) fn resend_due(&self, state: &mut LineState, now_ns: u64) {
        if !state.waits_for_resend() {
            return;
        }
        let Resend { due_ns, wait_ns } = state.resend;
        if due_ns > now_ns {
            return self.schedule(self.hal.cpu(), due_ns);
        }
        // A line that its threads hold back is not tried: the last of them does that, and cannot look again.
        let next_ns = if state.is_held() { 0 } else { wait_ns.saturating_mul(2) };
        state.unmask();
        if state.waits_for_resend() {
            self.resend_later(state, next_ns);
        }
    }
}
