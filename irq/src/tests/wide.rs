//! A controller with 2,047 interrupt identities a CPU, as a RISC-V IMSIC has: more than a byte can hold.

use super::*;
use std::collections::BTreeSet;
use std::vec;

const CPUS: u32 = 3;
const CPU2: CpuId = CpuId(2);
const LAST: Identity = Identity(2047);
const FLIGHT_NS: u64 = 1_000;

/// The interrupt files of all CPUs, and the target of each line.
struct Files {
    hal: HostHal,
    pending: Mutex<Vec<BTreeSet<u32>>>,
    /// By hardware number.
    targets: Mutex<Vec<Option<Target>>>,
}

impl Files {
    fn new(hal: HostHal, lines: usize) -> Arc<Self> {
        let pending = vec![BTreeSet::new(); CPUS as usize];
        Arc::new(Self { hal, pending: Mutex::new(pending), targets: Mutex::new(vec![None; lines]) })
    }

    fn chip(self: &Arc<Self>) -> Arc<IrqChip> {
        // The claim has already removed the interrupt from the file.
        IrqChip::of("IMSIC", self)
            .ack(|_, _| ())
            .set_affinity(Self::set_affinity)
            .retrigger(|files, level| files.raise(level.hwirq().0 as usize))
            .is_pending(Self::is_pending)
            .build()
    }

    fn set_affinity(&self, level: &Level<'_>, target: Target) -> Result<(), IrqError> {
        self.targets.lock().unwrap()[level.hwirq().0 as usize] = Some(target);
        Ok(())
    }

    fn is_pending(&self, _: &Level<'_>, target: Target) -> bool {
        let pending = self.pending.lock().unwrap();
        target.identity.is_some_and(|identity| pending[target.cpu.index()].contains(&identity.0))
    }

    /// The device of a line writes its message. False if the line has none.
    fn raise(&self, line: usize) -> bool {
        let target = self.targets.lock().unwrap()[line];
        target.is_some_and(|target| self.send(target))
    }

    fn send(&self, target: Target) -> bool {
        self.pending.lock().unwrap()[target.cpu.index()].insert(target.identity.unwrap().0)
    }

    /// `cpu` claims its lowest pending identity and takes it.
    fn take(&self, cpu: CpuId, core: &IrqCore<HostHal>) -> Option<Identity> {
        let identity = Identity(self.pending.lock().unwrap()[cpu.index()].pop_first()?);
        self.hal.interrupt(cpu, || core.handle_vector(identity));
        Some(identity)
    }
}

struct FileDomain(Arc<Files>);

impl IrqDomain for FileDomain {
    fn name(&self) -> &str {
        "IMSIC"
    }
    fn parent(&self) -> Option<Arc<dyn IrqDomain>> {
        None
    }
    fn allocate(&self, request: &AllocRequest) -> Result<LevelData, IrqError> {
        Ok(LevelData { chip: self.0.chip(), hwirq: HardwareIrq(request.index.into()) })
    }
    fn activate(&self, level: &Level<'_>, target: Target) -> Result<(), IrqError> {
        self.0.set_affinity(level, target)
    }
    fn release(&self, hwirq: HardwareIrq) {
        self.0.targets.lock().unwrap()[hwirq.0 as usize] = None;
    }
}

struct Rig {
    hal: HostHal,
    files: Arc<Files>,
    core: IrqCore<HostHal>,
}

impl Rig {
    fn new() -> Self {
        let hal = HostHal::manual(CPUS);
        let space = IdentitySpace { first: Identity(1), last: LAST, device_first: Identity(1), device_last: LAST };
        let lines_max = LAST.0 + CPUS;
        let config = CoreConfig { identities: Some(space), flight_ns: FLIGHT_NS, ..CoreConfig::new(CPUS, lines_max) };
        let files = Files::new(hal, lines_max as usize);
        Self { hal, files, core: IrqCore::new(hal, config).unwrap() }
    }

