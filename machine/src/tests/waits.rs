//! Locks, waits for words, and the console.

use super::*;
use crate::NO_THREAD;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The wait then used to end at its deadline, before the present.
#[test]
fn a_wait_whose_deadline_has_passed_takes_no_time_back() {
    let (mut machine, _) = machine(1);
    let end = machine.run_boot(Ps::from_ns(100_000), || {
        let (word, off) = (<Word as hal::Word>::new(0), SimHal.irq_save());
        let start_ns = SimHal.now_ns();
        SimHal.work(SUBMIT, 5);
        SimHal.relax_on(&word, 0, start_ns + 1_000);
        SimHal.irq_restore(off);
        SimHal.now_ns() - start_ns
    });
    assert_eq!(end, Ok(5_000));
}

#[test]
fn a_lock_is_handed_between_cpus() {
    let (mut machine, _) = machine(4);
    machine.set_interrupt_entry(|_| Regs::Lapic.write32(EOI, 0));
    let total = machine.run_boot(Ps::from_ns(1_000_000), || {
        let counter = Arc::new(Lock::new(SimHal, 0u32));
        let done = Arc::new(Word::new(0));
        for cpu in 1..4 {
            let (counter, done) = (counter.clone(), done.clone());
            let body = move || {
                for _ in 0..10 {
                    let mut value = counter.lock();
                    let before = *value;
                    SimHal.delay_ns(70);
                    *value = before + 1;
                }
                done.fetch_add(1);
            };
            SimHal.spawn(thread("adder", cpu), Box::new(body)).expect("the CPU exists");
        }
        while done.get() < 3 {
            SimHal.relax_on(&done, done.get(), u64::MAX);
        }
        *counter.lock()
    });
    assert_eq!(total, Ok(30));
    assert!(machine.now() >= Ps::from_ns(30 * 70), "the lock excludes");
}

#[test]
fn a_wait_that_nobody_ends_is_reported() {
    let (mut machine, _) = machine(1);
    let end = machine.run_boot(Ps::from_ns(1_000_000), || {
        let word = Word::new(0);
        SimHal.relax_on(&word, 0, u64::MAX);
    });
    assert_eq!(end, Err(BootError::Stuck(RunEnd::Deadlock(vec![CpuId(0)]))));
}

#[test]
fn the_console_waits_for_a_lock_that_a_thread_holds() {
    let (mut machine, _) = machine(1);
    let lock = Arc::new(Lock::new(SimHal, 1));
    let held = lock.clone();
    let end = machine.run_boot(Ps::from_ns(1), move || {
        let body = move || {
            let mut value = held.lock();
            SimHal.delay_ns(5000);
            *value = 2;
        };
        SimHal.spawn(thread("holder", 0), Box::new(body)).expect("CPU 0 exists");
    });
    assert_eq!(end, Ok(()));
    machine.run_until(Ps::from_ns(1000));
    let before = machine.now();
    assert_eq!(*lock.lock(), 2);
    assert!(machine.now() > before + Ps::from_ns(3000) && machine.now() < before + Ps::from_ns(4500));
}

#[test]
fn the_console_lets_threads_run_when_it_yields() {
    let (mut machine, _) = machine(1);
    let word = Arc::new(<Word as hal::Word>::new(0));
    let written = word.clone();
    let end = machine.run_boot(Ps::from_ns(1), move || {
        let body = move || {
            SimHal.delay_ns(500);
            written.set(1);
        };
        SimHal.spawn(thread("writer", 0), Box::new(body)).expect("CPU 0 exists");
    });
    assert_eq!(end, Ok(()));
    for _ in 0..50 {
        SimHal.yield_now();
    }
    assert_eq!(word.get(), 1);
}

#[test]
fn a_waiter_lets_the_urgent_thread_of_its_own_cpu_write_the_word() {
    let (mut machine, _) = machine(1);
    let end = machine.run_boot(Ps::from_ns(1_000_000), || {
        Regs::Lapic.write64(SVR, 0x1ff);
        let word = Arc::new(<Word as hal::Word>::new(0));
        let writer = word.clone();
        let spec = ThreadSpec { urgent: true, ..thread("writer", 0) };
        SimHal.spawn(spec, Box::new(move || _ = writer.swap(1))).expect("CPU 0 exists");
        while word.load() == 0 {
            SimHal.relax_on(&word, 0, u64::MAX);
        }
    });
    assert_eq!(end, Ok(()));
}

#[test]
fn a_wait_ends_at_its_deadline() {
    let (mut machine, _) = machine(1);
    let end = machine.run_boot(Ps::from_ns(10_000), || {
        let word = Word::new(0);
        SimHal.relax_on(&word, 0, 700);
        SimHal.now_ns()
    });
    assert_eq!(end, Ok(700));
}

/// Unwound code may poll up to a deadline. No event happens any more, so its clock used to stand still.
#[test]
fn the_clock_of_a_dead_machine_goes_on() {
    struct Polls;
    impl Drop for Polls {
        fn drop(&mut self) {
            let end_ns = SimHal.now_ns() + 10_000_000;
            while SimHal.now_ns() < end_ns {
                SimHal.delay_ns(100);
            }
        }
    }
    let (mut machine, _) = machine(2);
    let ran = machine.run_boot(Ps::from_ns(100_000), || {
        for cpu in 0..2 {
            let body = || {
                let _polls = Polls;
                loop {
                    SimHal.delay_ns(30);
                }
            };
            SimHal.spawn(thread("polls", cpu), Box::new(body)).expect("the CPU exists");
        }
    });
    assert_eq!(ran, Ok(()));
    machine.run_until(Ps::from_ns(200_000));
    drop(machine);
}

/// Unwound code may ask for its thread, as what frees a line does. It runs on the console, where that was a panic.
#[test]
fn code_of_a_dead_machine_has_no_thread() {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    struct Asks;
    impl Drop for Asks {
        fn drop(&mut self) {
            ASKED.store(SimHal.current_thread().0, Relaxed);
        }
    }
    let (mut machine, _) = machine(2);
    let ran = machine.run_boot(Ps::from_ns(100_000), || {
        let body = || {
            let _asks = Asks;
            loop {
                SimHal.delay_ns(30);
            }
        };
        SimHal.spawn(thread("asks", 1), Box::new(body)).expect("the CPU exists");
    });
    assert_eq!(ran, Ok(()));
    machine.run_until(Ps::from_ns(200_000));
    drop(machine);
    assert_eq!(ASKED.load(Relaxed), NO_THREAD.0);
}
