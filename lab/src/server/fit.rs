//! From measurements to a platform: the facts, a start for each constant, and the fit of those that the rows decide.

use super::DRIVE;
use super::cost::{self, Used};
use super::cpu;
use super::facts::{self, Fact};
use super::gather::{Measurement, Server, unusable};
use super::misses::{self, Miss};
use super::shape::{GUESS, Shape, floor, moved};
use super::starts::starts;
use super::syncs;
use super::write::{self, Own};
use crate::calibrate::{self, CalibrateError, Candidate, Decision, Range};
use crate::input::{InputError, Place, Problem};
use crate::interrupt::StopFlag;
use crate::plan::Plan;
use crate::platform::{Platform, Unit};
use crate::published::{self, Row, Usage};
use crate::scenario::Request;
use crate::setting::Setting;
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

/// The relative noise of a measured value: runs of one and the same set-up differ by so much.
pub const NOISE: f64 = 0.03;

/// A constant that measurements may decide, and the measurement of `scripts/measure-server` that does it best.
const CANDIDATES: [(&str, &str); 17] = [
    ("drive.measured.media_mean", "one-drive-depth-1"),
    ("drive.measured.fetch", "one-drive-full, on enough CPUs that they have idle time"),
    ("drive.measured.slots", "one-drive-full; drives of which fetch does the same cannot be told apart"),
    ("drive.measured.link", "one-drive-full-128k"),
    ("fabric.remap_service", "all-drives-full, with more IOPS than one IOMMU can remap"),
    ("fabric.ordering_stall", "one-drive-full at two block sizes, with an interrupt for each I/O"),
    ("drive.measured.msi_interval", "all-drives-full-512, with /proc/interrupts and /proc/uptime before and after"),
    ("cpu.submit_aio", "one-drive-depth-32 with ioengine=libaio on one CPU"),
    ("cpu.user_aio", "one-drive-full with ioengine=libaio, with /proc/stat before and after"),
    ("cpu.submit_uring", "a full drive with ioengine=io_uring on one CPU"),
    ("cpu.user_uring", "a full drive with ioengine=io_uring, with /proc/stat before and after"),
    ("cpu.user_polled", "one-drive-polled-full"),
    ("drive.measured.write_cached", "write-DRIVE-depth-1, of measure-server --write"),
    ("drive.measured.write_random", "write-DRIVE-full, of measure-server --write"),
    ("drive.measured.write_sequential", "write-DRIVE-stream, of measure-server --write"),
    ("drive.measured.flush", "write-DRIVE-synced, of measure-server --write"),
    ("drive.measured.deallocate", "a job with rw=randtrim and iodepth=1"),
];

/// The [`CANDIDATES`] of writes. Nothing that reads alone tells of them.
const OF_WRITES: std::ops::Range<usize> = 12..16;

/// Whether these measurements can tell of a candidate.
fn is_told(candidate: usize, usable: &[Measurement]) -> bool {
    match candidate {
        at if OF_WRITES.contains(&at) => usable.iter().any(Measurement::writes),
        at if at >= OF_WRITES.end => usable.iter().any(Measurement::trims),
        _ => true,
    }
}

/// The result of an import.
#[derive(Debug)]
pub struct Imported {
    /// The server's name: its folder's.
    pub name: String,
    /// The folder with the files.
    pub folder: PathBuf,
    /// Facts that the kernel stated.
    pub facts: Vec<Fact>,
    /// The constants and what was decided of them.
    pub decision: Decision,
    /// How far the measurements leave constants open.
    pub ranges: Vec<Range>,
    /// The rows, in the order of [`Decision::errors`].
    pub rows: Vec<Row>,
    /// Those that the platform misses by more than the noise, the worst first.
    pub misses: Vec<Miss>,
    /// The base of the other constants.
    pub base: String,
    /// What could not be used.
    pub notes: Vec<String>,
}

impl Imported {
    /// A measurement that would decide a candidate.
    pub fn decided_by(key: &str) -> Option<&'static str> {
        CANDIDATES.iter().find(|(known, _)| *known == key).map(|(_, by)| *by)
    }
}

/// Why there is no import.
#[derive(Debug)]
pub enum ImportError {
    /// The input, or the folder.
    Input(InputError),
    /// The fit.
    Fit(CalibrateError),
}

impl From<InputError> for ImportError {
    fn from(error: InputError) -> Self {
        Self::Input(error)
    }
}

impl From<CalibrateError> for ImportError {
    fn from(error: CalibrateError) -> Self {
        Self::Fit(error)
    }
}

