//! One run of QEMU.

use super::image::Image;
use super::lent::{self, Lent};
use super::matrix::{Case, Machine, Setting};
use super::trace::{self, Events};
use super::{BootError, process};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Command;

/// The drive's size: the image knows 2,048 blocks of 512 bytes.
const DISK_BYTES: u64 = 1 << 20;

/// What came out of a run.
#[derive(Debug)]
pub(super) struct Run {
    /// Figures of the image.
    pub(super) counts: BTreeMap<String, u64>,
    /// What QEMU traced.
    pub(super) events: Events,
    /// Why it failed; none when it passed.
    pub(super) failure: Option<String>,
}

/// QEMU's whole command line.
fn command(setting: &Setting, image: &Image, folder: &Path, traced: bool) -> Command {
    let mut qemu = Command::new(&image.qemu);
    match setting.machine {
        Machine::Virt { gic, level, .. } => {
            let el2 = if level == 2 { "on" } else { "off" };
            qemu.args(["-M", &format!("virt,gic-version={gic},virtualization={el2}"), "-cpu", "cortex-a72"]);
            qemu.arg("-semihosting");
        }
        Machine::Q35 { remapping } => {
            qemu.args(["-M", "q35,kernel-irqchip=off", "-cpu", "max", "-no-reboot"]);
            qemu.args(["-device", "isa-debug-exit,iobase=0xf4,iosize=4"]);
            if remapping {
                qemu.args(["-device", "intel-iommu,intremap=on"]);
            }
        }
        Machine::Lent { .. } => {}
    }
    if let Machine::Lent { .. } = setting.machine {
        // The device's memory accesses are atomic towards the CPUs' only with more CPUs than one, each a thread.
        qemu.args(["-M", "q35,kernel-irqchip=off,memory-backend=memory", "-accel", "tcg,thread=multi", "-cpu", "max"]);
        qemu.args(["-object", "memory-backend-memfd,id=memory,share=on,size=512M", "-no-reboot"]);
        qemu.args(["-device", "isa-debug-exit,iobase=0xf4,iosize=4", "-device", &lent::device(folder)]);
    } else if setting.case == Case::Nvme {
        let disk = folder.join("disk");
        qemu.args(["-drive", &format!("if=none,id=d,format=raw,cache=unsafe,file={}", disk.display())]);
        qemu.args(["-device", "nvme,serial=1,drive=d"]);
    }
    qemu.args(["-m", "512M", "-smp", &setting.cpus.to_string(), "-display", "none", "-nodefaults"]);
    qemu.args(["-serial", "stdio", "-monitor", "none"]);
    if traced {
        trace::traced(setting).iter().for_each(|event| _ = qemu.args(["-trace", event]));
        qemu.arg("-D").arg(folder.join("trace"));
    }
    qemu.arg("-kernel").arg(&image.file).args(["-append", &setting.command_line()]);
    qemu
}

/// Runs the image once.
///
/// # Errors
/// [`BootError::Io`].
pub(super) fn run(setting: &Setting, image: &Image, traced: bool) -> Result<Run, BootError> {
    let io = |what: &str| {
        let what = what.to_owned();
        move |error| BootError::Io(what, error)
    };
    let folder = tempfile::tempdir().map_err(io("a temporary folder"))?;
    let disk = std::fs::File::create(folder.path().join("disk")).map_err(io("the drive's file"))?;
    disk.set_len(DISK_BYTES).map_err(io("the drive's file"))?;
    let _server = match setting.machine {
        Machine::Lent { .. } => Some(Lent::serve(setting.case, setting.cpus, folder.path())?),
        _ => None,
    };
    let command = command(setting, image, folder.path(), traced);
    let answer = if setting.case == Case::Serial { vec![b'x'; setting.rounds as usize] } else { Vec::new() };
    // The debug port's 2·value + 1; semihosting's code as it is.
    let good = if matches!(setting.machine, Machine::Virt { .. }) { 0 } else { 1 };
    let ended = process::run(command, &answer, |status, lines| {
        status.code() == Some(good) && lines.iter().any(|line| line == "pass")
    })?;
    let mut run = Run { counts: ended.counts(), events: Events::new(), failure: ended.failure };
    if traced {
        let file = std::fs::File::open(folder.path().join("trace")).map_err(io("QEMU's trace"))?;
        run.events = trace::count(BufReader::new(file).lines()).map_err(io("QEMU's trace"))?;
    }
    Ok(run)
}
