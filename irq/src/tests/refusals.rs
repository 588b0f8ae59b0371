//! Moves that fail half-way, and what comes all the same.

use super::*;

fn managed_on(bench: &Bench, cpus: impl IntoIterator<Item = u32>) -> Irq {
    let affinity = cpus.into_iter().map(CpuId).collect();
    let irq =
        bench.core.alloc_line(&bench.domain, &AllocRequest { managed: true, ..on(affinity) }, Flow::Edge).unwrap();
    bench.request(irq, |_| IrqReturn::Handled);
    irq
}

/// A remapping unit may use an entry that it is then told to forget: what it sent meanwhile is the line's.
#[test]
fn what_a_move_that_failed_sent_is_not_lost() {
    let bench = Bench::new(ALL_OPS);
    let irq = bench.line(Flow::Edge);
    *bench.domain.0.accepts.lock().unwrap() = 0;
    let refused = bench.core.set_affinity(irq, &CpuSet::of(CPU1));
    assert_eq!(refused, Err(IrqError::Hardware("LOG", "it refuses")));
    bench.log.take();
    bench.vector(Target::at(CPU1, Vector(0x20)));
    assert_eq!(bench.said(), "ack handle");
    // The vector is given back once nothing can come any more.
    bench.hal.advance_ns(1_000_000);
    bench.hal.on_cpu(CPU1, || bench.core.housekeep());
    assert_eq!(bench.core.view(irq).unwrap().retired, []);
    assert_eq!(bench.core.matrix.lock().in_use().0, 1);
}

#[test]
fn a_cpu_that_cannot_go_keeps_its_managed_lines() {
    let bench = Bench::new(ALL_OPS);
    let asleep = managed_on(&bench, [1]);
    let mover = managed_on(&bench, [0, 1]);
    bench.hal.on_cpu(CPU0, || bench.core.cpu_offline()).unwrap();
    bench.core.cpu_online(CPU0).unwrap();
    assert_eq!(bench.core.view(mover).unwrap().effective.unwrap().cpu, CPU1);
    *bench.domain.0.accepts.lock().unwrap() = 0;
    assert_eq!(bench.hal.on_cpu(CPU1, || bench.core.cpu_offline()), Err(IrqError::Hardware("LOG", "it refuses")));
    for irq in [asleep, mover] {
        let view = bench.core.view(irq).unwrap();
        assert!(!view.shutdown && !view.masked && view.effective.unwrap().cpu == CPU1, "{view}");
    }
    // It goes when the hardware lets it, and lines come and go on the CPUs as ever.
    *bench.domain.0.accepts.lock().unwrap() = u32::MAX;
    bench.hal.on_cpu(CPU1, || bench.core.cpu_offline()).unwrap();
    assert!(bench.core.view(asleep).unwrap().shutdown);
    bench.core.cpu_online(CPU1).unwrap();
    assert!(!bench.core.view(asleep).unwrap().masked);
}

/// `check` found it: an invalidation queue that stopped in the middle of an offline.
#[test]
fn lines_that_left_a_cpu_which_stays_after_all_return() {
    let bench = Bench::new(ALL_OPS);
    let bound = bench.core.alloc_line(&bench.domain, &on(CpuSet::of(CPU1)), Flow::Edge).unwrap();
    bench.request(bound, |_| IrqReturn::Handled);
    let stuck = managed_on(&bench, [0, 1]);
    bench.hal.on_cpu(CPU0, || bench.core.cpu_offline()).unwrap();
    bench.core.cpu_online(CPU0).unwrap();
    assert_eq!(bench.core.view(stuck).unwrap().effective.unwrap().cpu, CPU1);
    *bench.domain.0.accepts.lock().unwrap() = 1;
    bench.hal.on_cpu(CPU1, || bench.core.cpu_offline()).unwrap_err();
    assert_eq!(bench.core.view(bound).unwrap().effective.unwrap().cpu, CPU0);
    *bench.domain.0.accepts.lock().unwrap() = u32::MAX;
    bench.hal.advance_ns(1_000_000);
    for cpu in [CPU1, CPU0] {
        bench.hal.on_cpu(cpu, || bench.core.housekeep());
    }
    bench.fire(bound);
    assert_eq!(bench.core.view(bound).unwrap().effective.unwrap().cpu, CPU1);
}

/// `check` found it: the invalidation queue failed while a CPU came online.
#[test]
fn a_managed_line_whose_start_failed_starts_later() {
    let bench = Bench::new(ALL_OPS);
    let asleep = managed_on(&bench, [1]);
    bench.hal.on_cpu(CPU1, || bench.core.cpu_offline()).unwrap();
    *bench.domain.0.accepts.lock().unwrap() = 0;
    bench.core.cpu_online(CPU1).unwrap_err();
    bench.hal.advance_ns(1_000_000);
    bench.hal.on_cpu(CPU1, || bench.core.housekeep());
    assert!(bench.core.view(asleep).unwrap().shutdown);
    *bench.domain.0.accepts.lock().unwrap() = u32::MAX;
    bench.hal.advance_ns(1_000_000);
    bench.hal.on_cpu(CPU1, || bench.core.housekeep());
    let view = bench.core.view(asleep).unwrap();
    assert!(!view.shutdown && !view.masked && view.effective.unwrap().cpu == CPU1, "{view}");
}

#[test]
fn a_throttled_line_that_slept_is_let_go_on_the_cpu_it_wakes_with() {
    let bench = Bench::with(ALL_OPS, |config| {
        (config.cpus, config.cpus_online) = (3, 3);
        config.storm = StormConfig { burst: 1, burst_ns_min: 1, unhandled_max: 1, throttle_ns: 10_000_000 };
    });
    bench.hal.on_cpu(CPU1, || bench.core.cpu_offline()).unwrap();
    let irq = managed_on(&bench, [1, 2]);
    bench.fire(irq);
    assert!(bench.core.view(irq).unwrap().throttled_until_ns.is_some());
    bench.hal.on_cpu(CpuId(2), || bench.core.cpu_offline()).unwrap();
    bench.core.cpu_online(CPU1).unwrap();
    bench.hal.advance_ns(20_000_000);
    bench.hal.on_cpu(CPU1, || bench.core.housekeep());
    let view = bench.core.view(irq).unwrap();
    assert!(view.throttled_until_ns.is_none() && !view.masked, "{view}");
}
