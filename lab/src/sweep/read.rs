//! A sweep's file. docs/sweep.md explains each key.

use crate::document::{Document, Node, Table};
use crate::house::House;
use crate::input::{InputError, Place, Problem, read_file};
use crate::inputs;
use crate::platform::EMBEDDED;
use crate::scenario::files::Files;
use crate::setting::Setting;
use import::kind::Kind;
use std::collections::{BTreeMap, BTreeSet};

/// The form of sweep files. A file without `schema` has form 1.
const SCHEMA: u64 = 1;
/// The keys of a sweep's file.
const KEYS: [&str; 10] =
    ["schema", "about", "scenario", "platforms", "deliveries", "seeds", "define", "set", "points", "grid"];
/// Most seeds of a sweep.
const SEEDS_MAX: u64 = 100_000;
/// Most values of an axis.
const VALUES_MAX: usize = 100_000;

/// A sweep as its file has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    /// The file, for errors.
    pub place: Place,
    /// One line about it.
    pub about: String,
    /// Scenarios or job files: as [`crate::scenario::Request::input`].
    pub scenarios: Vec<String>,
    /// Platforms; none: the scenario's own.
    pub platforms: Vec<Option<String>>,
    /// The variants that are run; none: the scenario's own.
    pub deliveries: Option<Vec<String>>,
    /// Seeds, each once.
    pub seeds: Vec<u64>,
    /// `VAR=VALUE`, as with `--define`.
    pub defines: Vec<String>,
    /// Settings of every point: `key=value`, as with `--set`.
    pub sets: Vec<String>,
    /// Points that are listed; each is a list of keys and values. At least one, which may be empty.
    pub points: Vec<Vec<(String, String)>>,
    /// The axes of the grid, in the order of the file.
    pub grid: Vec<Axis>,
    /// Where each key first stands that points set, for errors.
    pub places: BTreeMap<String, Place>,
}

/// A key with its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// The dotted key.
    pub key: String,
    /// The values in order, as text.
    pub values: Vec<String>,
}

impl Definition {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// It cannot be read, or is wrong: the place says where.
    pub fn read(path: &str) -> Result<Self, InputError> {
        let place = Place::file(path);
        let io = |why: String| InputError::new(&place, "", Problem::Io(format!("cannot be read: {why}")));
        if !inputs::is_there(path)
            && let Ok((Files::Carried, _)) = Files::locate(path)
        {
            let why = format!("is a scenario, and no sweep; valid: a file with scenario = \"{path}\" and [grid]");
            return Err(InputError::new(&place, "", Problem::Syntax(why)));
        }
        let bytes = read_file(path).map_err(io)?;
        let text = String::from_utf8(bytes).map_err(|_| io("it is no UTF-8 text".into()))?;
        Self::parse(path, &text)
    }

    /// Reads a file's text; errors name `file`.
    ///
    /// # Errors
    /// The text is wrong.
    pub fn parse(file: &str, text: &str) -> Result<Self, InputError> {
        let document = Document::parse(file, text).map_err(|error| of_job_file(file, text).unwrap_or(error))?;
        let root = document.root();
        House::Sweep.check(&root)?;
        root.only(&KEYS)?;
        root.known_schema(SCHEMA, "sweeps")?;
        let valid = "the name of a scenario, or the path of a scenario.toml or job.fio, or a list of them";
        let scenarios = match root.get("scenario") {
            Some(node) => words(node, "scenario", valid)?,
            None => return Err(InputError::new(&root.place, "scenario", Problem::Missing { valid: valid.into() })),
        };
        let platforms = match root.get("platforms") {
            Some(node) => words(node, "platforms", "a list of platforms")?
                .into_iter()
                .map(|name| Some(platform(name, file)))
                .collect(),
            None => vec![None],
        };
        let mut points = points(&root)?;
        if let Some(twice) = (1..points.len()).find(|&at| points[..at].contains(&points[at])) {
            let valid = "points that differ";
            let place = Place::file(file);
            return Err(InputError::value(
                &place,
                "points",
                format!("point {}", twice + 1),
                "is the same as one before",
                valid,
            ));
        }
        if points.is_empty() {
            points.push(Vec::new());
        }
        let mut places = BTreeMap::new();
        for name in ["set", "points", "grid"] {
            root.get(name).into_iter().for_each(|node| add_places(node, &format!("{name}."), &mut places));
        }
        let definition = Self {
            places,
            place: Place::file(file),
            about: root
                .get("about")
                .map(|node| node.scalar("one line"))
                .transpose()?
                .map_or_else(String::new, |s| s.text),
            scenarios: scenarios.into_iter().map(|name| beside(name, file)).collect(),
            platforms,
            deliveries: root
                .get("deliveries")
                .map(|node| words(node, "deliveries", "a list of deliveries"))
                .transpose()?,
            seeds: root.get("seeds").map_or_else(|| Ok(vec![1]), seeds)?,
            defines: settings(&root, "define")?.into_iter().map(|(key, text)| format!("{key}={text}")).collect(),
            sets: settings(&root, "set")?.into_iter().map(|(key, text)| format!("{key}={text}")).collect(),
            points,
            grid: root.get("grid").map_or_else(|| Ok(Vec::new()), grid)?,
        };
        definition.keys_once()?;
        Ok(definition)
    }

