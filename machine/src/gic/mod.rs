//! Arm's Generic Interrupt Controller, versions 2 and 3: what a machine has in place of local APICs when its
//! [`Interrupts`](crate::Interrupts) say so.
//!
//! The GIC is model 0 of such a machine. Its CPU interfaces drive one request input of each CPU; the exception that
//! follows names no interrupt, and the handler ([`crate::Machine::set_exception_entry`]) acknowledges through
//! [`GicWindows::cpu_interface`], as on hardware. Devices reach it by wires, edges ([`WIRE`], [`PULSE`]) and messages.
//!
//! ```
//! use campanile_machine::gic::{GicConfig, PULSE, wire_arg};
//! use campanile_machine::time::Ps;
//! use campanile_machine::{Interrupts, Machine, MachineConfig};
//! use hal::Regs as _;
//!
//! let interrupts = Interrupts::GicV2(GicConfig { spis: 32, ..GicConfig::default() });
//! let config = MachineConfig { interrupts, memory_bytes: 4096, ..MachineConfig::default() };
//! let mut machine = Machine::new(config);
//! let gic = machine.gic().expect("it was asked for");
//! machine.set_exception_entry(move |_exception| {
//!     let word = gic.cpu_interface.read32(0x00c);
//!     assert_eq!(word, 40);
//!     gic.cpu_interface.write32(0x010, word);
//! });
//! machine.poke(gic.model, Ps::from_ns(500), PULSE, wire_arg(40, 0, true));
//! let counted = machine.run_boot(Ps::from_ns(10_000), move || {
//!     gic.cpu_interface.write32(0x004, 0xf0);
//!     gic.cpu_interface.write32(0x000, 1);
//!     gic.distributor.write32(0xc08, 0x0002_0000);
//!     gic.distributor.write32(0x828, 1);
//!     gic.distributor.write32(0x104, 1 << 8);
//!     gic.distributor.write32(0x000, 1);
//!     hal::Hal::delay_ns(campanile_machine::SimHal, 1_000);
//! });
//! assert_eq!(counted, Ok(()));
//! assert_eq!(machine.faults().0, []);
//! ```
//!
//! **Costs**: an access to any register has arrived when the call returns, and costs what [`GicCosts`] says. The counters
//! tell how many there were, apart for the registers that the published experiments count.
//!
//! **Interrupts off** (`irq_save` of the seam) mask the exception, or are a priority mask:
//! [`GicConfig::pseudo_nmi`].
//!
//! **Left out**: two security states, GICv3 without affinity routing, FIQ (group 0 of GICv3, FIQEn of GICv2), extended
//! PPI and SPI ranges, virtual interrupts, direct LPIs, two-level tables, power management beyond GICR_WAKER.

mod access;
mod config;
mod cpu_input;
mod cpu_interface;
mod delivery;
mod distributor;
mod faults;
mod gicc;
mod icc;
mod inspect;
mod interrupt;
mod its;
mod lpi;
mod message;
mod narrow;
mod redistributor;
#[cfg(test)]
mod tests;
mod timer;

pub use access::GicRegion;
pub(crate) use cpu_input::build;

pub use config::{GicConfig, GicCosts, GicWindows, ItsConfig, V2mConfig};
pub use faults::{GicFaults, STICK};
pub use inspect::{CpuConfig, IntConfig};
pub use timer::TIMER_HZ;

use crate::cpu::IrqInput;
use crate::fabric::port::Credits;
use crate::model::{AccessCosts, Model, ModelId, Upstream};
use crate::random::Stream;
use crate::time::Ps;
use crate::world::World;
use access::{Outcome, Refusal, split};
use core::ops::Range;
use cpu_interface::CpuInterface;
use interrupt::{Bank, Field, Rules};
use its::Its;
use message::Messages;
use redistributor::Redistributor;
use spec::gic::gicr::LpiProperty;
use std::collections::BTreeMap;
use timer::Timer;

/// The GIC's number among the models of its machine.
pub(crate) const MODEL: ModelId = ModelId(0);

