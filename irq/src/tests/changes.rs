//! Lines that move or get another flow while they are active.

use super::threads::{GIC, ONESHOT, oneshot, wait_until};
use super::*;
use core::sync::atomic::{AtomicU32, Ordering::SeqCst};

#[test]
fn a_line_that_moves_while_active_is_ended_once() {
    let (bench, irq, gate, primary) = oneshot(GIC, Flow::Strict);
    bench.fire(irq);
    bench.core.set_affinity(irq, &CpuSet::first(2)).unwrap();
    bench.hal.on_cpu(CPU0, || bench.core.cpu_offline()).unwrap();
    assert_eq!(bench.said(), "ack handle set_affinity");
    assert_eq!(bench.view(irq).effective.unwrap().cpu, CPU1);
    bench.end_thread(irq, &gate, 0);
    assert_eq!(bench.said(), "thread eoi");
    bench.fire(irq);
    bench.end_thread(irq, &gate, 0);
    assert_eq!(bench.said(), "ack handle thread eoi");
    bench.core.free(irq, &primary).unwrap();
}

#[test]
fn a_flow_that_changes_while_the_line_is_active_leaves_its_end_to_be_given_once() {
    for (flow, next) in [(Flow::Level, "mask ack handle"), (Flow::Edge, "ack handle"), (Flow::FastEoi, "mask handle")] {
        let (bench, irq, gate, primary) = oneshot(GIC, Flow::Strict);
        bench.fire(irq);
        bench.core.set_flow(irq, flow).unwrap();
        assert_eq!(bench.said(), "ack handle");
        bench.end_thread(irq, &gate, 0);
        assert_eq!(bench.said(), "thread eoi", "the old flow's");
        bench.fire(irq);
        assert_eq!(bench.said(), next);
        bench.core.set_flow(irq, Flow::Strict).unwrap();
        bench.end_thread(irq, &gate, 0);
        let eoi = if flow == Flow::FastEoi { "thread eoi unmask" } else { "thread unmask" };
        assert_eq!(bench.said(), if flow == Flow::Edge { "thread" } else { eoi });
        bench.core.free(irq, &primary).unwrap();
    }
}

/// For every flow of the next interrupt: the eoi that the thread owes is given when the thread is done, not before.
#[test]
fn an_interrupt_by_the_new_flow_leaves_what_the_thread_of_the_old_one_holds() {
    for (flow, interrupt, end) in [
        (Flow::Edge, "ack handle", "thread eoi"),
        (Flow::Level, "mask ack handle", "thread eoi unmask"),
        (Flow::FastEoi, "mask handle eoi", "thread eoi unmask"),
    ] {
        let (bench, irq, gate, primary) = oneshot(GIC, Flow::Strict);
        bench.fire(irq);
        wait_until(|| gate.begun() == 1);
        bench.core.set_flow(irq, flow).unwrap();
        bench.said();
        bench.fire(irq);
        assert_eq!(bench.said(), interrupt);
        // The thread was woken meanwhile, so it runs once more.
        gate.open();
        wait_until(|| gate.begun() == 2);
        assert_eq!(bench.said(), "thread", "{flow}");
        bench.end_thread(irq, &gate, 0);
        assert_eq!(bench.said(), end, "{flow}");
        bench.core.free(irq, &primary).unwrap();
    }
}

/// The old flow left its eoi to the thread. The thread ends while the new flow's handler runs. The new flow gives it.
#[test]
fn an_end_that_the_old_flow_left_over_is_given_behind_the_new_flows_handler() {
    for (flow, said) in [(Flow::Edge, "ack thread eoi"), (Flow::Level, "mask ack thread eoi unmask")] {
        let bench = Bench::new(GIC);
        let domain = super::wired::Wired::of(&bench);
        let irq = bench.core.alloc_line(domain, &on(CpuSet::first(2)), Flow::Strict).unwrap();
        let (gate, thread) = bench.gated("thread");
        let (core, second, inner) = (bench.core.clone(), AtomicU32::new(0), gate.clone());
        let primary = handler(move |irq| {
            if second.fetch_add(1, SeqCst) == 0 {
                return IrqReturn::WakeThread;
            }
            inner.open();
            wait_until(|| core.view(irq).unwrap().threads_working == 0);
            IrqReturn::Handled
        });
        bench.core.request_threaded(irq, "test", ONESHOT, Some(primary.clone()), thread).unwrap();
        let fire = |cpu| bench.hal.interrupt(cpu, || assert!(bench.core.handle_irq(irq)));
        fire(CPU0);
        bench.core.set_flow(irq, flow).unwrap();
        bench.said();
        // The thread runs on the other CPU.
        fire(CPU1);
        assert_eq!(bench.said(), said);
        assert!(!bench.view(irq).active && !bench.view(irq).masked);
        bench.core.free(irq, &primary).unwrap();
    }
}

/// The flow changes while a handler of the old one runs, and another CPU takes an interrupt by the new one meanwhile. It
/// cannot run there; whatever it does to the line, the old flow undoes it.
#[test]
fn a_line_whose_flow_changed_under_its_handler_does_not_stay_masked() {
    const FLOWS: [Flow; 4] = [Flow::Edge, Flow::Level, Flow::FastEoi, Flow::Strict];
    for (old, new) in FLOWS.iter().flat_map(|&old| FLOWS.map(|new| (old, new))) {
        let bench = Arc::new(Bench::new(GIC));
        let domain = super::wired::Wired::of(&bench);
        let irq = bench.core.alloc_line(domain, &on(CpuSet::first(2)), old).unwrap();
        let fire = move |bench: &Bench, cpu| bench.hal.interrupt(cpu, || assert!(bench.core.handle_irq(irq)));
        let (weak, calls) = (Arc::downgrade(&bench), AtomicU32::new(0));
        let primary = handler(move |_| {
            if calls.fetch_add(1, SeqCst) == 0 {
                let bench = weak.upgrade().unwrap();
                bench.core.set_flow(irq, new).unwrap();
                fire(&bench, CPU1);
            }
            IrqReturn::Handled
        });
        bench.core.request(irq, "test", RequestFlags::default(), primary.clone()).unwrap();
        fire(&bench, CPU0);
        let view = bench.view(irq);
        assert!(!view.masked && !view.active, "{old}, then {new}: {}", bench.said());
        bench.core.free(irq, &primary).unwrap();
    }
}
