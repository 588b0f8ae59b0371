//! The distributor's registers (IHI 0048B, "Distributor register descriptions"; IHI 0069H, "The GIC Distributor register
//! descriptions"). GICv3: one security state, affinity routing.

use super::access::{Outcome, Refusal};
use super::interrupt::Field;
use super::{DISABLED, Gic, Version, is_pending};
use crate::time::Ps;
use crate::unrest::Kind;
use crate::world::World;
use spec::gic::gicd::{self, TargetFilter};

/// State of the distributor besides its interrupts.
#[derive(Default)]
pub(super) struct Distributor {
    /// Enabled groups.
    pub(super) enabled: [bool; 2],
    /// ARE.
    pub(super) affinity_routing: bool,
    /// RWP is set until this time.
    write_pending_until: Ps,
}

/// JEP106 code of the designer: a code that is assigned to no company.
const IIDR: u32 = 0;
/// Architecture revision in bits 7:4 of the peripheral id.
const PIDR2_V2: u32 = 0x2b;
pub(super) const PIDR2_V3: u32 = 0x3b;
/// Offset in GICv2 (IHI 0048B, "Identification registers").
const PIDR2_V2_OFFSET: u32 = 0xfe8;

impl Gic {
    pub(super) fn distributor_read(&mut self, now: Ps, cpu: u32, offset: u32, width: u8) -> Outcome<u64> {
        if let Some(value) = self.route_register(offset, width) {
            return value;
        }
        if width != 4 || !offset.is_multiple_of(4) {
            return Err(Refusal::Width);
        }
        if let Some((field, index)) = Field::at(offset) {
            return Ok(self.field_read(cpu, field, index).into());
        }
        let v2 = self.version == Version::V2;
        Ok(match offset {
            _ if offset == gicd::CTLR.offset() => {
                self.counts.control_reads += 1;
                self.control(now)
            }
            _ if offset == gicd::TYPER.offset() => self.distributor_type().into_bits(),
            _ if offset == gicd::IIDR.offset() => IIDR,
            _ if offset == gicd::PIDR2.offset() && !v2 => PIDR2_V3,
            PIDR2_V2_OFFSET if v2 => PIDR2_V2,
            _ if offset == gicd::SGIR.offset() && v2 => return Err(Refusal::WriteOnly),
            _ if is_message(offset) && self.config.message_spis => return Err(Refusal::WriteOnly),
            _ => {
                let (_, index) = sgi_pending(offset).filter(|_| v2).ok_or(Refusal::Reserved)?;
                self.sgi_sources(cpu, index)
            }
        }
        .into())
    }

    pub(super) fn distributor_write(
        &mut self,
        world: &mut World<'_>,
        cpu: u32,
        offset: u32,
        width: u8,
        value: u64,
    ) -> Outcome<()> {
        if self.route_register(offset, width).is_some() {
            return self.write_route(world, offset, width, value);
        }
        if width != 4 || !offset.is_multiple_of(4) {
            return Err(Refusal::Width);
        }
        let value = value as u32;
        if let Some((field, index)) = Field::at(offset) {
            return self.field_write(world, cpu, field, index, value);
        }
        let v2 = self.version == Version::V2;
        match offset {
            _ if offset == gicd::CTLR.offset() => self.set_control(world, value),
            _ if offset == gicd::TYPER.offset() || offset == gicd::IIDR.offset() => return Err(Refusal::ReadOnly),
            _ if offset == gicd::PIDR2.offset() && !v2 => return Err(Refusal::ReadOnly),
            PIDR2_V2_OFFSET if v2 => return Err(Refusal::ReadOnly),
            _ if offset == gicd::SGIR.offset() && v2 => self.software_interrupt(world, cpu, value),
            _ if is_message(offset) && self.config.message_spis => {
                let is_set = offset == gicd::SETSPI_NSR.offset();
                self.message_spi(world, cpu.into(), value, is_set);
            }
            _ => {
                let (sets, index) = sgi_pending(offset).filter(|_| v2).ok_or(Refusal::Reserved)?;
                self.set_sgi_sources(cpu, sets, index, value);
            }
        }
        Ok(())
    }

    fn control(&self, now: Ps) -> u32 {
        let [group0, group1] = self.distributor.enabled;
        match self.version {
            Version::V2 => gicd::V2Control::new().with_enable(group0).with_enable_group1(group1).into_bits(),
            Version::V3 => gicd::Control::new()
                .with_enable_group0(group0)
                .with_enable_group1(group1)
                .with_affinity_routing(self.distributor.affinity_routing)
                .with_disable_security(true)
                .with_write_pending(is_pending(self.distributor.write_pending_until, now))
                .into_bits(),
        }
    }

