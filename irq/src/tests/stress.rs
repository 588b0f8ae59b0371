//! Host threads interrupt, request, free and synchronize at the same time.

use super::*;
use alloc::boxed::Box;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use hal::{Affinity, Hal, ThreadSpec, Threads};

#[test]
fn no_handler_runs_after_free_has_returned() {
    const ROUNDS: u32 = 300;
    let hal = HostHal::monotonic(3);
    let config = CoreConfig {
        storm: StormConfig { burst_ns_min: 0, unhandled_max: u32::MAX, ..Default::default() },
        ..x86(3, 4)
    };
    let core = Arc::new(IrqCore::new(hal, config).unwrap());
    let chip = LogChip::new(Ops { mask: false, ..ALL_OPS }, Log::default());
    let irq = core.alloc_line(Arc::new(LogDomain(Arc::new(chip))), &on(CpuSet::first(3)), Flow::Edge).unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let spec = |cpu| ThreadSpec { name: "stress", affinity: Affinity::Cpu(CpuId(cpu)), urgent: false };
    for cpu in 1..3 {
        let (core, done) = (core.clone(), done.clone());
        let interrupts = move || {
            while !done.load(SeqCst) {
                hal.interrupt(CpuId(cpu), || assert!(core.handle_irq(irq)));
            }
        };
        hal.spawn(spec(cpu), Box::new(interrupts)).unwrap();
    }
    for round in 0..ROUNDS {
        let (live, runs) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU32::new(0)));
        let (alive, ran) = (live.clone(), runs.clone());
        let action = handler(move |_| {
            assert!(alive.load(SeqCst), "round {round}");
            ran.fetch_add(1, SeqCst);
            IrqReturn::Handled
        });
        core.request(irq, "test", RequestFlags::default(), action.clone()).unwrap();
        while runs.load(SeqCst) < 3 {
            std::thread::yield_now();
        }
        core.synchronize(irq).unwrap();
        core.free(irq, &action).unwrap();
        live.store(false, SeqCst);
        assert_eq!(Arc::strong_count(&action), 1, "round {round}: the core still holds the handler");
    }
    done.store(true, SeqCst);
    hal.join_all();
    let view = core.view(irq).unwrap();
    assert!(!view.in_progress && view.handlers.is_empty() && view.count >= u64::from(3 * ROUNDS));
}

#[test]
fn freeing_a_per_cpu_handler_waits_for_the_other_cpus() {
    let hal = HostHal::monotonic(2);
    let core = Arc::new(IrqCore::new(hal, x86(2, 1)).unwrap());
    let chip = LogChip::new(ALL_OPS, Log::default());
    let irq = core.alloc_line(Arc::new(LogDomain(Arc::new(chip))), &on(CpuSet::first(2)), Flow::PerCpu).unwrap();
    // 0: not begun, 1: running, 2: being freed, 3: ended.
    let stage = Arc::new(AtomicU32::new(0));
    let seen = stage.clone();
    let action = handler(move |_| {
        seen.store(1, SeqCst);
        while seen.load(SeqCst) < 2 {
            std::thread::yield_now();
        }
        hal.delay_ns(5_000_000);
        seen.store(3, SeqCst);
        IrqReturn::Handled
    });
    core.request(irq, "test", RequestFlags::default(), action.clone()).unwrap();
    let other = core.clone();
    let spec = ThreadSpec { name: "other CPU", affinity: Affinity::Cpu(CPU1), urgent: false };
    hal.spawn(spec, Box::new(move || hal.interrupt(CPU1, || assert!(other.handle_irq(irq))))).unwrap();
    while stage.load(SeqCst) < 1 {
        std::thread::yield_now();
    }
    stage.store(2, SeqCst);
    core.free(irq, &action).unwrap();
    assert_eq!(stage.load(SeqCst), 3);
    hal.join_all();
}
