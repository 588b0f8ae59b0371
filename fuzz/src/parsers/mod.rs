//! Everything that is read from users and firmware: an error or a value, and what can be written is read back.

mod discovery;
mod lab;

pub(crate) use discovery::{acpi, command_line, device_tree, pci};
pub(crate) use lab::{fio, platform, scenario};
