//! A PC: local APICs, remapping units, posted delivery, I/O APICs, and the core above them.
//!
//! ```text
//! PcBuilder ── build(start) ──► core, local APICs, posted descriptors, system vectors
//!                               start: the kernel leads its entry to PcCpus::interrupt, and starts the other CPUs,
//!                                      each of which calls PcCpus::start_cpu
//!                               remapping units, each with the line of its fault event
//!                          ──► Pc: domains for devices
//! ```
//!
//! [`PcCpus`] is what CPUs need: entry, coming, going, timer, kicks. [`Pc`] adds what devices need. The order is that of
//! the hardware: a unit's fault event is sent to a local APIC that takes it, and no device can send before its domain
//! exists.
//!
//! Sources: Intel SDM vol. 3, "Advanced Programmable Interrupt Controller (APIC)"; VT-d specification, "Interrupt
//! Remapping"; system vectors and their rows of `/proc/interrupts` as in Linux.

mod builder;
mod cpus;
mod devices;
mod error;
mod policy;
mod timer;
mod units;
mod vectors;

pub use builder::{Apics, PcBuilder};
pub use cpus::PcCpus;
pub use error::PcError;
pub use policy::{Fallback, Path, Policy, UnitPolicy};
pub use units::{FaultObserver, Unit};
pub use vectors::{ExtraVector, LOCAL_TIMER, RESCHEDULE, SPURIOUS, Serving, Tick, TickEoi, TickHandler};

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Deref;
use drivers::apic::{Lapic, VectorDomain};
use hal::{CpuId, Hal};
use irq::posted::{PostedMsi, Statistics};
use irq::{AllocRequest, Flow, Interrupts, IrqCore, IrqDomain, IrqError};

use crate::Line;

/// A PC that is up. It also gives access to its CPUs.
pub struct Pc<H: Hal> {
    cpus: Arc<PcCpus<H>>,
    vectors: Arc<dyn IrqDomain>,
    units: Vec<Unit<H>>,
    policy: Policy,
}

impl<H: Hal> Deref for Pc<H> {
    type Target = PcCpus<H>;

    fn deref(&self) -> &PcCpus<H> {
        &self.cpus
    }
}

impl<H: Hal> Pc<H> {
    /// The CPUs. The interrupt entry keeps this value.
    pub fn cpus(&self) -> &Arc<PcCpus<H>> {
        &self.cpus
    }

    /// The remapping units, in the order in which the builder was given them.
    pub fn units(&self) -> &[Unit<H>] {
        &self.units
    }

    /// How messages reach their CPUs, and the reason where the path is not the wished one.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The root of all domains. Its messages pass no remapping unit.
    pub fn vectors(&self) -> &Arc<dyn IrqDomain> {
        &self.vectors
    }

    /// Allocates a line in `domain`, as a guard.
    ///
    /// # Errors
    /// See [`IrqCore::alloc_line`].
    pub fn line(&self, domain: Arc<dyn IrqDomain>, request: &AllocRequest, flow: Flow) -> Result<Line<H>, IrqError> {
        Line::alloc(self.core(), domain, request, flow)
    }

    /// The sum of the notification counts of this system's CPUs.
    pub fn statistics(&self) -> Statistics {
        let mut sum = Statistics::default();
        for own in self.posted().iter().flat_map(|posted| self.all().map(|cpu| posted.statistics(cpu))) {
            sum.notifications += own.notifications;
            sum.empty_notifications += own.empty_notifications;
            sum.passes += own.passes;
            sum.vectors += own.vectors;
            sum.stray += own.stray;
            sum.cut_short += own.cut_short;
        }
        sum
    }

    /// The counts of lines and system vectors, in the format of `/proc/interrupts`.
    pub fn interrupts(&self) -> Interrupts {
        self.core().interrupts()
    }

    /// Number of vectors that belonged to no line.
    pub fn strays(&self) -> u64 {
        self.all().map(|cpu| self.core().stray_vectors(cpu)).sum()
    }

    fn all(&self) -> impl Iterator<Item = CpuId> + use<H> {
        self.cpus.range().map(CpuId)
    }
}

/// The policy, for the log of the kernel.
impl<H: Hal> fmt::Display for Pc<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cpus = self.cpus.range().len();
        write!(f, "{cpus} CPU{}, {}", if cpus == 1 { "" } else { "s" }, self.policy)
    }
}

/// The common parts from which everything else is built.
pub(crate) struct Parts<H: Hal> {
    pub(crate) hal: H,
    pub(crate) core: Arc<IrqCore<H>>,
    pub(crate) lapic: Arc<Lapic<H>>,
    pub(crate) posted: Option<Arc<PostedMsi<H>>>,
}

/// The domain of vectors. It also ends stray interrupts.
pub(crate) fn root<H: Hal>(core: &mut IrqCore<H>, hal: H, lapic: &Arc<Lapic<H>>) -> Arc<dyn IrqDomain> {
    let vectors = VectorDomain::new(hal, lapic.clone());
    core.set_root_chip(vectors.chip().clone());
    Arc::new(vectors)
}
