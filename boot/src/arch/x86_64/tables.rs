//! The machine's hardware, read from PVH's start information and the ACPI tables.
//!
//! The kernel reads the tables itself: the maintained ACPI crate needs an allocator interface that stable Rust does
//! not have, and this kernel needs only a few tables of fixed layout. The DSDT is left to those who look for devices in it.

use crate::kernel::{EarlyPlatform, Pcie};
use alloc::string::String;
use alloc::vec::Vec;

/// The machine.
pub(crate) struct Platform {
    pub(crate) command_line: String,
    /// APIC id of each CPU, from the MADT (ACPI 6.5, 5.2.12).
    pub(crate) apic_ids: Vec<u32>,
    /// From the MCFG. Firmware has given every BAR an address.
    pub(crate) pcie: Option<Pcie>,
    /// Registers of the remapping unit, from the DMAR (VT-d, "DMA Remapping Reporting Structure").
    pub(crate) vtd: Option<u64>,
    /// From the MADT.
    pub(crate) io_apics: Vec<IoApic>,
    /// The DSDT itself, which the FADT names (ACPI 6.5, 5.2.9).
    pub(crate) dsdt: &'static [u8],
}

/// An I/O APIC (ACPI 6.5, 5.2.12.3).
#[derive(Clone, Copy)]
pub(crate) struct IoApic {
    /// Address of its registers.
    pub(crate) base: usize,
    /// Global system interrupt of its first pin.
    pub(crate) first: u32,
}

impl Platform {
    /// Number of CPUs.
    pub(crate) fn cpus(&self) -> u32 {
        self.apic_ids.len() as u32
    }
}

/// A physical address from a firmware table.
#[derive(Clone, Copy)]
struct At(usize);

impl At {
    fn read<T: Copy>(self, offset: usize) -> T {
        // SAFETY: firmware's tables lie in mapped RAM that nothing else uses; the reads need no alignment.
        unsafe { ((self.0 + offset) as *const T).read_unaligned() }
    }
}

pub(super) struct Early(At);

pub(super) fn read(start_info: usize) -> Early {
    let info = At(start_info);
    assert_eq!(info.read::<u32>(0), 0x336e_c578, "PVH start information");
    super::clock::calibrate();
    Early(info)
}

impl EarlyPlatform for Early {
    fn memory_end(&self) -> usize {
        let (map, count) = (self.0.read::<u64>(40) as usize, self.0.read::<u32>(48) as usize);
        let image = super::image_end() as u64;
        // Address, size, type 1: RAM.
        let entries = (0..count).map(|index| At(map + 24 * index)).filter(|entry| entry.read::<u32>(16) == 1);
        let mut ranges = entries.map(|entry| entry.read::<u64>(0)..entry.read::<u64>(0) + entry.read::<u64>(8));
        ranges.find(|range| range.contains(&image)).expect("RAM behind the image").end as usize
    }

    fn platform(&self) -> Platform {
        let rsdp = At(self.0.read::<u64>(32) as usize);
        // Revision 2 has the XSDT (64-bit entries), revision 0 the RSDT (ACPI 6.5, 5.2.5.3).
        let wide = rsdp.read::<u8>(15) >= 2;
        let root = At(if wide { rsdp.read::<u64>(24) as usize } else { rsdp.read::<u32>(16) as usize });
        let entries = (36..root.read::<u32>(4) as usize).step_by(if wide { 8 } else { 4 });
        let address = |at| if wide { root.read::<u64>(at) as usize } else { root.read::<u32>(at) as usize };
        let tables: Vec<At> = entries.map(|at| At(address(at))).collect();
        let find = |signature: &[u8; 4]| tables.iter().find(|table| &table.read::<[u8; 4]>(0) == signature).copied();
        let madt = find(b"APIC").expect("a MADT");
        Platform {
            command_line: self.command_line(),
            apic_ids: cpus(madt),
            pcie: find(b"MCFG").map(|mcfg| Pcie { ecam: mcfg.read::<u64>(44) as usize, free: 0..0 }),
            vtd: find(b"DMAR").and_then(remapping_unit),
            io_apics: io_apics(madt),
            dsdt: dsdt(find(b"FACP").expect("a FADT")),
        }
    }
}

impl Early {
    fn command_line(&self) -> String {
        let at = At(self.0.read::<u64>(24) as usize);
        let bytes = (0..4096).map(|offset| at.read::<u8>(offset)).take_while(|&byte| byte != 0);
        bytes.map(char::from).collect()
    }
}

/// The structures of a MADT (ACPI 6.5, 5.2.12): type at 0, length at 1.
fn structures(madt: At) -> impl Iterator<Item = At> {
    let (end, mut at) = (madt.read::<u32>(4) as usize, 44);
    core::iter::from_fn(move || {
        let structure = At(madt.0 + at);
        let is_there = at + 2 <= end;
        if is_there {
            at += usize::from(structure.read::<u8>(1)).max(2);
        }
        is_there.then_some(structure)
    })
}

/// The enabled CPUs: structures of type 0, processor local APIC (id at 3, flags at 4), and 9, x2APIC (id at 4, flags at
/// 8).
fn cpus(madt: At) -> Vec<u32> {
    let cpu = |structure: At| {
        let (id, flags) = match structure.read::<u8>(0) {
            0 => (structure.read::<u8>(3).into(), structure.read::<u32>(4)),
            9 => (structure.read::<u32>(4), structure.read::<u32>(8)),
            _ => return None,
        };
        (flags & 1 != 0).then_some(id)
    };
    structures(madt).filter_map(cpu).collect()
}

/// Structures of type 1: address at 4, first interrupt at 8.
fn io_apics(madt: At) -> Vec<IoApic> {
    let found = structures(madt).filter(|structure| structure.read::<u8>(0) == 1);
    found.map(|found| IoApic { base: found.read::<u32>(4) as usize, first: found.read::<u32>(8) }).collect()
}

/// X_DSDT at 140 where the table has it, else DSDT at 40.
fn dsdt(fadt: At) -> &'static [u8] {
    let wide = if fadt.read::<u32>(4) >= 148 { fadt.read::<u64>(140) as usize } else { 0 };
    let table = At(if wide == 0 { fadt.read::<u32>(40) as usize } else { wide });
    // SAFETY: firmware's tables lie in mapped RAM that nothing else uses; the table tells its length.
    unsafe { core::slice::from_raw_parts(table.0 as *const u8, table.read::<u32>(4) as usize) }
}

/// The registers of the first hardware unit: a structure of type 0, their address at 8.
fn remapping_unit(dmar: At) -> Option<u64> {
    let (end, mut at) = (dmar.read::<u32>(4) as usize, 48);
    while at + 16 <= end {
        let structure = At(dmar.0 + at);
        if structure.read::<u16>(0) == 0 {
            return Some(structure.read::<u64>(8));
        }
        at += usize::from(structure.read::<u16>(2)).max(4);
    }
    None
}
