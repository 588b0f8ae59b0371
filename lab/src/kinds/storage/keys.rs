//! The workload of a storage experiment, and the keys that set it.

mod drives;
mod options;

pub use drives::{Coalescing, DrivePlan};

use super::plan::{JobPlan, resolve};
use crate::document::{Node, Table};
use crate::fio::{self, Entry, Reporting, Section, Variables};
use crate::input::{InputError, Problem};
use crate::platform::{Platform, Unit};
use crate::scenario::common::Common;
use crate::scenario::draft::{Asked, Draft, Resolved};
use crate::scenario::files::Files;
use crate::scenario::key::{self, Described, Key, Value};
use crate::setting::Setting;
use drivers::nvme::{CompletionLook, ReapBound};
use drives::DriveSettings;
use std::sync::Arc;

/// The block layer's `rq_affinity`: the CPU on which an I/O completes that another CPU reaps than the one that submitted
/// it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RqAffinity {
    /// 0: where it is reaped.
    Here,
    /// 1, Linux's default: where it is reaped if that CPU shares a cache with the submitter's, else on the submitter's.
    CacheDomain,
    /// 2: on the submitter's CPU.
    Submitter,
}

/// Drives, and jobs that keep them busy.
#[derive(Clone, PartialEq, Debug)]
pub struct Storage {
    /// The drives, in the order of their first job.
    pub drives: Vec<DrivePlan>,
    /// One entry a thread: `numjobs` is expanded.
    pub jobs: Vec<JobPlan>,
    /// When the driver looks at the completion queue after a batch of submissions; none: as the variant has it
    /// ([`super::StorageVariant::completion_look`]).
    pub check_queue: Option<CompletionLook>,
    /// On which CPU the block layer completes an I/O.
    pub rq_affinity: RqAffinity,
    /// The limit on the work of one interrupt of a queue.
    pub reap_bound: ReapBound,
    /// Longest command that the block layer makes, in bytes: `max_sectors_kb`.
    pub max_sectors_bytes: u32,
    /// Most segments of a command. Each page of a buffer is one.
    pub max_segments: u32,
    /// True to compare every read with the drive's expected content, and every write with the data sent.
    pub verify_data: bool,
    /// Some jobs wait for others or run to their own end: each phase is measured over its own span.
    pub staged: bool,
    /// I/Os of a phase from which on its jobs no longer wait for each other.
    pub together_ios: u64,
    /// The share of buffered reads that the page cache answers, in per cent.
    pub page_cache_hits: u8,
    /// Copying a page between the page cache and a buffer, in ns.
    pub page_copy_ns: u64,
    /// Mean time between MSIs that a stranger sends with the first drive's message; none by default. They must be
    /// refused.
    pub rogue_msi_ns: Option<u64>,
    /// What each job says about its report, in the order of `jobs`.
    pub reporting: Vec<Arc<Reporting>>,
    /// What a run keeps of each thread.
    pub detail: Detail,
}

/// What a run keeps of each thread, beside what all of them count together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Detail {
    /// Nothing.
    None,
    /// fio's statistics.
    Figures,
    /// Also the single I/Os that its logs show.
    Logs,
}

/// About a second of host time.
const TOGETHER_IOS: u64 = 500_000;

/// The values without any key set.
const BLANK: Storage = Storage {
    drives: Vec::new(),
    jobs: Vec::new(),
    check_queue: None,
    rq_affinity: RqAffinity::CacheDomain,
    reap_bound: ReapBound::Ring,
    max_sectors_bytes: 0,
    max_segments: 0,
    verify_data: false,
    staged: false,
    together_ios: TOGETHER_IOS,
    page_cache_hits: 0,
    page_copy_ns: 0,
    rogue_msi_ns: None,
    reporting: Vec::new(),
    detail: Detail::None,
};

