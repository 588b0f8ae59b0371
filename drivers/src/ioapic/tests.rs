use super::*;
use crate::apic::{ApicId, ApicMode, Lapic, VectorDomain};
use crate::testing::Script;
use alloc::vec;
use hal::host::HostHal;
use hal::{CpuId, CpuSet};
use irq::{Irq, RequesterId, Vector};

const LEVEL_LOW: PinWiring = PinWiring { level: true, active_low: true };
const TARGET: Target = Target::at(CpuId(1), Vector(0x31));

struct Setup {
    script: Arc<Script>,
    apic: Arc<Script>,
    lapic: Arc<Lapic<HostHal>>,
    vectors: Arc<VectorDomain<HostHal>>,
}

impl Setup {
    /// An I/O APIC of 24 pins and this version.
    fn new(version: u64) -> (Self, hal::host::HostRegs) {
        let hal = HostHal::manual(2);
        let (apic, apic_regs) = Script::new();
        let lapic = Lapic::new(hal, apic_regs, ApicMode::X2Apic, vec![ApicId(0), ApicId(2)]).unwrap();
        let (script, regs) = Script::new();
        script.answer(0x10, &[0x0017_0000 | version]);
        let lapic = Arc::new(lapic);
        let vectors = Arc::new(VectorDomain::new(hal, lapic.clone()));
        (Self { script, apic, lapic, vectors }, regs)
    }

    fn plain(&self) -> IoApicRoute<HostHal> {
        IoApicRoute::Plain(self.lapic.clone())
    }

    /// Writes to redirection registers: index and value.
    fn redirections(&self) -> Vec<(u64, u64)> {
        self.script.writes().chunks(2).map(|pair| (pair[0].2, pair[1].2)).collect()
    }
}

fn request(index: u32) -> AllocRequest {
    let delivery = DeliveryKind::Fixed;
    AllocRequest { requester: RequesterId(0xf0f8), index, affinity: CpuSet::first(2), managed: false, delivery }
}

/// Stands for a remapping unit's domain: it composes the message of handle 0x8003.
struct Remapper {
    parent: Arc<dyn IrqDomain>,
    posted: bool,
}

struct RemapperChip;

impl RemapperChip {
    fn compose_message(&self, _level: &Level<'_>) -> Result<MsiMessage, IrqError> {
        Ok(MsiMessage { address: 0xfee0_0074, data: 0 })
    }
}

impl IrqDomain for Remapper {
    fn name(&self) -> &str {
        "remapper"
    }
    fn parent(&self) -> Option<Arc<dyn IrqDomain>> {
        Some(self.parent.clone())
    }
    fn is_posted(&self) -> bool {
        self.posted
    }
    fn allocate(&self, _request: &AllocRequest) -> Result<LevelData, IrqError> {
        Ok(LevelData {
            chip: IrqChip::of("remapper", &Arc::new(RemapperChip))
                .compose_message(RemapperChip::compose_message)
                .build(),
            hwirq: HardwareIrq(0x8003),
        })
    }
    fn activate(&self, _level: &Level<'_>, _target: Target) -> Result<(), IrqError> {
        Ok(())
    }
    fn release(&self, _hwirq: HardwareIrq) {}
}

/// Defect: a pin that nobody described stayed open, with a vector of firmware's.
#[test]
fn pins_that_nobody_described_are_masked_too() {
    let hal = HostHal::manual(2);
    let (setup, regs) = Setup::new(0x20);
    IoApicDomain::new(hal, regs, &[LEVEL_LOW; 2], setup.plain(), setup.vectors.clone()).unwrap();
    // The version's index is a write too.
    let writes = setup.script.writes();
    let (selected, masked) = (writes[1..].iter().step_by(2), writes[2..].iter().step_by(2));
    let low: Vec<_> =
        selected.zip(masked).map(|(index, word)| (index.2, word.2)).filter(|pair| pair.0 % 2 == 0).collect();
    assert_eq!(low, (0x10..0x40).step_by(2).map(|index| (index, 0x1_0000)).collect::<Vec<_>>());
}

