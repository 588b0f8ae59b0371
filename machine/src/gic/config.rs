//! Which interrupt controller a machine has, and what its accesses cost.

use super::{GicFaults, GicRegion};
use crate::model::{AccessCosts, ModelId};
use crate::simhal::Regs;
use crate::time::Ps;
use spec::gic::IntId;

/// The interrupt architecture of a machine.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Interrupts {
    /// A local APIC in x2APIC mode in each CPU; what delivers to it is the machine's affair.
    #[default]
    X2Apic,
    /// A GICv2, for at most 8 CPUs.
    GicV2(GicConfig),
    /// A GICv3 with affinity routing and one security state. Affinity level 0 of a CPU is its number modulo 16, level 1
    /// its number divided by 16.
    GicV3(GicConfig),
}

impl GicWindows {
    /// The windows of a machine's GIC, if it has one.
    pub(crate) fn of(interrupts: &Interrupts) -> Option<Self> {
        let config = interrupts.gic()?;
        let window = |region| Regs::Gic { model: super::MODEL, region };
        let interface =
            if matches!(interrupts, Interrupts::GicV2(_)) { GicRegion::CpuInterface } else { GicRegion::System };
        Some(Self {
            model: super::MODEL,
            distributor: window(GicRegion::Distributor),
            cpu_interface: window(interface),
            redistributors: window(GicRegion::Redistributors),
            its: window(GicRegion::Its),
            v2m: window(GicRegion::V2m),
            message_base: config.distributor_base,
        })
    }
}

impl Interrupts {
    /// The GIC's parameters, if it is one.
    pub fn gic(&self) -> Option<&GicConfig> {
        match self {
            Self::X2Apic => None,
            Self::GicV2(config) | Self::GicV3(config) => Some(config),
        }
    }
}

/// What distinguishes one GIC.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GicConfig {
    /// The bus address of the distributor, for messages that raise SPIs there.
    pub distributor_base: u64,
    /// Shared peripheral interrupts, from INTID 32 on: rounded up to a multiple of 32, at most 988.
    pub spis: u32,
    /// Implemented bits of a priority, the upper ones: 4 to 8. The others read as zero.
    pub priority_bits: u8,
    /// The SGI by which one CPU has another look at its run queue.
    pub reschedule_sgi: u8,
    /// The PPI that ends a thread's time slice: the timer's, as the scheduler sees it.
    pub timer_ppi: u8,
    /// The priority mask that `irq_save` of the seam stands for; `None`: it masks the IRQ exception itself. GICv3 only.
    ///
    /// With `Some(mask)` an interrupt of a priority above it (a lower number), which passes the CPU's own mask register
    /// too, is taken with interrupts off as [`crate::Exception::PseudoNmi`]. Taking any exception masks further ones,
    /// these too, until the handler has acknowledged an interrupt that is not above `mask`, or returns: the entry code
    /// of a kernel clears the exception mask at that point, and the machine does it in its stead.
    pub pseudo_nmi: Option<u8>,
    /// How long RWP stays set after a write that disables something.
    pub write_pending_time: Ps,
    /// What accesses cost.
    pub costs: GicCosts,
    /// An interrupt translation service and LPIs behind it. GICv3 only.
    pub its: Option<ItsConfig>,
    /// A frame that turns messages into SPIs. GICv2 systems have it, GICv3 systems may.
    pub v2m: Option<V2mConfig>,
    /// Whether SPIs can be raised through the distributor's own message registers. GICv3 only.
    pub message_spis: bool,
    /// What goes wrong.
    pub faults: GicFaults,
}

impl GicConfig {
    /// The bits of a priority that exist.
    pub(super) fn priority_mask(&self) -> u8 {
        !(0xff_u8.checked_shr(self.priority_bits.into()).unwrap_or(0))
    }
}

impl Default for GicConfig {
    /// 64 SPIs, priorities of 5 bits, nothing for messages.
    fn default() -> Self {
        Self {
            distributor_base: 0x0800_0000,
            spis: 64,
            priority_bits: 5,
            reschedule_sgi: 0,
            timer_ppi: 30,
            pseudo_nmi: None,
            write_pending_time: Ps::from_ns(50),
            costs: GicCosts::default(),
            its: None,
            v2m: None,
            message_spis: false,
            faults: GicFaults::default(),
        }
    }
}

/// What accesses to a GIC cost the CPU that makes them. Each has arrived before the CPU goes on, as in memory of device
/// type without early acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GicCosts {
    /// Distributor, redistributors, ITS and v2m frame: memory-mapped, far from the CPU.
    pub distributor: AccessCosts,
    /// The CPU interface: memory-mapped in GICv2, system registers in GICv3.
    pub cpu_interface: AccessCosts,
}

impl Default for GicCosts {
    /// 1 ns an access: for tests of order, not of time.
    fn default() -> Self {
        let ns = AccessCosts { read: Ps(1000), write: Ps(1000) };
        Self { distributor: ns, cpu_interface: ns }
    }
}

/// What distinguishes one ITS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ItsConfig {
    /// The bus address of its frames; messages go to the translation register, 10040h above.
    pub base: u64,
    /// Bits of a device id, 1 to 20: a device id is a PCI requester id.
    pub device_bits: u8,
    /// Bits of an event id, 1 to 16.
    pub event_bits: u8,
    /// Bits of an LPI's INTID, 14 to 16.
    pub intid_bits: u8,
    /// A command's time.
    pub command_time: Ps,
    /// From a message's arrival to its LPI being pending.
    pub translation_time: Ps,
}

impl ItsConfig {
    pub(super) fn has_lpi(&self, intid: u32) -> bool {
        intid >= IntId::LPI_FIRST.0 && intid >> self.intid_bits == 0
    }
}

impl Default for ItsConfig {
    fn default() -> Self {
        Self {
            base: 0x0808_0000,
            device_bits: 16,
            event_bits: 16,
            intid_bits: 16,
            command_time: Ps::from_ns(100),
            translation_time: Ps::from_ns(100),
        }
    }
}

/// What distinguishes one v2m frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct V2mConfig {
    /// The bus address of the frame; messages go to the register 40h above.
    pub base: u64,
    /// Its first SPI, as INTID.
    pub first: u32,
    /// How many SPIs are its.
    pub count: u32,
}

/// The register windows of a machine's GIC.
///
/// Offsets are those of the manuals' frames. An access has arrived when the call returns, and is a point of the seam.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GicWindows {
    /// Where messages, wires and pulses go: see [`super::WIRE`].
    pub model: ModelId,
    /// The distributor.
    pub distributor: Regs,
    /// GICv2: the running CPU's CPU interface, two pages of 4 KiB. GICv3: its system registers; an offset is
    /// `op0 << 14 | op1 << 11 | CRn << 7 | CRm << 3 | op2`.
    pub cpu_interface: Regs,
    /// GICv3: the redistributors of all CPUs in the order of their numbers, 128 KiB each. Nothing answers in GICv2.
    pub redistributors: Regs,
    /// The ITS, control and translation frame. Nothing answers where there is none.
    pub its: Regs,
    /// The v2m frame. Nothing answers where there is none.
    pub v2m: Regs,
    /// The bus address of the distributor, whose registers for messages are 40h and 48h above.
    pub message_base: u64,
}
