//! A small server: the machine's models under the real core and drivers, and a load that counts every completion.
//!
//! Tests act on it through [`Host`], on the machine's CPUs. [`Server::run`] is the entry point.

mod bringup;
mod calls;
mod crowded;
mod load;
mod places;
pub mod poster;
mod quiet;
pub mod ringer;
mod system;
pub mod wire;

pub use bringup::GUEST_NOTIFICATION;
pub use load::Load;
pub use system::{Drive, Host, Queue};
pub use systems::pc::Path;

use crate::setbacks::Setbacks;
use hal::Work;
use irq::StormConfig;
use machine::fabric::dispatch::Dispatch;
use machine::fabric::hpet::{Hpet, HpetConfig};
use machine::fabric::ioapic::{IoApic, IoApicConfig};
use machine::fabric::port::{Credits, RootPort, RootPortConfig};
use machine::fabric::vtd::{InvalidationFault, VtdConfig, VtdUnit};
use machine::model::ModelId;
use machine::nvme::{self, HiddenCoalescing, Latency, Nvme, Spread, StorageKind, Timing};
use machine::time::Ps;
use machine::unrest::Unrest;
use machine::{Costs, Machine, MachineConfig, RunEnd, WorkKinds};
use ringer::Ringer;
use std::sync::Arc;
use wire::Wire;

/// Requester of the timer block.
pub const HPET_REQUESTER: u16 = 0x00f8;
/// Requester of the I/O APIC.
pub const IOAPIC_REQUESTER: u16 = 0x00f0;
/// Requester of the ringing device.
pub const RINGER_REQUESTER: u16 = 0x4200;

/// The I/O APIC's pin of the two functions that share one.
pub const WIRE_PIN: u8 = 3;

/// The configuration of a server.
#[derive(Clone, Debug)]
pub struct Config {
    /// CPUs, all online.
    pub cpus: u32,
    /// Drives.
    pub drives: u32,
    /// I/O queues of each drive.
    pub queues: u32,
    /// Delivery of the drives' and the ringer's messages.
    pub delivery: Path,
    /// The queues' lines are managed.
    pub managed: bool,
    /// The seed of every random stream.
    pub seed: u64,
    /// When a line storms.
    pub storm: StormConfig,
    /// Handlers run in threads.
    pub force_threads: bool,
    /// A posted notification begins no handler after this long; none: it serves all requests.
    pub notification_limit_ns: Option<u64>,
    /// A device posts by itself: the CPUs have descriptors, whatever the delivery.
    pub devices_post: bool,
    /// The I/O APIC has no EOI register. Its pins cannot be remapped then.
    pub old_ioapic: bool,
    /// The remapping unit has CAP.PI.
    pub posting_capability: bool,
    /// Places of the remapping unit's cache of entries; 0: no bound.
    pub cache_places: usize,
    /// The fault of the invalidation queue.
    pub invalidation_fault: InvalidationFault,
    /// Each CPU's tick.
    pub tick_ns: u64,
    /// Mean time of a read by the drives.
    pub read_ns: u64,
    /// Drives hold interrupts back although they declare no coalescing.
    pub hidden_coalescing: Option<HiddenCoalescing>,
    /// The engine's short cuts.
    pub short_cuts: bool,
    /// What may go wrong while the software comes up.
    pub setbacks: Setbacks,
    /// A random schedule.
    pub unrest: Option<Unrest>,
    /// Lines that the core has room for.
    pub lines_max: u32,
    /// The longest time that a message is under way, as the core's configuration states it.
    pub flight_ns: u64,
    /// The rest of the machine: memory, costs, trace.
    pub machine: MachineConfig,
}

/// The longest time that a message is under way here: port, IOMMU and dispatch together need less than 10 µs.
pub(crate) const FLIGHT_NS: u64 = 30_000;

impl Default for Config {
    fn default() -> Self {
        Self {
            cpus: 4,
            drives: 2,
            queues: 2,
            delivery: Path::Posted,
            managed: false,
            seed: 1,
            storm: StormConfig::default(),
            force_threads: false,
            notification_limit_ns: None,
            devices_post: false,
            old_ioapic: false,
            posting_capability: true,
            cache_places: 0,
            invalidation_fault: InvalidationFault::None,
            tick_ns: 100_000,
            read_ns: 10_000,
            hidden_coalescing: None,
            short_cuts: true,
            setbacks: Setbacks::default(),
            unrest: None,
            lines_max: 1000,
            flight_ns: FLIGHT_NS,
            machine: MachineConfig {
                memory_bytes: 16 << 20,
                jitter_percent: 40,
                costs: costs(),
                ..MachineConfig::default()
            },
        }
    }
}

