mod delivery;
mod unit;

use super::*;
use crate::apic::{ApicId, ApicMode, Lapic, VectorDomain};
use crate::message::{MessageDomain, MessageSource as _};
use crate::testing::Script;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use hal::host::HostHal;
use hal::{CpuId, CpuSet, DeviceAddress, Dma, Hal, Word};
use irq::posted::{PostedConfig, PostedMsi};
use irq::{
    AllocRequest, DeliveryKind, Irq, IrqDomain, IrqError, Level, LevelData, MsiMessage, RequesterId, Target, Vector,
};
use spec::vtd::registers::QueueErrorInfo;
use unit::{EXTENDED, POSTING, Trouble, Unit};

const CONFIG: RemapConfig = RemapConfig { table_entries: 256, apic_mode: ApicMode::X2Apic };
const A: Target = Target::at(CpuId(0), Vector(0x41));
const B: Target = Target::at(CpuId(1), Vector(0x52));

struct Setup {
    device: Arc<Unit>,
    apic: Arc<Script>,
    unit: Arc<RemapUnit<HostHal>>,
    vectors: Arc<VectorDomain<HostHal>>,
    lapic: Arc<Lapic<HostHal>>,
    posted: Arc<PostedMsi<HostHal>>,
    hal: HostHal,
}

impl Setup {
    fn new(capability: u64) -> Self {
        let hal = HostHal::manual(2);
        let (device, regs) = Unit::new(hal, capability, EXTENDED);
        let unit = Arc::new(RemapUnit::new(hal, regs, CONFIG).unwrap());
        let (apic, regs) = Script::new();
        let lapic = Arc::new(Lapic::new(hal, regs, ApicMode::X2Apic, vec![ApicId(7), ApicId(0x123)]).unwrap());
        let posted = Arc::new(PostedMsi::new(hal, PostedConfig::default(), &[7, 0x123]).unwrap());
        let vectors = Arc::new(VectorDomain::new(hal, lapic.clone()));
        device.state.lock().unwrap().invalidated.clear();
        device.state.lock().unwrap().event.clear();
        Self { device, apic, unit, vectors, lapic, posted, hal }
    }

    fn remapped(&self) -> RemapDomain<HostHal> {
        RemapDomain::remapped(self.unit.clone(), self.lapic.clone(), self.vectors.clone())
    }

    fn posted(&self) -> RemapDomain<HostHal> {
        let posted = self.posted.clone();
        RemapDomain::posted(self.unit.clone(), self.lapic.clone(), self.vectors.clone(), posted).unwrap()
    }

    /// A line of requester 3a:00.0 on `domain`, delivered to `target`.
    fn line(&self, domain: &RemapDomain<HostHal>, delivery: DeliveryKind, target: Target) -> Vec<LevelData> {
        let request = request(delivery);
        let vector = self.vectors.allocate(&request).unwrap();
        let levels = vec![domain.allocate(&request).unwrap(), vector];
        domain.activate(&Level::new(Irq(0), &levels), target).unwrap();
        levels
    }

    /// The posted entry for `target`, by the words of the manual's figure.
    fn posted_words(&self, target: Target) -> [u64; 2] {
        let DeviceAddress(descriptor) = self.posted.descriptor_address(target.cpu).unwrap();
        let low = (descriptor & 0xffff_ffc0) << 32 | u64::from(target.vector().unwrap().0) << 16 | 0x8001;
        [low, descriptor >> 32 << 32 | 0x4_3a00]
    }

    fn invalidated(&self) -> Vec<u64> {
        core::mem::take(&mut self.device.state.lock().unwrap().invalidated)
    }
}

fn request(delivery: DeliveryKind) -> AllocRequest {
    AllocRequest { requester: RequesterId(0x3a00), index: 0, affinity: CpuSet::first(2), managed: false, delivery }
}

#[test]
fn set_up_gives_each_command_by_itself() {
    let setup = Setup::new(POSTING);
    let state = setup.device.state.lock().unwrap();
    let (qie, ire, sirtp) = (1 << 26, 1 << 25, 1 << 24);
    assert_eq!(state.commands, [qie, qie | sirtp, qie | ire], "SIRTP is not given twice");
    assert_eq!(state.table & 0xfff, 0x807, "256 entries, extended mode");
    assert_eq!(state.queue & 0xfff, 0, "one page of 128-bit descriptors");
    assert!(state.table >> 12 != 0 && state.queue >> 12 != 0);
}

