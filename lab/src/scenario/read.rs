//! A scenario file. `scenarios/emr-4-drives.toml` explains each key.

use super::draft::{Asked, Draft};
use crate::document::{Document, Node, Table};
use crate::house::House;
use crate::input::{InputError, Problem};
use crate::kinds::KINDS;
use crate::setting::Setting;

/// A scenario as it is written, with no name resolved.
pub(super) struct Scenario {
    pub(super) platform: Setting,
    /// The experiment.
    pub(super) draft: Box<dyn Draft>,
    pub(super) deliveries: Option<Asked>,
    pub(super) seeds: Option<Vec<u64>>,
    /// Everything that `--set` could give too, in order.
    pub(super) settings: Vec<Setting>,
}

/// The keys of a scenario file.
pub(super) fn keys() -> Vec<&'static str> {
    let work = KINDS.iter().flat_map(|kind| kind.form.work);
    let tables = tables();
    let common = ["deliveries", "seeds", "cpus", "ramp", "duration"];
    ["about", "platform"].iter().chain(work).chain(&common).chain(&tables).chain(&["set"]).copied().collect()
}

/// The tables of settings, of all kinds.
fn tables() -> Vec<&'static str> {
    KINDS.iter().flat_map(|kind| kind.form.tables).copied().collect()
}

/// The most seeds of one experiment.
pub(crate) const SEEDS_MAX: u64 = 1000;

impl Scenario {
    /// Reads a scenario file.
    pub(super) fn parse(file: &str, text: &str) -> Result<Self, InputError> {
        let document = Document::parse(file, text)?;
        let root = document.root();
        House::Scenario.check(&root)?;
        root.only(&keys())?;
        let tables = tables();
        let mut settings = Vec::new();
        for (key, node) in root.iter() {
            match key {
                "cpus" | "ramp" | "duration" => settings.push(node.scalar("one value")?),
                _ if tables.contains(&key) => flatten(node, key, &mut settings)?,
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
            draft: draft(&root)?,
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

/// The draft of the kind that the file asks for: by a key of its own, or by its table.
fn draft(root: &Table<'_, '_>) -> Result<Box<dyn Draft>, InputError> {
    let by_key = KINDS.iter().find(|kind| kind.form.work.iter().any(|key| root.get(key).is_some()));
    let by_table = || KINDS.iter().filter_map(|kind| Some((kind, kind.form.own_table()?)));
    let valid = valid_work(by_table().map(|(_, table)| table));
    for (kind, table) in by_table() {
        match (by_key, root.get(table)) {
            (None, Some(_)) => return (kind.draft)(root, &valid),
            (Some(_), Some(node)) => {
                let (place, value) = (node.place(), format!("[{table}]"));
                return Err(InputError::value(&place, table, value, "stands beside other work", "one of them"));
            }
            (_, None) => {}
        }
    }
    match by_key {
        Some(kind) => (kind.draft)(root, &valid),
        None => Err(InputError::new(&root.place, "workload", Problem::Missing { valid })),
    }
}

/// The keys of a file, for an error message.
fn valid_work(tables: impl Iterator<Item = &'static str>) -> String {
    let by_key = KINDS.iter().map(|kind| kind.form.work_valid).filter(|valid| !valid.is_empty());
    let tables: Vec<String> = tables.map(|table| format!("[{table}]")).collect();
    by_key.map(str::to_owned).chain([format!("one of {}", tables.join(", "))]).collect::<Vec<_>>().join(", or ")
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
