//! The local APICs' timers, for the alarm.

use super::vectors::{LOCAL_TIMER, RESCHEDULE};
use crate::CpuTimers;
use alloc::sync::Arc;
use drivers::apic::Lapic;
use hal::{CpuId, Hal};
use spec::apic::TimerDivide;

/// The timers of all CPUs, in one-shot mode.
pub(super) struct ApicTimers<H: Hal> {
    pub(super) lapic: Arc<Lapic<H>>,
    /// Ticks a second.
    pub(super) hz: u64,
}

impl<H: Hal> CpuTimers for ApicTimers<H> {
    fn arm(&self, wait_ns: u64) {
        let ticks = (u128::from(wait_ns) * u128::from(self.hz)).div_ceil(1_000_000_000);
        self.lapic.start_timer(LOCAL_TIMER, TimerDivide::BY_1, ticks.clamp(1, u32::MAX.into()) as u32);
    }

    fn stop(&self) {
        self.lapic.stop_timer();
    }

    fn nudge(&self, cpu: CpuId) {
        // A CPU that cannot be reached now checks its deadlines when it comes online, and at each of its interrupts.
        _ = self.lapic.send(cpu, RESCHEDULE);
    }
}
