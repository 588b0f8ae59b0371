//! A tuner, its programmer, and devices that disobey.

use super::*;
use crate::moderation::{Moderated, Programmer, Tuner, Tuning};
use hal::host::HostHal;
use hal::{Affinity, ThreadSpec};
use std::sync::{Arc, Mutex};
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
