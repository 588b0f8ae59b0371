//! What the core and the drivers of a PC believe, against its hardware. The expected words are composed here, from the
//! manuals.

use super::bringup;
use super::drive::Slot;
use super::stack::PcStack;
use crate::checkers::beliefs::{Comparison, Promises, compare, glance};
use crate::deadlines::check_alarms;
use crate::server::{IOAPIC_REQUESTER, RINGER_REQUESTER, WIRE_PIN, requester};
use drivers::nvme::QueueState;
use hal::{CpuId, Hal as _};
use irq::{Belief, Irq};
use machine::fabric::ioapic::IoApic;
use machine::fabric::vtd::VtdUnit;
use machine::nvme::Nvme;
use machine::{SimHal, inspect, peek_lapic, peek64};
use std::sync::atomic::Ordering::Relaxed;

/// MSR numbers (SDM vol. 3, "x2APIC Register Address Space"). In xAPIC mode the same registers are at `16 * (number - 0x800)` of a
/// page ("Local APIC Register Address Map").
const ID: u32 = 0x802;
const TPR: u32 = 0x808;
const SVR: u32 = 0x80f;
const LVT_TIMER: u32 = 0x832;
const TIMER_CURRENT: u32 = 0x839;
const TIMER_DIVIDE: u32 = 0x83e;
/// The last words of the in-service and of the request register, for vectors E0h to FFh.
const ISR_LAST: u32 = 0x817;
const IRR_LAST: u32 = 0x827;
/// The local timer and the reschedule interrupt, in those words.
const LOOKS: u64 = 1 << (0xec - 0xe0) | 1 << (0xfd - 0xe0);
const LVT_MASKED: u64 = 1 << 16;
/// Bits of a redirection entry that only hardware changes: delivery status and remote IRR (82093AA, "I/O Redirection
/// Table Registers").
const REDIRECTION_STATUS: u64 = 1 << 12 | 1 << 14;

/// Whether a CPU's local APIC is in xAPIC mode: it has no model-specific registers.
pub(super) fn is_xapic(cpu: CpuId) -> bool {
    peek_lapic(cpu.0, ID).is_none()
}

/// A register of a CPU's local APIC, by its MSR number.
fn lapic(cpu: CpuId, msr: u32) -> u64 {
    peek_lapic(cpu.0, if is_xapic(cpu) { (msr - 0x800) * 16 } else { msr }).unwrap_or(u64::MAX)
}

/// The APIC id of a CPU, which need not be its number.
pub(super) fn apic_id(cpu: CpuId) -> u64 {
    lapic(cpu, ID) >> if is_xapic(cpu) { 24 } else { 0 }
}

/// Where an APIC id is in the field that names a CPU in a remapping entry (DST) and in a posted descriptor (NDST): 32 bits, of which
/// xAPIC mode uses 15:8 (VT-d, "Interrupt Remapping Table Entry (IRTE) for Remapped Interrupts", "Posted Interrupt Descriptor (PID)").
pub(super) fn destination_shift() -> u32 {
    if is_xapic(CpuId(0)) { 8 } else { 0 }
}

fn destination(cpu: CpuId) -> u64 {
    apic_id(cpu) << destination_shift()
}

/// The fields of an entry that tell whose messages it takes (VT-d, "Source-ID Validation": SID, SQ, SVT).
const SOURCE: u128 = 0xf_ffff << 64;

/// How much is on its way.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// After an operation of a manager: there is load, and other managers work.
    Loaded,
    /// Nothing is under way.
    AtRest,
}

/// Looks until everything has agreed.
pub(super) fn check(stack: &PcStack, when: When) {
    compare(promises(stack), |now| {
        lapics(stack, now);
        entries(stack, now);
        bringup::compare(stack, when, now);
        lines(stack, when, now);
        if let Some(accelerator) = &stack.accelerator {
            accelerator.compare(now);
        }
        stack.poster.iter().for_each(|poster| poster.compare(&stack.host, now));
        stack.slots.iter().for_each(|slot| queue(stack, slot, when, now));
    });
    let host = &stack.host;
    check_alarms(host.core(), host.cpus(), host.alarm_ns_max, |cpu| looks_ns(stack, cpu));
}

/// An operation has just returned: what it promised holds.
pub(super) fn check_promises(stack: &PcStack) {
    glance(promises(stack), |now| lines(stack, When::Loaded, now));
}

