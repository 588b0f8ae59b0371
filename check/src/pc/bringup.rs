//! What bring-up wrote once, and what everything later depends on: the remapping unit, the pins that nobody uses, the
//! controllers of drives. The expected words are composed here, from the manuals.

use super::beliefs::{When, composed, is_xapic};
use super::drive::Drive;
use super::stack::PcStack;
use crate::checkers::beliefs::Comparison;
use crate::server::WIRE_PIN;
use drivers::nvme;
use hal::CpuId;
use irq::Belief;
use machine::fabric::ioapic::IoApic;
use machine::fabric::vtd::VtdUnit;
use machine::inspect;
use machine::nvme::Nvme;
use std::sync::atomic::Ordering::Relaxed;

/// Registers of a remapping unit (VT-d, "Global Status Register", "Fault Status Register", "Fault Event Control Register",
/// "Invalidation Queue Address Register", "Interrupt Remapping Table Address Register").
const GSTS: u32 = 0x1c;
const FSTS: u32 = 0x34;
const FECTL: u32 = 0x38;
const IQA: u32 = 0x90;
const IRTA: u32 = 0xb8;
/// QIES, IRES and IRTPS; translation is off, and so is the compatibility format.
const REMAPS: u32 = 1 << 26 | 1 << 25 | 1 << 24;
/// Of IRTA: 2^(9+1) entries; and EIME, which x2APIC mode needs.
const TABLE: u32 = 9;
const EXTENDED: u32 = 1 << 11;
/// PFO, PPF, IQE, ICE and ITE. The unit sends no other event before all are clear.
const FAULTS_WAIT: u32 = 0b111_0011;
/// A redirection entry that is masked and nothing else (82093AA, "I/O Redirection Table Registers").
const MASKED: u64 = 1 << 16;
/// Pins of the I/O APIC.
const PINS: u8 = 8;
/// Registers of a controller (NVMe Base, "Controller Configuration", "Controller Status", "Admin Queue Attributes").
const CC: u32 = 0x14;
const CSTS: u32 = 0x1c;
const AQA: u32 = 0x24;
/// Enabled, NVM command set, pages of 4 KiB, submission entries of 2^6 bytes, completion entries of 2^4.
const ENABLED: u32 = 4 << 20 | 6 << 16 | 1;

/// Compares it.
pub(super) fn compare(stack: &PcStack, when: When, now: &mut Comparison) {
    if stack.host.unit().is_some() {
        let held = |offset| held(stack, offset);
        now.same("status of remapping unit", GSTS.into(), REMAPS, held(GSTS));
        let table = TABLE | if is_xapic(CpuId(0)) { 0 } else { EXTENDED };
        now.same("size and mode of remapping table", IRTA.into(), table, held(IRTA) & 0xfff);
        now.same("size and width of invalidation queue", IQA.into(), 0_u8, held(IQA) & 0xfff);
        if when == When::AtRest {
            now.same("faults that wait in the remapping unit", FSTS.into(), 0_u8, held(FSTS) & FAULTS_WAIT);
            let recorded = inspect(stack.host.models.iommu, |unit: &VtdUnit, _| unit.faults_recorded());
            now.same("faults reported", FSTS.into(), stack.host.faults().len() as u64, recorded.unwrap_or(0));
        }
    }
    for pin in (0..PINS).filter(|&pin| pin != WIRE_PIN) {
        let entry = inspect(stack.host.models.ioapic, |io_apic: &IoApic, _| io_apic.redirection(pin)).flatten();
        let entry = entry.map_or(0, |entry| entry.into_bits());
        now.same("redirection entry of unused pin", pin.into(), MASKED, entry);
    }
    // A controller that fails or is reset is not as its driver left it.
    if when == When::AtRest {
        stack.drives.iter().for_each(|drive| controller(drive, now));
    }
}

fn held(stack: &PcStack, offset: u32) -> u32 {
    inspect(stack.host.models.iommu, |unit: &VtdUnit, _| unit.held(offset)).unwrap_or(u32::MAX)
}

/// The unit's own interrupt: control, data and address of the fault event.
pub(super) fn fault_event(stack: &PcStack, belief: &Belief<'_>, now: &mut Comparison) {
    now.arrived(stack.host.models.iommu);
    let [control, data, address, upper] = [0, 4, 8, 12].map(|part| held(stack, FECTL + part));
    now.same("mask of fault event", FECTL.into(), belief.masked, control >> 31);
    // VT-d, "Fault Event Control Register": the driver reads mask and address back.
    now.promised("mask of fault event", FECTL.into(), !belief.masked || control >> 31 != 0);
    if let Some((wanted, payload)) = composed(belief, None) {
        let address = u64::from(upper) << 32 | u64::from(address);
        now.promised("message of fault event", FECTL.into(), (wanted, payload) == (address, data));
        now.same("address of fault event", FECTL.into(), wanted, address);
        now.same("data of fault event", FECTL.into(), payload, data);
    }
}

fn controller(drive: &Drive, now: &mut Comparison) {
    if drive.controller().is_none() || !drive.present.load(Relaxed) {
        return;
    }
    let held = |offset| inspect(drive.model, |drive: &Nvme, _| drive.held(offset)).unwrap_or(u32::MAX);
    let (which, last) = (drive.index.into(), u32::from(nvme::Config::default().admin_entries) - 1);
    now.same("configuration of controller", which, ENABLED, held(CC));
    now.same("readiness of controller", which, 1_u8, held(CSTS) & 0b11);
    now.same("sizes of admin queues", which, last << 16 | last, held(AQA));
}
