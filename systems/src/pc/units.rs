//! Remapping units: the best path of messages that each supports, and the line of its fault event.

use super::error::PcError;
use super::policy::{Fallback, Path, UnitPolicy};
use super::{Parts, PcCpus};
use alloc::format;
use alloc::sync::{Arc, Weak};
use drivers::message::MessageDomain;
use drivers::vtd::{self, Fault, FaultEvent, FaultsTaken, RemapConfig, RemapDomain, RemapUnit, VtdError};
use hal::{CpuId, CpuSet, DmaExchange128, Hal};
use irq::{Action, AllocRequest, Flow, Irq, IrqCore, IrqDomain, IrqReturn, RequestFlags, RequesterId};

/// Called for each request that a unit has blocked, with the unit's number and the record. Runs in the interrupt; for
/// records that earlier software left, while the unit is brought up.
pub type FaultObserver = Arc<dyn Fn(usize, Fault) + Send + Sync>;

/// A remapping unit, and the domains behind it.
pub struct Unit<H: Hal> {
    remapping: Option<Arc<RemapUnit<H>>>,
    remapped: Option<Arc<RemapDomain<H>>>,
    /// The domain of PCI messages.
    pci: Arc<dyn IrqDomain>,
    /// The domain of interrupts that are never posted.
    unposted: Arc<dyn IrqDomain>,
    /// The line of its fault event, and its handler.
    fault_line: Option<(Irq, Arc<dyn Action>)>,
}

impl<H: Hal> Unit<H> {
    /// The unit; none if messages go straight to the local APICs.
    pub fn remapping(&self) -> Option<&Arc<RemapUnit<H>>> {
        self.remapping.as_ref()
    }

    /// The unit's domain for PCI messages, which can lend lines to guests.
    pub fn domain(&self) -> Option<&Arc<RemapDomain<H>>> {
        self.remapped.as_ref()
    }

    /// The line of its fault event.
    pub fn fault_line(&self) -> Option<Irq> {
        self.fault_line.as_ref().map(|(line, _)| *line)
    }

    /// Turns the unit off again, since the PC does not come up.
    pub(super) fn take_down(self, core: &IrqCore<H>)
    where
        H::Dma: DmaExchange128,
    {
        if let Some((line, handler)) = self.fault_line {
            // Refused only within the handler itself.
            _ = core.free(line, &handler).and_then(|()| core.free_line(line));
        }
        self.remapping.into_iter().for_each(shut_down);
    }

    /// The parent of domains of PCI messages.
    pub(super) fn pci(&self) -> &Arc<dyn IrqDomain> {
        &self.pci
    }

    /// The parent of domains of everything else.
    pub(super) fn unposted(&self) -> &Arc<dyn IrqDomain> {
        &self.unposted
    }

    fn plain(vectors: &Arc<dyn IrqDomain>) -> Self {
        let vectors = || vectors.clone();
        Self { remapping: None, remapped: None, pci: vectors(), unposted: vectors(), fault_line: None }
    }
}

/// What a unit that is not turned off may still use stays allocated.
fn shut_down<H: Hal>(unit: Arc<RemapUnit<H>>)
where
    H::Dma: DmaExchange128,
{
    if unit.shut_down().is_err() {
        core::mem::forget(unit);
    }
}

/// The inputs for bringing units up.
pub(super) struct Bringing<'a, H: Hal> {
    pub(super) cpus: &'a PcCpus<H>,
    pub(super) vectors: &'a Arc<dyn IrqDomain>,
    pub(super) config: RemapConfig,
    pub(super) wish: Path,
    pub(super) strict: bool,
    pub(super) observer: Option<FaultObserver>,
}

