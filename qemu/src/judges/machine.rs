//! One run of a guest on the judges' QEMU.

use super::gates::{self, Addresses, Gates, GatesPlugin};
use super::repeated;
use crate::disk::Disk;
use crate::image::{Image, X86_64};
use crate::process::Answer;
use crate::{BootError, peer, pinned, process, trace};
use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;

/// For how long our image keeps interrupts off after the submissions of a burst.
const HOLD_NS: u64 = 200_000;
/// Reads in flight of a queue in a storm.
const DEPTH: u64 = 4;
/// The guest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Who {
    Ours,
    /// With the patches of `judges/linux`.
    Linux,
    /// As Debian has it.
    Stock,
}

/// How messages reach the CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    Posted,
    /// With local APICs in x2APIC mode, and the unit in extended interrupt mode.
    PostedX2Apic,
    Remapped,
}

impl Mode {
    pub(super) fn posts(self) -> bool {
        self != Self::Remapped
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Posted => "posted",
            Self::PostedX2Apic => "posted, x2APIC",
            Self::Remapped => "remapped",
        })
    }
}

/// The work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Load {
    /// Four CPUs, with disturbances.
    Storm { reads: u64, moves: u64, trips: u64 },
    /// All vectors to one of two CPUs.
    Bursts { reads: u64, drives: u64 },
    /// One drive, and a function that sends so many of its messages.
    Stranger { reads: u64, messages: u64 },
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Storm { .. } => write!(f, "storm"),
            Self::Bursts { drives: 1, .. } => write!(f, "one drive"),
            Self::Bursts { drives, .. } => write!(f, "bursts of {drives} drives"),
            Self::Stranger { .. } => write!(f, "stranger"),
        }
    }
}

/// The result of a run.
#[derive(Debug, Default)]
pub(super) struct Ran {
    /// What the guest printed, and how often QEMU traced an event.
    pub(super) counts: BTreeMap<String, u64>,
    pub(super) gates: Option<Gates>,
    pub(super) policy: Option<String>,
    /// The reason of a failure; none if the run passed.
    pub(super) failure: Option<String>,
    /// False if Linux did not come to its work.
    pub(super) has_begun: bool,
    /// The failures of the attempts before this one.
    pub(super) repetitions: Vec<String>,
}

impl Ran {
    pub(super) fn count(&self, name: &str) -> Option<u64> {
        self.counts.get(name).copied()
    }
}

/// The guests, and the QEMU that judges them.
pub(super) struct Judge {
    qemu: PathBuf,
    image: PathBuf,
    /// None where our image is judged alone.
    linux: Option<Linux>,
    plugin: GatesPlugin,
}

/// Linux as a guest.
struct Linux {
    /// Holds the kernels.
    kernels: PathBuf,
    initrd: PathBuf,
    // The folder of the initrd.
    _folder: tempfile::TempDir,
}

/// Events that are counted.
const EVENTS: [&str; 4] = ["vtd_ir_post", "vtd_ir_notify", "vtd_ir_fault", "vtd_ir_remap"];

impl Judge {
    /// Builds the guests; the first use may build QEMU and Linux.
    ///
    /// # Errors
    /// [`BootError`].
    pub(super) fn prepare() -> Result<Self, BootError> {
        let kernels = PathBuf::from(pinned::script("judges", &["linux"])?);
        let folder = tempfile::tempdir().map_err(|error| BootError::Io("a temporary folder".into(), error))?;
        let initrd = folder.path().join("initrd");
        pinned::script("guest-initrd", &["x86_64", "qemu/guest/judges.rs", &initrd.to_string_lossy()])?;
        let linux = Linux { kernels, initrd, _folder: folder };
        Ok(Self { linux: Some(linux), ..Self::alone(Image::build(X86_64)?.file)? })
    }

    /// Judges `image`, a built image of ours, without Linux beside it.
    ///
    /// # Errors
    /// [`BootError`].
    pub(super) fn alone(image: PathBuf) -> Result<Self, BootError> {
        let qemu = PathBuf::from(pinned::script("judges", &["qemu"])?).join("qemu-system-x86_64");
        Ok(Self { qemu, image, linux: None, plugin: GatesPlugin::build()? })
    }

    fn linux(&self) -> &Linux {
        self.linux.as_ref().expect("only `prepare` leads to runs of Linux")
    }

    /// Runs a guest once; again if QEMU ends with an assertion of its own, or Linux does not come to its work.
    ///
    /// # Errors
    /// [`BootError`]; a guest that fails is not an error.
    pub(super) fn run(&self, who: Who, mode: Mode, load: Load) -> Result<Ran, BootError> {
        let run = || self.attempt(who, mode, load);
        let (ran, repetitions) = repeated(run, |ran| (ran.failure.as_deref(), ran.has_begun))?;
        Ok(Ran { repetitions, ..ran })
    }

