//! A search for a given time: how it is divided.
//!
//! Every scenario has four searches: random histories, every order of operations on its small machines, each fault once, and
//! the forms of a history that its families have. Each has a share of the time, and the next piece of work belongs to the
//! search that has had the least of its share. A search of small machines that is through leaves its share to the others. Random
//! histories that still reach something new get up to three times theirs, and a scenario that runs what a change touches gets
//! four times its own ([`crate::touched`]). The report says what the time went to.

mod lanes;
mod unit;

pub use lanes::Spent;

use crate::campaign::{self, Campaign, HANG, Summary};
use crate::history::Recipe;
use lanes::Lanes;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use unit::{Done, Unit};

/// What the workers share.
struct Shared {
    campaign: Campaign,
    lanes: Mutex<Lanes>,
    deadline: Instant,
    /// Something was found.
    ended: AtomicBool,
    /// The piece of each worker, and since when.
    at: Vec<Mutex<Option<(Unit, Instant)>>>,
}

const UNBROKEN: &str = "no panic while it is held";

/// Searches for `time`, or up to the first failure.
///
/// # Panics
/// If a worker of this program fails, which is a defect of the program.
pub(crate) fn run(campaign: &Campaign, time: Duration) -> Summary {
    let start = Instant::now();
    // The settings of a history mean nothing to small machines.
    let plain = Recipe { seed: campaign.recipe.seed, ..Recipe::default() };
    let lanes = Lanes::new(&campaign.scenarios, &campaign.touched, campaign.recipe == plain, campaign.first_seed);
    let ended = AtomicBool::new(false);
    let at = (0..campaign.jobs).map(|_| Mutex::new(None)).collect();
    let shared =
        Arc::new(Shared { campaign: campaign.clone(), lanes: Mutex::new(lanes), deadline: start + time, ended, at });
    let (results, done) = mpsc::channel();
    for worker in 0..campaign.jobs {
        let (shared, results) = (shared.clone(), results.clone());
        std::thread::spawn(move || work(&shared, worker, &results));
    }
    drop(results);
    let bar = campaign::progress(campaign);
    let mut summary = Summary::default();
    loop {
        match done.recv_timeout(Duration::from_millis(200)) {
            Ok((scenario, Done { run, found })) => {
                if let (Some(run), true) = (run, summary.failures.is_empty()) {
                    summary.add(scenario, &run);
                    bar.inc(1);
                }
                if summary.failures.is_empty() {
                    summary.failures.extend(found);
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                let hung = shared.hung().filter(|_| summary.failures.is_empty());
                if let Some(unit) = hung {
                    summary.failures.push(unit.hang(campaign));
                    break;
                }
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
        campaign::show_progress(&bar, start, &summary, campaign.jobs);
    }
    bar.finish_and_clear();
    finish(&mut summary, &shared, start)
}

/// Adds what the time went to. The speed is that of random histories: the other searches count no I/Os.
fn finish(summary: &mut Summary, shared: &Shared, start: Instant) -> Summary {
    summary.spent = shared.lanes.lock().expect(UNBROKEN).spent();
    let random = summary.spent.iter().filter(|spent| spent.search == "random").map(|spent| spent.seconds);
    summary.measured_over(random.sum::<f64>().max(1e-9), 1);
    summary.seconds = start.elapsed().as_secs_f64();
    std::mem::take(summary)
}

fn work(shared: &Shared, worker: usize, results: &Sender<(&'static str, Done)>) {
    while shared.goes_on() {
        let Some((lane, unit)) = shared.lanes.lock().expect(UNBROKEN).next() else { return };
        let begun = Instant::now();
        *shared.at[worker].lock().expect(UNBROKEN) = Some((unit.clone(), begun));
        let done = unit.run(&shared.campaign);
        *shared.at[worker].lock().expect(UNBROKEN) = None;
        shared.lanes.lock().expect(UNBROKEN).done(lane, begun.elapsed(), done.run.as_ref());
        if done.found.is_some() {
            shared.ended.store(true, Relaxed);
        }
        if results.send((unit.scenario(), done)).is_err() {
            return;
        }
    }
}

impl Shared {
    fn goes_on(&self) -> bool {
        Instant::now() < self.deadline && !self.ended.load(Relaxed) && !self.campaign.stop.load(Relaxed)
    }

    /// A piece that does not end on the host.
    fn hung(&self) -> Option<Unit> {
        let mut at = self.at.iter().filter_map(|at| at.lock().expect(UNBROKEN).clone());
        at.find(|(_, since)| since.elapsed() > HANG).map(|(unit, _)| unit)
    }
}
