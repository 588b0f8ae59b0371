//! What a result needs to be made again to the byte: program, command line, inputs, settings.
//!
//! A manifest has no time of day, no host and no path of an output, so equal runs have equal manifests.

use crate::fio::Reporting;
use crate::inputs::{Given, Input, Read};
use crate::plan::Plan;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The version of the form of results. It grows when an older reader would misread a result.
pub const SCHEMA: u32 = 1;

/// Options that only name an output: `--json FILE`. A result does not depend on them.
const OUTPUTS: &[(&str, &[&str])] = &[
    ("run", &["--json", "--trace", "--fio-json", "--fio-logs"]),
    ("import", &["--json"]),
    ("check", &["--json", "--trace", "--jobs"]),
    ("boot", &["--json", "--table"]),
    ("sweep", &["--out", "--shard", "--jobs"]),
    ("", &["--json", "--html"]),
];

/// A page adds measurements to a run's JSON, so its being asked for is kept, under this name.
const PAGE: &str = "page.html";

/// The origin of a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The form of the result: `campanile run`, `campanile sweep`, …
    pub schema: String,
    /// Its version.
    pub schema_version: u32,
    /// The program's version.
    pub version: String,
    /// The commit that was built; absent if the source was in no git tree. `with changes`: the tree differed from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The command line behind `campanile`, without the outputs.
    pub arguments: Vec<String>,
    /// Every file that was read.
    pub inputs: Vec<Input>,
    /// Variables of the environment that job files asked for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub variables: BTreeMap<String, String>,
    /// Every setting by its key, defaults included; of other commands what they were asked to do.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, Value>,
    /// Jobs by their sections, with their options as given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<JobOptions>,
}

/// A job's options.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobOptions {
    /// The section.
    pub name: String,
    /// Main names and values, global ones included.
    pub options: BTreeMap<String, String>,
}

impl Manifest {
    /// The manifest of a command with this command line and these inputs.
    pub fn new(arguments: &[String], read: &Read) -> Self {
        let command = arguments.first().map_or("", String::as_str);
        Self {
            schema: format!("campanile {command}"),
            schema_version: SCHEMA,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: option_env!("CAMPANILE_COMMIT").map(str::to_owned),
            arguments: without_outputs(arguments),
            inputs: read.files.values().cloned().collect(),
            variables: read.variables.clone(),
            settings: BTreeMap::new(),
            jobs: Vec::new(),
        }
    }

    /// A manifest that was read as JSON.
    ///
    /// # Errors
    /// Keys are missing or of another type; the text says which.
    pub fn deserialize_from(value: &Value) -> Result<Self, String> {
        serde::Deserialize::deserialize(value).map_err(|error: serde_json::Error| format!("is damaged: {error}"))
    }

    /// With all settings and job options of the plans of several scenarios, under their names.
    pub fn with_plans(mut self, plans: &BTreeMap<String, Plan>) -> Self {
        let mut scenarios = serde_json::Map::new();
        for (name, plan) in plans {
            let of_plan = Self { settings: BTreeMap::new(), jobs: Vec::new(), ..self.clone() }.with_plan(plan);
            scenarios.insert(name.clone(), of_plan.settings.into_iter().collect());
            let named = |job: JobOptions| JobOptions { name: format!("{name}: {}", job.name), ..job };
            self.jobs.extend(of_plan.jobs.into_iter().map(named));
        }
        self.with("scenarios", scenarios)
    }

    /// With all settings and job options of a plan.
    pub fn with_plan(mut self, plan: &Plan) -> Self {
        self.settings = plan.settings.iter().map(|(key, text)| (key.clone(), text.as_str().into())).collect();
        let spans = serde_json::to_value(plan.spans).unwrap_or_default();
        let more = [
            ("platform", plan.platform.name.as_str().into()),
            ("cpus", plan.cpus.into()),
            ("deliveries", plan.work.names().into()),
            ("seeds", plan.seeds.clone().into()),
            ("spans", spans),
        ];
        self.settings.extend(more.map(|(key, value)| (key.to_owned(), value)));
        let mut seen = BTreeSet::new();
        let reporting = plan.storage().map_or(&[][..], |storage| &storage.reporting);
        self.jobs = reporting.iter().filter(|job| seen.insert(&job.name)).map(|job| options(job)).collect();
        self
    }

    /// With a setting.
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.settings.insert(key.to_owned(), value.into());
        self
    }

    /// The inputs as they were, as far as their texts are kept.
    pub fn given(&self) -> Given {
        let text = |input: &Input| Some((input.path.clone(), input.text.as_ref()?.as_bytes().into()));
        Given { files: self.inputs.iter().filter_map(text).collect(), variables: Some(self.variables.clone()) }
    }

    /// As a file: a line end behind it.
    pub fn text(&self) -> String {
        serde_json::to_string_pretty(self).expect("a manifest is plain data") + "\n"
    }
}

fn options(job: &Reporting) -> JobOptions {
    JobOptions { name: job.name.clone(), options: job.globals.iter().chain(&job.own).cloned().collect() }
}

/// A command line without the options that only name outputs.
fn without_outputs(arguments: &[String]) -> Vec<String> {
    let command = arguments.first().map_or("", String::as_str);
    let of_command = OUTPUTS.iter().find(|(known, _)| *known == command).or(OUTPUTS.last());
    let outputs = of_command.map_or(&[][..], |(_, options)| options);
    let mut kept = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let name = argument.split_once('=').map_or(argument.as_str(), |(name, _)| name);
        let is_page = command == "run" && name == "--html";
        if !outputs.contains(&name) && !is_page {
            kept.push(argument.clone());
            continue;
        }
        if name == argument {
            rest.next();
        }
        if is_page {
            kept.extend(["--html".to_owned(), PAGE.to_owned()]);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(line: &str) -> String {
        let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
        Manifest::new(&arguments, &Read::default()).arguments.join(" ")
    }

    #[test]
    fn outputs_are_no_part_of_a_command_line() {
        assert_eq!(kept("run x --json a.json --seeds 3"), "run x --seeds 3");
        assert_eq!(kept("run x --json=a.json --seeds 3 --trace t"), "run x --seeds 3");
        assert_eq!(kept("run x --html a.html --seeds 3"), "run x --html page.html --seeds 3");
        assert_eq!(kept("import --fio-json f --json o"), "import --fio-json f");
        assert_eq!(kept("reproduce H4 --html p --json o"), "reproduce H4");
        assert_eq!(kept("sweep s.toml --shard 1/4 --out d"), "sweep s.toml");
    }

    #[test]
    fn a_manifest_is_read_as_it_was_written() {
        let plan = crate::scenario::Request::of("emr-uring").plan().unwrap();
        let manifest = Manifest::new(&["run".into(), "emr-uring".into()], &Read::default()).with_plan(&plan);
        assert_eq!(serde_json::from_str::<Manifest>(&manifest.text()).unwrap(), manifest);
        assert_eq!(manifest.settings["platform"], "emr");
        assert_eq!(manifest.settings["options.rq_affinity"], "1", "defaults are settings too");
        assert!(manifest.jobs.iter().all(|job| job.options["ioengine"] == "io_uring"), "{:?}", manifest.jobs);
    }
}
