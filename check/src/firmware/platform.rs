//! The description of a platform whose devices are known, as its kernel would find it.

use super::described::{Described, found_all};
use super::{command_line, namespace, tree};
use crate::draw::Draw;
use drivers::virtio::discovery::{MmioDevice, from_acpi, from_command_line, from_device_tree};

/// Forms of a description.
pub(crate) const FORMS: [&str; 3] = ["command-line", "device-tree", "acpi"];

/// A device of a platform: address and length of its registers, the first of its interrupts and how many there are, and
/// whether they are edges.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wired {
    pub(crate) base: u64,
    pub(crate) size_bytes: u64,
    pub(crate) first: u32,
    pub(crate) count: u32,
    pub(crate) edge: bool,
}

/// Describes these devices in this form, with neighbours, and finds them again. The error says what else was found.
pub(crate) fn find(draw: &mut Draw, form: usize, devices: &[Wired]) -> Result<Vec<MmioDevice>, String> {
    // A command line says nothing of triggers.
    let edge = |device: &Wired| (form > 0).then_some(device.edge);
    let described: Vec<_> = devices
        .iter()
        .map(|device| Described {
            base: device.base,
            size_bytes: device.size_bytes,
            lines: (device.first..device.first + device.count).map(|number| (number, edge(device))).collect(),
            id: None,
        })
        .collect();
    let (text, found) = match form {
        0 => {
            let text = command_line::platform(draw, &described);
            let found = from_command_line(&text);
            (text, found)
        }
        1 => {
            let blob = tree::platform(draw, &described);
            (tree::text(&blob), from_device_tree(&blob))
        }
        _ => {
            let table = namespace::platform(draw, &described);
            (namespace::text_of(&table), from_acpi(&table))
        }
    };
    found_all(&|| text.clone(), &described, &found)?;
    found.map_err(|error| error.to_string())
}
