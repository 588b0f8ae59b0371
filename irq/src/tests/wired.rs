//! Lines of a controller without vectors, as a GIC is.

use super::*;

/// Such a controller's domain. Its chip logs.
pub(super) struct Wired(pub(super) Arc<LogChip>);

impl Wired {
    pub(super) fn of(bench: &Bench) -> Arc<Self> {
        Arc::new(Self(bench.domain.0.clone()))
    }
}

impl IrqDomain for Wired {
    fn name(&self) -> &str {
        "WIRED"
    }
    fn parent(&self) -> Option<Arc<dyn IrqDomain>> {
        None
    }
    fn needs_identity(&self) -> bool {
        false
    }
    fn allocate(&self, request: &AllocRequest) -> Result<LevelData, IrqError> {
        Ok(LevelData { chip: self.0.chip(), hwirq: HardwareIrq(request.index.into()) })
    }
    fn activate(&self, _: &Level<'_>, target: Target) -> Result<(), IrqError> {
        assert_eq!(target.identity, None);
        self.0.log.add("activate");
        Ok(())
    }
    fn deactivate(&self, _: HardwareIrq) -> Result<(), IrqError> {
        self.0.deactivate()
    }
    fn settles(&self, _: HardwareIrq) -> bool {
        self.0.settles()
    }
    fn release(&self, _: HardwareIrq) {
        self.0.release();
    }
}

fn line(bench: &Bench, affinity: CpuSet, managed: bool) -> Irq {
    let domain = Wired::of(bench);
    let request = AllocRequest { index: 40, managed, ..on(affinity) };
    let irq = bench.core.alloc_line(domain.clone(), &request, Flow::FastEoi).unwrap();
    let log = bench.log.clone();
    bench.request(irq, move |_| {
        log.add("handle");
        IrqReturn::Handled
    });
    irq
}

fn fire(bench: &Bench, cpu: CpuId, irq: Irq) {
    bench.hal.interrupt(cpu, || bench.core.handle_exception(|core| assert!(core.handle_irq(irq))));
}

#[test]
fn a_line_without_a_vector_goes_where_its_cpu_is() {
    let bench = Bench::new(ALL_OPS);
    let irq = line(&bench, CpuSet::first(2), false);
    assert_eq!(bench.said(), "mask activate unmask");
    let effective = || bench.core.view(irq).unwrap().effective;
    assert_eq!(effective(), Some(Target::on(CPU0)));
    fire(&bench, CPU0, irq);
    assert_eq!(bench.said(), "handle eoi");
    bench.core.set_affinity(irq, &CpuSet::of(CPU1)).unwrap();
    assert_eq!((bench.said().as_str(), effective()), ("set_affinity", Some(Target::on(CPU1))));
    assert_eq!(bench.core.view(irq).unwrap().retired, []);
    // An interrupt that the old CPU took just before the move still belongs to the line.
    fire(&bench, CPU0, irq);
    assert_eq!(bench.said(), "handle eoi");
    bench.hal.on_cpu(CPU1, || bench.core.cpu_offline()).unwrap();
    assert_eq!((bench.said().as_str(), effective()), ("set_affinity", Some(Target::on(CPU0))));
    assert_eq!(bench.core.matrix.lock().in_use(), (0, 0), "no vector was touched");
    assert_eq!(
        bench.core.view(irq).unwrap().to_string().lines().nth(3).unwrap().trim(),
        "disabled depth 0 affinity 1 effective CPU 0"
    );
}

#[test]
fn the_number_of_a_freed_line_is_nobodys_until_what_was_taken_has_passed() {
    let bench = Bench::with(ALL_OPS, |config| config.lines_max = 1);
    let domain = Wired::of(&bench);
    let irq = bench.core.alloc_line(domain.clone(), &on(CpuSet::first(2)), Flow::FastEoi).unwrap();
    bench.core.free_line(irq).unwrap();
    let again = || bench.core.alloc_line(domain.clone(), &on(CpuSet::first(2)), Flow::FastEoi);
    assert_eq!(again(), Err(IrqError::Exhausted("interrupt lines", 1)));
    bench.hal.advance_ns(1_000_000);
    // The other CPU may still be at it.
    assert_eq!(again(), Err(IrqError::Exhausted("interrupt lines", 1)));
    bench.hal.on_cpu(CPU1, || bench.core.housekeep());
    assert_eq!(again(), Ok(irq));
}

#[test]
fn a_managed_line_without_a_vector_sleeps_and_wakes_with_its_cpu() {
    let bench = Bench::new(ALL_OPS);
    let irq = line(&bench, CpuSet::of(CPU1), true);
    bench.said();
    bench.hal.on_cpu(CPU1, || bench.core.cpu_offline()).unwrap();
    assert!(bench.said() == "mask deactivate" && bench.core.view(irq).unwrap().shutdown);
    bench.core.cpu_online(CPU1).unwrap();
    assert_eq!(bench.said(), "set_affinity unmask");
    fire(&bench, CPU1, irq);
    assert_eq!(bench.said(), "handle eoi");
    assert_eq!(bench.core.matrix.lock().in_use(), (0, 0));
}

/// The failure that a power controller in front of a GIC caused.
#[test]
fn a_chip_that_keeps_ack_or_eoi_to_itself_is_refused_at_allocation() {
    struct Nested(Arc<Wired>, Arc<LogChip>);
    impl IrqDomain for Nested {
        fn name(&self) -> &str {
            "NESTED"
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
    let nested = |ops, flow| {
        let bench = Bench::new(ALL_OPS);
        let chip = Arc::new(LogChip::new(ops, bench.log.clone()));
        let domain = Arc::new(Nested(Wired::of(&bench), chip));
        bench.core.alloc_line(domain, &on(CpuSet::of(CPU0)), flow)
    };
    let none = Ops::default();
    assert!(nested(none, Flow::Strict).is_ok(), "the parent's are used");
    for flow in [Flow::Strict, Flow::FastEoi] {
        assert_eq!(nested(Ops { eoi: true, ..none }, flow), Err(IrqError::KeepsToItself("LOG", "eoi")));
        assert!(nested(Ops { eoi: true, forwards: true, ..none }, flow).is_ok());
    }
    assert_eq!(nested(Ops { ack: true, ..none }, Flow::Strict), Err(IrqError::KeepsToItself("LOG", "ack")));
    assert!(nested(Ops { ack: true, ..none }, Flow::FastEoi).is_ok());
}