/// The models' numbers.
#[derive(Clone, Copy, Debug)]
pub struct Models {
    /// The remapping unit.
    pub iommu: ModelId,
    /// The I/O APIC.
    pub ioapic: ModelId,
    /// The timer block.
    pub hpet: ModelId,
    /// The ringing device.
    pub ringer: ModelId,
    /// Two functions on pin [`WIRE_PIN`] of the I/O APIC.
    pub wire: ModelId,
}

/// The machine, and the software that was brought up on it.
pub struct Server {
    /// Everything that software does on it.
    pub host: Arc<Host>,
    /// Its models.
    pub models: Models,
    /// The drives' models.
    pub drives: Vec<ModelId>,
    /// The machine.
    pub machine: Machine,
}

/// The machine with its models and its interrupt entry, and no software on it.
pub struct Hardware {
    /// Its models.
    pub models: Models,
    /// The drives' models.
    pub drives: Vec<ModelId>,
    /// The machine.
    pub machine: Machine,
    config: Config,
    entry: bringup::Entry,
}

impl Hardware {
    /// Builds it with the caller's own models. `add` gets the remapping unit and the places of its ports; its result
    /// is returned too.
    ///
    /// # Panics
    /// If the machine cannot be built.
    pub fn with<R>(config: &Config, add: impl FnOnce(&mut Machine, ModelId, &Credits) -> R) -> (Self, R) {
        let mut machine = Machine::new(MachineConfig {
            cpus: config.cpus,
            seed: config.seed,
            short_cuts: config.short_cuts,
            unrest: config.unrest.clone(),
            ..config.machine.clone()
        });
        let socket = Dispatch::new(Ps::from_ns(112));
        let credits = Credits::default();
        let iommu = VtdUnit::new(unit_config(config), socket, credits.clone()).with_cache_places(config.cache_places);
        let iommu = machine.add_model(|_| Box::new(iommu));
        let drives: Vec<ModelId> = (0..config.drives)
            .map(|index| {
                let port = add_port(&mut machine, iommu, &credits);
                machine.add_model(|_| Box::new(Nvme::new(port, drive_config(config, index)).expect("a valid drive")))
            })
            .collect();
        let ioapic = IoApicConfig { name: "ioapic".into(), requester: IOAPIC_REQUESTER, pins: 8 };
        let ioapic = IoApic::new(iommu, ioapic);
        let ioapic = if config.old_ioapic { ioapic.without_eoi_register() } else { ioapic };
        let ioapic = machine.add_model(|_| Box::new(ioapic));
        let hpet = HpetConfig { name: "hpet".into(), requester: HPET_REQUESTER, period_fs: 10_000_000, timers: 3 };
        let hpet = machine.add_model(|_| Box::new(Hpet::new(iommu, hpet)));
        let ringer = machine.add_model(|_| Box::new(Ringer::new(iommu, RINGER_REQUESTER)));
        let wire = machine.add_model(|_| Box::new(Wire::new(ioapic, WIRE_PIN)));
        let models = Models { iommu, ioapic, hpet, ringer, wire };
        let added = add(&mut machine, iommu, &credits);
        let entry = Arc::default();
        bringup::hang_entry(&mut machine, &entry);
        (Self { models, drives, machine, config: config.clone(), entry }, added)
    }

    /// True if handlers run in threads.
    pub fn has_threads(&self) -> bool {
        self.config.force_threads
    }

    /// What may go wrong while software comes up.
    pub fn setbacks(&self) -> &Setbacks {
        &self.config.setbacks
    }

    /// Brings the software up.
    ///
    /// # Panics
    /// When it does not come up.
    pub fn bring_up(&mut self) -> Arc<Host> {
        let Self { models, drives, config, entry, .. } = self;
        let (config, models, drives, entry) = (config.clone(), *models, drives.clone(), entry.clone());
        let boot = move || Host::bring_up(&config, models, &drives, &entry);
        self.machine.run_boot(LIMIT, boot).expect("the server comes up")
    }
}

/// A root port.
pub fn add_port(machine: &mut Machine, iommu: ModelId, credits: &Credits) -> ModelId {
    machine.add_model(|id| Box::new(RootPort::new(id, iommu, port_config(), credits)))
}

/// The longest that any operation here may take, in simulated time.
const LIMIT: Ps = Ps::from_ns(2_000_000_000);

impl Server {
    /// Builds the machine and brings the software up.
    ///
    /// # Panics
    /// When it does not come up.
    pub fn new(config: &Config) -> Self {
        Self::with(config, |_, _| ()).0
    }