/// IOREGSEL has 8 bits, whatever the version register says.
#[test]
fn no_more_pins_are_used_than_registers_can_be_selected() {
    let hal = HostHal::manual(2);
    let (setup, regs) = Setup::new(0x20);
    setup.script.answer(0x10, &[0x00ff_0020]);
    IoApicDomain::new(hal, regs, &[], setup.plain(), setup.vectors.clone()).unwrap();
    assert_eq!(setup.script.writes().last(), Some(&(0x10, 32, 0x1_0000)), "pin 119's low half, register 0xfe");
    let (setup, regs) = Setup::new(0x20);
    setup.script.answer(0x10, &[0x00ff_0020]);
    let refused = IoApicDomain::new(hal, regs, &[LEVEL_LOW; 121], setup.plain(), setup.vectors.clone()).err();
    assert_eq!(refused, Some(IoApicError::Pins(121, 120)));
}

#[test]
fn a_plain_pin_is_written_masked_then_opened() {
    let (setup, regs) = Setup::new(0x11);
    let hal = HostHal::manual(2);
    let wiring = [PinWiring::default(), LEVEL_LOW];
    let domain = IoApicDomain::new(hal, regs, &wiring, setup.plain(), setup.vectors.clone()).unwrap();
    setup.script.writes();
    let levels = [domain.allocate(&request(1)).unwrap(), setup.vectors.allocate(&request(1)).unwrap()];
    let level = Level::new(Irq(0), &levels);
    setup.vectors.activate(&level.parent().unwrap(), TARGET).unwrap();
    domain.activate(&level, TARGET).unwrap();
    level.chip().unmask(&level);
    let entry = [(0x12, 0x0001_a031), (0x13, 0x0200_0000), (0x12, 0x0001_a031), (0x12, 0xa031)];
    assert_eq!(setup.redirections(), entry);
    // TMR, vectors 0x20 to 0x3f.
    setup.apic.answer(0x819, &[1 << 0x11]);
    level.chip().eoi(&level);
    assert_eq!(setup.apic.writes(), [(0x80b, 64, 0)]);
    assert_eq!(setup.script.writes(), [], "the local APIC's EOI is broadcast");
    assert!(domain.allocate(&request(1)).is_err() && domain.allocate(&request(2)).is_err());
    domain.release(levels[0].hwirq);
    assert_eq!(setup.redirections().first(), Some(&(0x12, 0x1_0000)), "masked, and somebody else's");
    assert!(domain.allocate(&request(1)).is_ok());
}

