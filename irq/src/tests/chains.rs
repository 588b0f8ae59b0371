//! Controllers behind controllers: the cases that broke the published series.

use super::threads::{GIC, ONESHOT};
use super::wired::Wired;
use super::*;

/// A GPIO block. Its lines are a root domain of their own, and its chip asks for the flow that fits the trigger.
const GPIO: Ops = Ops { set_type: true, state: true, eoi: false, set_affinity: false, is_pending: false, ..ALL_OPS };

struct Chain {
    bench: Bench,
    parent: Irq,
    child: Irq,
    /// The child's handler.
    action: Arc<dyn Action>,
    /// The child's chip and handlers.
    inner: Log,
}

impl Chain {
    fn new(ops: Ops, flow: Flow) -> Self {
        let bench = Bench::new(ops);
        let parent = bench.core.alloc_line(Wired::of(&bench), &on(CpuSet::first(2)), flow).unwrap();
        let inner = Log::default();
        let gpio = Arc::new(Wired(Arc::new(LogChip::new(GPIO, inner.clone()))));
        let child = bench.core.alloc_line(gpio, &on(CpuSet::first(2)), Flow::Edge).unwrap();
        let demultiplex = move |core: &IrqCore<HostHal>| {
            if core.handle_irq(child) { IrqReturn::Handled } else { IrqReturn::None }
        };
        bench.core.request_chained(parent, "gpio", Arc::new(demultiplex)).unwrap();
        let log = inner.clone();
        let action = bench.request(child, move |_| {
            log.add("handle");
            IrqReturn::Handled
        });
        inner.take();
        bench.said();
        Self { bench, parent, child, action, inner }
    }

    fn fire(&self) -> (String, String) {
        let core = &self.bench.core;
        self.bench.hal.interrupt(CPU0, || core.handle_exception(|core| assert!(core.handle_irq(self.parent))));
        (self.bench.said(), self.inner.take().join(" "))
    }
}

fn said(parent: &str, child: &str) -> (String, String) {
    (parent.into(), child.into())
}

#[test]
fn a_chained_line_is_entered_and_left_as_its_flow_says() {
    let cases = [
        (GIC, Flow::Strict, "ack eoi"),
        (ALL_OPS, Flow::FastEoi, "eoi"),
        (ALL_OPS, Flow::Level, "mask ack unmask"),
        (ALL_OPS, Flow::Edge, "ack"),
    ];
    for (ops, flow, parent) in cases {
        let chain = Chain::new(ops, flow);
        assert_eq!(chain.fire(), said(parent, "ack handle"), "{flow}");
        let core = &chain.bench.core;
        assert_eq!((core.count(chain.parent, CPU0), core.count(chain.child, CPU0)), (1, 1));
    }
}

#[test]
fn a_gpio_changes_its_flow_while_requested() {
    let chain = Chain::new(GIC, Flow::Strict);
    let core = chain.bench.core.clone();
    core.set_type(chain.child, Trigger::LevelLow).unwrap();
    assert_eq!(chain.inner.take().join(" "), "mask set_type unmask");
    assert_eq!(chain.fire(), said("ack eoi", "mask ack handle unmask"));
    core.set_type(chain.child, Trigger::EdgeBoth).unwrap();
    chain.inner.take();
    assert_eq!(chain.fire(), said("ack eoi", "ack handle"));
    assert_eq!(core.view(chain.child).unwrap().trigger, Some(Trigger::EdgeBoth));
    assert_eq!(core.set_flow(chain.child, Flow::Strict), Err(IrqError::Flow(Flow::Strict, "eoi")));
    assert_eq!(core.set_affinity(chain.child, &CpuSet::of(CPU1)), Err(IrqError::NotSupported("set_affinity")));
    assert_eq!(core.set_type(chain.parent, Trigger::EdgeRising), Err(IrqError::NotSupported("set_type")));
}

/// The demultiplexer finds the line of a pin. Before delivery the line is freed, and its pin goes to another line.
#[test]
fn a_pending_edge_belongs_to_the_pins_new_line() {
    for trigger in [Trigger::EdgeRising, Trigger::LevelHigh] {
        let chain = Chain::new(GIC, Flow::Strict);
        let core = &chain.bench.core;
        core.set_type(chain.child, trigger).unwrap();
        let deliver = || chain.bench.hal.interrupt(CPU1, || core.handle_irq(chain.child));
        core.free(chain.child, &chain.action).unwrap();
        chain.inner.take();
        assert!(deliver(), "the pin may deliver again");
        assert_eq!(chain.inner.take().join(" "), "ack");
        core.free_line(chain.child).unwrap();
        chain.inner.take();
        assert!(!deliver(), "{trigger}");
        assert_eq!(chain.inner.take().join(" "), "");
    }
}

