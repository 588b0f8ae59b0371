//! A storage experiment: from a job file and what is set over it to drives and threads on CPUs.

mod resolve;

use super::Resolved;
use super::draft::{Asked, Draft};
use crate::fio::{self, Entry, Section};
use crate::input::{InputError, Place};
use crate::plan::{Coalescing, DrivePlan};
use crate::platform::{Platform, Unit};
use crate::setting::Setting;
use drivers::nvme::{CompletionCheck, ReapBound};
use resolve::Resolve;

/// Keys of this kind, beside `job.` and fio's options.
const KEYS: &[&str] = &[
    "options.check_queue",
    "options.reap_bound",
    "options.verify_data",
    "options.rogue_msi",
    "drives.model",
    "drives.queues",
    "drives.queue_entries",
    "drives.coalescing_entries",
    "drives.coalescing_time",
];

/// A storage experiment while its settings come in.
pub(super) struct StorageDraft {
    file: String,
    sections: Vec<Section>,
    check_queue: CompletionCheck,
    reap_bound: ReapBound,
    verify_data: bool,
    rogue_msi_ns: Option<u64>,
    /// Over the options of every job.
    job: Vec<Entry>,
    /// Checked, but for what depends on the drive's kind.
    drives: Vec<DriveSetting>,
}

/// A setting of all drives, or of the one of that name.
struct DriveSetting {
    drive: Option<String>,
    field: &'static str,
    setting: Setting,
}

impl StorageDraft {
    /// The jobs of a file.
    pub(super) fn new(file: String, sections: Vec<Section>) -> Self {
        Self {
            file,
            sections,
            check_queue: CompletionCheck::Auto,
            reap_bound: ReapBound::Ring,
            verify_data: false,
            rogue_msi_ns: None,
            job: Vec::new(),
            drives: Vec::new(),
        }
    }

    /// Every key.
    pub(super) fn keys() -> Vec<String> {
        let job = fio::options::names().map(|name| format!("job.{name}"));
        KEYS.iter().map(ToString::to_string).chain(job).collect()
    }

