//! Arm's Generic Interrupt Controller: GICv2, GICv3, and the message controllers in front of them.
//!
//! ```text
//! wire ──────────────────────► GIC (GicDomain)                    ┐
//! device → PCI-MSIX → V2M/MBI ► GIC (its SPIs for messages)       ├─► CPU: Gic::handle → INTID → line
//! device → PCI-MSIX → ITS ────► LPI (LpiDomain)                   ┘
//! ```
//!
//! A GIC has no vectors: acknowledging an interrupt returns its INTID. A kernel calls [`Gic::handle`] from its IRQ
//! exception. [`Gic::handle`] finds the line of the INTID and has the core deliver it. With [`EoiMode::Split`] the
//! GIC's own active state holds back a line that is being served, so the line needs no mask: ack drops the priority
//! and eoi deactivates, also from a thread. Neither touches a register outside the CPU.
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

pub use crate::register::Width;
pub use domain::GicDomain;
pub use error::GicError;
pub use frame::Frame;
pub use lpi::{LpiDomain, Lpis};
pub use message::MessageSpiDomain;
pub use v2::V2;
pub use v3::{Affinity, Redistributors, V3};
pub use version::{EoiMode, RwpPolls, Version};

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

/// A GIC: its distributor, its CPU interfaces, and the line of each INTID.
pub struct Gic<H: Hal, V> {
    hal: H,
    version: V,
    mode: EoiMode,
    rwp_polls: RwpPolls,
    kind: gicd::Type,
    /// SGIs, PPIs and SPIs.
    lines: Lines<H>,
    lpis: Lines<H>,
    /// Guards the registers in which several interrupts share a word.
    fields: Lock<H, ()>,
    strays: H::Word,
    last_stray: H::Word,
    late: H::Word,
}

impl<H: Hal> GicV2<H> {
    /// Sets up the GICv2 behind these windows, on the boot CPU, and starts that CPU's interface.
    ///
    /// # Errors
    /// [`GicError`] when there are more than 8 CPUs, or the distributor does not report this CPU's interface.
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
    /// Sets up the GICv3 behind these windows, on the boot CPU, and starts that CPU's interface. `cpu_interface` is
    /// the window of system registers, by [encoding](spec::gic::icc). `affinities` lists the affinity of each CPU by
    /// CPU number. `lpis` is the maximum number of message interrupts (see [`Lpis`]).
    ///
    /// # Errors
    /// [`GicError`] when a CPU has no redistributor, the registers are not a GICv3's, or they do not answer in time.
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
            rwp_polls: RwpPolls::default(),
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

    /// Which writes the driver polls RWP after. The default is [`RwpPolls::Disabling`].
    pub fn rwp_polls(mut self, polls: RwpPolls) -> Self {
        self.rwp_polls = polls;
        self
    }

    /// Starts this CPU's interface. Enables every software-generated interrupt and no other private interrupt. The
    /// boot CPU's interface is already started; the other CPUs call this when they come up, before
    /// `IrqCore::cpu_online`.
    ///
    /// # Errors
    /// [`GicError`] when the description lacks this CPU, or its registers do not answer.
    pub fn start_cpu(&self) -> Result<(), GicError> {
        let off = self.hal.irq_save();
        let started = self.version.start_cpu(self.mode);
        self.hal.irq_restore(off);
        started
    }

    /// Stops interrupts to this CPU. A CPU that goes offline calls this last, after `IrqCore::cpu_offline` and, if
    /// there are LPIs, [`its::Its::cpu_offline`].
    ///
    /// # Errors
    /// [`GicError::Timeout`] when its redistributor does not fall asleep.
    pub fn stop_cpu(&self) -> Result<(), GicError> {
        self.version.stop_cpu()
    }

