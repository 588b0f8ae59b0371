//! Moves that fail half-way, and interrupts that come nevertheless.

use super::*;
use hal::Hal as _;

fn managed_on(bench: &Bench, cpus: impl IntoIterator<Item = u32>) -> Irq {
    let affinity = cpus.into_iter().map(CpuId).collect();
    let irq = bench
        .core
        .alloc_line(bench.domain.clone(), &AllocRequest { managed: true, ..on(affinity) }, Flow::Edge)
        .unwrap();
    bench.request(irq, |_| IrqReturn::Handled);
    irq
}

/// A remapping unit may still use an entry until the entry is invalidated. Interrupts up to then belong to the line.
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
    // The vector is given back once no message can arrive.
    bench.hal.advance_ns(1_000_000);
    bench.hal.on_cpu(CPU1, || bench.core.housekeep());
    assert_eq!(bench.core.view(irq).unwrap().retired, []);
    assert_eq!(bench.core.matrix.lock().in_use().0, 1);
}

#[test]
fn a_cpu_that_cannot_go_keeps_its_managed_lines() {
    let bench = Bench::new(ALL_OPS);
    let shut_down = managed_on(&bench, [1]);
    let mover = managed_on(&bench, [0, 1]);
    bench.hal.on_cpu(CPU0, || bench.core.cpu_offline()).unwrap();
    bench.core.cpu_online(CPU0).unwrap();
    assert_eq!(bench.core.view(mover).unwrap().effective.unwrap().cpu, CPU1);
    *bench.domain.0.accepts.lock().unwrap() = 0;
    assert_eq!(bench.hal.on_cpu(CPU1, || bench.core.cpu_offline()), Err(IrqError::Hardware("LOG", "it refuses")));
    for irq in [shut_down, mover] {
        let view = bench.core.view(irq).unwrap();
        assert!(!view.shutdown && !view.masked && view.effective.unwrap().cpu == CPU1, "{view}");
    }
    // When the hardware permits it, the CPU goes offline, and its lines move as usual.
    *bench.domain.0.accepts.lock().unwrap() = u32::MAX;
    bench.hal.on_cpu(CPU1, || bench.core.cpu_offline()).unwrap();
    assert!(bench.core.view(shut_down).unwrap().shutdown);
    bench.core.cpu_online(CPU1).unwrap();
    assert!(!bench.core.view(shut_down).unwrap().masked);
}

