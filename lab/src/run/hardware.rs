//! The simulated server of a plan: CPUs, drives, root ports, IOMMUs, as the platform file arranges them.

use crate::plan::{DrivePlan, Plan};
use crate::platform::{Drive, Platform};
use hal::Work;
use machine::fabric::dispatch::Dispatch;
use machine::fabric::port::{Credits, RootPort, RootPortConfig};
use machine::fabric::stranger::Stranger;
use machine::fabric::vtd::{InvalidationFault, VtdConfig, VtdUnit};
use machine::model::ModelId;
use machine::nvme::{self, Nvme};
use machine::time::Ps;
use machine::{Costs, Machine, MachineConfig};

/// One drive and what is above it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DriveSite {
    /// The drive's model.
    pub(crate) model: ModelId,
    /// Its root port's model.
    pub(crate) port: ModelId,
    /// Index of its IOMMU in [`Hardware::iommus`].
    pub(crate) iommu: usize,
    /// PCI requester id.
    pub(crate) requester: u16,
}

/// A server before any software runs on it.
pub(crate) struct Hardware {
    pub(crate) machine: Machine,
    pub(crate) drives: Vec<DriveSite>,
    pub(crate) ports: Vec<ModelId>,
    pub(crate) iommus: Vec<ModelId>,
    pub(crate) dispatches: Vec<Dispatch>,
    /// Who sends messages in the first drive's name.
    stranger: Option<ModelId>,
}

/// Spans that a trace keeps: a few milliseconds of a busy server, and still loadable in a viewer.
const TRACE_SPANS_MAX: usize = 400_000;

impl Hardware {
    /// Builds it.
    pub(crate) fn new(plan: &Plan, seed: u64, traced: bool) -> Self {
        let platform = &plan.platform;
        let fabric = &platform.fabric;
        let mut machine = Machine::new(MachineConfig {
            cpus: plan.cpus,
            memory_bytes: memory_bytes(plan),
            seed,
            jitter_percent: fabric.jitter.whole() as u32,
            costs: costs(platform),
            interrupt_limit: plan.options.interrupt_limit_ns.map(Ps::from_ns),
            trace_spans_max: if traced { TRACE_SPANS_MAX } else { 0 },
            ..MachineConfig::default()
        });
        machine.set_tracing(false);
        let dispatches: Vec<_> = (0..fabric.sockets.whole()).map(|_| Dispatch::new(Ps(fabric.dispatch.ps()))).collect();
        let credits = Credits::default();
        let iommu_count = plan.drives.len().div_ceil(fabric.drives_per_iommu.whole() as usize);
        let iommus: Vec<_> = (0..iommu_count)
            .map(|index| {
                let socket = index / fabric.iommus_per_socket.whole() as usize % dispatches.len();
                let unit = VtdUnit::new(vtd_config(platform, index), dispatches[socket].clone(), credits.clone());
                machine.add_model(|_| Box::new(unit))
            })
            .collect();
        let mut ports = Vec::new();
        let mut drives = Vec::new();
        for (index, drive) in plan.drives.iter().enumerate() {
            let kind = platform.drive(&drive.model).expect("the plan was validated");
            let iommu = index / fabric.drives_per_iommu.whole() as usize;
            if index.is_multiple_of(fabric.drives_per_port.whole() as usize) {
                let config = RootPortConfig {
                    name: format!("port {}", ports.len()),
                    link_bytes_per_second: kind.link.whole(),
                    message_order_time: Ps(fabric.ordering_stall.ps()),
                    waiting_messages_max: fabric.port_queue_depth.whole() as u32,
                };
                let above = iommus[iommu];
                ports.push(machine.add_model(|id| Box::new(RootPort::new(id, above, config, &credits))));
            }
            let port = *ports.last().expect("the first drive opened a port");
            // Bus numbers from 1; a bus a drive.
            let requester = ((index + 1) as u16) << 8;
            let config = drive_config(plan, drive, kind, requester);
            let model = machine
                .add_model(|_| Box::new(Nvme::new(port, config).expect("the platform's bounds are the drive's")));
            drives.push(DriveSite { model, port, iommu, requester });
        }
        // Last, so that no other model's random stream moves.
        let stranger = plan.options.rogue_msi_ns.map(|interval_ns| {
            let stranger = Stranger::new(iommus[0], STRANGER, Ps::from_ns(interval_ns));
            machine.add_model(|_| Box::new(stranger))
        });
        Self { machine, drives, ports, iommus, dispatches, stranger }
    }

