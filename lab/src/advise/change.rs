//! What a remedy changes, from the runs of both sides: throughput, tail latency, CPU time of an I/O.

use crate::outcome::{CpuTime, Estimate, Outcome, Quantity, student_t_95};
use serde::Serialize;

/// What remedies are ranked by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Criterion {
    /// The headline of the kind: I/Os, packets, cycles a second.
    Throughput,
    /// The 99th percentile of the latency.
    Tail,
    /// CPU time of an I/O.
    Cpu,
}

/// What the points of the constants are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Points {
    /// Ends of what is open.
    Corners,
    /// Servers that could be this one, drawn alike.
    Servers,
}

/// The logarithms' range over drawn servers is widened at each end by this, divided by their number. The ends of 16 alone hold
/// another value that is drawn alike in 15 of 17 cases. Widened by a tenth, they hold 93 to 97 of 100 values that are
/// distributed evenly, normally, exponentially, or half at one end.
const WIDENED: f64 = 1.6;

impl Points {
    /// The ends between which a value is expected, from those of the points: where they are servers, in about 95 of 100
    /// cases. None without points.
    pub fn ends(self, values: impl Iterator<Item = f64>) -> Option<[f64; 2]> {
        let logs: Vec<f64> = values.filter(|value| *value > 0.0).map(f64::ln).collect();
        let low = logs.iter().copied().fold(f64::INFINITY, f64::min);
        let high = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let more = match self {
            Self::Corners => 0.0,
            Self::Servers => (high - low) * WIDENED / logs.len() as f64,
        };
        (!logs.is_empty()).then(|| [(low - more).exp(), (high + more).exp()])
    }
}

/// Samples beyond a percentile, below which it says nothing.
const BEYOND_MIN: f64 = 10.0;

/// The figures of one run.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Figures {
    /// A second.
    pub throughput: Option<f64>,
    /// In ns.
    pub p99: Option<f64>,
    /// In ns; none if the samples do not hold it.
    pub p99_9: Option<f64>,
    /// CPU time of an I/O, in ns.
    pub cpu_ns: Option<f64>,
    /// CPUs that were busy.
    pub busy_cpus: f64,
    /// The simulated span, in ns: a job of few I/Os runs for longer than was planned.
    pub span_ns: u64,
}

impl Figures {
    /// Those of an outcome.
    pub fn of(outcome: &Outcome) -> Self {
        let measured = outcome.section.measured();
        let quantities = measured.quantities();
        let value = |id: &str| {
            let found: Option<&Quantity> = quantities.iter().find(|quantity| quantity.id == id);
            found.and_then(|quantity| (quantity.of)(outcome)).filter(|value| value.is_finite())
        };
        let headline = measured.headline();
        let throughput = value(headline.id).filter(|rate| *rate > 0.0);
        let count = throughput.unwrap_or(0.0) * outcome.span_ns as f64 / 1e9;
        let latency = |end: &str, beyond: f64| {
            let ids = [format!("{}{end}", headline.beside.0), format!("latency{end}")];
            (count * beyond >= BEYOND_MIN).then(|| ids.iter().find_map(|id| value(id))).flatten()
        };
        let busy_ns: u64 = outcome.cpus.iter().map(|cpu: &CpuTime| cpu.total_ns() - cpu.idle_ns).sum();
        Self {
            throughput,
            p99: latency("_p99", 0.01),
            p99_9: latency("_p99_9", 0.001),
            cpu_ns: throughput.map(|rate| busy_ns as f64 / (rate * outcome.span_ns as f64 / 1e9)),
            busy_cpus: busy_ns as f64 / outcome.span_ns.max(1) as f64,
            span_ns: outcome.span_ns,
        }
    }
}

/// A change in per cent of today's figure, with its interval: the confidence over the seeds, widened by what the moved
/// constants change. Both are taken of the logarithms: no figure falls by more than the whole, and the factors between figures
/// that are skewed, such as a p99, are less so.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Change {
    /// Its mean over the seeds: of factors, the geometric one.
    pub percent: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Change {
    /// Nothing changes.
    pub const NONE: Self = Self { percent: 0.0, low: 0.0, high: 0.0 };

    /// From (today, with the remedy) of each seed, and of the first seed at each point of the constants.
    pub fn of(seeds: &[(f64, f64)], points: &[(f64, f64)], are: Points) -> Option<Self> {
        let percent = |log: f64| log.exp_m1() * 100.0;
        let factor = |&(today, then): &(f64, f64)| then / today;
        let logs: Vec<f64> = seeds.iter().map(|pair| factor(pair).ln()).collect();
        let Estimate { mean, ci95, .. } = Estimate::of(&logs)?;
        // One seed has no confidence: as wide as two that differ by a per cent.
        let half = ci95.unwrap_or(student_t_95(1) * 0.005);
        let ends = are.ends(points.iter().map(factor));
        let [down, up] = ends.map_or([0.0; 2], |ends| ends.map(|end| end.ln() - logs[0]));
        let (down, up) = (down.min(0.0), up.max(0.0));
        let all = Self { percent: percent(mean), low: percent(mean - half + down), high: percent(mean + half + up) };
        [mean, all.low, all.high].iter().all(|end| end.is_finite()).then_some(all)
    }

    /// True if the two cannot be told apart.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.low <= other.high && other.low <= self.high
    }

    /// The change seen as a gain: of a latency or a cost, less is more.
    pub fn turned(self) -> Self {
        Self { percent: -self.percent, low: -self.high, high: -self.low }
    }
}

