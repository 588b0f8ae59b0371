//! Linux on the same machines and with the same work as our images: its counts stand beside ours.

mod messages;
mod wires;

use crate::matrix::{Case, Machine, Setting};
use crate::process::{self, Answer, Ended};
use crate::trace::{self, Events};
use crate::{BootError, Missing, Row, pinned};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

/// The source of the guest's only process.
const INIT: &str = "qemu/guest/peer.rs";

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
        self.command_with(&self.kernel, 1, options)
    }

    /// The same with another kernel and so many CPUs.
    fn command_with(&self, kernel: &Path, cpus: u32, options: &str) -> Command {
        let mut qemu = Command::new(&self.qemu);
        qemu.args(["-m", "256M", "-smp", &cpus.to_string(), "-display", "none", "-nodefaults", "-no-reboot"]);
        qemu.args(["-serial", "stdio", "-monitor", "none", "-kernel"]).arg(kernel).arg("-initrd").arg(&self.initrd);
        qemu.args(["-append", &format!("panic=-1 quiet {options}")]);
        qemu
    }
}

/// Runs a Linux guest.
///
/// # Errors
/// [`BootError`]; a guest that fails is not an error.
pub(crate) fn run(command: Command, answer: Answer<'_>) -> Result<Ended, BootError> {
    process::run(command, answer, passed)
}

/// Runs a Linux guest that says when its work begins.
///
/// # Errors
/// [`BootError`]; a guest that fails is not an error.
pub(crate) fn run_booted(command: Command, answer: Answer<'_>) -> Result<Ended, BootError> {
    process::run_booted(command, answer, passed)
}

fn passed(status: ExitStatus, lines: &[String]) -> bool {
    status.success() && lines.iter().any(|line| line == "guest: passed")
}

/// `virt` with this GIC and exception level, and its options of QEMU.
fn virt(gic: u8, level: u8) -> [String; 4] {
    let el2 = if level == 2 { "on" } else { "off" };
    ["-M".into(), format!("virt,gic-version={gic},virtualization={el2}"), "-cpu".into(), "cortex-a72".into()]
}

/// Runs a guest and counts the events that QEMU traces; or the guest's failure.
fn traced(
    mut qemu: Command,
    events: &[&str],
    mark: u64,
    folder: &Path,
    answer: Answer<'_>,
) -> Result<Result<(Ended, Events), String>, BootError> {
    events.iter().for_each(|event| _ = qemu.args(["-trace", event]));
    let file = folder.join("trace");
    qemu.arg("-D").arg(&file);
    let mut ended = run(qemu, answer)?;
    if let Some(failure) = ended.failure.take() {
        return Ok(Err(failure));
    }
    let io = |error| BootError::Io("QEMU's trace".into(), error);
    let file = std::fs::File::open(file).map_err(io)?;
    let events = trace::count(BufReader::new(file).lines(), mark).map_err(io)?;
    Ok(Ok((ended, events)))
}

/// The peers of a run, each measured once.
#[derive(Default)]
pub(crate) struct Peers {
    linux: Option<Linux>,
    /// The folder of the judges' kernels for arm64, or the reason why there is none.
    judges: Option<Result<PathBuf, Missing>>,
    /// By case, kernel, GIC and exception level.
    wires: HashMap<(Case, wires::Kernel, u8, u8), wires::Counted>,
    /// By GIC and exception level.
    messages: HashMap<(u8, u8), messages::Counted>,
}

impl Peers {
    /// Puts Linux's figures beside ours, where Linux has any. Linux's figures are judged too: this shows that the
    /// counting works. Returns what is missing for some of them.
    ///
    /// # Errors
    /// [`BootError`].
    pub(crate) fn join(&mut self, setting: &Setting, rows: &mut Vec<Row>) -> Result<Option<Missing>, BootError> {
        let Machine::Virt { gic, level, .. } = setting.machine else { return Ok(None) };
        match setting.case {
            Case::Serial | Case::Raise => self.join_wires(setting.case, gic, level, rows),
            Case::Nvme if setting.cpus == messages::CPUS => {
                let linux = linux(&mut self.linux)?;
                let counted = match self.messages.entry((gic, level)) {
                    Entry::Occupied(known) => known.into_mut(),
                    Entry::Vacant(new) => new.insert(messages::measure(linux, setting, gic, level)?),
                };
                messages::put(rows, counted, gic, level);
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    fn join_wires(
        &mut self,
        case: Case,
        gic: u8,
        level: u8,
        rows: &mut Vec<Row>,
    ) -> Result<Option<Missing>, BootError> {
        let linux = linux(&mut self.linux)?;
        let mut missing = None;
        for kernel in wires::kernels(case, gic) {
            let image = match (kernel.file(), &mut self.judges) {
                (None, _) => linux.kernel.clone(),
                (Some(file), judges) => {
                    let folder = match judges {
                        Some(known) => known,
                        None => judges.insert(built()?),
                    };
                    match folder {
                        Ok(folder) => folder.join(file),
                        Err(why) => {
                            missing = Some(why.clone());
                            continue;
                        }
                    }
                }
            };
            let counted = match self.wires.entry((case, *kernel, gic, level)) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => new.insert(wires::measure(linux, &image, case, gic, level)?),
            };
            wires::put(rows, counted, *kernel, wires::expected(case, *kernel, gic));
        }
        Ok(missing)
    }
}

fn linux(linux: &mut Option<Linux>) -> Result<&Linux, BootError> {
    match linux {
        Some(linux) => Ok(linux),
        None => Ok(linux.insert(Linux::new("aarch64", "arm64")?)),
    }
}

/// The folder of the judges' kernels for arm64, if they are built. They are built on request only.
fn built() -> Result<Result<PathBuf, Missing>, BootError> {
    match pinned::script("judges", &["--built", "linux-arm64"]) {
        Ok(folder) => Ok(Ok(folder.into())),
        Err(BootError::Missing(missing)) => Ok(Err(missing)),
        Err(error) => Err(error),
    }
}