#[test]
fn what_firmware_left_on_is_turned_off_first() {
    let hal = HostHal::manual(1);
    let (device, regs) = Unit::new(hal, 0, EXTENDED);
    let (qie, ire, sirtp, cfi) = (1 << 26, 1 << 25, 1 << 24, 1 << 23);
    device.state.lock().unwrap().status = qie | ire | sirtp | cfi;
    RemapUnit::new(hal, regs, CONFIG).unwrap();
    let commands = device.state.lock().unwrap().commands.clone();
    assert_eq!(commands, [qie | cfi, cfi, qie | cfi, qie | cfi | sirtp, qie, qie | ire]);
}

#[test]
fn a_unit_that_lacks_something_is_refused_by_name() {
    let hal = HostHal::manual(1);
    for (extended, name) in [(0x12, "ECAP.IR"), (0x18, "ECAP.QI"), (0x0a, "ECAP.EIM")] {
        let refused = RemapUnit::new(hal, Unit::new(hal, 0, extended).1, CONFIG).err();
        assert!(matches!(refused, Some(VtdError::Missing(missing)) if missing.contains(name)), "{refused:?}");
    }
    let refused = RemapUnit::new(hal, Unit::new(hal, 0, EXTENDED).1, RemapConfig { table_entries: 300, ..CONFIG });
    assert_eq!(refused.err(), Some(VtdError::TableEntries(300)));
}

/// Defect: the memory was freed while the unit still had its addresses.
#[test]
fn a_failed_set_up_frees_only_what_the_unit_no_longer_uses() {
    let (qie, sirtp) = (1 << 26, 1 << 24);
    for (stuck, is_kept) in [(0, false), (qie, true)] {
        let hal = HostHal::manual(1);
        let (device, regs) = Unit::new(hal, 0, EXTENDED);
        (device.state.lock().unwrap().trouble, device.state.lock().unwrap().stuck) = (Some(Trouble::Dead), stuck);
        let refused = RemapUnit::new(hal, regs, CONFIG).err();
        assert_eq!(refused, Some(VtdError::Queue(QueueFault::Timeout(10_000_000))), "the first error");
        let state = device.state.lock().unwrap();
        assert_eq!(state.commands, [qie, qie | sirtp, 0]);
        assert_eq!(state.status & qie, stuck);
        for address in [state.table, state.queue] {
            assert_eq!(hal.dma_at(DeviceAddress(address & !0xfff)).is_some(), is_kept, "stuck: {stuck:#x}");
        }
    }
}

#[test]
fn posted_delivery_is_refused_where_the_unit_cannot_post() {
    let setup = Setup::new(0);
    let refused =
        RemapDomain::posted(setup.unit.clone(), setup.lapic.clone(), setup.vectors.clone(), setup.posted.clone());
    assert_eq!(refused.err(), Some(VtdError::Missing("posted interrupts (CAP.PI, bit 59)")));
}

#[test]
fn a_remapped_line_moves_by_its_entry() {
    let setup = Setup::new(0);
    let levels = setup.line(&setup.remapped(), DeliveryKind::Fixed, A);
    let level = Level::new(Irq(0), &levels);
    assert_eq!(setup.device.entry(0), [0x0000_0007_0041_0001, 0x0004_3a00]);
    assert_eq!(level.chip().compose_message(&level), Ok(MsiMessage { address: 0xfee0_0010, data: 0 }));
    level.chip().set_affinity(&level, B).unwrap();
    assert_eq!(setup.device.entry(0), [0x0000_0123_0052_0001, 0x0004_3a00]);
    assert_eq!(level.chip().compose_message(&level), Ok(MsiMessage { address: 0xfee0_0010, data: 0 }));
    assert_eq!(setup.invalidated(), [0x14, 0x14], "each change is followed by an invalidation of entry 0");
    setup.remapped().release(level.hwirq());
    assert_eq!(setup.device.entry(0), [0, 0]);
}

#[test]
fn remapped_lines_may_be_nmis_and_logical() {
    let setup = Setup::new(0);
    setup.line(&setup.remapped(), DeliveryKind::Nmi, A);
    setup.line(&setup.remapped(), DeliveryKind::Logical, B);
    assert_eq!(setup.device.entry(0)[0], 0x0000_0007_0041_0081);
    assert_eq!(setup.device.entry(1)[0], 0x0012_0008_0052_0005, "cluster 0x12, member 3");
}

