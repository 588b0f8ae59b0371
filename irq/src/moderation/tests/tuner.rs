//! A tuner, its programmer, and devices that disobey.

use super::*;
use crate::moderation::{Controller, Counts, Moderated, Next, Programmer, Step, Tuner, Tuning, TuningView};
use hal::host::HostHal;
use hal::{Affinity, ThreadSpec};
use std::boxed::Box;
use std::sync::{Arc, Mutex};
use std::vec;
use std::vec::Vec;

/// Logs each setting, and answers by a rule.
struct Told {
    settings: Mutex<Vec<Setting>>,
    answer: fn(Setting) -> Outcome,
}

impl Moderated for Told {
    fn program(&self, setting: Setting) -> Outcome {
        self.settings.lock().expect("not poisoned").push(setting);
        (self.answer)(setting)
    }
}

fn told(answer: fn(Setting) -> Outcome) -> Arc<Told> {
    Arc::new(Told { settings: Mutex::default(), answer })
}

fn tuner(algorithm: Algorithm) -> Arc<Tuner<HostHal>> {
    Tuning { algorithm, table: rdma_table(), nr_events: 64 }.tuner(HostHal::manual(1)).expect("events")
}

#[test]
fn a_step_that_fails_leaves_the_level() {
    let (tuner, device) = (tuner(Algorithm::IrqAm), told(|_| Outcome::Failed));
    for _ in 0..300 {
        tuner.interrupt(Found::completions(1));
    }
    tuner.work(&*device);
    assert!(tuner.view().counts.failed >= 1);
    assert_eq!(device.settings.lock().expect("not poisoned").len(), 1);
}

#[test]
fn nothing_is_programmed_before_the_work_runs_nor_twice() {
    let (tuner, device) = (tuner(Algorithm::IrqAm), told(Outcome::Done));
    tuner.work(&*device);
    assert!(device.settings.lock().expect("not poisoned").is_empty());
    for _ in 0..300 {
        tuner.interrupt(Found::completions(1));
    }
    assert!(device.settings.lock().expect("not poisoned").is_empty(), "the interrupt programs nothing");
    tuner.work(&*device);
    tuner.work(&*device);
    assert_eq!(device.settings.lock().expect("not poisoned").len(), 1);
}

#[test]
fn the_thread_programs_the_first_level_and_later_ones() {
    let hal = HostHal::monotonic(1);
    let tuner = Tuning { algorithm: Algorithm::IrqAm, table: rdma_table(), nr_events: 64 };
    let tuner = tuner.tuner(hal).expect("events");
    let device = told(Outcome::Done);
    let spec = ThreadSpec { name: "moderation", affinity: Affinity::Any, urgent: false };
    let programmer = Programmer::start(hal, spec, std::vec![(tuner.clone(), device.clone() as _)]).expect("a thread");
    assert_eq!(device.settings.lock().expect("not poisoned")[0], rdma_table().setting(0));
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while device.settings.lock().expect("not poisoned").len() < 2 && std::time::Instant::now() < deadline {
        tuner.interrupt(Found::completions(1));
    }
    assert!(device.settings.lock().expect("not poisoned").len() >= 2, "{}", programmer.views()[0]);
    programmer.stop();
}

/// Wants so many levels, one after the other.
struct Wants {
    left: u32,
    inner: Box<dyn Controller>,
}

impl Wants {
    fn next(&self) -> Next {
        if self.left > 0 { Next::Program } else { Next::Measure }
    }
}

impl Controller for Wants {
    fn interrupt(&mut self, _: u64, _: Found) -> Next {
        self.next()
    }
    fn polled(&mut self, _: u64, _: Found) -> Next {
        self.next()
    }
    fn deadline_ns(&self) -> Option<u64> {
        None
    }
    fn elapsed(&mut self, _: u64) -> Next {
        self.next()
    }
    fn step(&self) -> Option<Step> {
        (self.left > 0).then_some(Step { id: self.left, level: 0, setting: rdma_table().setting(0) })
    }
    fn programmed(&mut self, _: u64, _: u32, _: Outcome) -> Next {
        self.left -= 1;
        self.next()
    }
    fn level(&self) -> usize {
        0
    }
    fn view(&self) -> TuningView {
        self.inner.view()
    }
}

/// Says whose level it programs.
struct Named(u32, Arc<Mutex<Vec<u32>>>);

impl Moderated for Named {
    fn program(&self, setting: Setting) -> Outcome {
        self.1.lock().expect("not poisoned").push(self.0);
        Outcome::Done(setting)
    }
}

