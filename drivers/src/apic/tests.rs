use super::*;
use crate::testing::Script;
use alloc::sync::Arc;
use alloc::vec;
use hal::host::HostHal;
use hal::{CpuId, CpuSet};
use irq::{AllocRequest, DeliveryKind, Irq, IrqDomain, IrqError, Level, MsiMessage, RequesterId, Target, Vector};
use spec::apic::TimerDivide;

fn lapic(mode: ApicMode) -> (Arc<Script>, Arc<Lapic<HostHal>>) {
    let (script, regs) = Script::new();
    let ids = vec![ApicId(0), ApicId(2), ApicId(0x25)];
    (script, Arc::new(Lapic::new(HostHal::manual(3), regs, mode, ids).unwrap()))
}

#[test]
fn an_ipi_in_x2apic_mode_is_one_write() {
    let (script, lapic) = lapic(ApicMode::X2Apic);
    lapic.send(CpuId(2), Vector(0xfd)).unwrap();
    lapic.send_self(Vector(0x41)).unwrap();
    lapic.eoi();
    assert_eq!(script.writes(), [(0x830, 64, 0x0000_0025_0000_40fd), (0x83f, 64, 0x41), (0x80b, 64, 0)]);
}

#[test]
fn an_ipi_in_xapic_mode_waits_for_the_last_one() {
    let (script, lapic) = lapic(ApicMode::XApic);
    script.answer(0x300, &[0x1000, 0x1000, 0]);
    lapic.send(CpuId(2), Vector(0xfd)).unwrap();
    assert_eq!(script.writes(), [(0x310, 32, 0x2500_0000), (0x300, 32, 0x40fd)]);
    script.answer(0x300, &[0x1000]);
    assert_eq!(lapic.send(CpuId(1), Vector(0x40)), Err(ApicError::CommandTimeout(1_000_000)));
    assert_eq!(script.writes(), [], "nothing may be written while the last command is pending");
}

#[test]
fn enabling_accepts_all_priorities() {
    let (script, lapic) = lapic(ApicMode::XApic);
    lapic.enable(Vector(0xff));
    assert_eq!(script.writes(), [(0x80, 32, 0), (0xf0, 32, 0x1ff)]);
    script.answer(0x20, &[0x0200_0000]);
    assert_eq!(lapic.read_id(), ApicId(2));
}

#[test]
fn x2apic_mode_is_entered_by_way_of_xapic_mode() {
    let (script, lapic) = lapic(ApicMode::X2Apic);
    script.answer(0x1b, &[0xfee0_0000]);
    lapic.switch_to_x2apic();
    assert_eq!(script.writes(), [(0x1b, 64, 0xfee0_0800), (0x1b, 64, 0xfee0_0c00)]);
}

#[test]
fn the_timer_fires_once() {
    let (script, lapic) = lapic(ApicMode::X2Apic);
    lapic.start_timer(Vector(0xec), TimerDivide::BY_1, 5_000);
    assert_eq!(script.writes(), [(0x83e, 64, 0xb), (0x832, 64, 0xec), (0x838, 64, 5_000)]);
    lapic.stop_timer();
    assert_eq!(script.writes(), [(0x832, 64, 0x1_0000), (0x838, 64, 0)]);
}

#[test]
fn ids_that_xapic_mode_cannot_address_are_refused() {
    let (_, regs) = Script::new();
    let refused = Lapic::new(HostHal::manual(2), regs, ApicMode::XApic, vec![ApicId(0), ApicId(0x100)]);
    assert_eq!(refused.err(), Some(ApicError::Id(CpuId(1), ApicId(0x100))));
    assert_eq!(ApicMode::XApic.destination_field(ApicId(5)), 0x500);
    assert_eq!(ApicMode::X2Apic.destination_field(ApicId(0x123)), 0x123);
}

fn request(delivery: DeliveryKind) -> AllocRequest {
    AllocRequest { requester: RequesterId(0x3a00), index: 0, affinity: CpuSet::first(3), managed: false, delivery }
}

#[test]
fn a_line_composes_retriggers_and_acks() {
    let (script, lapic) = lapic(ApicMode::X2Apic);
    let domain = VectorDomain::new(HostHal::manual(3), lapic);
    let levels = [domain.allocate(&request(DeliveryKind::Fixed)).unwrap()];
    let level = Level::new(Irq(0), &levels);
    assert!(level.chip().compose_message(&level).is_err() && !level.chip().retrigger(&level), "no vector yet");

    domain.activate(&level, Target::at(CpuId(1), Vector(0x31))).unwrap();
    assert_eq!(level.chip().compose_message(&level), Ok(MsiMessage { address: 0xfee0_2000, data: 0x31 }));
    assert!(level.chip().retrigger(&level));
    level.chip().ack(&level);
    assert_eq!(script.writes(), [(0x830, 64, 0x0000_0002_0000_4031), (0x80b, 64, 0)]);

    let nowhere = Target::at(CpuId(7), Vector(0x31));
    assert_eq!(level.chip().set_affinity(&level, nowhere), Err(IrqError::Target("LAPIC", nowhere)));
    assert_eq!(level.chip().compose_message(&level).unwrap().address, 0xfee0_2000, "it stays where it was");
}

#[test]
fn a_request_is_seen_on_its_own_cpu() {
    let (script, lapic) = lapic(ApicMode::X2Apic);
    let domain = VectorDomain::new(HostHal::manual(3), lapic);
    let levels = [domain.allocate(&request(DeliveryKind::Fixed)).unwrap()];
    let level = Level::new(Irq(0), &levels);
    script.answer(0x822, &[1 << 1]);
    let pending = |cpu, vector| level.chip().is_pending(&level, Target::at(CpuId(cpu), Vector(vector)));
    assert!(pending(0, 0x41));
    assert!(!pending(0, 0x42));
    assert!(pending(1, 0x42), "unknown here, so perhaps");
}

#[test]
fn an_nmi_line_says_so_in_its_message() {
    let (_, lapic) = lapic(ApicMode::X2Apic);
    let domain = VectorDomain::new(HostHal::manual(3), lapic);
    let levels = [domain.allocate(&request(DeliveryKind::Nmi)).unwrap()];
    let level = Level::new(Irq(0), &levels);
    domain.activate(&level, Target::at(CpuId(0), Vector(0x31))).unwrap();
    assert_eq!(level.chip().compose_message(&level).unwrap().data, 0x431);
    assert!(!level.chip().retrigger(&level));
}

/// "In-Service Register": 256 bits in eight registers from 810h on.
#[test]
fn what_is_in_service_is_read() {
    let (script, lapic) = lapic(ApicMode::X2Apic);
    script.answer(0x811, &[1 << 0x11]);
    assert!(lapic.is_in_service(Vector(0x31)));
    script.answer(0x811, &[1 << 0x11]);
    assert!(!lapic.is_in_service(Vector(0x30)));
}