impl<H: Hal> Bringing<'_, H>
where
    H::Dma: DmaExchange128,
{
    /// Brings up the unit behind `regs`. It has number `index`. If that fails, what was turned on is off again.
    pub(super) fn bring_up(&self, index: usize, regs: H::Regs) -> Result<(Unit<H>, UnitPolicy), PcError> {
        let hal = self.cpus.parts().hal;
        // Earlier software may have left it on, and plain messages would be blocked.
        vtd::pass_unremapped(hal, &regs).map_err(|why| PcError::Unit(index, why))?;
        if self.wish == Path::Plain {
            return Ok((Unit::plain(self.vectors), UnitPolicy { path: Path::Plain, fallback: None }));
        }
        match RemapUnit::new(hal, regs, self.config) {
            Ok(unit) => {
                let unit = Arc::new(unit);
                self.connect(index, &unit).inspect_err(|_| shut_down(unit))
            }
            Err(why @ VtdError::Missing(_)) => {
                let policy = self.fall_back(index, Path::Plain, Fallback::Remapping(why))?;
                Ok((Unit::plain(self.vectors), policy))
            }
            Err(why) => Err(PcError::Unit(index, why)),
        }
    }

    /// The domains of `unit`, and its fault event.
    fn connect(&self, index: usize, unit: &Arc<RemapUnit<H>>) -> Result<(Unit<H>, UnitPolicy), PcError> {
        let Parts { lapic, posted, .. } = self.cpus.parts();
        let remapped = || RemapDomain::remapped(unit.clone(), lapic.clone(), self.vectors.clone());
        let wished = UnitPolicy { path: self.wish, fallback: None };
        let (domain, policy) = match posted.as_ref().filter(|_| self.wish == Path::Posted) {
            None => (remapped(), wished),
            Some(posted) => {
                match RemapDomain::posted(unit.clone(), lapic.clone(), self.vectors.clone(), posted.clone()) {
                    Ok(domain) => (domain, wished),
                    Err(why) => (remapped(), self.fall_back(index, Path::Remapped, Fallback::Posting(why))?),
                }
            }
        };
        let domain = Arc::new(domain);
        let unposted = if domain.is_posted() { Arc::new(remapped()) } else { domain.clone() };
        let fault_line = Some(self.fault_line(index, unit)?);
        let unit =
            Unit { remapping: Some(unit.clone()), remapped: Some(domain.clone()), pci: domain, unposted, fault_line };
        Ok((unit, policy))
    }

    /// The stand-in for a unit on a machine that has none.
    pub(super) fn without_units(&self) -> Result<(Unit<H>, UnitPolicy), PcError> {
        let policy = match self.wish {
            Path::Plain => UnitPolicy { path: Path::Plain, fallback: None },
            _ => self.fall_back(0, Path::Plain, Fallback::NoUnit)?,
        };
        Ok((Unit::plain(self.vectors), policy))
    }

    /// Falls back to another path than the wished one, unless the wish is strict.
    fn fall_back(&self, index: usize, path: Path, why: Fallback) -> Result<UnitPolicy, PcError> {
        if self.strict { Err(PcError::Fallback(index, why)) } else { Ok(UnitPolicy { path, fallback: Some(why) }) }
    }

    /// The line of a unit's fault event, which is never remapped. It lives as long as the core.
    fn fault_line(&self, index: usize, unit: &Arc<RemapUnit<H>>) -> Result<(Irq, Arc<dyn Action>), PcError> {
        let Parts { hal, core, .. } = self.cpus.parts();
        let event = FaultEvent::new(unit.clone());
        let domain = MessageDomain::new(*hal, event, self.vectors.clone())?;
        // The CPUs take turns: one CPU has too few vectors for hundreds of units.
        let range = self.cpus.range();
        let cpu = CpuId(range.start + index as u32 % range.len() as u32);
        let line =
            core.alloc_line(Arc::new(domain), &AllocRequest::fixed(RequesterId(0), 0, CpuSet::of(cpu)), Flow::Edge)?;
        let (core_ref, unit, observer) = (Arc::downgrade(core), unit.clone(), self.observer.clone());
        let handler = Arc::new(FaultHandler { core: core_ref, unit, index, observer });
        // What earlier software left recorded would hold back every event. The event is still masked, so it waits for a fault
        // that is recorded from now on.
        let (_, taken) = handler.take();
        let handler: Arc<dyn Action> = handler;
        let flags = RequestFlags { no_thread: true, ..RequestFlags::default() };
        core.request(line, format!("dmar{index}"), flags, handler.clone()).inspect_err(|_| {
            // It has no handler, so nothing refuses it.
            _ = core.free_line(line);
        })?;
        if taken.pending {
            // It fails only at a local APIC that takes no command.
            _ = core.retrigger(line);
        }
        Ok((line, handler))
    }
}

/// Takes the records, so that the unit reports the next fault too.
struct FaultHandler<H: Hal> {
    /// The core owns this.
    core: Weak<IrqCore<H>>,
    unit: Arc<RemapUnit<H>>,
    index: usize,
    observer: Option<FaultObserver>,
}

impl<H: Hal> FaultHandler<H>
where
    H::Dma: DmaExchange128,
{
    /// Reports each record. Returns true if there was one, and how it ended.
    fn take(&self) -> (bool, FaultsTaken) {
        let mut any = false;
        let taken = self.unit.take_faults(|fault| {
            any = true;
            self.observer.iter().for_each(|observer| observer(self.index, fault));
        });
        (any, taken)
    }
}

impl<H: Hal> Action for FaultHandler<H>
where
    H::Dma: DmaExchange128,
{
    /// What no event tells of is looked for by a further interrupt. Faults that come faster than they are read so make the line
    /// storm, like any device that interrupts without end, and the core throttles it.
    fn handle(&self, irq: Irq) -> IrqReturn {
        let (any, taken) = self.take();
        if taken.pending
            && let Some(core) = self.core.upgrade()
        {
            // It fails only at a local APIC that takes no command.
            _ = core.retrigger(irq);
        }
        if any || taken.pending { IrqReturn::Handled } else { IrqReturn::None }
    }
}