    /// GICv3: the group enables take effect at once; RWP says that a real GIC may need longer.
    fn set_control(&mut self, world: &mut World<'_>, value: u32) {
        if self.version == Version::V2 {
            let control = gicd::V2Control::from_bits(value);
            self.distributor.enabled = [control.enable(), control.enable_group1()];
            return;
        }
        let control = gicd::Control::from_bits(value);
        let enabled = [control.enable_group0(), control.enable_group1()];
        let had = self.distributor.affinity_routing;
        let unpredictable = if had && !control.affinity_routing() {
            "affinity routing is cleared"
        } else if !had && control.affinity_routing() && self.distributor.enabled != [false; 2] {
            "affinity routing is set while a group is enabled"
        } else if !control.affinity_routing() && enabled != [false; 2] {
            "a group is enabled without affinity routing, which is not modelled"
        } else {
            ""
        };
        if !unpredictable.is_empty() {
            world.fault("GICD_CTLR write that is unpredictable", value.into(), unpredictable.into());
        }
        self.distributor.affinity_routing |= control.affinity_routing();
        let disables = (0..2).any(|group| self.distributor.enabled[group] && !enabled[group]);
        self.distributor.enabled = enabled;
        if disables {
            self.begin_disabling(world);
        }
    }

    fn distributor_type(&self) -> gicd::Type {
        let lines = (self.config.spis.div_ceil(32)) as u8;
        let base = gicd::Type::new().with_lines(lines);
        if self.version == Version::V2 {
            return base.with_cpus_less_one((self.cpus.len() - 1) as u8);
        }
        let id_bits = self.config.its.as_ref().map_or(10, |its| its.intid_bits);
        base.with_message_spis(self.config.message_spis)
            .with_range_selector(self.config.affinity_shift > 0)
            .with_has_lpis(self.config.its.is_some())
            .with_id_bits_less_one(id_bits - 1)
    }

    /// GICv3 has the registers of private interrupts in the redistributors; GICv2 shows each CPU its own.
    fn field_read(&self, cpu: u32, field: Field, index: u32) -> u32 {
        let is_private = index * field.per_register() < 32;
        match (self.version, is_private) {
            (Version::V3, true) => 0,
            // Read-only: each CPU reads itself as target (IHI 0048B, "GICD_ITARGETSR").
            (Version::V2, true) if field == Field::Targets => (1 << cpu) * 0x0101_0101,
            (Version::V2, true) => self.cpus[cpu as usize].bank.read(field, index),
            (Version::V3, false) if field == Field::Targets => 0,
            _ => self.shared.read(field, index),
        }
    }

    fn field_write(&mut self, world: &mut World<'_>, cpu: u32, field: Field, index: u32, value: u32) -> Outcome<()> {
        let is_private = index * field.per_register() < 32;
        self.counts.field_writes[field as usize] += 1;
        // The targets of private interrupts are read-only in GICv2. With affinity routing all target registers are
        // reserved.
        if field == Field::Targets && (self.version == Version::V3 || is_private) {
            return Err(Refusal::ReadOnly);
        }
        if is_private && self.version == Version::V3 {
            // Reserved with affinity routing: the registers are in the redistributors.
            return Err(Refusal::Reserved);
        }
        let bank = if is_private { &mut self.cpus[cpu as usize].bank } else { &mut self.shared };
        if let Some(intid) = bank.write(field, index, value) {
            retriggered(world, intid);
        }
        if field == Field::ClearEnable && self.version == Version::V3 && value != 0 {
            self.begin_disabling(world);
        }
        Ok(())
    }

    /// Sets RWP. For a while, disabled interrupts are still forwarded.
    fn begin_disabling(&mut self, world: &mut World<'_>) {
        let until = world.now() + self.config.write_pending_time + world.effect_delay(Kind::LateDisable);
        let until = until.max(self.distributor.write_pending_until);
        self.distributor.write_pending_until = until;
        world.schedule(until, DISABLED, 0);
    }

    pub(super) fn disabled(&mut self, now: Ps) {
        if !is_pending(self.distributor.write_pending_until, now) {
            self.shared.disabled_everywhere();
        }
    }

