//! Validates a storage experiment of any source.

use super::JobPlan;
use crate::input::InputError;
use crate::kinds::storage::rig::job::buffer_bytes;
use crate::kinds::storage::{DrivePlan, Storage, StorageVariant};
use crate::plan::Plan;

/// Device vectors of one CPU: 0x20 up to, not including, the first system vector, 0xeb.
pub const DEVICE_VECTORS: u64 = 0xeb - 0x20;

/// The most memory for buffers.
const BUFFERS_BYTES_MAX: u64 = 8 << 30;
/// The deepest job.
const DEPTH_MAX: u32 = 65_536;

/// Checks that the drives can be built and the jobs can run on `plan`'s machine in each of `variants`.
pub(in crate::kinds::storage) fn validate(
    storage: &Storage,
    plan: &Plan,
    variants: &[StorageVariant],
) -> Result<(), InputError> {
    storage.drives.iter().try_for_each(|drive| check_drive(plan, drive))?;
    storage.check_vectors(plan, variants)?;
    if storage.jobs.is_empty() {
        return Err(InputError::value(&plan.source, "jobs", "[]", "is empty", "at least one job"));
    }
    storage.jobs.iter().try_for_each(|job| storage.check_job(plan, job))?;
    storage.check_buffers()
}

impl Storage {
    /// Checks that the CPUs have enough vectors: one for every admin queue, and for the I/O queues of a drive one on
    /// every CPU if they are managed, otherwise one a queue.
    fn check_vectors(&self, plan: &Plan, variants: &[StorageVariant]) -> Result<(), InputError> {
        if variants.iter().all(|&variant| variant == StorageVariant::Polled) {
            return Ok(());
        }
        let there = u64::from(plan.cpus) * DEVICE_VECTORS;
        let managed = self.drives.iter().filter(|drive| drive.managed).count() as u64;
        let admin = self.drives.len() as u64;
        let others: u64 = self.drives.iter().filter(|drive| !drive.managed).map(|drive| u64::from(drive.queues)).sum();
        let wanted = managed * u64::from(plan.cpus) + others + admin;
        if wanted <= there {
            return Ok(());
        }
        let why = format!("vectors are wanted, and {} CPUs have {there}", plan.cpus);
        if managed > 0 {
            let why = format!("{why}: each managed drive reserves one on every CPU");
            return Err(InputError::value(
                &plan.source,
                "drives.managed",
                wanted,
                why,
                "fewer drives, or managed=false",
            ));
        }
        let each = (there / admin).saturating_sub(1);
        let valid = if each == 0 { "fewer drives".into() } else { format!("drives.queues up to {each}") };
        Err(InputError::value(&plan.source, "drives.queues", wanted, why, valid))
    }

    /// Checks that the buffers of all jobs fit the machine's memory: what the rig allocates.
    fn check_buffers(&self) -> Result<(), InputError> {
        let mut together = 0u64;
        for job in &self.jobs {
            together = together.saturating_add(buffer_bytes(job, self.verify_data) as u64);
            if together > BUFFERS_BYTES_MAX {
                let key = format!("[{}] bs", job.name);
                let why = format!("makes the buffers of all jobs larger than {BUFFERS_BYTES_MAX} bytes");
                return Err(InputError::value(&job.source, key, job.block_bytes, why, "smaller I/Os, or fewer jobs"));
            }
        }
        Ok(())
    }

    fn check_job(&self, plan: &Plan, job: &JobPlan) -> Result<(), InputError> {
        let wrong = |key: &str, value: String, why: &str, valid: String| {
            Err(InputError::value(&job.source, format!("[{}] {key}", job.name), value, why, valid))
        };
        let Some(drive) = self.drives.get(job.drive) else {
            let valid = format!("0 to {}", self.drives.len().saturating_sub(1));
            return wrong("drive", job.drive.to_string(), "is no drive of the plan", valid);
        };
        if job.cpus.is_empty() || job.cpus.iter().any(|cpu| cpu.0 >= plan.cpus) {
            let valid = format!("CPUs 0-{}", plan.cpus - 1);
            return wrong("cpus_allowed", job.cpus.to_string(), "names no CPU, or one that does not exist", valid);
        }
        // A job deeper than a queue waits for room in it, as for a tag.
        if job.iodepth == 0 || job.iodepth > DEPTH_MAX {
            return wrong("iodepth", job.iodepth.to_string(), "is out of bounds", format!("1 to {DEPTH_MAX}"));
        }
        if job.batch_submit == 0 || job.batch_submit > job.iodepth {
            let valid = format!("1 to {}", job.iodepth);
            return wrong("iodepth_batch_submit", job.batch_submit.to_string(), "is out of bounds", valid);
        }
        if job.batch_complete_min > job.iodepth || job.batch_complete_max < job.batch_complete_min.max(1) {
            let value = format!("{} to {}", job.batch_complete_min, job.batch_complete_max);
            return wrong("iodepth_batch_complete_min", value, "is out of bounds", format!("0 to {}", job.iodepth));
        }
        let block = plan.platform.drive(&drive.model).map_or(512, |kind| kind.block.whole());
        if job.block_bytes == 0 || !u64::from(job.block_bytes).is_multiple_of(block) {
            let why = "bytes are no whole number of the drive's logical blocks";
            return wrong("bs", job.block_bytes.to_string(), why, format!("a multiple of {block}"));
        }
        if job.pattern.read_percent > 100 {
            return wrong("rwmixread", job.pattern.read_percent.to_string(), "is out of bounds", "0 to 100".into());
        }
        Ok(())
    }
}

fn check_drive(plan: &Plan, drive: &DrivePlan) -> Result<(), InputError> {
    let key = |field: &str| format!("drives.{}.{field}", drive.name);
    let Some(kind) = plan.platform.drive(&drive.model) else {
        let kinds = plan.platform.drives.iter().map(|(kind, _)| kind.as_str()).collect::<Vec<_>>().join(", ");
        return Err(InputError::value(&plan.source, key("model"), &drive.model, "is no kind of drive", kinds));
    };
    let vectors = kind.vectors.whole() - 1;
    if drive.queues == 0 || u64::from(drive.queues) > vectors {
        let why = "is more than the drive has vectors for, or none";
        return Err(InputError::value(&plan.source, key("queues"), drive.queues, why, format!("1 to {vectors}")));
    }
    let entries = kind.queue_entries.whole();
    if drive.queue_entries < 2 || u64::from(drive.queue_entries) > entries {
        let valid = format!("2 to {entries}");
        return Err(InputError::value(
            &plan.source,
            key("queue_entries"),
            drive.queue_entries,
            "is out of bounds",
            valid,
        ));
    }
    Ok(())
}
