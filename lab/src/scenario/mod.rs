//! From a scenario or job file and the command line to a [`Plan`].

mod carried;
pub mod common;
pub mod draft;
pub mod files;
pub mod key;
mod read;
#[cfg(test)]
mod tests;

pub use carried::{names, of_name as text};

use crate::document::Document;
use crate::fio::Variables;
use crate::input::{InputError, Place, Problem, STANDARD_INPUT, Warning};
use crate::kinds::{KINDS, storage};
use crate::plan::Plan;
use crate::platform::Platform;
use crate::setting::Setting;
use common::Common;
use draft::{Asked, Resolved};
use files::Files;
use key::Described;
pub(crate) use read::SEEDS_MAX;
use read::Scenario;
use std::collections::{BTreeMap, HashSet};
use std::path::Path;

/// The platform of a job file that is run without one.
pub(crate) const PLATFORM_DEFAULT: &str = "emr";
/// The number of runs of an experiment that names no seeds: enough for a confidence.
const SEEDS_DEFAULT: u64 = 3;
/// The default ramp: several times the latency of a full queue.
const RAMP_NS: u64 = 2_000_000;
/// The default measured span: some hundred thousand I/Os of a busy server.
const DURATION_NS: u64 = 10_000_000;

/// The name of an experiment: its file's, without the ending.
fn name(path: &str) -> String {
    match path {
        STANDARD_INPUT => "standard-input".to_owned(),
        path => Path::new(path).file_stem().map_or(path.to_owned(), |stem| stem.to_string_lossy().into()),
    }
}

/// Every key of every kind of experiment, with the constants of a platform. A key that several kinds have stands once.
pub fn all_keys(platform: &Platform) -> Vec<Described> {
    let mut common = Common::new(platform.clone(), Variables::default());
    let mut all: Vec<Described> = common::KEYS.iter().map(|key| key.in_full(&mut common)).collect();
    let document = Document::parse("list.toml", "workload = \"list.fio\"\n").expect("a table of one key");
    let drafts = KINDS.iter().filter_map(|kind| (kind.draft)(&document.root(), "").ok());
    for key in drafts.flat_map(|draft| draft.in_full(platform)) {
        if !all.iter().any(|known| known.key == key.key) {
            all.push(key);
        }
    }
    all.extend(platform.constants().into_iter().map(|(key, spec, constant)| {
        let about = spec.about.trim().replace(['[', ']', '`'], "");
        let about = about.replace("crate::work::", "work ").replace("Work::", "work ");
        let value = Some(spec.unit.format(constant.value));
        Described::quantity(key, about, value, spec.unit, [spec.min, spec.max])
    }));
    all
}

/// True if a file is read as a scenario, and not as a job file: by its ending, or else if one of its lines before the first
/// section sets the platform. Job files know no such option.
pub(crate) fn is_scenario(path: &str, bytes: &[u8]) -> bool {
    let ending = path.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
    match ending.as_deref() {
        Some("toml") => return true,
        Some("fio") => return false,
        // Standard input, a shell's `<(…)`, or somebody's own ending.
        _ => {}
    }
    let text = String::from_utf8_lossy(bytes);
    let lines = text.lines().map(str::trim).take_while(|line| !line.starts_with('['));
    lines.filter_map(|line| line.split_once('=')).any(|(key, _)| key.trim() == "platform")
}

/// The requests of the command line.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Request {
    /// A scenario file (`.toml`), a job file (`.fio`), a file of another ending, which is a scenario if it sets the platform; or the name
    /// of a scenario that the program carries. `-`: from standard input.
    pub input: String,
    /// Instead of the scenario's platform. Without either: `emr`.
    pub platform: Option<String>,
    /// Instead of the scenario's deliveries: names of variants.
    pub deliveries: Option<Vec<String>>,
    /// Seeds 1 to this, instead of the scenario's.
    pub seeds: Option<u32>,
    /// `key=value`, over everything else, in order.
    pub sets: Vec<String>,
    /// `VAR=VALUE`: what `${VAR}` stands for in job files, over the environment.
    pub defines: Vec<String>,
}

impl Request {
    /// Runs a scenario as it is written.
    pub fn of(input: impl Into<String>) -> Self {
        Self { input: input.into(), ..Self::default() }
    }

