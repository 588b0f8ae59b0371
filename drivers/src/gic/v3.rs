//! GICv3 (IHI 0069H) with affinity routing and one security state, or the non-secure view of one with two.
//!
//! # Barriers
//! The seam has no barriers and needs none: `hal::Regs` orders a write after every earlier store of its CPU to memory.
//! A software-generated interrupt and a deactivation therefore come after the handler's stores. An implementation over
//! `msr` and `mrs` issues two barriers, as any kernel does. `dsb sy` after the read of IAR1 orders the handler's reads
//! after the acknowledge (IHI 0069H, "Observability of the effects of accesses to the GIC registers"). `isb` after
//! writes makes a dropped priority visible before interrupts are on again.

use super::GicError;
use super::distributor::{reset, wait};
use super::frame::Frame;
use super::version::{EoiMode, Version};
use alloc::boxed::Box;
use alloc::vec::Vec;
use hal::{CpuId, Hal, Regs};
use spec::gic::gicd::{self, Control, Route};
use spec::gic::gicr::{self, Waker};
use spec::gic::icc::{self, SoftwareInterrupt, SystemRegisterEnable};
use spec::gic::its::RedistributorBase;
use spec::gic::{IntId, Priority};

/// A CPU's affinity: levels 3, 2, 1, 0 in a byte each, as `GICR_TYPER` has it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Affinity(pub u32);

impl Affinity {
    fn level(self, level: u32) -> u8 {
        (self.0 >> (8 * level)) as u8
    }

    fn route(self) -> Route {
        Route::new()
            .with_affinity0(self.level(0))
            .with_affinity1(self.level(1))
            .with_affinity2(self.level(2))
            .with_affinity3(self.level(3))
    }
}

/// A run of redistributors, as firmware describes them.
pub struct Redistributors<R> {
    /// The window that covers this region.
    pub regs: R,
    /// Length of the region. The driver never looks beyond it, whatever the redistributors report.
    pub len_bytes: u32,
    /// Bus address of the region. An ITS may use it to address redistributors.
    pub base: u64,
}

/// A CPU's redistributor.
#[derive(Clone, Copy)]
struct Place {
    affinity: Affinity,
    region: usize,
    base: u32,
    /// Processor_Number.
    number: u16,
    /// CommonLPIAff: number of affinity levels, from the highest, that are equal within a group that shares a table of LPI
    /// configurations.
    common_table: u8,
}

impl Place {
    fn shares_table(&self, other: &Self) -> bool {
        let differing = self.affinity.0 ^ other.affinity.0;
        differing.checked_shr(32 - 8 * u32::from(self.common_table)).unwrap_or(0) == 0
    }
}

/// A GICv3's registers.
pub struct V3<H: Hal> {
    hal: H,
    distributor: H::Regs,
    regions: Vec<Redistributors<H::Regs>>,
    /// System registers of the CPU that accesses them.
    icc: H::Regs,
    /// Indexed by CPU.
    places: Box<[Place]>,
    /// Redistributors of CPUs that are not described, too.
    found: Vec<Place>,
}

impl<H: Hal> V3<H> {
    /// The GICv3 behind these windows. `affinities` lists the affinity of each CPU by CPU number.
    ///
    /// # Errors
    /// [`GicError`] when a CPU has no redistributor, or the windows show no GICv3.
    pub(super) fn new(
        hal: H,
        distributor: H::Regs,
        regions: Vec<Redistributors<H::Regs>>,
        icc: H::Regs,
        affinities: &[Affinity],
    ) -> Result<Self, GicError> {
        let revision = gicd::architecture(Frame::new(&distributor, 0).read(gicd::PIDR2));
        if !(3..=4).contains(&revision) {
            return Err(GicError::Revision(revision));
        }
        if affinities.is_empty() {
            return Err(GicError::Cpus(0));
        }
        let regions_found = regions.iter().enumerate().flat_map(|(index, region)| redistributors(index, region));
        let found: Vec<Place> = regions_found.collect();
        let place = |(cpu, &affinity)| {
            let found = found.iter().find(|place| place.affinity == affinity).copied();
            found.ok_or(GicError::NoRedistributor(CpuId(cpu as u32), affinity.0))
        };
        let places = affinities.iter().enumerate().map(place).collect::<Result<_, _>>()?;
        Ok(Self { hal, distributor, regions, icc, places, found })
    }

