//! Places of the remedies, and the advice that follows.

use super::change::{Change, Criterion};
use super::needs::Possible;
use super::{Advice, Candidate};
use serde::Serialize;

/// The least gain that counts, in per cent: published tables call less "no change" (row E14).
pub const LEAST_THROUGHPUT: f64 = 1.0;
/// The least gain in tail latency or CPU time that counts, in per cent.
pub const LEAST_OTHER: f64 = 3.0;
/// What a remedy for the tail or the CPU may cost in throughput, in per cent.
const THROUGHPUT_LOSS: f64 = 1.0;
/// What a remedy for the CPU may cost in tail latency, in per cent.
const TAIL_LOSS: f64 = 3.0;

/// Gives each candidate its place by a criterion. Those whose interval overlaps that of the first of their place share
/// it. Among them the one that takes the least effort stands first.
pub fn place(candidates: &mut [Candidate], by: Criterion) {
    let gain = |candidate: &Candidate| candidate.changes.gain(by).unwrap_or(Change::NONE);
    candidates.sort_by(|a, b| gain(b).percent.total_cmp(&gain(a).percent));
    let mut first = 0;
    for at in 0..candidates.len() {
        if !gain(&candidates[at]).overlaps(&gain(&candidates[first])) {
            first = at;
        }
        candidates[at].place = first + 1;
    }
    candidates.sort_by_key(|candidate| (candidate.place, candidate.effort));
}

/// The advice by one criterion.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// What it is about.
    pub by: Criterion,
    /// The first remedy that gains beyond its interval; none: none is needed.
    pub first: Option<String>,
    /// Those that cannot be told apart from it.
    pub tied: Vec<String>,
    /// Where none is first: the remedy that gains most in the mean over the servers that could be this one, though not on all.
    pub perhaps: Option<String>,
    /// A remedy that would gain more if a condition holds that nothing here tells.
    pub unless: Option<String>,
    /// The first remedy that polls, if it gains more than all others.
    pub polling: Option<String>,
}

/// True if a remedy gains by `by` beyond its interval, and loses nothing that matters more.
pub fn gains(candidate: &Candidate, by: Criterion) -> bool {
    let least = if by == Criterion::Throughput { LEAST_THROUGHPUT } else { LEAST_OTHER };
    let keeps = |of: Criterion, loss: f64| candidate.changes.gain(of).is_none_or(|gain| gain.percent >= -loss);
    let is_gain = candidate.changes.gain(by).is_some_and(|gain| gain.percent >= least && gain.low > 0.0);
    is_gain
        && match by {
            Criterion::Throughput => true,
            Criterion::Tail => keeps(Criterion::Throughput, THROUGHPUT_LOSS),
            Criterion::Cpu => keeps(Criterion::Throughput, THROUGHPUT_LOSS) && keeps(Criterion::Tail, TAIL_LOSS),
        }
}

/// True if a remedy gains throughput that counts in the mean over the servers that could be this one, though not beyond its
/// interval.
fn may_gain(candidate: &Candidate, by: Criterion) -> bool {
    by == Criterion::Throughput && candidate.expected.is_some_and(|expected| expected >= LEAST_THROUGHPUT)
}

impl Verdict {
    /// The verdict on candidates that were measured and lie within the budget.
    pub fn of(candidates: &[Candidate], by: Criterion) -> Self {
        let mut gaining: Vec<Candidate> = candidates.iter().filter(|candidate| gains(candidate, by)).cloned().collect();
        place(&mut gaining, by);
        let is_sure = |candidate: &&Candidate| matches!(candidate.possible, Possible::Yes(_)) && !candidate.polls;
        let sure: Vec<&Candidate> = gaining.iter().filter(is_sure).collect();
        let first = sure.first().copied();
        let gain = |candidate: &Candidate| candidate.changes.gain(by).unwrap_or(Change::NONE);
        let beats = |candidate: &&Candidate| {
            first.is_none_or(|first| {
                !gain(candidate).overlaps(&gain(first)) && gain(candidate).percent > gain(first).percent
            })
        };
        let tied = |candidate: &&&Candidate| {
            first.is_some_and(|first| candidate.place == first.place && candidate.name != first.name)
        };
        let conditional = gaining.iter().filter(|one| !one.polls && matches!(one.possible, Possible::If(_)));
        let polling = gaining.iter().filter(|one| one.polls && matches!(one.possible, Possible::Yes(_)));
        let unsure = |candidate: &&Candidate| first.is_none() && is_sure(candidate) && may_gain(candidate, by);
        let expected = |candidate: &Candidate| candidate.expected.unwrap_or(0.0);
        let most = |a: &&Candidate, b: &&Candidate| expected(a).total_cmp(&expected(b));
        Self {
            by,
            perhaps: candidates.iter().filter(unsure).max_by(most).map(|one| one.name.clone()),
            first: first.map(|first| first.name.clone()),
            tied: sure.iter().filter(tied).map(|one| one.name.clone()).collect(),
            unless: conditional.filter(beats).map(|one| one.name.clone()).next(),
            polling: polling.filter(beats).map(|one| one.name.clone()).next(),
        }
    }
}

