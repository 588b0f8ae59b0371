//! What a job checks behind its I/Os: its time, minimal rates, the latency target, the steady state, and its data.

use super::End;
use super::run::{Course, Progress};
use super::target::Verdict;
use super::walk::Next;
use crate::kinds::storage::IoEngine;
use crate::kinds::storage::rig::tally::JobCounts;
use hal::Hal as _;
use machine::SimHal;

impl Course {
    /// Sets the job's end if its time is over. True if the job ends.
    pub(super) fn is_over(&mut self) -> bool {
        if self.end.is_some() {
            return true;
        }
        let now_ns = SimHal.now_ns();
        let ends = &self.load.ends;
        if self.in_ramp && now_ns >= self.begun_ns.saturating_add(ends.ramp_ns) {
            self.in_ramp = false;
            self.job.silent = false;
            self.begin_to_count(now_ns);
        }
        let ends = &self.load.ends;
        let index = self.job.parts.index;
        if !self.in_ramp && ends.runtime_ns.is_some_and(|ns| now_ns - self.epoch_ns >= ns) {
            self.end = Some(End::Runtime);
        } else if ends.own_span_ns().is_some_and(|ns| now_ns - self.begun_ns >= ns) {
            self.end = Some(End::Span);
        } else if let Some(end) = self.shared.starter.as_ref().and_then(|starter| starter.stopped_by(index)) {
            self.end = Some(end);
        }
        self.end.is_some()
    }

    /// Counting begins, after the ramp or with the last window of a latency target: what came before does not count for
    /// results, nor for times and rates. The bytes issued before do count for the job's end, as in fio.
    fn begin_to_count(&mut self, now_ns: u64) {
        self.epoch_ns = now_ns;
        self.progress = Progress { issued: self.progress.issued, ..Progress::default() };
        self.walk.count_anew();
        self.rates.restart();
        self.job.restart_meter(now_ns);
        self.job.counts(|counts| *counts = JobCounts { started_ns: Some(now_ns), ..JobCounts::default() });
        self.begin_settling();
    }

    pub(super) fn since_epoch_ns(&self) -> u64 {
        SimHal.now_ns() - self.epoch_ns
    }

    /// How long the job may still run.
    pub(super) fn left_ns(&self) -> u64 {
        let now_ns = SimHal.now_ns();
        let ends = &self.load.ends;
        let until =
            |from_ns: u64, ns: Option<u64>| ns.map_or(u64::MAX, |ns| from_ns.saturating_add(ns).saturating_sub(now_ns));
        let ramp_ns = if self.in_ramp { ends.ramp_ns } else { 0 };
        let runtime = ends.runtime_ns.map(|ns| ns.saturating_add(ramp_ns));
        until(self.epoch_ns, runtime).min(until(self.begun_ns, ends.own_span_ns()))
    }

    /// Reads what the pass has written.
    pub(super) fn verify(&mut self) {
        let mut written = std::mem::take(&mut self.written);
        written.sort_by_key(|next| (next.file, next.offset, next.bytes));
        written.dedup();
        for next in written {
            if self.is_over() {
                break;
            }
            let read = Next { direction: 0, ..next };
            if self.job.parts.plan.engine == IoEngine::Null {
                self.do_nothing(read);
            } else {
                let waits = !matches!(self.job.parts.plan.engine, IoEngine::Libaio | IoEngine::IoUring { .. });
                self.do_direct(read, waits);
            }
            if self.is_full() {
                self.reap();
            }
        }
        self.quiesce();
    }

    /// Checks behind each I/O: minimal rates, the latency target, the steady state.
    pub(super) fn check(&mut self) {
        if self.in_ramp || self.end.is_some() {
            return;
        }
        let now_ns = SimHal.now_ns();
        if self.rates.is_limited() || self.load.pace.bytes_min != [0; 3] || self.load.pace.ios_min != [0; 3] {
            let progress = &self.progress;
            let done = std::array::from_fn(|direction| (progress.bytes[direction], progress.blocks[direction]));
            if self.rates.is_too_slow(&self.load.pace, now_ns - self.epoch_ns, &done) {
                self.end = Some(End::RateMin);
            }
        }
        if std::mem::take(&mut self.must_quiesce) {
            self.quiesce();
        }
        let ios = self.progress.blocks.iter().sum();
        match self.search.as_mut().map_or(Verdict::On, |search| search.look(now_ns, ios)) {
            Verdict::On => {}
            Verdict::Quiesce => self.quiesce(),
            Verdict::Last => {
                self.quiesce();
                self.begin_to_count(SimHal.now_ns());
            }
            Verdict::Done => self.end = Some(End::Target),
            Verdict::Missed => self.end = Some(End::TargetMissed),
        }
        self.check_steady(now_ns);
    }
}
