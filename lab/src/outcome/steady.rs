//! Whether the figures of a span hold: its fifths must agree, and it must be long for the work in flight.

use super::Outcome;
use serde::Serialize;
use std::fmt;

/// Parts that are compared.
const PARTS: usize = 5;
/// Parts that lie further apart than this, relative to their mean, do not agree.
const SPREAD_MAX: f64 = 0.05;
/// Parts this many standard errors apart differ by more than chance. Of five equal parts, one set in a hundred is as far
/// apart as four.
const ERRORS_MAX: f64 = 5.0;
/// With fewer completions nothing can be said.
const COMPLETIONS_MIN: u64 = 100;
/// A span measures the work in flight at its beginning and end too. It must last this many times as long as that work.
const TURNS_MIN: f64 = 2.0;

/// What the parts of the span say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// They agree.
    Steady,
    /// They do not.
    Drifts,
    /// The span is shorter than twice the time of one I/O.
    TooShort,
    /// Too few I/Os ended to tell.
    TooFew,
}

/// Whether the throughput of one variant is that of a steady state.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Steadiness {
    /// What is to be said.
    pub verdict: Verdict,
    /// Completions a second in each fifth of the span, averaged over the seeds.
    pub parts: Vec<f64>,
    /// Greatest less least of `parts`, in percent of their mean.
    pub spread_percent: f64,
    /// A `ramp` that would do, in ns.
    pub ramp_ns: u64,
    /// A `duration` that would do, in ns.
    pub duration_ns: u64,
}

impl Steadiness {
    /// Of the runs of one variant. None for a kind of experiment without I/Os.
    pub fn of(outcomes: &[Outcome]) -> Option<Self> {
        let runs: Vec<&[u64]> =
            outcomes.iter().map(|run| Some(run.timeline.counts.get("ios")?.as_slice())).collect::<Option<_>>()?;
        let bucket_ns = outcomes.first()?.timeline.bucket_ns;
        let each = runs.iter().map(|run| run.len()).min()? / PARTS;
        if each == 0 || bucket_ns == 0 {
            return None;
        }
        let part_s = bucket_ns as f64 * each as f64 * 1e-9 * runs.len() as f64;
        let part = |at: usize| runs.iter().flat_map(move |run| &run[at * each..(at + 1) * each]);
        let parts: Vec<f64> = (0..PARTS).map(|at| part(at).sum::<u64>() as f64 / part_s).collect();
        let mean = parts.iter().sum::<f64>() / PARTS as f64;
        let (least, greatest) = parts.iter().fold((f64::MAX, 0.0f64), |(a, b), &x| (a.min(x), b.max(x)));
        let spread = if mean > 0.0 { (greatest - least) / mean } else { 0.0 };
        let span_ns = bucket_ns as f64 * (each * PARTS) as f64;
        let turn_ns = turn_ns(outcomes);
        let total: u64 = (0..PARTS).flat_map(part).sum();
        let verdict = if total < COMPLETIONS_MIN {
            Verdict::TooFew
        } else if span_ns < TURNS_MIN * turn_ns {
            Verdict::TooShort
        } else if spread > SPREAD_MAX.max(ERRORS_MAX * error(&runs, each)) {
            Verdict::Drifts
        } else {
            Verdict::Steady
        };
        // Enough for the work in flight, and for ten times the completions that are needed.
        let wanted = COMPLETIONS_MIN as f64 * 10.0 / total.max(1) as f64 * span_ns * runs.len() as f64;
        let (ramp, duration) = match verdict {
            Verdict::Drifts => ((2.0 * turn_ns).max(span_ns), (4.0 * turn_ns).max(2.0 * span_ns)),
            _ => (2.0 * turn_ns, (4.0 * turn_ns).max(wanted).max(span_ns)),
        };
        let [ramp_ns, duration_ns] = [ramp, duration].map(round);
        Some(Self { verdict, parts, spread_percent: spread * 100.0, ramp_ns, duration_ns })
    }
}

