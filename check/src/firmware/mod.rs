//! Firmware: what it and hardware declare, whole and damaged. Whole descriptions give exactly what was described; damaged
//! ones give an error of the right kind, or a part that is right, and never a panic. The descriptions are written here,
//! from the standards, by code that shares nothing with the readers.

mod aml;
mod answers;
mod command_line;
mod described;
mod fdt;
mod function;
mod identity;
mod namespace;
pub(crate) mod platform;
mod posting;
mod regs;
mod resources;
mod structures;
mod timers;
mod tree;

use crate::trials::{Trial, Trials};

/// Descriptions.
pub static FIRMWARE: &Trials = &Trials {
    name: "firmware",
    about: "what firmware and hardware declare, whole and damaged: devices, interrupts, capabilities",
    list: &[
        Trial { name: "command line", run: command_line::whole },
        Trial { name: "command line, damaged", run: command_line::damaged },
        Trial { name: "device tree", run: tree::whole },
        Trial { name: "device tree, damaged", run: tree::damaged },
        Trial { name: "ACPI table", run: namespace::whole },
        Trial { name: "ACPI table, damaged", run: namespace::damaged },
        Trial { name: "PCI capabilities", run: function::capabilities },
        Trial { name: "MSI-X table", run: function::table },
        Trial { name: "virtio structures", run: structures::structures },
        Trial { name: "HPET timers", run: timers::timers },
        Trial { name: "NVMe controller", run: identity::controller },
        Trial { name: "posting block", run: posting::posting },
    ],
    names: &[
        "command line",
        "command line, damaged",
        "device tree",
        "device tree, damaged",
        "ACPI table",
        "ACPI table, damaged",
        "PCI capabilities",
        "MSI-X table",
        "virtio structures",
        "HPET timers",
        "NVMe controller",
        "posting block",
    ],
};

#[cfg(test)]
mod tests {
    #[test]
    fn every_trial_passes() {
        crate::trials::often(super::FIRMWARE, 3_000);
    }
}
