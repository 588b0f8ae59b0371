//! ACPI tables: devices in scopes and buses, among everything else that tables have.

use super::aml::{buffer, constant, integer, name, named, noise, other, package, sum, table, text};
use super::described::{Described, REGISTERS_BYTES, VECTORS_MAX, Wrong, found_all, plausible, wide};
use super::resources::{self, END, memory};
use crate::draw::Draw;
use drivers::virtio::discovery::{DiscoveryError, from_acpi};

/// A device's object, with these resources. `_HID` and the rest come in any order.
fn object(draw: &mut Draw, resources: &[u8], id: Option<&[u8]>) -> Vec<u8> {
    let crs = buffer(draw, resources);
    let mut terms = vec![constant(draw, b"_HID", &text("LNRO0005")), constant(draw, b"_CRS", &crs)];
    terms.extend(id.map(|id| constant(draw, b"_UID", id)));
    while draw.percent(40) {
        terms.push(other(draw));
    }
    for at in (1..terms.len()).rev() {
        let with = draw.below(at as u64 + 1) as usize;
        terms.swap(at, with);
    }
    named(draw, &[0x5b, 0x82], b"VIR0", &terms.concat())
}

fn device(draw: &mut Draw, devices: &mut Vec<Described>) -> Vec<u8> {
    let (mut described, resources) = resources::device(draw);
    let id = match draw.below(6) {
        0 | 1 => None,
        // An id of this kind is none.
        2 => Some(text("VIR7")),
        3 => Some(integer(draw, u64::from(u32::MAX) + 1)),
        _ => {
            let id = wide(draw, 32);
            described.id = Some(id as u32);
            Some(integer(draw, id))
        }
    };
    let mut resources = [&resources[..], &END].concat();
    if draw.percent(10) {
        // Behind the end tag nothing counts.
        resources.extend(noise(draw, 9));
    }
    devices.push(described);
    object(draw, &resources, id.as_deref())
}

/// A device of another kind, whose resources are no matter.
fn stranger(draw: &mut Draw) -> Vec<u8> {
    let crs = noise(draw, 20);
    let crs = buffer(draw, &crs);
    let hid = match draw.below(3) {
        0 => text("LNRO0006"),
        1 => text("LNRO00050"),
        _ => integer(draw, 0x0105_d041),
    };
    let content = [constant(draw, b"_HID", &hid), constant(draw, b"_CRS", &crs)].concat();
    named(draw, &[0x5b, 0x82], b"COM0", &content)
}

/// Terms of a scope.
fn scope(draw: &mut Draw, deeper: u32, devices: &mut Vec<Described>) -> Vec<Vec<u8>> {
    let mut terms = Vec::new();
    for _ in 0..draw.within(1..=4) {
        let term = match draw.below(9) {
            0..3 => device(draw, devices),
            3 => stranger(draw),
            4..6 if deeper > 0 => {
                let content = scope(draw, deeper - 1, devices).concat();
                container(draw, &content)
            }
            _ => other(draw),
        };
        terms.push(term);
    }
    terms
}

/// A scope, a device or a thermal zone around others.
fn container(draw: &mut Draw, content: &[u8]) -> Vec<u8> {
    match draw.below(4) {
        0 => {
            let hid = constant(draw, b"_HID", &text("ACPI0004"));
            named(draw, &[0x5b, 0x82], b"BUS0", &[&hid[..], content].concat())
        }
        1 => named(draw, &[0x5b, 0x85], b"TZ00", content),
        2 => {
            // The root itself: a name without a segment.
            let inner = [&[b'\\', 0][..], content].concat();
            [vec![0x10], package(draw, &inner)].concat()
        }
        _ => named(draw, &[0x10], b"_SB_", content),
    }
}

/// A table with these devices, in this order.
pub(super) fn platform(draw: &mut Draw, devices: &[Described]) -> Vec<u8> {
    let mut terms = Vec::new();
    for device in devices {
        let list = [resources::of(draw, device), END.to_vec()].concat();
        terms.push(stranger(draw));
        terms.push(other(draw));
        terms.push(object(draw, &list, None));
    }
    let body = container(draw, &terms.concat());
    table(draw, &body)
}

