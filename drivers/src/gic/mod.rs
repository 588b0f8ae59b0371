//! Arm's Generic Interrupt Controller: GICv2, GICv3, and the message controllers in front of them.
//!
//! ```text
//! wire ──────────────────────► GIC (GicDomain)                    ┐
//! device → PCI-MSIX → V2M/MBI ► GIC (its SPIs for messages)       ├─► CPU: Gic::handle → INTID → line
//! device → PCI-MSIX → ITS ────► LPI (LpiDomain)                   ┘
//! ```
//!
//! A GIC has no vectors: acknowledging an interrupt tells its INTID, and [`Gic::handle`], which a kernel calls from its
//! IRQ exception, finds the line of it and has the core deliver that. With [`EoiMode::Split`] a line that is being
//! served is held back by the GIC's own active state instead of a mask: ack is the priority drop, eoi the deactivation,
//! also from a thread, and no register outside the CPU is touched.
//!
//! Left out: the extended INTID ranges, secure groups, an ITS that does not snoop caches, direct LPIs, GICv4.

mod chip;
mod distributor;
mod domain;
mod error;
mod frame;
pub mod its;
mod lines;
mod lpi;
mod message;
#[cfg(test)]
mod tests;
mod v2;
mod v3;
mod version;

pub use domain::GicDomain;
pub use error::GicError;
pub use frame::{Frame, Width};
pub use lpi::{LpiChip, LpiDomain, Lpis};
pub use message::{MessageSpiChip, MessageSpiDomain};
pub use v2::V2;
pub use v3::{Affinity, Redistributors, V3};
pub use version::{EoiMode, Version};

use alloc::vec::Vec;
use frame::Frame as F;
use hal::{CpuId, Hal, Lock, Word, Work};
use irq::{Flow, Irq, IrqCore};
use lines::Lines;
use spec::gic::{IntId, Kind, gicd};

/// A GICv2.
pub type GicV2<H> = Gic<H, V2<H>>;
/// A GICv3.
pub type GicV3<H> = Gic<H, V3<H>>;

/// A GIC: its distributor, its CPU interfaces, and which line each INTID is.
pub struct Gic<H: Hal, V> {
    hal: H,
    version: V,
    mode: EoiMode,
    kind: gicd::Type,
    /// SGIs, PPIs and SPIs.
    lines: Lines<H>,
    lpis: Lines<H>,
    /// Of the registers in which several interrupts have a field.
    fields: Lock<H, ()>,
    strays: H::Word,
    last_stray: H::Word,
    late: H::Word,
}

impl<H: Hal> GicV2<H> {
    /// Sets up the GICv2 with these windows, on the boot CPU, and starts that.
    ///
    /// # Errors
    /// [`GicError`] when there are more than 8 CPUs, or the distributor does not tell this one's interface.
    pub fn new(
        hal: H,
        distributor: H::Regs,
        cpu_interface: H::Regs,
        cpus: u32,
        mode: EoiMode,
    ) -> Result<Self, GicError> {
        let kind = gicd::Type::from_bits(F::new(&distributor, 0).read(gicd::TYPER));
        Self::start(hal, V2::new(hal, distributor, cpu_interface, cpus)?, mode, kind, 0)
    }
}

impl<H: Hal> GicV3<H> {
    /// Sets up the GICv3 with these windows, on the boot CPU, and starts that. `cpu_interface` are the system
    /// registers, by [encoding](spec::gic::icc); `affinities` the CPUs', in the order of their numbers; `lpis` how many
    /// message interrupts there may be (see [`Lpis`]).
    ///
    /// # Errors
    /// [`GicError`] when a CPU has no redistributor, the registers are no GICv3's, or do not answer in time.
    pub fn new(
        hal: H,
        distributor: H::Regs,
        redistributors: Vec<Redistributors<H::Regs>>,
        cpu_interface: H::Regs,
        affinities: &[Affinity],
        mode: EoiMode,
        lpis: u32,
    ) -> Result<Self, GicError> {
        let kind = gicd::Type::from_bits(F::new(&distributor, 0).read(gicd::TYPER));
        let version = V3::new(hal, distributor, redistributors, cpu_interface, affinities)?;
        Self::start(hal, version, mode, kind, lpis)
    }
}

impl<H: Hal, V: Version<H>> Gic<H, V> {
    fn start(hal: H, version: V, mode: EoiMode, kind: gicd::Type, lpis: u32) -> Result<Self, GicError> {
        let gic = Self {
            hal,
            version,
            mode,
            kind,
            lines: Lines::new(0, kind.spi_end()),
            lpis: Lines::new(IntId::LPI_FIRST.0, lpis),
            fields: Lock::new(hal, ()),
            strays: H::Word::new(0),
            last_stray: H::Word::new(u64::MAX),
            late: H::Word::new(0),
        };
        gic.version.start(kind.spi_end())?;
        gic.start_cpu()?;
        Ok(gic)
    }