/// Drivers that wait for both edges in turn do this: the handler reverses the polarity, and the flow changes with it.
#[test]
fn a_gpio_changes_its_flow_in_its_own_handler() {
    let chain = Chain::new(GIC, Flow::Strict);
    let bench = &chain.bench;
    let gpio = Arc::new(Wired(Arc::new(LogChip::new(GPIO, chain.inner.clone()))));
    let irq = bench.core.alloc_line(gpio, &on(CpuSet::of(CPU0)), Flow::Level).unwrap();
    let core = bench.core.clone();
    bench.request(irq, move |irq| {
        core.set_type(irq, Trigger::EdgeFalling).unwrap();
        IrqReturn::Handled
    });
    chain.inner.take();
    bench.hal.interrupt(CPU0, || assert!(bench.core.handle_irq(irq)));
    assert_eq!(chain.inner.take().join(" "), "mask ack set_type unmask", "the old flow unmasks what it masked");
    bench.hal.interrupt(CPU0, || assert!(bench.core.handle_irq(irq)));
    assert_eq!(chain.inner.take().join(" "), "ack mask set_type unmask");
}

#[test]
fn a_chained_line_is_nobody_elses_and_never_in_a_thread() {
    let bench = Bench::forced(GIC);
    let irq = bench.alloc(Flow::Strict);
    let chained = bench.core.request_chained(irq, "gpio", Arc::new(|_| IrqReturn::None)).unwrap();
    assert_eq!(bench.core.view(irq).unwrap().threads, 0);
    let shared = RequestFlags { shared: true, ..RequestFlags::default() };
    let refused = bench.core.request(irq, "second", shared, handler(|_| IrqReturn::None));
    assert_eq!(refused, Err(IrqError::NotShared(irq)));
    bench.fire(irq);
    assert_eq!(bench.core.view(irq).unwrap().unhandled, 1, "it found no line raised");
    bench.core.free(irq, &chained).unwrap();
}

/// A power controller in front of the GIC. It must see every ack and eoi to know when it may sleep.
#[test]
fn a_nested_chip_forwards_ack_and_eoi_to_threads_ends_too() {
    struct PowerChip {
        log: Log,
    }
    impl PowerChip {
        fn ack(&self, level: &Level<'_>) {
            self.log.add("power ack");
            let parent = level.parent().unwrap();
            parent.chip().ack(&parent);
        }
        fn eoi(&self, level: &Level<'_>) {
            self.log.add("power eoi");
            let parent = level.parent().unwrap();
            parent.chip().eoi(&parent);
        }
    }
    struct PowerDomain(Arc<Wired>, Arc<IrqChip>);
    impl IrqDomain for PowerDomain {
        fn name(&self) -> &str {
            "POWER"
        }
        fn parent(&self) -> Option<Arc<dyn IrqDomain>> {
            Some(self.0.clone())
        }
        fn allocate(&self, request: &AllocRequest) -> Result<LevelData, IrqError> {
            Ok(LevelData { chip: self.1.clone(), hwirq: HardwareIrq(u64::from(request.index) + 100) })
        }
        fn activate(&self, _: &Level<'_>, _: Target) -> Result<(), IrqError> {
            Ok(())
        }
        fn release(&self, _: HardwareIrq) {}
    }
    let bench = Bench::new(GIC);
    let chip = Arc::new(PowerChip { log: bench.log.clone() });
    let behaviour = ChipBehaviour { forwards: true, eoi_threaded: true, ..ChipBehaviour::default() };
    let chip = IrqChip::of("POWER", &chip).behaviour(behaviour).ack(PowerChip::ack).eoi(PowerChip::eoi).build();
    let domain = Arc::new(PowerDomain(Wired::of(&bench), chip));
    let irq = bench.core.alloc_line(domain, &on(CpuSet::of(CPU0)), Flow::Strict).unwrap();
    let (gate, primary) = bench.threaded(irq, ONESHOT);
    bench.hal.interrupt(CPU0, || assert!(bench.core.handle_irq(irq)));
    assert_eq!(bench.said(), "power ack ack handle");
    assert!(bench.view(irq).flow_masked);
    bench.end_thread(irq, &gate, 0);
    assert_eq!(bench.said(), "thread power eoi eoi");
    bench.core.free(irq, &primary).unwrap();
}