    /// Refuses two keys that make one setting, as the one would hide the other: in a table, or in the grid and elsewhere.
    fn keys_once(&self) -> Result<(), InputError> {
        let set: Vec<&str> = self.sets.iter().filter_map(|set| Some(set.split_once('=')?.0)).collect();
        let points = self.points.iter().map(|point| point.iter().map(|(key, _)| key.as_str()).collect());
        let grid: Vec<&str> = self.grid.iter().map(|axis| axis.key.as_str()).collect();
        let tables: Vec<Vec<&str>> = [set].into_iter().chain(points).collect();
        for table in tables.iter().chain([&grid]) {
            let mut known = BTreeSet::new();
            if let Some(key) = table.iter().find(|key| !known.insert(without_unit(key))) {
                let why = "is set by another key too";
                return Err(InputError::value(&self.place, *key, without_unit(key), why, "one of them"));
            }
        }
        let others: BTreeSet<&str> = tables.iter().flatten().map(|key| without_unit(key)).collect();
        match grid.iter().find(|key| others.contains(without_unit(key))) {
            Some(key) => {
                let why = "sets what [set] or a point sets too";
                Err(InputError::value(&self.place, *key, "grid", why, "one of them"))
            }
            None => Ok(()),
        }
    }

    /// Names of the variables in its values: `${NAME}`.
    pub fn variables(&self) -> Vec<String> {
        let values = self.points.iter().flatten().map(|(_, text)| text.as_str());
        let values = values.chain(self.grid.iter().flat_map(|axis| axis.values.iter().map(String::as_str)));
        let values = values.chain(self.sets.iter().map(String::as_str));
        let names = values.flat_map(|text| text.split("${").skip(1)).filter_map(|rest| Some(rest.split_once('}')?.0));
        names.map(str::to_owned).collect::<BTreeSet<_>>().into_iter().collect()
    }
}

/// A key that its unit may end: `duration_us` is `duration`.
fn without_unit(key: &str) -> &str {
    match key.rsplit_once('_') {
        Some((name, "ns" | "us" | "ms" | "s")) => name,
        _ => key,
    }
}

/// A file that is named in `file`: beside it. The name of a carried scenario stays.
fn beside(name: String, file: &str) -> String {
    let is_name = !name.contains(['/', '.']) || name == "-";
    if is_name { name } else { Files::beside(&name, file) }
}

fn platform(name: String, file: &str) -> String {
    if EMBEDDED.iter().any(|(known, ..)| *known == name) || !name.ends_with(".toml") {
        name
    } else {
        beside(name, file)
    }
}

/// The error of a job file in place of a sweep's.
fn of_job_file(file: &str, text: &str) -> Option<InputError> {
    let is_sweep = text.lines().any(|line| line.trim_start().starts_with("scenario"));
    let is_job = !is_sweep && Kind::of(text.as_bytes()) == Some(Kind::Job);
    let why = format!("is {}, and no sweep; valid: a file with scenario = \"{file}\" and [grid]", Kind::Job);
    is_job.then(|| InputError::new(&Place::file(file), "", Problem::Syntax(why)))
}