    /// The same, with the caller's own models below the remapping unit. `add` gets the unit's number; its result is
    /// returned too.
    ///
    /// # Panics
    /// If it does not come up.
    pub fn with<R>(config: &Config, add: impl FnOnce(&mut Machine, ModelId) -> R) -> (Self, R) {
        let (mut hardware, added) = Hardware::with(config, |machine, iommu, _| add(machine, iommu));
        let host = hardware.bring_up();
        let Hardware { models, drives, machine, .. } = hardware;
        (Self { host, models, drives, machine }, added)
    }

    /// Runs `body` on CPU 0 until it has ended.
    ///
    /// # Panics
    /// When it never does.
    pub fn run<R: Send + 'static>(&mut self, body: impl FnOnce(&Arc<Host>) -> R + Send + 'static) -> R {
        let host = self.host.clone();
        let result = self.machine.run_boot(LIMIT, move || body(&host));
        result.unwrap_or_else(|why| panic!("{why}\n{}", self.host.describe()))
    }

    /// Lets `ns` pass.
    pub fn pass(&mut self, ns: u64) -> RunEnd {
        let end = self.machine.now() + Ps::from_ns(ns);
        self.machine.run_until(end)
    }

    /// Faults that the machine recorded: (kind, how often).
    pub fn faults(&self) -> Vec<(&'static str, u64)> {
        self.machine.faults().0.iter().map(|fault| (fault.kind, fault.count)).collect()
    }

    /// A counter of a model, by name.
    ///
    /// # Panics
    /// When there is none of that name.
    pub fn counter(&mut self, model: ModelId, name: &str) -> u64 {
        let counters = self.machine.with_any_model(model, |model| model.counters());
        counters.iter().find(|(other, _)| *other == name).unwrap_or_else(|| panic!("no counter {name}: {counters:?}")).1
    }

    /// Ends the load, and checks that nothing is left: see [`Host::check_quiet`].
    pub fn settle(&mut self) {
        self.run(|host| {
            host.wait_for_load();
            host.check_quiet();
        });
    }

    /// The same for a server that freed no line: every interrupt is accounted for, see [`Host::check_accounts`].
    pub fn finish(&mut self) {
        self.settle();
        self.host.check_accounts();
    }
}

/// The cost of CPUs' actions here.
pub fn costs() -> Costs {
    let mut work = WorkKinds::default();
    for (kind, ns) in [
        (Work::IrqEntry, 200),
        (Work::IrqExit, 150),
        (Work::IrqHandler, 120),
        (Work::ReapEntry, 30),
        (Work::PirHarvest, 80),
        (Work::PidClearOn, 60),
        (Work::CompletionLook, 60),
    ] {
        work.set_ps(kind, ns * 1000);
    }
    Costs {
        work,
        wake_from_idle: Ps::from_ns(500),
        register_read: Ps::from_ns(400),
        register_write: Ps::from_ns(60),
        lapic_write: Ps::from_ns(30),
        line_update: Ps::from_ns(20),
        ipi: Ps::from_ns(300),
        ..Costs::default()
    }
}

fn unit_config(config: &Config) -> VtdConfig {
    VtdConfig {
        name: "dmar0".into(),
        posted_interrupts: config.posting_capability,
        extended_interrupt_mode: true,
        fault_records: 4,
        remap_time: Ps::from_ns(53),
        post_time: Ps::from_ns(105),
        command_time: Ps::from_ns(200),
        invalidation_time: Ps::from_ns(500),
        invalidation_fault: config.invalidation_fault,
    }
}

fn port_config() -> RootPortConfig {
    RootPortConfig {
        name: "port".into(),
        link_bytes_per_second: 13_300_000_000,
        message_order_time: Ps::from_ns(157),
        waiting_messages_max: 2,
        relaxed_ordering: false,
        id_based_ordering: false,
    }
}

/// A drive as this server has them.
pub fn drive_config(config: &Config, index: u32) -> nvme::Config {
    let read = Latency { mean: Ps::from_ns(config.read_ns), spread: Spread::Uniform { percent: 80 }, tail: None };
    nvme::Config {
        name: format!("nvme{index}"),
        requester: requester(index),
        io_queues_max: config.queues as u16,
        vectors: config.queues as u16 + 1,
        queue_entries_max: 64,
        timing: Timing { read, write: read, msi: Ps::from_ns(457), ..Timing::default() },
        storage: StorageKind::Null,
        hidden_coalescing: config.hidden_coalescing,
        ..nvme::Config::default()
    }
}

/// Requester of a drive: a bus a drive, from 1.
pub fn requester(drive: u32) -> u16 {
    ((drive + 1) as u16) << 8
}