/// What a remedy changes.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Changes {
    /// Throughput.
    pub throughput: Option<Change>,
    /// 99th percentile of the latency.
    pub p99: Option<Change>,
    /// 99.9th percentile.
    pub p99_9: Option<Change>,
    /// CPU time of an I/O.
    pub cpu: Option<Change>,
}

impl Changes {
    /// From pairs of (today, with the remedy).
    pub fn of(seeds: &[(Figures, Figures)], points: &[(Figures, Figures)], are: Points) -> Self {
        let change = |of: fn(&Figures) -> Option<f64>| {
            let pairs = |list: &[(Figures, Figures)]| -> Vec<(f64, f64)> {
                list.iter().filter_map(|(today, then)| Some((of(today)?, of(then)?))).collect()
            };
            Change::of(&pairs(seeds), &pairs(points), are)
        };
        Self {
            throughput: change(|figures| figures.throughput),
            p99: change(|figures| figures.p99),
            p99_9: change(|figures| figures.p99_9),
            cpu: change(|figures| figures.cpu_ns),
        }
    }

    /// True if a figure differs from today's in any run, by more than the rounding of a sum.
    pub fn are_some(&self) -> bool {
        let differs = |change: Change| [change.percent, change.low, change.high].iter().any(|part| part.abs() > 1e-6);
        [self.throughput, self.p99, self.p99_9, self.cpu].into_iter().flatten().any(differs)
    }

    /// The gain by a criterion: positive is better.
    pub fn gain(&self, by: Criterion) -> Option<Change> {
        match by {
            Criterion::Throughput => self.throughput,
            Criterion::Tail => self.p99.map(Change::turned),
            Criterion::Cpu => self.cpu.map(Change::turned),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_the_seeds_confidence_widened_by_the_points() {
        let seeds = [(100.0, 110.0), (200.0, 220.0), (100.0, 110.0)];
        let exact = Change::of(&seeds, &[], Points::Corners).unwrap();
        assert!((exact.percent - 10.0).abs() < 1e-9 && (exact.high - exact.low).abs() < 1e-9);
        let moved = Change::of(&seeds, &[(100.0, 104.0), (100.0, 111.0)], Points::Corners).unwrap();
        assert!((moved.low - 4.0).abs() < 1e-9 && (moved.high - 11.0).abs() < 1e-9, "{moved:?}");
        assert!(moved.overlaps(&exact) && !exact.overlaps(&Change::NONE));
        let turned = moved.turned();
        assert!((turned.low + 11.0).abs() < 1e-9 && (turned.high + 4.0).abs() < 1e-9);
        assert_eq!(Change::of(&[], &[], Points::Corners), None);
        let one = Change::of(&[(100.0, 110.0)], &[], Points::Corners).unwrap();
        assert!(one.high - one.low > 10.0, "one seed says little: {one:?}");
    }

    /// Defect: a tail that varied much between seeds had an interval below -100 %: a latency below zero.
    #[test]
    fn no_figure_falls_by_more_than_the_whole() {
        let tail = Change::of(&[(100.0, 10.0), (100.0, 20.0), (100.0, 200.0)], &[], Points::Corners).unwrap();
        assert!(tail.low > -100.0 && tail.high > 100.0, "{tail:?}");
        // The geometric mean of 0.1, 0.2 and 2.
        assert!((tail.percent + 65.8).abs() < 0.1, "{tail:?}");
        assert_eq!(Change::of(&[(100.0, 0.0)], &[], Points::Corners), None, "nothing is no factor");
    }

    #[test]
    fn what_only_rounding_changes_has_no_effect() {
        let changes = |percent| {
            let change = Change { percent, low: percent, high: percent };
            Changes { throughput: Some(change), p99: None, p99_9: None, cpu: Some(Change::NONE) }
        };
        assert!(!changes(-1e-8).are_some() && changes(-0.01).are_some());
    }

    #[test]
    fn ends_of_drawn_servers_leave_room_for_one_more() {
        let values = || (0..16).map(|at| 100.0 * (f64::from(at) / 15.0).exp());
        assert_eq!(Points::Servers.ends(std::iter::empty()), None);
        let is_near = |found: f64, expected: f64| (found / expected - 1.0).abs() < 1e-9;
        let [low, high] = Points::Corners.ends(values()).unwrap();
        assert!(is_near(low, 100.0) && is_near(high, 100.0 * 1f64.exp()), "{low} {high}");
        let [low, high] = Points::Servers.ends(values()).unwrap();
        assert!(is_near(low, 100.0 * (-0.1f64).exp()) && is_near(high, 100.0 * 1.1f64.exp()), "{low} {high}");
    }

    /// How often the ends of 16 drawn values hold another one.
    #[test]
    fn ends_of_sixteen_servers_hold_about_nineteen_of_twenty() {
        let mut random = machine::Stream::new(1, 0);
        let mut even = || (random.next() >> 11) as f64 / (1u64 << 53) as f64;
        for kind in 0..4 {
            let mut draw = || match kind {
                0 => even(),
                1 => (0..12).map(|_| even()).sum::<f64>(),
                2 => -(1.0 - even()).ln(),
                _ => (even() - 0.5).max(0.0) + 0.01 * even(),
            };
            let mut is_held = || {
                let drawn: Vec<f64> = (0..16).map(|_| draw().exp()).collect();
                let [low, high] = Points::Servers.ends(drawn.into_iter()).unwrap();
                (low..=high).contains(&draw().exp())
            };
            let held = (0..4000).filter(|_| is_held()).count();
            assert!((3680..3920).contains(&held), "{kind}: {held} of 4000");
        }
    }
}