    /// Reads, checks and resolves.
    ///
    /// # Errors
    /// Whatever is wrong with the input, with its place.
    pub fn plan(&self) -> Result<Plan, InputError> {
        let (files, path) = Files::locate(&self.input)?;
        self.plan_from(files, path.clone(), files.input(&path)?)
    }

    /// As [`Self::plan`], of an input whose text is at hand. Job files that it names are those that the program carries.
    ///
    /// # Errors
    /// Whatever is wrong with the input, with its place.
    pub fn plan_of(&self, text: Vec<u8>) -> Result<Plan, InputError> {
        self.plan_from(Files::Carried, self.input.clone(), text)
    }

    pub(crate) fn plan_from(&self, files: Files, path: String, text: Vec<u8>) -> Result<Plan, InputError> {
        let Scenario { platform, mut draft, deliveries, seeds, settings } = self.scenario(files, &path, text)?;
        draft.read_files(files)?;
        let mut common = Common::new(Platform::load(&platform)?, Variables::of(&self.defines)?);
        let sets = self.sets.iter().map(|option| Setting::from_option(option)).collect::<Result<Vec<_>, _>>()?;
        let mut known: BTreeMap<String, String> =
            key::defaults(common::KEYS).chain(draft.defaults()).map(|(key, text)| (key.into(), text.into())).collect();
        for setting in settings.into_iter().chain(sets) {
            common.apply(&mut *draft, &setting)?;
            known.insert(setting.key, setting.text);
        }
        let whole_runtime = common.whole_runtime().cloned();
        let Resolved { cpus, work, spans, mut warnings } = draft.resolve(&common, self.deliveries().or(deliveries))?;
        let caution = common.platform.caution();
        warnings.extend(caution.map(|meaning| Warning {
            place: platform.place.clone(),
            key: "platform".into(),
            meaning,
        }));
        // The threads of a section say the same.
        let mut told = HashSet::new();
        warnings.retain(|warning| told.insert(warning.clone()));
        let plan = Plan {
            name: name(&path),
            source: Place::file(&path),
            platform: common.platform,
            cpus,
            work,
            seeds: self.seeds()?.or(seeds).unwrap_or_else(|| (1..=SEEDS_DEFAULT).collect()),
            spans,
            options: common.options,
            settings: known,
            warnings,
        };
        if let Some(setting) = whole_runtime.filter(|_| plan.storage().is_none()) {
            return Err(setting.wrong("is for jobs on drives", "a time such as 10 ms"));
        }
        plan.validate()?;
        Ok(plan)
    }

    fn deliveries(&self) -> Option<Asked> {
        let place = Place::option("--delivery");
        let names = self.deliveries.as_ref()?.iter().map(|name| Setting::new(place.clone(), "", name)).collect();
        Some(Asked { place, names })
    }

    fn seeds(&self) -> Result<Option<Vec<u64>>, InputError> {
        match self.seeds {
            Some(count) if count == 0 || u64::from(count) > SEEDS_MAX => {
                let valid = format!("a whole number from 1 to {SEEDS_MAX}");
                Err(InputError::value(&Place::option("--seeds"), "", count, "is out of bounds", valid))
            }
            count => Ok(count.map(|count| (1..=u64::from(count)).collect())),
        }
    }

    /// The scenario of the input, on the requested platform. A job file is treated as a scenario that sets nothing
    /// else.
    fn scenario(&self, files: Files, path: &str, bytes: Vec<u8>) -> Result<Scenario, InputError> {
        let asked = self.platform.as_ref().map(|name| Setting::new(Place::option("--platform"), "", name));
        if !is_scenario(path, &bytes) {
            return Ok(Scenario {
                platform: asked.unwrap_or_else(|| Setting::new(Place::option("--platform"), "", PLATFORM_DEFAULT)),
                draft: storage::keys::of_job_file(files, path, &bytes)?,
                deliveries: None,
                seeds: None,
                settings: Vec::new(),
            });
        }
        let text = String::from_utf8(bytes)
            .map_err(|_| InputError::new(&Place::file(path), "", Problem::Syntax("is no UTF-8 text".into())))?;
        let mut scenario = Scenario::parse(path, &text)?;
        match asked {
            Some(platform) => scenario.platform = platform,
            None if scenario.platform.text.ends_with(".toml") => {
                scenario.platform.text = Files::beside(&scenario.platform.text, path);
            }
            None => {}
        }
        Ok(scenario)
    }
}