    /// From now on the stranger, if the plan has one, sends the first drive's message. Without a message to copy (a
    /// polled run has no interrupts) it stays silent.
    pub(crate) fn let_stranger_in(&mut self) {
        let (Some(stranger), Some(first)) = (self.stranger, self.drives.first()) else { return };
        let message = self.machine.with_model(first.model, |drive: &mut Nvme| drive.message(FIRST_IO_VECTOR)).flatten();
        let Some((address, data)) = message.filter(|&(address, _)| address != 0) else { return };
        self.machine.with_model(stranger, |stranger: &mut Stranger| stranger.imitate(address, data));
        self.machine.poke(stranger, self.machine.now(), 0, 0);
    }
}

/// MSI-X vector of a drive's first I/O queue; vector 0 is the admin queue's.
const FIRST_IO_VECTOR: u16 = 1;
/// Requester id of the stranger, ff:1f.7: no drive's, they count up from 01:00.0.
const STRANGER: u16 = 0xffff;

/// Buffers and queues of every job and drive, and room for the tables.
fn memory_bytes(plan: &Plan) -> usize {
    let buffers: usize =
        plan.jobs.iter().map(|job| job.iodepth as usize * job.block_bytes.next_multiple_of(4096) as usize).sum();
    // 64 bytes of submission and 16 of completion entry, and a PRP list of at most a page for each slot.
    let queues: usize = plan
        .drives
        .iter()
        .map(|drive| (drive.queues as usize + 1) * (drive.queue_entries as usize * (64 + 16 + 4096) + (16 << 10)))
        .sum();
    buffers + queues + plan.drives.len() * (1 << 20) + plan.cpus as usize * 4096 + (64 << 20)
}

fn costs(platform: &Platform) -> Costs {
    let cpu = &platform.cpu;
    let mut work_ps = [0; Work::COUNT];
    for work in Work::ALL {
        work_ps[work as usize] = cpu.work_ps(work);
    }
    Costs {
        work_ps,
        wake_from_idle: Ps(cpu.scaled_ps(&cpu.idle_wake)),
        register_read: Ps(cpu.scaled_ps(&cpu.register_read)),
        register_write: Ps(cpu.scaled_ps(&cpu.doorbell)),
        lapic_write: Ps(cpu.scaled_ps(&cpu.eoi)),
        line_update: Ps(cpu.scaled_ps(&cpu.line_transfer)),
        ..Costs::default()
    }
}

fn vtd_config(platform: &Platform, index: usize) -> VtdConfig {
    let fabric = &platform.fabric;
    VtdConfig {
        name: format!("IOMMU {index}"),
        posted_interrupts: fabric.posted_capability.is_set(),
        extended_interrupt_mode: true,
        fault_records: 8,
        remap_time: Ps(fabric.remap_service.ps()),
        post_time: Ps(fabric.posted_update.ps()),
        // Management is rare and none of the published figures sees its times.
        command_time: Ps::from_ns(1_000),
        invalidation_time: Ps::from_ns(500),
        invalidation_fault: InvalidationFault::None,
    }
}

fn drive_config(plan: &Plan, drive: &DrivePlan, kind: &Drive, requester: u16) -> nvme::Config {
    let read = nvme::Latency {
        mean: Ps(kind.media_mean.ps()),
        spread: nvme::Spread::AboveFloor { floor: Ps(kind.media_floor.ps()) },
        tail: None,
    };
    nvme::Config {
        name: drive.name.clone(),
        requester,
        block_shift: (kind.block.whole() as u32).trailing_zeros() as u8,
        queue_entries_max: kind.queue_entries.whole() as u32,
        vectors: kind.vectors.whole() as u16,
        io_queues_max: (kind.vectors.whole() as u16 - 1).min(1023),
        timing: nvme::Timing {
            fetch: Ps(kind.fetch.ps()),
            slots: kind.slots.whole() as u16,
            read,
            write: read,
            msi: Ps(kind.msi_interval.ps()),
            ..nvme::Timing::default()
        },
        resend: nvme::Resend::Always,
        hidden_coalescing: (kind.hidden_time.ps() > 0).then(|| nvme::HiddenCoalescing {
            entries: kind.hidden_entries.whole() as u32,
            time: Ps(kind.hidden_time.ps()),
        }),
        storage: if plan.options.verify_data { nvme::StorageKind::Tags } else { nvme::StorageKind::Null },
        ..nvme::Config::default()
    }
}
