//! Threads: parked, woken, preempted, moved.

use super::*;

#[test]
fn threads_park_and_wake_across_cpus() {
    let (mut machine, _) = machine(2);
    let log = Log::default();
    machine.set_interrupt_entry(|_| Regs::Lapic.write32(EOI, 0));
    let inner = log.clone();
    let end = machine.run_boot(Ps::from_ns(100_000), move || {
        let sleeper_log = inner.clone();
        let sleeper = SimHal.spawn(
            thread("sleeper", 1),
            Box::new(move || {
                Regs::Lapic.write32(SVR, 0x1ff);
                note(&sleeper_log, "sleeps");
                SimHal.park();
                note(&sleeper_log, format!("woken on CPU {}", SimHal.cpu()));
            }),
        );
        SimHal.delay_ns(2000);
        SimHal.wake(sleeper.expect("CPU 1 exists"));
        SimHal.delay_ns(2000);
        note(&inner, "boot ends");
    });
    assert_eq!(end, Ok(()));
    assert_eq!(entries(&log), ["2 sleeps", "2502 woken on CPU 1", "4001 boot ends"]);
}

#[test]
fn a_wake_before_the_park_is_not_lost() {
    let (mut machine, _) = machine(1);
    let end = machine.run_boot(Ps::from_ns(1000), || {
        SimHal.wake(SimHal.current_thread());
        SimHal.park();
    });
    assert_eq!(end, Ok(()));
}

/// As a kernel's timers do. Each wake of a thread that is ready used to raise the timer anew, for ever.
#[test]
fn a_tick_that_wakes_a_thread_ends_the_slice_once() {
    let config = Costs { time_slice: Ps::from_ns(1000), ..costs() };
    let mut machine = Machine::new(MachineConfig { costs: config, ..MachineConfig::default() });
    let woken = Arc::new(Mutex::new(None));
    let timer = woken.clone();
    machine.set_interrupt_entry(move |vector| {
        SimHal.work(Work::IrqHandler, 1);
        Regs::Lapic.write32(EOI, 0);
        let thread = *timer.lock().expect("one host thread");
        if let Some(thread) = thread.filter(|_| vector == 0xec) {
            SimHal.wake(thread);
        }
    });
    let log = Log::default();
    let inner = log.clone();
    let end = machine.run_boot(Ps::from_ns(1), move || {
        Regs::Lapic.write32(SVR, 0x1ff);
        for name in ["a", "b"] {
            let log = inner.clone();
            let body = move || {
                (0..3).for_each(|_| SimHal.delay_ns(600));
                note(&log, name);
            };
            let id = SimHal.spawn(thread(name, 0), Box::new(body)).expect("CPU 0 exists");
            *woken.lock().expect("one host thread") = Some(id);
        }
    });
    assert_eq!(end, Ok(()));
    assert_eq!(machine.run_until(Ps::from_ns(50_000)), RunEnd::Quiet);
    assert_eq!(log.lock().expect("one host thread").len(), 2);
}

#[test]
fn threads_of_one_cpu_take_turns() {
    let config = Costs { time_slice: Ps::from_ns(1000), ..costs() };
    let mut machine = Machine::new(MachineConfig { costs: config, ..MachineConfig::default() });
    machine.set_interrupt_entry(|_| Regs::Lapic.write32(EOI, 0));
    let log = Log::default();
    let inner = log.clone();
    let end = machine.run_boot(Ps::from_ns(1), move || {
        Regs::Lapic.write32(SVR, 0x1ff);
        for name in ["a", "b"] {
            let log = inner.clone();
            let body = move || {
                for _ in 0..3 {
                    SimHal.delay_ns(600);
                    note(&log, name);
                }
            };
            SimHal.spawn(thread(name, 0), Box::new(body)).expect("CPU 0 exists");
        }
    });
    assert_eq!(end, Ok(()));
    assert_eq!(machine.run_until(Ps::from_ns(50_000)), RunEnd::Quiet);
    let order: Vec<String> = log.lock().expect("one host thread").iter().map(|(_, text)| text.clone()).collect();
    assert_eq!(order.len(), 6);
    assert_ne!(order, ["a", "a", "a", "b", "b", "b"], "slices of 1 µs cut 1.8 µs of work");
}

#[test]
fn a_thread_moves_to_its_new_affinity_when_it_is_woken() {
    let (mut machine, _) = machine(2);
    let log = Log::default();
    let seen = log.clone();
    let end = machine.run_boot(Ps::from_ns(1_000_000), move || {
        Regs::Lapic.write64(SVR, 0x1ff);
        let body = move || {
            for _ in 0..2 {
                SimHal.park();
                note(&seen, format!("CPU {}", SimHal.cpu()));
            }
        };
        let mover = SimHal.spawn(thread("mover", 0), Box::new(body)).expect("CPU 0 exists");
        SimHal.wake(mover);
        SimHal.yield_now();
        SimHal.set_affinity(mover, &Affinity::Cpu(CpuId(1))).expect("CPU 1 exists");
        SimHal.wake(mover);
        SimHal.delay_ns(10_000);
        assert!(SimHal.set_affinity(mover, &Affinity::Cpu(CpuId(2))).is_err());
    });
    assert_eq!(end, Ok(()));
    machine.run_until(Ps::from_ns(100_000));
    let seen: Vec<String> = log.lock().expect("one host thread").iter().map(|(_, text)| text.clone()).collect();
    assert_eq!(seen, ["CPU 0", "CPU 1"]);
}