/// Keys of this kind, beside `drives.`, `job.` and fio's options.
const KEYS: &[Key<Storage>] = &[
    Key {
        name: "options.check_queue",
        about: "look at the completion queue after each batch of submissions: auto, off, on; without it as the \
                column has it",
        default: None,
        value: Value::Word {
            words: &["auto", "off", "on"],
            wrong: "is no policy",
            set: |storage, word| {
                storage.check_queue = Some([CompletionLook::Auto, CompletionLook::Off, CompletionLook::On][word]);
            },
        },
    },
    Key {
        name: "options.rq_affinity",
        about: "where the block layer completes: 0 here, 1 in the submitter's cache domain, 2 on the submitter's CPU",
        default: Some("1"),
        value: Value::Word {
            words: &["0", "1", "2"],
            wrong: "is no rq_affinity",
            set: |storage, word| {
                storage.rq_affinity = [RqAffinity::Here, RqAffinity::CacheDomain, RqAffinity::Submitter][word];
            },
        },
    },
    Key {
        name: "options.reap_bound",
        about: "what one interrupt takes: a ring of entries, or \"none\": all it finds",
        default: Some("ring"),
        value: Value::Word {
            words: &["ring", "none"],
            wrong: "is no bound",
            set: |storage, word| storage.reap_bound = [ReapBound::Ring, ReapBound::None][word],
        },
    },
    Key {
        name: "options.max_sectors",
        about: "the longest command that the block layer makes (max_sectors_kb)",
        default: Some("1280 KiB"),
        value: Value::Quantity {
            unit: Unit::Size,
            min: 4096.0,
            max: 8_388_608.0,
            set: |storage, bytes| storage.max_sectors_bytes = bytes as u32,
        },
    },
    Key {
        name: "options.max_segments",
        about: "segments of a command: pages, if none adjoins another",
        default: Some("128"),
        value: Value::Quantity {
            unit: Unit::Count,
            min: 1.0,
            max: 65_535.0,
            set: |storage, segments| storage.max_segments = segments as u32,
        },
    },
    Key {
        name: "options.verify_data",
        about: "compare every block",
        default: Some("false"),
        value: Value::Quantity {
            unit: Unit::Flag,
            min: 0.0,
            max: 1.0,
            set: |storage, flag| storage.verify_data = flag != 0.0,
        },
    },
    Key {
        name: "options.page_cache_hits",
        about: "of a job with direct=0, the share of its reads that the page cache answers",
        default: Some("0 %"),
        value: Value::Quantity {
            unit: Unit::Percent,
            min: 0.0,
            max: 100.0,
            set: |storage, percent| storage.page_cache_hits = percent as u8,
        },
    },
    Key {
        name: "options.page_copy",
        about: "of a job with direct=0, to find a page in the page cache and to copy it",
        default: Some("400 ns"),
        value: Value::Quantity {
            unit: Unit::Time,
            min: 0.0,
            max: 1e6,
            set: |storage, ns| storage.page_copy_ns = ns as u64,
        },
    },
    Key {
        name: "options.rogue_msi",
        about: "a stranger sends MSIs in the first drive's name, this far apart",
        default: None,
        value: Value::Quantity {
            unit: Unit::Time,
            min: 100.0,
            max: 1e9,
            set: |storage, ns| storage.rogue_msi_ns = Some(ns as u64),
        },
    },
];

/// A storage experiment while its settings are read.
pub(super) struct StorageDraft {
    /// The place of the jobs.
    file: String,
    /// Where the files lie that the jobs name.
    files: Files,
    sections: Vec<Section>,
    /// The job file that holds the sections; none once it has been read.
    job_file: Option<Setting>,
    /// Drives and jobs are still empty.
    storage: Storage,
    /// Options that replace those of every job.
    job: Vec<Entry>,
    drives: DriveSettings,
}

impl StorageDraft {
    fn boxed(file: String, files: Files, sections: Vec<Section>, job_file: Option<Setting>) -> Box<dyn Draft> {
        let mut storage = BLANK;
        key::set_defaults(KEYS, &mut storage);
        Box::new(Self { file, files, sections, job_file, storage, job: Vec::new(), drives: DriveSettings::default() })
    }

    /// The experiment as set so far, without drives and jobs.
    pub(super) fn storage(&self) -> &Storage {
        &self.storage
    }

    /// One drive for each of `names`, on a machine with `cpus`.
    ///
    /// # Errors
    /// A setting is wrong or for another drive, or the platform has no drives.
    pub(super) fn drives(&self, platform: &Platform, names: &[&str], cpus: u32) -> Result<Vec<DrivePlan>, InputError> {
        self.drives.check_names(names)?;
        names.iter().map(|name| self.drives.drive(&self.file, platform, name, cpus)).collect()
    }
}

impl Draft for StorageDraft {
    fn keys(&self) -> Vec<(String, &'static str)> {
        let own = KEYS.iter().map(Key::described).chain(drives::KEYS.iter().map(Key::described));
        let job = fio::options::names().map(|name| (format!("job.{name}"), "as fio has it"));
        own.chain(job).collect()
    }

    fn in_full(&self, platform: &Platform) -> Vec<Described> {
        let own = KEYS.iter().map(|key| key.in_full(&mut self.storage.clone()));
        own.chain(drives::in_full(platform)).chain(options::in_full()).collect()
    }

