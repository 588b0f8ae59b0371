//! The plugin that counts the instructions of interrupts by their handlers (`qemu/plugin/gates.rs`).

use crate::{BootError, plugin, symbols};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The addresses that the plugin asks for.
#[derive(Clone, Debug)]
pub(super) struct Addresses {
    /// First gate, end, and their distance.
    pub(super) gates: (u64, u64, u64),
    /// First instruction of the drive's handler.
    pub(super) handler: u64,
    /// Where the local APIC's registers are mapped: first address and end.
    pub(super) apic: (u64, u64),
}

/// Our image maps memory one to one (SDM vol. 3, 11.4.1).
const APIC: (u64, u64) = (0xfee0_0000, 0xfee0_1000);
/// Linux maps the registers somewhere among its fixed pages, with those of I/O APICs, which have nothing at the place of EOI
/// (Documentation/arch/x86/x86_64/mm.rst; asm/fixmap.h).
const FIXED_PAGES: (u64, u64) = (0xffff_ffff_ff00_0000, 0xffff_ffff_ff80_0000);

/// The notification vector, the same in both systems (Linux: POSTED_MSI_NOTIFICATION_VECTOR).
const NOTIFICATION: u64 = 0xeb;
/// The first vector of devices.
const FIRST: u64 = 0x20;
/// The first vector of this project's system vectors.
const SYSTEM: u64 = 0xe0;
/// In our image: bytes of the descriptor table before the gates' code, and of one gate's code.
const TABLE: u64 = 4096;
const CODE: u64 = 16;

/// Addresses of our image.
///
/// # Errors
/// [`BootError::Io`] if a symbol is missing.
pub(super) fn of_image(file: &Path, posted: bool) -> Result<Addresses, BootError> {
    let code = symbols::address(file, &["gates", "GATES"])? + TABLE;
    let handler = symbols::address(file, &["QueuePair", "Action", "handle17h"])?;
    let gate = |vector: u64| code + CODE * vector;
    let gates =
        if posted { (gate(NOTIFICATION), gate(NOTIFICATION) + 1, 1) } else { (gate(FIRST), gate(SYSTEM), CODE) };
    Ok(Addresses { gates, handler, apic: APIC })
}

/// Addresses of Linux, from its `System.map`.
///
/// # Errors
/// [`BootError::Io`] if a symbol is missing.
pub(super) fn of_linux(map: &Path, posted: bool) -> Result<Addresses, BootError> {
    let io = |error| BootError::Io(map.display().to_string(), error);
    let text = std::fs::read_to_string(map).map_err(io)?;
    let address = |name: &str| {
        let line = text.lines().find(|line| line.rsplit(' ').next() == Some(name));
        let address = line.and_then(|line| u64::from_str_radix(line.split(' ').next()?, 16).ok());
        address.ok_or_else(|| io(std::io::Error::other(format!("no symbol {name}"))))
    };
    let handler = address("nvme_irq")?;
    let gates = if posted {
        let gate = address("asm_sysvec_posted_msi_notification")?;
        (gate, gate + 1, 1)
    } else {
        let (first, end) = (address("irq_entries_start")?, address("spurious_entries_start")?);
        (first, end, (end - first) / (NOTIFICATION - FIRST))
    };
    Ok(Addresses { gates, handler, apic: FIXED_PAGES })
}

/// The built plugin.
pub(super) struct GatesPlugin {
    file: PathBuf,
    _folder: tempfile::TempDir,
}

impl GatesPlugin {
    /// Builds it.
    ///
    /// # Errors
    /// [`BootError`].
    pub(super) fn build() -> Result<Self, BootError> {
        let folder = tempfile::tempdir().map_err(|error| BootError::Io("a temporary folder".into(), error))?;
        let file = folder.path().join("gates.so");
        plugin::compile("qemu/plugin/gates.rs", &file)?;
        Ok(Self { file, _folder: folder })
    }

    /// QEMU's argument for it.
    pub(super) fn argument(&self, addresses: &Addresses, to: &Path) -> String {
        let Addresses { gates: (first, end, step), handler, apic: (eoi, eoi_end) } = addresses;
        let (plugin, to) = (self.file.display(), to.display());
        format!("{plugin},gates={first:x}:{end:x}:{step:x},handler={handler:x},eoi={eoi:x}:{eoi_end:x},to={to}")
    }
}

/// Averages over the interrupts with one number of handlers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Average {
    pub(super) interrupts: u64,
    pub(super) to_eoi: f64,
    pub(super) all: f64,
}

/// The plugin's result, by the number of handlers.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Gates(BTreeMap<u64, Average>);

impl Gates {
    /// Reads the plugin's output; none if it is not in the plugin's form.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut gates = BTreeMap::new();
        for line in text.lines() {
            let (word, numbers) = line.split_once(' ')?;
            let numbers: Vec<u64> = numbers.split(' ').map(str::parse).collect::<Result<_, _>>().ok()?;
            match (word, &numbers[..]) {
                ("ran", &[handlers, interrupts, to_eoi, all]) if interrupts > 0 => {
                    let each = |sum: u64| sum as f64 / interrupts as f64;
                    gates.insert(handlers, Average { interrupts, to_eoi: each(to_eoi), all: each(all) });
                }
                ("odd", [_]) => {}
                _ => return None,
            }
        }
        Some(Self(gates))
    }

    pub(super) fn at(&self, handlers: u64) -> Option<Average> {
        self.0.get(&handlers).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plugins_output_is_read() {
        let gates = Gates::parse("ran 1 2 200 240\nran 4 1 400 420\nodd 3\n").expect("the plugin's form");
        assert_eq!(gates.at(1), Some(Average { interrupts: 2, to_eoi: 100.0, all: 120.0 }));
        assert_eq!(gates.at(2), None);
        assert_eq!(Gates::parse("ran 1 2 200\n"), None);
        assert_eq!(Gates::parse("ran 1 many 2 3\n"), None);
    }

    #[test]
    fn linux_gates_are_found_by_name() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let map = folder.path().join("System.map");
        let text = "ffffffff81600140 T irq_entries_start\nffffffff81600df0 T spurious_entries_start\n\
                    ffffffff8132a160 t nvme_irq\nffffffff81601550 T asm_sysvec_posted_msi_notification\n";
        std::fs::write(&map, text).expect("a file");
        let remapped = of_linux(&map, false).expect("all symbols");
        assert_eq!(remapped.gates, (0xffff_ffff_8160_0140, 0xffff_ffff_8160_0df0, 16));
        assert_eq!(of_linux(&map, true).expect("all symbols").gates.0, 0xffff_ffff_8160_1550);
        std::fs::write(&map, text.replace("nvme_irq", "other")).expect("a file");
        assert!(of_linux(&map, true).is_err());
    }
}
