//! Message interrupts: their tables in memory (IHI 0069H, "LPIs"), and the root domain of their lines.
//!
//! An LPI has no active state: in both EOImodes a write to EOIR ends it. While its handler runs, the LPI may fire
//! again, even on another CPU. Lines use [`irq::Flow::FastEoi`], which records the new interrupt and runs the handler
//! once more.

use super::domain::check_delivery;
use super::frame::Frame;
use super::version::Version;
use super::{Affinity, GicError, GicV3};
use alloc::boxed::Box;
use alloc::sync::Arc;
use hal::{CpuId, Dma, Hal, Lock, Word};
use irq::{AllocRequest, ChipBehaviour, HardwareIrq, IrqChip, IrqDomain, IrqError, Level, LevelData, Target};
use spec::gic::gicr::{self, Cacheability, LpiProperty, PendingBase, PropertyBase, Shareability};
use spec::gic::{IntId, Priority};

/// With fewer INTID bits than these a GIC has no LPIs.
const ID_BITS_MIN: u32 = 14;
/// Alignment of a table of pending bits, in bytes.
const PENDING_ALIGN: usize = 0x1_0000;
const PROPERTY_ALIGN: usize = 0x1000;

/// The LPIs of a GICv3. Keep this as long as the GIC runs: the redistributor of a CPU that has been started reads and writes the
/// tables from then on, and need not support disabling LPIs (IHI 0069H, "GICR_CTLR", "GICR_PENDBASER").
pub struct Lpis<H: Hal> {
    hal: H,
    gic: Arc<GicV3<H>>,
    id_bits: u32,
    /// One table of configuration, and one of pending bits for each CPU.
    properties: H::Dma,
    pending: Box<[H::Dma]>,
    /// Indexed by CPU: 1 while its redistributor uses the tables. An earlier kernel's may have lain at the same addresses.
    started: Box<[H::Word]>,
    /// Number of ITSs that use LPIs, or are being set up. No line is an LPI without one.
    users: Lock<H, u32>,
}

impl<H: Hal> Lpis<H> {
    /// Sets up as many LPIs as the GIC was built for, and enables them on this CPU. No other [`Lpis`] may be in use.
    ///
    /// # Errors
    /// [`GicError::Missing`] without LPIs, [`GicError::TooLarge`] for more than the GIC has, [`GicError::Dma`], or an
    /// error of [`Lpis::start_cpu`].
    pub fn new(hal: H, gic: Arc<GicV3<H>>) -> Result<Self, GicError> {
        if !gic.kind.has_lpis() {
            return Err(GicError::Missing("LPIs (GICD_TYPER.LPIS)"));
        }
        let (end, has) = (IntId::LPI_FIRST.0 + gic.lpis.count(), u32::from(gic.kind.id_bits_less_one()) + 1);
        let id_bits = end.next_power_of_two().ilog2().max(ID_BITS_MIN);
        if id_bits > has {
            return Err(GicError::TooLarge("INTID", u64::from(end) - 1, 1 << has));
        }
        let pending = (0..gic.version.cpus()).map(|_| hal.dma_alloc((1 << id_bits) / 8, PENDING_ALIGN));
        let lpis = Self {
            hal,
            properties: hal.dma_alloc((1 << id_bits) - IntId::LPI_FIRST.0 as usize, PROPERTY_ALIGN)?,
            pending: pending.collect::<Result<_, _>>()?,
            started: (0..gic.version.cpus()).map(|_| H::Word::new(0)).collect(),
            id_bits,
            gic,
            users: Lock::new(hal, 0),
        };
        lpis.disable_left()?;
        lpis.start_cpu()?;
        Ok(lpis)
    }

    /// Disables LPIs at all redistributors where an earlier kernel left them enabled. A group of redistributors shares one table of
    /// configurations, and different tables in one group are unpredictable while any of it has LPIs enabled (IHI 0069H,
    /// "GICR_PROPBASER"): so the old table has to be out of use before the first gets the new one.
    fn disable_left(&self) -> Result<(), GicError> {
        let mut left = self.gic.version.table_sharers().filter(|(_, redistributor)| is_enabled(redistributor));
        left.try_for_each(|(affinity, redistributor)| self.disable(affinity, &redistributor))
    }

    /// Enables LPIs at this CPU's redistributor. They stay enabled, unless an ITS does not come up: an implementation need not support
    /// disabling them (IHI 0069H, "GICR_CTLR").
    ///
    /// # Errors
    /// [`GicError::LpisEnabled`] when other software has already enabled them, [`GicError::Missing`] when the
    /// redistributor does not snoop caches, [`GicError::NoCpu`].
    pub fn start_cpu(&self) -> Result<(), GicError> {
        let off = self.hal.irq_save();
        let started = self.enable(self.hal.cpu());
        self.hal.irq_restore(off);
        started
    }

    fn enable(&self, cpu: CpuId) -> Result<(), GicError> {
        let redistributor = self.gic.version.redistributor(cpu)?;
        let (properties, pending) = (self.property_base(), self.pending_base(cpu));
        if is_enabled(&redistributor) {
            if self.started[cpu.index()].get() != 0 {
                return Ok(());
            }
            self.disable(self.gic.version.affinity(cpu)?, &redistributor)?;
        }
        // It may have been told to, and be late.
        self.gic.version.wait_private_written(&redistributor)?;
        redistributor.write(gicr::PROPBASER, properties.into_bits());
        redistributor.write(gicr::PENDBASER, pending.into_bits());
        let taken = PropertyBase::from_bits(redistributor.read(gicr::PROPBASER));
        if taken.shareability() != properties.shareability() {
            return Err(GicError::Missing("redistributor that snoops caches (GICR_PROPBASER.Shareability)"));
        }
        self.started[cpu.index()].set(1);
        redistributor.modify(gicr::CTLR, |bits| gicr::Control::from_bits(bits).with_enable_lpis(true).into_bits());
        Ok(())
    }

