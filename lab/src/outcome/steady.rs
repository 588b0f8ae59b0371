//! Whether the figures of a span hold: its fifths must agree, and it must be long for the work in flight.

use super::Outcome;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Parts that are compared.
const PARTS: usize = 5;
/// Parts that lie further apart than this, relative to their mean, do not agree.
const SPREAD_MAX: f64 = 0.05;
/// Parts this many standard errors apart differ by more than chance. Of five equal parts, one set in a hundred is as far
/// apart as four.
const ERRORS_MAX: f64 = 5.0;
/// Parts that lie further apart than this do not agree, however much the buckets scatter: of a hundred I/Os in all, one set
/// in twenty is as far apart by chance.
const SPREAD_NEVER: f64 = 0.5;
/// With fewer completions nothing can be said.
const COMPLETIONS_MIN: u64 = 100;
/// A span measures the work in flight at its beginning and end too. It must last this many times as long as that work,
/// or the ramp must: then as much is in flight at its beginning as at its end.
const TURNS_MIN: f64 = 2.0;

/// What the parts of the span say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// They agree.
    Steady,
    /// They do not.
    Drifts,
    /// The span is shorter than twice the time of one I/O, or a job had none.
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
    /// True for a phase whose jobs run to their own end: no other span would do.
    pub ends_itself: bool,
}

/// What the verdict needs of one run: enough to judge several seeds together later, elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// Width of a bucket in ns.
    bucket_ns: u64,
    /// Simulated time of the same load before the span, in ns.
    ramp_ns: u64,
    /// The mean time of an I/O from before its submission, in ns. As text: it must be read as the same number.
    #[serde(with = "as_text")]
    turn_ns: f64,
    /// True if a job had no I/O.
    left_out: bool,
    /// True for a phase whose jobs run to their own end.
    ends_itself: bool,
    /// I/Os that ended in each bucket; none of a kind of experiment without I/Os.
    ios: Option<Vec<u64>>,
}

impl Span {
    /// Of one run.
    pub fn of(run: &Outcome) -> Self {
        Self {
            bucket_ns: run.timeline.bucket_ns,
            ramp_ns: run.timeline.ramp_ns,
            turn_ns: run.section.measured().turn_ns(run.span_ns).unwrap_or(0.0),
            left_out: run.section.measured().left_out() > 0,
            ends_itself: run.timeline.ends_itself,
            ios: run.timeline.counts.get("ios").cloned(),
        }
    }
}

/// A number as the shortest text that is read as the same.
mod as_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(value: &f64, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(value)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

impl Verdict {
    /// As results have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Steady => "steady",
            Self::Drifts => "drifts",
            Self::TooShort => "too_short",
            Self::TooFew => "too_few",
        }
    }
}

impl Steadiness {
    /// Of the runs of one variant. None for a kind of experiment without I/Os.
    pub fn of(outcomes: &[Outcome]) -> Option<Self> {
        Self::over(&outcomes.iter().map(Span::of).collect::<Vec<_>>())
    }

    /// True if a reader is told nothing: the span is steady, or it is a phase that is as long as its jobs.
    pub fn is_silent(&self) -> bool {
        match self.verdict {
            Verdict::Steady => true,
            Verdict::TooShort | Verdict::TooFew => self.ends_itself,
            Verdict::Drifts => false,
        }
    }

