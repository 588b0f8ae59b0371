//! PCI functions: their lists of capabilities (PCI Local Bus Specification 3.0, 6.7), MSI-X (6.8.2), and the capability of
//! software posting (docs/software-posting.md).

use super::aml::noise;
use super::described::wide;
use super::regs::Ram;
use crate::draw::Draw;
use crate::trials::same;
use drivers::message::MessageSource;
use drivers::pci::{MsixCapability, MsixError, MsixTable};
use drivers::posting::{PostingCapability, PostingError};
use irq::MsiMessage;
use std::sync::Arc;

/// Where capabilities may stand.
const FIRST: usize = 0x40;
const CONFIGURATION_BYTES: usize = 256;
/// "SwPI".
const SIGNATURE: u32 = 0x4950_7753;

/// A function's configuration space with these capabilities, in this order; and where each stands. The list may end in a loop,
/// or not be there at all. They must fit.
pub(super) fn configuration(draw: &mut Draw, list: &[Vec<u8>], end: End) -> (Arc<Ram>, Vec<u32>) {
    let mut bytes: Vec<u8> = (0..CONFIGURATION_BYTES).map(|_| draw.below(256) as u8).collect();
    let mut free = (CONFIGURATION_BYTES - FIRST) / 4 - list.iter().map(|it| it.len().div_ceil(4)).sum::<usize>();
    let mut at = FIRST;
    let mut places = Vec::new();
    for capability in list {
        let gap = draw.below(free as u64 / 2 + 1) as usize;
        free -= gap;
        at += 4 * gap;
        places.push(at);
        at += capability.len().div_ceil(4) * 4;
    }
    // Those of one length may stand in any order.
    for one in 0..list.len() {
        let other = draw.below(list.len() as u64) as usize;
        if list[one].len() == list[other].len() {
            places.swap(one, other);
        }
    }
    for (index, (&at, capability)) in places.iter().zip(list).enumerate() {
        bytes[at..at + capability.len()].copy_from_slice(capability);
        let next = match (places.get(index + 1), end) {
            (Some(&next), _) => next,
            (None, End::Loop) => places[draw.below(places.len() as u64) as usize],
            (None, _) => 0,
        };
        // The two lowest bits are reserved.
        bytes[at + 1] = next as u8 | draw.below(4) as u8;
    }
    bytes[0x34] = places.first().map_or(0, |&at| at as u8) | draw.below(4) as u8;
    bytes[6] = bytes[6] & !0x10 | if end == End::Absent { 0 } else { 0x10 };
    (Ram::new(bytes), places.into_iter().map(|at| at as u32).collect())
}

/// How a list ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// As it should.
    Last,
    /// Somewhere in the list.
    Loop,
    /// The function says that it has none.
    Absent,
}

pub(super) fn draw_end(draw: &mut Draw, any: bool) -> End {
    match draw.below(10) {
        0 if any => End::Loop,
        1 => End::Absent,
        _ => End::Last,
    }
}

/// Bytes of the MSI-X capability, and what they say.
fn msix(draw: &mut Draw) -> (Vec<u8>, MsixCapability) {
    let entries = if draw.percent(20) { 2048 } else { draw.within(1..=2048) as u32 };
    let (table_bar, table_offset) = (draw.below(6) as u8, wide(draw, 29) as u32 * 8);
    let control = (entries - 1) as u16 | (draw.below(32) as u16) << 11;
    let mut bytes = vec![0x11, 0];
    bytes.extend(control.to_le_bytes());
    bytes.extend((table_offset | u32::from(table_bar)).to_le_bytes());
    bytes.extend((wide(draw, 32) as u32).to_le_bytes());
    (bytes, MsixCapability { offset: 0, entries, table_bar, table_offset })
}

/// Bytes of the capability of software posting, and what they say.
fn posting(draw: &mut Draw) -> (Vec<u8>, PostingCapability) {
    let (bar, offset, len_bytes) = (draw.below(6) as u8, wide(draw, 32) as u32, wide(draw, 32) as u32);
    let mut bytes = vec![9, 0, 16 + 4 * draw.below(2) as u8, bar];
    [SIGNATURE, offset, len_bytes].iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    (bytes, PostingCapability { bar, offset, len_bytes })
}

