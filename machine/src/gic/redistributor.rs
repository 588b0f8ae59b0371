//! GICv3's redistributors (IHI 0069H, "The GIC Redistributor register descriptions"), two frames for each CPU.

use super::access::{Outcome, Refusal};
use super::distributor::{PIDR2_V3, retriggered};
use super::interrupt::Field;
use super::{AWAKE, DISABLED_PRIVATE, Gic, is_pending};
use crate::time::Ps;
use crate::unrest::Kind;
use crate::world::World;
use spec::gic::gicr;
use std::collections::BTreeSet;

/// State of a redistributor besides its CPU's private interrupts.
pub(super) struct Redistributor {
    /// GICR_WAKER as software reads it.
    waker: gicr::Waker,
    /// Time at which the redistributor is awake, if software wakes it.
    awake_at: Ps,
    /// RWP is set until this time.
    write_pending_until: Ps,
    pub(super) lpis_enabled: bool,
    pub(super) properties: gicr::PropertyBase,
    pub(super) pending_table: gicr::PendingBase,
    /// LPIs that are pending here.
    pub(super) pending: BTreeSet<u32>,
    /// LPIs that became pending since the observer was last informed.
    pub(super) newly_pending: Vec<u32>,
}

impl Default for Redistributor {
    /// After reset: asleep.
    fn default() -> Self {
        Self {
            waker: gicr::Waker::new().with_sleep(true).with_asleep(true),
            awake_at: Ps::default(),
            write_pending_until: Ps::default(),
            lpis_enabled: false,
            properties: gicr::PropertyBase::new(),
            pending_table: gicr::PendingBase::new(),
            pending: BTreeSet::new(),
            newly_pending: Vec::new(),
        }
    }
}

impl Redistributor {
    /// An LPI becomes pending.
    pub(super) fn pend(&mut self, intid: u32) {
        if self.pending.insert(intid) {
            self.newly_pending.push(intid);
        }
    }

    pub(super) fn is_asleep(&self) -> bool {
        self.waker.asleep()
    }
}

/// Registers of 64 bits.
fn is_wide(offset: u32) -> bool {
    [gicr::PROPBASER.offset(), gicr::PENDBASER.offset(), gicr::TYPER.offset()].contains(&offset)
}

impl Gic {
    /// The CPU of a redistributor, and the offset from its start.
    fn redistributor_at(&self, offset: u32) -> Outcome<(usize, u32)> {
        let (cpu, offset) = ((offset / gicr::STRIDE_BYTES) as usize, offset % gicr::STRIDE_BYTES);
        if cpu < self.cpus.len() { Ok((cpu, offset)) } else { Err(Refusal::Reserved) }
    }

    pub(super) fn redistributor_read(&mut self, now: Ps, offset: u32, width: u8) -> Outcome<u64> {
        let (cpu, offset) = self.redistributor_at(offset)?;
        if is_wide(offset & !7) && offset.is_multiple_of(width.into()) {
            let half = self.wide_register(cpu, offset & !7) >> (offset % 8 * 8);
            return Ok(if width == 8 { half } else { half & 0xffff_ffff });
        }
        if width != 4 || !offset.is_multiple_of(4) {
            return Err(Refusal::Width);
        }
        if let Some((field, index)) = private_field(offset) {
            return Ok(self.cpus[cpu].bank.read(field, index).into());
        }
        let own = &self.cpus[cpu].redistributor;
        Ok(match offset {
            _ if offset == gicr::CTLR.offset() => {
                self.counts.control_reads += 1;
                gicr::Control::new()
                    .with_enable_lpis(own.lpis_enabled)
                    .with_can_clear_enable(true)
                    .with_write_pending(is_pending(own.write_pending_until, now))
                    .into_bits()
            }
            _ if offset == gicr::IIDR.offset() => 0,
            _ if offset == gicr::WAKER.offset() => own.waker.into_bits(),
            _ if offset == gicr::PIDR2.offset() => PIDR2_V3,
            _ => return Err(Refusal::Reserved),
        }
        .into())
    }

