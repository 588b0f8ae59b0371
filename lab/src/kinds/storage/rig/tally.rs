//! What the jobs of a server count: I/Os and latencies, apart for reads, writes, trims and flushes.

use super::course::End;
use super::meter::SharedMeter;
use crate::kinds::storage::JobEnd;
use crate::kinds::storage::detail::SteadyDetail;
use crate::outcome::histogram;
use drivers::nvme::IoOp;
use hdrhistogram::Histogram;
use std::sync::{Arc, Mutex};

/// Numbers of operations: reads, writes, trims, flushes.
pub(crate) const OPS: usize = 4;

/// The number of an operation among [`OPS`].
pub(crate) fn number_of(op: IoOp) -> usize {
    match op {
        IoOp::Read => 0,
        IoOp::Write => 1,
        IoOp::Deallocate => 2,
        IoOp::Flush => 3,
    }
}

/// A job's counters since they were last reset.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobCounts {
    /// I/Os by [`number_of`]; a flush is none of the job's I/Os.
    pub(crate) by_op: [u64; OPS],
    /// Bytes, likewise.
    pub(crate) bytes_by_op: [u64; OPS],
    pub(crate) errors: u64,
    /// Reads whose data differs from the drive's content.
    pub(crate) wrong_data: u64,
    /// The time from the driver's completion of a command until the application sees it, summed, in ns.
    pub(crate) handover_ns: u64,
    /// I/Os and bytes by the job's target and [`number_of`]; empty of a job with one drive.
    pub(crate) by_target: Vec<[(u64, u64); OPS]>,
    /// When the job began to count, and when it ended, by the machine's clock; none of a job that neither begins nor ends
    /// by itself.
    pub(crate) started_ns: Option<u64>,
    pub(crate) ended_ns: Option<u64>,
    /// Why it ended.
    pub(crate) end: Option<End>,
    /// The steady state that it waited for.
    pub(crate) steady: Option<SteadyDetail>,
    /// The depth that it found for its `latency_target`.
    pub(crate) depth: Option<u32>,
}

impl JobCounts {
    /// Reads, writes and trims.
    pub(crate) fn ios(&self) -> u64 {
        self.by_op[..3].iter().sum()
    }

    /// What was read and written; a trim has no payload.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes_by_op[..2].iter().sum()
    }

    /// From when the job began to count to its end, if it has ended.
    pub(crate) fn ran_ns(&self) -> Option<u64> {
        Some(self.ended_ns? - self.started_ns?)
    }

    /// What the job `name` did, if it has ended.
    pub(crate) fn job_end(&self, name: &str) -> Option<JobEnd> {
        let [reads, writes, trims, _] = self.by_op;
        let [read_bytes, write_bytes, trim_bytes, _] = self.bytes_by_op;
        Some(JobEnd {
            name: name.to_owned(),
            ios: [reads, writes, trims],
            bytes: [read_bytes, write_bytes, trim_bytes],
            ran_ns: self.ran_ns()?,
            reason: self.end?.to_string(),
        })
    }

    /// Counts an I/O to one of several drives.
    pub(crate) fn count_target(&mut self, target: usize, op: usize, bytes: u64) {
        if self.by_target.len() <= target {
            self.by_target.resize(target + 1, [(0, 0); OPS]);
        }
        let (ios, all_bytes) = &mut self.by_target[target][op];
        *ios += 1;
        *all_bytes += bytes;
    }

    /// The share of one drive, by its index among the job's targets.
    pub(crate) fn of_target(&self, target: usize) -> Self {
        let own = self.by_target.get(target).copied().unwrap_or([(0, 0); OPS]);
        Self {
            by_op: own.map(|(ios, _)| ios),
            bytes_by_op: own.map(|(_, bytes)| bytes),
            errors: if target == 0 { self.errors } else { 0 },
            wrong_data: if target == 0 { self.wrong_data } else { 0 },
            ..Self::default()
        }
    }

    /// Adds another job's counts.
    pub(crate) fn add(&mut self, other: &Self) {
        for op in 0..OPS {
            self.by_op[op] += other.by_op[op];
            self.bytes_by_op[op] += other.bytes_by_op[op];
        }
        self.errors += other.errors;
        self.wrong_data += other.wrong_data;
        self.handover_ns += other.handover_ns;
    }
}

/// The latencies of all jobs of a server together. One histogram stays in the host's cache; one per job would not.
#[derive(Clone, Debug)]
pub(crate) struct Latencies {
    /// The time from before the submitting call until the application sees the completion, in ns, by [`number_of`].
    pub(crate) by_op: [Histogram<u64>; OPS],
    /// The time inside each submitting call, in ns.
    pub(crate) submission: Histogram<u64>,
}

impl Latencies {
    pub(crate) fn new() -> Self {
        Self { by_op: [(); OPS].map(|()| histogram()), submission: histogram() }
    }

    /// Adds those of other jobs.
    pub(crate) fn add(&mut self, other: &Self) {
        let own = self.by_op.iter_mut().chain([&mut self.submission]);
        for (own, other) in own.zip(other.by_op.iter().chain([&other.submission])) {
            own.add(other).expect("the histograms have the same bounds");
        }
    }

    /// Of reads, writes and trims together.
    pub(crate) fn completion(&self) -> Histogram<u64> {
        let mut all = self.by_op[0].clone();
        for other in &self.by_op[1..3] {
            if !other.is_empty() {
                all.add(other).expect("the histograms have the same bounds");
            }
        }
        all
    }
}

/// A job's counters. The job's thread writes them, and the rig reads them between runs of the machine.
pub(crate) type Counts = Arc<Mutex<JobCounts>>;

/// The counters of a server's jobs.
pub(crate) struct Tally {
    /// One a job.
    pub(crate) jobs: Vec<Counts>,
    pub(crate) latencies: Arc<Mutex<Latencies>>,
    /// One a job, if threads are measured apart.
    pub(crate) meters: Vec<SharedMeter>,
    /// The CPU time of each thread, from the phase that it was in; empty: shared out over the span.
    pub(crate) cpu_ns: Vec<[u64; 2]>,
}

impl Tally {
    /// Zeroed counters for this many jobs, and their meters.
    pub(crate) fn new(jobs: usize, meters: Vec<SharedMeter>) -> Self {
        let latencies = Arc::new(Mutex::new(Latencies::new()));
        Self { jobs: (0..jobs).map(|_| Counts::default()).collect(), latencies, meters, cpu_ns: Vec::new() }
    }

    /// I/Os of all jobs since the last reset. The machine must stand still.
    pub(crate) fn ios(&self) -> u64 {
        self.jobs.iter().map(|counts| counts.lock().expect("the machine stands still").ios()).sum()
    }

    /// Resets the counters to zero. The machine must stand still.
    pub(crate) fn reset(&self, now_ns: u64) {
        for meter in &self.meters {
            meter.lock().expect("the machine stands still").reset(now_ns);
        }
        for counts in &self.jobs {
            *counts.lock().expect("the machine stands still") = JobCounts::default();
        }
        *self.latencies.lock().expect("the machine stands still") = Latencies::new();
    }
}