#[test]
fn a_posted_line_names_its_cpus_descriptor() {
    let setup = Setup::new(POSTING);
    let levels = setup.line(&setup.posted(), DeliveryKind::Fixed, A);
    let level = Level::new(Irq(0), &levels);
    assert_eq!(setup.device.entry(0), setup.posted_words(A));
    level.chip().set_affinity(&level, B).unwrap();
    assert_eq!(setup.device.entry(0), setup.posted_words(B));
    assert_eq!(setup.invalidated(), [0x14, 0x14]);
}

#[test]
fn what_a_posted_line_cannot_be_is_refused() {
    let setup = Setup::new(POSTING);
    for delivery in [DeliveryKind::Nmi, DeliveryKind::Logical, DeliveryKind::PrivateStack] {
        let refused = setup.posted().allocate(&request(delivery)).err();
        assert!(matches!(refused, Some(IrqError::Undeliverable(_))), "{delivery:?}: {refused:?}");
    }
}

/// Defect: a retriggered vector took no EOI, and blocked itself and all below it on that CPU.
#[test]
fn a_retriggered_posted_line_ends_in_an_eoi_and_a_notified_one_does_not() {
    let setup = Setup::new(POSTING);
    let levels = setup.line(&setup.posted(), DeliveryKind::Fixed, A);
    let level = Level::new(Irq(0), &levels);
    let root = level.parent().unwrap();
    assert!(root.chip().retrigger(&root), "the core finds the operation at the root");
    level.chip().ack(&level);
    assert_eq!(setup.apic.writes(), [(0x83f, 64, 0x41), (0x80b, 64, 0)]);

    setup.posted.descriptor(CpuId(0)).unwrap().post(A.vector().unwrap(), false);
    setup.hal.interrupt(CpuId(0), || {
        setup.posted.handle(|_| level.chip().ack(&level), || setup.lapic.eoi());
    });
    assert_eq!(setup.apic.writes(), [(0x80b, 64, 0)], "one EOI, the notification's");
    setup.hal.on_cpu(CpuId(1), || level.chip().ack(&level));
    assert_eq!(setup.apic.writes(), [(0x80b, 64, 0)], "the handler of another CPU says nothing of this one");
}

#[test]
fn pending_is_the_descriptor_or_the_lapic() {
    let setup = Setup::new(POSTING);
    let levels = setup.line(&setup.posted(), DeliveryKind::Fixed, A);
    let level = Level::new(Irq(0), &levels);
    assert!(!level.chip().is_pending(&level, A));
    setup.posted.descriptor(CpuId(0)).unwrap().post(A.vector().unwrap(), false);
    assert!(level.chip().is_pending(&level, A));
    setup.hal.interrupt(CpuId(0), || _ = setup.posted.handle(|_| (), || ()));
    assert!(!level.chip().is_pending(&level, A));
    setup.apic.answer(0x822, &[1 << 1]);
    assert!(level.chip().is_pending(&level, A), "vector 0x41 in the IRR");
}

const GUEST: GuestPosting =
    GuestPosting { descriptor: DeviceAddress(0x1_2345_67c0), vector: Vector(0x99), urgent: true };
const GUEST_WORDS: [u64; 2] = [0x2345_67c0_0099_c001, 0x0000_0001_0004_3a00];

/// Defects: the host's affinity change overwrote the guest's entry; and the line came back remapped.
#[test]
fn a_line_lent_to_a_guest_stays_lent_and_comes_back_posted() {
    let setup = Setup::new(POSTING);
    let domain = setup.posted();
    let levels = setup.line(&domain, DeliveryKind::Fixed, A);
    let level = Level::new(Irq(0), &levels);
    domain.lend_to_guest(level.hwirq(), GUEST).unwrap();
    assert_eq!(setup.device.entry(0), GUEST_WORDS);
    setup.invalidated();
    level.chip().set_affinity(&level, B).unwrap();
    assert_eq!(setup.device.entry(0), GUEST_WORDS);
    assert_eq!(setup.invalidated(), [], "nothing changed");
    domain.take_back(level.hwirq()).unwrap();
    assert_eq!(setup.device.entry(0), setup.posted_words(B), "posted, and where the host wanted it meanwhile");
}

