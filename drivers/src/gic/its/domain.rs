//! Events of devices as lines.

use super::{Event, Its};
use crate::gic::GicError;
use crate::gic::lpi::LpiDomain;
use alloc::collections::btree_map::Entry;
use alloc::sync::Arc;
use hal::{Dma, Hal};
use irq::{
    AllocRequest, HardwareIrq, IrqChip, IrqChipState, IrqDomain, IrqError, Level, LevelData, MsiMessage, Target,
};
use spec::gic::IntId;
use spec::gic::its::Command;

/// A line's number at this level: the device in the upper half, its event in the lower.
fn number(device: u32, event: u32) -> HardwareIrq {
    HardwareIrq(u64::from(device) << 32 | u64::from(event))
}

fn device_and_event(hwirq: HardwareIrq) -> (u32, u32) {
    ((hwirq.0 >> 32) as u32, hwirq.0 as u32)
}

const NO_EVENT: IrqError = IrqError::Hardware("ITS", "the line has no event");

/// Implements the chip of an ITS's lines.
struct Events<H: Hal> {
    its: Arc<Its<H>>,
}

impl<H: Hal> Events<H> {
    fn chip(self: &Arc<Self>) -> Arc<IrqChip> {
        IrqChip::of("ITS", self)
            .mask(Self::mask, Self::unmask)
            .set_affinity(Self::set_affinity)
            .retrigger(Self::retrigger)
            .compose_message(Self::compose_message)
            .state(Self::state, Self::set_state)
            .build()
    }

    /// Calls `change` on the state of a line's event; `change` also sends the necessary commands to the ITS.
    fn change<R>(
        &self,
        hwirq: HardwareIrq,
        change: impl FnOnce(&Its<H>, u32, u32, &mut Event) -> Result<R, IrqError>,
    ) -> Result<R, IrqError> {
        let (device, number) = device_and_event(hwirq);
        let mut devices = self.its.devices.lock();
        let event = devices.get_mut(&device).and_then(|device| device.events.get_mut(number as usize));
        change(&self.its, device, number, event.and_then(Option::as_mut).ok_or(NO_EVENT)?)
    }

    /// Masks an event in its LPI configuration and tells its redistributor (IHI 0069H, "LPI Configuration tables",
    /// "INV"). If the ITS refuses the event's command again and again, all of the CPU's configurations are read anew
    /// ("INVALL"): nobody repeats a mask later.
    fn set_masked(&self, hwirq: HardwareIrq, masked: bool) -> Result<(), IrqError> {
        self.change(hwirq, |its, device, number, event| {
            event.masked = masked;
            let Some((intid, cpu)) = event.mapped else { return Ok(()) };
            its.lpis.configure(intid, !masked);
            let (sync, collection) = (its.sync(cpu)?, cpu.0 as u16);
            let read = its.post_firmly(&[Command::Invalidate { device, event: number }, sync]);
            let all = [Command::InvalidateAll { collection }, sync];
            Ok(read.or_else(|error| match error {
                GicError::Stalled(_) => its.post_firmly(&all),
                late => Err(late),
            })?)
        })
    }

    fn take(&self, hwirq: HardwareIrq) -> Result<(), GicError> {
        let (device, number) = device_and_event(hwirq);
        let mut devices = self.its.devices.lock();
        let Some(entry) = devices.get_mut(&device) else { return Ok(()) };
        let slot = entry.events.get_mut(number as usize);
        let Some(event) = slot.as_ref().and_then(|slot| slot.as_ref()) else { return Ok(()) };
        if let Some((intid, cpu)) = event.mapped {
            self.its.lpis.configure(intid, false);
            let discard = [Command::Discard { device, event: number }, self.its.sync(cpu)?];
            // An event that may still be mapped sends its LPI: neither may be another line's.
            self.its.post_firmly(&discard).inspect_err(|_| self.its.lpis.gic().lpis.withhold(intid))?;
        }
        slot.map(Option::take);
        if entry.events.iter().all(Option::is_none) {
            let (event_bits_less_one, table) = (0, entry.table.device_address().0);
            entry.is_leaving = true;
            self.its.post_firmly(&[Command::MapDevice { device, event_bits_less_one, table, valid: false }])?;
            devices.remove(&device);
        }
        Ok(())
    }

    fn mask(&self, level: &Level<'_>) {
        // Fails only on an ITS in error, which its other commands report.
        _ = self.set_masked(level.hwirq(), true);
    }

    fn unmask(&self, level: &Level<'_>) {
        _ = self.set_masked(level.hwirq(), false);
    }

    fn set_affinity(&self, level: &Level<'_>, target: Target) -> Result<(), IrqError> {
        self.change(level.hwirq(), |its, device, number, event| {
            let (intid, old) = event.mapped.ok_or(NO_EVENT)?;
            if !its.can_target(target.cpu) {
                return Err(IrqError::Target("ITS", target));
            }
            its.move_event(device, number, old, target.cpu)?;
            event.mapped = Some((intid, target.cpu));
            Ok(())
        })
    }

