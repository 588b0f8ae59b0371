//! From a scenario or job file and the command line to a [`Plan`].

mod carried;
mod draft;
mod files;
mod read;
mod resolve;
#[cfg(test)]
mod tests;

pub use carried::names;

use crate::fio::{self, Section};
use crate::input::{InputError, Place, Problem};
use crate::plan::{Delivery, Plan};
use crate::platform::Platform;
use crate::setting::Setting;
use draft::Draft;
use files::Files;
use read::{SEEDS_MAX, Scenario, Workload};

/// What the command line asks for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Request {
    /// A scenario file (`.toml`), a job file (anything else), or the name of a scenario that the program carries.
    pub input: String,
    /// Instead of the scenario's platform. Without either: `emr`.
    pub platform: Option<String>,
    /// Instead of the scenario's deliveries.
    pub deliveries: Option<Vec<Delivery>>,
    /// Seeds 1 to this, instead of the scenario's.
    pub seeds: Option<u32>,
    /// `key=value`, over everything else, in order.
    pub sets: Vec<String>,
}

impl Request {
    /// Runs what a scenario says, as it says it.
    pub fn of(input: impl Into<String>) -> Self {
        Self { input: input.into(), ..Self::default() }
    }

    /// Reads, checks and resolves.
    ///
    /// # Errors
    /// Whatever is wrong with the input, with its place.
    pub fn plan(&self) -> Result<Plan, InputError> {
        let (files, path) = Files::locate(&self.input)?;
        let bytes = files.input(&path)?;
        let scenario = self.scenario(files, &path, bytes)?;
        let mut draft = Draft::new(Platform::load(&scenario.0.platform)?);
        let options = self.sets.iter().map(|option| Setting::from_option(option)).collect::<Result<Vec<_>, _>>()?;
        for setting in scenario.0.settings.iter().chain(&options) {
            draft.apply(setting)?;
        }
        let (jobs_file, sections) = scenario.1;
        let (jobs, warnings) = fio::jobs(&jobs_file, &sections, &draft.job)?;
        let name = std::path::Path::new(&path).file_stem().map_or(path.clone(), |stem| stem.to_string_lossy().into());
        let plan = resolve::Resolve {
            name,
            source: Place::file(&path),
            draft,
            jobs,
            warnings,
            deliveries: match &self.deliveries {
                Some(deliveries) => Some((Place::option("--delivery"), deliveries.clone())),
                None => scenario.0.deliveries,
            },
            seeds: self.seeds()?.or(scenario.0.seeds).unwrap_or_else(|| (1..=3).collect()),
        }
        .plan()?;
        plan.validate()?;
        Ok(plan)
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

    /// The scenario, and the sections of its job file with that file's name.
    fn scenario(
        &self,
        files: Files,
        path: &str,
        bytes: Vec<u8>,
    ) -> Result<(Scenario, (String, Vec<Section>)), InputError> {
        let platform = |name: &str| Setting::new(Place::option("--platform"), "", name);
        let is_scenario = path.ends_with(".toml");
        if !is_scenario {
            let scenario = Scenario {
                platform: platform(self.platform.as_deref().unwrap_or("emr")),
                workload: Workload::Inline(Vec::new()),
                deliveries: None,
                seeds: None,
                settings: Vec::new(),
            };
            return Ok((scenario, (path.to_owned(), job_sections(files, path, &bytes)?)));
        }
        let text = String::from_utf8(bytes)
            .map_err(|_| InputError::new(&Place::file(path), "", Problem::Syntax("is no UTF-8 text".into())))?;
        let mut scenario = Scenario::parse(path, &text)?;
        match &self.platform {
            Some(name) => scenario.platform = platform(name),
            None if scenario.platform.text.ends_with(".toml") => {
                scenario.platform.text = Files::beside(&scenario.platform.text, path);
            }
            None => {}
        }
        let sections = match &scenario.workload {
            Workload::Inline(sections) => (path.to_owned(), sections.clone()),
            Workload::File(setting) => {
                let file = Files::beside(&setting.text, path);
                let unread =
                    |error| setting.wrong(format!("cannot be read ({error})"), "a job file beside the scenario");
                let bytes = files.read(&file).map_err(unread)?;
                let sections = job_sections(files, &file, &bytes)?;
                (file, sections)
            }
        };
        Ok((scenario, sections))
    }
}

fn job_sections(files: Files, path: &str, bytes: &[u8]) -> Result<Vec<Section>, InputError> {
    fio::sections(path, bytes, &|name, from| {
        let path = Files::beside(name, from);
        let bytes = files.read(&path)?;
        Ok((path, bytes))
    })
}
