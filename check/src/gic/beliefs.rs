//! What the core and the drivers of an Arm system believe, against its GIC.

use super::harness::{ArmHarness, Version, affinity};
use super::stack::STRAY;
use crate::checkers::beliefs::{Comparison, Promises, compare, glance};
use crate::deadlines::check_alarms;
use hal::CpuId;
use irq::Belief;
use machine::gic::{Gic, IntConfig};
use machine::inspect;
use spec::timer::PHYSICAL_PPI;

/// Priorities of the driver (`spec::gic::Priority`), as the manual's registers have them.
const ORDINARY: u8 = 0xc0;
const PSEUDO_NMI: u8 = 0x80;
/// INTIDs of SGIs end here: the driver enables all of them on each CPU.
const SGI_END: u32 = 16;
/// INTIDs of private interrupts end here.
const PRIVATE_END: u32 = 32;
const SPI_END: u32 = 1020;
/// The SGI by which a CPU is kicked (`harness::bring_up`).
const RESCHEDULE: u32 = 0;

/// INTIDs that have a line.
struct Owned([u64; 16]);

impl Owned {
    fn add(&mut self, intid: u32) {
        self.0[intid as usize / 64 % 16] |= 1 << (intid % 64);
    }

    fn contains(&self, intid: u32) -> bool {
        self.0[intid as usize / 64 % 16] >> (intid % 64) & 1 != 0
    }
}

/// Looks until everything has agreed. `at_rest`: nothing is under way.
pub(crate) fn check(system: &ArmHarness, promises: Promises, at_rest: bool) {
    compare(promises, |now| {
        let mut owned = Owned([0; 16]);
        system.core.for_each_belief(|belief| line(system, belief, at_rest, &mut owned, now));
        // Nobody's interrupt is enabled, except the wire that firmware forgot.
        for intid in (PRIVATE_END..SPI_END).filter(|&intid| intid != STRAY && !owned.contains(intid)) {
            let Some(config) = config(system, 0, intid) else { break };
            now.same("enable of the ownerless INTID", intid.into(), false, config.is_enabled);
            now.same("priority of the ownerless INTID", intid.into(), ORDINARY, config.priority);
        }
    });
    check_alarms(&system.core, system.cpus, system.alarm_ns_max, |cpu| looks_ns(system, cpu));
}

/// A manager's step is done. A directed schedule is about the step, not about the look at every line.
pub(crate) fn check_step(system: &ArmHarness, promises: Promises) {
    machine::end_agent();
    check(system, promises, false);
}

/// A private INTID of a CPU, which no belief tells of.
pub(super) fn check_private(system: &ArmHarness, cpu: u32, intid: u32, enabled: bool, nmi: bool) {
    compare(Promises::Kept, |now| {
        now.arrived(system.model);
        let Some(held) = config(system, cpu, intid) else { return };
        let which = u64::from(cpu) << 32 | u64::from(intid);
        now.same("enable of private INTID, by CPU", which, enabled, held.is_enabled);
        now.same("priority of private INTID, by CPU", which, if nmi { PSEUDO_NMI } else { ORDINARY }, held.priority);
    });
}

/// An operation has just returned: what it promised holds.
pub(super) fn check_promises(system: &ArmHarness, promises: Promises) {
    glance(promises, |now| {
        let mut owned = Owned([0; 16]);
        system.core.for_each_belief(|belief| line(system, belief, false, &mut owned, now));
    });
}

/// When a CPU's timer will interrupt it; 0 if it looks after its lines anyway. It does so at the end of an exception, which takes all
/// interrupts that come meanwhile. A CPU that goes or comes tells the others of their deadlines when it is through with all lines.
fn looks_ns(system: &ArmHarness, cpu: CpuId) -> Option<u64> {
    let mut comes = [PHYSICAL_PPI, RESCHEDULE].into_iter().filter_map(|intid| config(system, cpu.0, intid));
    let looks = comes.any(|held| held.is_pending || held.is_active) || system.is_changing() || system.takes(cpu);
    if looks { Some(0) } else { inspect(system.model, |gic: &Gic, _| gic.timer_due_ns(cpu.0)).flatten() }
}

fn config(system: &ArmHarness, cpu: u32, intid: u32) -> Option<IntConfig> {
    inspect(system.model, |gic: &Gic, _| gic.int_config(cpu, intid)).flatten()
}

fn line(system: &ArmHarness, belief: &Belief<'_>, at_rest: bool, owned: &mut Owned, now: &mut Comparison) {
    let Some((chip, number)) = belief.levels().next_back() else { return };
    let intid = number.0 as u32;
    now.arrived(system.model);
    // A line that was allocated while its CPU was offline has had no hardware set up.
    let is_set_up = !belief.shutdown || belief.deactivated;
    match chip {
        "LPI" if is_set_up => lpi(system, belief, intid, now),
        "GICv2" | "GICv3" if intid < PRIVATE_END => private(system, belief, intid, at_rest, now),
        "GICv2" | "GICv3" => {
            owned.add(intid);
            if is_set_up {
                spi(system, belief, intid, at_rest, now);
            }
        }
        // A pin of the board's own block.
        _ => {}
    }
}

