//! The measurements of a server: each a job, fio's output, and the kernel's counters before and after.

use super::{facts, job};
use crate::fio::{self, FioJob, Variables};
use crate::input::InputError;
use hal::CpuSet;
use import::archive::Contents;
use import::cpu_time::{CpuTicks, uptime_s};
use import::fio_json::FioOutput;
use import::interrupts::{Difference, Interrupts};
use std::collections::{BTreeMap, BTreeSet};

/// One job that ran on the server.
#[derive(Clone, PartialEq, Debug)]
pub struct Measurement {
    /// Its name: letters, digits and `-`.
    pub name: String,
    /// Its job file.
    pub job: String,
    /// The sections of that file.
    pub sections: Vec<FioJob>,
    /// What fio printed.
    pub fio: FioOutput,
    /// user, system, interrupts and idle of all CPUs, in per cent.
    pub cpu: Option<[f64; 4]>,
    /// Interrupts of its drives, and how they were delivered.
    pub interrupts: Option<Delivered>,
    /// CPUs that were online, if `/proc/interrupts` names them.
    pub online: Option<u32>,
}

/// The interrupts between two readings.
#[derive(Clone, PartialEq, Debug)]
pub struct Delivered {
    /// Of NVMe queues, a second; none if the readings say no time.
    pub per_second: Option<f64>,
    /// NVMe queues that had one.
    pub vectors: usize,
    /// How they came: the name of a variant.
    pub delivery: &'static str,
}

/// All that is known of a server.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Server {
    /// Jobs that ran.
    pub measurements: Vec<Measurement>,
    /// Files about the hardware, by path: `proc/cpuinfo`, `lscpu`.
    pub about: BTreeMap<String, Vec<u8>>,
    /// What could not be used.
    pub notes: Vec<String>,
    /// Its name in outputs of fio's clients, each of which may have several hosts.
    host: Option<String>,
    /// Names of the measurements.
    names: BTreeSet<String>,
}