/// Imports a server into `folder`, whose name becomes the platform's.
///
/// # Errors
/// No measurement can be used; the folder cannot be written; a run fails.
pub fn import(mut server: Server, base: &Platform, folder: &Path, stop: &StopFlag) -> Result<Imported, ImportError> {
    let name = write::name_of(folder);
    server.keep_free(&name);
    let Server { mut measurements, about, mut notes, .. } = server;
    let mut facts = facts::facts(&about);
    if facts::cpus(&facts).is_none() && about.contains_key("lscpu") {
        notes.push("lscpu: no number of CPUs that is understood; valid: what `LC_ALL=C lscpu` prints".to_owned());
    }
    notes.extend(facts::guest(&about).into_iter().chain(facts::of_several(&about)));
    let online = facts::add_cpus(&mut facts, &measurements, base, &mut notes);
    let cpus = facts::cpus(&facts);
    let started = starts(&measurements, base, &facts, online);
    measurements.iter_mut().for_each(|one| one.syncs = syncs::said(one, &started, base));
    let files = Folder { path: folder, name: &name };
    write_started(&files, base, &started)?;
    let (usable, plans) = files.simulated(measurements, [cpus, online], &mut notes)?;
    let path_of = |measurement: &Measurement| files.path_of(&format!("{}.toml", measurement.name));
    let Used { measurements: usable, is_fitted, plans } = cost::affordable(usable, plans, &path_of, &mut notes, stop);
    notes.extend(assumed(&usable));
    notes.extend(compared(&is_fitted));
    notes.extend(usable.iter().flat_map(few));
    let mut table = write::rows(&name, &usable, &is_fitted, online);
    files.write("rows.csv", &table)?;
    let mut rows = published::read(&files.path_of("rows.csv"))?;
    let task = Task { files: &files, base, usable: &usable, started: &started, facts: &facts, cpus, stop };
    loop {
        if rows.iter().all(|row| row.usage != Usage::Fit) {
            return Err(unusable(&notes).into());
        }
        match task.finish(&rows, plans.clone(), notes.clone()) {
            // I/Os that take longer than the span that is simulated give no figure, from the start or as the fit moves a constant.
            Err(ImportError::Fit(CalibrateError::NoFigure(id))) if rows.iter().any(|row| row.id == id) => {
                notes.push(format!(
                    "{id}: no I/O of it ends in the span that is simulated, and it is not used; a job of lower latency would tell"
                ));
                rows.retain(|row| row.id != id);
                table = write::without(&table, &id);
                files.write("rows.csv", &table)?;
            }
            ended => return ended,
        }
    }
}

/// What is imported.
struct Task<'a> {
    files: &'a Folder<'a>,
    base: &'a Platform,
    usable: &'a [Measurement],
    started: &'a BTreeMap<String, Own>,
    facts: &'a [Fact],
    cpus: Option<u32>,
    stop: &'a StopFlag,
}

impl Task<'_> {
    /// Fits the rows, and writes what was found.
    fn finish(
        &self,
        rows: &[Row],
        plans: BTreeMap<String, Plan>,
        mut notes: Vec<String>,
    ) -> Result<Imported, ImportError> {
        let &Self { files, base, usable, started, cpus, stop, .. } = self;
        let candidates = candidates(base, started, usable);
        let (to_fit, plans) = fitted(rows, plans);
        let fit = Fit { files, base, candidates: &candidates, rows: &to_fit, stop };
        let mut shape = fit.shape(started.clone(), &plans)?;
        let mut ranges = Vec::new();
        let mut shown = to_fit.as_slice();
        if !shape.decision.interrupted {
            shown = rows;
            let plans = files.plans(usable, cpus)?;
            shape.decision.errors = calibrate::errors(rows, &plans, stop)?;
            let platform = files.platform()?;
            let open = open(&platform, &candidates, started);
            match calibrate::ranges(&platform, &open, &to_fit, &fitted(rows, plans).1, NOISE, stop) {
                Ok(found) => {
                    ranges = found.ranges;
                    if let Some(better) = found.better {
                        shape.take(&better, &platform);
                        let now = shape.write(files)?;
                        shape.decision.errors = calibrate::errors(rows, &files.plans(usable, cpus)?, stop)?;
                        ranges = ranges.into_iter().map(|range| moved(range, &platform, &now)).collect();
                        let errors = || Ok(calibrate::errors(rows, &files.plans(usable, cpus)?, stop)?);
                        if shape.lower_floor(files, &errors)? {
                            let lowered = files.platform()?;
                            ranges = ranges.into_iter().map(|range| moved(range, &now, &lowered)).collect();
                        }
                    }
                }
                Err(CalibrateError::Stopped) => shape.decision.interrupted = true,
                Err(error) => return Err(error.into()),
            }
        }
        if !usable.iter().any(Measurement::writes) {
            shape.decision.undecided.extend(CANDIDATES[OF_WRITES].iter().map(|(key, _)| (*key).to_owned()));
        }
        if shape.decision.is_cut {
            notes.push("the fit took too many runs, and ended with the best that it had".to_owned());
        }
        let rows = shown.to_vec();
        let misses = misses::of(&rows, &shape.decision.errors, usable);
        let of_ranges = |key: &str| with_region(key, &|key| shape.own(key), base, &ranges);
        let name = files.name;
        files.write(&format!("{name}.toml"), &write::platform(name, base, &misses::named(&misses), &of_ranges))?;
        let (base, decision) = (base.name.clone(), shape.decision);
        let (name, folder, facts) = (name.to_owned(), files.path.to_owned(), self.facts.to_vec());
        Ok(Imported { name, folder, facts, decision, ranges, rows, misses, base, notes })
    }
}

