//! What the names in a job file stand for: drives of the platform, or files on one of them.

use crate::fio::{FioJob, drive_of};
use crate::input::Warning;
use crate::kinds::storage::load::FilePlan;

/// The name of the drive that holds all files.
const FILES: &str = "files";

/// The drives of an experiment by the names of its jobs' files.
pub(super) struct Names {
    drives: Vec<String>,
}

impl Names {
    /// A name below `/dev/` is a drive, in the order of the first jobs. All other names are files of one file system, which
    /// has a drive of its own.
    pub(super) fn of(jobs: &[FioJob], warnings: &mut Vec<Warning>) -> Self {
        let mut drives: Vec<String> = Vec::new();
        for job in jobs {
            for name in (0..job.distinct_clones()).flat_map(|clone| job.file_names(clone)) {
                let drive = drive_of(&name).unwrap_or_else(|| FILES.to_owned());
                if drive == FILES && !drives.contains(&drive) {
                    let meaning = format!(
                        "a file: an extent of the drive `{FILES}`. The work of the file system is left out: its lookups, \
                         allocation, metadata and journal"
                    );
                    warnings.push(Warning { place: job.place.clone(), key: "filename".into(), meaning });
                }
                if !drives.contains(&drive) {
                    drives.push(drive);
                }
            }
        }
        Self { drives }
    }

    /// The drives, in order.
    pub(super) fn drives(&self) -> Vec<&str> {
        self.drives.iter().map(String::as_str).collect()
    }

    /// The files of thread number `clone` of a section.
    pub(super) fn files(&self, job: &FioJob, clone: u32) -> Vec<FilePlan> {
        let file = |name: String| {
            let named = drive_of(&name);
            let wanted = named.as_deref().unwrap_or(FILES);
            let drive = self.drives.iter().position(|drive| drive == wanted).expect("made from the jobs");
            FilePlan { name, drive, is_drive: named.is_some() }
        };
        job.file_names(clone).into_iter().map(file).collect()
    }
}