#[test]
fn a_line_of_a_remapped_domain_comes_back_remapped() {
    let setup = Setup::new(POSTING);
    let domain = setup.remapped();
    let levels = setup.line(&domain, DeliveryKind::Fixed, A);
    let hwirq = Level::new(Irq(0), &levels).hwirq();
    domain.lend_to_guest(hwirq, GUEST).unwrap();
    assert_eq!(setup.device.entry(0), GUEST_WORDS);
    domain.take_back(hwirq).unwrap();
    assert_eq!(setup.device.entry(0), [0x0000_0007_0041_0001, 0x0004_3a00]);
    let crooked = GuestPosting { descriptor: DeviceAddress(0x1020), ..GUEST };
    assert_eq!(domain.lend_to_guest(hwirq, crooked), Err(VtdError::Descriptor(DeviceAddress(0x1020))));
    assert_eq!(domain.take_back(irq::HardwareIrq(77)), Err(VtdError::NoEntry(77)));
}

fn trouble(setup: &Setup, trouble: Trouble) -> Result<(), VtdError> {
    setup.device.state.lock().unwrap().trouble = Some(trouble);
    setup.unit.set_host(0, 0x0000_0123_0052_0001)
}

#[test]
fn a_refused_descriptor_is_an_error_and_the_queue_runs_on() {
    let setup = Setup::new(0);
    let levels = setup.line(&setup.remapped(), DeliveryKind::Fixed, A);
    let refused = trouble(&setup, Trouble::Refuse);
    assert_eq!(refused, Err(VtdError::Queue(QueueFault::Refused(QueueErrorInfo::TYPE))));
    assert_eq!(setup.device.entry(0)[0], 0x0000_0007_0041_0001, "the line stays where it was");
    let level = Level::new(Irq(0), &levels);
    level.chip().set_affinity(&level, B).unwrap();
    assert_eq!(setup.device.entry(0)[0], 0x0000_0123_0052_0001);
}

#[test]
fn a_wait_that_was_not_fetched_is_put_there_again() {
    let setup = Setup::new(0);
    setup.line(&setup.remapped(), DeliveryKind::Fixed, A);
    setup.invalidated();
    let before_ns = setup.hal.now_ns();
    assert_eq!(trouble(&setup, Trouble::RefuseWait), Ok(()));
    assert_eq!(setup.invalidated(), [0x14], "the request was done, once");
    assert!(setup.hal.now_ns() - before_ns < 1_000_000, "no time-out");
}

#[test]
fn an_invalidation_that_a_silent_device_aborted_is_tried_again() {
    let setup = Setup::new(0);
    setup.line(&setup.remapped(), DeliveryKind::Fixed, A);
    setup.invalidated();
    trouble(&setup, Trouble::DeviceSilent).unwrap();
    assert_eq!(setup.invalidated(), [0x14]);
    assert_eq!(setup.device.state.lock().unwrap().faults, 0, "the error was cleared");
}

#[test]
fn a_dead_queue_is_a_timeout_not_a_hang() {
    let setup = Setup::new(0);
    setup.line(&setup.remapped(), DeliveryKind::Fixed, A);
    let dead = VtdError::Queue(QueueFault::Timeout(10_000_000));
    let before_ns = setup.hal.now_ns();
    assert_eq!(trouble(&setup, Trouble::Dead), Err(dead));
    assert!(setup.hal.now_ns() - before_ns < 100_000_000);
}

/// VT-d, "Global Command Register", QIE: disabled only while the queue is empty. GSTS: IRES bit 25, QIES bit 26.
#[test]
fn a_unit_is_shut_down_once_its_queue_is_empty() {
    let setup = Setup::new(0);
    let levels = setup.line(&setup.remapped(), DeliveryKind::Fixed, A);
    setup.device.state.lock().unwrap().trouble = Some(Trouble::Dead);
    setup.remapped().release(levels[0].hwirq);
    let is_on = || setup.device.state.lock().unwrap().status & 0x0600_0000;
    assert_eq!(setup.unit.shut_down(), Err(VtdError::Queue(QueueFault::Timeout(10_000_000))));
    assert_eq!(is_on(), 0x0600_0000);
    setup.device.recover();
    assert_eq!((setup.unit.shut_down(), is_on()), (Ok(()), 0));
}

