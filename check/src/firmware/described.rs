//! A virtio-mmio device as it is described, and the comparison with what was found.

use crate::draw::Draw;
use crate::trials::{differs, same};
use drivers::virtio::discovery::{DiscoveryError, Line, MmioDevice, Trigger};
use drivers::virtio::{MmioConfig, RegisterWrites};

/// Most interrupts of a device, of the extension for several (MULTI_IRQ 2).
pub(super) const VECTORS_MAX: u32 = 2048;
/// Least bytes of its registers: up to the configuration (VIRTIO 4.2.2).
pub(super) const REGISTERS_BYTES: u64 = 0x100;

/// A device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Described {
    pub(super) base: u64,
    pub(super) size_bytes: u64,
    /// Number of each, and whether it is an edge.
    pub(super) lines: Vec<(u32, Option<bool>)>,
    pub(super) id: Option<u32>,
}

/// A number with bits in all places, below `1 << bits`.
pub(super) fn wide(draw: &mut Draw, bits: u32) -> u64 {
    let bits = draw.within(1..=u64::from(bits));
    draw.below(1 << bits.min(63)) | 1 << (bits - 1).min(62)
}

impl Described {
    fn device(&self) -> MmioDevice {
        let line = |&(number, edge): &(u32, Option<bool>)| Line {
            number,
            trigger: edge.map(|edge| if edge { Trigger::Edge } else { Trigger::Level }),
        };
        let lines = self.lines.iter().map(line).collect();
        MmioDevice { base: self.base, size_bytes: self.size_bytes, lines, id: self.id }
    }
}

/// Exactly these were found, and each can be brought up as it was described.
pub(super) fn found_all(
    text: &dyn Fn() -> String,
    expected: &[Described],
    found: &Result<Vec<MmioDevice>, DiscoveryError>,
) -> Result<(), String> {
    let devices: Vec<_> = expected.iter().map(Described::device).collect();
    if found.as_ref() != Ok(&devices) {
        return Err(differs(&text(), &devices, found));
    }
    devices.iter().try_for_each(|device| {
        let interrupts = device.lines.len() as u16;
        let config = MmioConfig { interrupts, shared_lines: false, writes: RegisterWrites::Posted };
        same("configuration", &config, &device.config())
    })
}

/// Whatever came of bytes that nobody wrote, a device is one that can be.
pub(super) fn plausible(found: &Result<Vec<MmioDevice>, DiscoveryError>) -> Result<(), String> {
    let devices = match found {
        Ok(devices) => devices,
        Err(error) => return said(error),
    };
    let wrong = devices.iter().find(|device| {
        let few = device.lines.is_empty() || device.lines.len() > VECTORS_MAX as usize;
        few || device.size_bytes < REGISTERS_BYTES || device.base.checked_add(device.size_bytes).is_none()
    });
    wrong.map_or(Ok(()), |device| Err(format!("a damaged description gave {device:x?}")))
}

/// An error has a text of its own.
fn said(error: &DiscoveryError) -> Result<(), String> {
    let text = error.to_string();
    let number = |value: u64| text.contains(&value.to_string()) || text.contains(&format!("{value:#x}"));
    let names = match *error {
        DiscoveryError::Syntax(ref of, what) => text.contains(of.as_str()) && text.contains(what),
        DiscoveryError::InterruptZero => number(0),
        DiscoveryError::Backwards(first, last) => number(first.into()) && number(last.into()),
        DiscoveryError::Interrupts(count) => number(count as u64),
        DiscoveryError::NoInterrupt(base) => number(base),
        DiscoveryError::Window(base, bytes) => number(base) && number(bytes),
        DiscoveryError::DeviceTree(what) | DiscoveryError::Table(what) => text.contains(what),
        DiscoveryError::Aml(opcode, at) => text.contains(&format!("{opcode:#04x}")) && number(at as u64),
        DiscoveryError::AmlEnd(at) => number(at as u64),
    };
    if names { Ok(()) } else { Err(format!("{error:x?} says only \"{text}\"")) }
}

/// An error of the expected kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Wrong {
    /// Just this.
    Just(DiscoveryError),
    /// A syntax error in this text, whose reason names this.
    Syntax(String, &'static str),
    /// An error of a device tree whose reason names this.
    Tree(&'static str),
    /// An error of a table whose reason names this.
    Table(&'static str),
    /// AML ends in an object that begins at or before this byte, in a table of such a length.
    End,
}

impl Wrong {
    /// The error came.
    pub(super) fn came(
        &self,
        text: &dyn Fn() -> String,
        found: &Result<Vec<MmioDevice>, DiscoveryError>,
    ) -> Result<(), String> {
        let fits = match (self, found) {
            (Self::Just(expected), Err(error)) => error == expected,
            (Self::Syntax(of, part), Err(DiscoveryError::Syntax(text, what))) => of == text && what.contains(part),
            (Self::Tree(part), Err(DiscoveryError::DeviceTree(what)))
            | (Self::Table(part), Err(DiscoveryError::Table(what))) => what.contains(part),
            (Self::End, Err(DiscoveryError::AmlEnd(_))) => true,
            _ => false,
        };
        if !fits {
            return Err(differs(&text(), self, found));
        }
        found.as_ref().err().map_or(Ok(()), said)
    }
}
