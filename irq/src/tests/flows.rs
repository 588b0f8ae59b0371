//! Every flow, call by call.

use super::*;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;
use hal::Hal as _;

#[test]
fn edge_acks_then_runs() {
    let bench = Bench::new(ALL_OPS);
    let irq = bench.line(Flow::Edge);
    bench.fire(irq);
    assert_eq!(bench.said(), "ack handle");
}

#[test]
fn an_edge_that_comes_disabled_is_brought_back() {
    let bench = Bench::new(ALL_OPS);
    let irq = bench.line(Flow::Edge);
    bench.core.disable(irq).unwrap();
    bench.core.disable(irq).unwrap();
    assert_eq!(bench.said(), "mask");
    bench.fire(irq);
    assert_eq!(bench.said(), "ack");
    bench.core.enable(irq).unwrap();
    assert_eq!(bench.said(), "");
    bench.core.enable(irq).unwrap();
    assert_eq!(bench.said(), "unmask retrigger");
    assert_eq!(bench.core.enable(irq), Err(IrqError::NotDisabled(irq)));
}

/// Nothing keeps what came while the line was masked, so its handlers look once. A new handler has missed nothing.
#[test]
fn handlers_of_a_chip_that_forgets_run_once_when_the_line_is_enabled() {
    let bench = Bench::new(Ops { forgets_masked: true, ..ALL_OPS });
    let irq = bench.alloc(Flow::Edge);
    bench.said();
    let action = bench.request(irq, |_| IrqReturn::Handled);
    assert_eq!(bench.said(), "unmask");
    bench.core.disable(irq).unwrap();
    bench.core.enable(irq).unwrap();
    assert_eq!(bench.said(), "mask unmask retrigger");
    bench.core.free(irq, &action).unwrap();
    bench.request(irq, |_| IrqReturn::Handled);
    assert_eq!(bench.said(), "mask unmask");
}

/// The second interrupt comes on CPU 1 while the handler runs on CPU 0, as after a move.
#[test]
fn an_edge_in_progress_runs_again() {
    let bench = Bench::new(ALL_OPS);
    let irq = bench.alloc(Flow::Edge);
    let (core, log, hal) = (bench.core.clone(), bench.log.clone(), bench.hal);
    let again = Mutex::new(true);
    bench.request(irq, move |irq| {
        log.add("handle");
        if core::mem::take(&mut *again.lock().unwrap()) {
            hal.interrupt(CPU1, || assert!(core.handle_irq(irq)));
        }
        IrqReturn::Handled
    });
    bench.log.take();
    bench.fire(irq);
    assert_eq!(bench.said(), "ack handle mask ack unmask handle");
    assert_eq!((bench.core.count(irq, CPU0), bench.core.count(irq, CPU1)), (1, 1));
    let view = bench.core.view(irq).unwrap();
    assert!(!view.masked && !view.pending && !view.in_progress);
}

/// The defect: the old CPU of a moved line served it, interrupts off, as long as the device kept interrupting. If the
/// hardware cannot retrigger, the old CPU must serve it.
#[test]
fn what_comes_where_the_line_has_moved_goes_on_there() {
    let mute = Ops { retrigger: false, ..ALL_OPS };
    for (flow, ops, expected) in [
        (Flow::Edge, ALL_OPS, "ack handle set_affinity mask ack unmask retrigger"),
        (Flow::FastEoi, ALL_OPS, "handle set_affinity eoi retrigger eoi"),
        (Flow::Strict, ALL_OPS, "ack handle set_affinity mask ack eoi unmask retrigger eoi"),
        (Flow::FastEoi, mute, "handle set_affinity eoi handle eoi"),
    ] {
        let bench = Bench::new(ops);
        let irq = bench.alloc(flow);
        let (core, log, hal) = (bench.core.clone(), bench.log.clone(), bench.hal);
        let first = Mutex::new(true);
        bench.request(irq, move |irq| {
            log.add("handle");
            if core::mem::take(&mut *first.lock().unwrap()) {
                core.set_affinity(irq, &CpuSet::of(CPU1)).unwrap();
                hal.interrupt(CPU1, || assert!(core.handle_irq(irq)));
            }
            IrqReturn::Handled
        });
        bench.log.take();
        bench.fire(irq);
        assert_eq!(bench.said(), expected, "{flow}");
        let view = bench.core.view(irq).unwrap();
        assert!(!view.masked && !view.pending && !view.in_progress, "{flow}");
    }
}

#[test]
fn a_level_is_masked_while_it_is_served() {
    let bench = Bench::new(ALL_OPS);
    let irq = bench.line(Flow::Level);
    bench.fire(irq);
    assert_eq!(bench.said(), "mask ack handle unmask");
    bench.core.disable(irq).unwrap();
    bench.fire(irq);
    assert_eq!(bench.said(), "mask ack");
    bench.core.enable(irq).unwrap();
    assert_eq!(bench.said(), "unmask", "the wire is still raised: no retrigger");
}