/// What is fitted.
struct Fit<'a> {
    files: &'a Folder<'a>,
    base: &'a Platform,
    candidates: &'a [Candidate],
    rows: &'a [Row],
    stop: &'a StopFlag,
}

impl<'a> Fit<'a> {
    /// Decides and fits from these starts, which the platform's file has, and writes what was found.
    fn shape(&self, started: BTreeMap<String, Own>, plans: &BTreeMap<String, Plan>) -> Result<Shape<'a>, ImportError> {
        let platform = self.files.platform()?;
        let decision = calibrate::decide(&platform, self.candidates, self.rows, plans, NOISE, self.stop)?;
        let shape = Shape { base: self.base, started, decision, taken: BTreeMap::new() };
        shape.write(self.files)?;
        Ok(shape)
    }
}

/// Writes the platform with which a fit begins.
fn write_started(files: &Folder<'_>, base: &Platform, started: &BTreeMap<String, Own>) -> Result<(), InputError> {
    let of_start = |key: &str| started.get(key).cloned().or_else(|| floor(key, base, &|key| started.get(key).cloned()));
    files.write(&format!("{}.toml", files.name), &write::platform(files.name, base, &[], &of_start))
}

/// The rows that are fitted, and the plans that give them.
fn fitted(rows: &[Row], mut plans: BTreeMap<String, Plan>) -> (Vec<Row>, BTreeMap<String, Plan>) {
    let rows: Vec<Row> = rows.iter().filter(|row| row.usage == Usage::Fit).cloned().collect();
    plans.retain(|name, _| rows.iter().any(|row| row.scenarios.contains(name)));
    (rows, plans)
}

/// A note on measurements that are not fitted.
fn compared(is_fitted: &[bool]) -> Option<String> {
    let count = is_fitted.iter().filter(|is_fitted| !**is_fitted).count();
    (count > 0).then(|| {
        format!(
            "{} of {} measurements are fitted, those that are most unlike each other; the others are only compared",
            is_fitted.len() - count,
            is_fitted.len()
        )
    })
}

/// Notes on mean latencies of few I/Os.
fn few(measurement: &Measurement) -> Vec<String> {
    let note = |(direction, ios): (usize, u64)| {
        format!(
            "{}: it did {ios} {}, and a mean latency of so few is chance: it is no row; a longer run would tell",
            measurement.name,
            ["reads", "writes", "trims"][direction]
        )
    };
    write::scarce(measurement).into_iter().map(note).collect()
}

/// A note on measurements of which nothing says how their interrupts came.
fn assumed(measurements: &[Measurement]) -> Option<String> {
    let names: Vec<&str> =
        measurements.iter().filter(|one| !one.is_delivery_known()).map(|one| one.name.as_str()).collect();
    let of = match names.as_slice() {
        [] => return None,
        [name] => (*name).to_owned(),
        [name, others @ ..] => format!("{name} and {} more", others.len()),
    };
    Some(format!("{of}: how the interrupts came is assumed: remapped; /proc/interrupts before and after would say"))
}