    fn distributor(&self) -> Frame<'_, H::Regs> {
        Frame::new(&self.distributor, 0)
    }

    fn icc(&self) -> Frame<'_, H::Regs> {
        Frame::new(&self.icc, 0)
    }

    fn place(&self, cpu: CpuId) -> Result<&Place, GicError> {
        self.places.get(cpu.index()).ok_or(GicError::NoCpu(cpu))
    }

    fn first_frame(&self, place: &Place) -> Frame<'_, H::Regs> {
        Frame::new(&self.regions[place.region].regs, place.base)
    }

    /// The first frame of a CPU's redistributor.
    pub(super) fn redistributor(&self, cpu: CpuId) -> Result<Frame<'_, H::Regs>, GicError> {
        self.place(cpu).map(|place| self.first_frame(place))
    }

    /// Affinity and first frame of each redistributor that has to have the same table of LPI configurations as a CPU's (IHI 0069H,
    /// "GICR_TYPER", CommonLPIAff). It may belong to a CPU that is not described.
    pub(super) fn table_sharers(&self) -> impl Iterator<Item = (Affinity, Frame<'_, H::Regs>)> {
        let sharers = self.found.iter().filter(|found| self.places.iter().any(|place| place.shares_table(found)));
        sharers.map(|found| (found.affinity, self.first_frame(found)))
    }

    pub(super) fn affinity(&self, cpu: CpuId) -> Result<Affinity, GicError> {
        self.place(cpu).map(|place| place.affinity)
    }

    /// The name of a CPU's redistributor in ITS commands: its address in units of 64 KiB, or its number.
    pub(super) fn its_target(&self, cpu: CpuId, by_address: bool) -> Result<RedistributorBase, GicError> {
        self.place(cpu).map(|place| {
            let address = self.regions[place.region].base + u64::from(place.base);
            RedistributorBase(if by_address { address >> 16 } else { place.number.into() })
        })
    }

    pub(super) fn cpus(&self) -> u32 {
        self.places.len() as u32
    }

    fn wait_shared_written(&self) -> Result<(), GicError> {
        let done = || !Control::from_bits(self.distributor().read(gicd::CTLR)).write_pending();
        wait(self.hal, "GICD_CTLR.RWP = 0", done)
    }

    pub(super) fn wait_private_written(&self, frame: &Frame<'_, H::Regs>) -> Result<(), GicError> {
        let done = || !gicr::Control::from_bits(frame.read(gicr::CTLR)).write_pending();
        wait(self.hal, "GICR_CTLR.RWP = 0", done)
    }

    /// IHI 0069H, "GICR_WAKER": ChildrenAsleep follows ProcessorSleep.
    fn sleep(&self, frame: &Frame<'_, H::Regs>, sleep: bool) -> Result<(), GicError> {
        frame.modify(gicr::WAKER, |bits| Waker::from_bits(bits).with_sleep(sleep).into_bits());
        let what = if sleep { "GICR_WAKER.ChildrenAsleep = 1" } else { "GICR_WAKER.ChildrenAsleep = 0" };
        wait(self.hal, what, || Waker::from_bits(frame.read(gicr::WAKER)).asleep() == sleep)
    }
}

/// The redistributors of one region, up to the one marked as the last (IHI 0069H, "GICR_TYPER", Last), or to the end
/// of its window.
fn redistributors<R: Regs>(index: usize, region: &Redistributors<R>) -> Vec<Place> {
    let mut places = Vec::new();
    let mut base = 0_u32;
    while base.checked_add(gicr::STRIDE_BYTES).is_some_and(|end| end <= region.len_bytes) {
        let kind = gicr::Type::from_bits(Frame::new(&region.regs, base).read(gicr::TYPER));
        let (affinity, number, common_table) = (Affinity(kind.affinity()), kind.number(), kind.common_table());
        places.push(Place { affinity, region: index, base, number, common_table });
        if kind.last() {
            break;
        }
        base = base.saturating_add(if kind.virtual_lpis() { gicr::V4_STRIDE_BYTES } else { gicr::STRIDE_BYTES });
    }
    places
}

impl<H: Hal> Version<H> for V3<H> {
    const NAME: &'static str = "GICv3";
    const HAS_PSEUDO_NMI: bool = true;

