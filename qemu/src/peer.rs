//! Linux on the same machines and with the same work as our images: its counts stand beside ours.

use crate::matrix::{Case, Machine, Setting};
use crate::process::{self, Answer, Ended};
use crate::{BootError, Row, pinned, trace};
use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Command;

/// The source of the guest's only process.
const INIT: &str = "qemu/guest/peer.rs";
/// Bytes typed in the two runs that are subtracted.
const BYTES: [u64; 2] = [20, 200];

/// A kernel, its initrd, and a QEMU.
pub(crate) struct Linux {
    pub(crate) qemu: PathBuf,
    pub(crate) kernel: PathBuf,
    pub(crate) initrd: PathBuf,
    // The folder of the initrd.
    _folder: tempfile::TempDir,
}

impl Linux {
    /// Prepares a guest for `x86_64` or `aarch64`, as QEMU and the compiler name it. `debian` is Debian's name for it.
    ///
    /// # Errors
    /// [`BootError`].
    pub(crate) fn new(instructions: &str, debian: &str) -> Result<Self, BootError> {
        let kernels = pinned::kernels()?;
        let folder = tempfile::tempdir().map_err(|error| BootError::Io("a temporary folder".into(), error))?;
        let initrd = folder.path().join("initrd");
        pinned::script("guest-initrd", &[instructions, INIT, &initrd.to_string_lossy()])?;
        let qemu = pinned::qemu()?.join(format!("qemu-system-{instructions}"));
        Ok(Self { qemu, kernel: kernels.join(format!("vmlinuz-{debian}")), initrd, _folder: folder })
    }

    /// QEMU with this guest on one CPU and its console on the standard streams. The caller adds the machine.
    pub(crate) fn command(&self, options: &str) -> Command {
        let mut qemu = Command::new(&self.qemu);
        qemu.args(["-m", "256M", "-smp", "1", "-display", "none", "-nodefaults", "-no-reboot"]);
        qemu.args(["-serial", "stdio", "-monitor", "none", "-kernel"])
            .arg(&self.kernel)
            .arg("-initrd")
            .arg(&self.initrd);
        qemu.args(["-append", &format!("panic=-1 quiet {options}")]);
        qemu
    }
}

/// Runs a Linux guest.
///
/// # Errors
/// [`BootError`]; a guest that fails is not an error.
pub(crate) fn run(command: Command, answer: Answer<'_>) -> Result<Ended, BootError> {
    process::run(command, answer, |status, lines| status.success() && lines.iter().any(|line| line == "guest: passed"))
}

/// Writes and reads per interrupt, at distributor and redistributor, of Linux's forced-threaded PL011 interrupt.
type Accesses = Result<(f64, f64), String>;

/// The peers of a run, each measured once.
#[derive(Default)]
pub(crate) struct Peers {
    linux: Option<Linux>,
    /// By GIC and exception level.
    serial: HashMap<(u8, u8), Accesses>,
}

impl Peers {
    /// Puts Linux's figures beside ours, where Linux has any. Linux's figures are judged too: 2 writes, and on a GICv3
    /// 1 read. This shows that the counting works.
    ///
    /// # Errors
    /// [`BootError`].
    pub(crate) fn join(&mut self, setting: &Setting, rows: &mut [Row]) -> Result<(), BootError> {
        let (Case::Serial, Machine::Virt { gic, level, .. }) = (setting.case, setting.machine) else { return Ok(()) };
        if !self.serial.contains_key(&(gic, level)) {
            let accesses = self.serial(gic, level)?;
            self.serial.insert((gic, level), accesses);
        }
        let reads = if gic == 3 { 1.0 } else { 0.0 };
        put(rows, &self.serial[&(gic, level)], (2.0, reads));
        Ok(())
    }

    fn serial(&mut self, gic: u8, level: u8) -> Result<Accesses, BootError> {
        if self.linux.is_none() {
            self.linux = Some(Linux::new("aarch64", "arm64")?);
        }
        let linux = self.linux.as_ref().expect("made above");
        let mut sums = Vec::new();
        for bytes in BYTES {
            let el2 = if level == 2 { "on" } else { "off" };
            let mut qemu = linux.command(&format!("console=ttyAMA0 threadirqs case=serial rounds={bytes}"));
            qemu.args(["-M", &format!("virt,gic-version={gic},virtualization={el2}"), "-cpu", "cortex-a72"]);
            trace::accesses(gic).iter().for_each(|event| _ = qemu.args(["-trace", event]));
            let folder = tempfile::tempdir().map_err(|error| BootError::Io("a temporary folder".into(), error))?;
            let file = folder.path().join("trace");
            qemu.arg("-D").arg(&file);
            let ended = run(qemu, Answer::Typed(b"x"))?;
            if let Some(failure) = ended.failure {
                return Ok(Err(failure));
            }
            let io = |error| BootError::Io("QEMU's trace".into(), error);
            let events = trace::count(BufReader::new(std::fs::File::open(file).map_err(io)?).lines()).map_err(io)?;
            let interrupts = ended.counts().get("interrupts").copied().unwrap_or(0);
            sums.push((trace::sum(&events, "_write"), trace::sum(&events, "_read"), interrupts as i64));
        }
        let [short, long] = sums[..] else { unreachable!("two runs") };
        let interrupts = (long.2 - short.2) as f64;
        Ok(Ok(((long.0 - short.0) as f64 / interrupts, (long.1 - short.1) as f64 / interrupts)))
    }
}

/// Linux's writes and reads beside ours.
fn put(rows: &mut [Row], peer: &Accesses, expected: (f64, f64)) {
    for row in rows {
        let (value, expected) = match row.quantity.as_str() {
            crate::run::WRITES => (peer.as_ref().map(|&(writes, _)| writes), expected.0),
            crate::run::READS => (peer.as_ref().map(|&(_, reads)| reads), expected.1),
            _ => continue,
        };
        match value {
            Ok(value) => {
                row.peer_value = Some(value);
                row.pass &= value == expected;
            }
            Err(failure) => {
                row.note = Some(format!("Linux: {failure}"));
                row.pass = false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_costs_something_else_fails() {
        let row = |quantity: &str| Row { quantity: quantity.into(), pass: true, ..Row::default() };
        let judged = |peer: Accesses| {
            let mut rows = [row(crate::run::WRITES), row(crate::run::READS), row("interrupts")];
            put(&mut rows, &peer, (2.0, 1.0));
            rows.map(|row| (row.peer_value, row.pass))
        };
        assert_eq!(judged(Ok((2.0, 1.0))), [(Some(2.0), true), (Some(1.0), true), (None, true)]);
        assert_eq!(judged(Ok((2.5, 1.0))), [(Some(2.5), false), (Some(1.0), true), (None, true)]);
        assert_eq!(judged(Err("hung".into())), [(None, false), (None, false), (None, true)]);
    }
}