/// The constants that the rows may decide. The home of each is what the platform's file says of it unless they do: what
/// the kernel states, or else the base's value.
fn candidates(base: &Platform, started: &BTreeMap<String, Own>, usable: &[Measurement]) -> Vec<Candidate> {
    let candidate = |key: &str| {
        let stated = started.get(key).filter(|own| own.reason != GUESS).map(|own| own.value);
        let follower = (key == format!("drive.{DRIVE}.media_mean")).then(|| format!("drive.{DRIVE}.media_floor"));
        Some(Candidate { key: key.to_owned(), home: stated.or_else(|| of_base(base, key))?, follower })
    };
    let told = CANDIDATES.iter().enumerate().filter(|(at, _)| is_told(*at, usable));
    told.filter_map(|(_, (key, _))| candidate(key)).collect()
}

/// The constants that may be off, each for itself: times, rates and the drive's slots, unless the kernel states them.
fn open(platform: &Platform, candidates: &[Candidate], started: &BTreeMap<String, Own>) -> Vec<Candidate> {
    let is_stated = |key: &str| started.get(key).is_some_and(|own| own.reason != GUESS);
    let alone = |one: &Candidate| Candidate { follower: None, ..one.clone() };
    let mut open: Vec<Candidate> = candidates.iter().filter(|one| !is_stated(&one.key)).map(alone).collect();
    for (key, spec, constant) in platform.constants() {
        let is_open = matches!(spec.unit, Unit::Time | Unit::ByteRate) || key == format!("drive.{DRIVE}.slots");
        if is_open && constant.value > 0.0 && !is_stated(&key) && candidates.iter().all(|one| one.key != key) {
            open.push(Candidate { key, home: constant.value, follower: None });
        }
    }
    open
}

/// A constant with its factors at the region's points. One that is not given is written as the base's.
fn with_region(key: &str, given: write::Given<'_>, base: &Platform, ranges: &[Range]) -> Option<Own> {
    let Some(range) = ranges.iter().find(|range| range.key == key) else { return given(key) };
    let own = given(key).or_else(|| Some(write::borrowed(base, of_base(base, key)?)))?;
    Some(Own { region: range.factors.clone(), ..own })
}

/// The base's value of a constant of the measured server's file.
pub(super) fn of_base(base: &Platform, key: &str) -> Option<f64> {
    let (_, drive) = base.drives.first()?;
    let name = key.strip_prefix(&format!("drive.{DRIVE}."));
    let of_drive = name.and_then(|name| drive.iter().find(|(spec, _)| spec.name == name).map(|(_, own)| own.value));
    of_drive.or_else(|| {
        let constants = base.constants();
        constants.iter().find(|(known, ..)| known == key).map(|(.., constant)| constant.value)
    })
}

/// The folder of a server's files.
pub(super) struct Folder<'a> {
    pub(super) path: &'a Path,
    pub name: &'a str,
}

