//! From sections to jobs.

mod engine;
mod load;
mod pace;
mod values;
mod whole;

pub use engine::drive_of;
pub(super) use load::BLOCK_MAX;

use super::judge::judge;
use super::options;
use super::replay::Replay;
use super::{Entry, Reporting, Section};
use crate::input::{InputError, Place, Problem, Warning};
use crate::kinds::storage::load::Load;
use crate::kinds::storage::{IoEngine, Pattern, Trims};
use crate::setting::Setting;
use hal::{CpuId, CpuSet};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The largest number of an option of 32 bits.
const NUMBER_MAX: u64 = u32::MAX as u64;
/// The most files of a job.
const NRFILES_MAX: u64 = 65_536;

/// One job section, its options read; `numjobs` is not yet expanded.
#[derive(Clone, PartialEq, Debug)]
pub struct FioJob {
    /// The section's name.
    pub name: String,
    /// What reports call its first thread, and `wait_for` all of them: its option `name`, or the section's name.
    pub title: String,
    /// The section's line.
    pub place: Place,
    /// The names of its drives and files, between colons; none: fio's own names.
    pub filename: Option<Setting>,
    /// `directory`: where its files are.
    pub directory: Option<String>,
    /// Files with fio's own names.
    pub nrfiles: u32,
    /// `stonewall` or `new_group`: a new reporting group begins.
    pub begins_group: bool,
    /// Threads.
    pub numjobs: u32,
    /// The CPUs that they may run on, with the option that sets them.
    pub cpus: Option<(CpuSet, Setting)>,
    /// Each thread gets one of these CPUs (`cpus_allowed_policy=split`).
    pub split: bool,
    /// How it submits.
    pub engine: IoEngine,
    /// The `hipri` option, if it asks for polling.
    pub polled_by: Option<Setting>,
    /// Its mix of reads and writes.
    pub pattern: Pattern,
    /// Bytes of one I/O, at most.
    pub block_bytes: u32,
    /// True if it says whether it goes through the page cache.
    pub says_direct: bool,
    /// Its sizes, order, ends and pace.
    pub load: Load,
    /// An fsync after so many writes; 0: none.
    pub fsync: u32,
    /// An fdatasync, likewise.
    pub fdatasync: u32,
    /// I/Os in flight.
    pub iodepth: u32,
    /// I/Os submitted by one call.
    pub batch_submit: u32,
    /// Completions that a call waits for.
    pub batch_complete_min: u32,
    /// Completions that a call takes at most.
    pub batch_complete_max: u32,
    /// The logs that it repeats in place of I/Os of its own.
    pub replay: Option<Replay>,
    /// What it says about its report.
    pub reporting: Arc<Reporting>,
}

impl FioJob {
    /// True if it has no file to do I/O on (`nrfiles=0`).
    fn has_no_file(&self) -> bool {
        self.nrfiles == 0 && self.filename.is_none() && self.replay.is_none()
    }

    /// Clones of the section whose files may differ from those of the first.
    pub fn distinct_clones(&self) -> u32 {
        match (&self.replay, &self.filename) {
            (Some(replay), _) => self.numjobs.min(replay.logs.len() as u32),
            (None, Some(_)) => 1,
            (None, None) => self.numjobs,
        }
    }

    /// The names of the files of the section's thread number `clone`.
    pub fn file_names(&self, clone: u32) -> Vec<String> {
        let within = |name: &str| match &self.directory {
            Some(directory) if !name.starts_with('/') => format!("{}/{name}", directory.trim_end_matches('/')),
            _ => name.to_owned(),
        };
        if let Some(log) = self.replay.as_ref().and_then(|replay| replay.log(clone)) {
            return log.files.clone();
        }
        match &self.filename {
            Some(setting) => split_names(&setting.text).iter().map(|name| within(name)).collect(),
            None => (0..self.nrfiles).map(|file| within(&format!("{}.{clone}.{file}", self.name))).collect(),
        }
    }
}

