//! How messages of devices become interrupts: LPIs through an ITS, or SPIs.

use super::ArmError;
use super::controller::Controller;
use alloc::sync::Arc;
use drivers::gic::its::{Its, ItsConfig, ItsDomain};
use drivers::gic::{GicError, Lpis, MessageSpiDomain};
use hal::{CpuId, Hal};
use irq::{Flow, IrqDomain};
use spec::gic::IntId;

/// The hardware that takes devices' messages.
pub enum MessageHardware<R> {
    /// An interrupt translation service in front of a GICv3.
    Its {
        /// Its control frame.
        regs: R,
        /// Its address, and the number of events of a device.
        config: ItsConfig,
        /// Number of message interrupts.
        lpis: u32,
    },
    /// A v2m frame.
    V2m {
        /// The frame.
        regs: R,
        /// Its bus address.
        base: u64,
    },
    /// The message register of a GICv3's distributor.
    Distributor {
        /// The distributor's bus address.
        base: u64,
        /// The first SPI that firmware leaves to messages.
        first: IntId,
        /// Number of SPIs for messages.
        count: u32,
    },
}

impl<R> MessageHardware<R> {
    pub(super) fn lpis(&self) -> u32 {
        if let Self::Its { lpis, .. } = self { *lpis } else { 0 }
    }
}

/// The path from messages to a system's lines.
pub struct Messages<H: Hal> {
    domain: Arc<dyn IrqDomain>,
    flow: Flow,
    translation: Option<Translation<H>>,
}

/// The part that must know when CPUs come and go.
struct Translation<H: Hal> {
    lpis: Arc<Lpis<H>>,
    its: Arc<Its<H>>,
}

impl<H: Hal> Messages<H> {
    /// Sets up the hardware, for this CPU.
    pub(super) fn new(hal: H, gic: &Controller<H>, hardware: MessageHardware<H::Regs>) -> Result<Self, ArmError> {
        let spis = |domain| Self { domain, flow: gic.common().flow(), translation: None };
        Ok(match (hardware, gic) {
            (MessageHardware::Its { regs, config, .. }, Controller::V3(gic)) => {
                let lpis = Arc::new(Lpis::new(hal, gic.clone())?);
                let its = Arc::new(Its::new(hal, regs, lpis, config)?);
                let domain = Arc::new(ItsDomain::new(its.clone()));
                Self { domain, flow: Flow::FastEoi, translation: Some(Translation { lpis: its.lpis().clone(), its }) }
            }
            (MessageHardware::V2m { regs, base }, Controller::V2(gic)) => {
                spis(Arc::new(MessageSpiDomain::v2m(gic.clone(), &regs, base)?))
            }
            (MessageHardware::V2m { regs, base }, Controller::V3(gic)) => {
                spis(Arc::new(MessageSpiDomain::v2m(gic.clone(), &regs, base)?))
            }
            (MessageHardware::Distributor { base, first, count }, Controller::V3(gic)) => {
                spis(Arc::new(MessageSpiDomain::mbi(gic.clone(), base, first, count)?))
            }
            (MessageHardware::Its { .. }, Controller::V2(_)) => return Err(ArmError::NeedsV3("ITS")),
            (MessageHardware::Distributor { .. }, Controller::V2(_)) => {
                return Err(ArmError::NeedsV3("message registers in its distributor"));
            }
        })
    }

    /// The domain of messages: the parent of each device's own domain.
    pub fn domain(&self) -> &Arc<dyn IrqDomain> {
        &self.domain
    }

    /// The flow of message lines.
    pub fn flow(&self) -> Flow {
        self.flow
    }

    /// The ITS, where there is one.
    pub fn its(&self) -> Option<&Arc<Its<H>>> {
        self.translation.as_ref().map(|translation| &translation.its)
    }

    /// Lets this CPU receive messages. Its interface has been started.
    pub(super) fn start_cpu(&self, cpu: CpuId) -> Result<(), GicError> {
        let Some(Translation { lpis, its }) = &self.translation else { return Ok(()) };
        lpis.start_cpu()?;
        its.cpu_online(cpu)
    }

    /// Redirects this CPU's messages to `heir`.
    pub(super) fn stop_cpu(&self, cpu: CpuId, heir: CpuId) -> Result<(), GicError> {
        self.its().map_or(Ok(()), |its| its.cpu_offline(cpu, heir))
    }
}
