//! What the GIC holds of each interrupt, for checkers.

use super::Gic;
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

impl Gic {
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

    /// The LPI of a device's event, and the CPU whose redistributor gets it. None without a mapping.
    pub fn translation(&self, world: &World<'_>, device: u32, event: u32) -> Option<(u32, u32)> {
        let (cpu, intid) = self.its.as_ref()?.translate(world, device, event).ok()?;
        Some((intid, cpu))
    }
}
