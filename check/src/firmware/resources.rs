//! Writes resource lists (ACPI 6.5, 6.4).

use super::aml::noise;
use super::described::{Described, REGISTERS_BYTES, VECTORS_MAX, wide};
use crate::draw::Draw;

/// The end tag; its checksum is 0, which is none.
pub(super) const END: [u8; 2] = [0x79, 0];

/// A large descriptor.
fn large(tag: u8, body: &[u8]) -> Vec<u8> {
    [&[tag], &(body.len() as u16).to_le_bytes()[..], body].concat()
}

/// An address space descriptor whose fields have so many bytes: type, flags, then granularity, minimum, maximum, translation,
/// length.
fn space(tag: u8, kind: u8, bytes: usize, base: u64, size_bytes: u64) -> Vec<u8> {
    let fields = [0, base, base.wrapping_add(size_bytes).wrapping_sub(1), 0, size_bytes];
    let mut body = vec![kind, 0x0c, 0x01];
    fields.iter().for_each(|field| body.extend(&field.to_le_bytes()[..bytes]));
    large(tag, &body)
}

/// Memory, in one of its forms: Memory32Fixed, Memory32, DWord and QWord.
pub(super) fn memory(draw: &mut Draw, base: u64, size_bytes: u64) -> Vec<u8> {
    let is_low = base >> 32 == 0 && size_bytes >> 32 == 0;
    let word = |value: u64| (value as u32).to_le_bytes();
    match draw.below(4) {
        0 if is_low => large(0x86, &[&[1], &word(base)[..], &word(size_bytes)].concat()),
        1 if is_low => {
            large(0x85, &[&[1], &word(base)[..], &word(base + 0x100), &word(0x1000), &word(size_bytes)].concat())
        }
        2 if is_low => space(0x87, 0, 4, base, size_bytes),
        _ => space(0x8a, 0, 8, base, size_bytes),
    }
}

/// A descriptor that says nothing of memory or interrupts.
fn other(draw: &mut Draw) -> Vec<u8> {
    match draw.below(9) {
        // I/O port, fixed port, DMA, vendor's.
        0 => vec![0x47, 1, 0, 3, 0, 3, 1, 8],
        1 => vec![0x4b, 0xf0, 0x03, 2],
        2 => vec![0x2a, 4, 2],
        3 => vec![0x73, 0x85, 0x86, 0x89],
        4 => {
            let bytes = noise(draw, 40);
            large(0x84, &bytes)
        }
        // Ports and bus numbers as address spaces.
        5 => space(0x87, 1, 4, 0x3f8, 8),
        6 => space(0x8a, 2, 8, 0, 0x100),
        7 => space(0x88, 2, 2, 0, 0x100),
        // GPIO and serial bus connections.
        _ => {
            let bytes = noise(draw, 30);
            large(*draw.pick(&[0x8c, 0x8e]), &bytes)
        }
    }
}

/// Extended interrupts of one trigger, with or without the name of a source.
fn interrupts(draw: &mut Draw, numbers: &[u32], edge: bool) -> Vec<u8> {
    // Consumer, edge, active low, shared, wakes.
    let flags = draw.below(32) as u8 & !2 | u8::from(edge) << 1;
    let mut body = vec![flags, numbers.len() as u8];
    numbers.iter().for_each(|number| body.extend(number.to_le_bytes()));
    if draw.percent(15) {
        body.extend(b"\x00\\_SB.GSI0\0");
    }
    large(0x89, &body)
}

/// The resources of this device, up to the end tag; all of its interrupts trigger alike.
pub(super) fn of(draw: &mut Draw, device: &Described) -> Vec<u8> {
    let mut list = memory(draw, device.base, device.size_bytes);
    let numbers: Vec<_> = device.lines.iter().map(|&(number, _)| number).collect();
    let edge = device.lines[0].1 == Some(true);
    for numbers in numbers.chunks(draw.within(1..=8) as usize) {
        list.extend(other(draw));
        list.extend(interrupts(draw, numbers, edge));
    }
    list
}

/// A device, and its resources up to the end tag.
pub(super) fn device(draw: &mut Draw) -> (Described, Vec<u8>) {
    let least = REGISTERS_BYTES;
    let size_bytes = if draw.percent(30) { least } else { draw.within(least..=0x1_0000) };
    let base = if draw.percent(70) { wide(draw, 31) } else { wide(draw, 62) };
    let count = match draw.below(60) {
        0 => VECTORS_MAX,
        1..40 => 1,
        _ => draw.within(1..=9) as u32,
    };
    let mut lines: Vec<(u32, Option<bool>)> = Vec::new();
    let mut list = vec![memory(draw, base, size_bytes)];
    while (lines.len() as u32) < count {
        let most = (count - lines.len() as u32).min(255);
        let numbers: Vec<_> = (0..draw.within(1..=most.into())).map(|_| wide(draw, 24) as u32).collect();
        let edge = draw.percent(50);
        lines.extend(numbers.iter().map(|&number| (number, Some(edge))));
        list.push(interrupts(draw, &numbers, edge));
    }
    // Memory before or behind the interrupts; only the first is the transport's.
    let at = draw.below(list.len() as u64) as usize;
    let first = list.remove(0);
    list.insert(at, first);
    if draw.percent(20) {
        let more = memory(draw, 0x1000, 0x1000);
        list.push(more);
    }
    while draw.percent(40) {
        let at = draw.below(list.len() as u64 + 1) as usize;
        let other = other(draw);
        list.insert(at, other);
    }
    (Described { base, size_bytes, lines, id: None }, list.concat())
}