impl Folder<'_> {
    fn path_of(&self, file: &str) -> String {
        // With a slash, so that it is a path and not the name of something that the program carries.
        // Without another `.`, as a rows file names what is beside it.
        let folder: PathBuf = self.path.components().filter(|part| *part != Component::CurDir).collect();
        Path::new(".").join(folder).join(file).to_string_lossy().into_owned()
    }

    pub(super) fn write(&self, file: &str, text: &str) -> Result<(), InputError> {
        let path = self.path.join(file);
        let failed = |error: std::io::Error| {
            let place = Place::file(path.to_string_lossy());
            InputError::new(&place, "", Problem::Io(format!("cannot be written: {error}")))
        };
        path.parent().map_or(Ok(()), std::fs::create_dir_all).map_err(failed)?;
        std::fs::write(&path, text).map_err(failed)
    }

    /// The measurements that can be simulated, with their plans; notes on the others.
    fn simulated(
        &self,
        measurements: Vec<Measurement>,
        [cpus, online]: [Option<u32>; 2],
        notes: &mut Vec<String>,
    ) -> Result<(Vec<Measurement>, BTreeMap<String, Plan>), InputError> {
        let mut usable = Vec::new();
        let mut plans = BTreeMap::new();
        for measurement in measurements {
            let longest_ns = (0..3).filter_map(|at| measurement.fio.clat_ns_of(at)).fold(0.0, f64::max);
            if longest_ns > write::LATENCY_MAX_NS {
                notes.push(format!(
                    "{}: its mean latency of {:.1} s is outside what is fitted; valid: {:.1} s and less, as at a lower depth",
                    measurement.name,
                    longest_ns / 1e9,
                    write::LATENCY_MAX_NS / 1e9
                ));
                continue;
            }
            match self.plan(&measurement, cpus)? {
                Ok((scenario, plan)) => {
                    notes.extend(syncs::notes(&measurement, &plan.warnings));
                    let of_stat = measurement.cpus_of_shares(online);
                    if of_stat.is_some_and(|cpus| cpu::has_other_work(&measurement, cpus)) {
                        notes.push(format!(
                            "{}: the CPUs had other work than fio's; their times are not used",
                            measurement.name
                        ));
                    }
                    plans.insert(scenario, plan);
                    usable.push(measurement);
                }
                Err(error) => notes.push(format!("{}: not simulated: {error}", measurement.name)),
            }
        }
        Ok((usable, plans))
    }

    /// The platform as it is written.
    pub(super) fn platform(&self) -> Result<Platform, InputError> {
        Platform::load(&Setting::new(Place::option("import"), "", self.path_of(&format!("{}.toml", self.name))))
    }

    /// The plans of the measurements, with the platform as it is written.
    fn plans(&self, measurements: &[Measurement], cpus: Option<u32>) -> Result<BTreeMap<String, Plan>, InputError> {
        measurements.iter().map(|measurement| self.plan(measurement, cpus)?).collect()
    }

    /// Writes the scenario and the job of a measurement, and plans it. The inner error: it cannot be simulated.
    fn plan(
        &self,
        measurement: &Measurement,
        cpus: Option<u32>,
    ) -> Result<Result<(String, Plan), InputError>, InputError> {
        self.write(&format!("jobs/{}.fio", measurement.name), &measurement.job)?;
        let file = format!("{}.toml", measurement.name);
        let path = self.path_of(&file);
        let plan = |cpus: Option<u32>| {
            self.write(&file, &write::scenario(self.name, measurement, cpus))?;
            Ok::<_, InputError>(Request::of(&path).plan())
        };
        let mut found = plan(cpus)?;
        // A server has more CPUs than a job of one thread names.
        if cpus.is_none() && found.as_ref().is_ok_and(|plan| plan.cpus == 1) {
            found = plan(Some(2))?;
        }
        Ok(found.map(|plan| (path.clone(), plan)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::gather::Parts;
    use super::*;

    /// The decided constants of a drive on which one job did this at depth 1.
    fn decided(rw: &str, directions: &str) -> BTreeMap<String, f64> {
        let fio = format!(
            r#"{{"jobs": [{{"jobname": "a", "job options": {{"rw": "{rw}", "iodepth": "1", "ioengine": "libaio", "direct": "1",
            "filename": "/dev/nvme0n1"}}, {directions}}}]}}"#
        );
        let mut server = Server::default();
        server.add("x", &Parts { fio: fio.as_bytes(), ..Parts::default() });
        let base = Platform::load(&Setting::new(Place::option("test"), "", "emr")).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let found = import(server, &base, &folder.path().join("mine"), &StopFlag::default()).unwrap();
        found.decision.decided.iter().map(|decided| (decided.key.clone(), decided.value / 1000.0)).collect()
    }

    #[test]
    fn files_beside_the_rows_are_those_of_the_plans() {
        for (folder, expected) in [(".", "./rows.csv"), ("./a/.", "./a/rows.csv"), ("/a", "/a/rows.csv")] {
            let path = Folder { path: Path::new(folder), name: "x" }.path_of("rows.csv");
            assert_eq!(path, expected);
            let beside = crate::scenario::files::Files::beside("s.toml", &path);
            assert_eq!(beside, Folder { path: Path::new(folder), name: "x" }.path_of("s.toml"));
        }
    }

    /// I/Os of this mean latency.
    fn done(direction: &str, iops: u32, clat_us: u32) -> String {
        format!(
            r#""{direction}": {{"iops": {iops}, "total_ios": {iops}0, "runtime": 10000, "bw_bytes": {},
            "clat_ns": {{"mean": {clat_us}000, "max": 900000, "N": {iops}0}}}}"#,
            iops * 4096
        )
    }

    /// A write of 15 us is the same whether trims of 150 us stand between the writes or not.
    #[test]
    fn writes_and_trims_are_fitted_from_their_own_latency() {
        let [cached, trim] = ["write_cached", "deallocate"].map(|name| format!("drive.{DRIVE}.{name}"));
        let both = decided("trimwrite", &[done("write", 5900, 15), done("trim", 5900, 150)].join(", "));
        assert!(both.get(&cached).is_some_and(|us| (9.0..14.0).contains(us)), "{both:?}");
        assert!(both.get(&trim).is_some_and(|us| (135.0..152.0).contains(us)), "{both:?}");
        let alone = decided("randtrim", &done("trim", 6600, 150));
        assert!(alone.get(&trim).is_some_and(|us| (135.0..152.0).contains(us)), "{alone:?}");
        assert!(!alone.contains_key(&cached), "{alone:?}");
    }
}
