//! A scenario file: `scenarios/emr-4-drives.toml` says what each key means.

use super::draft::Asked;
use crate::document::{Document, Node, Table};
use crate::fio::{Entry, Section};
use crate::input::{InputError, Problem};
use crate::setting::Setting;

/// A scenario as it is written, nothing resolved.
pub(super) struct Scenario {
    pub(super) platform: Setting,
    pub(super) workload: Workload,
    pub(super) deliveries: Option<Asked>,
    pub(super) seeds: Option<Vec<u64>>,
    /// Everything that `--set` could give too, in order.
    pub(super) settings: Vec<Setting>,
}

/// What runs.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Workload {
    /// A job file, named beside the scenario.
    JobFile(Setting),
    /// `[[jobs]]`.
    Jobs(Vec<Section>),
    /// `[stream]`, whose keys are settings.
    Stream,
    /// `[rdma]`.
    Rdma,
    /// `[network]`, likewise.
    Network,
    /// `[threaded]`.
    Threaded,
}

/// The keys of a scenario file.
pub(super) const KEYS: &[&str] = &[
    "about",
    "platform",
    "workload",
    "jobs",
    "deliveries",
    "seeds",
    "cpus",
    "ramp",
    "duration",
    "job",
    "options",
    "drives",
    "stream",
    "rdma",
    "network",
    "threaded",
    "set",
];

/// The most seeds of one experiment.
pub(super) const SEEDS_MAX: u64 = 1000;

impl Scenario {
    /// Reads a scenario file.
    pub(super) fn parse(file: &str, text: &str) -> Result<Self, InputError> {
        let document = Document::parse(file, text)?;
        let root = document.root();
        root.only(KEYS)?;
        let mut settings = Vec::new();
        for (key, node) in root.iter() {
            match key {
                "cpus" | "ramp" | "duration" => settings.push(node.scalar("one value")?),
                "job" | "options" | "drives" | "stream" | "rdma" | "network" | "threaded" => {
                    flatten(node, key, &mut settings)?;
                }
                "set" => {
                    let first = settings.len();
                    flatten(node, key, &mut settings)?;
                    for setting in &mut settings[first..] {
                        setting.key = setting.key.trim_start_matches("set.").to_owned();
                    }
                }
                _ => {}
            }
        }
        Ok(Self {
            platform: root.scalar("platform", "the name of a platform, such as \"emr\"")?,
            workload: workload(&root)?,
            deliveries: root.get("deliveries").map(deliveries).transpose()?,
            seeds: root.get("seeds").map(seeds).transpose()?,
            settings,
        })
    }
}

/// Every value below `node`, in order.
fn flatten(node: Node<'_, '_>, key: &str, settings: &mut Vec<Setting>) -> Result<(), InputError> {
    match node {
        Node::Scalar(setting) if setting.key == key => Err(setting.wrong("is no table", format!("[{key}]"))),
        Node::Scalar(setting) => {
            settings.push(setting);
            Ok(())
        }
        Node::Array(setting, _) => Err(setting.wrong("is a list", "one value")),
        Node::Table(table) => table.iter().try_for_each(|(_, node)| flatten(node, key, settings)),
    }
}

/// The tables that are a workload by themselves.
const OWN: [(&str, Workload); 4] = [
    ("stream", Workload::Stream),
    ("rdma", Workload::Rdma),
    ("network", Workload::Network),
    ("threaded", Workload::Threaded),
];

fn workload(root: &Table<'_, '_>) -> Result<Workload, InputError> {
    let valid = "workload = \"jobs/four-drives.fio\", or [[jobs]] tables with fio's options, or one of [stream], [rdma], [network], [threaded]";
    let jobs = root.get("workload").or(root.get("jobs"));
    for (key, own) in OWN {
        match (&jobs, root.get(key)) {
            (None, Some(_)) => return Ok(own),
            (Some(_), Some(node)) => {
                let place = node.place();
                return Err(InputError::value(
                    &place,
                    key,
                    format!("[{key}]"),
                    "stands beside other work",
                    "one of them",
                ));
            }
            (_, None) => {}
        }
    }
    match (root.get("workload"), root.get("jobs")) {
        (Some(node), None) => Ok(Workload::JobFile(node.scalar(valid)?)),
        (None, Some(Node::Array(_, jobs))) => {
            Ok(Workload::Jobs(jobs.into_iter().enumerate().map(inline_job).collect::<Result<_, _>>()?))
        }
        (None, Some(node)) => {
            Err(InputError::value(&node.place(), "jobs", "[jobs]", "is no list of tables", "[[jobs]]"))
        }
        (Some(_), Some(node)) => {
            Err(InputError::value(&node.place(), "jobs", "[[jobs]]", "stands beside `workload`", "one of them"))
        }
        (None, None) => Err(InputError::new(&root.place, "workload", Problem::Missing { valid: valid.into() })),
    }
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
        section.entries.push(Entry { setting, bare: false });
    }
    Ok(section)
}

fn deliveries(node: Node<'_, '_>) -> Result<Asked, InputError> {
    let place = node.place();
    let names = match node {
        Node::Array(_, items) => {
            items.into_iter().map(|item| item.scalar("a delivery")).collect::<Result<Vec<_>, _>>()?
        }
        node => vec![node.scalar("a list of deliveries")?],
    };
    if names.is_empty() {
        return Err(InputError::value(&place, "deliveries", "[]", "is empty", "at least one"));
    }
    Ok(Asked { place, names })
}

/// A count of seeds, or a list of them.
fn seeds(node: Node<'_, '_>) -> Result<Vec<u64>, InputError> {
    let valid = format!("how many from 1 to {SEEDS_MAX}, or a list of whole numbers, each once");
    let place = node.place();
    let number = |setting: &Setting| {
        setting.text.parse::<u64>().map_err(|_| setting.wrong("is no whole number that a seed can be", valid.as_str()))
    };
    let seeds = match node {
        Node::Array(_, items) => {
            items.into_iter().map(|item| number(&item.scalar(&valid)?)).collect::<Result<Vec<_>, _>>()?
        }
        node => {
            let setting = node.scalar(&valid)?;
            match number(&setting)? {
                count @ 1..=SEEDS_MAX => (1..=count).collect(),
                _ => return Err(setting.wrong("is out of bounds", valid)),
            }
        }
    };
    let mut sorted = seeds.clone();
    sorted.sort_unstable();
    sorted.dedup();
    if seeds.is_empty() || sorted.len() != seeds.len() || seeds.len() as u64 > SEEDS_MAX {
        return Err(InputError::value(&place, "seeds", "[…]", "is empty, too long or names a seed twice", valid));
    }
    Ok(seeds)
}