/// One word or a list of them, each once.
fn words(node: Node<'_, '_>, key: &str, valid: &str) -> Result<Vec<String>, InputError> {
    let place = node.place();
    let words: Vec<String> = match node {
        Node::Array(_, items) => {
            items.into_iter().map(|item| Ok(item.scalar(valid)?.text)).collect::<Result<_, InputError>>()?
        }
        node => vec![node.scalar(valid)?.text],
    };
    if words.is_empty() {
        return Err(InputError::value(&place, key, "[]", "is empty", valid));
    }
    let mut known = BTreeSet::new();
    if let Some(twice) = words.iter().find(|word| !known.insert(word.as_str())) {
        return Err(InputError::value(&place, key, twice, "stands there twice", valid));
    }
    Ok(words)
}

/// A count of seeds, or a list of them.
fn seeds(node: Node<'_, '_>) -> Result<Vec<u64>, InputError> {
    let valid = format!("how many from 1 to {SEEDS_MAX}, or a list of whole numbers, each once");
    let number = |text: &str| text.parse::<u64>();
    if let Node::Scalar(setting) = &node {
        return match number(&setting.text) {
            Ok(count @ 1..=SEEDS_MAX) => Ok((1..=count).collect()),
            _ => Err(setting.wrong("is no number of seeds", valid)),
        };
    }
    let place = node.place();
    let words = words(node, "seeds", &valid)?;
    words
        .iter()
        .map(|word| number(word).map_err(|_| InputError::value(&place, "seeds", word, "is no seed", valid.as_str())))
        .collect()
}

/// The settings of a table, nested tables as dotted keys.
fn settings(root: &Table<'_, '_>, name: &str) -> Result<Vec<(String, String)>, InputError> {
    let mut found = Vec::new();
    match root.get(name) {
        None => {}
        Some(Node::Table(table)) => flatten(&table, &format!("{name}."), &mut found)?,
        Some(node) => return Err(node.scalar("a table")?.wrong("is no table", format!("[{name}]"))),
    }
    Ok(found)
}

fn flatten(table: &Table<'_, '_>, prefix: &str, found: &mut Vec<(String, String)>) -> Result<(), InputError> {
    for (_, node) in table.iter() {
        match node {
            Node::Table(table) => flatten(&table, prefix, found)?,
            node => {
                let Setting { key, text, .. } = node.scalar("one value; lists stand in [grid]")?;
                found.push((key.strip_prefix(prefix).unwrap_or(&key).to_owned(), text));
            }
        }
    }
    Ok(())
}

/// Adds where each key below a node stands, nested tables as dotted keys.
fn add_places(node: Node<'_, '_>, prefix: &str, places: &mut BTreeMap<String, Place>) {
    match node {
        Node::Array(_, items) => items.into_iter().for_each(|item| add_places(item, prefix, places)),
        Node::Table(table) => {
            for (name, node) in table.iter() {
                let key = table.key(name);
                let key = key.strip_prefix(prefix).unwrap_or(&key).to_owned();
                places.entry(key).or_insert_with(|| node.place());
                add_places(node, prefix, places);
            }
        }
        _ => {}
    }
}

/// `[[points]]`.
fn points(root: &Table<'_, '_>) -> Result<Vec<Vec<(String, String)>>, InputError> {
    let valid = "[[points]], a table of settings each";
    match root.get("points") {
        None => Ok(Vec::new()),
        Some(Node::Array(setting, items)) => items
            .into_iter()
            .map(|item| match item {
                Node::Table(table) => {
                    let mut found = Vec::new();
                    flatten(&table, "points.", &mut found)?;
                    Ok(found)
                }
                _ => Err(setting.wrong("is no list of tables", valid)),
            })
            .collect(),
        Some(node) => Err(InputError::value(&node.place(), "points", "…", "is no list of tables", valid)),
    }
}

/// `[grid]`: its axes in the order of the file.
fn grid(node: Node<'_, '_>) -> Result<Vec<Axis>, InputError> {
    let Node::Table(table) = node else {
        return Err(InputError::value(
            &node.place(),
            "grid",
            "…",
            "is no table",
            "[grid], a list of values for each key",
        ));
    };
    let mut axes = Vec::new();
    nested_axes(&table, &mut axes)?;
    Ok(axes)
}

