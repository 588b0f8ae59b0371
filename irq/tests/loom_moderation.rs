//! Every interleaving of samplers with the thread that programs: a level that is wanted gets programmed.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p campanile-irq --test loom_moderation --release`
//!
//! Samplers stand for interrupts on two CPUs, each of which wants another level; the thread runs when a wake-up waits
//! for it. A reset restores the level beside a step of the thread. The tests that should panic do something too early, to show that
//! the model finds it.
#![cfg(loom)]

mod loom_word;

use campanile_irq::moderation::{Handover, Restores};
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;
use loom_word::LoomWord;

struct Shared {
    /// The level that the controller wants.
    wanted: Mutex<u64>,
    handover: Handover<LoomWord>,
    /// 1: a wake-up waits for the thread.
    woken: AtomicU64,
    device: AtomicU64,
}

/// How the thread takes what is asked.
#[derive(Clone, Copy, PartialEq)]
enum Taking {
    /// Takes, then looks at the controller.
    Delivered,
    /// Wrong: looks at the controller, then takes, and forgets what was asked in between.
    LooksFirst,
}

fn sampler(shared: &Shared, level: u64) {
    let mut wanted = shared.wanted.lock().unwrap();
    *wanted = (*wanted).max(level);
    drop(wanted);
    if shared.handover.ask() {
        // Not a store: with two of them the thread would see what the later one's sampler wrote, alone.
        shared.woken.swap(1, Ordering::AcqRel);
    }
}

/// The thread, if it was woken.
fn programmer(shared: &Shared, taking: Taking) {
    if shared.woken.swap(0, Ordering::AcqRel) == 0 {
        return;
    }
    let before = *shared.wanted.lock().unwrap();
    while shared.handover.take() {
        let now = *shared.wanted.lock().unwrap();
        let level = if taking == Taking::LooksFirst { before } else { now };
        shared.device.store(level, Ordering::Release);
    }
}

const LAST: u64 = 2;

fn check(taking: Taking) {
    loom::model(move || {
        let shared = Arc::new(Shared {
            wanted: Mutex::new(0),
            handover: Handover::default(),
            woken: AtomicU64::new(0),
            device: AtomicU64::new(0),
        });
        let start = |run: Box<dyn FnOnce(&Shared) + Send>| {
            let shared = shared.clone();
            thread::spawn(move || run(&shared))
        };
        let threads = [
            start(Box::new(|shared| sampler(shared, 1))),
            start(Box::new(|shared| sampler(shared, LAST))),
            start(Box::new(move |shared| programmer(shared, taking))),
        ];
        for thread in threads {
            thread.join().unwrap();
        }
        // A wake-up that came after its last round.
        programmer(&shared, taking);
        assert_eq!(shared.device.load(Ordering::Acquire), LAST);
    });
}

#[test]
fn what_is_wanted_is_programmed() {
    check(Taking::Delivered);
}

#[test]
#[should_panic = "assertion"]
fn a_thread_that_looks_before_it_takes_is_caught() {
    check(Taking::LooksFirst);
}

/// How a reset restores the level.
#[derive(Clone, Copy, PartialEq)]
enum Restoring {
    Delivered,
    /// Wrong: counts and looks, then programs.
    ProgramsLast,
}

/// A device that two program, and the level in force.
#[derive(Default)]
struct Tuned {
    in_force: Mutex<u64>,
    device: Mutex<u64>,
    restores: Restores<LoomWord>,
}

impl Tuned {
    fn restore(&self, restoring: Restoring) {
        let in_force = || *self.in_force.lock().unwrap();
        let program = |level| *self.device.lock().unwrap() = level;
        match restoring {
            Restoring::Delivered => self.restores.restore(in_force, program),
            Restoring::ProgramsLast => program(self.restores.restore(in_force, |level| level)),
        }
    }

    fn step(&self, level: u64) {
        let is_restored = self.restores.step(|| {
            *self.device.lock().unwrap() = level;
            *self.in_force.lock().unwrap() = level;
        });
        if is_restored {
            self.restore(Restoring::Delivered);
        }
    }
}

fn restore_beside_a_step(restoring: Restoring) {
    loom::model(move || {
        let tuned = Arc::new(Tuned::default());
        let own = tuned.clone();
        let thread = thread::spawn(move || own.step(LAST));
        tuned.restore(restoring);
        thread.join().unwrap();
        assert_eq!(*tuned.device.lock().unwrap(), LAST);
    });
}

#[test]
fn a_level_that_is_restored_is_the_one_in_force() {
    restore_beside_a_step(Restoring::Delivered);
}

#[test]
#[should_panic = "assertion"]
fn a_reset_that_looks_before_it_programs_is_caught() {
    restore_beside_a_step(Restoring::ProgramsLast);
}
