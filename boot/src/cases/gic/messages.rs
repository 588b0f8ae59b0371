//! How messages of PCI functions become interrupts: LPIs through the ITS, or SPIs through a GICv2's v2m frame.

use super::system::{Gic, window};
use crate::arch::{Registers, Window};
use crate::kernel::Bare;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use drivers::gic::its::{Its, ItsConfig, ItsDomain};
use drivers::gic::{GicError, GicV3, Lpis, MessageSpiDomain};
use hal::{CpuId, Hal, Regs};
use irq::{Flow, IrqDomain};
use spec::gic::{IntId, Kind, gicc, icc};

/// LPIs, and events that a device may have.
pub(super) const LPIS: u32 = 64;

/// The way of the messages.
#[derive(Clone)]
pub(super) struct Messages {
    pub(super) domain: Arc<dyn IrqDomain>,
    /// The flow of their lines.
    pub(super) flow: Flow,
    translation: Option<Translation>,
}

/// What CPUs that come and go have to tell.
#[derive(Clone)]
struct Translation {
    lpis: Arc<Lpis<Bare>>,
    its: Arc<Its<Bare>>,
}

impl Messages {
    /// Brings up the ITS or the v2m frame at `place`, for this CPU.
    ///
    /// # Errors
    /// What did not come up.
    pub(super) fn new(gic: &Gic, place: Window) -> Result<Self, String> {
        let why = |error: GicError| format!("the messages' way to the GIC: {error}");
        match gic {
            Gic::V2(gic) => {
                let domain = MessageSpiDomain::v2m(gic.clone(), &window(place), place.base as u64).map_err(why)?;
                Ok(Self { domain: Arc::new(domain), flow: gic.flow(), translation: None })
            }
            Gic::V3(gic) => {
                let translation = Translation::new(gic, place).map_err(why)?;
                let domain = Arc::new(ItsDomain::new(translation.its.clone()));
                Ok(Self { domain, flow: Flow::FastEoi, translation: Some(translation) })
            }
        }
    }

    /// This CPU, whose interface has been started, may get messages.
    ///
    /// # Errors
    /// What the GIC says.
    pub(super) fn cpu_online(&self) -> Result<(), String> {
        let Some(Translation { lpis, its }) = &self.translation else { return Ok(()) };
        lpis.start_cpu().and_then(|()| its.cpu_online(Bare.cpu())).map_err(|error| error.to_string())
    }

    /// This CPU gets no more, and `heir` what is left.
    ///
    /// # Errors
    /// What the GIC says.
    pub(super) fn cpu_offline(&self, heir: CpuId) -> Result<(), String> {
        let Some(Translation { its, .. }) = &self.translation else { return Ok(()) };
        its.cpu_offline(Bare.cpu(), heir).map_err(|error| error.to_string())
    }
}

impl Translation {
    fn new(gic: &Arc<GicV3<Bare>>, place: Window) -> Result<Self, GicError> {
        let lpis = Arc::new(Lpis::new(Bare, gic.clone())?);
        let config = ItsConfig { base: place.base as u64, events_per_device: LPIS };
        let its = Arc::new(Its::new(Bare, window(place), lpis.clone(), config)?);
        Ok(Self { lpis, its })
    }
}

/// The interrupt of a device that this CPU would take next, were its interrupts on.
pub(super) fn highest_pending(gic: &Gic, cpu_part: Window) -> Option<IntId> {
    let intid = match gic {
        Gic::V2(_) => window(cpu_part).read32(gicc::HPPIR.offset()) & 0x3ff,
        Gic::V3(_) => Registers::System.read64(icc::HPPIR1.offset()) as u32,
    };
    Some(IntId(intid)).filter(|intid| matches!(intid.kind(), Kind::Spi | Kind::Lpi))
}