#[test]
fn an_entry_the_unit_may_remember_is_not_used_again() {
    let setup = Setup::new(0);
    let levels = setup.line(&setup.remapped(), DeliveryKind::Fixed, A);
    setup.device.state.lock().unwrap().trouble = Some(Trouble::Dead);
    setup.remapped().release(levels[0].hwirq);
    setup.device.state.lock().unwrap().trouble = None;
    assert_eq!(setup.device.entry(0), [0, 0]);
    assert_eq!(setup.unit.allocate(RequesterId(0)), Ok(1));
}

/// `check` found it: a freed entry was used from the cache for ever, for its invalidation had failed once.
#[test]
fn what_the_unit_may_remember_it_is_told_to_forget_until_it_does() {
    let setup = Setup::new(0);
    let levels = setup.line(&setup.remapped(), DeliveryKind::Fixed, A);
    setup.invalidated();
    setup.device.state.lock().unwrap().trouble = Some(Trouble::Refuse);
    setup.remapped().release(levels[0].hwirq);
    assert_eq!(setup.unit.set_guest(0, Some(1)), Err(VtdError::NoEntry(0)), "it is no line's");
    setup.device.state.lock().unwrap().trouble = Some(Trouble::Refuse);
    assert!(!setup.remapped().settles(levels[0].hwirq));
    assert_eq!(setup.unit.allocate(RequesterId(0)), Ok(1));
    assert_eq!(setup.invalidated(), []);
    assert!(setup.remapped().settles(levels[0].hwirq));
    assert_eq!(setup.invalidated(), [0x14]);
    assert_eq!(setup.unit.allocate(RequesterId(0)), Ok(0), "and it is used again");
}

#[test]
fn an_inactive_line_delivers_nothing_until_it_is_pointed_somewhere() {
    let setup = Setup::new(POSTING);
    let domain = setup.posted();
    for (entry, domain) in [&setup.remapped(), &domain].into_iter().enumerate() {
        let levels = setup.line(domain, DeliveryKind::Fixed, A);
        let level = Level::new(Irq(0), &levels);
        let active = setup.device.entry(entry as u64);
        domain.deactivate(level.hwirq()).unwrap();
        assert_eq!(setup.device.entry(entry as u64), [0, 0]);
        level.chip().set_affinity(&level, A).unwrap();
        assert_eq!(setup.device.entry(entry as u64), active);
    }
    // A guest's CPUs are not the host's.
    domain.lend_to_guest(irq::HardwareIrq(1), GUEST).unwrap();
    setup.unit.set_host(1, 0).unwrap();
    assert_eq!(setup.device.entry(1), GUEST_WORDS);
}

#[test]
fn an_entry_written_by_somebody_else_is_noticed() {
    let setup = Setup::new(POSTING);
    let levels = setup.line(&setup.posted(), DeliveryKind::Fixed, A);
    let table = setup.device.state.lock().unwrap().table & !0xfff;
    setup.hal.dma_at(DeviceAddress(table)).unwrap().words()[0].set(0);
    let level = Level::new(Irq(0), &levels);
    assert!(level.chip().set_affinity(&level, B).is_err());
    assert_eq!(setup.device.entry(0)[0], 0);
}

#[test]
fn a_full_table_says_how_full() {
    let hal = HostHal::manual(1);
    let (_, regs) = Unit::new(hal, 0, EXTENDED);
    let unit = RemapUnit::new(hal, regs, RemapConfig { table_entries: 2, ..CONFIG }).unwrap();
    assert_eq!([unit.allocate(RequesterId(1)), unit.allocate(RequesterId(2))], [Ok(0), Ok(1)]);
    assert_eq!(unit.allocate(RequesterId(3)), Err(VtdError::TableFull(2)));
}

#[test]
fn faults_are_read_from_the_first_and_cleared() {
    let setup = Setup::new(0);
    setup.device.state.lock().unwrap().records =
        [[0x0005_0000_0000_0000, 0x8000_0022_0000_3a00], [0x0017_0000_0000_0000, 0x8000_0026_0000_3a08]];
    setup.device.state.lock().unwrap().faults = 1;
    let mut faults = Vec::new();
    let taken = setup.unit.take_faults(|fault| faults.push(alloc::format!("{fault}")));
    assert_eq!(
        faults,
        [
            "interrupt of 3a:01.0 to entry 23 blocked: wrong requester",
            "interrupt of 3a:00.0 to entry 5 blocked: entry not present"
        ]
    );
    assert_eq!(taken, FaultsTaken { lost: true, pending: false });
    assert_eq!(setup.unit.take_faults(|_| panic!("all were cleared")), FaultsTaken { lost: false, pending: false });
}

