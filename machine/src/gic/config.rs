//! The configuration of a GIC, and its register windows.

use super::{GicFaults, GicRegion, Version};
use crate::model::{AccessCosts, ModelId};
use crate::regs::Regs;
use crate::time::Ps;
use spec::gic::IntId;

impl GicWindows {
    /// The windows of a GIC.
    pub(crate) fn new(version: Version, config: &GicConfig) -> Self {
        let window = |region: GicRegion| Regs::Unposted {
            model: super::MODEL,
            region: region as u8,
            is_banked: region.is_banked(),
        };
        let interface = match version {
            Version::V2 => GicRegion::CpuInterface,
            Version::V3 => GicRegion::System,
        };
        Self {
            model: super::MODEL,
            distributor: window(GicRegion::Distributor),
            cpu_interface: window(interface),
            redistributors: window(GicRegion::Redistributors),
            its: window(GicRegion::Its),
            v2m: window(GicRegion::V2m),
            timer: window(GicRegion::Timer),
            message_base: config.distributor_base,
            affinity_shift: config.affinity_shift,
        }
    }
}

/// The configuration of a GIC.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GicConfig {
    /// The bus address of the distributor. Messages that raise SPIs go there.
    pub distributor_base: u64,
    /// Shared peripheral interrupts, from INTID 32 on: rounded up to a multiple of 32, at most 988.
    pub spis: u32,
    /// Implemented bits of a priority, the upper ones: 4 to 8. The others read as zero.
    pub priority_bits: u8,
    /// The SGI with which one CPU makes another check its run queue.
    pub reschedule_sgi: u8,
    /// The PPI of each CPU's physical timer, which also ends a thread's time slice.
    pub timer_ppi: u8,
    /// Affinity level 0 of a CPU is its number modulo 16, shifted left by so many bits, at most 4. GICv3 only.
    pub affinity_shift: u32,
    /// The priority mask that stands for the seam's `irq_save`. With `None`, `irq_save` masks the IRQ exception
    /// itself. GICv3 only.
    ///
    /// With `Some(mask)`, an interrupt with a priority above it (a lower number) is taken with interrupts off as
    /// [`crate::Exception::PseudoNmi`], if it also passes the CPU's own mask register. Taking any exception masks
    /// further exceptions, pseudo-NMIs too, until the handler returns or has acknowledged an interrupt that is not
    /// above `mask`. At that point a kernel's entry code clears the exception mask; the machine does it in the
    /// kernel's place.
    pub pseudo_nmi: Option<u8>,
    /// How long RWP stays set after a write that disables an interrupt or group.
    pub write_pending_time: Ps,
    /// Costs of register accesses.
    pub costs: GicCosts,
    /// An interrupt translation service and LPIs behind it. GICv3 only.
    pub its: Option<ItsConfig>,
    /// A frame that turns messages into SPIs. GICv2 systems use it; GICv3 systems may.
    pub v2m: Option<V2mConfig>,
    /// Whether SPIs can be raised through the distributor's own message registers. GICv3 only.
    pub message_spis: bool,
    /// The fault plan.
    pub faults: GicFaults,
}

impl GicConfig {
    /// The bits of a priority that exist.
    pub(super) fn priority_mask(&self) -> u8 {
        !(0xff_u8.checked_shr(self.priority_bits.into()).unwrap_or(0))
    }
}

impl Default for GicConfig {
    /// 64 SPIs, priorities of 5 bits, no ITS and no v2m frame.
    fn default() -> Self {
        Self {
            distributor_base: 0x0800_0000,
            spis: 64,
            priority_bits: 5,
            reschedule_sgi: 0,
            timer_ppi: 30,
            affinity_shift: 0,
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

/// Costs of GIC accesses for the CPU that makes them. Each access has arrived before the CPU continues, as in device
/// memory without early acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GicCosts {
    /// Distributor, redistributors, ITS and v2m frame: memory-mapped, far from the CPU.
    pub distributor: AccessCosts,
    /// The CPU interface: memory-mapped in GICv2, system registers in GICv3.
    pub cpu_interface: AccessCosts,
}

impl Default for GicCosts {
    /// 1 ns per access: for tests of order, not of time.
    fn default() -> Self {
        let ns = AccessCosts { read: Ps(1000), write: Ps(1000) };
        Self { distributor: ns, cpu_interface: ns }
    }
}

/// The configuration of an ITS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ItsConfig {
    /// The bus address of its frames; messages go to the translation register, 10040h above.
    pub base: u64,
    /// Number of bits of a device id, 1 to 20. A device id is a PCI requester id.
    pub device_bits: u8,
    /// Number of bits of an event id, 1 to 16.
    pub event_bits: u8,
    /// Number of bits of an LPI's INTID, 14 to 16.
    pub intid_bits: u8,
    /// Time to execute a command.
    pub command_time: Ps,
    /// Time from a message's arrival until its LPI is pending.
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

/// The configuration of a v2m frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct V2mConfig {
    /// The bus address of the frame; messages go to the register 40h above.
    pub base: u64,
    /// Its first SPI, as an INTID.
    pub first: u32,
    /// Number of SPIs of the frame.
    pub count: u32,
}

/// The register windows of a machine's GIC.
///
/// Offsets are those of the manuals' frames. An access has arrived when the call returns, and is a point of the seam.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GicWindows {
    /// The model that messages, wires and pulses go to: see [`super::WIRE`].
    pub model: ModelId,
    /// The distributor.
    pub distributor: Regs,
    /// GICv2: the running CPU's CPU interface, two pages of 4 KiB. GICv3: its system registers; an offset is
    /// `op0 << 14 | op1 << 11 | CRn << 7 | CRm << 3 | op2`.
    pub cpu_interface: Regs,
    /// GICv3: the redistributors of all CPUs in the order of their numbers, 128 KiB each. GICv2 has none.
    pub redistributors: Regs,
    /// The ITS, control and translation frame. No registers without an ITS.
    pub its: Regs,
    /// The v2m frame. No registers without a frame.
    pub v2m: Regs,
    /// The running CPU's physical timer, by the encodings of [`spec::timer`]. It counts [`super::TIMER_HZ`].
    pub timer: Regs,
    /// The bus address of the distributor, whose registers for messages are 40h and 48h above.
    pub message_base: u64,
    /// [`GicConfig::affinity_shift`].
    pub affinity_shift: u32,
}
