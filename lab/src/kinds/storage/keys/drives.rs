//! Settings of drives: of all drives, or of one drive by its name.

use crate::input::{InputError, Place};
use crate::platform::{Drive, Platform, Unit};
use crate::scenario::key::{Described, Key, Value};
use crate::setting::Setting;

/// One drive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DrivePlan {
    /// Its name: the job's `filename`.
    pub name: String,
    /// Its model, a key of [`Platform::drives`].
    pub model: String,
    /// I/O queue pairs, each with a vector unless it is polled.
    pub queues: u32,
    /// Entries of each queue.
    pub queue_entries: u32,
    /// A vector of each queue is reserved on every CPU of the queue, as Linux's managed affinity does.
    pub managed: bool,
    /// Interrupt coalescing (NVMe feature 08h), when it is set.
    pub coalescing: Option<Coalescing>,
}

/// NVMe feature 08h, in the units of NVM Express Base 2.0, clause 5.27.1.6.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Coalescing {
    /// Aggregation threshold in entries, 1 to 256 (the field is 0's based).
    pub entries: u16,
    /// Aggregation time in units of 100 µs; 0: no delay.
    pub time_100us: u8,
}

/// One drive while its settings are read.
pub(super) struct DriveDraft {
    /// The job file, for an error message.
    file: String,
    platform: Platform,
    name: String,
    model: Option<String>,
    queues: Option<u32>,
    queue_entries: Option<u32>,
    managed: bool,
    coalescing: Coalescing,
}

/// The keys of a drive, read in this order because bounds depend on the model.
pub(super) const KEYS: &[Key<DriveDraft>] = &[
    Key {
        name: "drives.model",
        about: "a kind of drive of the platform; without it its first",
        default: None,
        value: Value::Text(DriveDraft::set_model),
    },
    Key {
        name: "drives.queues",
        about: "without it: one a CPU, at most the drive's vectors; never more than CPUs",
        default: None,
        value: Value::Text(|drive, setting| {
            let most = drive.constants()?.vectors.whole() - 1;
            drive.queues = Some(Unit::Count.read(setting, 1.0, most as f64)? as u32);
            Ok(())
        }),
    },
    Key {
        name: "drives.queue_entries",
        about: "of each queue; without it 1024, at most the drive's",
        default: None,
        value: Value::Text(|drive, setting| {
            let most = drive.constants()?.queue_entries.whole();
            drive.queue_entries = Some(Unit::Count.read(setting, 1.0, most as f64)? as u32);
            Ok(())
        }),
    },
    Key {
        name: "drives.managed",
        about: "reserve a queue's vector on each of its CPUs, as Linux does; false: on one, for more drives than CPUs have \
                vectors",
        default: Some("true"),
        value: Value::Quantity { unit: Unit::Flag, min: 0.0, max: 1.0, set: |drive, flag| drive.managed = flag != 0.0 },
    },
    Key {
        name: "drives.coalescing_entries",
        about: "NVMe feature 08h: the threshold",
        default: Some("1"),
        value: Value::Quantity {
            unit: Unit::Count,
            min: 1.0,
            max: 256.0,
            set: |drive, entries| drive.coalescing.entries = entries as u16,
        },
    },
    Key {
        name: "drives.coalescing_time",
        about: "NVMe feature 08h: the time, in steps of 100 us",
        default: Some("0 us"),
        value: Value::Text(|drive, setting| {
            let steps = Unit::Time.read(setting, 0.0, 25.5e6)? / 1e5;
            if steps.fract() != 0.0 {
                return Err(setting.wrong("is no multiple of 100 us", "100 us to 25.5 ms in steps of 100 us"));
            }
            drive.coalescing.time_100us = steps as u8;
            Ok(())
        }),
    },
];

impl DriveDraft {
    fn new(file: String, platform: &Platform, name: &str) -> Self {
        Self {
            file,
            platform: platform.clone(),
            name: name.to_owned(),
            model: None,
            queues: None,
            queue_entries: None,
            managed: true,
            coalescing: Coalescing { entries: 1, time_100us: 0 },
        }
    }

