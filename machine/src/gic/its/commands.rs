//! The effect of each command (IHI 0069H, "ITS commands").

use super::Its;
use super::effects::Effect;
use super::tables::ItsError;
use crate::gic::Gic;
use crate::world::World;
use spec::gic::its::{Command, Opcode, RedistributorBase};

impl Gic {
    pub(super) fn its_execute(&mut self, world: &mut World<'_>, words: [u64; 4]) -> Result<(), ItsError> {
        let command = Command::decode(words).map_err(|Opcode(code)| ItsError::Opcode(code))?;
        match command {
            Command::MapDevice { device, event_bits_less_one, table, valid } => {
                let unit = self.its.as_mut().expect("a command is an ITS's");
                unit.map_device(world, device, valid.then_some((table, event_bits_less_one)))
            }
            Command::MapCollection { collection, redistributor, valid } => {
                let cpu = if valid { Some(self.redistributor(redistributor)?) } else { None };
                self.unit().map_collection(world, collection, cpu)
            }
            Command::MapEvent { device, event, intid, collection } => {
                self.map(world, device, event, intid.0, collection)
            }
            Command::MapInterrupt { device, event, collection } => self.map(world, device, event, event, collection),
            Command::Move { device, event, collection } => self.move_event(world, device, event, collection),
            Command::MoveAll { from, to } => {
                let (from, to) = (self.redistributor(from)?, self.redistributor(to)?);
                self.its_act(world, from, Effect::MoveAll(to));
                Ok(())
            }
            Command::Discard { device, event } => {
                let mapped = self.unit().event(world, device, event)?;
                match self.unit().target(world, mapped.collection) {
                    Ok(cpu) => self.its_act(world, cpu, Effect::Discard(mapped.intid)),
                    Err(_) => drop(self.properties.remove(&mapped.intid)),
                }
                self.unit().unmap_event(world, mapped)
            }
            Command::Interrupt { device, event } => {
                let (cpu, intid) = self.unit().translate(world, device, event)?;
                self.its_act(world, cpu, Effect::Pend(intid));
                Ok(())
            }
            Command::Clear { device, event } => {
                let (cpu, intid) = self.unit().translate(world, device, event)?;
                self.its_act(world, cpu, Effect::Clear(intid));
                Ok(())
            }
            Command::Invalidate { device, event } => {
                let (cpu, intid) = self.unit().translate(world, device, event)?;
                self.its_act(world, cpu, Effect::Load(intid));
                Ok(())
            }
            Command::InvalidateAll { collection } => {
                let cpu = self.unit().target(world, collection)?;
                let known: Vec<u32> = self.properties.keys().copied().collect();
                known.into_iter().for_each(|intid| self.its_act(world, cpu, Effect::Load(intid)));
                Ok(())
            }
            Command::Sync { redistributor } => {
                let cpu = self.redistributor(redistributor)?;
                self.its_effects(world, Some(cpu));
                Ok(())
            }
        }
    }

    fn unit(&self) -> &Its {
        self.its.as_ref().expect("a command is an ITS's")
    }

    /// The CPU whose redistributor has this number.
    fn redistributor(&self, base: RedistributorBase) -> Result<u32, ItsError> {
        let cpu = usize::try_from(base.0).ok().filter(|&cpu| cpu < self.cpus.len());
        cpu.map(|cpu| cpu as u32).ok_or(ItsError::Redistributor(base.0))
    }

    fn map(
        &mut self,
        world: &mut World<'_>,
        device: u32,
        event: u32,
        intid: u32,
        collection: u16,
    ) -> Result<(), ItsError> {
        if !self.has_lpi(intid) {
            return Err(ItsError::Intid(intid));
        }
        self.unit().map_event(world, device, event, intid, collection)?;
        self.its_keep(intid);
        if let Ok(cpu) = self.unit().target(world, collection) {
            self.load_property(world, cpu, intid);
        }
        Ok(())
    }

    /// A pending LPI moves to the new CPU.
    fn move_event(&mut self, world: &mut World<'_>, device: u32, event: u32, collection: u16) -> Result<(), ItsError> {
        let mapped = self.unit().event(world, device, event)?;
        let to = self.unit().target(world, collection)?;
        self.unit().move_event(world, mapped, collection)?;
        if let Ok(from) = self.unit().target(world, mapped.collection) {
            self.its_act(world, from, Effect::Move(mapped.intid, to));
        }
        Ok(())
    }
}
