//! Why a run gave no figures.

use crate::plan::Variant;
use drivers::apic::ApicError;
use drivers::dsa::DsaError;
use drivers::gic::GicError;
use drivers::ioapic::IoApicError;
use drivers::nvme::NvmeError;
use drivers::pci::MsixError;
use drivers::rdma::RdmaError;
use drivers::virtio::VirtioError;
use drivers::vtd::VtdError;
use hal::{DmaError, SpawnError};
use irq::IrqError;
use irq::moderation::LevelError;
use irq::poll::PollError;
use irq::posted::PostedError;
use machine::{BootError, RunEnd};
use std::fmt;

/// Why a run gave no figures.
#[derive(Debug)]
pub enum RunError {
    /// The variant is none of the experiment's.
    Variant {
        /// The experiment's kind.
        kind: &'static str,
        /// The variant.
        variant: Variant,
    },
    /// The drivers could not bring the server up.
    Setup(SetupError),
    /// Bringing it up did not end.
    Boot(BootError),
    /// Nothing went on any more in the middle of the load.
    Stuck {
        /// The simulated time at which it was seen.
        at_ns: u64,
        /// What the machine said.
        end: RunEnd,
    },
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variant { kind, variant } => write!(f, "{variant} is no way to run a {kind} experiment"),
            Self::Setup(error) => write!(f, "the server could not be set up: {error}"),
            Self::Boot(error) => write!(f, "the server did not come up: {error}"),
            Self::Stuck { at_ns, end } => write!(f, "nothing happens any more at {at_ns} ns: {end:?}"),
        }
    }
}

impl std::error::Error for RunError {}

/// Why a server could not be brought up.
#[derive(Debug)]
pub enum SetupError {
    /// The delivery core refused.
    Irq(IrqError),
    /// A local APIC.
    Apic(ApicError),
    /// Posted delivery.
    Posted(PostedError),
    /// A remapping unit.
    Vtd(VtdError),
    /// A drive's MSI-X.
    Msix(MsixError),
    /// An accelerator.
    Accelerator(DsaError),
    /// An I/O APIC.
    IoApic(IoApicError),
    /// A virtio device.
    Virtio(VirtioError),
    /// A GIC.
    Gic(GicError),
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
            Self::Apic(error) => write!(f, "{error}"),
            Self::Posted(error) => write!(f, "{error}"),
            Self::Vtd(error) => write!(f, "IOMMU: {error}"),
            Self::Msix(error) => write!(f, "{error}"),
            Self::Accelerator(error) => write!(f, "accelerator: {error}"),
            Self::IoApic(error) => write!(f, "{error}"),
            Self::Virtio(error) => write!(f, "virtio device: {error}"),
            Self::Gic(error) => write!(f, "GIC: {error}"),
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
    ApicError => Apic,
    PostedError => Posted,
    VtdError => Vtd,
    MsixError => Msix,
    DsaError => Accelerator,
    RdmaError => Rdma,
    IoApicError => IoApic,
    VirtioError => Virtio,
    GicError => Gic,
    PollError => Poll,
    LevelError => Levels,
    SpawnError => Spawn,
);