/// An LPI has no active state. It arrives at its new CPU while its handler still runs on the old one.
#[test]
fn an_lpi_that_comes_on_another_cpu_meanwhile_is_not_lost() {
    for (flow, expected) in
        [(Flow::FastEoi, "handle eoi handle eoi"), (Flow::Strict, "ack handle mask ack eoi unmask handle eoi")]
    {
        let bench = Bench::new(ALL_OPS);
        let irq = bench.core.alloc_line(Wired::of(&bench), &on(CpuSet::first(2)), flow).unwrap();
        let (core, log, hal) = (bench.core.clone(), bench.log.clone(), bench.hal);
        let again = Mutex::new(true);
        bench.request(irq, move |irq| {
            log.add("handle");
            if core::mem::take(&mut *again.lock().unwrap()) {
                hal.interrupt(CPU1, || assert!(core.handle_irq(irq)));
            }
            IrqReturn::Handled
        });
        bench.said();
        bench.hal.interrupt(CPU0, || assert!(bench.core.handle_irq(irq)));
        assert_eq!(bench.said(), expected, "{flow}");
    }
}

#[test]
fn a_thread_raises_a_line_by_its_irqchip_state() {
    let bench = Bench::new(Ops { state: true, ..GIC });
    let irq = bench.line(Flow::Strict);
    assert_eq!(bench.core.irqchip_state(irq, IrqChipState::Pending), Ok(false));
    bench.core.set_irqchip_state(irq, IrqChipState::Pending, true).unwrap();
    assert_eq!(bench.core.irqchip_state(irq, IrqChipState::Pending), Ok(true));
    let none = Bench::new(GIC);
    let irq = none.line(Flow::Strict);
    let missing = Err(IrqError::NotSupported("irqchip state"));
    assert_eq!(none.core.irqchip_state(irq, IrqChipState::Active), missing);
    let states = [IrqChipState::Pending, IrqChipState::Active, IrqChipState::Masked].map(|state| state.to_string());
    assert_eq!(states, ["pending", "active", "masked"]);
}

/// `check` found it: a pin that stormed stayed masked until the CPU came back that had counted the storm.
#[test]
fn the_throttle_of_a_line_without_a_target_ends_though_its_cpu_has_gone() {
    let storm = StormConfig { burst: 10, burst_ns_min: 1_000, unhandled_max: 8, throttle_ns: 500 };
    let bench = Bench::with(GPIO, |config| config.storm = storm);
    let pin = bench.core.alloc_line(Wired::of(&bench), &on(CpuSet::first(2)), Flow::Edge).unwrap();
    bench.request(pin, |_| IrqReturn::Handled);
    (0..10).for_each(|_| assert!(bench.hal.interrupt(CPU1, || bench.core.handle_irq(pin))));
    let throttled = || bench.core.view(pin).unwrap().throttled_until_ns;
    assert_eq!((throttled(), bench.core.next_deadline_ns(CPU0)), (Some(500), None));
    bench.hal.on_cpu(CPU1, || bench.core.cpu_offline()).unwrap();
    assert_eq!(bench.core.next_deadline_ns(CPU0), Some(500));
    bench.hal.advance_ns(600);
    bench.hal.on_cpu(CPU0, || bench.core.housekeep());
    assert_eq!(throttled(), None);
}

/// `check` found it: a CPU stood still between the look at the pins and the delivery of the line that it had found. Meanwhile the
/// line was freed, and its number was another line's, whose flow ended an interrupt that nobody had acknowledged.
#[test]
fn the_number_of_a_freed_line_is_nobodys_until_every_cpu_has_looked_after_its_lines() {
    let chain = Chain::new(GIC, Flow::Strict);
    let Chain { bench, child, action, .. } = &chain;
    bench.core.free(*child, action).unwrap();
    bench.hal.on_cpu(CPU1, || bench.core.free_line(*child)).unwrap();
    bench.hal.advance_ns(1_000_000);
    let alloc = || bench.hal.on_cpu(CPU1, || bench.alloc(Flow::Edge));
    assert_ne!(alloc(), *child);
    // CPU 0 is told to do so, if no interrupt makes it.
    assert!(bench.core.next_deadline_ns(CPU0).is_some());
    bench.hal.on_cpu(CPU0, || bench.core.housekeep());
    assert_eq!(alloc(), *child);
}