/// Defect: an overflow without a record stood for ever, and held back every event.
#[test]
fn an_overflow_without_a_record_is_cleared() {
    let setup = Setup::new(0);
    setup.device.state.lock().unwrap().faults = 1;
    let taken = setup.unit.take_faults(|_| panic!("none is recorded"));
    assert_eq!(taken, FaultsTaken { lost: true, pending: false });
    assert_eq!(setup.device.state.lock().unwrap().faults, 0);
}

/// Defect: the first invalidation saw an error of an earlier kernel's queue, and the set-up failed.
#[test]
fn old_faults_do_not_fail_the_set_up() {
    // PFO, AFO, APF, IQE, ICE, ITE, DEP.
    for faults in [1 << 0, 1 << 2, 1 << 3, 1 << 4, 1 << 5, 1 << 6, 1 << 7, 0xfd] {
        let hal = HostHal::manual(1);
        let (device, regs) = Unit::new(hal, 0, EXTENDED);
        device.state.lock().unwrap().faults = faults;
        assert_eq!(RemapUnit::new(hal, regs, CONFIG).err(), None, "FSTS {faults:#x}");
        let state = device.state.lock().unwrap();
        assert_eq!((state.faults, &state.event[..]), (0, &[(0x38, 1 << 31)][..]), "masked: its address is another's");
    }
}

/// Defect: an error of the invalidation queue for which nobody waited stood, held back the events of faults, and its handler came again
/// and again. A device can make one at any time.
#[test]
fn errors_for_which_nobody_waits_are_cleared() {
    let setup = Setup::new(POSTING);
    let left = |faults| {
        setup.device.state.lock().unwrap().faults = faults;
        let taken = setup.unit.take_faults(|_| panic!("none is recorded"));
        (taken.pending, setup.device.state.lock().unwrap().faults)
    };
    // IQE, ICE, ITE; all; none.
    assert_eq!([0x10, 0x20, 0x40, 0x70, 0].map(left), [(false, 0); 5]);
}

/// Defect: the posted chip was given to every domain.
#[test]
fn only_pci_messages_are_posted() {
    let setup = Setup::new(POSTING);
    let refused = MessageDomain::new(setup.hal, FaultEvent::new(setup.unit.clone()), Arc::new(setup.posted()));
    assert_eq!(refused.err(), Some(IrqError::Undeliverable("only messages of PCI functions can be posted")));
}

#[test]
fn the_fault_event_is_a_plain_message_to_a_wide_id() {
    let setup = Setup::new(POSTING);
    let domain = MessageDomain::new(setup.hal, FaultEvent::new(setup.unit.clone()), setup.vectors.clone()).unwrap();
    let request = request(DeliveryKind::Fixed);
    let vector = setup.vectors.allocate(&request).unwrap();
    let levels = [domain.allocate(&request).unwrap(), vector];
    let level = Level::new(Irq(0), &levels);
    let root = level.parent().unwrap();
    setup.vectors.activate(&root, B).unwrap();
    domain.activate(&level, B).unwrap();
    assert_eq!(setup.device.state.lock().unwrap().pushed, 3, "the CPU of the earlier message may go offline");
    level.chip().unmask(&level);
    let event = setup.device.state.lock().unwrap().event.clone();
    assert_eq!(event, [(0x3c, 0x52), (0x40, 0xfee2_3000), (0x44, 0x100), (0x38, 0)]);
    assert!(setup.invalidated().is_empty(), "it has no entry in the table");
}

/// Defect: a fault between the two halves of a move sent the new vector to the old CPU. Nobody took it, and the unit sends no
/// other event before its records are clear.
#[test]
fn the_fault_event_moves_under_its_mask() {
    let setup = Setup::new(POSTING);
    let event = FaultEvent::new(setup.unit.clone());
    let written = || core::mem::take(&mut setup.device.state.lock().unwrap().event);
    let message = MsiMessage { address: 0xfee0_0010, data: 0x31 };
    let body = [(0x3c, 0x31), (0x40, 0xfee0_0010), (0x44, 0)];
    event.write(0, message);
    assert_eq!(written(), body, "masked since the reset, and still so");
    event.unmask(0);
    event.write(0, message);
    assert_eq!(written(), [&[(0x38, 0), (0x38, 1 << 31)], &body[..], &[(0x38, 0)]].concat());
}