#[test]
fn fasteoi_runs_then_ends() {
    let bench = Bench::new(ALL_OPS);
    let irq = bench.line(Flow::FastEoi);
    bench.fire(irq);
    assert_eq!(bench.said(), "handle eoi");
    bench.core.disable(irq).unwrap();
    bench.fire(irq);
    assert_eq!(bench.said(), "mask eoi");
    bench.core.enable(irq).unwrap();
    assert_eq!(bench.said(), "unmask retrigger");
}

#[test]
fn per_cpu_lines_run_on_all_cpus_at_once() {
    let bench = Bench::new(ALL_OPS);
    let irq = bench.alloc(Flow::PerCpu);
    let (core, log, hal) = (bench.core.clone(), bench.log.clone(), bench.hal);
    bench.request(irq, move |irq| {
        log.add("handle");
        if hal.cpu() == CPU0 {
            hal.interrupt(CPU1, || assert!(core.handle_irq(irq)));
        }
        IrqReturn::Handled
    });
    bench.log.take();
    bench.hal.interrupt(CPU0, || assert!(bench.core.handle_irq(irq)));
    assert_eq!(bench.said(), "ack handle ack handle eoi eoi");
}

#[test]
fn a_hierarchy_that_cannot_do_the_flow_is_refused_and_undone() {
    let without = |change: fn(&mut Ops), flow| {
        let mut ops = ALL_OPS;
        change(&mut ops);
        let bench = Bench::new(ops);
        let refused = bench.core.alloc_line(bench.domain.clone(), &on(CpuSet::of(CPU0)), flow).unwrap_err();
        assert_eq!(bench.said(), "release");
        assert!(bench.core.views().is_empty());
        refused
    };
    assert_eq!(without(|ops| ops.ack = false, Flow::Edge), IrqError::Flow(Flow::Edge, "ack"));
    assert_eq!(without(|ops| ops.retrigger = false, Flow::Edge), IrqError::Flow(Flow::Edge, "retrigger"));
    assert_eq!(without(|ops| ops.mask = false, Flow::Level), IrqError::Flow(Flow::Level, "mask"));
    assert_eq!(without(|ops| ops.eoi = false, Flow::FastEoi), IrqError::Flow(Flow::FastEoi, "eoi"));
    assert_eq!(without(|ops| ops.eoi = false, Flow::PerCpu), IrqError::Flow(Flow::PerCpu, "eoi"));
}

#[test]
fn each_operation_goes_to_the_nearest_level_that_has_it_and_no_other_line_s_chip() {
    let bench = Bench::new(ALL_OPS);
    // One line has a chip with its own ack in front. The line beside it keeps the root's ack.
    struct Posted(Arc<LogDomain>, Arc<LogChip>);
    impl IrqDomain for Posted {
        fn name(&self) -> &str {
            "POSTED"
        }
        fn parent(&self) -> Option<Arc<dyn IrqDomain>> {
            Some(self.0.clone())
        }
        fn allocate(&self, _: &AllocRequest) -> Result<LevelData, IrqError> {
            Ok(LevelData { chip: self.1.chip(), hwirq: HardwareIrq(7) })
        }
        fn activate(&self, _: &Level<'_>, _: Target) -> Result<(), IrqError> {
            Ok(())
        }
        fn release(&self, _: HardwareIrq) {
            self.1.release();
        }
    }
    let posted_log = Log::default();
    let ops = Ops { ack: true, ..Ops::default() };
    let chip = Arc::new(LogChip::new(ops, posted_log.clone()));
    let domain = Arc::new(Posted(bench.domain.clone(), chip));
    let posted = bench.core.alloc_line(domain, &on(CpuSet::of(CPU0)), Flow::Edge).unwrap();
    bench.request(posted, |_| IrqReturn::Handled);
    let plain = bench.line(Flow::Edge);
    posted_log.take();
    bench.fire(plain);
    assert_eq!((bench.said().as_str(), posted_log.take().join(" ").as_str()), ("ack handle", ""));
    bench.fire(posted);
    assert_eq!((bench.said().as_str(), posted_log.take().join(" ").as_str()), ("", "ack"));
}

/// The defect: the posted chip's ack was a dummy, and the move that waited for it was never applied.
#[test]
fn a_move_that_must_wait_for_an_ack_is_applied_by_the_core_at_the_next_one() {
    let bench = Bench::new(Ops { moves_on_ack: true, ..ALL_OPS });
    let irq = bench.line(Flow::Edge);
    bench.core.set_affinity(irq, &CpuSet::of(CPU1)).unwrap();
    assert_eq!(bench.said(), "");
    assert!(bench.core.view(irq).unwrap().move_wanted);
    bench.fire(irq);
    assert_eq!(bench.said(), "ack set_affinity handle");
    assert_eq!(bench.core.view(irq).unwrap().effective.unwrap().cpu, CPU1);
}

