//! `steadystate`: a job, or a group with `group_reporting`, ends when its rate has settled. By the rules of fio 3.33: each
//! second a sample of the rate; a window full of samples is judged.

use super::End;
use super::run::Course;
use crate::kinds::storage::detail::SteadyDetail;
use crate::kinds::storage::load::Steady;
use hal::Hal as _;
use machine::SimHal;

/// The thread of fio that takes the samples begins so long before the jobs, as measured with fio 3.33.
const SAMPLER_LEAD_NS: u64 = 100_000_000;
/// From one sample to the next: fio 3.33 has no option for it.
const SAMPLE_NS: u64 = 1_000_000_000;

/// Whose rate is watched.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Watched {
    /// A job by its index.
    Job(u32),
    /// The jobs of a reporting group.
    Group(u32),
}

/// The samples so far.
#[derive(Default)]
pub(super) struct Settling {
    /// I/Os and bytes since counting began.
    counted: [u64; 2],
    begun_ns: Option<u64>,
    /// Samples that were due.
    ticks: u64,
    /// Time and counts; one more than the window has samples.
    points: Vec<(u64, [u64; 2])>,
    has_settled: bool,
}

impl Settling {
    /// Counting begins with the first job.
    fn begin(&mut self, steady: &Steady, now_ns: u64) {
        if self.begun_ns.is_none() {
            self.begun_ns = Some(now_ns);
            if steady.ramp_ns == 0 {
                self.points.push((now_ns, [0; 2]));
            }
        }
    }

    /// Takes a sample if one is due. True when the rate has settled.
    fn look(&mut self, steady: &Steady, now_ns: u64) -> bool {
        let Some(begun_ns) = self.begun_ns.filter(|_| !self.has_settled) else { return self.has_settled };
        let since_ns = now_ns - begun_ns;
        let ticks = (since_ns + SAMPLER_LEAD_NS) / SAMPLE_NS;
        if std::mem::replace(&mut self.ticks, ticks) == ticks || since_ns < steady.ramp_ns {
            return false;
        }
        self.points.push((now_ns, self.counted));
        if self.points.len() > samples(steady) + 1 {
            self.points.remove(0);
        }
        self.has_settled = self.departure(steady).is_some_and(|departure| departure.is_within(steady));
        self.has_settled
    }
}

impl Settling {
    /// I/Os or bytes a second between the points.
    fn rates(&self, bytes: bool) -> Vec<f64> {
        let of = usize::from(bytes);
        let rate = |pair: &[(u64, [u64; 2])]| {
            (pair[1].1[of] - pair[0].1[of]) as f64 * 1e9 / (pair[1].0 - pair[0].0).max(1) as f64
        };
        self.points.windows(2).map(rate).collect()
    }

    /// How far the rates of a full window lie apart.
    fn departure(&self, steady: &Steady) -> Option<Departure> {
        let rates = self.rates(steady.bandwidth);
        if rates.len() < samples(steady) {
            return None;
        }
        let mean = rates.iter().sum::<f64>() / rates.len() as f64;
        let by = if steady.slope {
            let middle = (rates.len() as f64 - 1.0) / 2.0;
            let square: f64 = (0..rates.len()).map(|at| (at as f64 - middle).powi(2)).sum();
            let along: f64 = rates.iter().enumerate().map(|(at, rate)| (at as f64 - middle) * (rate - mean)).sum();
            along / square.max(1.0)
        } else {
            rates.iter().map(|rate| (rate - mean).abs()).fold(0.0, f64::max)
        };
        Some(Departure { by, mean })
    }

    /// The state as fio's JSON has it.
    fn detail(&self, steady: &Steady) -> SteadyDetail {
        let departure = self.departure(steady);
        let by = departure.map_or(0.0, |departure| departure.by);
        let whole = |rates: Vec<f64>| {
            let filled = rates.into_iter().map(|rate| rate as u64);
            filled.chain(std::iter::repeat(0)).take(samples(steady)).collect()
        };
        SteadyDetail {
            steady: *steady,
            attained: self.has_settled,
            criterion: departure.map_or(0.0, |departure| departure.criterion(steady)),
            deviation: if steady.slope { 0.0 } else { by },
            slope: if steady.slope { by } else { 0.0 },
            iops: whole(self.rates(false)),
            bandwidth: whole(self.rates(true)),
        }
    }
}

