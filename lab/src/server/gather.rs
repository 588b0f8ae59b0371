//! The measurements of a server: each a job, fio's output, and the kernel's counters before and after.

use super::agrees;
use super::cpu;
use super::delivery::Delivered;
use super::elapsed::Elapsed;
use super::idle;
use super::job;
use super::named;
use super::part;
use super::polled;
use super::syncs::Syncs;
use super::together;
use super::used::Used;
use crate::fio::{self, FioJob, Variables};
use crate::input::{InputError, Place, Problem};
use crate::kinds::storage::Trims;
use hal::CpuSet;
use import::encoding;
use import::fio_json::FioOutput;
use import::interrupts::Interrupts;
use import::links::Links;
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
    /// The CPUs that these are shares of, if `/proc/stat` names them.
    pub stat_cpus: Option<u32>,
    /// Interrupts of its drives, and how they were delivered.
    pub interrupts: Option<Delivered>,
    /// CPUs that were online, if `/proc/interrupts` or `/proc/stat` names them.
    pub online: Option<u32>,
    /// What its syncs say of the drive's cache.
    pub syncs: Syncs,
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
    pub(super) host: Option<String>,
    /// Something of that name was there, or somebody was told which are.
    pub(super) has_host: bool,
    /// What links to its drives point to.
    pub(super) links: Links,
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
    /// The readings enclose this run of fio's, and no other was between them.
    pub is_enclosed: bool,
    /// What links to drives point to.
    pub links: Option<&'a Links>,
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
    fn of(name: &str, mut fio: FioOutput, parts: &Parts<'_>) -> Result<(Self, Vec<String>), String> {
        let mut notes: Vec<String> = fio.notes.iter().map(|note| format!("{name}: fio's output: {note}")).collect();
        if let Some(job) = fio.jobs.iter().find(|job| job.error != 0) {
            return Err(format!("{name}: fio ended with error {} in job {:?}", job.error, job.name));
        }
        if fio.iops() <= 0.0 {
            let did = fio.jobs.iter().flat_map(|job| &job.directions).any(|direction| direction.ios > 0);
            let why = if did { "measured less than a millisecond; valid: a longer run" } else { "did no I/O" };
            return Err(format!("{name}: fio {why}"));
        }
        let busy = idle::leave_out(&mut fio, parts.job);
        notes.extend(busy.iter().map(|(note, _)| format!("{name}: {note}")));
        let busy = busy.and_then(|(_, job)| job);
        let parts = &Parts { job: busy.as_deref().map(str::as_bytes).or(parts.job), ..*parts };
        let (job, sections) = job::of(name, &fio, parts, &mut notes)?;
        notes.extend(agrees::merged(&sections, &fio).map(|note| format!("{name}: {note}")));
        notes.extend(agrees::leave_out_verification(&sections, &mut fio).map(|note| format!("{name}: {note}")));
        let on_drives = [agrees::files_on_several(&sections, &fio), named::perhaps_twice(&sections, &fio)];
        notes.extend(on_drives.into_iter().flatten().map(|note| format!("{name}: {note}")));
        agrees::explains(&sections, &fio, parts.job.is_some())
            .and_then(|()| agrees::bypasses(&sections, &fio))
            .and_then(|()| together::began(&sections, &fio))
            .map_err(|why| format!("{name}: {why}"))?;
        let (used, elapsed) = (Used::of(&sections, &fio), Elapsed::of(&fio, parts));
        let readings = parts.interrupts.map(readings);
        let named = readings.iter().flatten().filter(|reading| reading.has_header);
        let of_interrupts = named.map(|reading| reading.cpus.len() as u32).max();
        let online = of_interrupts.or_else(|| cpu::cpus(parts));
        let mut interrupts = readings.and_then(|[before, after]| {
            let mut found = Vec::new();
            let mut delivered = Delivered::between([&before, &after], &used, elapsed, &mut found);
            found.extend(delivered.as_mut().and_then(|delivered| delivered.without_what_cannot_be(&fio)));
            notes.extend(found.into_iter().map(|note| format!("{name}: {note}")));
            delivered
        });
        let mut found = Vec::new();
        let (job, sections) = polled::settled((job, sections), interrupts.as_ref(), &fio, parts.cpus, &mut found);
        let mut cpu = cpu::shares(parts, elapsed, &mut found);
        let stat_cpus = cpu::cpus(parts).filter(|_| cpu.is_some());
        found.extend(cpu::disagree(stat_cpus, of_interrupts));
        if let Some(why) = together::ended(&fio).filter(|_| cpu.is_some() || interrupts.is_some()) {
            found.push(why);
            cpu = None;
            interrupts.iter_mut().for_each(|delivered| delivered.per_second = None);
        }
        notes.extend(found.into_iter().map(|note| format!("{name}: {note}")));
        let name = name.to_owned();
        Ok((Self { name, job, sections, fio, cpu, stat_cpus, interrupts, online, syncs: Syncs::Told }, notes))
    }

    /// The CPUs that the shares of CPU time are of, on a server with so many online.
    pub(super) fn cpus_of_shares(&self, online: Option<u32>) -> Option<u32> {
        self.stat_cpus.or(online)
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

    /// The drives that it names. All files lie on one.
    pub fn drives(&self) -> usize {
        let names = self.sections.iter().flat_map(|section| section.file_names(0));
        names.map(|name| fio::drive_of(&name).unwrap_or_default()).collect::<BTreeSet<_>>().len()
    }

    /// Whether a job of it reads.
    pub fn reads(&self) -> bool {
        self.sections.iter().any(|section| section.pattern.reads())
    }

    /// Whether a job of it writes.
    pub fn writes(&self) -> bool {
        self.sections.iter().any(|section| section.pattern.writes())
    }

    /// Whether a job of it trims.
    pub fn trims(&self) -> bool {
        self.sections.iter().any(|section| section.pattern.trims != Trims::None)
    }

    /// Mean completion latency of its reads (0), writes (1) or trims (2). What fio printed of several together is of none.
    pub fn clat_ns_of(&self, direction: usize) -> Option<f64> {
        let does = [self.reads(), self.writes(), self.trims()];
        match does.iter().filter(|does| **does).count() {
            _ if !does[direction] || self.is_merged() => None,
            1 => self.fio.clat_ns(),
            _ => self.fio.clat_ns_of(direction),
        }
    }

    /// True if fio printed several directions as one.
    pub fn is_merged(&self) -> bool {
        agrees::is_merged(&self.sections, &self.fio)
    }

    /// How its completions came: polled by its own option (which is taken away where interrupts served it), else as
    /// `/proc/interrupts` says; remapped where nobody says.
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

/// Both readings. Where one file is both, its first and its last.
fn readings([before, after]: [&[u8]; 2]) -> [Interrupts; 2] {
    let first = Interrupts::parse(before);
    if before != after || !first.has_several {
        return [first, Interrupts::parse(after)];
    }
    // What it says of further readings is no news.
    let alone = |reading| Interrupts { has_several: false, notes: Vec::new(), ..reading };
    [alone(first), alone(Interrupts::parse_last(after))]
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

impl Server {
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
        // Somebody may have written the job file in an editor of Windows.
        let job = parts.job.map(encoding::text);
        let counters =
            [parts.interrupts, parts.stat, parts.uptime].map(|pair| pair.map(|pair| pair.map(|text| self.part(text))));
        let [interrupts, stat, uptime] =
            counters.each_ref().map(|pair| pair.as_ref().map(|pair| pair.each_ref().map(|text| &**text)));
        let parts = &Parts { job: job.as_deref().map(str::as_bytes), interrupts, stat, uptime, ..*parts };
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
        let of_runs: Vec<Vec<String>> = runs.iter().map(|run| job::names(&run.jobs)).collect();
        for (at, run) in runs.into_iter().enumerate() {
            if is_one {
                self.add_run(&name, run, parts);
            } else {
                let of_run = format!("{name}-{}", of_runs[at].first().map_or("", String::as_str));
                let text = parts.job.map(String::from_utf8_lossy);
                // The file is this run's, or that of all.
                let of_file = |text| part::part(text, &of_runs[at..=at], 0).or_else(|| part::part(text, &of_runs, at));
                let job = text.as_deref().and_then(of_file);
                if text.is_some() && job.is_none() {
                    self.notes.push(format!("{of_run}: {}", part::AMBIGUOUS));
                }
                let job = job.as_deref().map(str::as_bytes);
                self.add_run(&of_run, run, &Parts { interrupts: None, stat: None, uptime: None, job, ..*parts });
            }
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
            if parts.job.is_some() && group.job.is_none() {
                self.notes.push(format!("{}: {}", group.name, part::AMBIGUOUS));
            }
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

/// A name that a file can have.
fn plain(name: &str) -> String {
    let plain: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(80).collect();
    if plain.is_empty() { "job".into() } else { plain }
}

/// The error of an import without a measurement.
pub(super) fn unusable(notes: &[String]) -> InputError {
    let why = if notes.is_empty() { "it holds none".to_owned() } else { notes.join("; ") };
    // A reason that says what would be valid knows better.
    let valid = match why.contains(" valid: ") {
        true => "",
        false => "; valid: fio's JSON with the job's I/Os, from scripts/measure-server or your own runs",
    };
    let problem = Problem::Syntax(format!("no measurement can be used: {why}{valid}"));
    InputError::new(&Place::option("import"), "", problem)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) const FIO: &str = r#"{"fio version": "fio-3.33", "global options": {"ioengine": "libaio", "rw": "randread"},
        "jobs": [{"jobname": "a[b]", "job options": {"name": "a", "filename": "/dev/nvme0n1"},
        "read": {"iops": 1000, "total_ios": 1000, "clat_ns": {"mean": 5000, "max": 9, "N": 1000}}}]}"#;

    #[test]
    fn an_import_of_nothing_says_what_would_be_valid_once() {
        for notes in [&[][..], &["a: fio did no I/O".to_owned()], &["a: cut; valid: a whole file".to_owned()]] {
            let text = unusable(notes).to_string();
            assert_eq!(text.matches("valid: ").count(), 1, "{text}");
        }
    }

    #[test]
    fn a_job_without_its_file_is_made_of_fios_options() {
        let (found, notes) = Measurement::read("x", &Parts { fio: FIO.as_bytes(), ..Parts::default() }).unwrap();
        assert_eq!(found.job, "[global]\nioengine=libaio\nrw=randread\n[ab]\nfilename=/dev/nvme0n1\n");
        assert_eq!((found.delivery(), notes.len(), found.cpu), ("remapped", 0, None));
        let polled = Parts {
            fio: FIO.as_bytes(),
            job: Some(b"[a]\nioengine=io_uring\nhipri=1\ndirect=1\nfilename=/dev/nvme0n1\n"),
            ..Parts::default()
        };
        assert_eq!(Measurement::read("x", &polled).unwrap().0.delivery(), "polled");
    }

    #[test]
    fn a_latency_is_of_reads_or_of_writes() {
        let of = |rw: &str, jobs: &str| {
            let fio = FIO.replace("randread", rw).replace(r#""read": {"iops": 1000, "#, jobs);
            let (found, _) = Measurement::read("x", &Parts { fio: fio.as_bytes(), ..Parts::default() }).unwrap();
            [0, 1, 2].map(|direction| found.clat_ns_of(direction))
        };
        let reads = r#""read": {"iops": 1000, "#;
        assert_eq!(of("randread", reads), [Some(5000.0), None, None]);
        assert_eq!(of("randwrite", &reads.replace("read", "write")), [None, Some(5000.0), None]);
        assert_eq!(
            of("randwrite", &reads.replace("read", "mixed")),
            [None, Some(5000.0), None],
            "of one, fio has no sum"
        );
        let first = r#""write": {"iops": 9, "total_ios": 9, "clat_ns": {"mean": 700, "max": 9, "N": 9}}, "#;
        assert_eq!(of("randrw", &format!("{first}{reads}")), [Some(5000.0), Some(700.0), None]);
        assert_eq!(of("randrw", &reads.replace("read", "mixed")), [None; 3]);
        let trims = reads.replace("read", "trim");
        assert_eq!(of("randtrim", &trims), [None, None, Some(5000.0)]);
        assert_eq!(of("trimwrite", &format!("{first}{trims}")), [None, Some(700.0), Some(5000.0)]);
        assert_eq!(of("trimwrite", &reads.replace("read", "mixed")), [None; 3]);
    }

    #[test]
    fn threads_and_drives_are_those_of_the_sections() {
        // fio printed no options that could stand in for a wrong job file.
        let fio = FIO.replace("options", "remarks");
        let of = |job: &str| {
            let parts = Parts { fio: fio.as_bytes(), job: Some(job.as_bytes()), ..Parts::default() };
            Measurement::read("x", &parts).map(|(found, _)| (found.threads(), found.drives()))
        };
        let two = "[global]\nnumjobs=4\nfilename=/dev/a\n[a]\nrw=read\n[b]\nnumjobs = 2\nfilename=/dev/a:/dev/b\n";
        assert_eq!(of(two), Ok((6, 2)));
        assert!(of("[a]\nnumjobs=x\n").is_err_and(|error| error.starts_with("x: x.fio:2: numjobs: `x`")));
    }

    #[test]
    fn runs_of_one_text_and_files_of_one_name_are_measurements_of_their_own() {
        let mut server = Server::default();
        let other = FIO.replace("randread", "read");
        let stat = Some([&b"cpu 1 1 1 1"[..], b"cpu 2 2 2 2"]);
        let both = [FIO, &other].concat();
        server.add("x", &Parts { fio: both.as_bytes(), stat, ..Parts::default() });
        server.add("a", &Parts { fio: FIO.as_bytes(), stat, ..Parts::default() });
        server.add("a", &Parts { fio: FIO.as_bytes(), ..Parts::default() });
        let names: Vec<(&str, bool)> =
            server.measurements.iter().map(|one| (one.name.as_str(), one.cpu.is_some())).collect();
        assert_eq!(names, [("x-a-b-", false), ("x-a-b--2", false), ("a", true), ("a-2", false)]);
        assert!(server.measurements[1].job.contains("rw=read\n"), "{}", server.measurements[1].job);
        assert!(server.notes[0].contains("2 runs of different jobs"), "{:?}", server.notes);
        let one = |name: &str| FIO.replace("a[b]", name);
        let both = [one("r"), one("w")].concat();
        let job = "[global]\nfilename=/dev/nvme0n1\n[r]\nrw=randread\n[w]\nrw=read\n";
        let mut with_job = Server::default();
        with_job.add("x", &Parts { fio: both.as_bytes(), job: Some(job.as_bytes()), ..Parts::default() });
        let jobs: Vec<&str> = with_job.measurements.iter().map(|one| one.job.as_str()).collect();
        assert!(jobs.len() == 2 && !jobs[0].contains("[w]") && !jobs[1].contains("[r]"), "{jobs:?}");
    }

    #[test]
    fn failed_and_idle_jobs_are_notes() {
        let mut server = Server::default();
        server.add("bad/name", &Parts { fio: b"none", ..Parts::default() });
        let failed = FIO.replace("\"read\"", "\"error\": 5, \"read\"");
        server.add("e", &Parts { fio: failed.as_bytes(), ..Parts::default() });
        server.add("i", &Parts { fio: FIO.replace("1000", "0").as_bytes(), ..Parts::default() });
        assert!(server.measurements.is_empty());
        assert!(server.notes[0].starts_with("bad-name: fio's output holds no JSON"), "{:?}", server.notes);
        assert!(server.notes[1].contains("error 5") && server.notes[2].contains("no I/O"), "{:?}", server.notes);
    }
}
