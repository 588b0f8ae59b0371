use core::fmt;
use hal::{CpuId, DmaError};
use irq::IrqError;
use spec::gic::IntId;

/// Errors of a GIC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GicError {
    /// The peripheral id names this architecture revision; the driver supports 3 and 4.
    Revision(u8),
    /// Number of CPUs described. GICv2 supports 1 to 8, GICv3 at least 1.
    Cpus(usize),
    /// No redistributor in the regions belongs to this CPU, whose affinity follows.
    NoRedistributor(CpuId, u32),
    /// The description does not contain this CPU.
    NoCpu(CpuId),
    /// The distributor does not report the CPU interface of this CPU.
    NoInterface(CpuId),
    /// The system registers cannot be enabled, because a higher exception level reserves them.
    SystemRegisters,
    /// Affinity level 0 of the CPU is above 15, which software-generated interrupts of this GIC cannot reach.
    Range(CpuId),
    /// The named condition did not become true within this time, in nanoseconds.
    Timeout(&'static str, u64),
    /// The INTID is not a private or shared interrupt of this distributor. Valid INTIDs are below the second number.
    IntId(IntId, u32),
    /// Software cannot send this INTID; valid are 0 to 15.
    NotSoftware(IntId),
    /// These message interrupts (first, count) are not SPIs below the given end.
    MessageRange(u32, u32, u32),
    /// The hardware lacks the named ability.
    Missing(&'static str),
    /// A number of the named kind is too large: it must be below the second number.
    TooLarge(&'static str, u64, u64),
    /// LPIs are already enabled on the CPU of this affinity and cannot be disabled. Firmware or another kernel owns the tables.
    LpisEnabled(u32),
    /// The ITS stopped at the command of this index with an error.
    Stalled(u16),
    /// No memory for tables.
    Dma(DmaError),
}

impl fmt::Display for GicError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Revision(found) => write!(f, "GIC architecture revision {found}; 3 and 4 are supported here"),
            Self::Cpus(count) => write!(f, "{count} CPUs; a GICv2 serves 1 to 8, a GICv3 at least 1"),
            Self::NoRedistributor(cpu, affinity) => {
                write!(f, "CPU {cpu} of affinity {affinity:#010x} has no redistributor in the regions given")
            }
            Self::NoCpu(cpu) => write!(f, "CPU {cpu} does not belong to the GIC's description"),
            Self::NoInterface(cpu) => write!(f, "GICD_ITARGETSR0 does not tell the CPU interface of CPU {cpu}"),
            Self::SystemRegisters => write!(f, "ICC_SRE_EL1.SRE stays 0: firmware keeps the system registers"),
            Self::Range(cpu) => write!(f, "affinity level 0 of CPU {cpu} is above 15, and GICD_TYPER.RSS is 0"),
            Self::Timeout(what, ns) => write!(f, "{what} did not happen within {ns} ns"),
            Self::IntId(intid, end) => write!(f, "{intid} is no interrupt of this distributor; 0 to {} are", end - 1),
            Self::NotSoftware(intid) => write!(f, "{intid} cannot be sent by software; INTIDs 0 to 15 can"),
            Self::MessageRange(first, count, end) => {
                write!(f, "{count} message SPIs from {first} on do not lie within 32 to {}", end - 1)
            }
            Self::Missing(what) => write!(f, "the GIC has no {what}"),
            Self::TooLarge(kind, value, end) => write!(f, "{kind} {value:#x} is too large; below {end:#x} it fits"),
            Self::LpisEnabled(affinity) => {
                write!(f, "LPIs of the CPU of affinity {affinity:#010x} are enabled already and cannot be disabled")
            }
            Self::Stalled(index) => write!(f, "the ITS refused the command of index {index}"),
            Self::Dma(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for GicError {}

impl From<DmaError> for GicError {
    fn from(error: DmaError) -> Self {
        Self::Dma(error)
    }
}

impl From<GicError> for IrqError {
    fn from(error: GicError) -> Self {
        Self::Hardware(
            "GIC",
            match error {
                GicError::IntId(..) => "the distributor has no such INTID",
                GicError::NoCpu(_) => "the GIC has no such CPU",
                GicError::NoInterface(_) => "the CPU's interface has not been started",
                GicError::Timeout(what, _) => what,
                GicError::TooLarge(kind, ..) => kind,
                GicError::Stalled(_) => "the ITS refused a command",
                GicError::Dma(_) => "no memory for a translation table",
                _ => "the hardware cannot do it",
            },
        )
    }
}