    /// Reads an IROUTER, whole or half. `None` when the offset belongs to no IROUTER.
    fn route_register(&self, offset: u32, width: u8) -> Option<Outcome<u64>> {
        if self.version == Version::V2 {
            return None;
        }
        let index = gicd::IROUTER.index_of(offset & !7)?;
        if !offset.is_multiple_of(width.into()) {
            return Some(Err(Refusal::Width));
        }
        let route = self.shared.get(index).map_or(0, |interrupt| interrupt.route);
        let half = route >> (offset % 8 * 8);
        Some(Ok(if width == 8 { half } else { half & 0xffff_ffff }))
    }

    fn write_route(&mut self, world: &mut World<'_>, offset: u32, width: u8, value: u64) -> Outcome<()> {
        if !offset.is_multiple_of(width.into()) {
            return Err(Refusal::Width);
        }
        // Private interrupts have no IROUTER.
        let index = gicd::IROUTER.index_of(offset & !7).filter(|&index| index >= 32).ok_or(Refusal::Reserved)?;
        let changed = self.shared.change(index, |interrupt| {
            let bits = u32::from(width) * 8;
            let whole = crate::memory::with_field(interrupt.route, offset % 8 * 8, bits, value);
            // Affinities, and the routing mode in bit 31.
            interrupt.route = whole & 0xff_80ff_ffff;
            interrupt.route
        });
        let Some(route) = changed else { return Ok(()) };
        let route = gicd::Route::from_bits(route);
        let affinity = u32::from(route.affinity1()) << 8 | u32::from(route.affinity0());
        let is_cpu = route.affinity2() == 0
            && route.affinity3() == 0
            && self.config.cpu_of(affinity).is_some_and(|cpu| (cpu as usize) < self.cpus.len());
        if !route.any() && !is_cpu {
            world.fault("GIC route to no CPU", index.into(), format!("INTID {index}: {:#x}", route.into_bits()));
        }
        Ok(())
    }

    /// GICD_SGIR.
    fn software_interrupt(&mut self, world: &mut World<'_>, cpu: u32, value: u32) {
        let command = gicd::V2SoftwareInterrupt::from_bits(value);
        let (intid, targets) = (command.intid(), u32::from(command.targets()));
        match TargetFilter(command.filter()) {
            TargetFilter::LIST => {
                if targets >> self.cpus.len() != 0 || targets == 0 {
                    let text = format!("SGI {intid}, CPUs {targets:#04x}");
                    world.fault("GIC software interrupt to no CPU", cpu.into(), text);
                }
                self.send_sgi(world, cpu, intid, |to| targets >> to & 1 == 1);
            }
            TargetFilter::OTHERS => self.send_sgi(world, cpu, intid, |to| to != cpu),
            TargetFilter::SELF => self.send_sgi(world, cpu, intid, |to| to == cpu),
            TargetFilter(filter) => {
                world.fault("GICD_SGIR filter that is reserved", cpu.into(), format!("{filter:#04b}"));
            }
        }
    }

    /// The senders of four SGIs, one byte each (IHI 0048B, "GICD_SPENDSGIR").
    fn sgi_sources(&self, cpu: u32, index: u32) -> u32 {
        let bank = &self.cpus[cpu as usize].bank;
        let sources = |slot: u32| bank.get(index * 4 + slot).map_or(0, |sgi| u32::from(sgi.sources)) << (slot * 8);
        (0..4).map(sources).fold(0, |word, sources| word | sources)
    }

    fn set_sgi_sources(&mut self, cpu: u32, sets: bool, index: u32, value: u32) {
        let existing = ((1_u32 << self.cpus.len()) - 1) as u8;
        for slot in 0..4 {
            let senders = (value >> (slot * 8)) as u8 & existing;
            self.change(cpu, index * 4 + slot, |sgi| {
                if sets {
                    sgi.sources |= senders;
                } else {
                    sgi.sources &= !senders;
                }
            });
        }
    }
}

/// Software changed the trigger of an interrupt while it is enabled.
pub(super) fn retriggered(world: &mut World<'_>, intid: u32) {
    let text = format!("INTID {intid}: unpredictable");
    world.fault("GIC trigger of an enabled interrupt is changed", intid.into(), text);
}

fn is_message(offset: u32) -> bool {
    offset == gicd::SETSPI_NSR.offset() || offset == gicd::CLRSPI_NSR.offset()
}

/// For a register that sets or clears SGIs' senders: which one it is, and its index.
pub(super) fn sgi_pending(offset: u32) -> Option<(bool, u32)> {
    let set = gicd::SPENDSGIR.index_of(offset).map(|index| (true, index));
    set.or_else(|| gicd::CPENDSGIR.index_of(offset).map(|index| (false, index)))
}
