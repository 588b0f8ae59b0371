//! What a PC's builder refuses, on registers that read as 0: a remapping unit there lacks everything.

use super::Written;
use crate::pc::{Apics, ExtraVector, Fallback, Path, Pc, PcBuilder, PcError, Serving, UnitPolicy};
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use drivers::apic::{ApicError, ApicId, ApicMode};
use drivers::vtd::VtdError;
use hal::host::{HostHal, HostRegs};
use hal::{CpuId, Regs};
use irq::posted::PostedConfig;
use irq::{IrqError, Vector};
use std::sync::Mutex;

fn regs() -> HostRegs {
    HostRegs::new(Arc::new(Written))
}

fn builder(mode: ApicMode, ids: &[u32]) -> PcBuilder<HostHal> {
    let ids = ids.iter().copied().map(ApicId).collect();
    PcBuilder::new(HostHal::manual(2), Apics { regs: regs(), mode, ids, timer_hz: 1_000_000 }, 8)
}

fn build(builder: PcBuilder<HostHal>) -> Result<Pc<HostHal>, PcError> {
    builder.build(|cpus| cpus.start_cpu().map_err(PcError::from))
}

#[test]
fn a_machine_without_a_unit_falls_back_to_plain() {
    let pc = build(builder(ApicMode::X2Apic, &[0, 1])).unwrap();
    let plain = UnitPolicy { path: Path::Plain, fallback: Some(Fallback::NoUnit) };
    assert_eq!(pc.policy().units, [plain]);
    assert!(!pc.policy().is_met());
    assert_eq!(pc.to_string(), "2 CPUs, messages plain, not posted: there is no remapping unit");
    assert!(matches!(pc.pci(1), Err(PcError::NoUnit(1, 1))));
    assert!(pc.interrupts().to_string().contains("PMN:"), "its rows are those of Linux");
}

/// Logs 64-bit writes: (MSR, value). IA32_APIC_BASE (MSR 0x1b) reads as firmware left it: enabled, in xAPIC mode.
#[derive(Default)]
struct Msrs(Mutex<Vec<(u32, u64)>>);

impl Regs for Msrs {
    fn read32(&self, _offset: u32) -> u32 {
        0
    }
    fn write32(&self, _offset: u32, _value: u32) {}
    fn read64(&self, offset: u32) -> u64 {
        if offset == 0x1b { 0xfee0_0800 } else { 0 }
    }
    fn write64(&self, offset: u32, value: u64) {
        self.0.lock().unwrap().push((offset, value));
    }
}

/// SDM vol. 3, "x2APIC States": software sets EN (bit 11) and EXTD (bit 10) of IA32_APIC_BASE before it accesses any
/// x2APIC register.
#[test]
fn a_cpu_left_in_xapic_mode_switches_before_its_apic_is_enabled() {
    let msrs = Arc::new(Msrs::default());
    let ids = [0, 1].map(ApicId).into();
    let apics = Apics { regs: HostRegs::new(msrs.clone()), mode: ApicMode::X2Apic, ids, timer_hz: 1_000_000 };
    let builder = PcBuilder::new(HostHal::manual(2), apics, 8);
    build(builder.switch_to_x2apic()).unwrap();
    assert_eq!(msrs.0.lock().unwrap()[..4], [(0x1b, 0xfee0_0800), (0x1b, 0xfee0_0c00), (0x808, 0), (0x80f, 0x1ff)]);
}

#[test]
fn a_unit_that_cannot_remap_is_left_alone() {
    let pc = build(builder(ApicMode::X2Apic, &[0, 1]).unit(regs()).wish(Path::Remapped)).unwrap();
    let UnitPolicy { path, fallback } = pc.policy().units[0];
    assert_eq!(path, Path::Plain);
    assert!(matches!(fallback, Some(Fallback::Remapping(VtdError::Missing(_)))), "{fallback:?}");
    assert!(pc.units()[0].remapping().is_none());
}

#[test]
fn what_is_demanded_is_not_replaced() {
    let refused = build(builder(ApicMode::X2Apic, &[0, 1]).demand(Path::Posted));
    assert_eq!(refused.err(), Some(PcError::Fallback(0, Fallback::NoUnit)));
}

#[test]
fn the_cpus_of_another_system_are_not_online() {
    let pc = build(builder(ApicMode::X2Apic, &[0, 1]).only_cpus(1..2)).unwrap();
    let foreign = IrqError::Cpu(CpuId(0), "does not belong to this system");
    assert_eq!(pc.core().cpu_online(CpuId(0)), Err(foreign));
    let last = pc.core().hal().on_cpu(CpuId(1), || pc.core().cpu_offline());
    assert_eq!(last, Err(IrqError::Cpu(CpuId(1), "is the last one online")));
}

#[test]
fn a_builder_says_what_is_wrong() {
    let refused = |builder: PcBuilder<HostHal>| build(builder).err().unwrap();
    assert_eq!(refused(builder(ApicMode::X2Apic, &[])), PcError::Cpus(0, 0));
    assert_eq!(refused(builder(ApicMode::X2Apic, &[0, 1]).only_cpus(1..3)), PcError::Cpus(3, 2));
    let apic = ApicError::Id(CpuId(1), ApicId(0x100));
    assert_eq!(refused(builder(ApicMode::XApic, &[0, 0x100])), PcError::Apic(apic));
    let limited = builder(ApicMode::XApic, &[0, 1]).notifications(PostedConfig::default(), Serving::Within(1_000));
    assert_eq!(refused(limited), PcError::Serving(ApicMode::XApic));
    let extra = |vector| ExtraVector { vector, abbreviation: "X", description: "x", run: Arc::new(|| ()) };
    let twice = builder(ApicMode::X2Apic, &[0, 1]).vector(extra(PostedConfig::default().notification_vector));
    assert_eq!(refused(twice), PcError::Notification(Vector(0xeb)));
    let device = builder(ApicMode::X2Apic, &[0, 1]).vector(extra(Vector(0x30)));
    assert!(refused(device).to_string().contains("0x30"));
}
