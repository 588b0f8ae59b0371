//! Parsers of input from users and firmware: each returns an error or a value; a value that can be written is read
//! back.

mod discovery;
mod import;
mod lab;

pub(crate) use discovery::{acpi, command_line, device_tree, pci};
pub(crate) use import::{import_archive, import_cpu_time, import_fio_json, import_interrupts};
pub(crate) use lab::{fio, platform, scenario, sweep};
