//! The results of a whole sweep in tidy form: a row for each run and quantity.

use super::columns;
use super::page;
use super::store::{Content, Header, Record, is_same_sweep};
use super::{Grid, Setup, Shard, Sweep};
use crate::atomic_file::AtomicFile;
use crate::input::{InputError, Place, Problem, UNKNOWN_NAME};
use crate::manifest::Manifest;
use crate::outcome::{Span, Steadiness, Verdict};
use crate::report::figure::{are, counted};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The results of every run of a sweep.
#[derive(Debug)]
pub struct Results {
    /// The sweep.
    pub sweep: Sweep,
    /// One a run, in the order of their numbers.
    pub records: Vec<Record>,
}

/// Files that were written.
#[derive(Debug)]
pub struct Written {
    /// Their paths.
    pub files: Vec<PathBuf>,
    /// Rows of the table.
    pub rows: u64,
    /// Runs that were not possible.
    pub errors: u64,
    /// Points that are not steady, and those that were judged.
    pub unsteady: [u64; 2],
    /// Why the first run was not possible, if none was.
    pub none_ran: Option<String>,
}

/// # Errors
/// Runs are missing, and the shards that were given tell which hold them.
fn complete(sweep: &Sweep, records: &BTreeMap<u64, Record>, shards: &BTreeSet<Shard>) -> Result<(), InputError> {
    let Some(count) = shards.first().map(|shard| shard.count) else { return Ok(()) };
    if count == 1 || shards.iter().any(|shard| shard.count != count) {
        return Ok(());
    }
    let mut lacks: BTreeMap<u64, u64> = BTreeMap::new();
    for run in (0..sweep.grid.runs()).filter(|run| !records.contains_key(run)) {
        *lacks.entry(run % count + 1).or_default() += 1;
    }
    if lacks.is_empty() {
        return Ok(());
    }
    let one = |(&number, &runs): (&u64, &u64)| match shards.contains(&Shard { number, count }) {
        true => format!("shard {number}/{count} lacks {}", counted(runs, "run")),
        false => format!("shard {number}/{count} is missing"),
    };
    let mut named: Vec<String> = lacks.iter().take(NAMED_MAX).map(one).collect();
    if lacks.len() > NAMED_MAX {
        named.push(format!("and {} more", lacks.len() - NAMED_MAX));
    }
    let why = format!("{}; valid: all shards of a sweep, each done", named.join(", "));
    Err(InputError::new(&sweep.grid.definition.place, "", Problem::Syntax(why)))
}

/// Shards that an error names.
const NAMED_MAX: usize = 10;

impl Results {
    /// Takes the runs of a sweep together.
    ///
    /// # Errors
    /// Some are missing; the text says how many, and the first.
    pub fn new(sweep: Sweep, records: BTreeMap<u64, Record>) -> Result<Self, InputError> {
        let runs = sweep.grid.runs();
        let missing = runs - records.range(..runs).count() as u64;
        if missing > 0 {
            let first = (0..runs).find(|run| !records.contains_key(run)).unwrap_or_default();
            let (of, are) = (counted(runs, "run"), are(missing));
            let why =
                format!("{missing} of {of} {are} missing, the first is run {first}; valid: all shards of a sweep");
            return Err(InputError::new(&sweep.grid.definition.place, "", Problem::Syntax(why)));
        }
        Ok(Self { sweep, records: records.into_values().take(runs as usize).collect() })
    }