pub(super) fn text_of(table: &[u8]) -> String {
    let bytes: Vec<_> = table.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("ACPI table {}", bytes.concat())
}

/// Scopes so deep, with a device in the innermost.
fn deep(draw: &mut Draw, depth: u64, devices: &mut Vec<Described>) -> Vec<u8> {
    let mut body = device(draw, devices);
    for _ in 1..depth {
        body = container(draw, &body);
    }
    body
}

/// Packages below the table, for a device as deep as one may be.
const DEPTH_MAX: u64 = 16;

pub(super) fn whole(draw: &mut Draw) -> Result<(), String> {
    let mut devices = Vec::new();
    let body = match draw.percent(10) {
        true => {
            let depth = draw.within(DEPTH_MAX - 1..=DEPTH_MAX);
            deep(draw, depth, &mut devices)
        }
        false => scope(draw, 3, &mut devices).concat(),
    };
    let mut table = table(draw, &body);
    if draw.percent(10) {
        // What stands behind the table is none of it.
        table.extend(noise(draw, 9));
    }
    found_all(&|| text_of(&table), &devices, &from_acpi(&table))
}

/// One term that is wrong, and the error at its place.
fn wrong(draw: &mut Draw, at: usize) -> (Vec<u8>, Wrong) {
    let (described, resources) = resources::device(draw);
    let base = described.base;
    let cut = [&resources[..], &END].concat();
    let crs = match draw.below(12) {
        0 => {
            let opcode = *draw.pick(&[0x70, 0x02, 0x5c, 0x60, 0xa4, 0xfe]);
            return (vec![opcode], Wrong::Just(DiscoveryError::Aml(opcode, at)));
        }
        1 => {
            let opcode = *draw.pick(&[0x00, 0x13, 0x30, 0x88, 0xff]);
            return (vec![0x5b, opcode], Wrong::Just(DiscoveryError::Aml(opcode, at)));
        }
        2 => {
            let opcode = *draw.pick(&[0x02, 0x10, 0x5b, 0x60, 0x70, b'A']);
            let term = [b"\x08ABC0".as_slice(), &[opcode]].concat();
            return (term, Wrong::Just(DiscoveryError::Aml(opcode, at + 5)));
        }
        3 => {
            let letter = *draw.pick(b"a0 [`\x2d");
            return (vec![0x08, b'\\', b'^', letter], Wrong::Just(DiscoveryError::Aml(letter, at + 3)));
        }
        4 => {
            let missing = constant(draw, b"_HID", &text("LNRO0005"));
            let value = constant(draw, b"_CRS", &text("a method"));
            let content = if draw.percent(50) { missing } else { [missing, value].concat() };
            return (named(draw, &[0x5b, 0x82], b"VIR0", &content), Wrong::Table("_CRS"));
        }
        5 => {
            let bytes = if draw.percent(50) { REGISTERS_BYTES - 1 } else { draw.below(REGISTERS_BYTES) };
            let list = [memory(draw, base, bytes), vec![0x89, 6, 0, 1, 1, 5, 0, 0, 0], END.to_vec()].concat();
            return (object(draw, &list, None), Wrong::Just(DiscoveryError::Window(base, bytes)));
        }
        6 => {
            let (base, bytes) = (u64::MAX - 0xff, 0x100);
            let list = [memory(draw, base, bytes), vec![0x89, 6, 0, 1, 1, 5, 0, 0, 0], END.to_vec()].concat();
            return (object(draw, &list, None), Wrong::Just(DiscoveryError::Window(base, bytes)));
        }
        7 => {
            let list = [memory(draw, base, 0x200), vec![0x47, 1, 0, 3, 0, 3, 1, 8], END.to_vec()].concat();
            return (object(draw, &list, None), Wrong::Just(DiscoveryError::NoInterrupt(base)));
        }
        8 => {
            let list = [vec![0x89, 6, 0, 1, 1, 5, 0, 0, 0], END.to_vec()].concat();
            return (object(draw, &list, None), Wrong::Table("memory"));
        }
        9 => {
            let mut list = memory(draw, base, 0x200);
            for at in 0..=VECTORS_MAX {
                list.extend([0x89, 6, 0, 1, 1, at as u8, 0, 0, 0]);
            }
            list.extend(END);
            let many = DiscoveryError::Interrupts(VECTORS_MAX as usize + 1);
            return (object(draw, &list, None), Wrong::Just(many));
        }
        // Without its end tag; with a last descriptor that is too long.
        10 => resources,
        _ => cut[..cut.len() - 2].iter().copied().chain([0x89, 0x40, 0, 1, 1]).collect(),
    };
    let mut content = constant(draw, b"_HID", &text("LNRO0005"));
    let exact = [integer(draw, crs.len() as u64), crs].concat();
    let buffer = [vec![0x11], package(draw, &exact)].concat();
    content.extend(constant(draw, b"_CRS", &buffer));
    (named(draw, &[0x5b, 0x82], b"VIR0", &content), Wrong::Table("descriptor"))
}