fn promises(stack: &PcStack) -> Promises {
    Promises::under_faults(stack.promises.faulty)
}

/// Task priority 0, enabled with spurious vector ffh; the timer is masked, or one-shot at its vector, undivided.
fn lapics(stack: &PcStack, now: &mut Comparison) {
    for cpu in 0..stack.host.cpus() {
        let read = |register| lapic(CpuId(cpu), register);
        now.same("task priority of CPU", cpu.into(), 0_u8, read(TPR));
        now.same("spurious-interrupt vector register of CPU", cpu.into(), 0x1ff_u32, read(SVR));
        let timer = read(LVT_TIMER);
        if timer & LVT_MASKED == 0 {
            now.same("LVT timer entry of CPU", cpu.into(), 0xec_u8, timer);
            now.same("timer divider of CPU", cpu.into(), 0b1011_u8, read(TIMER_DIVIDE));
        }
        if let Some(address) = stack.host.pc.posted().and_then(|posted| posted.descriptor_address(CpuId(cpu))) {
            // VT-d, "Posted Interrupt Descriptor (PID)": SN 257, NV 279:272, NDST 319:288.
            let control = peek64(address.0 + 32).unwrap_or(0);
            let expected = destination(CpuId(cpu)) << 32 | 0xeb << 16;
            now.same("posted descriptor of CPU", cpu.into(), expected, control & !1);
        }
    }
}

/// When a CPU's timer will interrupt it; 0 if it looks after its lines anyway. A CPU that goes or comes tells the others of their
/// deadlines when it is through with all lines.
fn looks_ns(stack: &PcStack, cpu: CpuId) -> Option<u64> {
    let tells_later = (0..stack.host.cpus()).any(|other| stack.host.is_away(CpuId(other)));
    if tells_later || (lapic(cpu, IRR_LAST) | lapic(cpu, ISR_LAST)) & LOOKS != 0 {
        return Some(0);
    }
    // A tick of the timers is 1 ns here.
    let left_ns = lapic(cpu, TIMER_CURRENT);
    let is_armed = lapic(cpu, LVT_TIMER) & LVT_MASKED == 0 && left_ns > 0;
    is_armed.then(|| SimHal.now_ns() + left_ns)
}

fn table_entry(stack: &PcStack, index: u64) -> u128 {
    let table = inspect(stack.host.models.iommu, |unit: &VtdUnit, _| unit.table_address()).unwrap_or(0);
    let word = |half: u64| u128::from(peek64(table + 16 * index + 8 * half).unwrap_or(u64::MAX));
    word(1) << 64 | word(0)
}

/// The table has what the driver wrote; the unit remembers nothing older, unless an invalidation failed.
fn entries(stack: &PcStack, now: &mut Comparison) {
    let Some(unit) = stack.host.unit() else { return };
    unit.for_each_belief(|index, belief| {
        now.same("entry of the remapping table", index.into(), belief.written, table_entry(stack, index.into()));
        let cached = inspect(stack.host.models.iommu, |unit: &VtdUnit, _| unit.cached_entry(index)).flatten();
        if let Some(cached) = cached.filter(|_| !belief.owed) {
            now.same("cached entry of the remapping table", index.into(), belief.written, cached);
        }
    });
}

