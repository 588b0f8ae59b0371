//! A kernel's command line (Linux Documentation/admin-guide/kernel-parameters.txt, `virtio_mmio.device`).

use super::described::{Described, REGISTERS_BYTES, VECTORS_MAX, Wrong, found_all, wide};
use crate::draw::Draw;
use drivers::virtio::discovery::{DiscoveryError, from_command_line};

/// Parameters that name no such device.
const OTHERS: [&str; 10] = [
    "quiet",
    "ro",
    "console=ttyS0,115200",
    "virtio_mmio.device",
    "virtio_mmio.devices=512@4096:5",
    "xvirtio_mmio.device=512@4096:5",
    "virtio_mmio_device=512@4096:5",
    "virtio-mmio.devicf=512@4096:5",
    "root=/dev/vda=1",
    "=512@4096:5",
];

/// A number as a user may write it: decimal, hexadecimal or octal.
fn number(draw: &mut Draw, value: u64) -> String {
    match draw.below(5) {
        0 => format!("{value:#x}"),
        1 => format!("0X{value:X}"),
        2 => format!("0{value:o}"),
        _ => value.to_string(),
    }
}

/// A size, and one of the ways to write it. The suffixes are powers of 1024.
fn size(draw: &mut Draw) -> (u64, String) {
    let power = if draw.percent(50) { 0 } else { draw.within(1..=5) as u32 };
    let (suffix, bits) = (["", "K", "M", "G", "T", "P"][power as usize], 44 - 6 * power.min(6));
    let least = if power == 0 { REGISTERS_BYTES } else { 1 };
    let most = if power > 3 { 64 } else { 1 << bits.min(20) };
    let count = if draw.percent(20) { least } else { draw.within(least..=most.max(least)) };
    let suffix = if draw.percent(30) { suffix.to_lowercase() } else { suffix.into() };
    (count << (10 * power), number(draw, count) + &suffix)
}

/// A device and its parameter's value: size, address, interrupts, id.
fn device(draw: &mut Draw) -> (Described, [String; 4]) {
    let (size_bytes, size_text) = size(draw);
    let base = if draw.percent(10) { u64::MAX - size_bytes } else { wide(draw, 48) };
    let first = if draw.percent(20) { 1 } else { draw.within(1..=5_000) as u32 };
    let count = match draw.below(40) {
        0 => VECTORS_MAX,
        1..20 => 1,
        _ => draw.within(1..=9) as u32,
    };
    let last = first + count - 1;
    let mut lines = number(draw, first.into());
    if count > 1 || draw.percent(30) {
        lines += &format!("-{}", number(draw, last.into()));
    }
    let id = draw.percent(40).then(|| wide(draw, 32) as u32);
    let id_text = id.map_or_else(String::new, |id| format!(":{}", number(draw, id.into())));
    let numbers = (first..=last).map(|number| (number, None)).collect();
    (Described { base, size_bytes, lines: numbers, id }, [size_text, number(draw, base), lines, id_text])
}

fn value([size, base, lines, id]: &[String; 4]) -> String {
    format!("{size}@{base}:{lines}{id}")
}

/// A line of these parameters, with others between them.
fn line(draw: &mut Draw, values: &[String]) -> String {
    let mut text = String::new();
    for value in values {
        while draw.percent(40) {
            text += &format!("{} ", draw.pick(&OTHERS));
        }
        let name = draw.pick(&["virtio_mmio.device", "virtio-mmio.device"]);
        text += &format!("{name}={value}{}", draw.pick(&[" ", "  ", "\t", "\n"]));
    }
    text + *draw.pick(&["", "debug"])
}

/// A line that names these devices, whose interrupts follow each other.
pub(super) fn platform(draw: &mut Draw, devices: &[Described]) -> String {
    let value = |draw: &mut Draw, device: &Described| {
        let (first, count) = (device.lines[0].0, device.lines.len() as u32);
        let last = if count > 1 { format!("-{}", first + count - 1) } else { String::new() };
        format!("{}@{}:{first}{last}", number(draw, device.size_bytes), number(draw, device.base))
    };
    let values: Vec<_> = devices.iter().map(|device| value(draw, device)).collect();
    line(draw, &values)
}

