//! Errors as people read them: each names its numbers, and no two read alike. An error that is passed on to the core stays an
//! error of the same cause.

use crate::draw::Draw;
use crate::trials::same;
use drivers::apic::{ApicError, ApicId};
use drivers::gic::GicError;
use drivers::ioapic::IoApicError;
use drivers::nvme::{DeviceFault, IoError, NvmeError};
use drivers::pci::MsixError;
use drivers::rdma::RdmaError;
use drivers::virtio::block::BlockError;
use drivers::virtio::{Refusal, VirtioError};
use drivers::vtd::{QueueFault, VtdError};
use drivers::{dsa, nvme, rdma};
use hal::{CpuId, DeviceAddress, DmaError};
use irq::moderation::{Sample, Setting};
use irq::{IrqError, RequesterId};
use spec::gic::IntId;
use spec::nvme::AdminOpcode;
use spec::virtio::DeviceId;
use std::collections::BTreeSet;

/// A text, and what it must name.
type Text = (String, Vec<u64>);

fn of(error: impl ToString, names: &[u64]) -> Text {
    (error.to_string(), names.to_vec())
}

fn interrupts(a: u32, b: u32) -> Vec<Text> {
    let (x, y, cpu) = (u64::from(a), u64::from(b), CpuId(a));
    vec![
        of(GicError::Revision(a as u8), &[x & 0xff]),
        of(GicError::Cpus(a as usize), &[x]),
        of(GicError::NoRedistributor(cpu, b), &[x, y]),
        of(GicError::NoCpu(cpu), &[x]),
        of(GicError::NoInterface(cpu), &[x]),
        of(GicError::SystemRegisters, &[]),
        of(GicError::Range(cpu), &[x]),
        of(GicError::Timeout("a read", y), &[y]),
        of(GicError::IntId(IntId(a), b), &[x, y - 1]),
        of(GicError::NotSoftware(IntId(a)), &[x]),
        of(GicError::MessageRange(a, 7, b), &[x, 7, y - 1]),
        of(GicError::Missing("ITS"), &[]),
        of(GicError::TooLarge("an id", x, y), &[x, y]),
        of(GicError::LpisEnabled(b), &[y]),
        of(GicError::Stalled(a as u16), &[x]),
        of(ApicError::Id(cpu, ApicId(b)), &[x, y]),
        of(ApicError::Cpu(cpu), &[x]),
        of(ApicError::CommandTimeout(y), &[y]),
        of(IoApicError::PostedParent, &[]),
        of(IoApicError::Pins(a as usize, b as usize), &[x, y]),
        of(IoApicError::NoEoi(a as u8), &[x & 0xff]),
        of(QueueFault::Timeout(x), &[x]),
        of(QueueFault::DeviceTimeout(RequesterId(0x321)), &[]),
        of(QueueFault::WrongAnswer(RequesterId(0x321)), &[]),
        of(VtdError::Missing("posting"), &[]),
        of(VtdError::TableEntries(a), &[x]),
        of(VtdError::CommandTimeout("enable", y), &[y]),
        of(VtdError::TableFull(b), &[y]),
        of(VtdError::NoEntry(x), &[x]),
        of(VtdError::Overwritten(y), &[y]),
        of(VtdError::Descriptor(DeviceAddress(0x40)), &[0x40]),
        of(MsixError::Missing, &[]),
        of(MsixError::Loop, &[]),
        of(MsixError::Cut(a), &[x]),
        of(MsixError::Table(a, b, 9), &[x, y, 9]),
    ]
}

