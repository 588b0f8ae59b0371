//! The counting plugin (`qemu/plugin/count.rs`), and its results.

use crate::{BootError, pinned};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The built plugin.
pub(crate) struct Plugin {
    file: PathBuf,
    folder: tempfile::TempDir,
}

/// Builds the plugin of a source file as a shared library.
///
/// # Errors
/// [`BootError`].
pub(crate) fn compile(source: &str, file: &Path) -> Result<(), BootError> {
    let mut rustc = Command::new("rustc");
    rustc.current_dir(pinned::sources()).args(["--edition", "2024", "-O", "-C", "panic=abort", "-C", "strip=symbols"]);
    rustc.args(["--crate-type", "cdylib", "-o"]).arg(file).arg(source);
    let output = rustc.output().map_err(|error| BootError::Io("rustc".into(), error))?;
    if output.status.success() {
        return Ok(());
    }
    Err(BootError::Build(String::from_utf8_lossy(&output.stderr).into()))
}

/// The gate that stands for instructions outside interrupts.
pub(crate) const OUTSIDE: u64 = 0;

/// Instructions between two marks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Instructions {
    /// How many interrupts came through each gate.
    pub(crate) interrupts: HashMap<u64, u64>,
    /// By gate: writes of the EOI register, and the instructions from the gate to them.
    ends: HashMap<u64, (u64, u64)>,
    /// How often the instruction at an address ran in interrupts of a gate; with [`OUTSIDE`], outside interrupts.
    times: HashMap<u64, HashMap<u64, u64>>,
}

impl Plugin {
    /// Builds the plugin.
    ///
    /// # Errors
    /// [`BootError`].
    pub(crate) fn build() -> Result<Self, BootError> {
        let folder = tempfile::tempdir().map_err(|error| BootError::Io("a temporary folder".into(), error))?;
        let file = folder.path().join("count.so");
        compile("qemu/plugin/count.rs", &file)?;
        Ok(Self { file, folder })
    }

    /// Makes QEMU load the plugin, and count time in instructions, so that runs repeat.
    pub(crate) fn load(&self, qemu: &mut Command) {
        qemu.args(["-icount", "shift=0,sleep=off", "-plugin"]);
        qemu.arg(format!("{},to={}", self.file.display(), self.output().display()));
    }

    /// The plugin's counts of the run that has just ended, for each pair of marks in order.
    ///
    /// # Errors
    /// The plugin has left no readable file.
    pub(crate) fn counted(&self) -> Result<Vec<Instructions>, BootError> {
        read(&self.output()).map_err(|error| BootError::Io("the plugin's output".into(), error))
    }

    fn output(&self) -> PathBuf {
        self.folder.path().join("counted")
    }
}

fn read(path: &Path) -> std::io::Result<Vec<Instructions>> {
    let text = std::fs::read_to_string(path)?;
    std::fs::remove_file(path)?;
    parse(&text).ok_or_else(|| std::io::Error::other("it is not in the plugin's form"))
}

pub(crate) fn parse(text: &str) -> Option<Vec<Instructions>> {
    let hex = |word| u64::from_str_radix(word, 16).ok();
    let mut all = Vec::new();
    let mut counted = Instructions::default();
    for line in text.lines() {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["path", gate, count] => _ = counted.interrupts.insert(hex(gate)?, count.parse().ok()?),
            ["eoi", gate, writes, count] => {
                _ = counted.ends.insert(hex(gate)?, (writes.parse().ok()?, count.parse().ok()?));
            }
            ["at", gate, address, count] => {
                counted.times.entry(hex(gate)?).or_default().insert(hex(address)?, count.parse().ok()?);
            }
            ["end"] => all.push(std::mem::take(&mut counted)),
            _ => return None,
        }
    }
    Some(all)
}

impl Instructions {
    /// Instructions of interrupts through `gate`, at addresses that are `wanted`.
    pub(crate) fn in_interrupts(&self, gate: u64, wanted: impl Fn(u64) -> bool) -> u64 {
        let times = self.times.get(&gate).into_iter().flatten();
        times.filter(|(address, _)| wanted(**address)).map(|(_, times)| times).sum()
    }

    /// Instructions at addresses that are `wanted`, in interrupts or not.
    pub(crate) fn anywhere(&self, wanted: impl Fn(u64) -> bool) -> u64 {
        self.times.keys().map(|&gate| self.in_interrupts(gate, &wanted)).sum()
    }

    /// Average instructions from `gate` to its write of EOI, including that write. None if an interrupt wrote EOI
    /// never or several times.
    pub(crate) fn to_eoi(&self, gate: u64) -> Option<f64> {
        let &(writes, instructions) = self.ends.get(&gate)?;
        (self.interrupts.get(&gate) == Some(&writes)).then_some(instructions as f64 / writes as f64)
    }

    /// The gate whose interrupts ran instructions at `wanted` addresses most often.
    pub(crate) fn gate_of(&self, wanted: impl Fn(u64) -> bool) -> Option<u64> {
        let gates = self.times.keys().copied().filter(|&gate| gate != OUTSIDE);
        gates.max_by_key(|gate| (self.in_interrupts(*gate, &wanted), *gate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plugins_output_is_read() {
        let text = "path a0 3\npath b0 9\neoi a0 3 6\neoi b0 8 8\nat 0 20 90\nat a0 1f 3\nat a0 20 6\nat b0 20 50\nend\n\
                    path a0 7\nend\n";
        let [counted, second] = &parse(text).expect("the plugin's form")[..] else { panic!("two pairs of marks") };
        assert_eq!((counted.interrupts[&0xa0], second.interrupts[&0xa0]), (3, 7));
        assert_eq!(counted.in_interrupts(0xa0, |_| true), 9);
        assert_eq!(counted.in_interrupts(0xa0, |address| address == 0x20), 6);
        assert_eq!(counted.in_interrupts(0xc0, |_| true), 0);
        assert_eq!((counted.in_interrupts(OUTSIDE, |_| true), counted.anywhere(|address| address == 0x20)), (90, 146));
        assert_eq!((counted.to_eoi(0xa0), counted.to_eoi(0xb0), counted.to_eoi(0xc0)), (Some(2.0), None, None));
        assert_eq!(counted.gate_of(|address| address == 0x1f), Some(0xa0));
        assert_eq!(counted.gate_of(|_| true), Some(0xb0));
        assert_eq!(parse("path a0 many"), None);
        assert_eq!(parse("something else"), None);
    }
}
