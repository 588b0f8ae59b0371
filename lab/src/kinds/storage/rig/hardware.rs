//! The simulated server of a plan: CPUs, drives, root ports, IOMMUs, as the platform file arranges them.

use super::job::buffer_bytes;
use super::split::PAGE_BYTES;
use crate::kinds::storage::{DrivePlan, Storage, topology};
use crate::plan::Plan;
use crate::platform::{Constant, Drive};
use crate::run::pcie::{Pcie, Site};
use crate::run::{self, RunError};
use machine::Machine;
use machine::fabric::stranger::Stranger;
use machine::model::ModelId;
use machine::nvme::{self, Nvme};
use machine::time::Ps;

/// A server before any software runs on it.
pub(crate) struct Hardware {
    pub(crate) machine: Machine,
    pub(crate) drives: Vec<Site>,
    pub(crate) pcie: Pcie,
    /// The stranger that sends messages in the first drive's name.
    stranger: Option<ModelId>,
}

impl Hardware {
    /// Builds it.
    ///
    /// # Errors
    /// This process has no address space for the machine's memory.
    pub(crate) fn new(plan: &Plan, storage: &Storage, seed: u64, traced: bool) -> Result<Self, RunError> {
        let platform = &plan.platform;
        let topology = Some(topology(platform));
        let mut machine = run::machine_with(plan, memory_bytes(plan, storage), seed, traced, topology)?;
        let mut pcie = Pcie::new(&mut machine, platform, storage.drives.len());
        let mut drives = Vec::new();
        for drive in &storage.drives {
            let kind = platform.drive(&drive.model).expect("the plan was validated");
            drives.push(pcie.attach(&mut machine, platform, kind.link.whole(), |port, requester| {
                let config = drive_config(storage, drive, kind, requester);
                Box::new(Nvme::new(port, config).expect("the platform's bounds are the drive's"))
            }));
        }
        // The stranger comes last, so that no other model's random stream changes.
        let stranger = storage.rogue_msi_ns.map(|interval_ns| {
            let stranger = Stranger::new(pcie.iommus[0], STRANGER, Ps::from_ns(interval_ns));
            machine.add_model(|_| Box::new(stranger))
        });
        Ok(Self { machine, drives, pcie, stranger })
    }

    /// From now on the stranger, if the plan has one, sends the first drive's message. It stays silent if there is no
    /// message to copy (a polled run has no interrupts).
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
/// Requester id of the stranger, ff:1f.7. No drive has it, because drives count up from 01:00.0.
const STRANGER: u16 = 0xffff;

/// Buffers and queues of every job and drive, and room for the tables.
fn memory_bytes(plan: &Plan, storage: &Storage) -> usize {
    let buffers: usize = storage.jobs.iter().map(|job| buffer_bytes(job, storage.verify_data)).sum();
    // Each slot needs a submission entry of 64 bytes, a completion entry of 16, and a PRP list of at most a page.
    let queues: usize = storage
        .drives
        .iter()
        .map(|drive| (drive.queues as usize + 1) * (drive.queue_entries as usize * (64 + 16 + 4096) + (16 << 10)))
        .sum();
    buffers + queues + storage.drives.len() * (1 << 20) + plan.cpus as usize * 4096 + (64 << 20)
}

/// In the order of the values of `drive.*.resend`.
const RESENDS: [nvme::Resend; 3] =
    [nvme::Resend::PerEntry, nvme::Resend::PerUnacknowledgedBatch, nvme::Resend::AfterDoorbell];

fn drive_config(storage: &Storage, drive: &DrivePlan, kind: &Drive, requester: u16) -> nvme::Config {
    let platform_jitter = |time: &Constant| nvme::Latency::of(Ps(time.ps()));
    let read = nvme::Latency {
        mean: Ps(kind.media_mean.ps()),
        spread: nvme::Spread::AboveFloor { floor: Ps(kind.media_floor.ps()) },
        tail: None,
    };
    nvme::Config {
        name: drive.name.clone(),
        requester,
        block_shift: (kind.block.whole() as u32).trailing_zeros() as u8,
        transfer_shift_max: (kind.transfer.whole() / u64::from(PAGE_BYTES)).ilog2() as u8,
        queue_entries_max: kind.queue_entries.whole() as u32,
        vectors: kind.vectors.whole() as u16,
        io_queues_max: (kind.vectors.whole() as u16 - 1).min(1023),
        timing: nvme::Timing {
            fetch: Ps(kind.fetch.ps()),
            slots: kind.slots.whole() as u16,
            read,
            write: platform_jitter(&kind.write_media),
            flush: platform_jitter(&kind.flush),
            deallocate: platform_jitter(&kind.deallocate),
            msi: Ps(kind.msi_interval.ps()),
            ..nvme::Timing::default()
        },
        relaxed_ordering: kind.relaxed_ordering.is_set(),
        writes: nvme::Writes {
            cache_bytes: kind.write_cache.whole(),
            is_volatile: kind.volatile_cache.is_set(),
            cached: platform_jitter(&kind.write_cached),
            sequential_bytes_per_second: kind.write_sequential.whole(),
            random_bytes_per_second: kind.write_random.whole(),
            unit_bytes: kind.write_unit.whole() as u32,
        },
        resend: RESENDS[kind.resend.whole() as usize],
        hidden_coalescing: (kind.hidden_time.ps() > 0).then(|| nvme::HiddenCoalescing {
            entries: kind.hidden_entries.whole() as u32,
            time: Ps(kind.hidden_time.ps()),
        }),
        storage: if storage.verify_data { nvme::StorageKind::Tags } else { nvme::StorageKind::Null },
        ..nvme::Config::default()
    }
}