impl Advice {
    /// True if nothing that can be switched on here, and that does not poll, gains in throughput or tail latency.
    pub fn is_none_needed(&self) -> bool {
        self.verdicts
            .iter()
            .filter(|verdict| verdict.by != Criterion::Cpu)
            .all(|verdict| verdict.first.is_none() && verdict.perhaps.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::super::change::Changes;
    use super::*;

    fn candidate(name: &str, percent: f64, half: f64) -> Candidate {
        let change = Change { percent, low: percent - half, high: percent + half };
        Candidate {
            name: name.into(),
            changes: Changes { throughput: Some(change), p99: None, p99_9: None, cpu: None },
            ..Candidate::blank()
        }
    }

    #[test]
    fn remedies_whose_intervals_overlap_share_a_place_and_the_easiest_is_first() {
        let mut all = vec![
            candidate("far", 2.0, 0.5),
            Candidate { effort: 2, ..candidate("custom", 10.2, 1.0) },
            candidate("easy", 10.0, 1.0),
        ];
        place(&mut all, Criterion::Throughput);
        let found: Vec<_> = all.iter().map(|one| (one.name.as_str(), one.place)).collect();
        assert_eq!(found, [("easy", 1), ("custom", 1), ("far", 3)]);
    }

    #[test]
    fn none_is_needed_if_nothing_gains_beyond_its_interval() {
        let verdict = |of: &[Candidate]| Verdict::of(of, Criterion::Throughput);
        let noise = [candidate("a", 2.0, 2.5), candidate("b", 0.5, 0.1), candidate("c", -5.0, 0.1)];
        assert_eq!(verdict(&noise).first, None);
        let gain = [candidate("a", 5.0, 0.5), candidate("b", 5.2, 0.5)];
        assert_eq!((verdict(&gain).first.as_deref(), verdict(&gain).tied.len()), (Some("b"), 1));
    }

    #[test]
    fn a_remedy_that_gains_in_the_mean_over_servers_is_named_as_a_likely_one() {
        let unsure = |expected: f64| Candidate { expected: Some(expected), ..candidate("a", 0.5, 6.0) };
        let found = |of: &[Candidate]| Verdict::of(of, Criterion::Throughput);
        let likely = found(&[unsure(1.5)]);
        assert_eq!((likely.first.as_deref(), likely.perhaps.as_deref()), (None, Some("a")));
        assert_eq!(found(&[unsure(0.8)]).perhaps, None);
        assert_eq!(found(&[candidate("a", 5.0, 6.0)]).perhaps, None, "constants that were not drawn");
        assert_eq!(found(&[unsure(1.5), candidate("b", 5.0, 0.5)]).perhaps, None, "one is sure");
    }

    #[test]
    fn a_remedy_that_polls_or_that_has_a_condition_is_named_apart() {
        let all = [
            candidate("sure", 5.0, 0.5),
            Candidate { polls: true, ..candidate("polls", 50.0, 0.5) },
            Candidate { possible: Possible::If(vec!["x".into()]), ..candidate("perhaps", 20.0, 0.5) },
        ];
        let found = Verdict::of(&all, Criterion::Throughput);
        assert_eq!(found.first.as_deref(), Some("sure"));
        assert_eq!((found.unless.as_deref(), found.polling.as_deref()), (Some("perhaps"), Some("polls")));
    }

    #[test]
    fn a_remedy_for_the_tail_must_not_cost_throughput() {
        let mut one = candidate("slow", -4.0, 0.1);
        one.changes.p99 = Some(Change { percent: -30.0, low: -31.0, high: -29.0 });
        assert!(!gains(&one, Criterion::Tail));
        one.changes.throughput = Some(Change::NONE);
        assert!(gains(&one, Criterion::Tail) && !gains(&one, Criterion::Throughput));
    }
}
