//! One run of a guest, Linux or our image, with one virtio device.

use super::super::repeated;
use super::{CPUS, Case};
use crate::disk::{self, Disk};
use crate::image::{AARCH64, Image, Tools, X86_64};
use crate::monitor::{self, Ask};
use crate::process::{Answer, Ended};
use crate::trace::{self, Events};
use crate::{BootError, peer, pinned, process};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;

/// QEMU's name of the drive.
const DISK: &str = "d";
/// Requests in flight of each CPU.
const DEPTH: u64 = 4;

/// The guest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Guest {
    /// Linux as Debian has it.
    Old,
    /// Linux with the patches of `judges/linux`.
    New,
    /// Our image. `is_single`: its driver does not accept several interrupts.
    Ours { is_single: bool },
}

/// The device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// With a queue for each CPU.
    Blk,
    /// With a pair of queues for each CPU.
    Net,
}

/// The device's transport.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Transport {
    /// On microvm. A device without vectors does not offer the feature.
    Mmio {
        vectors: u64,
        is_level: bool,
        /// Not by ACPI.
        by_command_line: bool,
    },
    /// On q35, with MSI-X.
    Pci,
    /// MMIO on Arm's virt with a GIC of this version, found by the device tree; by our image also by ACPI.
    Virt { gic: u8, vectors: u64, is_level: bool, by_acpi: bool },
}

/// The result of a run.
#[derive(Debug, Default)]
pub(super) struct Ran {
    /// What the guest printed.
    pub(super) counts: BTreeMap<String, u64>,
    /// Accesses to the transport's registers after the first interrupt. QEMU takes the kicks without tracing them.
    pub(super) accesses: u64,
    /// The events that QEMU traced.
    pub(super) events: Events,
    /// The reason of a failure; none if the run passed.
    pub(super) failure: Option<String>,
    /// False if Linux did not come to its work.
    pub(super) has_begun: bool,
    /// The failures of the attempts before this one.
    pub(super) repetitions: Vec<String>,
}

/// The guests, and the QEMU that judges them.
pub(super) struct Machine {
    qemu: PathBuf,
    /// Linux with our patches. Beside it lies the kernel without them.
    kernel: PathBuf,
    initrd: PathBuf,
    image: PathBuf,
    // The folder of the initrd.
    _folder: tempfile::TempDir,
}

/// Without KVM, a microvm with ACPI has no timer with which Linux could measure the frequency of the time-stamp counter.
/// The guest's seconds are then not quite seconds.
const CLOCK: &str = " tsc_early_khz=2000000 tsc=reliable";

/// Sets up a network of the run's own, in which a tap with several queues has an address for each CPU, and becomes its
/// arguments. The network goes with the process.
const IN_NETWORK: &str = "set -e
ip tuntap add dev tap0 mode tap multi_queue
for last in 1 2 3 4; do ip address add 10.77.0.$last/24 dev tap0; done
ip link set tap0 up
exec \"$@\"";

fn in_network(program: &Path) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-c", IN_NETWORK, "sh"]).arg(program);
    command
}

/// The reason why there can be no network of the run's own; none if there can.
pub(super) fn no_network() -> Option<String> {
    let why = match in_network(Path::new("true")).output() {
        Ok(output) if output.status.success() => return None,
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => format!("unshare: {error}"),
    };
    Some(format!("no tap with several queues in a network namespace (root, unshare, ip, /dev/net/tun): {why}"))
}

impl Machine {
    /// Builds the guests for x86_64; the first use may build QEMU and Linux.
    ///
    /// # Errors
    /// [`BootError`].
    pub(super) fn x86_64() -> Result<Self, BootError> {
        let judge = |part| pinned::script("judges", &[part]).map(PathBuf::from);
        Self::prepare(X86_64, "x86_64", &judge("qemu")?, judge("linux")?.join("bzImage"))
    }

    /// Builds the guests for arm64. QEMU and Linux are built on request only.
    ///
    /// # Errors
    /// [`BootError`].
    pub(super) fn arm64() -> Result<Self, BootError> {
        let judge = |part| pinned::script("judges", &["--built", part]).map(PathBuf::from);
        Self::prepare(AARCH64, "aarch64", &judge("qemu-arm64")?, judge("linux-arm64")?.join("Image"))
    }

    fn prepare(tools: Tools, instructions: &str, qemu: &Path, kernel: PathBuf) -> Result<Self, BootError> {
        let folder = tempfile::tempdir().map_err(|error| BootError::Io("a temporary folder".into(), error))?;
        let initrd = folder.path().join("initrd");
        pinned::script("guest-initrd", &[instructions, "qemu/guest/virtio.rs", &initrd.to_string_lossy()])?;
        let image = Image::build(tools)?.file;
        Ok(Self { qemu: qemu.join(tools.qemu), kernel, initrd, image, _folder: folder })
    }