/// The table as a whole is wrong.
fn wrong_table(draw: &mut Draw, table: &mut Vec<u8>) -> Wrong {
    match draw.below(6) {
        0 => {
            table.truncate(draw.below(36) as usize);
            Wrong::Table("shorter than its header")
        }
        1 => {
            table[..4].copy_from_slice(*draw.pick(&[b"FACP", b"dsdt", b"RSDT", b"SSDU"]));
            sum(table);
            Wrong::Table("neither")
        }
        2 => {
            table[4..8].copy_from_slice(&(draw.below(36) as u32).to_le_bytes());
            Wrong::Table("shorter than its header")
        }
        3 => {
            let more = table.len() as u32 + draw.within(1..=100) as u32;
            table[4..8].copy_from_slice(&more.to_le_bytes());
            Wrong::Table("shorter than it says")
        }
        _ => {
            let at = draw.within(8..=table.len() as u64 - 1) as usize;
            table[at] ^= 1 << draw.below(8);
            Wrong::Table("checksum")
        }
    }
}

pub(super) fn damaged(draw: &mut Draw) -> Result<(), String> {
    let mut devices = Vec::new();
    match draw.below(10) {
        0 => {
            let depth = draw.within(DEPTH_MAX + 1..=DEPTH_MAX + 3);
            let body = deep(draw, depth, &mut devices);
            let table = table(draw, &body);
            Wrong::Table("deep").came(&|| text_of(&table), &from_acpi(&table))
        }
        1 | 2 => {
            let body = scope(draw, 1, &mut devices).concat();
            let mut table = table(draw, &body);
            let wrong = wrong_table(draw, &mut table);
            wrong.came(&|| text_of(&table), &from_acpi(&table))
        }
        3 | 4 => cut(draw),
        5 => {
            let mut body = scope(draw, 2, &mut devices).concat();
            for _ in 0..draw.within(1..=4) {
                let at = draw.below(body.len() as u64) as usize;
                body[at] = draw.below(256) as u8;
            }
            plausible(&from_acpi(&table(draw, &body)))
        }
        _ => {
            let mut body = scope(draw, 1, &mut devices).concat();
            let (term, wrong) = wrong(draw, body.len());
            body.extend(term);
            body.extend(scope(draw, 1, &mut devices).concat());
            let table = table(draw, &body);
            wrong.came(&|| text_of(&table), &from_acpi(&table))
        }
    }
}

/// A table that ends within a term, whose length and checksum are those of what is left: an error; between two: the devices
/// up to there.
fn cut(draw: &mut Draw) -> Result<(), String> {
    let mut devices = Vec::new();
    let mut body = Vec::new();
    for _ in 0..draw.below(3) {
        body.extend(device(draw, &mut devices));
    }
    let between = draw.percent(30);
    if !between {
        let term = match draw.below(4) {
            0 => {
                let content = device(draw, &mut Vec::new());
                container(draw, &content)
            }
            1 => device(draw, &mut Vec::new()),
            2 => [vec![0x15], name(draw, b"VIR9"), vec![6, 0]].concat(),
            _ => [vec![0x5b, 0x01], name(draw, b"MUT0"), vec![0]].concat(),
        };
        let kept = draw.within(1..=term.len() as u64 - 1) as usize;
        body.extend(&term[..kept]);
    }
    let table = table(draw, &body);
    let found = from_acpi(&table);
    match between {
        true => found_all(&|| text_of(&table), &devices, &found),
        false => Wrong::End.came(&|| text_of(&table), &found),
    }
}