    /// Merges files of finished runs, and folders of them.
    ///
    /// # Errors
    /// A file is damaged or of another sweep, two files disagree about a run, or runs are missing.
    pub fn merge(paths: &[PathBuf]) -> Result<Self, InputError> {
        let mut contents = Vec::new();
        for path in shard_files(paths)? {
            contents.push((Place::file(path.display().to_string()), Content::read(&path)?));
        }
        contents.sort_by_key(|(_, content)| content.header.shard);
        let shards: BTreeSet<Shard> = contents.iter().map(|(_, content)| content.header.shard).collect();
        let Some((_, first)) = contents.first() else {
            let valid = "files shard-i-of-n.runs, or folders with them";
            return Err(InputError::new(&Place::option("merge"), "", Problem::Missing { valid: valid.into() }));
        };
        let header = first.header.clone();
        let mut records: BTreeMap<u64, Record> = BTreeMap::new();
        for (place, content) in contents {
            is_same_sweep(&place, &content.header, &header)?;
            for (run, record) in content.records {
                if records.get(&run).is_some_and(|known| *known != record) {
                    let why = format!("run {run} has other values than in another shard");
                    return Err(InputError::new(&place, "", Problem::Syntax(why)));
                }
                records.insert(run, record);
            }
        }
        let manifest = &header.manifest;
        let path = manifest.arguments.get(1).cloned().unwrap_or_default();
        let mut sweep = Sweep::read(&path, &manifest.arguments, manifest.given())?;
        let ours = Header::new(&sweep, header.shard);
        is_same_sweep(&Place::option("merge"), &header, &ours)?;
        sweep.manifest = header.manifest;
        complete(&sweep, &records, &shards)?;
        Self::new(sweep, records)
    }

    /// Writes all files into `folder`, each complete or not at all.
    ///
    /// # Errors
    /// One cannot be written.
    pub fn write(&self, folder: &Path) -> Result<Written, InputError> {
        std::fs::create_dir_all(folder).map_err(|error| {
            let place = Place::file(folder.display().to_string());
            InputError::new(&place, "", Problem::Io(format!("cannot be written: {error}")))
        })?;
        let manifest = self.sweep.manifest.text();
        let parquet = columns::parquet(self).map_err(|error| {
            InputError::new(&Place::file("results.parquet"), "", Problem::Io(format!("cannot be written: {error}")))
        })?;
        let files = [
            ("results.csv", self.csv().into_bytes()),
            ("results.parquet", parquet),
            ("page.html", page::page(self).into_bytes()),
            ("manifest.json", manifest.into_bytes()),
        ];
        let mut written = Written {
            files: Vec::new(),
            rows: self.rows(),
            errors: self.errors(),
            unsteady: self.unsteady(),
            none_ran: self.none_ran(),
        };
        for (name, bytes) in files {
            let path = folder.join(name);
            AtomicFile::prepare("--out", &path)?.commit(&bytes)?;
            written.files.push(path);
        }
        Ok(written)
    }

    /// Rows of the table: one a run and quantity, one for a run that was not possible.
    pub fn rows(&self) -> u64 {
        self.records.iter().map(|record| record.values.len().max(1) as u64).sum()
    }

    fn errors(&self) -> u64 {
        self.records.iter().filter(|record| record.error.is_some()).count() as u64
    }

    /// The verdict on each point's delivery, over all its seeds and phases, in the order of the runs; none where nothing can be
    /// judged.
    pub(super) fn verdicts(&self) -> Vec<Option<Verdict>> {
        self.records.chunks(self.grid().definition.seeds.len()).map(verdict).collect()
    }

    /// Points with a delivery that is not steady, and points of which one was judged.
    pub(super) fn unsteady(&self) -> [u64; 2] {
        let seeds = self.grid().definition.seeds.len() as u64;
        let mut by_point: BTreeMap<u64, bool> = BTreeMap::new();
        for (at, verdict) in self.verdicts().into_iter().enumerate() {
            if let Some(verdict) = verdict {
                *by_point.entry(self.grid().point_of(at as u64 * seeds)).or_default() |= verdict != Verdict::Steady;
            }
        }
        [by_point.values().filter(|is_unsteady| **is_unsteady).count() as u64, by_point.len() as u64]
    }

    fn none_ran(&self) -> Option<String> {
        let errors: Vec<&str> = self.records.iter().map(|record| record.error.as_deref()).collect::<Option<_>>()?;
        // The one that says most, wherever it stands: not that of a scenario that lacks a key.
        let at = errors.iter().position(|error| !error.contains(UNKNOWN_NAME)).unwrap_or(0);
        let is_one = self.grid().definition.scenarios.len() == 1 && self.grid().definition.platforms.len() == 1;
        let whose = if is_one {
            String::new()
        } else {
            format!("{}: ", self.grid().whose(self.grid().point_of(self.records.get(at)?.run)))
        };
        Some(format!("{whose}{}", errors[at]))
    }

