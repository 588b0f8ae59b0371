use core::fmt;
use drivers::gic::GicError;
use hal::CpuId;
use irq::IrqError;
use spec::gic::IntId;

/// Why an Arm system cannot be built, or refuses a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArmError {
    /// An error of the GIC.
    Gic(GicError),
    /// An error of the core, a domain or a chip.
    Irq(IrqError),
    /// The reschedule interrupt was given this INTID. It must be a software-generated interrupt, 0 to 15.
    NotSoftware(IntId),
    /// The timer's interrupt was given this INTID. It must be a PPI, 16 to 31.
    NotPpi(IntId),
    /// A private line was given this INTID. It must be a private interrupt, 0 to 31.
    NotPrivate(IntId),
    /// CNTFRQ_EL0 reads 0: firmware has not set it on this CPU. The description must then give the frequency.
    Frequency,
    /// Pseudo-NMIs were requested; they need the priorities of a GICv3.
    PseudoNmi,
    /// This message hardware was given; it needs a GICv3.
    NeedsV3(&'static str),
    /// The CPU has been started already.
    Started(CpuId),
    /// The CPU has not been started, or has been stopped.
    Stopped(CpuId),
}

impl fmt::Display for ArmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gic(error) => error.fmt(f),
            Self::Irq(error) => error.fmt(f),
            Self::NotSoftware(intid) => {
                write!(f, "the reschedule interrupt is {intid}; software can send INTIDs 0 to 15")
            }
            Self::NotPpi(intid) => write!(f, "the timer's interrupt is {intid}; INTIDs 16 to 31 are PPIs"),
            Self::NotPrivate(intid) => write!(f, "{intid} is not private to a CPU; INTIDs 0 to 31 are"),
            Self::Frequency => write!(f, "CNTFRQ_EL0 is 0; give the timer's frequency, as the device tree has it"),
            Self::PseudoNmi => write!(f, "a GICv2 has no pseudo-NMIs; a GICv3 has"),
            Self::NeedsV3(what) => write!(f, "a GICv2 has no {what}; a GICv3 may"),
            Self::Started(cpu) => write!(f, "CPU {cpu} has been started already"),
            Self::Stopped(cpu) => write!(f, "CPU {cpu} has not been started, or has been stopped"),
        }
    }
}

impl core::error::Error for ArmError {}

impl From<GicError> for ArmError {
    fn from(error: GicError) -> Self {
        Self::Gic(error)
    }
}

impl From<IrqError> for ArmError {
    fn from(error: IrqError) -> Self {
        Self::Irq(error)
    }
}
