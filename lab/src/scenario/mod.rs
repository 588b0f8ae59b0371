//! From a scenario or job file and the command line to a [`Plan`].

mod accelerator;
mod carried;
mod draft;
mod files;
mod network;
mod rdma;
mod read;
mod storage;
#[cfg(test)]
mod tests;
mod threaded;

pub use carried::names;

use crate::fio::{self, Section};
use crate::input::{InputError, Place, Problem, Warning};
use crate::plan::{Experiment, Plan, Spans, Variant};
use crate::platform::Platform;
use crate::setting::Setting;
use accelerator::AcceleratorDraft;
use draft::{Asked, Draft, Kind};
use files::Files;
use network::NetworkDraft;
use rdma::RdmaDraft;
use read::{SEEDS_MAX, Scenario, Workload};
use std::path::Path;
use storage::StorageDraft;
use threaded::ThreadedDraft;

/// The platform of a job file that is run without one.
const PLATFORM_DEFAULT: &str = "emr";
/// The runs of an experiment that names no seeds: enough for a confidence.
const SEEDS_DEFAULT: u64 = 3;
/// Simulated before anything is counted, unless it is set: several times the latency of a full queue.
const RAMP_NS: u64 = 2_000_000;
/// Simulated and counted, unless it is set: some hundred thousand I/Os of a busy server.
const DURATION_NS: u64 = 10_000_000;

/// What a kind of experiment makes of its draft.
struct Resolved {
    cpus: u32,
    experiment: Experiment,
    variants: Vec<Variant>,
    spans: Spans,
    warnings: Vec<Warning>,
}

/// What the command line asks for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Request {
    /// A scenario file (`.toml`), a job file (anything else), or the name of a scenario that the program carries.
    pub input: String,
    /// Instead of the scenario's platform. Without either: `emr`.
    pub platform: Option<String>,
    /// Instead of the scenario's deliveries: names of variants.
    pub deliveries: Option<Vec<String>>,
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
        self.plan_from(files, path.clone(), files.input(&path)?)
    }

    /// As [`Self::plan`], of an input whose text is at hand. Job files that it names are those that the program carries.
    ///
    /// # Errors
    /// Whatever is wrong with the input, with its place.
    pub fn plan_of(&self, text: Vec<u8>) -> Result<Plan, InputError> {
        self.plan_from(Files::Carried, self.input.clone(), text)
    }

    fn plan_from(&self, files: Files, path: String, text: Vec<u8>) -> Result<Plan, InputError> {
        let scenario = self.scenario(files, &path, text)?;
        let kind = match scenario.workload {
            Workload::Stream => Kind::Accelerator(AcceleratorDraft::new()),
            Workload::Network => Kind::Network(NetworkDraft::new()),
            Workload::Threaded => Kind::Threaded(ThreadedDraft::new()),
            Workload::Jobs(sections) => Kind::Storage(StorageDraft::new(path.clone(), sections)),
            Workload::Rdma => Kind::Rdma(RdmaDraft::new()),
            Workload::JobFile(setting) => {
                let file = Files::beside(&setting.text, &setting.place.file);
                let unread = |error| setting.wrong(format!("cannot be read ({error})"), "the path of a job file");
                let bytes = files.read(&file).map_err(unread)?;
                let sections = job_sections(files, &file, &bytes)?;
                Kind::Storage(StorageDraft::new(file, sections))
            }
        };
        let mut draft = Draft::new(Platform::load(&scenario.platform)?, kind);
        scenario.settings.iter().try_for_each(|setting| draft.apply(setting))?;
        for option in &self.sets {
            draft.apply(&Setting::from_option(option)?)?;
        }
        let asked = self.deliveries().or(scenario.deliveries);
        let Resolved { cpus, experiment, variants, spans, warnings } = match &draft.kind {
            Kind::Storage(storage) => storage.resolve(&draft, asked)?,
            Kind::Accelerator(accelerator) => accelerator.resolve(&draft, asked)?,
            Kind::Rdma(rdma) => rdma.resolve(&draft, asked)?,
            Kind::Network(network) => network.resolve(&draft, asked)?,
            Kind::Threaded(threaded) => threaded.resolve(&draft, asked)?,
        };
        let plan = Plan {
            name: Path::new(&path).file_stem().map_or(path.clone(), |stem| stem.to_string_lossy().into()),
            source: Place::file(&path),
            platform: draft.platform,
            cpus,
            experiment,
            variants,
            seeds: self.seeds()?.or(scenario.seeds).unwrap_or_else(|| (1..=SEEDS_DEFAULT).collect()),
            spans,
            options: draft.options,
            warnings,
        };
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

    /// The scenario of the input, on the platform that is asked for. A job file is one that says nothing else.
    fn scenario(&self, files: Files, path: &str, bytes: Vec<u8>) -> Result<Scenario, InputError> {
        let asked = self.platform.as_ref().map(|name| Setting::new(Place::option("--platform"), "", name));
        if !path.ends_with(".toml") {
            return Ok(Scenario {
                platform: asked.unwrap_or_else(|| Setting::new(Place::option("--platform"), "", PLATFORM_DEFAULT)),
                workload: Workload::Jobs(job_sections(files, path, &bytes)?),
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

fn job_sections(files: Files, path: &str, bytes: &[u8]) -> Result<Vec<Section>, InputError> {
    fio::sections(path, bytes, &|name, from| {
        let path = Files::beside(name, from);
        let bytes = files.read(&path)?;
        Ok((path, bytes))
    })
}
