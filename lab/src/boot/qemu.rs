//! One run of QEMU.

use super::BootError;
use super::image::Image;
use super::matrix::{Case, Machine, Setting};
use super::trace::{self, Events};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// A run that takes longer hangs. The longest, a million reads on two host cores, takes two minutes.
const DEADLINE: Duration = Duration::from_secs(600);
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
    }
    if setting.case == Case::Nvme {
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
    let mut command = command(setting, image, folder.path(), traced);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(io(setting.machine.tools().qemu))?;
    let lines = talk(setting, &mut child);
    let mut run = judge(setting, &mut child, &lines).map_err(io(setting.machine.tools().qemu))?;
    if let Some(failure) = &mut run.failure {
        let last = lines.iter().rev().take(8).rev().map(|line| format!("\n    {line}"));
        *failure += &last.collect::<String>();
        *failure += &format!("\n    run by {command:?}");
    }
    if traced {
        let file = std::fs::File::open(folder.path().join("trace")).map_err(io("QEMU's trace"))?;
        run.events = trace::count(BufReader::new(file).lines()).map_err(io("QEMU's trace"))?;
    }
    Ok(run)
}

/// Everything that the image says until it ends, or is ended because its time is over; types what it asks for.
fn talk(setting: &Setting, child: &mut Child) -> Vec<String> {
    let (sender, receiver) = mpsc::channel();
    let stdout = child.stdout.take().expect("piped");
    let reader = std::thread::spawn(move || {
        let lines = BufReader::new(stdout).split(b'\n').map_while(Result::ok);
        lines.map(|line| String::from_utf8_lossy(&line).trim_end().to_owned()).all(|line| sender.send(line).is_ok())
    });
    let mut stdin = child.stdin.take();
    let (mut lines, deadline) = (Vec::new(), Instant::now() + DEADLINE);
    loop {
        match receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                if setting.case == Case::Serial && line.starts_with("ready") {
                    // A QEMU that has ended has no ears; its verdict tells.
                    let _ = stdin.take().expect("asked once").write_all(&vec![b'x'; setting.rounds as usize]);
                }
                lines.push(line);
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                lines.push(format!("fail: not over within {} s", DEADLINE.as_secs()));
                let _ = child.kill();
                break;
            }
        }
    }
    let _ = reader.join();
    lines
}

/// What QEMU's exit code and the image's lines say.
fn judge(setting: &Setting, child: &mut Child, lines: &[String]) -> std::io::Result<Run> {
    let status = child.wait()?;
    let mut said = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut said)?;
    // The debug port's 2·value + 1; semihosting's code as it is.
    let good = if matches!(setting.machine, Machine::Q35 { .. }) { 1 } else { 0 };
    let passed = status.code() == Some(good) && lines.iter().any(|line| line == "pass");
    let reason = lines.iter().find(|line| line.contains("fail: ")).cloned();
    let failure = (!passed).then(|| reason.unwrap_or_else(|| format!("QEMU ended with {status}: {}", said.trim())));
    Ok(Run { counts: lines.iter().filter_map(|line| count(line)).collect(), events: Events::new(), failure })
}

/// `count NAME VALUE`; firmware may have left something before it in the line.
fn count(line: &str) -> Option<(String, u64)> {
    let (_, rest) = line.split_once("count ")?;
    let (name, value) = rest.split_once(' ')?;
    Some((name.to_owned(), value.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_and_other_lines_are_not() {
        assert_eq!(count("Booting from ROM..count cpus 4"), Some(("cpus".into(), 4)));
        assert_eq!(count("count cpus four"), None);
        assert_eq!(count("ready for 3 bytes"), None);
    }
}
