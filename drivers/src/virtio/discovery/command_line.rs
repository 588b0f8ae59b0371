//! `virtio_mmio.device=<size>@<base>:<irq>[-<last>][:<id>]` (Linux Documentation/admin-guide/kernel-parameters.txt;
//! `-<last>` is of the virtio-mmio series of 2023).

use super::{DiscoveryError, Line, MmioDevice};
use alloc::borrow::ToOwned;
use alloc::vec::Vec;
use spec::virtio::mmio::VECTORS_MAX;

/// The devices that a kernel's command line names, in its order. Other parameters are passed over; `-` and `_` are the
/// same in a parameter's name.
///
/// # Errors
/// The first that is wrong.
pub fn from_command_line(text: &str) -> Result<Vec<MmioDevice>, DiscoveryError> {
    let values = text.split_ascii_whitespace().filter_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        let same = name.len() == NAME.len()
            && name.bytes().map(|byte| if byte == b'-' { b'_' } else { byte }).eq(NAME.bytes());
        same.then_some(value)
    });
    values.map(device).collect()
}

const NAME: &str = "virtio_mmio.device";

fn device(text: &str) -> Result<MmioDevice, DiscoveryError> {
    let wrong = |what| DiscoveryError::Syntax(text.to_owned(), what);
    let (size, rest) = text.split_once('@').ok_or(wrong("no `@`"))?;
    let (base, rest) = rest.split_once(':').ok_or(wrong("no `:` behind the address"))?;
    let (lines, id) = rest.split_once(':').map_or((rest, None), |(lines, id)| (lines, Some(id)));
    let (first, last) = lines.split_once('-').map_or((lines, lines), |(first, last)| (first, last));
    let number = |text: &str, what| number(text).and_then(|value| u32::try_from(value).ok()).ok_or(wrong(what));
    let (first, last) = (number(first, "wrong interrupt")?, number(last, "wrong last interrupt")?);
    let device = MmioDevice {
        size_bytes: size_bytes(size).ok_or(wrong("wrong size"))?,
        base: self::number(base).ok_or(wrong("wrong address"))?,
        lines: lines_of(first, last)?,
        id: id.map(|id| number(id, "wrong id")).transpose()?,
    };
    device.checked()
}

fn lines_of(first: u32, last: u32) -> Result<Vec<Line>, DiscoveryError> {
    if first == 0 {
        return Err(DiscoveryError::InterruptZero);
    }
    if first > last {
        return Err(DiscoveryError::Backwards(first, last));
    }
    if last - first >= VECTORS_MAX {
        return Err(DiscoveryError::Interrupts((last - first) as usize + 1));
    }
    Ok((first..=last).map(|number| Line { number, trigger: None }).collect())
}

/// A number as strtoull(…, 0) reads it: 0x hexadecimal, 0 octal, else decimal.
fn number(text: &str) -> Option<u64> {
    let lower = |prefix: &str| text.get(..2).is_some_and(|start| start.eq_ignore_ascii_case(prefix));
    let (digits, radix) = match text {
        _ if lower("0x") => (&text[2..], 16),
        _ if text.len() > 1 && text.starts_with('0') => (&text[1..], 8),
        _ => (text, 10),
    };
    // `from_str_radix` takes a sign.
    if digits.starts_with(['+', '-']) { None } else { u64::from_str_radix(digits, radix).ok() }
}

/// As Linux's memparse: a number, and one of K, M, G, T, P, E in either case.
fn size_bytes(text: &str) -> Option<u64> {
    let (digits, power) = match text.char_indices().next_back() {
        // In a hexadecimal number E is a digit; memparse takes it as one too.
        Some((_, 'e' | 'E')) if text.len() > 2 && text[..2].eq_ignore_ascii_case("0x") => (text, 0),
        Some((at, suffix)) => match "KMGTPE".find(suffix.to_ascii_uppercase()) {
            Some(power) => (&text[..at], power as u32 + 1),
            None => (text, 0),
        },
        None => return None,
    };
    number(digits)?.checked_mul(1 << (10 * power))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::format;
    use std::string::ToString;
    use std::vec;

    fn one(text: &str) -> Result<MmioDevice, DiscoveryError> {
        from_command_line(&format!("quiet virtio_mmio.device={text} ro")).map(|devices| devices[0].clone())
    }

    #[test]
    fn literal_parameters() {
        let device = one("0x200@0xd0000000:40-47:3").expect("valid");
        assert_eq!((device.base, device.size_bytes, device.id), (0xd000_0000, 512, Some(3)));
        let numbers: Vec<_> = device.lines.iter().map(|line| line.number).collect();
        assert_eq!(numbers, vec![40, 41, 42, 43, 44, 45, 46, 47]);
        let device = one("4K@0x1e000000:74").expect("valid, as today");
        assert_eq!((device.size_bytes, device.lines.len(), device.id), (4096, 1, None));
        assert_eq!(one("1m@010000000:5-5").map(|device| (device.base, device.size_bytes)), Ok((0o10000000, 1 << 20)));
        let two = from_command_line("virtio_mmio.device=512@4096:1 virtio-mmio.device=512@8192:2-3:7");
        assert_eq!(two.map(|devices| devices.len()), Ok(2));
    }

    #[test]
    fn what_is_wrong_is_said() {
        assert_eq!(one("512@0xd0000000:0"), Err(DiscoveryError::InterruptZero));
        assert_eq!(one("512@0xd0000000:0-4"), Err(DiscoveryError::InterruptZero));
        assert_eq!(one("512@0xd0000000:9-8"), Err(DiscoveryError::Backwards(9, 8)));
        assert_eq!(one("512@0xd0000000:1-4294967295"), Err(DiscoveryError::Interrupts(4_294_967_295)));
        assert_eq!(one("1K@0xffffffffffffff00:5"), Err(DiscoveryError::Window(0xffff_ffff_ffff_ff00, 1024)));
        assert_eq!(one("64@0xd0000000:5"), Err(DiscoveryError::Window(0xd000_0000, 64)));
        for text in [
            "",
            "512",
            "512@4096",
            "@4096:5",
            "512@:5",
            "512@4096:",
            "512@4096:5-",
            "512@4096:5-6:",
            "512@4096:5x",
            "512@4096:+5",
            "512@4096:-5",
            "16E@4096:5",
            "32E@4096:5",
            "512@4096:5:6:7",
            "09@4096:5",
        ] {
            assert!(matches!(one(text), Err(DiscoveryError::Syntax(..))), "{text}");
        }
        assert_eq!(
            one("512@0xd0000000").unwrap_err().to_string(),
            "`512@0xd0000000`: no `:` behind the address; valid is <size>@<base>:<irq>[-<last>][:<id>]"
        );
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(base in 0u64..1 << 48, size in 0x100u64..1 << 32, irq in 1u32..5000, more in 0u32..2048, id: u32) {
            let device = one(&format!("{size}@{base:#x}:{irq}-{}:{id}", irq + more)).expect("valid");
            prop_assert_eq!((device.base, device.size_bytes, device.id), (base, size, Some(id)));
            prop_assert_eq!(device.lines.len(), more as usize + 1);
            prop_assert_eq!(device.lines.last().map(|line| line.number), Some(irq + more));
        }

        #[test]
        fn arbitrary_text_never_panics(text in "\\PC*", value in "[0-9a-fxKMGTPE@:\\-+é]*") {
            let _ = from_command_line(&text);
            let _ = one(&value);
        }
    }
}