    fn retrigger(&self, level: &Level<'_>) -> bool {
        self.set_state(level, IrqChipState::Pending, true).is_ok()
    }

    /// The device writes the event id to the translation register.
    fn compose_message(&self, level: &Level<'_>) -> Result<MsiMessage, IrqError> {
        Ok(MsiMessage { address: self.its.doorbell(), data: device_and_event(level.hwirq()).1 })
    }

    /// Only the redistributor knows whether an LPI is pending. An LPI has no active state.
    fn state(&self, level: &Level<'_>, which: IrqChipState) -> Result<bool, IrqError> {
        match which {
            IrqChipState::Masked => self.change(level.hwirq(), |_, _, _, event| Ok(event.masked)),
            IrqChipState::Pending => Err(IrqError::NotSupported("pending bit of an LPI that can be read")),
            IrqChipState::Active => Err(IrqError::NotSupported("active bit of an LPI")),
        }
    }

    fn set_state(&self, level: &Level<'_>, which: IrqChipState, value: bool) -> Result<(), IrqError> {
        match which {
            IrqChipState::Masked => self.set_masked(level.hwirq(), value),
            IrqChipState::Active => Err(IrqError::NotSupported("active bit of an LPI")),
            IrqChipState::Pending => self.change(level.hwirq(), |its, device, event, state| {
                let (_, cpu) = state.mapped.ok_or(NO_EVENT)?;
                let command =
                    if value { Command::Interrupt { device, event } } else { Command::Clear { device, event } };
                Ok(its.post_firmly(&[command, its.sync(cpu)?])?)
            }),
        }
    }
}

/// Lines of devices that write to an ITS. [`AllocRequest::requester`] is the device id. The domain allocates the
/// lowest free event. The flow is [`irq::Flow::FastEoi`].
pub struct ItsDomain<H: Hal> {
    parent: Arc<LpiDomain<H>>,
    events: Arc<Events<H>>,
    chip: Arc<IrqChip>,
}

impl<H: Hal> ItsDomain<H> {
    /// The lines of `its`.
    pub fn new(its: Arc<Its<H>>) -> Self {
        let parent = Arc::new(LpiDomain::new(its.lpis.gic().clone()));
        let events = Arc::new(Events { its });
        Self { parent, chip: events.chip(), events }
    }
}

impl<H: Hal> IrqDomain for ItsDomain<H> {
    fn name(&self) -> &str {
        "ITS"
    }

    fn parent(&self) -> Option<Arc<dyn IrqDomain>> {
        Some(self.parent.clone())
    }

    fn allocate(&self, request: &AllocRequest) -> Result<LevelData, IrqError> {
        let its = &self.events.its;
        let device = u32::from(request.requester.0);
        let mut devices = its.devices.lock();
        let events = match devices.entry(device) {
            Entry::Occupied(mut known) => {
                if known.get().is_leaving {
                    // The ITS uses the table before this one no more once it has the new one.
                    known.insert(its.make_device(device)?);
                }
                &mut known.into_mut().events
            }
            Entry::Vacant(unknown) => &mut unknown.insert(its.make_device(device)?).events,
        };
        let free = events.iter().position(Option::is_none);
        let event = free.ok_or(IrqError::Exhausted("events of the device", events.len() as u32))?;
        events[event] = Some(Event::default());
        Ok(LevelData { chip: self.chip.clone(), hwirq: number(device, event as u32) })
    }

    /// Maps the event (IHI 0069H, "MAPTI"). If a level nearer the device masks the line, this level leaves the event
    /// unmasked.
    fn activate(&self, level: &Level<'_>, target: Target) -> Result<(), IrqError> {
        let parent = level.parent().ok_or(IrqError::NotSupported("an LPI behind the event"))?;
        let intid = IntId(parent.hwirq().0 as u32);
        self.events.change(level.hwirq(), |its, device, number, event| {
            if !its.can_target(target.cpu) {
                return Err(IrqError::Target("ITS", target));
            }
            its.lpis.configure(intid, !event.masked);
            let (collection, sync) = (target.cpu.0 as u16, its.sync(target.cpu)?);
            let commands = [
                Command::MapEvent { device, event: number, intid, collection },
                Command::Invalidate { device, event: number },
                sync,
            ];
            let posted = its.post_or_undo(&commands, &[Command::Discard { device, event: number }, sync]);
            // If it may be mapped, the event's release has to discard it.
            if posted.as_ref().map_or_else(|failed| !failed.is_undone, |()| true) {
                event.mapped = Some((intid, target.cpu));
            }
            Ok(posted.map_err(GicError::from)?)
        })
    }

    /// The driver never reuses an event that the ITS may still map, and keeps its device's table.
    fn release(&self, hwirq: HardwareIrq) {
        _ = self.events.take(hwirq);
    }
}
