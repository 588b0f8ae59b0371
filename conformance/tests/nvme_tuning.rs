//! Features 08h and 09h under a moderation controller: one controller for all queues. A thread programs the levels by
//! an admin command.

mod nvme_rig;

use drivers::nvme::{
    BatchDone, COALESCING_LEVELS, Coalescing, Completed, Controller, IoOp, IoRequest, QueueConfig, QueuePair,
    VectorCoalescing,
};
use hal::{Affinity, CpuId, DeviceAddress, Hal as _, ThreadSpec};
use irq::moderation::{
    self, Algorithm, Counts, Found, LevelTable, Moderated, Next, Outcome, Programmer, Setting, Step, Tuner, TuningView,
};
use machine::SimHal;
use machine::nvme::{Config, FaultPlan};
use machine::outage::Outage;
use machine::time::Ps;
use nvme_rig::{Host, config, host, unreliable};
use std::sync::{Arc, Mutex};

struct Ignore;

impl BatchDone for Ignore {
    fn batch_done(&self, _batch: &[Completed]) {}
}

/// The inputs of a scripted controller: interrupts, polls, and the I/Os under way.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<(&'static str, Found)>>>);

impl Log {
    fn of(&self, kind: &str) -> Vec<Found> {
        let log = self.0.lock().expect("one host thread");
        log.iter().filter(|(known, _)| *known == kind).map(|&(_, found)| found).collect()
    }
}

/// Wants one level, once it has seen `after` interrupts.
struct Scripted {
    log: Log,
    after: usize,
    setting: Setting,
    outcome: Arc<Mutex<Option<Outcome>>>,
    asked: bool,
}

impl moderation::Controller for Scripted {
    fn interrupt(&mut self, _now_ns: u64, found: Found) -> Next {
        self.log.0.lock().expect("one host thread").push(("interrupt", found));
        let due = !self.asked && self.log.of("interrupt").len() >= self.after;
        self.asked |= due;
        if due { Next::Program } else { Next::Measure }
    }
    fn polled(&mut self, _now_ns: u64, found: Found) -> Next {
        self.log.0.lock().expect("one host thread").push(("poll", found));
        Next::Measure
    }
    fn deadline_ns(&self) -> Option<u64> {
        None
    }
    fn elapsed(&mut self, _now_ns: u64) -> Next {
        Next::Measure
    }
    fn step(&self) -> Option<Step> {
        self.asked.then_some(Step { id: 1, level: 1, setting: self.setting })
    }
    fn programmed(&mut self, _now_ns: u64, _id: u32, outcome: Outcome) -> Next {
        *self.outcome.lock().expect("one host thread") = Some(outcome);
        Next::Measure
    }
    fn level(&self) -> usize {
        0
    }
    fn view(&self) -> TuningView {
        TuningView {
            algorithm: "scripted",
            phase: "counting",
            level: 0,
            level_last: 1,
            setting: Setting::OFF,
            actual: None,
            wanted: None,
            sample: None,
            counts: Counts::default(),
        }
    }
}

struct Rig {
    controller: Arc<Controller<SimHal>>,
    pairs: Vec<Arc<QueuePair<SimHal>>>,
    log: Log,
    outcome: Arc<Mutex<Option<Outcome>>>,
}

/// A drive with queues on vectors 1 and 2, tuned by a script that wants `setting` after ten interrupts.
fn rig(host: &Host, setting: Setting) -> Rig {
    host.msix_on(5);
    let config = drivers::nvme::Config { queue_pairs: 4, ..Default::default() };
    let controller = Arc::new(Controller::new(SimHal, host.bar0, config).expect("the controller starts"));
    let (log, outcome) = (Log::default(), Arc::new(Mutex::new(None)));
    let scripted = Scripted { log: log.clone(), after: 10, setting, outcome: outcome.clone(), asked: false };
    let tuner = Arc::new(Tuner::new(SimHal, Box::new(scripted)));
    let queue = |vector: u16| {
        let config = QueueConfig { entries: 16, vector: Some(vector), transfer_bytes_max: 4096 };
        let pair = controller.create_queue_pair(config, Arc::new(Ignore)).expect("a queue pair");
        host.serve(vector, pair.clone());
        pair
    };
    // One before and one after the tuning begins: both feed it.
    let first = queue(1);
    controller.tune(tuner.clone());
    let pairs = vec![first, queue(2)];
    let spec = ThreadSpec { name: "moderation", affinity: Affinity::Cpu(CpuId(0)), urgent: true };
    Programmer::start(SimHal, spec, vec![(tuner, controller.clone() as _)]).expect("a thread");
    Rig { controller, pairs, log, outcome }
}

