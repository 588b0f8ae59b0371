//! What the GIC holds of each interrupt, for checkers.

use super::{Gic, Private};
use crate::world::World;

/// The configuration of an SGI, PPI or SPI, and its state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IntConfig {
    /// Enabled. A disable that has not taken effect everywhere yet counts as one.
    pub is_enabled: bool,
    /// Edge-triggered.
    pub is_edge: bool,
    /// In group 1.
    pub is_group1: bool,
    /// The priority.
    pub priority: u8,
    /// An SPI's targets: GICv2's ITARGETSR, or GICv3's IROUTER. 0 for private interrupts.
    pub route: u64,
    /// Pending.
    pub is_pending: bool,
    /// Active.
    pub is_active: bool,
}

/// What a CPU's interface and redistributor are set to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CpuConfig {
    /// The enabled groups.
    pub groups: [bool; 2],
    /// Interrupts of this priority and below are held back.
    pub priority_mask: u8,
    /// EOImode: the end of an interrupt drops its priority only.
    pub eoi_mode: bool,
    /// GICv3: the redistributor sleeps.
    pub is_asleep: bool,
    /// GICv3: LPIs are enabled.
    pub has_lpis: bool,
    /// GICv3: GICR_PROPBASER.
    pub properties: u64,
    /// GICv3: GICR_PENDBASER.
    pub pending_table: u64,
}

impl Gic {
    /// The distributor's enabled groups, and whether affinity routing is on.
    pub fn shared_config(&self) -> ([bool; 2], bool) {
        (self.distributor.enabled, self.distributor.affinity_routing)
    }

    /// What a CPU's interface and redistributor are set to; none for a CPU that does not exist.
    pub fn cpu_config(&self, cpu: u32) -> Option<CpuConfig> {
        let Private { interface, redistributor, .. } = self.cpus.get(cpu as usize)?;
        Some(CpuConfig {
            groups: interface.enabled,
            priority_mask: interface.mask,
            eoi_mode: interface.eoi_mode,
            is_asleep: redistributor.is_asleep(),
            has_lpis: redistributor.lpis_enabled,
            properties: redistributor.properties.into_bits(),
            pending_table: redistributor.pending_table.into_bits(),
        })
    }

    /// Interrupts from 32 up to this are SPIs.
    pub fn spi_end(&self) -> u32 {
        let count = (32..1020).take_while(|&intid| self.shared.get(intid).is_some()).count();
        32 + count as u32
    }

    /// An interrupt of `cpu`, or an SPI; none for one that does not exist.
    pub fn int_config(&self, cpu: u32, intid: u32) -> Option<IntConfig> {
        let bank = if intid < 32 { &self.cpus.get(cpu as usize)?.bank } else { &self.shared };
        let interrupt = bank.get(intid)?;
        Some(IntConfig {
            is_enabled: interrupt.enabled,
            is_edge: interrupt.edge,
            is_group1: interrupt.group1,
            priority: interrupt.priority,
            route: interrupt.route,
            is_pending: interrupt.pending(),
            is_active: interrupt.active,
        })
    }

    /// The configuration byte of an LPI that the redistributors have cached, if they have.
    pub fn cached_lpi(&self, intid: u32) -> Option<u8> {
        self.properties.get(&intid).map(|property| property.into_bits())
    }

    /// True while a command of the ITS has not yet moved, cleared or discarded this LPI at its redistributor.
    pub fn awaits_command(&self, intid: u32) -> bool {
        self.its.as_ref().is_some_and(|its| its.has_outstanding(intid))
    }

    /// True if the ITS has a translation table of this device.
    pub fn maps_device(&self, world: &World<'_>, device: u32) -> bool {
        self.its.as_ref().is_some_and(|its| its.maps(world, device))
    }

    /// The LPI of a device's event, and the CPU whose redistributor gets it. None without a mapping.
    pub fn translation(&self, world: &World<'_>, device: u32, event: u32) -> Option<(u32, u32)> {
        let (cpu, intid) = self.its.as_ref()?.translate(world, device, event).ok()?;
        Some((intid, cpu))
    }
}
