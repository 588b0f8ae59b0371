//! The GIC of a system, whichever version it is.

use super::ArmError;
use alloc::sync::Arc;
use alloc::vec::Vec;
use drivers::gic::{Affinity, EoiMode, Gic, GicDomain, GicError, GicV2, GicV3, Redistributors, RwpPolls, Version};
use hal::{CpuId, Hal};
use irq::{Flow, IrqCore, IrqDomain};
use spec::gic::IntId;

/// The registers of a system's GIC, as the device tree or the MADT describes them.
pub enum GicHardware<R> {
    /// A GICv2.
    V2 {
        /// The distributor.
        distributor: R,
        /// The CPU interface, which is banked by CPU.
        cpu_interface: R,
        /// CPUs, 1 to 8.
        cpus: u32,
    },
    /// A GICv3.
    V3 {
        /// The distributor.
        distributor: R,
        /// Every run of redistributors.
        redistributors: Vec<Redistributors<R>>,
        /// ICC_*_EL1 of the current CPU, by [encoding](spec::gic::icc).
        system_registers: R,
        /// The affinity of each CPU (MPIDR_EL1), in the order of their numbers.
        affinities: Vec<Affinity>,
    },
}

impl<R> GicHardware<R> {
    /// Number of CPUs in the system.
    pub(super) fn cpus(&self) -> u32 {
        match self {
            Self::V2 { cpus, .. } => *cpus,
            Self::V3 { affinities, .. } => affinities.len() as u32,
        }
    }
}

/// The GIC of a system.
pub(super) enum Controller<H: Hal> {
    V2(Arc<GicV2<H>>),
    V3(Arc<GicV3<H>>),
}

impl<H: Hal> Clone for Controller<H> {
    fn clone(&self) -> Self {
        match self {
            Self::V2(gic) => Self::V2(gic.clone()),
            Self::V3(gic) => Self::V3(gic.clone()),
        }
    }
}

impl<H: Hal> Controller<H> {
    /// Sets up the GIC, and starts this CPU's interface. `lpis` is the number of message interrupts.
    pub(super) fn new(
        hal: H,
        hardware: GicHardware<H::Regs>,
        (mode, rwp_polls): (EoiMode, RwpPolls),
        lpis: u32,
    ) -> Result<Self, ArmError> {
        Ok(match hardware {
            GicHardware::V2 { distributor, cpu_interface, cpus } => {
                Self::V2(Arc::new(GicV2::new(hal, distributor, cpu_interface, cpus, mode)?))
            }
            GicHardware::V3 { distributor, redistributors, system_registers, affinities } => {
                let gic = GicV3::new(hal, distributor, redistributors, system_registers, &affinities, mode, lpis)?;
                Self::V3(Arc::new(gic.rwp_polls(rwp_polls)))
            }
        })
    }

    /// Delivers all interrupts that are pending on this CPU.
    #[inline]
    pub(super) fn handle(&self, core: &IrqCore<H>) {
        match self {
            Self::V2(gic) => gic.handle(core),
            Self::V3(gic) => gic.handle(core),
        }
    }

    /// Delivers pending pseudo-NMIs, and no other interrupt.
    #[inline]
    pub(super) fn handle_pseudo_nmi(&self, core: &IrqCore<H>) {
        match self {
            Self::V2(gic) => gic.handle_pseudo_nmi(core),
            Self::V3(gic) => gic.handle_pseudo_nmi(core),
        }
    }

    /// The domain of its SPIs and private interrupts.
    pub(super) fn domain(&self) -> Arc<dyn IrqDomain> {
        match self {
            Self::V2(gic) => Arc::new(GicDomain::new(gic.clone())),
            Self::V3(gic) => Arc::new(GicDomain::new(gic.clone())),
        }
    }

    /// The methods that both versions have and that are not on the interrupt path.
    pub(super) fn common(&self) -> &dyn Common {
        match self {
            Self::V2(gic) => &**gic,
            Self::V3(gic) => &**gic,
        }
    }
}

/// The methods of a GIC that are the same for both versions.
pub(super) trait Common {
    fn send(&self, intid: IntId, cpu: CpuId) -> Result<(), GicError>;
    fn start_cpu(&self) -> Result<(), GicError>;
    fn stop_cpu(&self) -> Result<(), GicError>;
    fn flow(&self) -> Flow;
    fn strays(&self) -> u64;
    fn last_stray(&self) -> Option<IntId>;
    fn late_writes(&self) -> u64;
}

impl<H: Hal, V: Version<H>> Common for Gic<H, V> {
    fn send(&self, intid: IntId, cpu: CpuId) -> Result<(), GicError> {
        self.send(intid, cpu)
    }
    fn start_cpu(&self) -> Result<(), GicError> {
        self.start_cpu()
    }
    fn stop_cpu(&self) -> Result<(), GicError> {
        self.stop_cpu()
    }
    fn flow(&self) -> Flow {
        self.flow()
    }
    fn strays(&self) -> u64 {
        self.strays()
    }
    fn last_stray(&self) -> Option<IntId> {
        self.last_stray()
    }
    fn late_writes(&self) -> u64 {
        self.late_writes()
    }
}