    fn defaults(&self) -> Vec<(&'static str, &'static str)> {
        key::defaults(KEYS).chain(key::defaults(drives::KEYS)).collect()
    }

    fn apply(&mut self, setting: &Setting) -> Result<bool, InputError> {
        if key::apply(KEYS, &mut self.storage, setting)? {
            return Ok(true);
        }
        if setting.key.starts_with("job.") {
            self.job.push(Entry { setting: as_fio(setting.clone()), bare: false });
            return Ok(true);
        }
        Ok(self.drives.apply(setting))
    }

    fn read_files(&mut self, files: Files) -> Result<(), InputError> {
        self.files = files;
        let Some(setting) = self.job_file.take() else { return Ok(()) };
        self.file = Files::beside(&setting.text, &setting.place.file);
        let unread = |error| setting.wrong(format!("cannot be read ({error})"), "the path of a job file");
        let bytes = files.read(&self.file).map_err(unread)?;
        self.sections = sections(files, &self.file, &bytes)?;
        Ok(())
    }

    fn resolve(&self, common: &Common, asked: Option<Asked>) -> Result<Resolved, InputError> {
        let variables = Variables { cpus: common.cpus_or(None)?, ..common.variables.clone() };
        let mut sections = self.sections.clone();
        let (mut warnings, errors) = variables.expand(&mut sections);
        errors.into_iter().next().map_or(Ok(()), Err)?;
        let (mut jobs, told) = fio::jobs(&self.file, &sections, &self.job)?;
        warnings.extend(told);
        let log = |name: &str| self.files.beginning(name, &self.file, fio::replay::BYTES_MAX);
        fio::replay::load(&mut jobs, &log, &mut warnings)?;
        resolve(self, common, jobs, warnings, asked)
    }
}

/// A draft with the jobs of a job file, and nothing else set.
///
/// # Errors
/// The file is not a job file.
pub(crate) fn of_job_file(files: Files, path: &str, bytes: &[u8]) -> Result<Box<dyn Draft>, InputError> {
    Ok(StorageDraft::boxed(path.to_owned(), files, sections(files, path, bytes)?, None))
}

/// The jobs of a scenario file, or the job file that it names.
pub(super) fn of_scenario(root: &Table<'_, '_>, valid: &str) -> Result<Box<dyn Draft>, InputError> {
    let file = root.place.file.clone();
    match (root.get("workload"), root.get("jobs")) {
        (Some(node), None) => Ok(StorageDraft::boxed(file, Files::Disk, Vec::new(), Some(node.scalar(valid)?))),
        (None, Some(Node::Array(_, jobs))) => {
            let sections = jobs.into_iter().enumerate().map(inline_job).collect::<Result<_, _>>()?;
            Ok(StorageDraft::boxed(file, Files::Disk, sections, None))
        }
        (Some(_), Some(node)) => {
            Err(InputError::value(&node.place(), "jobs", "[[jobs]]", "stands beside `workload`", "one of them"))
        }
        (None, Some(node)) => {
            Err(InputError::value(&node.place(), "jobs", "[jobs]", "is no list of tables", "[[jobs]]"))
        }
        (None, None) => Err(InputError::new(&root.place, "workload", Problem::Missing { valid: valid.to_owned() })),
    }
}

fn sections(files: Files, path: &str, bytes: &[u8]) -> Result<Vec<Section>, InputError> {
    fio::sections(path, bytes, &|name, from| files.included(name, from))
}

/// One `[[jobs]]` table as a section of a job file, named by its `name`.
fn inline_job((index, node): (usize, Node<'_, '_>)) -> Result<Section, InputError> {
    let place = node.place();
    let Node::Table(table) = node else {
        return Err(InputError::value(&place, "jobs", "…", "is no table", "[[jobs]] and fio's options"));
    };
    let mut section = Section { name: format!("job{index}"), place, entries: Vec::new() };
    for (name, node) in table.iter() {
        let mut setting = node.scalar("one value")?;
        if name == "name" {
            section.name = setting.text;
            continue;
        }
        setting.key = name.to_owned();
        section.entries.push(Entry { setting: as_fio(setting), bare: false });
    }
    Ok(section)
}

/// A flag of a scenario file as fio writes it: 0 or 1.
fn as_fio(mut setting: Setting) -> Setting {
    match setting.text.as_str() {
        "true" => setting.text = "1".into(),
        "false" => setting.text = "0".into(),
        _ => {}
    }
    setting
}
