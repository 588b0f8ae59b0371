//! What a job tells its meter.

use super::job::{Job, UnderWay};
use super::meter::Operation;
use drivers::nvme::{IoOp, IoRequest};
use hal::Hal as _;
use machine::SimHal;

impl Job {
    /// The meter sees the call that began at `start_ns` and submitted `batch`.
    pub(super) fn measure_call(&self, batch: &[IoRequest], start_ns: u64) {
        let Some(meter) = &self.parts.meter else { return };
        let mut last = u64::MAX;
        // The commands of a split I/O follow each other.
        let ios = batch.iter().filter(|io| std::mem::replace(&mut last, io.tag) != io.tag);
        let operations = ios.map(|io| self.operation(io.tag as u32));
        let depth = (self.under_way.len() - self.free.len()) as u64;
        let call_ns = [start_ns, SimHal.now_ns()];
        meter.lock().expect("no panic while a meter is held").submitted(operations, call_ns, depth);
    }

    /// The meter sees a sync that found nothing to flush.
    pub(super) fn measure_sync(&self, ns: u64) {
        if let Some(meter) = &self.parts.meter {
            meter.lock().expect("no panic while a meter is held").synced(ns);
        }
    }

    /// The operation under way on `buffer`.
    pub(super) fn operation(&self, buffer: u32) -> Operation {
        let UnderWay { op, lba, len_bytes, target } = self.under_way[buffer as usize];
        let target = &self.parts.targets[target as usize];
        let bytes = if op == IoOp::Flush { 0 } else { u64::from(len_bytes) };
        Operation { op, slot: buffer, offset: lba * u64::from(target.lba_bytes), bytes, drive: target.drive as u32 }
    }

    /// The meter sees a call that took completions.
    pub(super) fn measure_reaping(&self, taken: u64, slept: bool) {
        if let Some(meter) = &self.parts.meter {
            meter.lock().expect("no panic while a meter is held").reaped(taken, slept);
        }
    }

    /// Measuring begins anew.
    pub(super) fn restart_meter(&self, now_ns: u64) {
        if let Some(meter) = &self.parts.meter {
            meter.lock().expect("no panic while a meter is held").reset(now_ns);
        }
    }
}