    /// A line of this number on one CPU.
    fn line(&self, index: u32, cpu: CpuId) -> Result<Irq, IrqError> {
        let request = AllocRequest { index, ..on(CpuSet::of(cpu)) };
        self.core.alloc_line(Arc::new(FileDomain(self.files.clone())), &request, Flow::Edge)
    }

    fn target(&self, irq: Irq) -> Target {
        self.core.view(irq).unwrap().effective.unwrap()
    }

    /// Lets all messages arrive. Then `cpu` gives back the identities that lines have left.
    fn settle(&self, cpu: CpuId) {
        self.hal.advance_ns(FLIGHT_NS);
        self.hal.on_cpu(cpu, || self.core.housekeep());
    }
}

#[test]
fn a_line_is_delivered_moved_and_freed_at_identity_2047() {
    let rig = Rig::new();
    let irqs: Vec<Irq> = (0..LAST.0).map(|index| rig.line(index, CPU2).unwrap()).collect();
    let full = IrqError::NoVector { cpu: CPU2, used: 2047, reserved: 0, total: 2047 };
    assert_eq!(rig.line(2047, CPU2), Err(full));
    let others = [CPU0, CPU1].map(|cpu| rig.line(2047 + cpu.0, cpu).unwrap());
    assert_eq!(others.map(|irq| rig.target(irq)), [CPU0, CPU1].map(|cpu| Target::of(cpu, Identity(1))));

    let (irq, old) = (irqs[2046], Target::of(CPU2, LAST));
    assert_eq!((rig.target(irq), old.vector()), (old, None));
    assert_eq!(old.to_string(), "CPU 2 vector 0x7ff");
    let log = Log::default();
    let said = log.clone();
    let action = handler(move |_| {
        said.add("handle");
        IrqReturn::Handled
    });
    rig.core.request(irq, "last", RequestFlags::default(), action.clone()).unwrap();
    rig.files.raise(2046);
    assert_eq!((rig.files.take(CPU2, &rig.core), log.take()), (Some(LAST), vec!["handle"]));

    // A message on its way to the old CPU belongs to the line. The line keeps the old identity until it has arrived.
    rig.core.set_affinity(irq, &CpuSet::of(CPU1)).unwrap();
    assert_eq!(rig.target(irq), Target::of(CPU1, Identity(2)));
    rig.files.send(old);
    assert_eq!((rig.files.take(CPU2, &rig.core), log.take()), (Some(LAST), vec!["handle"]));
    rig.files.raise(2046);
    assert_eq!((rig.files.take(CPU1, &rig.core), log.take()), (Some(Identity(2)), vec!["handle"]));
    assert!(rig.line(2046, CPU2).is_err(), "a message with the old identity may still arrive");
    rig.settle(CPU2);
    let next = rig.line(2046, CPU2).unwrap();
    assert_eq!(rig.target(next), old);

    rig.core.free_line(next).unwrap();
    rig.settle(CPU2);
    rig.core.free(irq, &action).unwrap();
    rig.core.free_line(irq).unwrap();
    rig.settle(CPU1);
    let used = 2046 + others.len() as u32;
    assert_eq!(rig.core.matrix.lock().in_use(), (used, 0), "both identities are free again");
}

#[test]
fn a_stray_identity_is_reported_as_wide_as_it_is() {
    let rig = Rig::new();
    for identity in [LAST, Identity(2048), Identity(u32::MAX)] {
        rig.hal.interrupt(CPU1, || rig.core.handle_vector(identity));
        assert_eq!(rig.core.last_stray(), Some(Target::of(CPU1, identity)));
    }
    assert_eq!((rig.core.stray_vectors(CPU0), rig.core.stray_vectors(CPU1)), (0, 3));
}

#[test]
fn without_identities_no_line_that_needs_one_is_allocated() {
    let hal = HostHal::manual(1);
    let core = IrqCore::new(hal, CoreConfig::new(1, 1)).unwrap();
    let domain = Arc::new(FileDomain(Files::new(hal, 1)));
    let refused = core.alloc_line(domain, &on(CpuSet::of(CPU0)), Flow::Edge);
    assert_eq!(refused, Err(IrqError::NoVector { cpu: CPU0, used: 0, reserved: 0, total: 0 }));
}
