//! Writes the part of AML that static tables are made of (ACPI 6.5, 20.2).

use crate::draw::Draw;

/// A package: its length in one of the forms that hold it, and its content. The length counts its own bytes (20.2.4).
pub(super) fn package(draw: &mut Draw, content: &[u8]) -> Vec<u8> {
    let least = match content.len() {
        ..0x3f => 1,
        0x3f..0xffe => 2,
        0xffe..0xf_fffd => 3,
        _ => 4,
    };
    let bytes = if draw.percent(70) { least } else { draw.within(least..=4) };
    let length = content.len() as u32 + bytes as u32;
    let mut package = match bytes {
        1 => vec![length as u8],
        _ => vec![(bytes as u8 - 1) << 6 | (length & 0xf) as u8],
    };
    package.extend((length >> 4).to_le_bytes().iter().take(bytes as usize - 1));
    package.extend(content);
    package
}

/// A name whose last segment is this one (20.2.2).
pub(super) fn name(draw: &mut Draw, last: &[u8; 4]) -> Vec<u8> {
    let mut name = Vec::new();
    match draw.below(10) {
        0 => name.push(b'\\'),
        1 => (0..draw.within(1..=3)).for_each(|_| name.push(b'^')),
        _ => {}
    }
    match draw.below(8) {
        0 => name.extend(b"\x2eBUS0"),
        1 => {
            let before = draw.within(1..=4) as u8;
            name.extend([0x2f, before + 1]);
            (0..before).for_each(|index| name.extend([b'P', b'_', b'0' + index, b'_']));
        }
        _ => {}
    }
    name.extend(last);
    name
}

/// A container with a name.
pub(super) fn named(draw: &mut Draw, opcode: &[u8], segment: &[u8; 4], content: &[u8]) -> Vec<u8> {
    let mut inner = name(draw, segment);
    inner.extend(content);
    let mut term = opcode.to_vec();
    term.extend(package(draw, &inner));
    term
}

/// A constant: one of the forms that hold it (20.2.3).
pub(super) fn integer(draw: &mut Draw, value: u64) -> Vec<u8> {
    match value {
        0 | 1 if draw.percent(60) => return vec![value as u8],
        u64::MAX => return vec![0xff],
        _ => {}
    }
    let forms = [(0x0a, 1), (0x0b, 2), (0x0c, 4), (0x0e, 8)];
    let fits: Vec<_> = forms.into_iter().filter(|&(_, bytes)| bytes == 8 || value >> (8 * bytes) == 0).collect();
    let (opcode, bytes) = if draw.percent(60) { fits[0] } else { *draw.pick(&fits) };
    let mut constant = vec![opcode];
    constant.extend(&value.to_le_bytes()[..bytes]);
    constant
}

pub(super) fn text(text: &str) -> Vec<u8> {
    [&[0x0d], text.as_bytes(), &[0]].concat()
}

/// A buffer, which may be longer than what is written.
pub(super) fn buffer(draw: &mut Draw, bytes: &[u8]) -> Vec<u8> {
    let more = if draw.percent(15) { draw.below(300) } else { 0 };
    let mut content = integer(draw, bytes.len() as u64 + more);
    content.extend(bytes);
    let mut buffer = vec![0x11];
    buffer.extend(package(draw, &content));
    buffer
}

/// `Name (segment, value)`.
pub(super) fn constant(draw: &mut Draw, segment: &[u8; 4], value: &[u8]) -> Vec<u8> {
    let mut term = vec![0x08];
    // A name within its own scope.
    if draw.percent(5) {
        term.push(b'^');
    }
    term.extend(segment);
    term.extend(value);
    term
}

/// Bytes that nobody reads.
pub(super) fn noise(draw: &mut Draw, most: u64) -> Vec<u8> {
    (0..draw.below(most)).map(|_| draw.below(256) as u8).collect()
}

/// A term without a device.
pub(super) fn other(draw: &mut Draw) -> Vec<u8> {
    let flags = draw.below(16) as u8;
    let skipped = noise(draw, 80);
    match draw.below(14) {
        // Alias.
        0 => [vec![0x06], name(draw, b"ALI0"), name(draw, b"ALI1")].concat(),
        // Method; If, Else, While.
        1 => named(draw, &[0x14], b"_STA", &skipped),
        2 => [vec![*draw.pick(&[0xa0, 0xa1, 0xa2])], package(draw, &skipped)].concat(),
        // External: a device that other tables have.
        3 => [vec![0x15], name(draw, b"VIR9"), vec![6, 0]].concat(),
        // Noop.
        4 => vec![0xa3],
        // Mutex, event.
        5 => [vec![0x5b, 0x01], name(draw, b"MUT0"), vec![flags]].concat(),
        6 => [vec![0x5b, 0x02], name(draw, b"EVT0")].concat(),
        // Operation region: space, offset, length.
        7 => {
            let (at, bytes) = (draw.below(1 << 40), draw.below(0x1000));
            [vec![0x5b, 0x80], name(draw, b"REG0"), vec![flags], integer(draw, at), integer(draw, bytes)].concat()
        }
        // Field, processor, power resource, index field, bank field.
        8 => [vec![0x5b, *draw.pick(&[0x81, 0x83, 0x84, 0x86, 0x87])], package(draw, &skipped)].concat(),
        // A package, of either kind.
        9 => {
            let value = [vec![*draw.pick(&[0x12, 0x13])], package(draw, &skipped)].concat();
            constant(draw, b"_PRT", &value)
        }
        10 => {
            let value = *draw.pick(&[0, 1, 0xff, 0x100, 0x1_0000, u64::MAX, 1 << 40]);
            let value = integer(draw, value);
            constant(draw, b"_CCA", &value)
        }
        11 => constant(draw, b"_CID", &text("LNRO0005")),
        12 => {
            let value = buffer(draw, &skipped);
            constant(draw, b"_DSD", &value)
        }
        _ => constant(draw, b"_STR", &text("")),
    }
}

/// A table of this body, with a right checksum (5.2.6).
pub(super) fn table(draw: &mut Draw, body: &[u8]) -> Vec<u8> {
    let mut table = draw.pick(&[b"DSDT", b"SSDT"]).to_vec();
    table.extend((36 + body.len() as u32).to_le_bytes());
    table.extend([2, 0]);
    table.extend(b"CAMPANCHECK   ");
    table.extend([draw.below(256) as u8, 0, 0, 0]);
    table.extend(b"CAMP");
    table.extend([1, 0, 0, 0]);
    table.extend(body);
    sum(&mut table);
    table
}

/// Writes the checksum.
pub(super) fn sum(table: &mut [u8]) {
    table[9] = 0;
    table[9] = table.iter().fold(0_u8, |sum, &byte| sum.wrapping_sub(byte));
}