    fn attempt(&self, who: Who, mode: Mode, load: Load) -> Result<Ran, BootError> {
        let io = |what: &str| {
            let what = what.to_owned();
            move |error| BootError::Io(what, error)
        };
        let folder = tempfile::tempdir().map_err(io("a temporary folder"))?;
        let command = self.command(who, mode, load, folder.path())?;
        let ended = match who {
            Who::Ours => process::run(command, Answer::None, |status, lines| {
                status.code() == Some(1) && lines.iter().any(|line| line == "pass")
            })?,
            Who::Linux | Who::Stock => peer::run_booted(command, Answer::None)?,
        };
        let mut counts = ended.counts();
        let file = std::fs::File::open(folder.path().join("trace")).map_err(io("QEMU's trace"))?;
        let events = trace::count(BufReader::new(file).lines(), trace::IMAGE_MARK).map_err(io("QEMU's trace"))?;
        for event in EVENTS.into_iter().chain([trace::WRONG_SOURCE]) {
            counts.insert(event.into(), events.get(event).copied().unwrap_or(0));
        }
        let counted = std::fs::read_to_string(folder.path().join("gates")).ok();
        let gates = counted.and_then(|text| Gates::parse(&text));
        let has_begun = who == Who::Ours || ended.has_begun();
        let (policy, failure) = (ended.policy(), ended.failure);
        Ok(Ran { counts, gates, policy, failure, has_begun, repetitions: Vec::new() })
    }

    /// QEMU's command line.
    fn command(&self, who: Who, mode: Mode, load: Load, folder: &Path) -> Result<Command, BootError> {
        let mut qemu = Command::new(&self.qemu);
        let (cpus, drives) = match load {
            // Linux moves only the interrupt of a drive with a single vector.
            Load::Storm { .. } => (4, if who == Who::Ours { 1 } else { 2 }),
            Load::Bursts { drives, .. } => (2, drives),
            Load::Stranger { .. } => (2, 1),
        };
        // Guests' atomic accesses are atomic to QEMU's devices only with several CPUs, each a thread.
        qemu.args(["-M", "q35,kernel-irqchip=off", "-accel", "tcg,thread=multi", "-cpu", "max", "-no-reboot"]);
        let is_on = |property: bool| if property { "on" } else { "off" };
        let (posts, extended) = (is_on(mode.posts()), is_on(mode == Mode::PostedX2Apic));
        qemu.args(["-device", &format!("intel-iommu,intremap=on,posted-interrupts={posts},eim={extended}")]);
        qemu.args(["-m", "512M", "-smp", &cpus.to_string(), "-display", "none", "-nodefaults"]);
        qemu.args(["-serial", "stdio", "-monitor", "none"]);
        for drive in 0..drives {
            qemu.args(["-drive", &Disk::create(folder, format!("d{drive}"))?.argument()]);
            let is_single = matches!(load, Load::Storm { .. }) && drive == 1;
            let vectors = if is_single { ",msix_qsize=1" } else { "" };
            qemu.args(["-device", &format!("nvme,serial={drive},drive=d{drive}{vectors}")]);
        }
        if matches!(load, Load::Stranger { .. }) {
            qemu.args(["-device", "edu"]);
        }
        EVENTS.iter().for_each(|event| _ = qemu.args(["-trace", event]));
        qemu.arg("-D").arg(folder.join("trace"));
        if matches!(load, Load::Bursts { .. }) {
            let addresses = self.addresses(who, mode)?;
            qemu.arg("-plugin").arg(self.plugin.argument(&addresses, &folder.join("gates")));
        }
        match who {
            Who::Ours => {
                qemu.args(["-device", "isa-debug-exit,iobase=0xf4,iosize=4", "-kernel"]).arg(&self.image);
                qemu.args(["-append", &ours(mode, load)]);
            }
            Who::Linux | Who::Stock => {
                let kernel = if who == Who::Linux { "bzImage" } else { "bzImage-stock" };
                let Linux { kernels, initrd, .. } = self.linux();
                qemu.arg("-kernel").arg(kernels.join(kernel)).arg("-initrd").arg(initrd);
                qemu.args(["-append", &linux(mode, load, drives)]);
            }
        }
        Ok(qemu)
    }

    fn addresses(&self, who: Who, mode: Mode) -> Result<Addresses, BootError> {
        let posted = mode.posts();
        match who {
            Who::Ours => gates::of_image(&self.image, posted),
            Who::Linux | Who::Stock => gates::of_linux(&self.linux().kernels.join("System.map"), posted),
        }
    }
}

/// Our image's command line. Every fourth move is followed by a CPU's trip.
fn ours(mode: Mode, load: Load) -> String {
    let work = match load {
        Load::Storm { reads, moves, trips } => {
            format!("nvme rounds={reads} depth={DEPTH} moves={}", moves.max(4 * trips))
        }
        Load::Bursts { reads, .. } => format!("bursts rounds={reads} hold_ns={HOLD_NS}"),
        Load::Stranger { messages, .. } => format!("stranger messages={messages}"),
    };
    format!("{work} x2apic={}", u8::from(mode == Mode::PostedX2Apic))
}

/// Linux's command line. `intel_iommu=off` leaves DMA alone; interrupts are remapped without it. `no_timer_check`: the check
/// panics where a busy host does not run QEMU for some ticks.
fn linux(mode: Mode, load: Load, drives: u64) -> String {
    let remapping = if mode.posts() { "on,posted_msi" } else { "on" };
    let work = match load {
        Load::Storm { reads, moves, trips } => {
            format!("reads={reads} depth={DEPTH} moves={moves} trips={trips} readers=0,1,2,3")
        }
        Load::Bursts { reads, .. } => format!("reads={reads} depth=1 moves=0 trips=0 readers=0"),
        Load::Stranger { reads, messages } => {
            format!("reads={reads} depth=1 moves=0 trips=0 readers=0 stranger={messages}")
        }
    };
    format!(
        "console=ttyS0 panic=-1 quiet nokaslr no_timer_check nvme_core.io_timeout=2 intel_iommu=off intremap={remapping} drives={drives} {work}"
    )
}