    /// Starts this CPU's interface, with every software-generated interrupt enabled and no other private one. The boot
    /// CPU's is started already; the others call it when they come up, before `IrqCore::cpu_online`.
    ///
    /// # Errors
    /// [`GicError`] when this CPU is none of those described, or its registers do not answer.
    pub fn start_cpu(&self) -> Result<(), GicError> {
        let off = self.hal.irq_save();
        let started = self.version.start_cpu(self.mode);
        self.hal.irq_restore(off);
        started
    }

    /// Lets no more interrupts into this CPU: what a CPU that goes does last, behind `IrqCore::cpu_offline` and, where
    /// there are LPIs, [`its::Its::cpu_offline`].
    ///
    /// # Errors
    /// [`GicError::Timeout`] when its redistributor does not fall asleep.
    pub fn stop_cpu(&self) -> Result<(), GicError> {
        self.version.stop_cpu()
    }

    /// Sends the software-generated interrupt `intid` to `cpu`, with everything this CPU has stored before.
    ///
    /// # Errors
    /// [`GicError::NotSoftware`]; [`GicError::NoCpu`], [`GicError::NoInterface`], [`GicError::Range`].
    pub fn send(&self, intid: IntId, cpu: CpuId) -> Result<(), GicError> {
        if intid.kind() != Kind::Sgi {
            return Err(GicError::NotSoftware(intid));
        }
        self.version.send(intid, cpu)
    }

    /// The flow for lines of this GIC other than LPIs and per-CPU ones.
    pub fn flow(&self) -> Flow {
        match self.mode {
            EoiMode::Together => Flow::FastEoi,
            EoiMode::Split => Flow::Strict,
        }
    }

    /// How interrupts are ended.
    pub fn mode(&self) -> EoiMode {
        self.mode
    }

    /// The IRQ exception of this CPU: delivers everything that is pending. Interrupts are off.
    pub fn handle(&self, core: &IrqCore<H>) {
        core.handle_exception(|core| self.deliver_all(|irq| core.handle_irq(irq)));
    }

    /// The exception of a pseudo-NMI, which came although interrupts were off: delivers those, and nothing else. Takes
    /// no lock.
    pub fn handle_pseudo_nmi(&self, core: &IrqCore<H>) {
        self.hal.work(Work::IrqEntry, 1);
        self.version.without_ordinary(|| self.deliver_all(|irq| core.handle_nmi(irq)));
        self.hal.work(Work::IrqExit, 1);
    }

    /// Until nothing is pending (IHI 0069H, "Special INTIDs": those end the loop, and are not ended).
    #[inline]
    fn deliver_all(&self, deliver: impl Fn(Irq) -> bool) {
        loop {
            let intid = self.version.acknowledge();
            if intid.kind() == Kind::Special {
                return;
            }
            let line = if intid < IntId::LPI_FIRST { self.lines.find(intid) } else { self.lpis.find(intid) };
            if !line.is_some_and(&deliver) {
                self.end_stray(intid, line.is_some());
            }
        }
    }

    /// Ends what nobody wants: an interrupt that was acknowledged stays active until then. A line that stays raised
    /// would come again at once, so it is disabled; not where it was a line's that does not take it (`owned`): that line is
    /// being freed, which has masked it, and the number may be the next one's already.
    #[cold]
    fn end_stray(&self, intid: IntId, owned: bool) {
        self.strays.fetch_add(1);
        self.last_stray.set(intid.0.into());
        if !owned && matches!(intid.kind(), Kind::Ppi | Kind::Spi) && intid.0 < self.kind.spi_end() {
            self.disable(intid);
            // Meanwhile it may have become a line's, which had enabled it already.
            if self.lines.find(intid).is_some() {
                self.enable(intid);
            }
        }
        self.version.end(intid);
        if self.mode == EoiMode::Split && intid.has_active_state() {
            self.version.deactivate(intid);
        }
    }

    /// Interrupts that came although they were no line's.
    pub fn strays(&self) -> u64 {
        self.strays.get()
    }

    /// The last of them.
    pub fn last_stray(&self) -> Option<IntId> {
        let last = self.last_stray.get();
        (last != u64::MAX).then_some(IntId(last as u32))
    }

    /// How often a write that disables an interrupt was not seen to take effect in time. Each such interrupt may have
    /// been delivered once more.
    pub fn late_writes(&self) -> u64 {
        self.late.get()
    }

    /// Checks a number from outside.
    fn check(&self, intid: IntId) -> Result<IntId, GicError> {
        let end = self.kind.spi_end();
        if intid.0 < end { Ok(intid) } else { Err(GicError::IntId(intid, end)) }
    }

    fn enable(&self, intid: IntId) {
        self.version.frame(intid).strobe_one(gicd::ISENABLER, intid);
    }

    fn disable(&self, intid: IntId) {
        self.version.frame(intid).strobe_one(gicd::ICENABLER, intid);
        if self.version.wait_disabled(intid).is_err() {
            self.late.fetch_add(1);
        }
    }
}