pub(super) fn whole(draw: &mut Draw) -> Result<(), String> {
    let (devices, values): (Vec<_>, Vec<_>) = (0..draw.below(5)).map(|_| device(draw)).unzip();
    let values: Vec<_> = values.iter().map(value).collect();
    let text = line(draw, &values);
    found_all(&|| format!("{text:?}"), &devices, &from_command_line(&text))
}

/// Texts that are no numbers.
const NO_NUMBERS: [&str; 8] = ["", "x", "+5", "-5", "0x", "09", "5x", "18446744073709551616"];

/// One wrong device: what is wrong with it.
fn wrong(draw: &mut Draw) -> (String, Wrong) {
    let (device, mut parts) = device(draw);
    let no_number = (*draw.pick(&NO_NUMBERS)).to_owned();
    let (first, size_bytes) = (device.lines[0].0, device.size_bytes);
    let part = match draw.below(14) {
        0 => {
            parts[0] = if draw.percent(80) { no_number } else { (*draw.pick(&["16E", "K", "9q", "32e"])).into() };
            "size"
        }
        1 => {
            parts[1] = no_number;
            "address"
        }
        2 => {
            let texts = ["", "x", "+5", "0x", "08", "4294967296", "5x", "0x100000000"];
            parts[2] = (*draw.pick(&texts)).into();
            "interrupt"
        }
        3 => {
            parts[2] = format!("{first}-{}", draw.pick(&["", "x", "+9", "4294967296", "7-8"]));
            "last"
        }
        4 => {
            parts[3] = format!(":{}", draw.pick(&["", "x", "1:2", "-1", "4294967296"]));
            "id"
        }
        5 => {
            let text = value(&parts).replace('@', "");
            return (text.clone(), Wrong::Syntax(text, "@"));
        }
        6 => {
            let text = format!("{}@{}", parts[0], parts[1]);
            return (text.clone(), Wrong::Syntax(text, ":"));
        }
        7 | 8 => {
            parts[2] = (*draw.pick(&["0", "0-4", "0x0", "00", "0-0"])).into();
            return (value(&parts), Wrong::Just(DiscoveryError::InterruptZero));
        }
        9 => {
            let last = draw.within(0..=u64::from(first) - 1) as u32;
            parts[2] = format!("{first}-{last}");
            return (value(&parts), Wrong::Just(DiscoveryError::Backwards(first, last)));
        }
        10 => {
            let more = if draw.percent(50) { VECTORS_MAX } else { draw.within(VECTORS_MAX.into()..=100_000) as u32 };
            parts[2] = format!("{first}-{}", first + more);
            return (value(&parts), Wrong::Just(DiscoveryError::Interrupts(more as usize + 1)));
        }
        11 => {
            let bytes = if draw.percent(50) { REGISTERS_BYTES - 1 } else { draw.below(REGISTERS_BYTES) };
            let base = device.base.min(1 << 48);
            (parts[0], parts[1]) = (bytes.to_string(), number(draw, base));
            return (value(&parts), Wrong::Just(DiscoveryError::Window(base, bytes)));
        }
        _ => {
            let base = u64::MAX - draw.below(size_bytes - 1);
            parts[1] = number(draw, base);
            return (value(&parts), Wrong::Just(DiscoveryError::Window(base, size_bytes)));
        }
    };
    let text = value(&parts);
    (text.clone(), Wrong::Syntax(text, part))
}

/// The first that is wrong is told, whatever comes behind it.
pub(super) fn damaged(draw: &mut Draw) -> Result<(), String> {
    if draw.percent(10) {
        let letters = ["1", "0x", "f", "@", ":", "-", "K", "é", "=", "8", "virtio_mmio.device=", " "];
        let text: String = (0..draw.below(24)).map(|_| *draw.pick(&letters)).collect();
        return super::described::plausible(&from_command_line(&format!("virtio_mmio.device={text}")));
    }
    let mut values: Vec<_> = (0..draw.below(3)).map(|_| value(&device(draw).1)).collect();
    let (text, wrong) = wrong(draw);
    values.push(text);
    values.extend((0..draw.below(2)).map(|_| self::wrong(draw).0));
    let text = line(draw, &values);
    wrong.came(&|| format!("{text:?}"), &from_command_line(&text))
}
