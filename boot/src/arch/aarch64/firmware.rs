//! The ACPI tables that QEMU has for firmware. This image is started without firmware, so it takes them itself.
//!
//! Source: QEMU, docs/specs/fw_cfg.rst; ACPI 6.5, 5.2.6.

use super::Window;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use hal::Regs as _;

/// The data register: each read gives the next byte.
const DATA: u32 = 0;
/// The selector register, big-endian.
const SELECTOR: u32 = 8;
/// The item that lists the others, as big-endian fields: their number (4 bytes), and for each its size (4 bytes), its selector
/// (2), two bytes of nothing, and its name (56, ended by zeros).
const DIRECTORY: u16 = 0x19;
const NAME_BYTES: usize = 56;
/// All tables but the RSDP, one behind the other.
const TABLES: &[u8] = b"etc/acpi/tables";
/// More than QEMU ever has.
const ITEMS_MAX: u32 = 1024;
const TABLES_BYTES_MAX: u32 = 1 << 20;
/// Of a table's header: where its length and its checksum are.
const LENGTH: usize = 4;
const CHECKSUM: usize = 9;
const HEADER_BYTES: usize = 36;

/// Reads the DSDT from the device at `place`.
///
/// # Errors
/// There is no such table, or it is longer than what there is.
pub(crate) fn dsdt(place: Window) -> Result<Vec<u8>, String> {
    let regs = super::window(place.base, place.len_bytes);
    let select = |item: u16| regs.write16(SELECTOR, item.to_be());
    let byte = || regs.read8(DATA);
    let word = || u32::from_be_bytes([byte(), byte(), byte(), byte()]);
    select(DIRECTORY);
    let mut tables = None;
    for _ in 0..word().min(ITEMS_MAX) {
        let (size, item) = (word(), word() >> 16);
        let name: [u8; NAME_BYTES] = core::array::from_fn(|_| byte());
        if name.split(|&byte| byte == 0).next() == Some(TABLES) {
            tables = Some((size, item as u16));
        }
    }
    let (size, item) = tables.ok_or("firmware is offered no ACPI tables")?;
    if size > TABLES_BYTES_MAX {
        return Err(format!("{size} bytes of ACPI tables; at most {TABLES_BYTES_MAX} are read"));
    }
    select(item);
    let tables: Vec<u8> = (0..size).map(|_| byte()).collect();
    find_dsdt(&tables)
}

/// The DSDT among tables that follow each other. Firmware fills in the checksums, so this does.
fn find_dsdt(mut tables: &[u8]) -> Result<Vec<u8>, String> {
    loop {
        let header = tables.get(..HEADER_BYTES).ok_or("no DSDT among the ACPI tables")?;
        let length = u32::from_le_bytes(core::array::from_fn(|at| header[LENGTH + at])) as usize;
        let (table, rest) = tables
            .split_at_checked(length.max(HEADER_BYTES))
            .ok_or_else(|| format!("an ACPI table of {length} bytes in {}", tables.len()))?;
        if table.starts_with(b"DSDT") {
            let mut table = table.to_vec();
            let sum = table.iter().fold(0_u8, |sum, &byte| sum.wrapping_add(byte));
            table[CHECKSUM] = table[CHECKSUM].wrapping_sub(sum);
            return Ok(table);
        }
        tables = rest;
    }
}
