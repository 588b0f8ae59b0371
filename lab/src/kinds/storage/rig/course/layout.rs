//! Where the files of all jobs lie on their drives: one extent each, one behind the other.

use super::files::{Extent, length_on_drive};
use crate::kinds::storage::{JobPlan, Storage};
use std::collections::BTreeMap;

/// Extents begin at multiples of this.
const ALIGN: u64 = 1 << 20;

/// First byte of each file by its name. A file that several jobs name is one file.
pub(crate) struct Layout {
    bases: BTreeMap<String, u64>,
}

impl Layout {
    /// `capacity`: bytes of a drive by its index.
    pub(crate) fn new(storage: &Storage, capacity: impl Fn(usize) -> u64) -> Self {
        let mut lengths: BTreeMap<&str, (usize, u64)> = BTreeMap::new();
        let mut names: Vec<&str> = Vec::new();
        for load in storage.jobs.iter().filter_map(|job| job.load.as_ref()) {
            for file in load.files.list.iter().filter(|file| !file.is_drive) {
                let length = length_on_drive(load, capacity(file.drive));
                let entry = lengths.entry(&file.name).or_insert_with(|| {
                    names.push(&file.name);
                    (file.drive, 0)
                });
                entry.1 = entry.1.max(length);
            }
        }
        let mut free: BTreeMap<usize, u64> = BTreeMap::new();
        let mut bases = BTreeMap::new();
        for name in names {
            let (drive, length) = lengths[name];
            let next = free.entry(drive).or_insert(0);
            let length = length.div_ceil(ALIGN).saturating_mul(ALIGN);
            // What does not fit begins again at the front: the drive is full of other files.
            if next.saturating_add(length) > capacity(drive) {
                *next = 0;
            }
            bases.insert(name.to_owned(), *next);
            *next = next.saturating_add(length);
        }
        Self { bases }
    }

    /// The extents of a job's files. `target_of`: index of the job's target by drive.
    pub(super) fn extents(
        &self,
        plan: &JobPlan,
        target_of: impl Fn(usize) -> usize,
        capacity: impl Fn(usize) -> u64,
    ) -> Vec<Extent> {
        let Some(load) = &plan.load else { return Vec::new() };
        let has_size = load.files.size.is_some_and(|size| size.bytes().is_some()) || load.files.file_size.is_some();
        let extent = |file: &crate::kinds::storage::load::FilePlan| {
            let whole = capacity(file.drive);
            let real = match (file.is_drive, has_size) {
                (true, _) => Some(whole),
                (false, true) => None,
                (false, false) => Some(whole / 4 / load.files.list.len().max(1) as u64 / ALIGN * ALIGN),
            };
            let base = if file.is_drive { 0 } else { self.bases.get(&file.name).copied().unwrap_or(0) };
            Extent { target: target_of(file.drive) as u32, base, real }
        };
        load.files.list.iter().map(extent).collect()
    }
}