fn devices(a: u32, b: u32) -> Vec<Text> {
    let (x, y, entries) = (u64::from(a), u64::from(b), a as u16);
    vec![
        of(NvmeError::Gone, &[]),
        of(NvmeError::Fatal, &[]),
        of(NvmeError::Busy, &[]),
        of(NvmeError::Stopped, &[]),
        of(NvmeError::PageSize(x), &[x]),
        of(NvmeError::Timeout("a start", y), &[y]),
        of(NvmeError::Lost(AdminOpcode::ABORT, IoError::Shutdown), &[]),
        of(NvmeError::AdminFull(entries), &[x]),
        of(NvmeError::NoNamespace(a, b), &[x, y]),
        of(NvmeError::QueueEntries(entries, b), &[x, y]),
        of(NvmeError::TransferLength(a, b), &[x, y]),
        of(NvmeError::NoQueueLeft(entries), &[x]),
        of(NvmeError::NoQueue(entries), &[x]),
        of(IoError::QueueDeleted, &[]),
        of(IoError::ControllerReset, &[]),
        of(IoError::Shutdown, &[]),
        of(nvme::Refusal::Full, &[]),
        of(nvme::Refusal::Length(a, b), &[x, y]),
        of(nvme::Refusal::TooLong(a, b), &[x, y]),
        of(nvme::Refusal::Range(x, y), &[x, y - 1]),
        of(DeviceFault::UnknownCommand(entries, 8), &[x]),
        of(DeviceFault::NotInFlight(entries), &[x]),
        of(DeviceFault::HeadOutOfRange(entries, b as u16), &[x]),
        of(RdmaError::Gone, &[]),
        of(RdmaError::Identity(a), &[x]),
        of(RdmaError::Timeout(y), &[y]),
        of(RdmaError::Entries(a, b), &[x, y]),
        of(RdmaError::Capacity(a, b), &[x, y]),
        of(RdmaError::Shared, &[]),
        of(RdmaError::Moderation(Setting::new(a, b)), &[x, y]),
        of(rdma::Refusal::Full(a), &[x]),
        of(rdma::Refusal::Length(b), &[y]),
        of(rdma::Refusal::NotConnected, &[]),
        of(dsa::DsaError::Gone, &[]),
        of(dsa::DsaError::Version(a), &[x]),
        of(dsa::DsaError::NoQueue(a as u8), &[x & 0xff]),
        of(dsa::DsaError::TooMany("queues", x, y), &[x, y]),
        of(dsa::TransferError::Closed, &[]),
        of(dsa::TransferError::Aborted, &[]),
        of(dsa::Refusal::Length(a, b), &[x, y]),
        of(VirtioError::Magic(a), &[x]),
        of(VirtioError::Version(b), &[y]),
        of(VirtioError::Device(DeviceId(a), DeviceId(b)), &[x, y]),
        of(VirtioError::ResetTimeout(x), &[x]),
        of(VirtioError::NoQueue(entries), &[x]),
        of(VirtioError::NoVector(Some(entries)), &[x]),
        of(VirtioError::NoVector(None), &[]),
        of(VirtioError::Entries(entries, 8), &[x, 8]),
        of(VirtioError::TooMany("the number of pairs", x, y), &[x, y]),
        of(Refusal::Parts(a as usize, b as usize), &[x, y]),
        of(Refusal::Range(x, y), &[x, y]),
        of(BlockError::Short(a), &[x]),
        of(BlockError::QueueReset, &[]),
        of(
            Sample { completions_per_s: x, events_per_s: y, completions_per_event_x100: 100 * x, ..Sample::default() },
            &[x, y],
        ),
    ]
}

/// Each text names its numbers, in decimal or hexadecimal.
fn named(texts: &[Text]) -> Result<(), String> {
    for (text, names) in texts {
        let lacks = |number: &u64| !text.contains(&number.to_string()) && !text.contains(&format!("{number:x}"));
        if text.len() < 5 || names.iter().any(lacks) {
            return Err(format!("{text:?} does not name {names:?}"));
        }
    }
    let different: BTreeSet<_> = texts.iter().map(|(text, _)| text).collect();
    same("different texts", &texts.len(), &different.len())
}

/// What the core is told.
fn passed_on(a: u32) -> Result<(), String> {
    let gic = |error: GicError| match IrqError::from(error) {
        IrqError::Hardware("GIC", what) => what,
        _ => "another error",
    };
    let parts = [
        (gic(GicError::IntId(IntId(a), a)), "INTID"),
        (gic(GicError::NoCpu(CpuId(a))), "CPU"),
        (gic(GicError::NoInterface(CpuId(a))), "interface"),
        (gic(GicError::Timeout("RWP", 1)), "RWP"),
        (gic(GicError::TooLarge("an event", 1, 1)), "an event"),
        (gic(GicError::Stalled(1)), "ITS"),
        (gic(GicError::Dma(DmaError::Empty)), "memory"),
        (gic(GicError::SystemRegisters), "cannot"),
    ];
    if let Some((what, part)) = parts.iter().find(|(what, part)| !what.contains(part)) {
        return Err(format!("the core is told {what:?} of {part:?}"));
    }
    let full = IrqError::from(VtdError::TableFull(a));
    same("a full table", &IrqError::Exhausted("entries of the remapping table", a), &full)?;
    let vtd = |error: VtdError| match IrqError::from(error) {
        IrqError::Hardware("remapping unit", what) => what,
        _ => "another error",
    };
    let told: BTreeSet<_> = [
        vtd(VtdError::Queue(QueueFault::Timeout(1))),
        vtd(VtdError::NoEntry(1)),
        vtd(VtdError::Overwritten(1)),
        vtd(VtdError::Descriptor(DeviceAddress(1))),
        vtd(VtdError::TableEntries(1)),
    ]
    .into();
    same("causes of a remapping unit", &(5, false), &(told.len(), told.contains("another error")))?;
    let dma = DmaError::Exhausted(a as usize);
    let from = (GicError::from(dma), VtdError::from(dma), NvmeError::from(dma), RdmaError::from(dma));
    let expected = (GicError::Dma(dma), VtdError::Memory(dma), NvmeError::Dma(dma), RdmaError::Memory(dma));
    same("no memory", &expected, &from)
}

pub(super) fn texts(draw: &mut Draw) -> Result<(), String> {
    let a = draw.within(100..=250) as u32;
    let b = a + draw.within(300..=9_000) as u32;
    named(&interrupts(a, b))?;
    named(&devices(a, b))?;
    passed_on(a)
}