/// The files of one measurement, in whatever subset there is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Parts<'a> {
    /// `fio --output-format=json`.
    pub fio: &'a [u8],
    /// The job file; without it, the options that fio printed.
    pub job: Option<&'a [u8]>,
    /// `/proc/interrupts` before and after.
    pub interrupts: Option<[&'a [u8]; 2]>,
    /// `/proc/stat`, likewise.
    pub stat: Option<[&'a [u8]; 2]>,
    /// `/proc/uptime`, likewise.
    pub uptime: Option<[&'a [u8]; 2]>,
    /// CPUs of the server, `$ncpus` of its job files.
    pub cpus: Option<u32>,
}

impl Measurement {
    /// A measurement, and notes on what could not be used.
    ///
    /// # Errors
    /// fio's output makes no sense, or fio failed, or nothing was done: no measurement. The text says which.
    pub fn read(name: &str, parts: &Parts<'_>) -> Result<(Self, Vec<String>), String> {
        let fio = FioOutput::parse(parts.fio).map_err(|error| format!("{name}: fio's output {error}"))?;
        Self::of(name, fio, parts)
    }

    /// The measurement of what fio printed; see [`Measurement::read`].
    fn of(name: &str, fio: FioOutput, parts: &Parts<'_>) -> Result<(Self, Vec<String>), String> {
        let mut notes: Vec<String> = fio.notes.iter().map(|note| format!("{name}: fio's output: {note}")).collect();
        if let Some(job) = fio.jobs.iter().find(|job| job.error != 0) {
            return Err(format!("{name}: fio ended with error {} in job {:?}", job.error, job.name));
        }
        if fio.iops() <= 0.0 {
            return Err(format!("{name}: fio did no I/O"));
        }
        let (job, sections) = job::of(name, &fio, parts, &mut notes)?;
        job::explains(&sections, &fio)
            .and_then(|()| job::bypasses(&sections, &fio))
            .map_err(|why| format!("{name}: {why}"))?;
        let seconds = parts.uptime.and_then(|[before, after]| Some(uptime_s(after)? - uptime_s(before)?));
        let readings = parts.interrupts.map(|pair| pair.map(Interrupts::parse));
        let named = readings.iter().flatten().filter(|reading| reading.has_header);
        let online = named.map(|reading| reading.cpus.len() as u32).max();
        let interrupts = readings.and_then(|[before, after]| {
            notes.extend(before.notes.iter().chain(&after.notes).map(|note| format!("{name}: interrupts: {note}")));
            if before.is_behind(&after) {
                notes.push(format!("{name}: interrupts: the counts fall: the two readings are not in their order"));
                return None;
            }
            let found = delivered(&before.until(&after), seconds.filter(|seconds| *seconds > 0.0));
            let is_part = [&before, &after].iter().any(|reading| reading.lines.iter().all(|line| line.chip().is_some()));
            if is_part && found.as_ref().is_some_and(|found| found.delivery == "remapped") {
                notes.push(format!(
                    "{name}: interrupts: the kernel's own counters are missing: a line PMN would tell posted messages from remapped ones, which are assumed"
                ));
            }
            if found.is_none() {
                notes.push(format!("{name}: no interrupt of an NVMe queue (nvme0q1) came between the readings"));
            }
            found
        });
        let cpu =
            parts.stat.and_then(|[before, after]| CpuTicks::parse(before)?.shares_until(&CpuTicks::parse(after)?));
        if parts.stat.is_some() && cpu.is_none() {
            notes.push(format!("{name}: /proc/stat says nothing of the time between the readings"));
        }
        Ok((Self { name: name.to_owned(), job, sections, fio, cpu, interrupts, online }, notes))
    }

    /// fio's threads.
    pub fn threads(&self) -> u32 {
        self.sections.iter().map(|section| section.numjobs).sum()
    }

    /// The CPUs that its jobs need: the highest that they name, and all before it.
    pub fn cpus_named(&self) -> Option<u32> {
        let named = self.sections.iter().filter_map(|section| section.cpus.as_ref());
        named.filter_map(|(cpus, _)| cpus.iter().last()).map(|cpu| cpu.0 + 1).max()
    }

    /// fio's threads that share a CPU, at most; 1 where the jobs name no CPUs.
    pub fn threads_per_cpu(&self) -> u32 {
        let mut named = CpuSet::new();
        for section in &self.sections {
            let Some((cpus, _)) = &section.cpus else { return 1 };
            cpus.iter().for_each(|cpu| named.insert(cpu));
        }
        self.threads().div_ceil((named.iter().count() as u32).max(1)).max(1)
    }

    /// The drives or files that it names.
    pub fn drives(&self) -> usize {
        self.sections.iter().flat_map(|section| section.file_names(0)).collect::<BTreeSet<_>>().len()
    }

    /// Whether a job of it reads.
    pub fn reads(&self) -> bool {
        self.sections.iter().any(|section| section.pattern.reads())
    }

    /// Whether a job of it writes.
    pub fn writes(&self) -> bool {
        self.sections.iter().any(|section| section.pattern.writes())
    }

    /// Mean completion latency of its writes, or of its reads. What fio printed of both together is neither's.
    pub fn clat_ns_of(&self, writes: bool) -> Option<f64> {
        match (self.reads(), self.writes()) {
            (true, true) => {
                let [reads, written] = [0, 1].map(|direction| self.fio.clat_ns_of(direction));
                reads.zip(written).map(|(reads, written)| if writes { written } else { reads })
            }
            (true, false) => self.fio.clat_ns().filter(|_| !writes),
            (false, true) => self.fio.clat_ns().filter(|_| writes),
            // Trims alone.
            (false, false) => None,
        }
    }

    /// How its completions came: polled by its own option, else as `/proc/interrupts` says; remapped where nobody says.
    pub fn delivery(&self) -> &'static str {
        if self.polls() {
            return "polled";
        }
        self.interrupts.as_ref().map_or("remapped", |interrupts| interrupts.delivery)
    }

    /// False if [`Self::delivery`] is assumed.
    pub fn is_delivery_known(&self) -> bool {
        self.polls() || self.interrupts.is_some()
    }

    fn polls(&self) -> bool {
        self.sections.iter().any(|section| section.engine.polls())
    }
}

/// The sections of a job file that stands alone.
pub(super) fn sections(file: &str, text: &str, cpus: u32) -> Result<Vec<FioJob>, InputError> {
    let alone = |_: &str, _: &str| Err("a measurement has one job file".to_owned());
    let mut sections = fio::sections(file, text.as_bytes(), &alone)?;
    let variables = Variables { cpus, environment: false, ..Variables::of(&[])? };
    let (_, errors) = variables.expand(&mut sections);
    errors.into_iter().next().map_or(Ok(()), Err)?;
    fio::jobs(file, &sections, &[]).map(|(jobs, _)| jobs)
}

/// The interrupts of NVMe queues in a difference; none if there are none.
fn delivered(differences: &[Difference], seconds: Option<f64>) -> Option<Delivered> {
    // The admin queue, 0, has no I/O.
    let is_queue = |difference: &&Difference| difference.line.nvme_queue().is_some_and(|(_, queue)| queue > 0);
    let queues: Vec<&Difference> = differences.iter().filter(is_queue).filter(|queue| queue.total() > 0).collect();
    let first = queues.first()?;
    let notifications = differences.iter().find(|difference| difference.line.id == "PMN").map_or(0, Difference::total);
    let chip = first.line.chip().unwrap_or_default();
    let delivery = match () {
        () if notifications > 0 => "posted",
        () if chip.starts_with("IR-") || chip.starts_with("ITS") => "remapped",
        () => "plain",
    };
    let count: u64 = queues.iter().map(|queue| queue.total()).sum();
    Some(Delivered { per_second: seconds.map(|seconds| count as f64 / seconds), vectors: queues.len(), delivery })
}

impl Server {
    /// The server of an archive of `scripts/measure-server`, whole or damaged.
    pub fn of_archive(contents: &Contents) -> Self {
        Self::default().with_archive(contents)
    }

    /// The server of that name, where outputs are of several hosts.
    pub fn on(host: Option<&str>) -> Self {
        Self { host: host.map(str::to_owned), ..Self::default() }
    }

    /// Adds what an archive holds; see [`Self::of_archive`].
    #[must_use]
    pub fn with_archive(mut self, contents: &Contents) -> Self {
        self.notes.extend(contents.notes.iter().cloned());
        let mut points: BTreeMap<&str, BTreeMap<&str, &[u8]>> = BTreeMap::new();
        let root = root(contents.files.keys());
        for (path, bytes) in &contents.files {
            let Some(path) = path.strip_prefix(root) else { continue };
            if let Some(path) = path.strip_prefix("static/") {
                self.about.insert(path.to_owned(), bytes.clone());
            } else if let Some((name, file)) = path.strip_prefix("points/").and_then(|path| path.split_once('/')) {
                points.entry(name).or_default().insert(file, bytes);
            }
        }
        if points.is_empty() {
            self.add_outputs(contents);
        }
        let cpus = facts::cpus(&facts::facts(&self.about));
        for (name, files) in points {
            let pair = |file: &str| -> Option<[&[u8]; 2]> {
                Some([*files.get(format!("before/{file}").as_str())?, *files.get(format!("after/{file}").as_str())?])
            };
            let Some(fio) = files.get("fio.json") else {
                self.notes.push(format!("{name}: there is no fio.json"));
                continue;
            };
            let parts = Parts {
                fio,
                job: files.get("job.fio").copied(),
                interrupts: pair("interrupts"),
                stat: pair("stat"),
                uptime: pair("uptime"),
                cpus,
            };
            self.add(name, &parts);
        }
        self
    }

    /// Adds what looks like fio's outputs in files of somebody's own.
    fn add_outputs(&mut self, contents: &Contents) {
        self.notes.push(
            "there is no folder `points`: scripts/measure-server did not make this; its fio outputs are read".into(),
        );
        for (path, bytes) in &contents.files {
            let is_output = ["\"fio version\"", "): err="]
                .iter()
                .any(|sign| bytes.windows(sign.len()).take(SIGN_WITHIN).any(|window| window == sign.as_bytes()));
            if path.rsplit('/').next().is_some_and(|name| name.starts_with("lscpu")) {
                self.about.insert("lscpu".to_owned(), bytes.clone());
            } else if is_output {
                let cpus = facts::cpus(&facts::facts(&self.about));
                let name = path.rsplit_once('.').map_or(path.as_str(), |(name, _)| name);
                self.add(name, &Parts { fio: bytes, cpus, ..Parts::default() });
            }
        }
    }

    /// The name, or with a number behind it if a measurement has it: two runs may have files or jobs of one name.
    fn unique(&self, name: &str) -> String {
        let mut numbered = (2..NUMBER_MAX).map(|number| format!("{name}-{number}"));
        let is_free = |name: &String| !self.names.contains(name);
        if self.names.contains(name) { numbered.find(is_free).unwrap_or_default() } else { name.to_owned() }
    }

    /// Gives the measurement of this name, if there is one, another: the platform's file has it.
    pub(super) fn keep_free(&mut self, name: &str) {
        let other = self.unique(name);
        if let Some(found) = self.measurements.iter_mut().find(|found| found.name == name) {
            self.names.insert(other.clone());
            found.name = other;
        }
    }

    /// Adds a measurement, or one for each run and each group of jobs that ran alone; what cannot be used becomes a note.
    pub fn add(&mut self, name: &str, parts: &Parts<'_>) {
        let name = plain(name);
        let mut runs = match FioOutput::parse_all(parts.fio) {
            Ok(runs) => runs,
            Err(error) => return self.notes.push(format!("{name}: fio's output {error}")),
        };
        runs.retain_mut(|run| match self.keep_host(run) {
            Ok(()) => true,
            Err(why) => {
                self.notes.push(format!("{name}: {why}"));
                false
            }
        });
        if let [_, _, ..] = runs.as_slice() {
            self.notes.push(format!(
                "{name}: {} runs of different jobs: each is a measurement; counters of them all are not used",
                runs.len()
            ));
        }
        let is_one = runs.len() == 1;
        for run in runs {
            if is_one {
                self.add_run(&name, run, parts);
            } else {
                let names: Vec<&str> = run.jobs.iter().map(|job| job.name.as_str()).collect();
                let of_run = format!("{name}-{}", names.first().unwrap_or(&""));
                let job = parts.job.map(|text| job::part(&String::from_utf8_lossy(text), &names));
                let job = job.as_deref().map(str::as_bytes);
                self.add_run(&of_run, run, &Parts { interrupts: None, stat: None, uptime: None, job, ..*parts });
            }
        }
    }

    /// Leaves the jobs of this server in a run.
    ///
    /// # Errors
    /// Several hosts ran the jobs, and nobody says which is meant; or this one ran none.
    fn keep_host(&self, run: &mut FioOutput) -> Result<(), String> {
        let hosts: Vec<&str> = run.hosts().into_iter().collect();
        let named = hosts.join(", ");
        match &self.host {
            None if hosts.len() > 1 => Err(format!(
                "the jobs ran on {} hosts, and each is a server of its own; valid: --host with one of {named}",
                hosts.len()
            )),
            Some(host) if !hosts.is_empty() => {
                if !hosts.contains(&host.as_str()) {
                    return Err(format!("no job ran on the host {host:?}; valid: --host with one of {named}"));
                }
                run.keep_host(host);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Adds one run of fio's.
    fn add_run(&mut self, name: &str, run: FioOutput, parts: &Parts<'_>) {
        let groups = job::groups(name, run, parts.job);
        if let [_, _, ..] = groups.as_slice() {
            self.notes.push(format!(
                "{name}: {} groups of jobs ran one after another: each is a measurement; counters of them all are not used",
                groups.len()
            ));
        }
        let is_one = groups.len() == 1;
        for group in groups {
            let job = group.job.as_deref().map(str::as_bytes);
            let alone = Parts { interrupts: None, stat: None, uptime: None, job, ..*parts };
            let name = self.unique(&plain(&group.name));
            let found = Measurement::of(&name, group.fio, if is_one { parts } else { &alone });
            match found {
                Ok((measurement, notes)) => {
                    self.names.insert(name);
                    self.measurements.push(measurement);
                    self.notes.extend(notes);
                }
                Err(note) => self.notes.push(note),
            }
        }
    }
}

/// Most measurements of one name that are told apart by a number.
const NUMBER_MAX: usize = 10_000;

/// What fio's outputs begin with stands within so many bytes.
const SIGN_WITHIN: usize = 64 << 10;

/// The folder of the archive that holds `points` and `static`, with a slash behind it; empty if they are the archive's own.
fn root<'a>(mut paths: impl Iterator<Item = &'a String>) -> &'a str {
    let of = |path: &'a String| {
        let starts = path.match_indices('/').map(|(at, _)| at + 1);
        let mut starts = std::iter::once(0).chain(starts);
        starts.find(|&at| path[at..].starts_with("points/") || path[at..].starts_with("static/")).map(|at| &path[..at])
    };
    paths.find_map(of).unwrap_or("")
}

/// A name that a file can have.
fn plain(name: &str) -> String {
    let plain: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(80).collect();
    if plain.is_empty() { "job".into() } else { plain }
}

#[cfg(test)]
mod tests;