fn nested_axes(table: &Table<'_, '_>, axes: &mut Vec<Axis>) -> Result<(), InputError> {
    for (name, node) in table.iter() {
        let dotted = table.key(name);
        let key = dotted.strip_prefix("grid.").unwrap_or(&dotted).to_owned();
        match node {
            Node::Table(range) if range.get("from").is_some() => {
                let values = self::range(&range, &key)?;
                axes.push(Axis { key, values });
            }
            Node::Table(table) => nested_axes(&table, axes)?,
            node => {
                let values = words(node, &key, "one value or a list of values, each once")?;
                axes.push(Axis { key, values });
            }
        }
    }
    Ok(())
}

/// Where the number ends that a text begins with, its exponent included.
fn number_end(text: &str) -> usize {
    let is_number = |c: char| matches!(c, '0'..='9' | '+' | '-' | '.' | '_');
    let digits = text.find(|c| !is_number(c)).unwrap_or(text.len());
    let exponent = text[digits..].strip_prefix(['e', 'E']).filter(|rest| rest.starts_with(is_number));
    exponent.map_or(digits, |rest| digits + 1 + rest.find(|c| !is_number(c)).unwrap_or(rest.len()))
}

/// `{ from = 1, to = 64, times = 2 }` or `{ from = "10 ns", to = "50 ns", step = "10 ns" }`.
fn range(table: &Table<'_, '_>, key: &str) -> Result<Vec<String>, InputError> {
    table.only(&["from", "to", "step", "times"])?;
    let number = |name: &str| -> Result<(f64, String), InputError> {
        let setting = table.scalar(name, "a number, with its unit if the key has one")?;
        let (digits, unit) = setting.text.split_at(number_end(&setting.text));
        let value = digits.trim().replace('_', "").parse::<f64>().ok().filter(|value| value.is_finite());
        let value = value.ok_or_else(|| setting.wrong("is no number", "a number, with its unit if the key has one"))?;
        Ok((value, unit.trim().to_owned()))
    };
    let wrong = |why: &str, valid: &str| Err(InputError::value(&table.place, key, "{ from, to, … }", why, valid));
    let ((from, unit), (to, unit_to)) = (number("from")?, number("to")?);
    let next: Box<dyn Fn(u32) -> f64> = match (table.get("step"), table.get("times")) {
        (Some(_), None) => {
            let (step, unit_step) = number("step")?;
            if step <= 0.0 || unit_step != unit {
                return wrong("has no step above zero in the unit of `from`", "step = 2, with the same unit");
            }
            Box::new(move |index| from + f64::from(index) * step)
        }
        (None, Some(_)) => {
            let (times, unit_times) = number("times")?;
            if times <= 1.0 || from <= 0.0 || !unit_times.is_empty() {
                return wrong("does not grow", "times above 1 and from above 0");
            }
            Box::new(move |index| from * times.powi(index as i32))
        }
        _ => return wrong("has neither step nor times, or both", "one of them"),
    };
    if unit != unit_to || to < from {
        return wrong("ends before it begins, or in another unit", "to at least from, in the same unit");
    }
    let mut values = Vec::new();
    // Half of the last digit that is kept, so that 0.1 + 0.1 + 0.1 reaches 0.3.
    let end = to * (1.0 + 1e-12) + 1e-12;
    while values.len() <= VALUES_MAX && next(values.len() as u32) <= end {
        let value = (next(values.len() as u32) * 1e9).round() / 1e9;
        // fio reads `1m`, and of `1 m` and `1.5m` the 1 alone.
        let is_fio = key.starts_with("job.");
        if is_fio && !unit.is_empty() && value.fract() != 0.0 {
            return wrong("has values with a part of a unit, which fio does not read", "whole numbers of the unit");
        }
        let blank = if is_fio || unit.is_empty() { "" } else { " " };
        values.push(format!("{value}{blank}{unit}"));
    }
    if values.len() > VALUES_MAX {
        return wrong("has too many values", &format!("at most {VALUES_MAX}"));
    }
    Ok(values)
}