    fn set_model(&mut self, setting: &Setting) -> Result<(), InputError> {
        if self.platform.drive(&setting.text).is_none() {
            let kinds = self.platform.drives.iter().map(|(kind, _)| kind.as_str()).collect::<Vec<_>>().join(", ");
            return Err(setting.wrong(format!("is no kind of drive of platform {}", self.platform.name), kinds));
        }
        self.model = Some(setting.text.clone());
        Ok(())
    }

    /// The name of its model.
    fn model(&self) -> Result<&str, InputError> {
        let first = self.platform.drives.first().map(|(kind, _)| kind);
        self.model.as_ref().or(first).map(String::as_str).ok_or_else(|| {
            let why = format!("has no drives, which {} would be", self.name);
            InputError::value(&Place::file(&self.file), "platform", &self.platform.name, why, "one with [drive]")
        })
    }

    /// The constants of its model.
    fn constants(&self) -> Result<&Drive, InputError> {
        self.model().map(|model| self.platform.drive(model).expect("a model of the platform"))
    }

    /// On a machine with `cpus`.
    fn finish(&self, cpus: u32) -> Result<DrivePlan, InputError> {
        let constants = self.constants()?;
        let most = (constants.vectors.whole() - 1, constants.queue_entries.whole());
        let is_on = self.coalescing.entries > 1 || self.coalescing.time_100us > 0;
        Ok(DrivePlan {
            name: self.name.clone(),
            model: self.model()?.to_owned(),
            // Linux asks for no more than one a CPU.
            queues: self.queues.unwrap_or(most.0 as u32).min(most.0 as u32).min(cpus),
            queue_entries: self.queue_entries.unwrap_or(1024.min(most.1) as u32),
            managed: self.managed,
            coalescing: is_on.then_some(self.coalescing),
        })
    }
}

/// The keys of a drive in full; the platform's first drive bounds some.
pub(super) fn in_full(platform: &Platform) -> impl Iterator<Item = Described> {
    KEYS.iter().map(|key| key.in_full(&mut DriveDraft::new(String::new(), platform, "a drive")))
}

/// The settings of drives, in order.
#[derive(Default)]
pub(super) struct DriveSettings(Vec<DriveSetting>);

/// A setting of all drives, or of the drive of that name.
struct DriveSetting {
    drive: Option<String>,
    key: &'static Key<DriveDraft>,
    setting: Setting,
}

impl DriveSettings {
    /// Accepts `drives.queues` for all drives, or `drives./dev/nvme0n1.queues` for one.
    pub(super) fn apply(&mut self, setting: &Setting) -> bool {
        if !setting.key.starts_with("drives.") {
            return false;
        }
        let rest = setting.key.trim_start_matches("drives.");
        let (drive, name) = match rest.rsplit_once('.') {
            Some((drive, name)) => (Some(drive.to_owned()), name),
            None => (None, rest),
        };
        let Some(key) = KEYS.iter().find(|key| key.name.strip_prefix("drives.") == Some(name)) else { return false };
        self.0.push(DriveSetting { drive, key, setting: setting.clone() });
        true
    }

    /// The drive `name` of a machine with `cpus`; `file` is the job file that names it.
    ///
    /// # Errors
    /// A setting is wrong, or the platform has no drives.
    pub(super) fn drive(
        &self,
        file: &str,
        platform: &Platform,
        name: &str,
        cpus: u32,
    ) -> Result<DrivePlan, InputError> {
        let mut draft = DriveDraft::new(file.to_owned(), platform, name);
        for key in KEYS {
            // The last setting holds. A setting for this drive replaces a setting for all drives.
            let own = self.0.iter().filter(|setting| setting.key.name == key.name);
            let own = own.filter(|setting| setting.drive.as_deref().is_none_or(|drive| drive == name));
            if let Some(found) = own.max_by_key(|setting| setting.drive.is_some()) {
                key.set(&mut draft, &found.setting)?;
            }
        }
        draft.finish(cpus)
    }

    /// Refuses a setting for a drive that no job names.
    ///
    /// # Errors
    /// Such a setting exists.
    pub(super) fn check_names(&self, names: &[&str]) -> Result<(), InputError> {
        for DriveSetting { drive, setting, .. } in &self.0 {
            if let Some(drive) = drive
                && !names.contains(&drive.as_str())
            {
                let valid = names.join(", ");
                return Err(InputError::value(&setting.place, &setting.key, drive, "is no drive of a job", valid));
            }
        }
        Ok(())
    }
}
