//! One run of QEMU.

use crate::disk::Disk;
use crate::image::Image;
use crate::lent::{self, Lent};
use crate::matrix::{Case, Machine, Setting};
use crate::process::Answer;
use crate::trace::{self, Events};
use crate::{BootError, process};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Command;

/// The result of one run.
#[derive(Debug)]
pub(crate) struct Run {
    /// Figures that the image printed.
    pub(crate) counts: BTreeMap<String, u64>,
    /// How the image's system delivers messages, if the image printed it.
    pub(crate) policy: Option<String>,
    /// Events that QEMU traced.
    pub(crate) events: Events,
    /// Figures that a device of ours counted.
    pub(crate) device: BTreeMap<String, u64>,
    /// The reason of a failure; none if the run passed.
    pub(crate) failure: Option<String>,
}

/// QEMU's whole command line.
///
/// # Errors
/// [`BootError::Io`].
fn command(setting: &Setting, image: &Image, folder: &Path, traced: bool) -> Result<Command, BootError> {
    let mut qemu = Command::new(&image.qemu);
    match setting.machine {
        Machine::Virt { gic, level, .. } => {
            let el2 = if level == 2 { "on" } else { "off" };
            qemu.args(["-M", &format!("virt,gic-version={gic},virtualization={el2}"), "-cpu", "cortex-a72"]);
            qemu.arg("-semihosting");
        }
        Machine::Q35 { .. } | Machine::Lent { .. } => {
            qemu.args(["-M", "q35,kernel-irqchip=off", "-cpu", "max", "-no-reboot"]);
            qemu.args(["-device", "isa-debug-exit,iobase=0xf4,iosize=4"]);
        }
    }
    match setting.machine {
        Machine::Q35 { remapping: true } => _ = qemu.args(["-device", "intel-iommu,intremap=on"]),
        // The device's memory accesses are atomic towards those of the CPUs only if there are several CPUs, each a
        // thread.
        Machine::Lent { .. } => _ = qemu.args(["-accel", "tcg,thread=multi"]),
        Machine::Q35 { remapping: false } | Machine::Virt { .. } => {}
    }
    if setting.is_lent() {
        // The memory is shared because the server maps it.
        qemu.args([
            "-object",
            "memory-backend-memfd,id=memory,share=on,size=512M",
            "-machine",
            "memory-backend=memory",
        ]);
        qemu.args(["-device", &lent::device(folder)]);
    }
    let drive = || Ok(Disk::create(folder, "d")?.argument());
    match setting.case {
        Case::Nvme if !setting.is_lent() => _ = qemu.args(["-drive", &drive()?, "-device", "nvme,serial=1,drive=d"]),
        Case::VirtioBlk => {
            qemu.args(["-global", "virtio-mmio.force-legacy=false", "-drive", &drive()?]);
            qemu.args(["-device", "virtio-blk-device,drive=d,num-queues=4"]);
        }
        Case::VirtioNet => {
            qemu.args(["-global", "virtio-mmio.force-legacy=false"]);
            for end in ["a", "b"] {
                qemu.args(["-netdev", &format!("hubport,id={end},hubid=0")]);
                qemu.args(["-device", &format!("virtio-net-device,netdev={end}")]);
            }
        }
        _ => {}
    }
    qemu.args(["-m", "512M", "-smp", &setting.cpus.to_string(), "-display", "none", "-nodefaults"]);
    qemu.args(["-serial", "stdio", "-monitor", "none"]);
    if traced {
        trace::traced(setting).iter().for_each(|event| _ = qemu.args(["-trace", event]));
        qemu.arg("-D").arg(folder.join("trace"));
    }
    qemu.arg("-kernel").arg(&image.file).args(["-append", &setting.command_line()]);
    Ok(qemu)
}

/// Runs the image once.
///
/// # Errors
/// [`BootError::Io`].
pub(crate) fn run(setting: &Setting, image: &Image, campanile: &Path, traced: bool) -> Result<Run, BootError> {
    let io = |what: &str| {
        let what = what.to_owned();
        move |error| BootError::Io(what, error)
    };
    let folder = tempfile::tempdir().map_err(io("a temporary folder"))?;
    let serve = || Lent::serve(campanile, setting.case, setting.cpus, folder.path());
    let server = if setting.is_lent() { Some(serve()?) } else { None };
    let command = command(setting, image, folder.path(), traced)?;
    let answer = if setting.case == Case::Serial { vec![b'x'; setting.rounds as usize] } else { Vec::new() };
    // The debug port exits with 2·value + 1; semihosting exits with the code itself.
    let good = if matches!(setting.machine, Machine::Virt { .. }) { 0 } else { 1 };
    let ended = process::run(command, Answer::Typed(&answer), |status, lines| {
        status.code() == Some(good) && lines.iter().any(|line| line == "pass")
    })?;
    let device = server.map(Lent::end).unwrap_or_default();
    let (counts, policy) = (ended.counts(), ended.policy());
    let mut run = Run { counts, policy, events: Events::new(), device, failure: ended.failure };
    if traced {
        let file = std::fs::File::open(folder.path().join("trace")).map_err(io("QEMU's trace"))?;
        run.events = trace::count(BufReader::new(file).lines(), trace::IMAGE_MARK).map_err(io("QEMU's trace"))?;
    }
    Ok(run)
}
