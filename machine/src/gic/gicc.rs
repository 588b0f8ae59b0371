//! GICv2's CPU interface registers (IHI 0048B, "CPU interface register descriptions"), as without security extensions.
//! The CPU owns both groups: it reaches group 1 through the aliased registers or, with AckCtl, through all registers.

use super::Gic;
use super::access::{Outcome, Refusal};
use super::cpu_interface::Candidate;
use crate::world::World;
use spec::gic::{IntId, gicc};

/// Implementer and architecture version 2 in bits 19:16 (IHI 0048B, "GICC_IIDR").
const IIDR: u32 = 0x0002_0000;

impl Gic {
    pub(super) fn gicc_read(&mut self, world: &mut World<'_>, cpu: u32, offset: u32, width: u8) -> Outcome<u64> {
        if width != 4 || !offset.is_multiple_of(4) {
            return Err(Refusal::Width);
        }
        let acknowledges_group1 = self.cpus[cpu as usize].interface.acknowledges_group1;
        // With AckCtl clear, IAR returns 1022 for an interrupt of group 1, and AIAR ignores group 0 (IHI 0048B, "The
        // effect of interrupt grouping on reads of the GICC_IAR").
        let by_iar = move |candidate: Candidate| {
            if candidate.group1 && !acknowledges_group1 { Err(IntId::OTHER_GROUP) } else { Ok(()) }
        };
        let by_aiar = |candidate: Candidate| if candidate.group1 { Ok(()) } else { Err(IntId::SPURIOUS) };
        let interface = &self.cpus[cpu as usize].interface;
        Ok(match offset {
            _ if offset == gicc::CTLR.offset() => self.gicc_control(cpu).into_bits(),
            _ if offset == gicc::PMR.offset() => interface.mask.into(),
            _ if offset == gicc::BPR.offset() => interface.binary_point(false).into(),
            _ if offset == gicc::ABPR.offset() => interface.binary_point(true).into(),
            _ if offset == gicc::IAR.offset() => self.acknowledge(world, cpu, by_iar),
            _ if offset == gicc::AIAR.offset() => self.acknowledge(world, cpu, by_aiar),
            _ if offset == gicc::RPR.offset() => interface.running_priority().into(),
            _ if offset == gicc::HPPIR.offset() => self.highest_pending(cpu, by_iar),
            _ if offset == gicc::AHPPIR.offset() => self.highest_pending(cpu, by_aiar),
            _ if offset == gicc::IIDR.offset() => IIDR,
            _ if [gicc::EOIR, gicc::AEOIR, gicc::DIR].iter().any(|register| register.offset() == offset) => {
                return Err(Refusal::WriteOnly);
            }
            _ => {
                let (group1, index) = active_register(offset).ok_or(Refusal::Reserved)?;
                interface.active_register(group1, index)
            }
        }
        .into())
    }

    pub(super) fn gicc_write(
        &mut self,
        world: &mut World<'_>,
        cpu: u32,
        offset: u32,
        width: u8,
        value: u32,
    ) -> Outcome<()> {
        if width != 4 || !offset.is_multiple_of(4) {
            return Err(Refusal::Width);
        }
        let priority_mask = self.config.priority_mask();
        let interface = &mut self.cpus[cpu as usize].interface;
        match offset {
            _ if offset == gicc::CTLR.offset() => self.set_gicc_control(world, cpu, value),
            _ if offset == gicc::PMR.offset() => interface.mask = value as u8 & priority_mask,
            _ if offset == gicc::BPR.offset() => interface.set_binary_point(false, value as u8),
            _ if offset == gicc::ABPR.offset() => interface.set_binary_point(true, value as u8),
            _ if offset == gicc::EOIR.offset() || offset == gicc::AEOIR.offset() => {
                self.end_of_interrupt(world, cpu, value);
            }
            _ if offset == gicc::DIR.offset() => self.deactivate_register(world, cpu, value),
            _ if [gicc::IAR, gicc::AIAR, gicc::RPR, gicc::HPPIR, gicc::AHPPIR, gicc::IIDR]
                .iter()
                .any(|register| register.offset() == offset) =>
            {
                return Err(Refusal::ReadOnly);
            }
            _ => {
                let (group1, index) = active_register(offset).ok_or(Refusal::Reserved)?;
                interface.set_active_register(group1, index, value);
            }
        }
        Ok(())
    }

    /// The value of HPPIR: the most urgent pending interrupt, regardless of mask and running priority.
    pub(super) fn highest_pending(&self, cpu: u32, accepts: impl Fn(Candidate) -> Result<(), IntId>) -> u32 {
        let Some(candidate) = self.candidate(cpu) else { return IntId::SPURIOUS.0 };
        accepts(candidate).map_or_else(|special| special.0, |()| candidate.word())
    }

    fn gicc_control(&self, cpu: u32) -> gicc::V2Control {
        let interface = &self.cpus[cpu as usize].interface;
        gicc::V2Control::new()
            .with_enable(interface.enabled[0])
            .with_enable_group1(interface.enabled[1])
            .with_acknowledge_group1(interface.acknowledges_group1)
            .with_common_binary_point(interface.common_binary_point)
            .with_eoi_mode(interface.eoi_mode)
    }

    fn set_gicc_control(&mut self, world: &mut World<'_>, cpu: u32, value: u32) {
        let control = gicc::V2Control::from_bits(value);
        if control.group0_is_fiq() {
            world.fault("GICC_CTLR.FIQEn, which is not modelled", cpu.into(), format!("{value:#x}"));
        }
        let interface = &mut self.cpus[cpu as usize].interface;
        interface.enable([control.enable(), control.enable_group1()]);
        interface.acknowledges_group1 = control.acknowledge_group1();
        interface.common_binary_point = control.common_binary_point();
        if interface.eoi_mode != control.eoi_mode() && interface.active != [0; 2] {
            let text = format!("CPU {cpu}: unpredictable");
            world.fault("GIC EOImode is changed while an interrupt is active", cpu.into(), text);
        }
        interface.eoi_mode = control.eoi_mode();
    }
}

/// The group whose active priorities the register shows, and the register's index.
fn active_register(offset: u32) -> Option<(bool, u32)> {
    let group0 = gicc::APR.index_of(offset).map(|index| (false, index));
    group0.or_else(|| gicc::NSAPR.index_of(offset).map(|index| (true, index)))
}
