//! LPIs: message interrupts. Their configuration is in memory, and their only state is pending or not pending.
//!
//! Source: IHI 0069H, "Locality-specific Peripheral Interrupts and the ITS": "LPIs", "LPI Configuration tables", "LPI
//! Pending tables". The configuration of an LPI is read when an event is mapped to it or when it first becomes
//! pending. It is then cached until an INV or INVALL command, so that a driver that forgets the command notices.

use super::Gic;
use super::cpu_interface::Candidate;
use crate::world::World;
use spec::gic::IntId;
use spec::gic::gicr::LpiProperty;

/// Bytes of a pending table before the first LPI's bit.
const PENDING_FIRST: u64 = IntId::LPI_FIRST.0 as u64 / 8;

impl Gic {
    pub(super) fn has_lpi(&self, intid: u32) -> bool {
        self.config.its.as_ref().is_some_and(|its| its.has_lpi(intid))
    }

    /// The most urgent pending LPI of `cpu`. All LPIs are in group 1.
    pub(super) fn pending_lpi(&self, cpu: u32) -> Option<Candidate> {
        let own = &self.cpus[cpu as usize].redistributor;
        let candidate = |intid: &u32| {
            let property = self.properties.get(intid).filter(|property| property.enable())?;
            let priority = property.priority().0 & self.config.priority_mask();
            Some(Candidate { priority, intid: *intid, group1: true, source: 0 })
        };
        let pending = own.pending.iter().filter_map(candidate);
        pending.min_by_key(|found| (found.priority, found.intid))
    }

    /// The LPI is no longer pending: it was acknowledged, cleared or moved.
    pub(super) fn clear_lpi(&mut self, cpu: u32, intid: u32) -> bool {
        self.cpus.get_mut(cpu as usize).is_some_and(|own| own.redistributor.pending.remove(&intid))
    }

    /// An LPI becomes pending at `cpu`.
    pub(super) fn pend_lpi(&mut self, world: &mut World<'_>, cpu: u32, intid: u32) {
        if !self.cpus[cpu as usize].redistributor.lpis_enabled {
            let text = format!("CPU {cpu}, INTID {intid}");
            return world.fault("LPI for a redistributor that has them disabled", cpu.into(), text);
        }
        if !self.properties.contains_key(&intid) {
            self.load_property(world, cpu, intid);
        }
        self.cpus[cpu as usize].redistributor.pend(intid);
    }

    /// Reads the configuration byte of an LPI from the table of `cpu`'s redistributor.
    pub(super) fn load_property(&mut self, world: &mut World<'_>, cpu: u32, intid: u32) {
        let base = self.cpus[cpu as usize].redistributor.properties;
        let address = (base.page() << 12) + u64::from(intid - IntId::LPI_FIRST.0);
        let in_table = u64::from(intid) >> (u32::from(base.id_bits_less_one()) + 1) == 0;
        let byte = if in_table { world.read32(address & !3).ok() } else { None };
        let Some(word) = byte else {
            let text = format!("INTID {intid}: byte at {address:#x}, table {:#x}", base.into_bits());
            self.properties.insert(intid, LpiProperty::new());
            return world.fault("LPI without a configuration", cpu.into(), text);
        };
        self.properties.insert(intid, LpiProperty::from_bits((word >> (address % 4 * 8)) as u8));
    }

    /// GICR_CTLR.EnableLPIs. Enabling reads the pending table unless software says that it is all zero. Disabling
    /// writes it back.
    pub(super) fn set_lpis_enabled(&mut self, world: &mut World<'_>, cpu: usize, enable: bool) {
        let own = &self.cpus[cpu].redistributor;
        let Some(its) = self.config.its.as_ref().filter(|_| own.lpis_enabled != enable) else { return };
        let (table, zeroed) = (own.pending_table.unit() << 16, own.pending_table.zeroed());
        let bits = (own.properties.id_bits_less_one() + 1).min(its.intid_bits);
        let words = PENDING_FIRST / 8..(1_u64 << bits) / 64;
        let mut unreadable = None;
        if enable {
            let mut pending = Vec::new();
            for word in words.filter(|_| !zeroed) {
                match world.read64(table + word * 8) {
                    Ok(bits) => pending.extend((0..64).filter(|bit| bits >> bit & 1 == 1).map(|bit| word * 64 + bit)),
                    Err(error) => unreadable = Some(error.address),
                }
            }
            for intid in pending.into_iter().map(|intid| intid as u32) {
                self.load_property(world, cpu as u32, intid);
                self.cpus[cpu].redistributor.pend(intid);
            }
        } else {
            for word in words {
                let is_set = |bit: &u64| own.pending.contains(&((word * 64 + bit) as u32));
                let bits = (0..64).filter(is_set).fold(0, |bits, bit| bits | 1 << bit);
                if let Err(error) = world.write64(table + word * 8, bits) {
                    unreadable = Some(error.address);
                }
            }
            self.cpus[cpu].redistributor.pending.clear();
            self.begin_disabling_private(world, cpu);
        }
        if let Some(address) = unreadable {
            world.fault("LPI pending table outside of memory", cpu as u64, format!("CPU {cpu}, {address:#x}"));
        }
        self.cpus[cpu].redistributor.lpis_enabled = enable;
    }
}