    /// An ITS is about to use LPIs. They are enabled on this CPU, also behind an ITS that failed.
    ///
    /// # Errors
    /// Those of [`Lpis::start_cpu`].
    pub(super) fn join(&self) -> Result<(), GicError> {
        let mut users = self.users.lock();
        if self.started.get(self.hal.cpu().index()).is_none_or(|started| started.get() == 0) {
            self.start_cpu()?;
        }
        *users += 1;
        Ok(())
    }

    /// An ITS that failed, and is stopped, uses LPIs no more. The last one disables them. If a redistributor does not support that, it goes
    /// on with the tables, so these stay allocated.
    pub(super) fn leave(self: Arc<Self>) {
        let mut users = self.users.lock();
        *users -= 1;
        let goes_on = *users == 0 && self.stop().is_err();
        drop(users);
        if goes_on {
            core::mem::forget(self);
        }
    }

    /// Disables LPIs at every redistributor that uses these tables. No line may be left.
    ///
    /// # Errors
    /// [`GicError::LpisEnabled`] of a redistributor that does not support it: it goes on with the tables.
    fn stop(&self) -> Result<(), GicError> {
        for (cpu, started) in (0..).map(CpuId).zip(&self.started) {
            if started.get() != 0 {
                self.disable(self.gic.version.affinity(cpu)?, &self.gic.version.redistributor(cpu)?)?;
                started.set(0);
            }
        }
        Ok(())
    }

    fn disable(&self, affinity: Affinity, redistributor: &Frame<'_, H::Regs>) -> Result<(), GicError> {
        redistributor.modify(gicr::CTLR, |bits| gicr::Control::from_bits(bits).with_enable_lpis(false).into_bits());
        self.gic.version.wait_private_written(redistributor)?;
        if is_enabled(redistributor) { Err(GicError::LpisEnabled(affinity.0)) } else { Ok(()) }
    }

    fn property_base(&self) -> PropertyBase {
        PropertyBase::new()
            .with_id_bits_less_one(self.id_bits as u8 - 1)
            .with_inner_cache(Cacheability::WRITE_BACK.0)
            .with_shareability(Shareability::INNER.0)
            .with_page(self.properties.device_address().0 >> 12)
    }

    fn pending_base(&self, cpu: CpuId) -> PendingBase {
        PendingBase::new()
            .with_inner_cache(Cacheability::WRITE_BACK.0)
            .with_shareability(Shareability::INNER.0)
            .with_unit(self.pending[cpu.index()].device_address().0 >> 16)
            .with_zeroed(true)
    }

    /// Writes an LPI's configuration. It takes effect after the redistributor has been told to read it again.
    pub(super) fn configure(&self, intid: IntId, enable: bool) {
        let property = LpiProperty::of(Priority::DEFAULT, enable);
        self.properties.write8((intid.0 - IntId::LPI_FIRST.0) as usize, property.into_bits());
    }

    pub(super) fn gic(&self) -> &Arc<GicV3<H>> {
        &self.gic
    }
}

fn is_enabled<R: hal::Regs>(redistributor: &Frame<'_, R>) -> bool {
    gicr::Control::from_bits(redistributor.read(gicr::CTLR)).enable_lpis()
}

/// Implements the chip of LPIs at the root: it ends interrupts.
struct LpiLines<H: Hal> {
    gic: Arc<GicV3<H>>,
}

impl<H: Hal> LpiLines<H> {
    fn chip(self: &Arc<Self>) -> Arc<IrqChip> {
        IrqChip::of("LPI", self)
            .behaviour(ChipBehaviour { oneshot_safe: true, ..ChipBehaviour::default() })
            .eoi(Self::eoi)
            .build()
    }

    /// The priority drop. An LPI needs no deactivation, and writing an LPI to DIR is unpredictable (IHI 0069H,
    /// "ICC_DIR_EL1").
    #[inline]
    fn eoi(&self, level: &Level<'_>) {
        self.gic.version.end(IntId(level.hwirq().0 as u32));
    }
}

/// The root domain of message interrupts. It allocates any free LPI.
pub struct LpiDomain<H: Hal> {
    gic: Arc<GicV3<H>>,
    chip: Arc<IrqChip>,
}

impl<H: Hal> LpiDomain<H> {
    pub(super) fn new(gic: Arc<GicV3<H>>) -> Self {
        Self { chip: Arc::new(LpiLines { gic: gic.clone() }).chip(), gic }
    }
}

impl<H: Hal> IrqDomain for LpiDomain<H> {
    fn name(&self) -> &str {
        "LPI"
    }

    fn parent(&self) -> Option<Arc<dyn IrqDomain>> {
        None
    }

    fn needs_identity(&self) -> bool {
        false
    }

    fn allocate(&self, request: &AllocRequest) -> Result<LevelData, IrqError> {
        check_delivery(request)?;
        let lpis = &self.gic.lpis;
        let intid = lpis.take_any(IntId::LPI_FIRST, lpis.count());
        let intid = intid.ok_or(IrqError::Exhausted("LPIs", lpis.count()))?;
        Ok(LevelData { chip: self.chip.clone(), hwirq: HardwareIrq(intid.0.into()) })
    }

    fn activate(&self, level: &Level<'_>, _target: Target) -> Result<(), IrqError> {
        self.gic.lpis.set(IntId(level.hwirq().0 as u32), level.irq());
        Ok(())
    }

    fn release(&self, hwirq: HardwareIrq) {
        self.gic.lpis.free(IntId(hwirq.0 as u32));
    }
}
