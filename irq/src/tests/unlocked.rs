//! Per-CPU lines and pseudo-NMIs: no lock on their way.

use super::*;
use hal::Hal as _;

const NMI: Ops = Ops { nmi: true, ..ALL_OPS };

fn logging(bench: &Bench) -> Arc<dyn Action> {
    let log = bench.log.clone();
    handler(move |_| {
        log.add("handle");
        IrqReturn::Handled
    })
}

#[test]
fn each_cpu_enables_a_per_cpu_line_for_itself() {
    let bench = Bench::new(ALL_OPS);
    let irq = bench.alloc(Flow::PerCpu);
    let action = logging(&bench);
    bench.core.request(irq, "timer", RequestFlags::default(), action.clone()).unwrap();
    assert_eq!(bench.said(), "mask", "as it was allocated");
    bench.core.enable_percpu(irq).unwrap();
    bench.core.enable_percpu(irq).unwrap();
    bench.hal.on_cpu(CPU1, || bench.core.enable_percpu(irq)).unwrap();
    assert_eq!(bench.said(), "unmask unmask");
    assert_eq!(bench.core.view(irq).unwrap().percpu_enabled, CpuSet::first(2));
    assert_eq!(bench.core.disable_nosync(irq), Err(IrqError::PerCpu(irq)));
    bench.hal.interrupt(CPU1, || assert!(bench.core.handle_irq(irq)));
    assert_eq!((bench.said().as_str(), bench.core.count(irq, CPU1)), ("ack handle eoi", 1));
    bench.core.disable_percpu(irq).unwrap();
    assert_eq!(bench.core.free(irq, &action), Err(IrqError::EnabledOn(irq, CPU1)));
    bench.hal.on_cpu(CPU1, || bench.core.disable_percpu(irq)).unwrap();
    assert_eq!(bench.said(), "mask mask");
    bench.core.free(irq, &action).unwrap();
    // An interrupt that was taken just before is still ended.
    bench.hal.interrupt(CPU1, || assert!(bench.core.handle_irq(irq)));
    assert_eq!((bench.said().as_str(), bench.core.view(irq).unwrap().unexpected), ("ack eoi", 1));
    let edge = bench.alloc(Flow::Edge);
    assert_eq!(bench.core.enable_percpu(edge), Err(IrqError::NotPerCpu(edge)));
    assert!(matches!(bench.core.set_flow(edge, Flow::PerCpu), Err(IrqError::Flow(Flow::PerCpu, _))));
}

/// Defect: the line's number went to another line, which did not know that a CPU has it enabled.
#[test]
fn a_per_cpu_line_that_a_cpu_has_enabled_is_not_freed() {
    let bench = Bench::new(ALL_OPS);
    let irq = bench.alloc(Flow::PerCpu);
    bench.hal.on_cpu(CPU1, || bench.core.enable_percpu(irq)).unwrap();
    assert_eq!(bench.core.free_line(irq), Err(IrqError::EnabledOn(irq, CPU1)));
    bench.hal.on_cpu(CPU1, || bench.core.disable_percpu(irq)).unwrap();
    assert_eq!(bench.core.free_line(irq), Ok(()));
}

/// Defect: a level that nobody lowered came again for ever.
#[test]
fn a_per_cpu_line_without_a_handler_is_disabled_where_it_comes() {
    let bench = Bench::new(ALL_OPS);
    let irq = bench.alloc(Flow::PerCpu);
    for cpu in [CPU0, CPU1] {
        bench.hal.on_cpu(cpu, || bench.core.enable_percpu(irq)).unwrap();
    }
    bench.said();
    bench.hal.interrupt(CPU1, || assert!(bench.core.handle_irq(irq)));
    assert_eq!(bench.said(), "mask ack eoi");
    assert_eq!(bench.core.view(irq).unwrap().percpu_enabled, CpuSet::of(CPU0));
    // With a handler, the CPU enables it again.
    bench.core.request(irq, "timer", RequestFlags::default(), logging(&bench)).unwrap();
    bench.hal.on_cpu(CPU1, || bench.core.enable_percpu(irq)).unwrap();
    bench.hal.interrupt(CPU1, || assert!(bench.core.handle_irq(irq)));
    assert_eq!(bench.said(), "unmask ack handle eoi");
}

/// The interrupted code holds the line's lock and every other lock of the core.
#[test]
fn an_nmi_is_handled_whatever_it_interrupts() {
    let bench = Bench::new(NMI);
    let irq = bench.alloc(Flow::FastEoi);
    bench.said();
    let action = logging(&bench);
    bench.core.request_nmi(irq, "watchdog", action.clone()).unwrap();
    assert_eq!(bench.said(), "nmi_setup unmask");
    {
        let _matrix = bench.core.matrix.lock();
        let _line = bench.core.lines[irq.0 as usize].state.lock();
        assert!(bench.core.handle_nmi(irq));
    }
    assert_eq!((bench.said().as_str(), bench.core.count(irq, bench.hal.cpu())), ("ack handle eoi", 1));
    let view = bench.core.view(irq).unwrap();
    assert!(view.nmi && !view.in_progress && !view.active);
    let refused = bench.core.request(irq, "second", RequestFlags::default(), action.clone());
    assert_eq!(refused, Err(IrqError::NotShared(irq)));
    bench.core.free(irq, &action).unwrap();
    assert_eq!(bench.said(), "mask nmi_teardown");
    assert!(!bench.core.handle_nmi(irq) && !bench.core.view(irq).unwrap().nmi);
    assert_eq!(bench.said(), "", "the caller ends it at the controller");
}

#[test]
fn a_per_cpu_nmi_is_set_up_on_each_cpu() {
    let bench = Bench::new(NMI);
    let irq = bench.alloc(Flow::PerCpu);
    let action = logging(&bench);
    bench.core.request_nmi(irq, "perf", action.clone()).unwrap();
    assert_eq!(bench.said(), "mask");
    bench.core.enable_percpu(irq).unwrap();
    assert_eq!(bench.said(), "nmi_setup unmask");
    bench.core.disable_percpu(irq).unwrap();
    assert_eq!(bench.said(), "mask nmi_teardown");
    bench.core.free(irq, &action).unwrap();
}

#[test]
fn a_line_that_cannot_be_an_nmi_says_so() {
    let bench = Bench::new(ALL_OPS);
    let irq = bench.line(Flow::FastEoi);
    let refused = bench.core.request_nmi(irq, "watchdog", logging(&bench));
    assert_eq!(refused, Err(IrqError::NotShared(irq)));
    let free = bench.alloc(Flow::FastEoi);
    let refused = bench.core.request_nmi(free, "watchdog", logging(&bench));
    assert_eq!(refused, Err(IrqError::NotSupported("pseudo-NMI")));
}