    /// Sends the software-generated interrupt `intid` to `cpu`. All earlier stores of this CPU are visible there
    /// first.
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
            EoiMode::Together | EoiMode::SplitAtOnce => Flow::FastEoi,
            EoiMode::Split => Flow::Strict,
        }
    }

    /// How this GIC ends interrupts.
    pub fn mode(&self) -> EoiMode {
        self.mode
    }

    /// Handles the IRQ exception of this CPU: delivers all pending interrupts. Call it with interrupts off.
    pub fn handle(&self, core: &IrqCore<H>) {
        core.handle_exception(|core| self.deliver_all(|irq| core.handle_irq(irq)));
    }

    /// Handles a pseudo-NMI, which arrives although interrupts are off. Delivers pseudo-NMIs and nothing else. Takes
    /// no lock.
    pub fn handle_pseudo_nmi(&self, core: &IrqCore<H>) {
        self.hal.work(Work::IrqEntry, 1);
        self.version.without_ordinary(|| self.deliver_all(|irq| core.handle_nmi(irq)));
        self.hal.work(Work::IrqExit, 1);
    }

    /// Loops until nothing is pending. A special INTID ends the loop and needs no EOI (IHI 0069H, "Special INTIDs").
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

    /// Ends an interrupt that no line takes, because an acknowledged interrupt stays active until its end. Also
    /// disables the INTID if no line owns it: a raised wire would interrupt again at once. With `owned`, a line exists
    /// but is being freed. That line is already masked, and the INTID may already belong to the next line.
    #[cold]
    fn end_stray(&self, intid: IntId, owned: bool) {
        self.strays.fetch_add(1);
        self.last_stray.set(intid.0.into());
        if !owned && matches!(intid.kind(), Kind::Ppi | Kind::Spi) && intid.0 < self.kind.spi_end() {
            self.disable(intid);
            // A new line may have taken and enabled the INTID in the meantime, and may mask it again.
            while self.is_wanted(intid) {
                self.enable(intid);
                if self.is_wanted(intid) {
                    break;
                }
                self.disable(intid);
            }
        }
        self.version.end(intid);
        if self.mode.is_split() && intid.has_active_state() {
            self.version.deactivate(intid);
        }
    }

    /// Whether a line would be deaf without this INTID's enable. Each CPU has its own enable of a private one, which the table
    /// does not know.
    fn is_wanted(&self, intid: IntId) -> bool {
        if intid.is_private() { self.lines.find(intid).is_some() } else { self.lines.is_open(intid) }
    }

    /// Number of interrupts that arrived for no line.
    pub fn strays(&self) -> u64 {
        self.strays.get()
    }

    /// The INTID of the last stray interrupt.
    pub fn last_stray(&self) -> Option<IntId> {
        let last = self.last_stray.get();
        (last != u64::MAX).then_some(IntId(last as u32))
    }

    /// How often a write that disables an interrupt did not take effect in time. Each such interrupt may have been
    /// delivered once more.
    pub fn late_writes(&self) -> u64 {
        self.late.get()
    }

    /// Checks an INTID from the caller.
    fn validate(&self, intid: IntId) -> Result<IntId, GicError> {
        let end = self.kind.spi_end();
        if intid.0 < end { Ok(intid) } else { Err(GicError::IntId(intid, end)) }
    }

    fn enable(&self, intid: IntId) {
        self.version.frame(intid).strobe_one(gicd::ISENABLER, intid);
        self.settle(intid);
    }

    fn disable(&self, intid: IntId) {
        self.version.frame(intid).strobe_one(gicd::ICENABLER, intid);
        self.wait_written(intid);
    }

    fn set_pending(&self, intid: IntId, pending: bool) {
        self.version.set_pending(intid, pending);
        self.settle(intid);
    }

    /// Called after a write that disables nothing: waits only with [`RwpPolls::Every`].
    fn settle(&self, intid: IntId) {
        if self.rwp_polls == RwpPolls::Every {
            self.wait_written(intid);
        }
    }

    fn wait_written(&self, intid: IntId) {
        if self.version.wait_written(intid).is_err() {
            self.late.fetch_add(1);
        }
    }
}
