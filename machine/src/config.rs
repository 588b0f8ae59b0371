//! The configuration of a machine, and its interrupt controller.

use crate::board::controller::Built;
use crate::costs::Costs;
use crate::fabric::port::Credits;
use crate::gic::{self, GicConfig};
use crate::lapic::{Access, LocalApics};
use crate::time::Ps;
use crate::unrest::Unrest;

/// The configuration of a machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MachineConfig {
    /// CPUs, at least 1.
    pub cpus: u32,
    /// The APIC id of a CPU is its number, shifted left by so many bits: firmware leaves gaps for threads and cores that a
    /// package does not have.
    pub apic_id_shift: u32,
    /// Memory for DMA. The host allocates a page when it is first touched.
    pub memory_bytes: usize,
    /// Seed of all random streams.
    pub seed: u64,
    /// Every time that a model draws varies uniformly by ± this many percent.
    pub jitter_percent: u32,
    /// Costs of the CPUs' actions.
    pub costs: Costs,
    /// The caches and nodes by which threads are placed and moved as Linux does it. With `None` a thread moves only when
    /// it is woken while its CPU is busy.
    pub topology: Option<sched::Topology>,
    /// The interrupt controller of the CPUs.
    pub interrupts: Interrupts,
    /// The vector of a reschedule IPI.
    pub reschedule_vector: u8,
    /// The vector of the local timer.
    pub timer_vector: u8,
    /// Watchdog limit: an interrupt that keeps its CPU for longer is recorded as a fault, one per CPU with a count.
    pub interrupt_limit: Option<Ps>,
    /// Spans kept for a trace; 0: none.
    pub trace_spans_max: usize,
    /// Whether the engine may return at once from a wait during which nothing is due. Turned off only to show that the
    /// result is the same.
    pub short_cuts: bool,
    /// Maximum number of points of the seam, clock reads and events at one instant. The run then ends as a
    /// [`RunEnd::Livelock`].
    pub still_steps_max: u32,
    /// A random schedule; with `None` nothing is disturbed.
    pub unrest: Option<Unrest>,
}

impl Default for MachineConfig {
    fn default() -> Self {
        Self {
            cpus: 1,
            apic_id_shift: 0,
            memory_bytes: 64 << 20,
            seed: 1,
            jitter_percent: 0,
            costs: Costs::default(),
            topology: None,
            interrupts: Interrupts::X2Apic,
            reschedule_vector: 0xfd,
            timer_vector: 0xec,
            interrupt_limit: None,
            trace_spans_max: 0,
            short_cuts: true,
            still_steps_max: 10_000_000,
            unrest: None,
        }
    }
}

/// The interrupt controller of the CPUs of a machine. Each variant is a
/// [`Controller`](crate::board::controller::Controller). To add one: a file that implements that trait, a variant
/// here, and its line in [`MachineConfig::controller`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Interrupts {
    /// A local APIC in x2APIC mode in each CPU; I/O APICs and VT-d units, which are models, deliver to it.
    #[default]
    X2Apic,
    /// The same in xAPIC mode: [`Regs::Lapic`](crate::Regs::Lapic) is the page of registers, and APIC ids end at 0xfe.
    XApic,
    /// A GICv2, for at most 8 CPUs.
    GicV2(GicConfig),
    /// A GICv3 with affinity routing and one security state. Affinity level 0 of a CPU is its number modulo 16, level 1
    /// its number divided by 16.
    GicV3(GicConfig),
}

impl Interrupts {
    /// The version and the parameters of the GIC, if the controller is a GIC.
    pub(crate) fn versioned_gic(&self) -> Option<(gic::Version, &GicConfig)> {
        match self {
            Self::GicV2(config) => Some((gic::Version::V2, config)),
            Self::GicV3(config) => Some((gic::Version::V3, config)),
            _ => None,
        }
    }

    /// The GIC's parameters, if the controller is a GIC.
    pub fn gic(&self) -> Option<&GicConfig> {
        self.versioned_gic().map(|(_, config)| config)
    }
}

impl MachineConfig {
    fn local_apics(&self, access: Access) -> Built {
        LocalApics::build(self.cpus, self.apic_id_shift, access, [self.reschedule_vector, self.timer_vector])
    }

    /// The controller after reset, and the model behind it.
    pub(crate) fn controller(&self, credits: &Credits) -> Built {
        match &self.interrupts {
            Interrupts::X2Apic => self.local_apics(Access::Msr),
            Interrupts::XApic => self.local_apics(Access::Page),
            Interrupts::GicV2(config) => gic::build(gic::Version::V2, config, self.cpus, credits),
            Interrupts::GicV3(config) => gic::build(gic::Version::V3, config, self.cpus, credits),
        }
    }
}
