//! Jobs that begin behind the end of their drives: fio refuses each such file, and the job does no I/O.

use super::Storage;
use crate::input::Warning;
use crate::kinds::storage::load::Load;
use crate::kinds::storage::rig::start_of;
use crate::platform::Platform;

/// Blocks of every simulated drive.
fn blocks() -> u64 {
    machine::nvme::Config::default().blocks
}

/// Warns of jobs that do no I/O since they begin behind the end of their drives.
pub(super) fn warn(storage: &Storage, platform: &Platform, warnings: &mut Vec<Warning>) {
    for job in &storage.jobs {
        let drive = &storage.drives[job.drive];
        let capacity = blocks() * platform.drive(&drive.model).map_or(512, |kind| kind.block.whole());
        let Some(start) = job.load.as_deref().and_then(|load| start_behind(load, capacity)) else { continue };
        let (job_name, drive_name, gib) = (&job.name, &drive.name, capacity >> 30);
        let meaning = format!(
            "[{job_name}] begins at byte {start}, behind the end of {drive_name} (the simulated drive has {gib} GiB): it does no I/O, \
             as in fio"
        );
        warnings.push(Warning { place: job.source.clone(), key: "offset".into(), meaning });
    }
}

/// The first byte of the job's files, all of which are drives, if it lies behind their end.
fn start_behind(load: &Load, capacity: u64) -> Option<u64> {
    let files = &load.files.list;
    let are_drives = !files.is_empty() && files.iter().all(|file| file.is_drive);
    Some(start_of(load, capacity)).filter(|start| are_drives && *start >= capacity)
}