/// `check` found it: an invalidation queue that stopped in the middle of an offline.
#[test]
fn lines_that_left_a_cpu_which_stays_after_all_return() {
    let bench = Bench::new(ALL_OPS);
    let bound = bench.core.alloc_line(bench.domain.clone(), &on(CpuSet::of(CPU1)), Flow::Edge).unwrap();
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

/// `check` found it: the invalidation queue failed while a line left a CPU for the one that it wanted, and no longer when
/// it went to any other. Nobody remembered what it wanted.
#[test]
fn a_line_that_could_not_move_to_its_affinity_returns_to_it() {
    let bench = Bench::with(ALL_OPS, |config| config.cpus = 3);
    let both = CpuSet::from_iter([CPU0, CPU1]);
    let irq = bench.core.alloc_line(bench.domain.clone(), &on(both), Flow::Edge).unwrap();
    bench.request(irq, |_| IrqReturn::Handled);
    *bench.domain.0.refuses.lock().unwrap() = Some(CPU1);
    bench.hal.on_cpu(CPU0, || bench.core.cpu_offline()).unwrap();
    let view = bench.core.view(irq).unwrap();
    assert!(view.move_wanted && view.effective.unwrap().cpu == CpuId(2), "{view}");
    // It goes on trying, without an interrupt: at the CPU that has to give back the vector of the last try.
    let housekeep = || {
        bench.hal.advance_ns(1_000_000);
        for cpu in [CPU1, CpuId(2)].into_iter().filter(|&cpu| bench.core.next_deadline_ns(cpu).is_some()) {
            bench.hal.on_cpu(cpu, || bench.core.housekeep());
        }
    };
    housekeep();
    *bench.domain.0.refuses.lock().unwrap() = None;
    housekeep();
    let view = bench.core.view(irq).unwrap();
    assert!(!view.move_wanted && view.effective.unwrap().cpu == CPU1, "{view}");
}

/// `check` found it: the invalidation queue failed while a CPU came online.
#[test]
fn a_managed_line_whose_start_failed_starts_later() {
    let bench = Bench::new(ALL_OPS);
    let shut_down = managed_on(&bench, [1]);
    bench.hal.on_cpu(CPU1, || bench.core.cpu_offline()).unwrap();
    *bench.domain.0.accepts.lock().unwrap() = 0;
    bench.core.cpu_online(CPU1).unwrap_err();
    bench.hal.advance_ns(1_000_000);
    bench.hal.on_cpu(CPU1, || bench.core.housekeep());
    assert!(bench.core.view(shut_down).unwrap().shutdown);
    *bench.domain.0.accepts.lock().unwrap() = u32::MAX;
    bench.hal.advance_ns(1_000_000);
    bench.hal.on_cpu(CPU1, || bench.core.housekeep());
    let view = bench.core.view(shut_down).unwrap();
    assert!(!view.shutdown && !view.masked && view.effective.unwrap().cpu == CPU1, "{view}");
}

/// `check` found it: lines were freed while the invalidation queue failed, and their messages were still delivered.
#[test]
fn a_vector_that_the_hardware_still_knows_is_nobody_elses() {
    let bench = Bench::new(ALL_OPS);
    let irq = bench.core.alloc_line(bench.domain.clone(), &on(CpuSet::of(CPU1)), Flow::Edge).unwrap();
    *bench.domain.0.forgets.lock().unwrap() = false;
    bench.core.free_line(irq).unwrap();
    let after_a_while = || {
        bench.hal.advance_ns(1_000_000);
        bench.hal.on_cpu(CPU1, || bench.core.housekeep());
        bench.core.matrix.lock().in_use().0
    };
    assert_eq!(after_a_while(), 1);
    let stays = bench.hal.on_cpu(CPU1, || bench.core.cpu_offline()).unwrap_err();
    assert_eq!(stays.to_string(), "CPU 1 may still receive interrupts by a route that a line has left");
    *bench.domain.0.forgets.lock().unwrap() = true;
    assert_eq!(after_a_while(), 0);
    bench.hal.on_cpu(CPU1, || bench.core.cpu_offline()).unwrap();
}

/// Defect: the vector of a line that could not be pointed there went to the next line at once, and the hardware was never
/// asked again whether it had forgotten the route.
#[test]
fn a_vector_of_a_refused_line_is_nobody_elses_while_the_hardware_knows_it() {
    let bench = Bench::new(ALL_OPS);
    let chip = &bench.domain.0;
    let managed = AllocRequest { managed: true, ..on(CpuSet::of(CPU1)) };
    (*chip.activates.lock().unwrap(), *chip.forgets.lock().unwrap()) = (false, false);
    let refused = bench.core.alloc_line(bench.domain.clone(), &managed, Flow::Edge);
    assert_eq!(refused, Err(IrqError::Hardware("LOG", "it points nowhere")));
    assert_eq!(bench.said(), "mask release");
    assert!(bench.core.views().is_empty(), "it is no line");
    bench.vector(Target::at(CPU1, Vector(0x20)));
    assert_eq!((bench.said().as_str(), bench.core.stray_vectors(CPU1)), ("ack", 0));
    let after_a_while = || {
        bench.hal.advance_ns(1_000_000);
        bench.hal.on_cpu(CPU1, || bench.core.housekeep());
        bench.core.matrix.lock().in_use()
    };
    assert_eq!(after_a_while(), (1, 1));
    *chip.forgets.lock().unwrap() = true;
    assert_eq!(after_a_while(), (0, 0));
    assert_eq!(bench.core.next_deadline_ns(CPU1), None);
}

#[test]
fn a_cpu_stays_when_a_managed_line_cannot_be_closed() {
    let bench = Bench::new(ALL_OPS);
    let irq = managed_on(&bench, [1]);
    *bench.domain.0.forgets.lock().unwrap() = false;
    let refused = bench.hal.on_cpu(CPU1, || bench.core.cpu_offline());
    assert_eq!(refused, Err(IrqError::Hardware("LOG", "it forgets nothing")));
    let view = bench.core.view(irq).unwrap();
    assert!(!view.shutdown && !view.masked && view.effective.unwrap().cpu == CPU1, "{view}");
    // A line that was deactivated before another one failed is started again too.
    *bench.domain.0.forgets.lock().unwrap() = true;
    let other = Arc::new(LogDomain(Arc::new(LogChip::new(ALL_OPS, Log::default()))));
    let managed = AllocRequest { managed: true, ..on(CpuSet::of(CPU1)) };
    bench.core.alloc_line(other.clone(), &managed, Flow::Edge).unwrap();
    *other.0.forgets.lock().unwrap() = false;
    bench.log.take();
    bench.hal.on_cpu(CPU1, || bench.core.cpu_offline()).unwrap_err();
    assert_eq!(bench.said(), "mask deactivate set_affinity unmask");
    bench.fire(irq);
    assert_eq!(bench.core.view(irq).unwrap().count, 1);
}

/// `check` found it: there was no entry any more.
#[test]
fn a_line_that_was_freed_in_its_sleep_is_left_alone() {
    let bench = Bench::new(ALL_OPS);
    let managed = AllocRequest { managed: true, ..on(CpuSet::of(CPU1)) };
    let irq = bench.core.alloc_line(bench.domain.clone(), &managed, Flow::Edge).unwrap();
    bench.hal.on_cpu(CPU1, || bench.core.cpu_offline()).unwrap();
    bench.core.free_line(irq).unwrap();
    bench.core.cpu_online(CPU1).unwrap();
    bench.log.take();
    bench.hal.on_cpu(CPU0, || bench.core.cpu_offline()).unwrap();
    assert_eq!(bench.said(), "");
}

#[test]
fn a_throttled_line_that_slept_is_let_go_on_the_cpu_it_wakes_with() {
    let bench = Bench::with(ALL_OPS, |config| {
        config.cpus = 3;
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

#[test]
fn what_lines_have_of_a_cpus_vectors_is_told() {
    let bench = Bench::new(ALL_OPS);
    let told = |cpu| bench.core.identities_of(cpu).map(|told| [told.used, told.managed, told.managed_used]);
    managed_on(&bench, [0, 1]);
    bench.line(Flow::Edge);
    let [here, there] = [Some([2, 1, 1]), Some([0, 1, 0])];
    assert_eq!((told(CPU0), told(CPU1), told(CpuId(99))), (here, there, None));
    // More than a CPU has are refused, and nothing stays kept for them.
    let managed = AllocRequest { managed: true, ..on(CpuSet::first(2)) };
    let more = || bench.core.alloc_line(bench.domain.clone(), &managed, Flow::Edge);
    let refused = (0..).find_map(|_| more().err());
    assert!(matches!(refused, Some(IrqError::NoVector { .. } | IrqError::Exhausted(..))), "{refused:?}");
    let (kept, lines) = (told(CPU1).unwrap()[1], bench.core.views().len() as u32);
    assert_eq!(kept, lines - 1, "one for each managed line");
}

/// A line that was enabled with an interrupt pending, which its hardware cannot bring back for so many tries.
fn not_brought_back(tries: u32) -> (Bench, Irq) {
    let bench = Bench::new(ALL_OPS);
    let irq = bench.line(Flow::FastEoi);
    bench.core.disable_nosync(irq).unwrap();
    bench.fire(irq);
    *bench.domain.0.is_busy.lock().unwrap() = tries;
    bench.log.take();
    bench.core.enable(irq).unwrap();
    assert_eq!(bench.said(), "unmask retrigger");
    (bench, irq)
}

/// Defect: the line was enabled, unmasked and marked as pending, and nobody looked again: its device waited for ever.
#[test]
fn a_pending_interrupt_that_the_hardware_cannot_bring_back_now_is_tried_again() {
    let (bench, irq) = not_brought_back(3);
    let after_ns = |ns| {
        bench.hal.advance_ns(ns);
        bench.core.housekeep();
        (bench.said(), bench.core.next_deadline_ns(CPU0).map(|at_ns| at_ns - bench.hal.now_ns()))
    };
    let told = |said: &str, wait_ns| (String::from(said), wait_ns);
    assert_eq!(after_ns(0), told("", Some(1_000_000)));
    assert_eq!(after_ns(1_000_000), told("retrigger", Some(2_000_000)));
    assert_eq!(after_ns(1_500_000), told("", Some(500_000)));
    assert_eq!(after_ns(500_000), told("retrigger", Some(4_000_000)));
    assert!(bench.core.view(irq).unwrap().pending);
    assert_eq!(after_ns(4_000_000), told("retrigger", None));
    assert!(!bench.core.view(irq).unwrap().pending);
}

#[test]
fn a_pending_interrupt_of_a_line_that_was_disabled_again_waits_for_its_enable() {
    let (bench, irq) = not_brought_back(1);
    bench.core.disable_nosync(irq).unwrap();
    bench.log.take();
    bench.hal.advance_ns(10_000_000);
    bench.core.housekeep();
    assert_eq!((bench.said().as_str(), bench.core.next_deadline_ns(CPU0)), ("", None), "it may not deliver");
    bench.core.enable(irq).unwrap();
    assert_eq!(bench.said(), "unmask retrigger");
}

/// Defect: the same for an interrupt that was pending on a CPU that went offline.
#[test]
fn what_was_pending_on_a_cpu_that_went_is_tried_again_at_the_new_one() {
    let bench = Bench::new(ALL_OPS);
    let irq = bench.line(Flow::Edge);
    *bench.domain.0.pending.lock().unwrap() = true;
    *bench.domain.0.is_busy.lock().unwrap() = 1;
    bench.core.cpu_offline().unwrap();
    assert_eq!(bench.said(), "set_affinity retrigger");
    assert_eq!(bench.core.view(irq).unwrap().effective.unwrap().cpu, CPU1);
    bench.hal.advance_ns(1_000_000);
    bench.hal.on_cpu(CPU1, || bench.core.housekeep());
    assert_eq!(bench.said(), "retrigger");
    assert_eq!(bench.core.next_deadline_ns(CPU1), None);
}