    fn frame(&self, intid: IntId) -> Frame<'_, H::Regs> {
        if intid.is_private() {
            let place = self.places[self.hal.cpu().index()];
            Frame::new(&self.regions[place.region].regs, place.base + gicr::SGI_FRAME)
        } else {
            self.distributor()
        }
    }

    /// RWP covers writes to ICENABLER, writes that clear a group enable, and changes of affinity routing (IHI 0069H,
    /// "GICD_CTLR"). Writes that enable need no wait.
    fn wait_written(&self, intid: IntId) -> Result<(), GicError> {
        if intid.is_private() {
            self.wait_private_written(&self.redistributor(self.hal.cpu())?)
        } else {
            self.wait_shared_written()
        }
    }

    fn start(&self, spi_end: u32) -> Result<(), GicError> {
        let distributor = self.distributor();
        // An earlier system may have left affinity routing on. To turn it off is unpredictable.
        let routes = Control::from_bits(distributor.read(gicd::CTLR)).affinity_routing();
        distributor.write(gicd::CTLR, Control::new().with_affinity_routing(routes).into_bits());
        self.wait_shared_written()?;
        // It is turned on only while both groups are disabled.
        let routing = Control::new().with_affinity_routing(true);
        distributor.write(gicd::CTLR, routing.into_bits());
        self.wait_shared_written()?;
        let boot = self.affinity(self.hal.cpu())?.route().into_bits();
        for first in (32..spi_end).step_by(32) {
            distributor.write(gicd::IGROUPR.get(first / 32), u32::MAX);
            reset(&distributor, IntId(first));
            for register in first / 16..first / 16 + 2 {
                distributor.write(gicd::ICFGR.get(register), 0);
            }
            for intid in first..(first + 32).min(spi_end) {
                distributor.write(gicd::IROUTER.get(intid), boot);
            }
        }
        self.wait_shared_written()?;
        // In the non-secure view group 1 is bit 0, or bit 1 with affinity routing. Setting both bits works in either
        // case.
        let enabled = routing.with_enable_group0(true).with_enable_group1(true);
        distributor.write(gicd::CTLR, enabled.into_bits());
        Ok(())
    }

    fn start_cpu(&self, mode: EoiMode) -> Result<(), GicError> {
        let cpu = self.hal.cpu();
        let redistributor = self.redistributor(cpu)?;
        self.sleep(&redistributor, false)?;
        redistributor.write(gicr::IGROUPR0, u32::MAX);
        let private = self.frame(IntId(0));
        reset(&private, IntId(0));
        self.wait_private_written(&redistributor)?;
        redistributor.strobe(gicr::ISENABLER0, (1 << IntId::PPI_FIRST.0) - 1);

        let icc = self.icc();
        icc.write(icc::SRE, SystemRegisterEnable::new().with_enable(true).into_bits());
        if !SystemRegisterEnable::from_bits(icc.read(icc::SRE)).enable() {
            return Err(GicError::SystemRegisters);
        }
        icc.write(icc::PMR, Priority::UNMASKED.0.into());
        icc.write(icc::BPR1, 0);
        // Active priorities that an earlier kernel never dropped would hold back interrupts for ever. EOImode changes only behind
        // them.
        let kind = icc::Control::from_bits(icc.read(icc::CTLR));
        for register in &icc::AP1R[..kind.active_priority_registers()] {
            icc.write(*register, 0);
        }
        let split = mode.is_split();
        icc.modify(icc::CTLR, |bits| icc::Control::from_bits(bits).with_eoi_mode(split).into_bits());
        icc.write(icc::IGRPEN1, 1);
        Ok(())
    }

    fn stop_cpu(&self) -> Result<(), GicError> {
        self.icc().write(icc::IGRPEN1, 0);
        self.sleep(&self.redistributor(self.hal.cpu())?, true)
    }

    #[inline]
    fn acknowledge(&self) -> IntId {
        IntId(self.icc().read(icc::IAR1) as u32 & 0xff_ffff)
    }

    #[inline]
    fn end(&self, intid: IntId) {
        self.icc().write(icc::EOIR1, intid.0.into());
    }

    #[inline]
    fn deactivate(&self, intid: IntId) {
        self.icc().write(icc::DIR, intid.0.into());
    }

    fn without_ordinary(&self, body: impl FnOnce()) {
        let icc = self.icc();
        let before = icc.read(icc::PMR);
        icc.write(icc::PMR, Priority::DEFAULT.0.into());
        body();
        icc.write(icc::PMR, before);
    }

    fn route(&self, intid: IntId, cpu: CpuId) -> Result<(), GicError> {
        let route = self.affinity(cpu)?.route();
        self.distributor().write(gicd::IROUTER.get(intid.0), route.into_bits());
        Ok(())
    }

    fn send(&self, intid: IntId, cpu: CpuId) -> Result<(), GicError> {
        let affinity = self.affinity(cpu)?;
        let (range, bit) = (affinity.level(0) / 16, affinity.level(0) % 16);
        if range > 0 && !gicd::Type::from_bits(self.distributor().read(gicd::TYPER)).range_selector() {
            return Err(GicError::Range(cpu));
        }
        let command = SoftwareInterrupt::new()
            .with_intid(intid.0 as u8)
            .with_targets(1 << bit)
            .with_range(range)
            .with_affinity1(affinity.level(1))
            .with_affinity2(affinity.level(2))
            .with_affinity3(affinity.level(3));
        self.icc().write(icc::SGI1R, command.into_bits());
        Ok(())
    }

    fn set_pending(&self, intid: IntId, pending: bool) {
        let frame = self.frame(intid);
        match pending {
            true => frame.strobe_one(gicd::ISPENDR, intid),
            false => frame.strobe_one(gicd::ICPENDR, intid),
        }
    }
}
