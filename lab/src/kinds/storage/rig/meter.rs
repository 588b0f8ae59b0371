//! What a job's thread measures of itself for a report as fio makes it. A run that asks for no such report has none.

use super::tally::number_of;
use crate::fio::stat;
use crate::kinds::storage::detail::{Io, Issue, ThreadDetail};
use drivers::nvme::IoOp;
use std::sync::{Arc, Mutex};

/// Reads, writes and trims; a flush is none of a job's I/Os.
const DIRECTIONS: usize = 3;

/// What to keep beside the statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Keep {
    /// The call that submits an I/O returns when it is done: fio has no submission latency then, and counts the whole call as
    /// completion.
    pub(crate) waits: bool,
    /// Every I/O that ends, for logs.
    pub(crate) ios: bool,
    /// Every I/O that is issued, for `write_iolog`.
    pub(crate) issues: bool,
    /// Most entries of each of the two.
    pub(crate) entries_max: usize,
    /// Length of a window of bandwidth and of IOPS, in ns.
    pub(crate) window_ns: [u64; 2],
}

/// A thread's meter. The thread writes it, and the rig reads it between runs of the machine.
pub(crate) type SharedMeter = Arc<Mutex<Meter>>;

/// An operation that begins or ends.
#[derive(Clone, Copy)]
pub(crate) struct Operation {
    pub(crate) op: IoOp,
    /// Its place among the operations that the thread can have under way.
    pub(crate) slot: u32,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    /// Index of its drive.
    pub(crate) drive: u32,
}

/// The measurements of one thread since the last reset.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    keep: Keep,
    start_ns: u64,
    /// For each slot, when its operation's call began, and how long the call took.
    calls: Vec<(u64, u64)>,
    windows: [Window; 2],
    detail: ThreadDetail,
}

/// Sums of one window.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    number: u64,
    sums: [u64; DIRECTIONS],
}

impl Meter {
    /// A meter of a thread with so many slots.
    pub(crate) fn new(keep: Keep) -> SharedMeter {
        Arc::new(Mutex::new(Self { keep, ..Self::default() }))
    }

    /// Counting begins anew. What is under way keeps the beginning of its call.
    pub(crate) fn reset(&mut self, now_ns: u64) {
        self.start_ns = now_ns;
        self.windows = Default::default();
        self.detail = ThreadDetail::default();
    }

    /// A call has submitted these operations; `depth` are under way now.
    pub(crate) fn submitted(&mut self, operations: impl Iterator<Item = Operation>, call_ns: [u64; 2], depth: u64) {
        let [began_ns, ended_ns] = call_ns;
        let slat_ns = if self.keep.waits { 0 } else { ended_ns - began_ns };
        let mut count = 0;
        for operation in operations {
            let slot = operation.slot as usize;
            if slot >= self.calls.len() {
                self.calls.resize(slot + 1, (0, 0));
            }
            self.calls[slot] = (began_ns, slat_ns);
            count += 1;
            if self.keep.issues && self.detail.issues.len() >= self.keep.entries_max {
                self.detail.left_out += 1;
            } else if self.keep.issues {
                let at_ns = began_ns.saturating_sub(self.start_ns);
                let Operation { op, offset, bytes, drive, .. } = operation;
                self.detail.issues.push(Issue { at_ns, direction: number_of(op) as u8, offset, bytes, drive });
            }
        }
        self.detail.depths[stat::depth_class(depth)] += count;
        self.detail.submits[stat::batch_class(count)] += 1;
    }

    /// A sync that found nothing to flush has returned after `ns`.
    pub(crate) fn synced(&mut self, ns: u64) {
        self.detail.ios[DIRECTIONS] += 1;
        self.detail.sync.add(ns);
    }

    /// The thread has taken so many completions at once; it slept before if it had to wait for them.
    pub(crate) fn reaped(&mut self, count: u64, slept: bool) {
        self.detail.completes[stat::batch_class(count)] += 1;
        self.detail.waits += u64::from(slept);
    }

    /// The thread sees the end of an operation whose command went to the drive at `issued_ns`.
    pub(crate) fn ended(&mut self, operation: Operation, issued_ns: u64, now_ns: u64) {
        let Operation { op, slot, offset, bytes, drive } = operation;
        let (began_ns, slat_ns) = self.calls.get(slot as usize).copied().unwrap_or((issued_ns, 0));
        let under_way_ns = now_ns.saturating_sub(issued_ns);
        let detail = &mut self.detail;
        let number = number_of(op);
        detail.ios[number] += 1;
        if number >= DIRECTIONS {
            detail.sync.add(under_way_ns);
            return;
        }
        let lat_ns = now_ns.saturating_sub(began_ns).max(under_way_ns);
        // fio's completion begins at the end of the call.
        let slat_ns = slat_ns.min(lat_ns);
        let clat_ns = lat_ns - slat_ns;
        detail.bytes[number] += bytes;
        if !self.keep.waits {
            detail.slat[number].add(slat_ns);
        }
        detail.clat[number].add(clat_ns);
        detail.lat[number].add(lat_ns);
        detail.classes[stat::class_of(clat_ns)] += 1;
        let sums = detail.drives.entry(drive).or_default();
        sums.ios[number] += 1;
        sums.ns[number] += under_way_ns;
        self.count_in_windows(number, bytes, now_ns);
        if self.keep.ios && self.detail.log.len() >= self.keep.entries_max {
            self.detail.left_out += 1;
        } else if self.keep.ios {
            let at_ns = now_ns - self.start_ns;
            let latency_ns = [slat_ns, clat_ns, lat_ns];
            self.detail.log.push(Io { at_ns, direction: number as u8, latency_ns, offset, bytes });
        }
    }

