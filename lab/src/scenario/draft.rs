//! What can be set: in a scenario's tables and with `--set`, by the same keys.

use crate::fio::{self, Entry};
use crate::input::InputError;
use crate::plan::{Coalescing, DrivePlan, Options};
use crate::platform::{Platform, Unit};
use crate::setting::Setting;
use drivers::nvme::CompletionCheck;

/// Longest ramp or duration: a run of a second of a busy server already takes minutes.
const SPAN_MAX_NS: f64 = 10e9;

const PLAN_KEYS: &[&str] = &[
    "cpus",
    "ramp",
    "duration",
    "options.harvest_passes",
    "options.check_queue",
    "options.verify_data",
    "options.interrupt_limit",
    "options.rogue_msi",
    "drives.model",
    "drives.queues",
    "drives.queue_entries",
    "drives.coalescing_entries",
    "drives.coalescing_time",
];

/// An experiment while its settings come in; later ones stand over earlier ones.
pub(super) struct Draft {
    pub(super) platform: Platform,
    pub(super) cpus: Option<(u32, Setting)>,
    pub(super) ramp_ns: Option<u64>,
    pub(super) duration_ns: Option<u64>,
    pub(super) options: Options,
    /// Over the options of every job.
    pub(super) job: Vec<Entry>,
    /// Checked, but for what depends on the drive's kind.
    drives: Vec<DriveSetting>,
}

/// A setting of all drives, or of the one of that name.
struct DriveSetting {
    drive: Option<String>,
    field: &'static str,
    setting: Setting,
}

impl Draft {
    pub(super) fn new(platform: Platform) -> Self {
        Self {
            platform,
            cpus: None,
            ramp_ns: None,
            duration_ns: None,
            options: Options::default(),
            job: Vec::new(),
            drives: Vec::new(),
        }
    }

    /// Takes one setting.
    pub(super) fn apply(&mut self, setting: &Setting) -> Result<(), InputError> {
        let quantity = |unit: Unit, min: f64, max: f64| unit.read(setting, min, max);
        match setting.key.as_str() {
            "cpus" => self.cpus = Some((quantity(Unit::Count, 1.0, 1024.0)? as u32, setting.clone())),
            "ramp" => self.ramp_ns = Some(quantity(Unit::Time, 0.0, SPAN_MAX_NS)? as u64),
            "duration" => self.duration_ns = Some(quantity(Unit::Time, 1e3, SPAN_MAX_NS)? as u64),
            "options.harvest_passes" => self.options.harvest_passes = quantity(Unit::Count, 0.0, 64.0)? as u32,
            "options.check_queue" => self.options.check_queue = check_queue(setting)?,
            "options.verify_data" => self.options.verify_data = quantity(Unit::Flag, 0.0, 1.0)? != 0.0,
            "options.interrupt_limit" => {
                self.options.interrupt_limit_ns = Some(quantity(Unit::Time, 100.0, SPAN_MAX_NS)? as u64);
            }
            "options.rogue_msi" => self.options.rogue_msi_ns = Some(quantity(Unit::Time, 100.0, 1e9)? as u64),
            key if key.starts_with("job.") => self.job.push(Entry { setting: setting.clone(), bare: false }),
            key if key.starts_with("drives.") => self.apply_to_drives(setting)?,
            key if ["cpu.", "fabric.", "drive."].iter().any(|group| key.starts_with(group)) => {
                self.platform.set(setting)?;
            }
            _ => return Err(self.unknown(setting)),
        }
        Ok(())
    }

    /// `drives.queues`, or `drives./dev/nvme0n1.queues` for one.
    fn apply_to_drives(&mut self, setting: &Setting) -> Result<(), InputError> {
        let rest = setting.key.trim_start_matches("drives.");
        let (drive, name) = match rest.rsplit_once('.') {
            Some((drive, name)) => (Some(drive.to_owned()), name),
            None => (None, rest),
        };
        let fields = PLAN_KEYS.iter().filter_map(|key| key.strip_prefix("drives."));
        let Some(field) = fields.into_iter().find(|field| *field == name) else {
            return Err(self.unknown(setting));
        };
        self.drives.push(DriveSetting { drive, field, setting: setting.clone() });
        Ok(())
    }

    /// The error that nothing has this key.
    fn unknown(&self, setting: &Setting) -> InputError {
        let constants = self.platform.constants();
        let job: Vec<String> = fio::options::names().map(|name| format!("job.{name}")).collect();
        let keys = PLAN_KEYS.iter().copied().chain(constants.iter().map(|(key, ..)| key.as_str()));
        setting.unknown(keys.chain(job.iter().map(String::as_str)))
    }

    /// Makes the drive `name` of a machine with `cpus`.
    pub(super) fn drive(&self, name: &str, cpus: u32) -> Result<DrivePlan, InputError> {
        let own = |field: &str| {
            let settings = self.drives.iter().filter(|setting| setting.field == field);
            let found = settings.filter(|setting| setting.drive.as_deref().is_none_or(|drive| drive == name));
            found.max_by_key(|setting| setting.drive.is_some()).map(|found| &found.setting)
        };
        let kinds = || self.platform.drives.iter().map(|(kind, _)| kind.as_str()).collect::<Vec<_>>().join(", ");
        let model = match own("model") {
            Some(setting) if self.platform.drive(&setting.text).is_none() => {
                let why = format!("is no kind of drive of platform {}", self.platform.name);
                return Err(setting.wrong(why, kinds()));
            }
            Some(setting) => setting.text.clone(),
            None => self.platform.drives[0].0.clone(),
        };
        let kind = self.platform.drive(&model).expect("checked above");
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
    pub(super) fn check_drive_names(&self, names: &[&str]) -> Result<(), InputError> {
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