/// Event: a wire becomes asserted or deasserted, see [`wire_arg`]. Models send it with [`World::schedule_for`], tests
/// with [`crate::Machine::poke`].
pub const WIRE: u32 = 0;
/// Event: a wire becomes asserted and deasserted at once.
pub const PULSE: u32 = 1;
/// Event: a CPU's kick arrives: CPU in bits 15:0, sender from bit 16.
pub(crate) const SGI: u32 = 2;
/// Event: a time slice of the CPU in bits 15:0 ends.
pub(crate) const TICK: u32 = 3;
/// Event: a software-generated interrupt arrives: CPU in bits 15:0, sender in 31:16, INTID from bit 32.
const SENT: u32 = 4;
/// Event: interrupts disabled in the distributor may now be disabled everywhere.
const DISABLED: u32 = 5;
/// Event: the same for the redistributor of this CPU.
const DISABLED_PRIVATE: u32 = 6;
/// Event: the redistributor of this CPU has woken up.
const AWAKE: u32 = 7;
/// Event: a command of the ITS is done.
const COMMAND: u32 = 8;
/// Event: a message has arrived.
const MESSAGE: u32 = 9;
/// Event: an edge is repeated by a fault. The argument is that of [`PULSE`].
const AGAIN: u32 = 11;
/// Event: commands of the ITS take effect at a redistributor.
const EFFECT: u32 = 13;
/// Event: the physical timer of a CPU reaches its compare value. CPU in bits 15:0, number of the timer setting from
/// bit 16.
const EXPIRED: u32 = 12;

/// A CPU's view of an interrupt, for checkers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IntState {
    /// Pending, whether enabled or not.
    pub is_pending: bool,
    /// Acknowledged and not deactivated. Never true for an LPI.
    pub is_active: bool,
}

/// The argument of [`WIRE`] and [`PULSE`]: an SPI, or a PPI of `cpu`.
pub const fn wire_arg(intid: u32, cpu: u32, asserted: bool) -> u64 {
    intid as u64 | (cpu as u64) << 32 | (asserted as u64) << 63
}

/// The architecture version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Version {
    V2,
    V3,
}

/// State of one CPU.
struct Private {
    bank: Bank,
    interface: CpuInterface,
    redistributor: Redistributor,
    timer: Timer,
    /// The current level of the CPU's request input.
    input: IrqInput,
}

/// Counts for the report.
#[derive(Default)]
struct Counts {
    /// Reads and writes of each region.
    accesses: [[u64; 2]; GicRegion::COUNT],
    /// Writes to the registers of each field, in distributor and redistributors.
    field_writes: [u64; Field::COUNT],
    control_reads: u64,
    acknowledged: u64,
    spurious: u64,
    ended: u64,
    deactivated: u64,
    /// Spurious acknowledgements and doubled edges, caused by the configured faults.
    withdrawn: u64,
    doubled: u64,
    sgis: u64,
}

/// The interrupt controller of a machine.
pub struct Gic {
    version: Version,
    config: GicConfig,
    distributor: distributor::Distributor,
    shared: Bank,
    cpus: Vec<Private>,
    /// The cached configuration of LPIs.
    properties: BTreeMap<u32, LpiProperty>,
    its: Option<Its>,
    messages: Messages,
    /// Credits of the root ports.
    credits: Credits,
    counts: Counts,
    /// Random stream of the faults.
    fault_stream: Stream,
}

impl Gic {
    /// After reset.
    ///
    /// # Panics
    /// When a GICv2 has more than 8 CPUs, or a number of the configuration is out of the range that its documentation
    /// states.
    pub(crate) fn new(version: Version, config: GicConfig, cpus: u32, credits: Credits) -> Self {
        assert!(version == Version::V3 || cpus <= 8, "a GICv2 has at most 8 CPUs, not {cpus}");
        assert!(config.spis <= 988, "a GIC has at most 988 SPIs, not {}", config.spis);
        assert!((4..=8).contains(&config.priority_bits), "{} priority bits; there are 4 to 8", config.priority_bits);
        assert!(config.its.is_none() || version == Version::V3, "only a GICv3 has an ITS");
        assert!(config.pseudo_nmi.is_none() || version == Version::V3, "only a GICv3 masks by priority");
        assert!(config.reschedule_sgi < 16, "SGI {} does not exist", config.reschedule_sgi);
        assert!((16..32).contains(&config.timer_ppi), "PPI {} does not exist", config.timer_ppi);
        let rules = Rules {
            priority_mask: config.priority_mask(),
            targets_mask: if version == Version::V2 { ((1_u32 << cpus) - 1) as u8 } else { 0 },
            disables_late: version == Version::V3,
            sgis_by_source: version == Version::V2,
        };
        let private = |_| Private {
            bank: Bank::private(rules),
            interface: CpuInterface::new(config.priority_bits),
            redistributor: Redistributor::default(),
            timer: Timer::default(),
            input: IrqInput::Low,
        };
        let end = (32 + config.spis.next_multiple_of(32)).min(1020);
        Self {
            version,
            distributor: distributor::Distributor::default(),
            shared: Bank::shared(end, rules),
            cpus: (0..cpus).map(private).collect(),
            properties: BTreeMap::new(),
            its: config.its.clone().map(|its| Its::new(its, cpus)),
            messages: Messages::default(),
            credits,
            counts: Counts::default(),
            fault_stream: Stream::new(config.faults.seed, 0),
            config,
        }
    }

