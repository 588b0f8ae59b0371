//! Mean and confidence of every quantity over the seeds of one variant.

use serde::Serialize;

use super::{Fault, Finding, Outcome, Quantity, Steadiness, Unit};
use crate::kinds::Means;

/// A mean over seeds and its 95 % confidence.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// Arithmetic mean.
    pub mean: f64,
    /// Half-width of the 95 % confidence interval of the mean (Student's t); none of a single seed.
    pub ci95: Option<f64>,
    /// Runs that had a value.
    pub seeds: usize,
}

impl Estimate {
    /// Mean and confidence of independent samples; none without samples.
    pub fn of(samples: &[f64]) -> Option<Self> {
        let n = samples.len();
        if n == 0 {
            return None;
        }
        let mean = samples.iter().sum::<f64>() / n as f64;
        let ci95 = (n > 1).then(|| {
            let squares: f64 = samples.iter().map(|x| (x - mean).powi(2)).sum();
            let error_of_mean = (squares / (n - 1) as f64 / n as f64).sqrt();
            student_t_95(n - 1) * error_of_mean
        });
        Some(Self { mean, ci95, seeds: n })
    }
}

/// The 97.5 % quantile of Student's t distribution (two-sided 95 %), to three decimals as tables print it
/// (NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2). Between its rows the lower one counts, which only
/// widens an interval. Infinite for zero degrees of freedom.
pub fn student_t_95(degrees_of_freedom: usize) -> f64 {
    const TO_30: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
        2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
    ];
    match degrees_of_freedom {
        0 => f64::INFINITY,
        1..=30 => TO_30[degrees_of_freedom - 1],
        31..40 => 2.042,
        40..60 => 2.021,
        60..100 => 2.000,
        _ => 1.984,
    }
}

/// One quantity of a [`Summary`].
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Figure {
    /// [`Quantity::id`].
    pub id: &'static str,
    /// [`Quantity::unit`].
    pub unit: Unit,
    /// None if no run had a value.
    #[serde(flatten)]
    pub estimate: Option<Estimate>,
}

/// The runs of one variant, taken together.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The variant.
    pub delivery: String,
    /// The seeds, in the order of the runs.
    pub seeds: Vec<u64>,
    /// The shortest measured span of the runs, in ns.
    pub span_ns: u64,
    /// One for every quantity of the kind, in its order.
    pub figures: Vec<Figure>,
    /// The limit of throughput.
    pub bottleneck: Finding,
    /// Whether the span is one of a steady state; none for a kind without I/Os.
    pub steadiness: Option<Steadiness>,
    /// The means that only its kind has in addition to the figures, averaged over the seeds.
    #[serde(flatten)]
    pub means: Option<Means>,
    /// True if its phases are shortened unevenly: only rates are there then, over the time that the phases stand for.
    #[serde(skip)]
    pub is_uneven: bool,
    /// Faults with their counts added over the seeds, sorted.
    pub faults: Vec<Fault>,
}

impl Summary {
    /// Summarises the runs of one variant; the first one names it. None without runs.
    pub fn over(outcomes: &[Outcome]) -> Option<Self> {
        let first = outcomes.first()?;
        let is_uneven = outcomes.iter().any(Outcome::is_unevenly_shortened);
        let figure = |quantity: &Quantity| {
            let of = |o| if is_uneven { over_phases(quantity, o) } else { (quantity.of)(o) };
            let samples: Vec<f64> = outcomes.iter().filter_map(of).collect();
            Figure { id: quantity.id, unit: quantity.unit, estimate: Estimate::of(&samples) }
        };
        Some(Self {
            delivery: first.delivery.clone(),
            seeds: outcomes.iter().map(|o| o.seed).collect(),
            span_ns: outcomes.iter().map(|o| o.span_ns).min().unwrap_or(0),
            figures: first.section.measured().quantities().iter().map(figure).collect(),
            bottleneck: Finding::of(outcomes),
            steadiness: Steadiness::of(outcomes),
            means: first.section.measured().means(outcomes).filter(|_| !is_uneven),
            is_uneven,
            faults: added_faults(outcomes),
        })
    }

    /// The estimate of a quantity by its id. None if the id is unknown or no run had a value.
    pub fn estimate(&self, id: &str) -> Option<Estimate> {
        self.figures.iter().find(|figure| figure.id == id)?.estimate
    }
}

/// A rate over all phases, each weighted by the time that it stands for. None of another quantity, or where no one says for
/// how long a phase stands.
fn over_phases(quantity: &Quantity, outcome: &Outcome) -> Option<f64> {
    if !matches!(quantity.unit, Unit::PerSecond | Unit::BytesPerSecond) {
        return None;
    }
    let (mut sum, mut all_ns, mut has) = (0.0, 0.0, false);
    for phase in &outcome.phases {
        let ns = phase.outcome.timeline.stands_for_ns? as f64;
        // A phase may have none of them: only writes, say.
        let own = (quantity.of)(&phase.outcome);
        has |= own.is_some();
        sum += own.unwrap_or(0.0) * ns;
        all_ns += ns;
    }
    has.then(|| sum / all_ns.max(1.0))
}

fn added_faults(outcomes: &[Outcome]) -> Vec<Fault> {
    let mut all: Vec<Fault> = Vec::new();
    for fault in outcomes.iter().flat_map(|o| &o.faults) {
        match all.iter_mut().find(|f| f.kind == fault.kind && f.requester == fault.requester) {
            Some(same) => same.count += fault.count,
            None => all.push(fault.clone()),
        }
    }
    all.sort();
    all
}
