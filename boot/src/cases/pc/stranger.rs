//! A stranger: a function that sends a message which belongs to another function. The remapping unit must refuse it.
//!
//! The stranger is QEMU's educational device (QEMU's docs/specs/edu.rst), which sends its one message when a register is
//! written.

use super::Fixture;
use super::bursts::{CPU, burst, drive};
use crate::arch::Registers;
use crate::cases::nvme::CLASS;
use crate::cases::pci::{Bus, Function};
use crate::cases::{Options, count, expect, settle, wait};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use drivers::vtd::Fault;
use hal::Regs;
use spec::msi::{CapabilityHeader, configuration, msix_entry};
use spec::vtd::registers::FaultReason;

/// The educational device: class code, device and vendor id, and its register that sends the message.
const EDU_CLASS: u32 = 0x00_ff00;
const EDU: u32 = 0x11e8_1234;
const RAISE: u32 = 0x60;
/// Capability id of MSI, and offsets in its 64-bit form: address, data (PCI Local Bus Specification 3.0, 6.8.1).
const MSI: u8 = 5;
const ADDRESS_LOW: u32 = 4;
const ADDRESS_HIGH: u32 = 8;
const DATA: u32 = 12;
/// MSI Enable, in the capability's first 32 bits.
const ENABLE: u32 = 1 << 16;
/// More capabilities than configuration space can hold.
const CAPABILITIES_MAX: u32 = 48;
/// Reads after the stranger's messages.
const READS: u64 = 64;

/// A stranger sends the message of an NVMe drive's queue. Option: `messages`.
pub(super) fn stranger(system: &Arc<Fixture>, options: &Options) -> Result<(), String> {
    let messages = options.number("messages", 20)?;
    let bridge = system.platform.pcie.as_ref().ok_or("firmware tells of no PCIe configuration space")?;
    let mut bus = Bus::new(bridge);
    let function = bus.find(CLASS).ok_or("no NVMe drive on bus 0")?;
    let drives = [drive(system, &mut bus, &function, 0)?];
    burst(&drives, 0, 0)?;
    settle(system.platform.cpus())?;
    system.check()?;
    let edu = bus.find(EDU_CLASS).filter(|function| function.config.read32(0) == EDU).ok_or("no stranger on bus 0")?;
    let regs = bus.region(&edu, 0)?;
    send_as(&edu, drives[0].entry)?;
    let before = system.core.count(drives[0].line, CPU);
    let mut faults: Vec<Fault> = Vec::new();
    for message in 1..=messages {
        regs.write32(RAISE, 1);
        // The unit has a single record, so each fault must be taken before the next message.
        while (faults.len() as u64) < message {
            wait("a fault of the stranger", || system.has_faults())?;
            faults.extend(system.take_faults());
        }
    }
    expect("faults recorded", faults.len() as u64, messages)?;
    settle(system.platform.cpus())?;
    let stolen = system.core.count(drives[0].line, CPU) - before;
    count("stolen", stolen);
    count("faults", faults.len() as u64);
    expect("interrupts by the stranger", stolen, 0)?;
    expect("strays", system.strays(), 0)?;
    let is_right = |fault: &&Fault| fault.reason == FaultReason::SOURCE && fault.requester == edu.requester;
    if let Some(odd) = faults.iter().find(|fault| !is_right(fault)) {
        return Err(format!("a fault of the stranger {}: {odd}", edu.requester));
    }
    (1..=READS).try_for_each(|round| burst(&drives, round, 0))?;
    count("reads_after", READS);
    system.check()
}

/// Gives the function the message of an MSI-X entry: registers, and its offset in them.
fn send_as(function: &Function, (table, entry): (Registers, u32)) -> Result<(), String> {
    let Function { config, .. } = function;
    let msi = capability(config, MSI).ok_or("the stranger has no MSI")?;
    config.write32(msi + ADDRESS_LOW, table.read32(entry + msix_entry::ADDRESS_LOW));
    config.write32(msi + ADDRESS_HIGH, table.read32(entry + msix_entry::ADDRESS_HIGH));
    config.write32(msi + DATA, table.read32(entry + msix_entry::DATA) & 0xffff);
    config.write32(msi, config.read32(msi) | ENABLE);
    Ok(())
}

/// The offset of a capability.
fn capability(config: &Registers, id: u8) -> Option<u32> {
    let mut offset = config.read32(configuration::CAPABILITIES) & 0xfc;
    for _ in 0..CAPABILITIES_MAX {
        let header = CapabilityHeader::from_bits(config.read32(offset));
        if offset == 0 || header.id() == id {
            break;
        }
        offset = u32::from(header.next()) & 0xfc;
    }
    (offset != 0).then_some(offset)
}
