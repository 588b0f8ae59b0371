//! Brings the software up: core, LAPICs, posted delivery, remapping, drives.

use super::calls::{CALL, Calls};
use super::ringer::RingerPort;
use super::system::{Ticks, Watch};
use super::{Config, Drive, Host, Load, Models, Path, Queue, requester};
use crate::deadlines;
use drivers::apic::{ApicId, ApicMode};
use drivers::nvme::{self, Controller, QueueConfig};
use drivers::pci::{MsixCapability, MsixTable};
use drivers::vtd::Fault;
use hal::{CpuSet, Hal as _};
use irq::posted::PostedConfig;
use irq::{AllocRequest, Flow, RequestFlags, RequesterId, Vector};
use machine::model::ModelId;
use machine::nvme::{REGION_CONFIG, REGION_CONTROLLER, REGION_MSIX};
use machine::{Interrupts, Machine, Regs, SimHal};
use std::sync::{Arc, Mutex, OnceLock};
use systems::pc::{Apics, ExtraVector, PcBuilder, PcError, Serving, Tick, TickEoi};

/// The notification vector of guests' descriptors. The host takes it, as a hypervisor does that looks for the right
/// virtual CPU.
pub const GUEST_NOTIFICATION: Vector = Vector(0xf2);

/// The CPUs, for the interrupt entry.
pub(super) type Entry = Arc<Mutex<Option<Arc<Watch>>>>;

pub(super) fn hang_entry(machine: &mut Machine, entry: &Entry) {
    let entry = entry.clone();
    machine.set_interrupt_entry(move |vector| {
        let watch = entry.lock().expect("one host thread").clone();
        if let Some(watch) = watch {
            watch.take(vector);
        }
    });
}

pub(super) fn request(requester: u16, index: u32, affinity: CpuSet, managed: bool) -> AllocRequest {
    AllocRequest { managed, ..AllocRequest::fixed(RequesterId(requester), index, affinity) }
}

/// The options of the PC.
fn builder(
    config: &Config,
    models: Models,
    (ticks, calls): (&Arc<Ticks>, &Arc<Calls>),
    faults: &Arc<Mutex<Vec<Fault>>>,
) -> PcBuilder<SimHal> {
    let units = u32::from(config.delivery != Path::Plain);
    let ids = (0..config.cpus).map(|cpu| ApicId(cpu << config.machine.apic_id_shift)).collect();
    // A tick of the timers is 1 ns on this machine.
    let is_xapic = config.machine.interrupts == Interrupts::XApic;
    let mode = if is_xapic { ApicMode::XApic } else { ApicMode::X2Apic };
    let apics = Apics { regs: Regs::Lapic, mode, ids, timer_hz: 1_000_000_000 };
    let serving = config.notification_limit_ns.map_or(Serving::Whole, Serving::Within);
    let (ticks, calls, faults) = (ticks.clone(), calls.clone(), faults.clone());
    let builder = PcBuilder::new(SimHal, apics, config.lines_max - units)
        .demand(config.delivery)
        .notifications(PostedConfig::default(), serving)
        .table_entries(1024)
        .flight_ns(config.flight_ns)
        .storm(config.storm)
        .force_threads(config.force_threads)
        .tick(Tick { eoi: TickEoi::First, runs_unarmed: false, run: Arc::new(move |alarm| ticks.tick(alarm)) })
        .vector(ExtraVector {
            vector: GUEST_NOTIFICATION,
            abbreviation: "PIN",
            description: "Posted-interrupt notification event",
            run: Arc::new(|| {}),
        })
        .vector(ExtraVector {
            vector: CALL,
            abbreviation: "CAL",
            description: "Function call interrupts",
            run: Arc::new(move || calls.take()),
        })
        .observe_faults(Arc::new(move |_, fault| faults.lock().expect("one host thread").push(fault)));
    let builder = if config.devices_post { builder.devices_post() } else { builder };
    let regs = Regs::Model { model: models.iommu, region: 0 };
    (0..units).fold(builder, |builder, _| builder.unit(regs))
}

impl Host {
    pub(super) fn bring_up(config: &Config, models: Models, sites: &[ModelId], entry: &Entry) -> Arc<Self> {
        let (ticks, faults) = (Arc::new(Ticks::new(config.tick_ns, config.cpus)), Arc::default());
        let calls = Arc::new(Calls::new(config.cpus));
        let enter = |watch: Option<Arc<Watch>>| *entry.lock().expect("one host thread") = watch;
        let build = || {
            let built = builder(config, models, (&ticks, &calls), &faults).build(|cpus| {
                let watch = Arc::new(Watch::new(cpus.clone()));
                enter(Some(watch.clone()));
                // An INIT wakes the others; this CPU runs already.
                cpus.start_cpu().map_err(PcError::from)?;
                watch.on_every_cpu(|watch| watch.cpus.start_cpu().expect("it was never offline"));
                Ok::<(), PcError>(())
            });
            built.inspect_err(|_| enter(None))
        };
        let pc = config.setbacks.meet("the PC", build);
        let host = Arc::new(Self {
            pc,
            watch: entry.lock().expect("one host thread").clone().expect("set when the CPUs came up"),
            ringer: RingerPort(Regs::Model { model: models.ringer, region: 0 }),
            models,
            drives: OnceLock::new(),
            faults,
            ticks,
            alarm_ns_max: deadlines::alarm_ns_max(config.unrest.as_ref()),
            calls,
        });
        host.on_every_cpu(Self::start_tick);
        let drives = sites.iter().zip(0..).map(|(&site, index)| host.add_drive(config, site, index)).collect();
        assert!(host.drives.set(drives).is_ok(), "once");
        host
    }

    fn add_drive(&self, config: &Config, model: ModelId, index: u32) -> Drive {
        let region = |region| Regs::Model { model, region };
        let wanted = nvme::Config { queue_pairs: config.queues as u16, ..nvme::Config::default() };
        let controller = Controller::new(SimHal, region(REGION_CONTROLLER), wanted).expect("the drive comes up");
        let capability = MsixCapability::find(&region(REGION_CONFIG)).expect("MSI-X");
        let table = MsixTable::enable(region(REGION_CONFIG), region(REGION_MSIX), capability);
        let messages = Arc::new(self.pc.message_domain(0, table).expect("the only unit"));
        let all = CpuSet::first(self.cpus());
        let shares = irq::spread(config.queues, &all).expect("at least a CPU a queue");
        let make = |(vector, share): (u16, CpuSet)| {
            let load = Arc::new(Load::default());
            let queue = QueueConfig { entries: 32, vector: Some(vector), transfer_bytes_max: 4096 };
            let pair = controller.create_queue_pair(queue, load.clone()).expect("a queue");
            let buffer = SimHal.dma_alloc(4096, 4096).expect("memory");
            load.attach(&pair, Arc::new(buffer));
            let request = request(requester(index), vector.into(), share, config.managed);
            let line = self.core().alloc_line(messages.clone(), &request, Flow::Edge).expect("a line");
            let name = format!("nvme{index}q{vector}");
            self.core().request(line, name, RequestFlags::default(), pair.clone()).expect("a new line");
            Queue { pair, line, load }
        };
        let queues = (1..).zip(shares).map(make).collect();
        Drive { controller, queues }
    }
}
