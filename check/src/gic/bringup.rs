//! What bring-up wrote once into distributor, redistributors and CPU interfaces. The expected values are those of the manuals:
//! IHI 0069H ("GICD_CTLR", "GICR_WAKER", "GICR_CTLR", "GICR_PROPBASER", "GICR_PENDBASER", "ICC_CTLR_EL1", "ICC_IGRPEN1_EL1",
//! "ICC_PMR_EL1"), IHI 0048B ("GICD_CTLR", "GICC_CTLR", "GICC_PMR").

use super::harness::{ArmHarness, Version};
use crate::checkers::beliefs::{Promises, compare};
use machine::gic::Gic;
use machine::inspect;

/// The mask that lets every priority of the driver pass.
const UNMASKED: u8 = 0xf0;
/// GICR_PROPBASER and GICR_PENDBASER: inner write-back cacheable, inner shareable; 9:7 and 11:10.
const CACHED: u64 = 0b01 << 10;
const CACHING: u64 = 0b11 << 10;

/// What the driver was asked for.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    pub(super) splits_ends: bool,
    pub(super) has_nmis: bool,
    pub(super) has_its: bool,
}

/// All CPUs are online, and nothing is under way.
pub(super) fn check(system: &ArmHarness, asked: Asked) {
    let group = usize::from(system.version == Version::V3);
    compare(Promises::Loose, |now| {
        now.arrived(system.model);
        let Some((groups, routes)) = inspect(system.model, |gic: &Gic, _| gic.shared_config()) else { return };
        now.same("group enable of distributor", group as u64, true, groups[group]);
        now.same("affinity routing", 0, system.version == Version::V3, routes);
        let first = inspect(system.model, |gic: &Gic, _| gic.cpu_config(0)).flatten();
        for cpu in 0..system.cpus {
            let Some(held) = inspect(system.model, |gic: &Gic, _| gic.cpu_config(cpu)).flatten() else { continue };
            let which = u64::from(cpu);
            now.same("group enable of CPU", which, true, held.groups[group]);
            now.same("EOImode of CPU", which, asked.splits_ends, held.eoi_mode);
            // With pseudo-NMIs it is the mask of interrupts.
            if !asked.has_nmis {
                now.same("priority mask of CPU", which, UNMASKED, held.priority_mask);
            }
            if system.version == Version::V3 {
                now.same("sleep of redistributor", which, false, held.is_asleep);
                now.same("LPIs of redistributor", which, asked.has_its, held.has_lpis);
            }
            if asked.has_its {
                let shared = first.map_or(0, |first| first.properties);
                now.same("table of LPI configurations", which, shared, held.properties);
                now.same("caching of LPI configurations", which, CACHED, held.properties & CACHING);
                now.same("caching of pending LPIs", which, CACHED, held.pending_table & CACHING);
            }
        }
    });
}