/// True if the line's root level should let interrupts pass: it is not masked, or masked nearer the device.
fn is_open(belief: &Belief<'_>, root: usize) -> bool {
    !belief.masked || belief.masking_level != Some(root)
}

/// IHI 0069H, "GICD_ISENABLER", "GICD_IROUTER", "GICD_IPRIORITYR", "GICD_ICFGR", "GICD_IGROUPR"; IHI 0048B,
/// "GICD_ITARGETSR".
fn spi(system: &ArmHarness, belief: &Belief<'_>, intid: u32, at_rest: bool, now: &mut Comparison) {
    let which = u64::from(intid);
    let Some(held) = config(system, 0, intid) else {
        return now.same("existence of INTID", which, true, false);
    };
    let root = belief.levels().len() - 1;
    now.same("enable of INTID", which, is_open(belief, root), held.is_enabled);
    // "GICD_CTLR", RWP: the driver waits for a disable. A GICv2 has none, and its writes are never late.
    now.promised("disable of INTID", which, is_open(belief, root) || !held.is_enabled);
    if let Some(target) = belief.target {
        let cpu = u64::from(target.cpu.0);
        let route = match system.version {
            Version::V2 => 1_u64 << cpu,
            Version::V3 => affinity(&system.windows, target.cpu.0).0.into(),
        };
        now.same("route of INTID", which, route, held.route);
    }
    if let Some(trigger) = belief.trigger {
        now.same("edge trigger of INTID", which, !trigger.is_level(), held.is_edge);
    }
    now.same("priority of INTID", which, if belief.nmi { PSEUDO_NMI } else { ORDINARY }, held.priority);
    now.same("group of INTID", which, system.version == Version::V3, held.is_group1);
    if at_rest {
        now.same("active state of INTID", which, false, held.is_active);
        now.same("pending state of INTID", which, false, held.is_pending && !belief.throttled);
    }
}

/// Each CPU's own enable.
fn private(system: &ArmHarness, belief: &Belief<'_>, intid: u32, at_rest: bool, now: &mut Comparison) {
    if !belief.is_per_cpu {
        return;
    }
    for cpu in 0..system.cpus {
        let which = u64::from(cpu) << 32 | u64::from(intid);
        let Some(held) = config(system, cpu, intid) else { continue };
        let wanted = belief.enabled_on.contains(CpuId(cpu));
        if at_rest {
            // Every CPU is online, so each has enabled its own line.
            now.same("belief that private INTID is enabled, by CPU", which, true, wanted);
        }
        if intid >= SGI_END || wanted {
            now.same("enable of private INTID, by CPU", which, wanted, held.is_enabled);
        }
        if wanted {
            now.same("priority of private INTID, by CPU", which, ORDINARY, held.priority);
        }
    }
}

/// IHI 0069H, "LPI Configuration tables" (priority 7:2, bit 1 one, enable 0) and "The ITS tables".
fn lpi(system: &ArmHarness, belief: &Belief<'_>, intid: u32, now: &mut Comparison) {
    let which = u64::from(intid);
    let Some(level) = belief.levels().position(|(chip, _)| chip == "ITS") else { return };
    let Some((_, event)) = belief.levels().nth(level) else { return };
    let held = inspect(system.model, |gic: &Gic, world| {
        let translation = gic.translation(world, (event.0 >> 32) as u32, event.0 as u32);
        (gic.cached_lpi(intid), translation, gic.awaits_command(intid))
    });
    let Some((cached, translation, awaits)) = held else { return };
    let enable = u8::from(is_open(belief, level));
    now.same("configuration of LPI", which, 0xc2 | enable, cached.unwrap_or(0));
    // "SYNC": only then has a redistributor done what was asked of it. The event of a line that is shut down is moved by the
    // CPU that goes, under the driver's lock alone.
    let is_leaving = belief.shutdown && system.is_changing();
    now.promised("commands on LPI", which, is_leaving || !awaits);
    now.promised("disable of LPI", which, enable != 0 || cached.unwrap_or(0) & 1 == 0);
    if let Some(target) = belief.target {
        let wanted = u64::from(intid) << 32 | u64::from(target.cpu.0);
        let (intid, cpu) = translation.unwrap_or((0, 0));
        now.same("translation to LPI", which, wanted, u64::from(intid) << 32 | u64::from(cpu));
    }
}

/// Every line was freed: the ITS maps no event of `device`, nor the device, whose table may be another's by now. A driver whose
/// command was refused keeps the table.
pub(super) fn check_unmapped(system: &ArmHarness, device: u32, events: u32, refused: bool) {
    compare(Promises::Kept, |now| {
        for event in 0..events {
            let mapped = inspect(system.model, |gic: &Gic, world| gic.translation(world, device, event).is_some());
            now.same("mapping of the ownerless event", event.into(), false, mapped.unwrap_or(false));
        }
        let maps = inspect(system.model, |gic: &Gic, world| gic.maps_device(world, device)).unwrap_or(false);
        now.same("mapping of the device without events", device.into(), false, maps && !refused);
    });
}
