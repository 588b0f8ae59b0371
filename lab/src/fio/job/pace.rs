//! The options of a pace: rates, thinking, latency targets, flows.

use super::Options;
use super::values::{self, Parts};
use crate::fio::Entry;
use crate::fio::number::float;
use crate::input::InputError;
use crate::kinds::storage::load::{Flow, LatencyTarget, Pace};

impl Options<'_> {
    pub(super) fn pace(&self) -> Result<Pace, InputError> {
        let us = |name: &str| self.get(name).map_or(Ok(0), |entry| entry.time_ns(1_000));
        let mut pace = Pace {
            poisson: self.get("rate_process").is_some_and(|entry| entry.word() == "poisson"),
            ignore_think: self.flag("rate_ignore_thinktime")?,
            offloads: self.offloads(),
            kernel_polls: self.flag("sqthread_poll")?,
            think_ns: us("thinktime")?,
            think_spin_ns: us("thinktime_spin")?,
            think_by_issue: self.get("thinktime_blocks_type").is_some_and(|entry| entry.word() == "issue"),
            think_every_ns: self.get("thinktime_iotime").map_or(Ok(0), |entry| entry.time_ns(1_000_000_000))?,
            ..Pace::default()
        };
        let blocks = self.get("thinktime_blocks").map(|entry| entry.number(0..=u64::from(u32::MAX), self.kb_base));
        pace.think_blocks = match blocks.transpose()? {
            Some(blocks) => Some(blocks as u32),
            None => (pace.think_every_ns == 0).then_some(1),
        };
        if let Some(entry) = self.get("rate_cycle") {
            pace.cycle_ns = entry.number(0..=u64::from(u32::MAX), self.kb_base)? * 1_000_000;
        }
        self.rates("rate", &mut pace.bytes)?;
        self.rates("rate_iops", &mut pace.ios)?;
        self.rates("rate_min", &mut pace.bytes_min)?;
        self.rates("rate_iops_min", &mut pace.ios_min)?;
        pace.target = self.target()?;
        pace.flow = self.flow()?;
        Ok(pace)
    }

    fn rates(&self, name: &str, into: &mut [u64; 3]) -> Result<(), InputError> {
        let Some(entry) = self.get(name) else { return Ok(()) };
        let parts = Parts::of_numbers(entry).whole(|part| part.number(0..=1 << 62, self.kb_base))?;
        values::spread(&parts, |direction, rate| into[direction] = rate);
        Ok(())
    }

    fn target(&self) -> Result<Option<LatencyTarget>, InputError> {
        let us = |name: &str| self.get(name).map_or(Ok(0), |entry| entry.time_ns(1_000));
        let latency_ns = us("latency_target")?;
        if latency_ns == 0 {
            return Ok(None);
        }
        let percent = match self.get("latency_percentile") {
            None => 100.0,
            Some(entry) => {
                let valid = "a percentage such as 99.0";
                let number = float(entry.text(valid)?);
                let number = number.filter(|percent| (0.0..=100.0).contains(percent));
                number.ok_or_else(|| entry.wrong("is no percentage", valid))?
            }
        };
        // A window of 0 would be judged at each I/O.
        let window_ns = us("latency_window")?.max(1_000);
        let goes_on = self.get("latency_run").map_or(Ok(false), Entry::flag)?;
        Ok(Some(LatencyTarget { latency_ns, window_ns, percent, goes_on }))
    }

    fn flow(&self) -> Result<Option<Flow>, InputError> {
        let is_old = self.get("flow").is_some_and(Entry::is_old_weight);
        let weight = if is_old { 0 } else { self.number("flow", 0, 0..=1000)? };
        let id = self.number("flow_id", 0, 0..=u64::from(u32::MAX))?;
        let sleep_ns = self.get("flow_sleep").map_or(Ok(0), |entry| entry.time_ns(1_000))?;
        Ok((weight > 0).then_some(Flow { id, weight, sleep_ns }))
    }
}