/// The standard error of a part, relative to the mean, from the differences between the buckets within each part.
fn error(runs: &[&[u64]], each: usize) -> f64 {
    let (mut squares, mut sum, mut count) = (0.0, 0.0, 0usize);
    for part in runs.iter().flat_map(|run| run.chunks_exact(each).take(PARTS)) {
        let mean = part.iter().sum::<u64>() as f64 / each as f64;
        squares += part.iter().map(|&x| (x as f64 - mean).powi(2)).sum::<f64>();
        sum += mean * each as f64;
        count += each;
    }
    let freedom = count - runs.len() * PARTS;
    if freedom == 0 || sum == 0.0 {
        return 0.0;
    }
    (squares / freedom as f64 / (each * runs.len()) as f64).sqrt() / (sum / count as f64)
}

/// The mean time of an I/O, from before its submission.
fn turn_ns(outcomes: &[Outcome]) -> f64 {
    let turns = outcomes.iter().filter_map(|run| run.section.measured().turn_ns());
    turns.fold(0.0, f64::max)
}

/// Rounded up to one digit and the next five: 1.2 ms becomes 1.5 ms.
fn round(ns: f64) -> u64 {
    let digit = 10f64.powf(ns.max(1000.0).log10().floor());
    ((ns / digit * 2.0).ceil() / 2.0 * digit) as u64
}

impl fmt::Display for Steadiness {
    /// Nothing if the span is steady.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |ns: u64| crate::platform::Unit::Time.format(ns as f64).replace(' ', "");
        let (ramp, duration) = (time(self.ramp_ns), time(self.duration_ns));
        let remedy = format!("try --set ramp={ramp} --set duration={duration}");
        match self.verdict {
            Verdict::Steady => Ok(()),
            Verdict::TooFew => write!(f, "too few I/Os ended in the span to judge by; {remedy}"),
            Verdict::TooShort => write!(f, "the span is shorter than two turns of the I/Os in flight; {remedy}"),
            Verdict::Drifts => {
                let spread = self.spread_percent;
                write!(f, "the fifths of the span differ by {spread:.0} % in throughput; {remedy}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::samples;

    fn with(ios: Vec<u64>) -> Outcome {
        let mut outcome = samples::outcome("posted", 1, 1.0);
        outcome.timeline.bucket_ns = 200_000;
        outcome.timeline.counts.insert("ios".into(), ios);
        outcome
    }

    fn of(ios: Vec<u64>) -> Steadiness {
        Steadiness::of(&[with(ios)]).unwrap()
    }

    #[test]
    fn equal_parts_are_steady_and_a_drift_is_found() {
        let steady = of((0..50).map(|at| 1000 + at % 3).collect());
        assert_eq!((steady.verdict, steady.to_string().as_str()), (Verdict::Steady, ""));
        assert!((steady.parts[0] - 5.0e6).abs() < 1e5, "{steady:?}");
        let drift = of((0..50).map(|at| 1000 + 10 * at).collect());
        assert_eq!(drift.verdict, Verdict::Drifts);
        assert!(drift.to_string().starts_with("the fifths of the span differ by 32 % in throughput; try "), "{drift}");
    }

    #[test]
    fn noise_is_no_drift() {
        // Parts 6 % apart, but buckets that scatter by half of their mean.
        let noisy = of((0..50).map(|at| if at % 2 == 0 { 150 } else { 50 } + if at < 10 { 6 } else { 0 }).collect());
        assert!(noisy.spread_percent > 5.0);
        assert_eq!(noisy.verdict, Verdict::Steady);
    }

    #[test]
    fn few_ios_and_short_spans_say_so() {
        assert_eq!(of(vec![1; 50]).verdict, Verdict::TooFew);
        // An I/O of the sample takes 0.1 ms; this span lasts 0.05 ms.
        let mut short = with(vec![1000; 50]);
        short.timeline.bucket_ns = 1000;
        let short = Steadiness::of(&[short]).unwrap();
        assert_eq!((short.verdict, short.ramp_ns, short.duration_ns), (Verdict::TooShort, 250_000, 450_000));
        assert_eq!(Steadiness::of(&[with(vec![1000; 4])]), None, "no five parts");
    }
}