    /// Runs a guest once; again if QEMU ends with an assertion of its own, or Linux does not come to its work.
    ///
    /// # Errors
    /// [`BootError`]; a guest that fails is not an error.
    pub(super) fn run(&self, case: &Case, requests: u64) -> Result<Ran, BootError> {
        let run = || self.attempt(case, requests);
        let (ran, repetitions) = repeated(run, |ran| (ran.failure.as_deref(), ran.has_begun))?;
        Ok(Ran { repetitions, ..ran })
    }

    fn attempt(&self, case: &Case, requests: u64) -> Result<Ran, BootError> {
        let io = |what: &str| {
            let what = what.to_owned();
            move |error| BootError::Io(what, error)
        };
        let folder = tempfile::tempdir().map_err(io("a temporary folder"))?;
        // Only a guest with a drive asks for this.
        let grow = Ask::resize(folder.path(), DISK, 2 * disk::BYTES);
        let command = self.command(case, requests, folder.path())?;
        // The debug port exits with 2·value + 1; semihosting exits with the code itself.
        let good = if case.transport.is_virt() { 0 } else { 1 };
        let ended = match case.guest {
            Guest::Ours { .. } => process::run(command, Answer::Asked(&grow), |status, lines| {
                status.code() == Some(good) && lines.iter().any(|line| line == "pass")
            })?,
            Guest::Old | Guest::New => peer::run_booted(command, Answer::Asked(&grow))?,
        };
        let has_begun = matches!(case.guest, Guest::Ours { .. }) || ended.has_begun();
        let (counts, Ended { failure, .. }) = (ended.counts(), ended);
        let lines = || std::fs::File::open(folder.path().join("trace")).map(|file| BufReader::new(file).lines());
        let accesses = lines().and_then(accesses).map_err(io("QEMU's trace"))?;
        let counted = lines().and_then(|lines| trace::count(lines, trace::IMAGE_MARK));
        let events = counted.map_err(io("QEMU's trace"))?;
        Ok(Ran { counts, accesses, events, failure, has_begun, repetitions: Vec::new() })
    }

    /// QEMU's command line.
    fn command(&self, case: &Case, requests: u64, folder: &Path) -> Result<Command, BootError> {
        let mut qemu = case.kind.program(&self.qemu);
        qemu.args(["-accel", "tcg,thread=multi", "-no-reboot"]);
        qemu.args(["-cpu", if case.transport.is_virt() { "cortex-a72" } else { "max" }]);
        qemu.args(["-m", "256M", "-smp", &CPUS.to_string(), "-display", "none", "-nodefaults"]);
        qemu.args(["-serial", "stdio", "-monitor", "none", "-qmp", &monitor::argument(folder)]);
        match case.transport {
            Transport::Mmio { by_command_line, .. } => {
                let acpi = if by_command_line { "off" } else { "on" };
                // The clock of the PC lies among the lines of the transports.
                qemu.args(["-M", &format!("microvm,acpi={acpi},rtc=off")]);
            }
            Transport::Pci => _ = qemu.args(["-M", "q35"]),
            Transport::Virt { gic, .. } => {
                // Each GIC at one exception level.
                let el2 = if gic == 3 { "on" } else { "off" };
                qemu.args(["-M", &format!("virt,gic-version={gic},virtualization={el2}"), "-semihosting"]);
            }
        }
        if let Transport::Mmio { vectors, is_level, .. } | Transport::Virt { vectors, is_level, .. } = case.transport {
            qemu.args(["-global", "virtio-mmio.force-legacy=off"]);
            qemu.args(["-global", &format!("virtio-mmio.vectors={vectors}")]);
            if is_level {
                qemu.args(["-global", &format!("virtio-mmio.level-vectors={}", (1 << vectors) - 1)]);
            }
        }
        case.kind.add(&mut qemu, case.transport, folder)?;
        case.transport.events().iter().for_each(|event| _ = qemu.args(["-trace", event]));
        qemu.arg("-D").arg(folder.join("trace"));
        self.add_guest(&mut qemu, case, requests);
        Ok(qemu)
    }