    /// Takes a setting if it is this kind's.
    pub(super) fn apply(&mut self, setting: &Setting) -> Result<bool, InputError> {
        match setting.key.as_str() {
            "options.check_queue" => self.check_queue = check_queue(setting)?,
            "options.reap_bound" => self.reap_bound = reap_bound(setting)?,
            "options.verify_data" => self.verify_data = Unit::Flag.read(setting, 0.0, 1.0)? != 0.0,
            "options.rogue_msi" => self.rogue_msi_ns = Some(Unit::Time.read(setting, 100.0, 1e9)? as u64),
            key if key.starts_with("job.") => self.job.push(Entry { setting: setting.clone(), bare: false }),
            key if key.starts_with("drives.") => return Ok(self.apply_to_drives(setting)),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// `drives.queues`, or `drives./dev/nvme0n1.queues` for one.
    fn apply_to_drives(&mut self, setting: &Setting) -> bool {
        let rest = setting.key.trim_start_matches("drives.");
        let (drive, name) = match rest.rsplit_once('.') {
            Some((drive, name)) => (Some(drive.to_owned()), name),
            None => (None, rest),
        };
        let fields = KEYS.iter().filter_map(|key| key.strip_prefix("drives."));
        let Some(field) = fields.into_iter().find(|field| *field == name) else {
            return false;
        };
        self.drives.push(DriveSetting { drive, field, setting: setting.clone() });
        true
    }

    /// What the settings make of it.
    pub(super) fn resolve(&self, draft: &Draft, asked: Option<Asked>) -> Result<Resolved, InputError> {
        let (jobs, warnings) = fio::jobs(&self.file, &self.sections, &self.job)?;
        Resolve { draft, storage: self, jobs, warnings, asked }.finish()
    }

    /// Makes the drive `name` of a machine with `cpus`.
    fn drive(&self, platform: &Platform, name: &str, cpus: u32) -> Result<DrivePlan, InputError> {
        let own = |field: &str| {
            let settings = self.drives.iter().filter(|setting| setting.field == field);
            let found = settings.filter(|setting| setting.drive.as_deref().is_none_or(|drive| drive == name));
            found.max_by_key(|setting| setting.drive.is_some()).map(|found| &found.setting)
        };
        let kinds = || platform.drives.iter().map(|(kind, _)| kind.as_str()).collect::<Vec<_>>().join(", ");
        let model = match own("model") {
            Some(setting) if platform.drive(&setting.text).is_none() => {
                let why = format!("is no kind of drive of platform {}", platform.name);
                return Err(setting.wrong(why, kinds()));
            }
            Some(setting) => setting.text.clone(),
            None => match platform.drives.first() {
                Some((kind, _)) => kind.clone(),
                None => {
                    let why = format!("has no drives, which {name} would be");
                    let platform = &platform.name;
                    return Err(InputError::value(
                        &Place::file(&self.file),
                        "platform",
                        platform,
                        why,
                        "one with [drive]",
                    ));
                }
            },
        };
        let kind = platform.drive(&model).expect("checked above");
        let count = |field: &str, default: u64, max: u64| match own(field) {
            Some(setting) => Unit::Count.read(setting, 1.0, max as f64).map(|value| value as u64),
            None => Ok(default.min(max)),
        };
        let queues = count("queues", cpus.into(), kind.vectors.whole() - 1)? as u32;
        let queue_entries = count("queue_entries", 1024, kind.queue_entries.whole())? as u32;
        Ok(DrivePlan {
            name: name.to_owned(),
            model,
            queues,
            queue_entries,
            coalescing: coalescing(own("coalescing_entries"), own("coalescing_time"))?,
        })
    }

    /// A setting for a drive that no job names.
    ///
    /// # Errors
    /// There is one.
    fn check_drive_names(&self, names: &[&str]) -> Result<(), InputError> {
        for setting in &self.drives {
            if let Some(drive) = &setting.drive
                && !names.contains(&drive.as_str())
            {
                let setting = &setting.setting;
                return Err(InputError::value(
                    &setting.place,
                    &setting.key,
                    drive,
                    "is no drive of a job",
                    names.join(", "),
                ));
            }
        }
        Ok(())
    }
}

fn check_queue(setting: &Setting) -> Result<CompletionCheck, InputError> {
    match setting.text.trim() {
        "auto" => Ok(CompletionCheck::Auto),
        "off" => Ok(CompletionCheck::Off),
        "on" => Ok(CompletionCheck::On),
        _ => Err(setting.wrong("is no policy", "auto, off, on")),
    }
}

fn reap_bound(setting: &Setting) -> Result<ReapBound, InputError> {
    match setting.text.trim() {
        "ring" => Ok(ReapBound::Ring),
        "none" => Ok(ReapBound::None),
        _ => Err(setting.wrong("is no bound", "ring, none")),
    }
}

/// Feature 08h: a threshold, a time, or both. The time is a multiple of 100 µs.
fn coalescing(entries: Option<&Setting>, time: Option<&Setting>) -> Result<Option<Coalescing>, InputError> {
    let time_100us = match time {
        Some(setting) => {
            let steps = Unit::Time.read(setting, 0.0, 25.5e6)? / 1e5;
            if steps.fract() != 0.0 {
                return Err(setting.wrong("is no multiple of 100 us", "100 us to 25.5 ms in steps of 100 us"));
            }
            steps as u8
        }
        None => 0,
    };
    let entries = match entries {
        Some(setting) => Unit::Count.read(setting, 1.0, 256.0)? as u16,
        None => 1,
    };
    let on = entries > 1 || time_100us > 0;
    Ok(on.then_some(Coalescing { entries, time_100us }))
}