/// Another capability; some look like one of software posting.
fn other(draw: &mut Draw) -> Vec<u8> {
    match draw.below(5) {
        0 => [posting(draw).0[..2].to_vec(), vec![15, 0], SIGNATURE.to_le_bytes().to_vec(), vec![1; 8]].concat(),
        1 => [vec![9, 0, 16, 0], (SIGNATURE + 1).to_le_bytes().to_vec(), vec![1; 8]].concat(),
        _ => {
            let id = *draw.pick(&[0x01, 0x05, 0x10, 0x12, 0x0d]);
            let rest = noise(draw, 20);
            [vec![id, 0], rest].concat()
        }
    }
}

pub(super) fn capabilities(draw: &mut Draw) -> Result<(), String> {
    let (mut list, mut msix_at, mut posting_at) = (Vec::new(), None, None);
    for index in 0..draw.below(7) as usize {
        list.push(match draw.below(6) {
            0 => {
                let (bytes, capability) = msix(draw);
                msix_at = msix_at.or(Some((index, capability)));
                bytes
            }
            1 => {
                let (bytes, capability) = posting(draw);
                posting_at = posting_at.or(Some(capability));
                bytes
            }
            _ => other(draw),
        });
    }
    let end = draw_end(draw, !list.is_empty());
    let (config, places) = configuration(draw, &list, end);
    let missing = match end {
        End::Loop => (MsixError::Loop, PostingError::Loop),
        _ => (MsixError::Missing, PostingError::Missing),
    };
    let is_there = end != End::Absent;
    let found = msix_at.filter(|_| is_there);
    let expected = found.map(|(index, it)| MsixCapability { offset: places[index], ..it }).ok_or(missing.0);
    same(&format!("MSI-X in {list:02x?}, {end:?}"), &expected, &MsixCapability::find(&config.window()))?;
    let expected = posting_at.filter(|_| is_there).ok_or(missing.1);
    same(&format!("posting in {list:02x?}, {end:?}"), &expected, &PostingCapability::find(&config.window()))?;
    cut(draw)?;
    fits(draw)
}

/// An MSI-X capability that does not end in configuration space.
fn cut(draw: &mut Draw) -> Result<(), String> {
    let mut bytes: Vec<u8> = (0..CONFIGURATION_BYTES).map(|_| draw.below(256) as u8).collect();
    let at = *draw.pick(&[0xf4_u8, 0xf8, 0xfc]);
    bytes[6] |= 0x10;
    bytes[0x34] = at;
    bytes[usize::from(at)] = 0x11;
    let found = MsixCapability::find(&Ram::new(bytes).window());
    let fits = at == 0xf4;
    if fits == found.is_ok() && (fits || found == Err(MsixError::Cut(at.into()))) {
        Ok(())
    } else {
        Err(format!("MSI-X at {at:#x}: {found:?}"))
    }
}

/// The table lies within its region, or not.
fn fits(draw: &mut Draw) -> Result<(), String> {
    let (_, mut capability) = msix(draw);
    if draw.percent(20) {
        capability.table_offset = u32::MAX - 7;
    }
    let end = u64::from(capability.table_offset) + 16 * u64::from(capability.entries);
    let region = match draw.below(3) {
        0 => wide(draw, 32),
        _ => (end + draw.below(33)).saturating_sub(16).min(u32::MAX.into()),
    } as u32;
    let error = MsixError::Table(capability.entries, capability.table_offset, region);
    let expected = if end <= region.into() { Ok(()) } else { Err(error) };
    same(&format!("{capability:x?} in {region:#x} bytes"), &expected, &capability.fits(region))
}

/// What an entry holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    address: u64,
    data: u32,
    masked: bool,
}

