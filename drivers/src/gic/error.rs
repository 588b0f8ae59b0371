use core::fmt;
use hal::{CpuId, DmaError};
use irq::IrqError;
use spec::gic::IntId;

/// Why a GIC cannot do what it is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GicError {
    /// The peripheral id names this architecture revision; 3 and 4 would do.
    Revision(u8),
    /// So many CPUs were described; GICv2 has room for 1 to 8, GICv3 for at least 1.
    Cpus(usize),
    /// The CPU, of the given affinity, has no redistributor in the regions.
    NoRedistributor(CpuId, u32),
    /// The CPU is none of those described.
    NoCpu(CpuId),
    /// The distributor does not tell which of its CPU interfaces this CPU has.
    NoInterface(CpuId),
    /// The system registers cannot be enabled: the level above keeps them.
    SystemRegisters,
    /// Affinity level 0 of the CPU is above 15, which software-generated interrupts of this GIC cannot reach.
    Range(CpuId),
    /// What was waited for has not happened within this time, in nanoseconds.
    Timeout(&'static str, u64),
    /// The INTID is no private or shared interrupt below the given one, which is the distributor's first that is not.
    IntId(IntId, u32),
    /// The INTID cannot be sent by software; 0 to 15 can.
    NotSoftware(IntId),
    /// These message interrupts, first and count, are no SPIs below the given end.
    MessageRange(u32, u32, u32),
    /// The hardware lacks the named ability.
    Missing(&'static str),
    /// A number, of the named kind, that the second would be the first too large for.
    TooLarge(&'static str, u64, u64),
    /// LPIs are enabled already on this CPU, and stay so: firmware or another kernel has their tables.
    LpisEnabled(CpuId),
    /// The ITS stopped at the command of this index as being in error.
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
            Self::NoCpu(cpu) => write!(f, "CPU {cpu} is none of those that the GIC was described with"),
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
            Self::LpisEnabled(cpu) => write!(f, "LPIs of CPU {cpu} are enabled already and cannot be disabled"),
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
                GicError::IntId(..) => "the INTID is none of the distributor's",
                GicError::NoCpu(_) => "the CPU is none of the GIC's",
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