    fn add_guest(&self, qemu: &mut Command, case: &Case, requests: u64) {
        let kernel = match case.guest {
            Guest::Ours { is_single } => {
                let machine = match case.transport {
                    Transport::Virt { by_acpi, .. } => format!(" eoimode=1 forced=0 acpi={}", u8::from(by_acpi)),
                    Transport::Mmio { .. } | Transport::Pci => {
                        qemu.args(["-device", "isa-debug-exit,iobase=0xf4,iosize=4"]);
                        String::new()
                    }
                };
                let single = u64::from(is_single);
                // The image reads half of them one by one.
                let rounds = requests / 2;
                let options = format!("queues={CPUS} rounds={rounds} depth={DEPTH} single={single} grow=1{machine}");
                qemu.arg("-kernel").arg(&self.image).args(["-append", &format!("virtio-blk {options}")]);
                return;
            }
            Guest::Old => {
                let mut stock = self.kernel.clone().into_os_string();
                stock.push("-stock");
                stock.into()
            }
            Guest::New => self.kernel.clone(),
        };
        let name = case.kind.name();
        let end = match case.transport {
            Transport::Mmio { by_command_line: true, .. } => " end=restart reboot=t",
            Transport::Mmio { .. } => CLOCK,
            // The check panics where a busy host does not run QEMU for some ticks.
            Transport::Pci => " no_timer_check",
            Transport::Virt { .. } => "",
        };
        let console = if case.transport.is_virt() { "ttyAMA0" } else { "ttyS0" };
        qemu.arg("-kernel").arg(kernel).arg("-initrd").arg(&self.initrd);
        let options = format!("console={console} panic=-1 quiet device={name} requests={requests} depth={DEPTH}{end}");
        qemu.args(["-append", &options]);
    }
}

impl Transport {
    /// True for a machine of Arm's.
    pub(super) fn is_virt(self) -> bool {
        matches!(self, Self::Virt { .. })
    }

    /// Notifications of queues, accesses to the transport's registers, and on virt those to the GIC.
    fn events(self) -> Vec<&'static str> {
        let mmio = &["virtio_notify", "virtio_mmio_read", "virtio_mmio_write_offset"][..];
        match self {
            Self::Mmio { .. } => mmio.to_vec(),
            Self::Pci => vec!["virtio_notify", "memory_region_ops_read", "memory_region_ops_write"],
            Self::Virt { gic, .. } => [mmio, trace::accesses(gic), trace::interrupts(gic)].concat(),
        }
    }
}

impl Kind {
    /// Its name in QEMU, and for the guest.
    fn name(self) -> &'static str {
        match self {
            Self::Blk => "blk",
            Self::Net => "net",
        }
    }

    /// QEMU, where the device's other side is.
    fn program(self, qemu: &Path) -> Command {
        match self {
            Self::Blk => Command::new(qemu),
            Self::Net => in_network(qemu),
        }
    }

    /// Adds the device, and what it stands for on the host.
    fn add(self, qemu: &mut Command, transport: Transport, folder: &Path) -> Result<(), BootError> {
        let (bus, on_pci) = match transport {
            Transport::Mmio { .. } | Transport::Virt { .. } => ("device", ""),
            // Nothing boots from a PCI device, and its option ROM is in no package that is unpacked.
            Transport::Pci => ("pci", ",vectors=10,romfile="),
        };
        let device = format!("virtio-{}-{bus}", self.name());
        match self {
            Self::Blk => {
                qemu.args(["-drive", &Disk::create(folder, DISK)?.argument()]);
                qemu.args(["-device", &format!("{device},drive={DISK},num-queues={CPUS}")]);
            }
            Self::Net => {
                qemu.args(["-netdev", "tap,id=n,ifname=tap0,script=no,downscript=no,vhost=off,queues=4"]);
                qemu.args(["-device", &format!("{device},netdev=n,mq=on{on_pci}")]);
            }
        }
        Ok(())
    }
}

/// The number of accesses to a transport after the first notification of a queue.
fn accesses(lines: impl Iterator<Item = std::io::Result<String>>) -> std::io::Result<u64> {
    let (mut has_begun, mut accesses) = (false, 0);
    for line in lines {
        let line = line?;
        let event = line.split_whitespace().next().unwrap_or_default();
        let is_access = match event {
            "virtio_mmio_read" | "virtio_mmio_write_offset" => true,
            "memory_region_ops_read" | "memory_region_ops_write" => line.contains(" name 'virtio-pci"),
            _ => false,
        };
        has_begun |= event == "virtio_notify";
        accesses += u64::from(has_begun && is_access);
    }
    Ok(accesses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_count_from_the_first_notification() {
        let trace = "virtio_mmio_write_offset virtio_mmio_write offset 0x70 value 0xf
            virtio_notify vdev 0x55 vq 0x56
            virtio_mmio_raise_vector virtio_mmio raising vector 1
            virtio_mmio_read virtio_mmio_read offset 0x60
            virtio_mmio_write_offset virtio_mmio_write offset 0x64 value 0x1
            memory_region_ops_write cpu 0 mr 0x5 addr 0xfee000b0 value 0x0 size 4 name 'apic-msi'
            memory_region_ops_read cpu 0 mr 0x5 addr 0xfe003000 value 0x0 size 1 name 'virtio-pci-isr-virtio-blk'";
        let lines = trace.lines().map(|line| Ok(line.trim().to_owned()));
        assert_eq!(accesses(lines).expect("no file is read"), 3);
    }
}