/// Flushes 10 µs apart, in turn on both queues.
fn load(host: &Host, rig: &Rig, count: u64) {
    for tag in 0..count {
        let flush = IoRequest { tag, op: IoOp::Flush, lba: 0, buffer: DeviceAddress(0), len_bytes: 0 };
        assert_eq!(rig.pairs[tag as usize % 2].submit(&[flush]).accepted, 1);
        host.wait_ns(10_000);
    }
    host.wait_ns(3_000_000);
}

#[test]
fn one_controller_is_fed_by_all_queues_and_programs_feature_08h_from_a_thread() {
    let after = host(config(), |host| {
        // 150 µs is rounded up to the feature's steps of 100 µs; the tuner reports a quantised level.
        let rig = rig(host, Setting::new(150, 4));
        load(host, &rig, 90);
        assert_eq!(*rig.outcome.lock().expect("one host thread"), Some(Outcome::Done(Setting::new(200, 4))));
        let coalescing = rig.controller.coalescing().expect("feature 08h");
        assert_eq!((coalescing.time.us(), coalescing.threshold.get()), (200, 4));
        let interrupts = rig.log.of("interrupt");
        assert_eq!(interrupts.iter().map(|found| found.completions).sum::<u32>(), 90);
        assert!(interrupts.iter().all(|found| found.in_flight >= Some(found.completions)), "{interrupts:?}");
        assert_eq!(rig.pairs.iter().filter(|pair| pair.is_tuned()).count(), 2);
    });
    // Ten at once, then four at a time on each queue.
    let io: u64 = after.by_vector[1..3].iter().sum();
    assert!((28..=36).contains(&io), "{io} interrupts");
    assert!(after.faults.is_empty(), "{:?}", after.faults);
}

#[test]
fn polled_completions_count_too() {
    host(config(), |host| {
        let rig = rig(host, Setting::OFF);
        let flush = IoRequest { tag: 0, op: IoOp::Flush, lba: 0, buffer: DeviceAddress(0), len_bytes: 0 };
        assert_eq!(rig.pairs[0].submit(&[flush; 3]).accepted, 3);
        assert!(rig.pairs[0].wait_for_completion(SimHal.now_ns() + 100_000));
        rig.pairs[0].poll(usize::MAX);
        host.wait_ns(100_000);
        let found: u32 =
            ["interrupt", "poll"].iter().flat_map(|kind| rig.log.of(kind)).map(|found| found.completions).sum();
        assert_eq!(found, 3);
        assert!(!rig.log.of("poll").is_empty());
    });
}

#[test]
fn a_vector_without_coalescing_feeds_nothing() {
    host(config(), |host| {
        let rig = rig(host, Setting::OFF);
        rig.controller.set_vector_coalescing(2, VectorCoalescing::Immediate).expect("feature 09h");
        assert_eq!([0, 1].map(|index: usize| rig.pairs[index].is_tuned()), [true, false]);
        load(host, &rig, 8);
        assert_eq!(rig.log.of("interrupt").iter().map(|found| found.completions).sum::<u32>(), 4);
        rig.controller.set_vector_coalescing(2, VectorCoalescing::Coalesced).expect("feature 09h");
        assert!(rig.pairs[1].is_tuned());
    });
}

/// The drive took the level, and then did not say which.
#[test]
fn a_level_that_was_taken_counts_although_it_is_not_read() {
    let wanted = Setting::new(150, 4);
    let controller = |host: &Host| {
        host.msix_on(5);
        let config = drivers::nvme::Config { queue_pairs: 4, admin_timeout_ns: 1_000_000, ..Default::default() };
        Controller::new(SimHal, host.bar0, config).expect("the controller starts")
    };
    let taken_ns = host(config(), move |host| {
        controller(host).set_coalescing(Coalescing::nearest(wanted).expect("a level")).expect("feature 08h");
        SimHal.now_ns()
    });
    let silent_at = Some(Ps::from_ns(taken_ns.result + 1));
    unreliable(config(), Outage { silent_at, ..Outage::default() }, move |host| {
        assert_eq!(controller(host).program(wanted), Outcome::Done(Setting::new(200, 4)));
    });
}