#[test]
fn a_storm_is_masked_for_a_while_and_shown() {
    let storm = StormConfig { burst: 10, burst_ns_min: 1_000, unhandled_max: 8, throttle_ns: 500 };
    let bench = Bench::with(ALL_OPS, |config| config.storm = storm);
    let irq = bench.line(Flow::Edge);
    (0..10).for_each(|_| bench.fire(irq));
    assert!(bench.said().ends_with("ack handle mask"));
    let view = bench.core.view(irq).unwrap();
    assert_eq!((view.storms, view.throttled_until_ns), (1, Some(500)));
    bench.fire(irq);
    assert_eq!(bench.said(), "ack", "an interrupt that was already on its way is kept pending");
    assert_eq!(bench.core.next_deadline_ns(CPU0), Some(500));
    bench.hal.advance_ns(500);
    bench.core.housekeep();
    assert_eq!(bench.said(), "unmask retrigger");
    assert_eq!(bench.core.view(irq).unwrap().throttled_until_ns, None);
}

/// `check` found it: two wires that were stuck kept the only CPU for themselves, since one was let go while the other's burst
/// was under way.
#[test]
fn storms_in_a_row_that_nobody_handles_are_masked_for_longer_and_longer() {
    let storm = StormConfig { burst: 10, burst_ns_min: 1_000, unhandled_max: 8, throttle_ns: 500 };
    let bench = Bench::with(ALL_OPS, |config| config.storm = storm);
    let (handled, nobodys) = (bench.line(Flow::Edge), bench.alloc(Flow::Edge));
    let claims = Arc::new(AtomicBool::new(false));
    let own = claims.clone();
    bench.request(nobodys, move |_| if own.load(Relaxed) { IrqReturn::Handled } else { IrqReturn::None });
    let burst = |irq, gap_ns: u64| {
        for _ in 0..10 {
            bench.hal.advance_ns(gap_ns);
            bench.fire(irq);
        }
        let now_ns = bench.hal.now_ns();
        let mask_ns = bench.core.view(irq).unwrap().throttled_until_ns.map(|until_ns| until_ns - now_ns);
        bench.hal.advance_ns(mask_ns.unwrap_or(0));
        bench.core.housekeep();
        mask_ns
    };
    let doubled = [500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 32_000].map(Some);
    assert_eq!(doubled.map(|_| burst(nobodys, 0)), doubled);
    assert_eq!([3_200, 0].map(|gap_ns| burst(nobodys, gap_ns)), [500, 1_000].map(Some), "a slow burst begins anew");
    claims.store(true, Relaxed);
    assert_eq!(burst(nobodys, 100), None, "a burst that is no storm");
    claims.store(false, Relaxed);
    assert_eq!([0, 0].map(|gap_ns| burst(nobodys, gap_ns)), [500, 1_000].map(Some), "begins anew too");
    // Its first burst began with the test.
    let fast = [0, 0, 0].map(|gap_ns| burst(handled, gap_ns));
    assert_eq!(fast, [None, Some(500), Some(500)], "a device that is too fast, and no more");
}

/// Every interrupt ends with the work that is due on its CPU. Without it, a throttle lasted until the next tick.
#[test]
fn a_throttle_that_is_over_ends_with_the_next_interrupt() {
    let storm = StormConfig { burst: 10, burst_ns_min: 1_000, unhandled_max: 8, throttle_ns: 500 };
    let bench = Bench::with(ALL_OPS, |config| config.storm = storm);
    let (stormy, other) = (bench.line(Flow::Edge), bench.line(Flow::Edge));
    (0..10).for_each(|_| bench.fire(stormy));
    bench.said();
    bench.hal.advance_ns(499);
    bench.fire(other);
    assert_eq!(bench.said(), "ack handle");
    bench.hal.advance_ns(1);
    bench.fire(other);
    assert_eq!(bench.said(), "ack handle unmask");
}

#[test]
fn a_line_that_nobody_handles_is_a_storm_however_slow() {
    let storm = StormConfig { burst: 10, burst_ns_min: 0, unhandled_max: 8, throttle_ns: 500 };
    let bench = Bench::with(ALL_OPS, |config| config.storm = storm);
    let irq = bench.alloc(Flow::Edge);
    bench.request(irq, |_| IrqReturn::None);
    for _ in 0..10 {
        bench.hal.advance_ns(1_000_000);
        bench.fire(irq);
    }
    let view = bench.core.view(irq).unwrap();
    assert_eq!((view.storms, view.unhandled, view.masked), (1, 10, true));
}