/// Names between colons. A backslash takes the meaning of a colon behind it away, and else stands for itself, as in
/// `\\.\PhysicalDrive1`. Source: fio, `get_next_str` in `options.c`.
pub(crate) fn split_names(text: &str) -> Vec<String> {
    let mut names = vec![String::new()];
    for letter in text.chars() {
        let name = names.last_mut().expect("it begins with one");
        match letter {
            ':' if name.ends_with('\\') => {
                name.pop();
                name.push(':');
            }
            ':' => names.push(String::new()),
            letter => name.push(letter),
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

/// The jobs of `sections` with `overrides` replacing their own options, and the warnings about options.
///
/// # Errors
/// An option is unknown to fio, or its value is invalid or cannot be honoured.
pub fn jobs(file: &str, sections: &[Section], overrides: &[Entry]) -> Result<(Vec<FioJob>, Vec<Warning>), InputError> {
    let mut warnings = Vec::new();
    let mut globals: Vec<&Entry> = Vec::new();
    let mut jobs: Vec<FioJob> = Vec::new();
    let mut created = Created::default();
    for judgement in judge(sections, overrides) {
        warnings.extend(judgement.warnings);
        judgement.error.map_or(Ok(()), Err)?;
    }
    for section in sections {
        if section.is_global() {
            let names = section.entries.iter().filter(|entry| name_of(entry) == "name");
            warnings.extend(names.map(|Entry { setting, .. }| Warning {
                place: setting.place.clone(),
                key: setting.key.clone(),
                meaning: "of no effect in [global]: a job has its section's name".into(),
            }));
            globals.extend(&section.entries);
        } else {
            let options = Options::of(section, &globals, overrides);
            let wait_for = options.wait(&jobs, &created.sections)?;
            let only_creates = options.flag("create_only")?;
            let mut job = options.read(&mut warnings)?;
            let has_no_file = job.has_no_file();
            if has_no_file {
                let meaning = "0: the section has no file, does no I/O and is left out".into();
                warnings.push(Warning { place: job.place.clone(), key: "nrfiles".into(), meaning });
            }
            if only_creates || has_no_file {
                created.add(job);
                continue;
            }
            let mut reporting = Reporting::read(&job.title, &globals, &section.entries, overrides)?;
            created.pass_on(&mut job);
            job.load.start.wait_for = wait_for;
            reporting.begins_group |= job.begins_group;
            job.reporting = Arc::new(reporting);
            jobs.push(job);
        }
    }
    whole::groups_agree(&jobs)?;
    if let Some(place) = created.place.filter(|_| jobs.is_empty()) {
        let why = "is a section that does no I/O, and there is no other (create_only, nrfiles=0)";
        return Err(InputError::value(&place, "", &created.sections[0], why, "a section that does"));
    }
    if jobs.is_empty() {
        let valid = "a section that is not [global], such as [drive-a] with filename=/dev/nvme0n1".into();
        return Err(InputError::new(&Place::file(file), "[job]", Problem::Missing { valid }));
    }
    Ok((jobs, warnings))
}

/// Sections that only create files, which is done before the run, or have none: nothing is left of them but their walls.
#[derive(Default)]
struct Created {
    /// What `wait_for` calls them.
    sections: Vec<String>,
    place: Option<Place>,
    /// One since the last job has `stonewall`, or begins a group.
    stonewall: bool,
    begins_group: bool,
}

impl Created {
    fn add(&mut self, job: FioJob) {
        self.stonewall |= job.load.start.stonewall;
        self.begins_group |= job.begins_group;
        self.sections.push(job.title);
        self.place.get_or_insert(job.place);
    }

    /// The next job stands behind their walls.
    fn pass_on(&mut self, job: &mut FioJob) {
        job.load.start.stonewall |= std::mem::take(&mut self.stonewall);
        job.begins_group |= std::mem::take(&mut self.begins_group);
    }
}

/// Options that set one thing: the last of a pair holds.
const PAIRS: [[&str; 2]; 3] = [["direct", "buffered"], ["rwmixread", "rwmixwrite"], ["cpus_allowed", "cpumask"]];

/// The options of one job. The last option of each name holds.
struct Options<'a> {
    section: &'a Section,
    globals: &'a [&'a Entry],
    by_name: BTreeMap<&'a str, &'a Entry>,
    /// Every `filename`: fio adds those of a job to those of its `[global]`.
    filenames: Vec<&'a Entry>,
    kb_base: u64,
}

/// The option that an entry sets, by its main name.
fn name_of(entry: &Entry) -> &str {
    let key = entry.setting.key.as_str();
    options::canonical(key.strip_prefix("job.").unwrap_or(key))
}

impl<'a> Options<'a> {
    fn of(section: &'a Section, globals: &'a [&'a Entry], overrides: &'a [Entry]) -> Self {
        let own = || globals.iter().copied().chain(&section.entries);
        let named = |entry: &&Entry| name_of(entry) == "filename";
        let mut filenames: Vec<&Entry> = overrides.iter().filter(named).collect();
        if filenames.is_empty() {
            filenames = own().filter(named).collect();
        }
        let mut by_name = BTreeMap::new();
        for entry in own().chain(overrides) {
            let name = name_of(entry);
            for other in PAIRS.iter().filter(|pair| pair.contains(&name)).flatten() {
                by_name.remove(other);
            }
            by_name.insert(name, entry);
        }
        Self { section, globals, by_name, filenames, kb_base: 1024 }
    }

    fn get(&self, name: &str) -> Option<&'a Entry> {
        self.by_name.get(options::canonical(name)).copied()
    }

    fn flag(&self, name: &str) -> Result<bool, InputError> {
        self.get(name).map_or(Ok(false), Entry::flag)
    }

    fn number(&self, name: &str, default: u32, range: std::ops::RangeInclusive<u64>) -> Result<u32, InputError> {
        self.get(name).map_or(Ok(default), |entry| entry.number(range, self.kb_base).map(|value| value as u32))
    }

    fn read(mut self, warnings: &mut Vec<Warning>) -> Result<FioJob, InputError> {
        self.kb_base = match self.get("kb_base") {
            Some(entry) => match entry.number(1000..=1024, 1024)? {
                base @ (1000 | 1024) => base,
                _ => return Err(entry.wrong("is no base", "1000 or 1024")),
            },
            None => 1024,
        };
        self.check_direct(warnings)?;
        let (engine, polled_by) = self.engine(warnings)?;
        let iodepth = self.depth(engine, warnings)?;
        let mut load = self.load()?;
        load.depth_low = if load.pace.offloads { iodepth } else { load.depth_low.min(iodepth) };
        let begins_group = load.start.stonewall || self.flag("new_group")?;
        let pattern = self.pattern()?;
        let directions = Load::directions(&pattern);
        if load.syncs.buffered && directions[0] && !pattern.random {
            self.warn(
                warnings,
                "direct",
                "0 with sequential reads: the kernel's read-ahead is not simulated, so fio is faster",
            );
        }
        let largest = (0..3).filter(|&direction| directions[direction] || load.order.sizes_by_order);
        let block_bytes = largest.map(|direction| load.sizes[direction].max).max().unwrap_or(4096) as u32;
        let (batch_submit, batch_complete_min, batch_complete_max) = match load.pace.offloads {
            // Each of its threads has one I/O (fio's rate-submit.c).
            true => (1, 1, iodepth),
            false => self.batches(iodepth)?,
        };
        let job = FioJob {
            name: self.section.name.clone(),
            title: self.title(),
            place: self.section.place.clone(),
            filename: self.filename(warnings)?,
            directory: self.get("directory").map(|entry| entry.text("a directory").map(str::to_owned)).transpose()?,
            nrfiles: self.number("nrfiles", 1, 0..=NRFILES_MAX)?,
            begins_group,
            numjobs: self.number("numjobs", 1, 1..=4096)?,
            cpus: self.cpus()?,
            split: self.split()?,
            engine,
            polled_by,
            pattern,
            block_bytes,
            says_direct: self.says_direct(),
            load,
            fsync: self.number("fsync", 0, 0..=1 << 30)?,
            fdatasync: self.number("fdatasync", 0, 0..=1 << 30)?,
            iodepth,
            batch_submit,
            batch_complete_min,
            batch_complete_max,
            replay: Replay::of(|name| self.get(name), self.kb_base)?,
            reporting: Arc::default(),
        };
        self.agree(&job)?;
        Ok(job)
    }

    /// The section's own option `name`, or its name. One in `[global]` names no job.
    fn title(&self) -> String {
        let own = self.get("name").filter(|name| !self.globals.iter().any(|global| std::ptr::eq(*global, *name)));
        own.map_or(&self.section.name, |entry| &entry.setting.text).clone()
    }

    /// `cpus_allowed`, or the bits of `cpumask`.
    fn cpus(&self) -> Result<Option<(CpuSet, Setting)>, InputError> {
        if let Some(entry) = self.get("cpus_allowed") {
            return Ok(Some((entry.cpus()?, entry.setting.clone())));
        }
        let Some(entry) = self.get("cpumask") else { return Ok(None) };
        let mask = entry.number(0..=u64::from(u32::MAX), self.kb_base)?;
        let mut set = CpuSet::new();
        (0..u32::BITS).filter(|cpu| mask >> cpu & 1 == 1).for_each(|cpu| set.insert(CpuId(cpu)));
        if mask == 0 {
            Err(entry.wrong("names no CPU", "0x3 for CPUs 0 and 1"))
        } else {
            Ok(Some((set, entry.setting.clone())))
        }
    }

    /// A warning about the section.
    fn warn(&self, warnings: &mut Vec<Warning>, key: &str, meaning: impl Into<String>) {
        warnings.push(Warning { place: self.section.place.clone(), key: key.into(), meaning: meaning.into() });
    }

    fn filename(&self, warnings: &mut Vec<Warning>) -> Result<Option<Setting>, InputError> {
        let valid = "the drive's name: filename=/dev/nvme0n1";
        let mut names: Vec<&str> = Vec::new();
        for entry in &self.filenames {
            if split_names(entry.text(valid)?).is_empty() {
                return Err(entry.wrong("names no file", valid));
            }
            names.push(&entry.setting.text);
        }
        let Some(last) = self.filenames.last() else { return Ok(None) };
        let text = names.join(":");
        if names.len() > 1 {
            let meaning = format!("fio adds it to those before it: the job has `{text}`");
            warnings.push(Warning { place: last.setting.place.clone(), key: "filename".into(), meaning });
        }
        Ok(Some(Setting { text, ..last.setting.clone() }))
    }

    /// Batch sizes: I/Os submitted at once, completions waited for, completions taken at once. Each is limited to the
    /// depth, as in fio.
    fn batches(&self, iodepth: u32) -> Result<(u32, u32, u32), InputError> {
        let submit = match self.number("iodepth_batch", 1, 0..=NUMBER_MAX)? {
            0 => iodepth,
            submit => submit.min(iodepth),
        };
        let min = self.number("iodepth_batch_complete_min", 1, 0..=NUMBER_MAX)?.min(iodepth);
        let max = self.number("iodepth_batch_complete_max", 0, 0..=NUMBER_MAX)?.min(iodepth);
        Ok((submit, min, max.max(min).max(1)))
    }

    fn split(&self) -> Result<bool, InputError> {
        let valid = "shared or split";
        let Some(entry) = self.get("cpus_allowed_policy") else { return Ok(false) };
        entry.text(valid)?;
        match entry.word() {
            "shared" => Ok(false),
            "split" => Ok(true),
            _ => Err(entry.wrong("is no policy", valid)),
        }
    }

    fn pattern(&self) -> Result<Pattern, InputError> {
        let valid =
            "read, write, randread, randwrite, rw, readwrite, randrw, trim, randtrim, trimwrite or randtrimwrite";
        let default = Pattern { random: false, read_percent: 100, trims: Trims::None };
        let Some(entry) = self.get("rw") else { return Ok(default) };
        entry.text(valid)?;
        let (random, read_percent, trims) = match entry.word() {
            "read" => (false, 100, Trims::None),
            "write" => (false, 0, Trims::None),
            "randread" => (true, 100, Trims::None),
            "randwrite" => (true, 0, Trims::None),
            "rw" | "readwrite" => (false, self.mix()?, Trims::None),
            "randrw" => (true, self.mix()?, Trims::None),
            "trim" => (false, 0, Trims::Alone),
            "randtrim" => (true, 0, Trims::Alone),
            "trimwrite" => (false, 0, Trims::ThenWrite),
            "randtrimwrite" => (true, 0, Trims::ThenWrite),
            _ => return Err(entry.wrong("is a pattern that is not modelled", valid)),
        };
        Ok(Pattern { random, read_percent, trims })
    }

    /// The share of reads in per cent.
    fn mix(&self) -> Result<u8, InputError> {
        match self.get("rwmixwrite") {
            Some(entry) => Ok(100 - entry.number(0..=100, self.kb_base)? as u8),
            None => self.number("rwmixread", 50, 0..=100).map(|read| read as u8),
        }
    }
}