/// Entries are as they were written, whatever is done in whatever order, and never change while unmasked.
pub(super) fn table(draw: &mut Draw) -> Result<(), String> {
    let entries = draw.within(1..=12) as u32;
    let table_offset = draw.below(32) as u32 * 8;
    let mut head: Vec<u8> = (0..CONFIGURATION_BYTES).map(|_| draw.below(256) as u8).collect();
    let offset = 0x40 + 4 * draw.below(45) as u32;
    let before = (draw.below(4) as u16) << 14 | draw.below(1 << 14) as u16;
    head[offset as usize + 2..][..2].copy_from_slice(&before.to_le_bytes());
    let (config, bar) = (Ram::new(head), Ram::new(vec![0xa5; 0x400]));
    let capability = MsixCapability { offset, entries, table_bar: 0, table_offset };
    let table = MsixTable::enable(config.window(), bar.window(), capability);
    // The function may send nothing while an entry is not masked.
    let asleep = config.writes().first().is_some_and(|&(at, _, value)| at == offset && value >> 30 == 3);
    let count = table.entries();
    if !asleep || count != entries || !table.may_be_posted() {
        return Err(format!("asleep at first: {asleep}; {count} entries of {entries}"));
    }
    bar.writes();
    let read = |entry: u32, field: u32| bar.get(table_offset + 16 * entry + field, 4);
    let mut model: Vec<Entry> = (0..entries)
        .map(|entry| Entry {
            address: read(entry, 0) | read(entry, 4) << 32,
            data: read(entry, 8) as u32,
            masked: true,
        })
        .collect();
    let (mut on, mut all_masked) = (true, false);
    for _ in 0..draw.within(1..=20) {
        let at = draw.below(entries.into()) as u32;
        let entry = &mut model[at as usize];
        match draw.below(8) {
            0 | 1 => {
                table.mask(at);
                entry.masked = true;
            }
            2 | 3 => {
                table.unmask(at);
                entry.masked = false;
            }
            4 => {
                table.mask_all();
                all_masked = true;
            }
            5 => {
                table.unmask_all();
                all_masked = false;
            }
            6 if draw.percent(10) => {
                table.disable();
                on = false;
            }
            _ => {
                let (address, data) = (wide(draw, 62), wide(draw, 32) as u32);
                let was_masked = entry.masked;
                table.write(at, MsiMessage { address, data });
                (entry.address, entry.data) = (address, data);
                changed_asleep(&bar, table_offset, at, was_masked)?;
            }
        }
        bar.writes();
        let now =
            (config.get(offset + 2, 2) as u16, before & 0x3fff | u16::from(on) << 15 | u16::from(all_masked) << 14);
        same("control", &now.1, &now.0)?;
        holds(&bar, table_offset, &model)?;
    }
    outside(&bar, table_offset, entries)
}

/// Entries hold what they are to hold.
fn holds(bar: &Ram, table_offset: u32, model: &[Entry]) -> Result<(), String> {
    let read = |entry: u32, field: u32| bar.get(table_offset + 16 * entry + field, 4);
    (0..).zip(model).try_for_each(|(index, entry)| {
        let address = read(index, 0) | read(index, 4) << 32;
        let (data, masked) = (read(index, 8) as u32, read(index, 12) & 1 != 0);
        same(&format!("entry {index}"), entry, &Entry { address, data, masked })
    })
}

/// No field changed while the entry was not masked (PCI Express, "MSI-X Table").
fn changed_asleep(bar: &Ram, table_offset: u32, entry: u32, masked: bool) -> Result<(), String> {
    let first = table_offset + 16 * entry;
    let mut masked = masked;
    for (at, _, value) in bar.writes() {
        match at.wrapping_sub(first) {
            12 => masked = value & 1 != 0,
            0..12 if !masked => return Err(format!("entry {entry} changed at {at:#x} while it was not masked")),
            _ => {}
        }
    }
    Ok(())
}

/// Nothing was written beside the table.
fn outside(bar: &Ram, table_offset: u32, entries: u32) -> Result<(), String> {
    let table = table_offset as usize..(table_offset + 16 * entries) as usize;
    let bytes = bar.bytes();
    let changed = bytes.iter().enumerate().find(|&(at, &byte)| !table.contains(&at) && byte != 0xa5);
    changed.map_or(Ok(()), |(at, _)| Err(format!("byte {at:#x} is none of the table's, and was written")))
}
