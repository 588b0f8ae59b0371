//! Devices with `_HID` "LNRO0005" of a DSDT or SSDT, and their static `_CRS` (ACPI 6.5, 6.4).

use super::aml::{Cursor, Term, Value};
use super::{DiscoveryError, Line, MmioDevice, Trigger};
use alloc::vec::Vec;

/// Bytes of a table's header (ACPI 6.5, 5.2.6).
const HEADER_BYTES: usize = 36;
/// Deeper namespaces are refused: this code is recursive.
const DEPTH_MAX: usize = 16;
/// The id of a virtio-mmio device in Linux and QEMU.
const HID: &[u8] = b"LNRO0005";

/// The devices of a table, in its order. A `_CRS` that is a method is not run: the device is an error.
///
/// # Errors
/// [`DiscoveryError::Table`], [`DiscoveryError::Aml`], [`DiscoveryError::AmlEnd`].
pub fn from_acpi(table: &[u8]) -> Result<Vec<MmioDevice>, DiscoveryError> {
    let header = table.get(..HEADER_BYTES).ok_or(DiscoveryError::Table("it is shorter than its header"))?;
    if !matches!(&header[..4], b"DSDT" | b"SSDT") {
        return Err(DiscoveryError::Table("it is neither a DSDT nor an SSDT"));
    }
    let length = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
    let table = table.get(..length).ok_or(DiscoveryError::Table("it is shorter than it says"))?;
    let body = table.get(HEADER_BYTES..).ok_or(DiscoveryError::Table("it is shorter than its header"))?;
    if table.iter().fold(0_u8, |sum, &byte| sum.wrapping_add(byte)) != 0 {
        return Err(DiscoveryError::Table("its checksum is wrong"));
    }
    let mut devices = Vec::new();
    walk(Cursor::new(body, 0), 0, &mut devices)?;
    Ok(devices)
}

/// A device as parsed so far.
#[derive(Default)]
struct Found<'a> {
    is_virtio: bool,
    resources: Option<&'a [u8]>,
    id: Option<u32>,
}

fn walk(mut list: Cursor<'_>, depth: usize, devices: &mut Vec<MmioDevice>) -> Result<(), DiscoveryError> {
    if depth > DEPTH_MAX {
        return Err(DiscoveryError::Table("its objects are nested too deeply"));
    }
    let mut found = Found::default();
    while let Some(term) = list.term()? {
        match term {
            Term::Scope(inner) | Term::Device(inner) => walk(inner, depth + 1, devices)?,
            Term::Name(name, value) => match (&name, value) {
                (b"_HID", Value::Text(text)) => found.is_virtio = text == HID,
                (b"_CRS", Value::Buffer(bytes)) => found.resources = Some(bytes),
                (b"_UID", Value::Integer(id)) => found.id = u32::try_from(id).ok(),
                _ => {}
            },
            Term::Other => {}
        }
    }
    if found.is_virtio {
        let resources = found.resources.ok_or(DiscoveryError::Table("a virtio device has no static _CRS"))?;
        devices.push(device(resources, found.id)?);
    }
    Ok(())
}

fn device(resources: &[u8], id: Option<u32>) -> Result<MmioDevice, DiscoveryError> {
    let mut window = None;
    let mut lines = Vec::new();
    for resource in Resources(resources) {
        match resource? {
            Resource::Memory(base, bytes) => window = window.or(Some((base, bytes))),
            Resource::Interrupts(flags, numbers) => {
                // Interrupt vector flags: bit 1 is 1 for edge (6.4.3.6).
                let trigger = Some(if flags & 2 == 0 { Trigger::Level } else { Trigger::Edge });
                let (numbers, _) = numbers.as_chunks::<4>();
                lines.extend(numbers.iter().map(|&number| Line { number: u32::from_le_bytes(number), trigger }));
            }
            Resource::Other => {}
        }
    }
    let (base, size_bytes) = window.ok_or(DiscoveryError::Table("a virtio device has no memory in its _CRS"))?;
    MmioDevice { base, size_bytes, lines, id }.checked()
}

enum Resource<'a> {
    /// Address and length.
    Memory(u64, u64),
    /// Flags and numbers of 4 bytes.
    Interrupts(u8, &'a [u8]),
    Other,
}

/// The descriptors of a resource list up to its end tag (6.4.2, 6.4.3).
struct Resources<'a>(&'a [u8]);

impl<'a> Resources<'a> {
    fn descriptor(&mut self) -> Option<Option<Resource<'a>>> {
        let &tag = self.0.first()?;
        let (head, length) = if tag & 0x80 == 0 {
            (1, usize::from(tag & 7))
        } else {
            let length = self.0.get(1..3)?;
            (3, usize::from(u16::from_le_bytes([length[0], length[1]])))
        };
        // The end tag, whatever follows.
        if tag >> 3 == 0x0f {
            return Some(None);
        }
        let body = self.0.get(head..head + length)?;
        self.0 = &self.0[head + length..];
        let little = |at: usize, count: usize| {
            Some(body.get(at..at + count)?.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)))
        };
        Some(Some(match tag {
            // Memory32Fixed; Memory32.
            0x86 => Resource::Memory(little(1, 4)?, little(5, 4)?),
            0x85 => Resource::Memory(little(1, 4)?, little(13, 4)?),
            // DWord and QWord address space, of memory: minimum and length behind type, flags and granularity.
            0x87 if body.first() == Some(&0) => Resource::Memory(little(7, 4)?, little(19, 4)?),
            0x8a if body.first() == Some(&0) => Resource::Memory(little(11, 8)?, little(35, 8)?),
            // Extended interrupt: flags, count, numbers.
            0x89 => Resource::Interrupts(*body.first()?, body.get(2..2 + 4 * usize::from(*body.get(1)?))?),
            _ => Resource::Other,
        }))
    }
}

impl<'a> Iterator for Resources<'a> {
    type Item = Result<Resource<'a>, DiscoveryError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.descriptor() {
            Some(resource) => resource.map(Ok),
            None => {
                self.0 = &[];
                // A list that ends without its tag: said once.
                Some(Err(DiscoveryError::Table("a _CRS ends in the middle of a descriptor")))
            }
        }
    }
}