/// A level-triggered pin of vector 0x31, open, without a remapping unit.
fn with_plain_level<R>(version: u64, body: impl FnOnce(&Setup, &Level<'_>) -> R) -> R {
    let (setup, regs) = Setup::new(version);
    let hal = HostHal::manual(2);
    let domain = IoApicDomain::new(hal, regs, &[LEVEL_LOW], setup.plain(), setup.vectors.clone()).unwrap();
    let levels = [domain.allocate(&request(0)).unwrap(), setup.vectors.allocate(&request(0)).unwrap()];
    let level = Level::new(Irq(0), &levels);
    setup.vectors.activate(&level.parent().unwrap(), TARGET).unwrap();
    domain.activate(&level, TARGET).unwrap();
    level.chip().unmask(&level);
    setup.script.writes();
    body(&setup, &level)
}

/// The EOIs that the pin gets after a move to vector 0x44.
fn end_after_move(version: u64) -> Vec<(u32, u64)> {
    with_plain_level(version, |setup, level| {
        setup.apic.answer(0x81a, &[1 << 4]);
        level.chip().set_affinity(level, Target::at(CpuId(0), Vector(0x44))).unwrap();
        setup.script.writes();
        level.chip().eoi(level);
        let writes = setup.script.writes().into_iter().map(|(offset, _, value)| (offset, value)).collect();
        level.chip().eoi(level);
        assert_eq!(setup.script.writes(), [], "once is enough");
        writes
    })
}

/// The CPU may have taken the interrupt with the old vector, whose EOI does not match the pin's entry.
#[test]
fn a_plain_level_pin_that_moved_is_told_of_the_end_by_its_new_vector() {
    assert_eq!(end_after_move(0x20), [(0x40, 0x44)]);
    let windows: Vec<_> = end_after_move(0x11).into_iter().filter(|&(offset, _)| offset == 0x10).collect();
    let edge_then_level: Vec<_> =
        windows.iter().map(|&(_, value)| value & 0x1_8000).filter(|&bits| bits != 0).collect();
    assert_eq!(edge_then_level, [0x1_0000, 0x1_8000, 0x8000], "masked edge, masked level, level");
}

/// `check` found this bug: the CPU that the pin had left was offline before the entry's posted writes arrived, and a message
/// to it left the pin waiting for its EOI for ever.
#[test]
fn a_plain_pin_has_left_its_cpu_when_the_move_returns() {
    with_plain_level(0x20, |setup, level| {
        level.chip().set_affinity(level, Target::at(CpuId(0), Vector(0x44))).unwrap();
        assert!(!setup.script.writes().is_empty() && setup.script.is_pushed());
    });
}

/// `check` found this bug: an outdated message of a drive turned a level into an edge, and the pin waited for ever.
#[test]
fn a_plain_level_pin_that_was_taken_for_an_edge_is_told_of_the_end() {
    with_plain_level(0x20, |setup, level| {
        setup.apic.answer(0x819, &[!(1 << 0x11), 1 << 0x11]);
        level.chip().eoi(level);
        assert_eq!((setup.apic.writes(), setup.script.writes()), (vec![(0x80b, 64, 0)], vec![(0x40, 32, 0x31)]));
        level.chip().eoi(level);
        assert_eq!(setup.script.writes(), [], "a level's end comes by itself");
    });
}

#[test]
fn a_level_pin_is_retriggered_at_the_pin_and_an_edge_at_the_local_apic() {
    let (setup, regs) = Setup::new(0x20);
    let hal = HostHal::manual(2);
    let wiring = [LEVEL_LOW, PinWiring::default()];
    let domain = IoApicDomain::new(hal, regs, &wiring, setup.plain(), setup.vectors.clone()).unwrap();
    for (pin, pin_writes, apic_writes) in
        [(0, vec![(0x40, 32, 0x31)], vec![]), (1, vec![], vec![(0x830, 64, 0x2_0000_4031)])]
    {
        let levels = [domain.allocate(&request(pin)).unwrap(), setup.vectors.allocate(&request(pin)).unwrap()];
        let level = Level::new(Irq(0), &levels);
        setup.vectors.activate(&level.parent().unwrap(), TARGET).unwrap();
        domain.activate(&level, TARGET).unwrap();
        setup.script.writes();
        setup.apic.writes();
        assert!(level.chip().retrigger(&level));
        assert_eq!((setup.script.writes(), setup.apic.writes()), (pin_writes, apic_writes));
    }
}

#[test]
fn a_remapped_level_pin_names_its_handle_and_is_told_of_the_end() {
    let (setup, regs) = Setup::new(0x20);
    let hal = HostHal::manual(2);
    let parent = Arc::new(Remapper { parent: setup.vectors.clone(), posted: false });
    let wiring = [LEVEL_LOW; 10];
    let domain = IoApicDomain::new(hal, regs, &wiring, IoApicRoute::Remapped, parent.clone()).unwrap();
    setup.script.writes();
    let levels = [
        domain.allocate(&request(9)).unwrap(),
        parent.allocate(&request(9)).unwrap(),
        setup.vectors.allocate(&request(9)).unwrap(),
    ];
    let level = Level::new(Irq(0), &levels);
    setup.vectors.activate(&level.parent().unwrap().parent().unwrap(), TARGET).unwrap();
    domain.activate(&level, TARGET).unwrap();
    level.chip().unmask(&level);
    let entry = setup.redirections();
    assert_eq!(entry[1], (0x23, 0x0007_0000), "handle 3 in bits 63:49, format in bit 48");
    assert_eq!(entry.last(), Some(&(0x22, 0xa809)), "handle bit 15 in bit 11, and the pin as the vector");
    level.chip().set_affinity(&level, Target::at(CpuId(0), Vector(0x44))).unwrap();
    assert_eq!(setup.script.writes(), [], "the entry stays as it is when the line moves");
    level.chip().eoi(&level);
    assert_eq!(setup.apic.writes(), [(0x80b, 64, 0)]);
    assert_eq!(setup.script.writes(), [(0x40, 32, 9)]);
}

#[test]
fn what_cannot_work_is_refused() {
    let hal = HostHal::manual(2);
    let refused = |version, wiring: &[PinWiring], posted| {
        let (setup, regs) = Setup::new(version);
        let parent = Arc::new(Remapper { parent: setup.vectors.clone(), posted });
        IoApicDomain::new(hal, regs, wiring, IoApicRoute::Remapped, parent).err()
    };
    assert_eq!(refused(0x20, &[LEVEL_LOW; 24], true), Some(IoApicError::PostedParent));
    assert_eq!(refused(0x20, &[LEVEL_LOW; 25], false), Some(IoApicError::Pins(25, 24)));
    assert_eq!(refused(0x11, &[LEVEL_LOW; 24], false), Some(IoApicError::NoEoi(0x11)));
    assert_eq!(refused(0x11, &[PinWiring::default(); 24], false), None);
}