    fn count_in_windows(&mut self, direction: usize, bytes: u64, now_ns: u64) {
        for (which, each) in [bytes, 1].into_iter().enumerate() {
            let length_ns = self.keep.window_ns[which].max(1);
            let number = (now_ns - self.start_ns) / length_ns;
            if number != self.windows[which].number {
                self.close(which);
                self.windows[which].number = number;
            }
            self.windows[which].sums[direction] += each;
        }
    }

    /// A window has passed: its sums become rates.
    fn close(&mut self, which: usize) {
        let sums = std::mem::take(&mut self.windows[which].sums);
        let per_second = 1e9 / self.keep.window_ns[which].max(1) as f64;
        let unit = if which == 0 { 1024.0 } else { 1.0 };
        for (direction, sum) in sums.into_iter().enumerate().filter(|(_, sum)| *sum > 0) {
            self.detail.rates[which][direction].add((sum as f64 * per_second / unit) as u64);
        }
    }

    /// Gives away the measurements until `now_ns`. A window that has not passed yet does not count, as in fio.
    pub(crate) fn take_detail(&mut self, now_ns: u64) -> ThreadDetail {
        ThreadDetail { span_ns: now_ns.saturating_sub(self.start_ns), ..std::mem::take(&mut self.detail) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(slot: u32, bytes: u64) -> Operation {
        Operation { op: IoOp::Read, slot, offset: 8192, bytes, drive: 0 }
    }

    #[test]
    fn latencies_are_the_call_and_what_follows() {
        let keep = Keep { ios: true, issues: true, entries_max: 1, window_ns: [1_000_000; 2], ..Keep::default() };
        let meter = Meter::new(keep);
        let mut meter = meter.lock().unwrap();
        meter.reset(1_000);
        meter.submitted([read(0, 4096), read(3, 4096)].into_iter(), [2_000, 2_500], 2);
        meter.ended(read(3, 4096), 2_400, 12_000);
        meter.ended(Operation { op: IoOp::Flush, ..read(0, 0) }, 2_400, 22_000);
        let detail = meter.take_detail(1_001_000);
        assert_eq!((detail.ios, detail.bytes[0], detail.span_ns), ([1, 0, 0, 1], 4096, 1_000_000));
        let means = [&detail.slat[0], &detail.clat[0], &detail.lat[0], &detail.sync].map(|stat| stat.moments.mean);
        assert_eq!(means, [500.0, 9_500.0, 10_000.0, 19_600.0]);
        assert_eq!((detail.depths[1], detail.submits[1], detail.classes[12]), (2, 1, 1));
        let io = Io { at_ns: 11_000, direction: 0, latency_ns: [500, 9_500, 10_000], offset: 8192, bytes: 4096 };
        assert_eq!((&detail.log[..], detail.issues.len(), detail.issues[0].at_ns), (&[io][..], 1, 1_000));
        assert_eq!(detail.left_out, 1, "the log is full");
    }

    #[test]
    fn a_call_that_waits_is_all_completion() {
        let meter = Meter::new(Keep { waits: true, ..Keep::default() });
        let mut meter = meter.lock().unwrap();
        meter.submitted([read(0, 4096)].into_iter(), [2_000, 2_500], 1);
        meter.ended(read(0, 4096), 2_400, 12_000);
        let detail = meter.take_detail(12_000);
        let [slat, clat, lat] = [&detail.slat[0], &detail.clat[0], &detail.lat[0]];
        assert_eq!((slat.moments.count, clat.moments.mean, lat.moments.mean), (0, 10_000.0, 10_000.0));
    }

    #[test]
    fn rates_are_those_of_whole_windows() {
        let meter = Meter::new(Keep { window_ns: [1_000_000, 2_000_000], ..Keep::default() });
        let mut meter = meter.lock().unwrap();
        meter.reset(0);
        // 1 MiB in the first ms, 3 MiB in the third, and one I/O in the fifth, which does not end.
        for at_ns in [500_000, 2_100_000, 2_200_000, 2_300_000, 4_200_000] {
            meter.ended(read(0, 1 << 20), at_ns - 100_000, at_ns);
        }
        let [bw, iops] = &meter.take_detail(4_300_000).rates;
        assert_eq!((bw[0].count, bw[0].min, bw[0].max), (2, 1_024_000, 3_072_000), "KiB/s");
        assert_eq!((iops[0].count, iops[0].min, iops[0].max), (2, 500, 1_500));
        assert_eq!(bw[1].count, 0);
    }
}