fn lines(stack: &PcStack, when: When, now: &mut Comparison) {
    let bound = |irq: Irq| stack.slots.iter().find(|slot| slot.bound().is_some_and(|bound| bound.line == irq));
    stack.host.core().for_each_belief(|belief| {
        let mut levels = belief.levels();
        let (Some((chip, number)), next) = (levels.next(), levels.next()) else { return };
        let handle = next.filter(|(chip, _)| chip.starts_with("INTEL-IR")).map(|(_, handle)| handle.0);
        let source = match chip {
            "PCI-MSIX" => match bound(belief.irq) {
                Some(slot) => Some(requester(stack.drive_of(slot).index)),
                None => stack.accelerator.as_ref().and_then(|accelerator| accelerator.requester_of(belief.irq)),
            },
            "IO-APIC" | "IR-IO-APIC" => Some(IOAPIC_REQUESTER),
            "HPET-MSI" => stack.timers.as_ref().and_then(|timers| timers.requester_of(belief.irq)),
            _ if belief.irq == stack.ring_line => Some(RINGER_REQUESTER),
            _ => None,
        };
        if let Some(handle) = handle.filter(|_| belief.deactivated) {
            // A guest keeps the entry that it was lent.
            let lent = stack.host.unit().and_then(|unit| unit.belief(handle)).filter(|entry| entry.is_lent);
            let host = lent.map_or_else(|| table_entry(stack, handle), |entry| entry.host);
            now.same("entry of line without CPUs", handle, 0_u8, host);
        }
        if let (Some(handle), Some(source), false) = (handle, source, belief.shutdown) {
            let is_posted = next.is_some_and(|(chip, _)| chip == "INTEL-IR-POST");
            entry(stack, belief, (handle, is_posted), source, now);
        }
        match (chip, bound(belief.irq)) {
            ("PCI-MSIX", Some(slot)) if is_known(stack, slot, when) => {
                let (drive, vector) = (stack.drive_of(slot), number.0 as u16);
                now.arrived(drive.model);
                // It may have been pulled out meanwhile, and what was on its way with it.
                if !is_known(stack, slot, when) {
                    return;
                }
                let held = inspect(drive.model, |drive: &Nvme, _| drive.msix_entry(vector)).flatten();
                message(belief, u64::from(drive.index) << 16 | u64::from(vector), held, handle, now);
            }
            ("PCI-MSIX", None) => {
                if let Some(accelerator) = &stack.accelerator {
                    accelerator.compare_message(belief, handle, now);
                }
                stack.poster.iter().for_each(|poster| poster.compare_line(belief, now));
            }
            _ if stack.host.fault_line() == Some(belief.irq) => bringup::fault_event(stack, belief, now),
            ("HPET-MSI", _) => stack.timers.iter().for_each(|timers| timers.compare(belief, handle, now)),
            ("IO-APIC" | "IR-IO-APIC", _) => pin(stack, belief, handle, now),
            _ => {}
        }
    });
}

/// The registers of a slot's drive can be compared: it is there, and takes up what is written to it.
fn is_known(stack: &PcStack, slot: &Slot, when: When) -> bool {
    stack.drive_of(slot).present.load(Relaxed) && (when == When::AtRest || !stack.promises.mute)
}

/// VT-d, "Interrupt Remapping Table Entry (IRTE)", both formats: present, fixed and physical, edge, for one requester.
fn entry(stack: &PcStack, belief: &Belief<'_>, (index, is_posted): (u64, bool), source: u16, now: &mut Comparison) {
    let Some((cpu, vector)) = belief.target.and_then(|target| Some((target.cpu, target.vector()?))) else { return };
    let common = 1 | u128::from(vector.0) << 16 | u128::from(source) << 64 | 1 << 82;
    let wanted = if is_posted {
        let posted = stack.host.pc.posted().and_then(|posted| posted.descriptor_address(cpu));
        let address = u128::from(posted.map_or(0, |address| address.0));
        common | 1 << 15 | u128::from(address as u32) >> 6 << 38 | address >> 32 << 96
    } else {
        common | u128::from(destination(cpu)) << 32
    };
    // A guest has the entry itself: the table gets the host's when the guest gives it back.
    match stack.host.unit().and_then(|unit| unit.belief(index)) {
        Some(lent) if lent.is_lent => now.same("host's target of lent entry", index, wanted & !SOURCE, lent.host),
        _ => now.same("target of remapping entry", index, wanted, table_entry(stack, index)),
    }
}

/// The mask is read back, and so it holds (PCI Express, "Transaction Ordering": a read pushes posted writes). A message is written
/// under the mask, so that an entry which is open has the present one.
///
/// PCI Express, "MSI-X Capability and Table Structures"; SDM vol. 3, "Message Address Register Format"; VT-d,
/// "Interrupt Requests in Remappable Format".
pub(super) fn message(
    belief: &Belief<'_>,
    which: u64,
    held: Option<(u64, u32, bool)>,
    handle: Option<u64>,
    now: &mut Comparison,
) {
    let Some((address, data, masked)) = held else { return };
    now.same("MSI-X mask", which, belief.masked, masked);
    now.promised("MSI-X mask", which, masked || !belief.masked);
    if let Some((wanted, payload)) = composed(belief, handle) {
        now.promised("message of open MSI-X entry", which, masked || (wanted, payload) == (address, data));
        now.same("MSI-X address", which, wanted, address);
        now.same("MSI-X data", which, payload, data);
    }
}