    /// The table as CSV (RFC 4180, with line feeds).
    pub fn csv(&self) -> String {
        let axes = columns::axes(&self.sweep.grid);
        let mut header: Vec<String> =
            ["run", "point", "scenario", "platform", "delivery", "seed"].map(String::from).into();
        for axis in &axes {
            header.push(axis.key.clone());
            header.extend(axis.number_name());
        }
        header.extend(["quantity", "unit", "value", "error", "steadiness"].map(String::from));
        let verdicts = self.verdicts();
        let seeds = self.grid().definition.seeds.len();
        let mut text = line(header.iter().map(String::as_str));
        for (at, (record, setup)) in self.with_setups().enumerate() {
            let steadiness = verdicts[at / seeds].map_or("", Verdict::name);
            let mut cells: Vec<String> = vec![record.run.to_string(), setup.point.to_string(), setup.scenario];
            cells.extend([setup.platform.unwrap_or_default(), setup.delivery, setup.seed.to_string()]);
            for (axis, value) in axes.iter().zip(&setup.values) {
                cells.push(value.clone().unwrap_or_default());
                if axis.number_name().is_some() {
                    cells.push(
                        value
                            .as_deref()
                            .and_then(|value| axis.number(value))
                            .map_or_else(String::new, |n| n.to_string()),
                    );
                }
            }
            let start = line(cells.iter().map(String::as_str));
            let start = start.trim_end_matches('\n');
            for (id, unit, value) in &record.values {
                text +=
                    &format!("{start},{}", line([id.as_str(), unit, &value.to_string(), "", steadiness].into_iter()));
            }
            if let Some(error) = &record.error {
                text += &format!("{start},{}", line(["", "", "", error, ""].into_iter()));
            }
        }
        text
    }

    /// Every record with its setting.
    pub(super) fn with_setups(&self) -> impl Iterator<Item = (&Record, Setup)> {
        self.records.iter().map(|record| (record, self.sweep.grid.setup(record.run)))
    }

    /// The grid.
    pub(super) fn grid(&self) -> &Grid {
        &self.sweep.grid
    }

    /// The manifest.
    pub(super) fn manifest(&self) -> &Manifest {
        &self.sweep.manifest
    }
}

/// The verdict on runs that differ in their seeds alone. A run with phases is not steady if one of them is not.
fn verdict(records: &[Record]) -> Option<Verdict> {
    let count = records.iter().map(|record| record.spans.len()).max().unwrap_or(0);
    let judged = (0..count).filter_map(|part| {
        let spans: Vec<Span> = records.iter().filter_map(|record| record.spans.get(part).cloned()).collect();
        Steadiness::over(&spans)
    });
    let told: Vec<Verdict> = judged
        // A phase that ends with its jobs may be as short as they are.
        .filter(|found| found.verdict == Verdict::Steady || !found.is_silent())
        .map(|found| found.verdict)
        .collect();
    told.iter().find(|verdict| **verdict != Verdict::Steady).or(told.first()).copied()
}

/// The files of shards: those that are named, and all in the folders that are named.
fn shard_files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, InputError> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let place = Place::file(path.display().to_string());
        let io = |error: std::io::Error| InputError::new(&place, "", Problem::Io(format!("cannot be read: {error}")));
        let count = files.len();
        for entry in std::fs::read_dir(path).map_err(io)? {
            let file = entry.map_err(io)?.path();
            if file.extension().is_some_and(|ending| ending == "runs") {
                files.push(file);
            }
        }
        if files.len() == count {
            let why = format!("has no finished runs; valid: a folder with {} and the like", Shard::WHOLE.file_name());
            return Err(InputError::new(&place, "", Problem::Syntax(why)));
        }
    }
    files.sort();
    files.dedup();
    Ok(files)
}

/// A line of CSV.
fn line<'a>(cells: impl Iterator<Item = &'a str>) -> String {
    let cell = |text: &str| match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    };
    cells.map(cell).collect::<Vec<_>>().join(",") + "\n"
}
