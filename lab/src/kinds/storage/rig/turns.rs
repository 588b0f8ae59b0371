//! How many I/Os the jobs of a span should have had in flight, and how many jobs had a turn at all. Latencies tell nothing of a
//! job that waits for a CPU from before the span until after it.

use super::course::End;
use super::tally::Counts;
use crate::kinds::storage::load::DIRECTIONS;
use crate::kinds::storage::{IoEngine, JobPlan, Turns};

/// Of those `jobs` that keep their queues full for the whole span. Where jobs are `staged`, those of other phases have no end.
pub(super) fn of<'a>(jobs: impl Iterator<Item = (&'a JobPlan, &'a Counts)>, staged: bool) -> Turns {
    let mut turns = Turns::default();
    for (job, counts) in jobs.filter(|(job, _)| keeps_full(job)) {
        let counts = counts.lock().expect("the machine stands still");
        if counts.end != staged.then_some(End::Span) {
            continue;
        }
        turns.jobs += 1;
        turns.served += u64::from(counts.ios() > 0);
        turns.in_flight += u64::from(job.iodepth);
    }
    turns
}

/// True if nothing but the server makes the job wait.
fn keeps_full(job: &JobPlan) -> bool {
    let Some(load) = &job.load else { return job.engine != IoEngine::Null };
    let pace = &load.pace;
    let has_rate = pace.bytes != [0; DIRECTIONS] || pace.ios != [0; DIRECTIONS];
    let has_pause = pace.think_ns > 0 || pace.flow.is_some() || pace.target.is_some();
    let is_late = load.start.delay_ns.1 > 0 || load.start.wait_for.is_some();
    // A cache answers, or a log says when.
    let is_other = load.syncs.buffered || load.replay.is_some() || load.depth_low > 0;
    job.engine != IoEngine::Null && !(has_rate || has_pause || is_late || is_other)
}