/// The feature belongs to the vector: a queue that is made on it later feeds nothing either. A reset takes the feature back.
#[test]
fn a_queue_that_is_made_on_a_vector_without_coalescing_feeds_nothing() {
    host(config(), |host| {
        let rig = rig(host, Setting::OFF);
        rig.controller.set_vector_coalescing(2, VectorCoalescing::Immediate).expect("feature 09h");
        let again = || {
            rig.controller.delete_queue_pair(2).expect("it exists");
            let config = QueueConfig { entries: 16, vector: Some(2), transfer_bytes_max: 4096 };
            rig.controller.create_queue_pair(config, Arc::new(Ignore)).expect("a queue pair")
        };
        assert!(!again().is_tuned());
        rig.controller.set_vector_coalescing(2, VectorCoalescing::Coalesced).expect("feature 09h");
        assert!(again().is_tuned());
        rig.controller.set_vector_coalescing(2, VectorCoalescing::Immediate).expect("feature 09h");
        rig.controller.reset().expect("it works");
        assert!(again().is_tuned());
    });
}

#[test]
fn what_the_feature_cannot_express_or_the_device_refuses_is_a_failed_step() {
    let outage = Outage { gone_at: Some(Ps::from_ns(5_000_000)), ..Outage::default() };
    unreliable(config(), outage, |host| {
        let rig = rig(host, Setting::new(30_000, 4));
        load(host, &rig, 12);
        assert_eq!(*rig.outcome.lock().expect("one host thread"), Some(Outcome::Failed));
        assert_eq!(rig.controller.program(Setting::new(100, 300)), Outcome::Failed);
        host.wait_ns(3_000_000);
        assert_eq!(rig.controller.program(Setting::new(100, 4)), Outcome::Failed, "the drive is gone");
    });
}

#[test]
fn a_reset_keeps_the_level_of_the_tuner() {
    host(config(), |host| {
        let rig = rig(host, Setting::new(200, 4));
        let table = LevelTable::new(COALESCING_LEVELS).expect("sorted");
        let mut controller = Algorithm::RdmaDim.build(table, 64).expect("events");
        // Completions a second that double from sample to sample: a step up each.
        let mut now_ns = 0;
        let mut gap_ns = 20_000;
        while controller.step().is_none() {
            now_ns += gap_ns;
            gap_ns -= gap_ns / 100;
            let _ = controller.interrupt(now_ns, Found::completions(2));
        }
        let step = controller.step().expect("asked for");
        let _ = controller.programmed(now_ns, step.id, Outcome::Done(step.setting));
        rig.controller.tune(Arc::new(Tuner::new(SimHal, controller)));
        rig.controller.reset().expect("it comes back");
        assert_eq!(rig.controller.coalescing().expect("feature 08h").setting(), step.setting);
        assert!(rig.pairs.iter().all(|pair| pair.is_tuned()));
    });
}

/// `check` found it: the drive failed while the reset gave it the tuner's level, and a reset said that it had come back.
#[test]
fn a_drive_that_fails_during_its_reset_has_not_come_back() {
    /// When the reset began and ended, its result, and the drive's health then.
    fn reset(fatal_at: Option<Ps>) -> (u64, u64, bool, bool) {
        let faults = FaultPlan { fatal_at, ..FaultPlan::default() };
        let body = |host: &mut Host| {
            let rig = rig(host, Setting::new(200, 4));
            let from_ns = SimHal.now_ns();
            let back = rig.controller.reset().is_ok();
            (from_ns, SimHal.now_ns(), back, rig.controller.check_health().is_ok())
        };
        host(Config { faults, ..config() }, body).result
    }
    let (from_ns, until_ns, back, healthy) = reset(None);
    assert!(back && healthy);
    let mut refused = 0;
    for at_ns in (from_ns..until_ns).step_by(250) {
        let (_, _, back, healthy) = reset(Some(Ps::from_ns(at_ns)));
        assert!(healthy || !back, "it failed at {at_ns} ns, the reset ran from {from_ns} to {until_ns} ns");
        refused += u32::from(!back);
    }
    assert!(refused > 0);
}