    /// The CPU interfaces are as an earlier kernel may leave them: it never dropped the priority of what it took last (IHI 0069H,
    /// "ICC_AP1R<n>_EL1"; IHI 0048B, "GICC_APRn").
    pub fn leave_priorities(&mut self) {
        let group1 = self.version == Version::V3;
        self.cpus.iter_mut().for_each(|cpu| cpu.interface.set_active_register(group1, 0, 1));
    }

    fn count(&mut self, region: u8, is_write: bool) {
        if let Some(counts) = self.counts.accesses.get_mut(usize::from(region)) {
            counts[usize::from(is_write)] += 1;
        }
    }

    fn read_register(&mut self, world: &mut World<'_>, region: u8, offset: u32, width: u8) -> Outcome<u64> {
        let region = GicRegion::of(region).ok_or(Refusal::Reserved)?;
        if width < 4 {
            return self.narrow_read(world, region, offset, width);
        }
        let (cpu, offset) = split(region, offset);
        match (region, self.version) {
            (GicRegion::Distributor, _) => self.distributor_read(world.now(), cpu, offset, width),
            (GicRegion::CpuInterface, Version::V2) => self.gicc_read(world, cpu, offset, width),
            (GicRegion::System, Version::V3) => self.system_read(world, cpu, offset),
            (GicRegion::Redistributors, Version::V3) => self.redistributor_read(world.now(), offset, width),
            (GicRegion::Its, Version::V3) => self.its_read(offset, width),
            (GicRegion::V2m, _) => self.v2m_read(offset, width),
            (GicRegion::Timer, _) => self.timer_read(world.now(), cpu, offset),
            _ => Err(Refusal::Reserved),
        }
    }

    fn write_register(&mut self, world: &mut World<'_>, region: u8, offset: u32, width: u8, value: u64) -> Outcome<()> {
        let region = GicRegion::of(region).ok_or(Refusal::Reserved)?;
        if width < 4 {
            return self.narrow_write(world, region, offset, width, value);
        }
        let (cpu, offset) = split(region, offset);
        match (region, self.version) {
            (GicRegion::Distributor, _) => self.distributor_write(world, cpu, offset, width, value),
            (GicRegion::CpuInterface, Version::V2) => self.gicc_write(world, cpu, offset, width, value as u32),
            (GicRegion::System, Version::V3) => self.system_write(world, cpu, offset, value),
            (GicRegion::Redistributors, Version::V3) => self.redistributor_write(world, offset, width, value),
            (GicRegion::Its, Version::V3) => self.its_write(world, offset, width, value),
            (GicRegion::V2m, _) => self.v2m_write(world, offset, width, value),
            (GicRegion::Timer, _) => self.timer_write(world, cpu, offset, value),
            _ => Err(Refusal::Reserved),
        }
    }
}

impl Model for Gic {
    fn name(&self) -> &str {
        match self.version {
            Version::V2 => "GICv2",
            Version::V3 => "GICv3",
        }
    }

    fn event(&mut self, world: &mut World<'_>, code: u32, arg: u64) {
        let cpu = (arg & 0xffff) as u32;
        match code {
            WIRE | PULSE | STICK | AGAIN => self.wire_event(world, code, arg),
            SGI => self.kick(cpu, (arg >> 16) as u32),
            SENT => self.send(cpu, (arg >> 16) as u32 & 0xffff, (arg >> 32) as u32),
            TICK => self.tick(cpu),
            DISABLED => self.disabled(world.now()),
            DISABLED_PRIVATE => self.disabled_private(cpu, world.now()),
            AWAKE => self.awake(cpu, world.now()),
            EXPIRED => self.expired(world, cpu, arg >> 16),
            COMMAND => self.its_command(world),
            EFFECT => self.its_effects(world, None),
            MESSAGE => self.served(world),
            _ => {}
        }
        self.signal(world);
    }

