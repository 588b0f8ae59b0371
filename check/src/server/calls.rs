//! Calls of other CPUs, as a kernel makes them: a call is noted, and only the first for a CPU that has none sends an IPI. If that
//! is lost, nobody calls that CPU ever again.

use super::Host;
use hal::{CpuId, Hal as _};
use irq::Vector;
use machine::SimHal;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The vector of calls.
pub(super) const CALL: Vector = Vector(0xfb);

/// By CPU, whether calls wait there.
pub(super) struct Calls(Vec<AtomicBool>);

impl Calls {
    pub(super) fn new(cpus: u32) -> Self {
        Self((0..cpus).map(|_| AtomicBool::new(false)).collect())
    }

    /// This CPU takes what waits for it: the interrupt has come, or it goes offline.
    pub(super) fn take(&self) {
        self.0[SimHal.cpu().index()].store(false, Relaxed);
    }

    pub(super) fn any_waits(&self, cpu: CpuId) -> bool {
        self.0[cpu.index()].load(Relaxed)
    }
}

impl Host {
    /// Calls another CPU, if it is online.
    pub(crate) fn call(&self, cpu: CpuId) {
        // Nothing else runs between the look and the note: only points of the seam let others in.
        if cpu == SimHal.cpu() || !self.watch.is_online(cpu) || self.calls.0[cpu.index()].swap(true, Relaxed) {
            return;
        }
        if let Err(error) = self.pc.lapic().send(cpu, CALL) {
            self.watch.violation(format!("call of CPU {cpu}: {error}"));
        }
    }
}