/// The message that a line's device must send, where that is known.
pub(super) fn composed(belief: &Belief<'_>, handle: Option<u64>) -> Option<(u64, u32)> {
    match (handle, belief.target) {
        // A managed line may begin its life without a CPU: no message is written before one comes.
        _ if belief.shutdown => None,
        (Some(handle), _) => Some((0xfee0_0010 | (handle & 0x7fff) << 5 | handle >> 15 << 2, 0)),
        (None, Some(target)) => {
            target.vector().map(|vector| (0xfee0_0000 | apic_id(target.cpu) << 12, u32::from(vector.0)))
        }
        (None, None) => None,
    }
}

/// The register window is read after a change: the pin is masked, or sends as the entry says.
///
/// 82093AA, "I/O Redirection Table Registers"; VT-d, "I/OxAPIC Programming".
fn pin(stack: &PcStack, belief: &Belief<'_>, handle: Option<u64>, now: &mut Comparison) {
    now.arrived(stack.host.models.ioapic);
    let held = inspect(stack.host.models.ioapic, |io_apic: &IoApic, _| io_apic.redirection(WIRE_PIN)).flatten();
    let held = held.map_or(0, |entry| entry.into_bits()) & !REDIRECTION_STATUS;
    let (level, masked) = (1 << 15, u64::from(belief.masked) << 16);
    let target = belief.target.and_then(|target| Some((target.cpu, target.vector()?)));
    let expected = match (handle, target) {
        (Some(handle), _) => Some(u64::from(WIRE_PIN) | handle >> 15 << 11 | 1 << 48 | (handle & 0x7fff) << 49),
        (None, Some((cpu, vector))) => Some(u64::from(vector.0) | apic_id(cpu) << 56),
        (None, None) => None,
    };
    let is_masked = held >> 16 & 1 != 0;
    now.promised("mask of pin", WIRE_PIN.into(), is_masked || !belief.masked);
    if let Some(expected) = expected {
        now.promised("entry of open pin", WIRE_PIN.into(), is_masked || held == expected | level);
        now.same("redirection entry of pin", WIRE_PIN.into(), expected | level | masked, held);
    }
}

/// NVMe Base, "Create I/O Completion Queue command" and "Doorbell registers". What load moves is compared at rest.
fn queue(stack: &PcStack, slot: &Slot, when: When, now: &mut Comparison) {
    let drive = stack.drive_of(slot);
    let (Some(bound), Some(controller)) = (slot.bound(), drive.controller()) else { return };
    // A drive that fails loses its queues before its driver notices.
    if when == When::Loaded && stack.promises.faulty || !drive.present.load(Relaxed) {
        return;
    }
    let queue = bound.pair.snapshot();
    if queue.state != QueueState::Running {
        return;
    }
    let which = u64::from(drive.index) << 16 | u64::from(queue.qid);
    let held = inspect(drive.model, |drive: &Nvme, _| (drive.queue_state(queue.qid), drive.is_coalescing()));
    let Some((Some(held), coalesces)) = held else {
        return now.same("existence of NVMe queue", which, true, false);
    };
    let entries = u64::from(queue.entries);
    now.same("entries of NVMe queue", which, entries << 32 | entries, join(held.entries));
    now.same("vector of NVMe queue", which, queue.vector.map_or(0, |v| v + 1), held.vector.map_or(0, |v| v + 1));
    // The drive has done what a command of another manager asks for before that manager hears of it, and that manager may wait
    // for its CPU longer than all looks take.
    if !stack.promises.faulty && drive.is_settled() {
        now.same("coalescing of drive", drive.index.into(), controller.believes_coalescing(), coalesces);
    }
    if when == When::AtRest {
        now.same("tail of NVMe submission queue", which, queue.sq_tail, held.sq_tail);
        now.same("head of NVMe completion queue", which, queue.cq_head, held.cq_head);
        now.same("next entry of NVMe completion queue", which, queue.cq_head, held.cq_tail);
        now.same("phase of NVMe completion queue", which, queue.phase, held.phase);
    }
}

fn join([high, low]: [u32; 2]) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}
