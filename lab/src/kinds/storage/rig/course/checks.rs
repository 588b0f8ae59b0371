//! What a job checks behind its I/Os: its time, minimal rates, the latency target, the steady state, and its data.

use super::End;
use super::run::{Course, Progress};
use super::target::Verdict;
use super::walk::Next;
use crate::kinds::storage::IoEngine;
use crate::kinds::storage::load::DIRECTIONS;
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
            self.end_ramp(now_ns);
        }
        let ends = &self.load.ends;
        let index = self.job.parts.index;
        if !self.in_ramp && ends.runtime_ns.is_some_and(|ns| now_ns - self.epoch_ns >= ns) {
            self.end = Some(End::Runtime);
        } else if ends.stand_in_ns.is_some_and(|ns| now_ns - self.begun_ns >= ns) {
            self.end = Some(End::Span);
        } else if let Some(end) = self.shared.starter.as_ref().and_then(|starter| starter.stopped_by(index)) {
            self.end = Some(end);
        }
        self.end.is_some()
    }

    /// Counting begins: what came before does not count, neither for results nor for the job's ends.
    fn end_ramp(&mut self, now_ns: u64) {
        self.in_ramp = false;
        self.job.silent = false;
        self.epoch_ns = now_ns;
        self.progress = Progress::default();
        self.walk.issues = [0; DIRECTIONS];
        self.rates.restart();
        self.job.restart_meter(now_ns);
        self.rates.thought.1 = now_ns;
        self.job.counts(|counts| counts.started_ns = Some(now_ns));
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
        until(self.epoch_ns, runtime).min(until(self.begun_ns, ends.stand_in_ns))
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
                let started_ns = SimHal.now_ns();
                self.job.counts(|counts| {
                    *counts = JobCounts { started_ns: Some(started_ns), ..Default::default() };
                });
            }
            Verdict::Done => self.end = Some(End::Target),
        }
        self.check_steady(now_ns);
    }

    /// `steadystate`: samples each interval, and compares the window's samples with their mean or their slope.
    fn check_steady(&mut self, now_ns: u64) {
        let Some(steady) = self.load.ends.steady else { return };
        let counted: u64 = match steady.bandwidth {
            true => self.progress.bytes.iter().sum(),
            false => self.progress.blocks.iter().sum(),
        };
        let since_ns = now_ns - self.epoch_ns;
        let last_ns = self.steady.last().map_or(steady.ramp_ns, |(ns, _)| *ns);
        if since_ns < last_ns.saturating_add(steady.interval_ns) {
            return;
        }
        self.steady.push((since_ns, counted));
        let samples = (steady.window_ns / steady.interval_ns.max(1)).max(1) as usize;
        if self.steady.len() <= samples {
            return;
        }
        let window = &self.steady[self.steady.len() - samples - 1..];
        let rate = |pair: &[(u64, u64)]| (pair[1].1 - pair[0].1) as f64 * 1e9 / (pair[1].0 - pair[0].0).max(1) as f64;
        let rates: Vec<f64> = window.windows(2).map(rate).collect();
        let mean = rates.iter().sum::<f64>() / rates.len() as f64;
        let deviation = if steady.slope {
            let middle = (rates.len() as f64 - 1.0) / 2.0;
            let square: f64 = (0..rates.len()).map(|at| (at as f64 - middle).powi(2)).sum();
            let along: f64 = rates.iter().enumerate().map(|(at, rate)| (at as f64 - middle) * (rate - mean)).sum();
            (along / square.max(1.0)).abs()
        } else {
            rates.iter().map(|rate| (rate - mean).abs()).fold(0.0, f64::max)
        };
        let limit = steady.limit as f64 * if steady.is_share { mean / 1e6 } else { 1.0 };
        if deviation <= limit {
            self.end = Some(End::Steady);
        }
    }
}