    /// Of what was kept of the runs of one variant. None for a kind of experiment without I/Os.
    pub fn over(spans: &[Span]) -> Option<Self> {
        let runs: Vec<&[u64]> = spans.iter().map(|span| span.ios.as_deref()).collect::<Option<_>>()?;
        if runs.iter().any(|run| run.len() < PARTS) || spans.iter().any(|span| span.bucket_ns == 0) {
            return None;
        }
        // The spans of phases differ from seed to seed, and so do their buckets.
        let rate = |at: usize, (run, span): (&&[u64], &Span)| {
            let each = run.len() / PARTS;
            let ios: u64 = run[at * each..(at + 1) * each].iter().sum();
            ios as f64 / (span.bucket_ns as f64 * each as f64 * 1e-9) / runs.len() as f64
        };
        let part = |at: usize| runs.iter().zip(spans).map(|pair| rate(at, pair)).sum::<f64>();
        let parts: Vec<f64> = (0..PARTS).map(part).collect();
        let mean = parts.iter().sum::<f64>() / PARTS as f64;
        let (least, greatest) = parts.iter().fold((f64::MAX, 0.0f64), |(a, b), &x| (a.min(x), b.max(x)));
        let spread = if mean > 0.0 { (greatest - least) / mean } else { 0.0 };
        let lengths = runs.iter().zip(spans);
        let lengths = lengths.map(|(run, span)| span.bucket_ns * (run.len() / PARTS * PARTS) as u64);
        let span_ns = lengths.min()? as f64;
        let ramp_ns = spans.iter().map(|span| span.ramp_ns).min()? as f64;
        let ends_itself = spans.iter().all(|span| span.ends_itself);
        let turn_ns = spans.iter().map(|span| span.turn_ns).fold(0.0, f64::max);
        let left_out = spans.iter().any(|span| span.left_out);
        let total: u64 = runs.iter().flat_map(|run| &run[..run.len() / PARTS * PARTS]).sum();
        let verdict = if total < COMPLETIONS_MIN {
            Verdict::TooFew
        } else if left_out || span_ns.max(ramp_ns) < TURNS_MIN * turn_ns {
            Verdict::TooShort
        } else if spread > SPREAD_MAX.max(ERRORS_MAX * error(&runs)).min(SPREAD_NEVER) {
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
        Some(Self { verdict, parts, spread_percent: spread * 100.0, ramp_ns, duration_ns, ends_itself })
    }
}

/// The standard error of a part, relative to the mean, from the differences between the buckets within each part.
fn error(runs: &[&[u64]]) -> f64 {
    let each = runs.iter().map(|run| run.len() / PARTS).min().unwrap_or(0).max(1);
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
        if self.ends_itself {
            return match self.verdict {
                Verdict::Drifts => {
                    write!(f, "the fifths of the phase differ by {:.0} % in throughput", self.spread_percent)
                }
                _ => Ok(()),
            };
        }
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
    fn parts_that_are_half_their_mean_apart_are_never_steady() {
        // As much scatter, and the parts of two and three bursts.
        let bursts = of((0..50).map(|at| if at % 10 < 2 + at / 10 % 2 { 500 } else { 0 }).collect());
        assert!((30.0..50.0).contains(&bursts.spread_percent), "{bursts:?}");
        assert_eq!(bursts.verdict, Verdict::Steady);
        let bursts = of((0..50).map(|at| if at % 10 < 2 + at / 10 % 3 { 500 } else { 0 }).collect());
        assert!(bursts.spread_percent > 50.0, "{bursts:?}");
        assert_eq!(bursts.verdict, Verdict::Drifts);
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

    #[test]
    fn a_long_ramp_makes_a_short_span_long_enough() {
        let mut short = with(vec![1000; 50]);
        short.timeline.bucket_ns = 1000;
        short.timeline.ramp_ns = 1_000_000;
        assert_eq!(Steadiness::of(&[short.clone()]).unwrap().verdict, Verdict::Steady);
        let mut drifts = short.clone();
        drifts.timeline.counts.insert("ios".into(), (0..50).map(|at| 1000 + 10 * at).collect());
        assert_eq!(Steadiness::of(&[drifts]).unwrap().verdict, Verdict::Drifts, "a long ramp hides no drift");
    }

    #[test]
    fn phases_that_end_by_themselves_have_spans_of_their_own_and_no_remedy() {
        // Two seeds with the same rate; the second phase lasts twice as long.
        let (mut first, mut second) = (with(vec![1000; 50]), with(vec![1000; 100]));
        (first.timeline.ends_itself, second.timeline.ends_itself) = (true, true);
        let both = Steadiness::of(&[first, second]).unwrap();
        assert_eq!((both.verdict, both.spread_percent), (Verdict::Steady, 0.0));
        let mut slower = with((0..50).map(|at| if at < 25 { 2000 } else { 1000 }).collect());
        slower.timeline.ends_itself = true;
        assert_eq!(
            Steadiness::of(&[slower]).unwrap().to_string(),
            "the fifths of the phase differ by 67 % in throughput"
        );
    }

    #[test]
    fn what_is_kept_of_the_runs_has_their_verdict() {
        let mut runs = [with((0..50).map(|at| 1000 + 10 * at).collect()), with(vec![1000; 50])];
        runs[1].timeline.ramp_ns = 7;
        let text = serde_json::to_string(&runs.each_ref().map(Span::of)).unwrap();
        let kept: Vec<Span> = serde_json::from_str(&text).unwrap();
        assert_eq!(Steadiness::over(&kept), Steadiness::of(&runs));
        assert_eq!(Steadiness::over(&[]), None);
    }
}