/// The first one used to be served until it wanted nothing more, while the other waited.
#[test]
fn a_thread_of_two_serves_them_in_turn() {
    let hal = HostHal::monotonic(1);
    let log = Arc::<Mutex<Vec<u32>>>::default();
    let tuner = |left| {
        let inner = Algorithm::IrqAm.build(rdma_table(), 64).expect("events");
        Arc::new(Tuner::new(hal, Box::new(Wants { left, inner })))
    };
    let tuners = [tuner(1_000), tuner(1)];
    tuners.iter().for_each(|tuner| tuner.interrupt(Found::completions(1)));
    let served = (0..).zip(&tuners).map(|(number, tuner)| (tuner.clone(), Arc::new(Named(number, log.clone())) as _));
    let spec = ThreadSpec { name: "moderation", affinity: Affinity::Any, urgent: false };
    let programmer = Programmer::start(hal, spec, served.collect()).expect("a thread");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while log.lock().expect("not poisoned").len() < 1_003 && std::time::Instant::now() < deadline {
        std::thread::yield_now();
    }
    let log = log.lock().expect("not poisoned");
    // The first levels are those of the start.
    assert_eq!((&log[..5], log.len()), (&[0, 1, 0, 1, 0][..], 1_003));
    programmer.stop();
}

/// Goes up one level with its first interrupt, and stays there.
struct Up(usize);

impl Controller for Up {
    fn interrupt(&mut self, _: u64, _: Found) -> Next {
        if self.0 == 0 { Next::Program } else { Next::Measure }
    }
    fn polled(&mut self, _: u64, _: Found) -> Next {
        Next::Measure
    }
    fn deadline_ns(&self) -> Option<u64> {
        None
    }
    fn elapsed(&mut self, _: u64) -> Next {
        Next::Measure
    }
    fn step(&self) -> Option<Step> {
        (self.0 == 0).then(|| Step { id: 1, level: 1, setting: rdma_table().setting(1) })
    }
    fn programmed(&mut self, _: u64, _: u32, _: Outcome) -> Next {
        self.0 = 1;
        Next::Measure
    }
    fn level(&self) -> usize {
        self.0
    }
    fn view(&self) -> TuningView {
        TuningView {
            algorithm: "up",
            phase: "",
            level: self.0,
            level_last: 1,
            setting: rdma_table().setting(self.0),
            actual: None,
            wanted: None,
            sample: None,
            counts: Counts::default(),
        }
    }
}

/// A tuner of it that has asked for its step.
fn going_up() -> Arc<Tuner<HostHal>> {
    let tuner = Arc::new(Tuner::new(HostHal::manual(1), Box::new(Up(0))));
    tuner.interrupt(Found::completions(1));
    tuner
}

/// While it programs the step, another CPU resets the device, which restores the level.
struct Reset {
    tuner: Arc<Tuner<HostHal>>,
    told: Arc<Told>,
    resets: Mutex<u32>,
}

impl Moderated for Reset {
    fn program(&self, setting: Setting) -> Outcome {
        self.told.program(setting);
        let resets = core::mem::take(&mut *self.resets.lock().expect("not poisoned"));
        for _ in 0..resets {
            self.tuner.restore(&*self.told);
        }
        Outcome::Done(setting)
    }
}

/// The level before the step came last.
#[test]
fn a_device_that_is_restored_while_a_step_is_programmed_has_the_level_that_is_believed() {
    let [low, high] = [0, 1].map(|level| rdma_table().setting(level));
    let wanted = [vec![high], vec![high, low, high], vec![high, low, low, high]];
    for (resets, wanted) in (0..).zip(wanted) {
        let (tuner, told) = (going_up(), told(Outcome::Done));
        tuner.work(&Reset { tuner: tuner.clone(), told: told.clone(), resets: Mutex::new(resets) });
        assert_eq!(*told.settings.lock().expect("not poisoned"), wanted, "{resets} resets");
        assert_eq!(tuner.view().setting, high);
    }
}

/// The thread programs a step between the restored level and its answer.
#[test]
fn a_level_that_changes_while_it_is_restored_is_programmed() {
    struct Meanwhile(Arc<Tuner<HostHal>>, Arc<Told>);
    impl Moderated for Meanwhile {
        fn program(&self, setting: Setting) -> Outcome {
            let outcome = self.1.program(setting);
            self.0.work(&*self.1);
            outcome
        }
    }
    let (tuner, told) = (going_up(), told(Outcome::Done));
    let [low, high] = [0, 1].map(|level| rdma_table().setting(level));
    assert_eq!(tuner.restore(&Meanwhile(tuner.clone(), told.clone())), Outcome::Done(high));
    assert_eq!(*told.settings.lock().expect("not poisoned"), [low, high, high]);
}
