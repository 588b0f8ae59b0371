//! Why a run gave no figures.

use drivers::dsa::DsaError;
use drivers::nvme::NvmeError;
use drivers::pci::MsixError;
use drivers::rdma::RdmaError;
use drivers::virtio::VirtioError;
use hal::{DmaError, SpawnError};
use irq::IrqError;
use irq::moderation::LevelError;
use irq::poll::PollError;
use machine::{BootError, RunEnd};
use std::fmt;
use systems::arm::ArmError;
use systems::pc::PcError;

/// Why a run gave no figures.
#[derive(Debug)]
pub enum RunError {
    /// The process has no address space for so many bytes of a machine's memory.
    NoSpace(usize),
    /// The drivers could not bring the server up.
    Setup(SetupError),
    /// Bring-up did not end.
    Boot(BootError),
    /// The machine stopped making progress in the middle of the load.
    Stuck {
        /// The simulated time at which the stop was noticed.
        at_ns: u64,
        /// The machine's message.
        end: RunEnd,
    },
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSpace(bytes) => {
                let mib = bytes >> 20;
                write!(
                    f,
                    "the simulated machine's memory takes {mib} MiB of address space, which this process does not get (ulimit -v); valid: fewer drives, fewer queues, or smaller buffers; RAYON_NUM_THREADS=1 simulates one machine at a time"
                )
            }
            Self::Setup(error) => write!(f, "the server could not be set up: {error}"),
            Self::Boot(error) => write!(f, "the server did not come up: {error}"),
            Self::Stuck { at_ns, end } => write!(f, "the machine stands still at {at_ns} ns: {end:?}"),
        }
    }
}

impl std::error::Error for RunError {}

/// Why a server could not be brought up.
#[derive(Debug)]
pub enum SetupError {
    /// The delivery core refused.
    Irq(IrqError),
    /// A PC's interrupt hardware.
    Pc(PcError),
    /// A drive's MSI-X.
    Msix(MsixError),
    /// An accelerator.
    Accelerator(DsaError),
    /// A virtio device.
    Virtio(VirtioError),
    /// An Arm system.
    Arm(ArmError),
    /// A drive, by its name.
    Drive(String, NvmeError),
    /// Memory of a job.
    Memory(DmaError),
    /// A job's thread.
    Spawn(SpawnError),
    /// An RDMA NIC.
    Rdma(RdmaError),
    /// Budgeted polling.
    Poll(PollError),
    /// A controller of moderation.
    Levels(LevelError),
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Irq(error) => write!(f, "{error}"),
            Self::Pc(error) => write!(f, "{error}"),
            Self::Msix(error) => write!(f, "{error}"),
            Self::Accelerator(error) => write!(f, "accelerator: {error}"),
            Self::Virtio(error) => write!(f, "virtio device: {error}"),
            Self::Arm(error) => write!(f, "Arm system: {error}"),
            Self::Drive(name, error) => write!(f, "drive {name}: {error}"),
            Self::Memory(error) => write!(f, "buffers: {error}"),
            Self::Spawn(error) => write!(f, "{error}"),
            Self::Rdma(error) => write!(f, "RDMA NIC: {error}"),
            Self::Poll(error) => write!(f, "{error}"),
            Self::Levels(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for SetupError {}

macro_rules! setup_error_from {
    ($($error:ty => $variant:ident),* $(,)?) => {
        $(impl From<$error> for SetupError {
            fn from(error: $error) -> Self {
                Self::$variant(error)
            }
        })*
    };
}
setup_error_from!(
    IrqError => Irq,
    PcError => Pc,
    MsixError => Msix,
    DsaError => Accelerator,
    RdmaError => Rdma,
    VirtioError => Virtio,
    ArmError => Arm,
    PollError => Poll,
    LevelError => Levels,
    SpawnError => Spawn,
);
