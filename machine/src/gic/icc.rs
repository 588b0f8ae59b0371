//! GICv3's CPU interface: system registers (IHI 0069H, "AArch64 System register descriptions"), of a system with one
//! security state. Those of group 0 exist, but nothing of group 0 is signalled as IRQ.

use super::Gic;
use super::access::{Outcome, Refusal};
use super::cpu_interface::Candidate;
use crate::world::World;
use spec::gic::{IntId, icc};

impl Gic {
    pub(super) fn system_read(&mut self, world: &mut World<'_>, cpu: u32, register: u32) -> Outcome<u64> {
        let interface = &self.cpus[cpu as usize].interface;
        Ok(match register {
            _ if register == icc::PMR.offset() => interface.mask.into(),
            _ if register == icc::IAR1.offset() => self.acknowledge(world, cpu, of_group1).into(),
            _ if register == icc::HPPIR1.offset() => self.highest_pending(cpu, of_group1).into(),
            _ if register == icc::RPR.offset() => interface.running_priority().into(),
            _ if register == icc::BPR1.offset() => interface.binary_point(true).into(),
            _ if register == icc::CTLR.offset() => self.system_control(cpu).into_bits(),
            _ if register == icc::IGRPEN1.offset() => interface.enabled[1].into(),
            // System registers are the only interface: SRE, DFB and DIB are fixed.
            _ if register == icc::SRE.offset() => 0b111,
            _ if [icc::EOIR1, icc::DIR, icc::SGI1R].iter().any(|named| named.offset() == register) => {
                return Err(Refusal::WriteOnly);
            }
            _ => {
                let index = self.active_index(register)?;
                self.cpus[cpu as usize].interface.active_register(true, index).into()
            }
        })
    }

    pub(super) fn system_write(&mut self, world: &mut World<'_>, cpu: u32, register: u32, value: u64) -> Outcome<()> {
        let priority_mask = self.config.priority_mask();
        let interface = &mut self.cpus[cpu as usize].interface;
        match register {
            _ if register == icc::PMR.offset() => interface.mask = value as u8 & priority_mask,
            _ if register == icc::EOIR1.offset() => self.end_of_interrupt(world, cpu, value as u32),
            _ if register == icc::DIR.offset() => self.deactivate_register(world, cpu, value as u32),
            _ if register == icc::BPR1.offset() => interface.set_binary_point(true, value as u8),
            _ if register == icc::CTLR.offset() => self.set_system_control(world, cpu, value),
            _ if register == icc::IGRPEN1.offset() => interface.enable([interface.enabled[0], value & 1 == 1]),
            _ if register == icc::SRE.offset() => {}
            _ if register == icc::SGI1R.offset() => self.software_interrupt_1(world, cpu, value),
            _ if [icc::IAR1, icc::RPR, icc::HPPIR1].iter().any(|named| named.offset() == register) => {
                return Err(Refusal::ReadOnly);
            }
            _ => {
                let index = self.active_index(register)?;
                self.cpus[cpu as usize].interface.set_active_register(true, index, value as u32);
            }
        }
        Ok(())
    }

    /// ICC_AP1Rn_EL1: one for 5 priority bits, two for 6, four for more.
    fn active_index(&self, register: u32) -> Outcome<u32> {
        let count = 1 << (self.config.priority_bits.clamp(5, 7) - 5);
        let index = register.wrapping_sub(icc::AP1R[0].offset());
        if index < count { Ok(index) } else { Err(Refusal::Reserved) }
    }

    fn system_control(&self, cpu: u32) -> icc::Control {
        let interface = &self.cpus[cpu as usize].interface;
        icc::Control::new()
            .with_common_binary_point(interface.common_binary_point)
            .with_eoi_mode(interface.eoi_mode)
            .with_priority_bits_less_one(self.config.priority_bits - 1)
            .with_range_selector(self.config.affinity_shift > 0)
    }

    fn set_system_control(&mut self, world: &mut World<'_>, cpu: u32, value: u64) {
        let control = icc::Control::from_bits(value);
        let interface = &mut self.cpus[cpu as usize].interface;
        interface.common_binary_point = control.common_binary_point();
        if interface.eoi_mode != control.eoi_mode() && interface.active != [0; 2] {
            let text = format!("CPU {cpu}: unpredictable");
            world.fault("GIC EOImode is changed while an interrupt is active", cpu.into(), text);
        }
        interface.eoi_mode = control.eoi_mode();
    }

    /// ICC_SGI1R_EL1.
    fn software_interrupt_1(&mut self, world: &mut World<'_>, cpu: u32, value: u64) {
        let command = icc::SoftwareInterrupt::from_bits(value);
        if command.others() {
            return self.send_sgi(world, cpu, command.intid(), |to| to != cpu);
        }
        let cluster = u32::from(command.affinity3()) << 24
            | u32::from(command.affinity2()) << 16
            | u32::from(command.affinity1()) << 8;
        let named = |bit: u32| cluster + u32::from(command.range()) * 16 + bit;
        let exists = |bit: &u32| self.config.cpu_of(named(*bit)).is_some_and(|to| (to as usize) < self.cpus.len());
        let bits = (0..16).filter(|bit| command.targets() >> bit & 1 == 1);
        if command.targets() == 0 || !bits.clone().all(|bit| exists(&bit)) {
            let text = format!("SGI {}, {value:#x}", command.intid());
            world.fault("GIC software interrupt to no CPU", cpu.into(), text);
        }
        let targets: Vec<_> = bits.map(named).filter_map(|named| self.config.cpu_of(named)).collect();
        self.send_sgi(world, cpu, command.intid(), |to| targets.contains(&to));
    }
}

fn of_group1(candidate: Candidate) -> Result<(), IntId> {
    if candidate.group1 { Ok(()) } else { Err(IntId::SPURIOUS) }
}