/// Samples of a window.
fn samples(steady: &Steady) -> usize {
    (steady.window_ns / SAMPLE_NS).max(1) as usize
}

/// The greatest deviation from the mean, or the slope, in the unit of the rates.
#[derive(Clone, Copy)]
struct Departure {
    by: f64,
    mean: f64,
}

impl Departure {
    /// In per cent of the mean if the limit is.
    fn criterion(self, steady: &Steady) -> f64 {
        if steady.is_share { 100.0 * self.by / self.mean.max(f64::MIN_POSITIVE) } else { self.by }
    }

    fn is_within(self, steady: &Steady) -> bool {
        self.by.abs() < steady.limit as f64 * if steady.is_share { self.mean / 1e6 } else { 1.0 }
    }
}

impl Course {
    fn watched(&self, steady: &Steady) -> Watched {
        match steady.is_grouped {
            true => Watched::Group(self.load.start.group),
            false => Watched::Job(self.job.parts.index),
        }
    }

    /// Counting begins.
    pub(super) fn begin_settling(&self) {
        if let Some(steady) = &self.load.ends.steady {
            self.shared.settling(self.watched(steady), |settling| settling.begin(steady, SimHal.now_ns()));
        }
    }

    /// Counts a completed I/O.
    pub(super) fn settle(&self, bytes: u64) {
        if let Some(steady) = &self.load.ends.steady {
            self.shared.settling(self.watched(steady), |settling| {
                settling.counted[0] += 1;
                settling.counted[1] += bytes;
            });
        }
    }

    /// The state of what it waits for, if it waits for any.
    pub(super) fn steady_detail(&self) -> Option<SteadyDetail> {
        let steady = self.load.ends.steady.as_ref()?;
        Some(self.shared.settling(self.watched(steady), |settling| settling.detail(steady)))
    }

    /// Ends the job if its rate, or that of its group, has settled.
    pub(super) fn check_steady(&mut self, now_ns: u64) {
        if let Some(steady) = &self.load.ends.steady
            && self.shared.settling(self.watched(steady), |settling| settling.look(steady, now_ns))
        {
            self.end = Some(End::Steady);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    /// The sample at which a rate settles that is `rates` in each second.
    fn settles(steady: &Steady, rates: &[u64]) -> Option<usize> {
        let mut settling = Settling::default();
        settling.begin(steady, 0);
        for (sample, rate) in rates.iter().enumerate() {
            let lead_ns = if sample == 0 { SAMPLER_LEAD_NS } else { 0 };
            settling.counted[0] += rate * (SECOND_NS - lead_ns) / SECOND_NS;
            if settling.look(steady, (sample as u64 + 1) * SECOND_NS - SAMPLER_LEAD_NS) {
                return Some(sample + 1);
            }
        }
        None
    }

    #[test]
    fn a_rate_settles_when_a_full_window_keeps_to_the_limit() {
        let steady = Steady {
            bandwidth: false,
            slope: false,
            limit: 20_000,
            is_share: true,
            is_grouped: false,
            window_ns: 3 * SECOND_NS,
            ramp_ns: 0,
        };
        assert_eq!(settles(&steady, &[100, 100, 100, 100]), Some(3));
        assert_eq!(settles(&steady, &[50, 100, 100, 101, 100]), Some(4), "the first second leaves the window");
        assert_eq!(settles(&steady, &[100, 105, 100, 105, 100]), None, "more than 2 %");
        let slope = Steady { slope: true, ..steady };
        assert_eq!(settles(&slope, &[90, 100, 90]), Some(3), "up and down is no slope");
        let ramp = Steady { ramp_ns: 2 * SECOND_NS, ..steady };
        assert_eq!(
            settles(&ramp, &[50, 80, 0, 100, 100, 100]),
            Some(6),
            "the first sample after the ramp begins the window"
        );
        assert_eq!(settles(&Steady { limit: 0, ..steady }, &[100; 9]), None, "nothing is below 0");
    }
}