    pub(super) fn redistributor_write(
        &mut self,
        world: &mut World<'_>,
        offset: u32,
        width: u8,
        value: u64,
    ) -> Outcome<()> {
        let (cpu, offset) = self.redistributor_at(offset)?;
        if is_wide(offset & !7) && offset.is_multiple_of(width.into()) {
            let old = self.wide_register(cpu, offset & !7);
            let whole = crate::memory::with_field(old, offset % 8 * 8, u32::from(width) * 8, value);
            return self.set_wide_register(cpu, offset & !7, whole);
        }
        if width != 4 || !offset.is_multiple_of(4) {
            return Err(Refusal::Width);
        }
        let value = value as u32;
        if let Some((field, index)) = private_field(offset) {
            self.private_write(world, cpu, field, index, value);
            return Ok(());
        }
        match offset {
            _ if offset == gicr::CTLR.offset() => {
                self.set_lpis_enabled(world, cpu, gicr::Control::from_bits(value).enable_lpis());
            }
            _ if offset == gicr::WAKER.offset() => {
                self.set_waker(world, cpu, gicr::Waker::from_bits(value).sleep());
            }
            _ if offset == gicr::IIDR.offset() || offset == gicr::PIDR2.offset() => return Err(Refusal::ReadOnly),
            _ => return Err(Refusal::Reserved),
        }
        Ok(())
    }

    fn private_write(&mut self, world: &mut World<'_>, cpu: usize, field: Field, index: u32, value: u32) {
        if let Some(intid) = self.cpus[cpu].bank.write(field, index, value) {
            retriggered(world, intid);
        }
        self.counts.field_writes[field as usize] += 1;
        if field == Field::ClearEnable && value != 0 {
            self.begin_disabling_private(world, cpu);
        }
    }

    /// Sets RWP for a while.
    pub(super) fn begin_disabling_private(&mut self, world: &mut World<'_>, cpu: usize) {
        let until = world.now() + self.config.write_pending_time + world.effect_delay(Kind::LateDisable);
        let until = until.max(self.cpus[cpu].redistributor.write_pending_until);
        self.cpus[cpu].redistributor.write_pending_until = until;
        world.schedule(until, DISABLED_PRIVATE, cpu as u64);
    }

    pub(super) fn disabled_private(&mut self, cpu: u32, now: Ps) {
        let own = &mut self.cpus[cpu as usize];
        if !is_pending(own.redistributor.write_pending_until, now) {
            own.bank.disabled_everywhere();
        }
    }

    /// ProcessorSleep: ChildrenAsleep follows. Waking takes a while, falling asleep happens at once.
    fn set_waker(&mut self, world: &mut World<'_>, cpu: usize, sleep: bool) {
        let own = &mut self.cpus[cpu].redistributor;
        own.waker.set_sleep(sleep);
        if sleep {
            own.waker.set_asleep(true);
        } else {
            own.awake_at = world.now() + self.config.write_pending_time + world.effect_delay(Kind::LateDisable);
            world.schedule(own.awake_at, AWAKE, cpu as u64);
        }
    }

    pub(super) fn awake(&mut self, cpu: u32, now: Ps) {
        let own = &mut self.cpus[cpu as usize].redistributor;
        if !own.waker.sleep() && now >= own.awake_at {
            own.waker.set_asleep(false);
        }
    }

    /// Where the tables lie that redistributors use (IHI 0069H, "GICR_CTLR", EnableLPIs).
    pub(super) fn lpi_tables(&self) -> Vec<u64> {
        let using = self.cpus.iter().map(|cpu| &cpu.redistributor).filter(|own| own.lpis_enabled);
        using.flat_map(|own| [own.properties.page() << 12, own.pending_table.unit() << 16]).collect()
    }

    fn wide_register(&self, cpu: usize, offset: u32) -> u64 {
        let own = &self.cpus[cpu].redistributor;
        match offset {
            _ if offset == gicr::PROPBASER.offset() => own.properties.into_bits(),
            _ if offset == gicr::PENDBASER.offset() => own.pending_table.into_bits(),
            _ => gicr::Type::new()
                .with_physical_lpis(self.config.its.is_some())
                .with_last(cpu + 1 == self.cpus.len())
                .with_number(cpu as u16)
                .with_affinity(self.config.affinity(cpu as u32))
                .into_bits(),
        }
    }

    /// The tables cannot be changed while LPIs are enabled (IHI 0069H, "GICR_PROPBASER": unpredictable).
    fn set_wide_register(&mut self, cpu: usize, offset: u32, value: u64) -> Outcome<()> {
        let own = &mut self.cpus[cpu].redistributor;
        if offset == gicr::TYPER.offset() {
            return Err(Refusal::ReadOnly);
        }
        if own.lpis_enabled {
            return Err(Refusal::Busy);
        }
        if offset == gicr::PROPBASER.offset() {
            own.properties = gicr::PropertyBase::from_bits(value);
        } else {
            own.pending_table = gicr::PendingBase::from_bits(value);
        }
        Ok(())
    }
}

/// The private interrupts' registers in the second frame, at the offsets of the distributor's first registers.
fn private_field(offset: u32) -> Option<(Field, u32)> {
    let (field, index) = Field::at(offset.checked_sub(gicr::SGI_FRAME)?)?;
    (field != Field::Targets && index * field.per_register() < 32).then_some((field, index))
}