    fn read(&mut self, world: &mut World<'_>, region: u8, offset: u32, width_bytes: u8) -> u64 {
        self.count(region, false);
        let result = self.read_register(world, region, offset, width_bytes);
        result.unwrap_or_else(|refusal| {
            let text = format!("region {region}, offset {offset:#x}, {width_bytes} bytes");
            world.fault(refusal.kind(), u64::from(region) << 32 | u64::from(offset), text);
            0
        })
    }

    fn write(&mut self, world: &mut World<'_>, region: u8, offset: u32, width_bytes: u8, value: u64) {
        self.count(region, true);
        if let Err(refusal) = self.write_register(world, region, offset, width_bytes, value) {
            let text = format!("region {region}, offset {offset:#x}, {width_bytes} bytes, value {value:#x}");
            world.fault(refusal.kind(), u64::from(region) << 32 | u64::from(offset), text);
        }
        self.signal(world);
    }

    fn upstream(&mut self, world: &mut World<'_>, from: ModelId, request: Upstream) {
        self.receive(world, from, request);
    }

    fn uses(&self, range: &Range<u64>) -> Option<u64> {
        let tables = self.lpi_tables().into_iter().chain(self.its.iter().flat_map(Its::used_memory));
        tables.into_iter().find(|address| range.contains(address))
    }

    /// A GICv2 has no status bits to wait for, so its driver asks for a mapping without early acknowledgement.
    fn acknowledges_early(&self, region: u8) -> bool {
        let far = [GicRegion::Distributor, GicRegion::Redistributors, GicRegion::Its, GicRegion::V2m];
        self.version == Version::V3 && GicRegion::of(region).is_some_and(|region| far.contains(&region))
    }

    fn access_costs(&self, region: u8, _offset: u32) -> Option<AccessCosts> {
        let near = [GicRegion::CpuInterface, GicRegion::System, GicRegion::Timer];
        let is_interface = GicRegion::of(region).is_some_and(|region| near.contains(&region));
        Some(if is_interface { self.config.costs.cpu_interface } else { self.config.costs.distributor })
    }

    /// First all accesses by frame; then, of those, the reads of GICD_CTLR and GICR_CTLR, where RWP is polled, and the
    /// writes to each kind of register (`mask` is ICENABLER, `unmask` ISENABLER); then what became of interrupts.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        let counts = &self.counts;
        let of = |region: GicRegion| counts.accesses[region as usize];
        let [distributor_reads, distributor_writes] = of(GicRegion::Distributor);
        let [redistributor_reads, redistributor_writes] = of(GicRegion::Redistributors);
        let interface = if self.version == Version::V2 { GicRegion::CpuInterface } else { GicRegion::System };
        let [interface_reads, interface_writes] = of(interface);
        let mut all = vec![
            ("distributor_reads", distributor_reads),
            ("distributor_writes", distributor_writes),
            ("redistributor_reads", redistributor_reads),
            ("redistributor_writes", redistributor_writes),
            ("interface_reads", interface_reads),
            ("interface_writes", interface_writes),
            ("control_reads", counts.control_reads),
        ];
        all.extend(Field::WRITES.into_iter().zip(counts.field_writes));
        all.extend([
            ("acknowledged", counts.acknowledged),
            ("spurious", counts.spurious),
            ("ended", counts.ended),
            ("deactivated", counts.deactivated),
            ("withdrawn", counts.withdrawn),
            ("doubled", counts.doubled),
            ("sgis", counts.sgis),
            ("messages", self.messages.served),
            ("its_commands", self.its.as_ref().map_or(0, |its| its.commands)),
            ("its_errors", self.its.as_ref().map_or(0, |its| its.errors)),
        ]);
        all
    }

    fn as_any(&mut self) -> &mut dyn core::any::Any {
        self
    }
}

/// RWP is set while the present is before this time.
fn is_pending(until: Ps, now: Ps) -> bool {
    now < until
}
