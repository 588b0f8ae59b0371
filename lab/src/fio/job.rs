//! From sections to jobs.

use super::judge::{engine_name, judge};
use super::options;
use super::{Entry, Reporting, Section};
use crate::input::{InputError, Place, Problem, Warning};
use crate::kinds::storage::{IoEngine, Pattern, Trims};
use crate::setting::Setting;
use hal::CpuSet;
use std::collections::BTreeMap;
use std::sync::Arc;

/// One job section, its options read; `numjobs` is not yet expanded.
#[derive(Clone, PartialEq, Debug)]
pub struct FioJob {
    /// The section's name.
    pub name: String,
    /// The section's line.
    pub place: Place,
    /// The drive.
    pub filename: Setting,
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
    /// Bytes of one I/O.
    pub block_bytes: u32,
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
    /// Pause after every `think_blocks` I/Os.
    pub think_ns: u64,
    /// See `think_ns`.
    pub think_blocks: u32,
    /// The measured run time.
    pub runtime_ns: Option<u64>,
    /// The uncounted run time before it.
    pub ramp_ns: u64,
    /// What it says about its report.
    pub reporting: Arc<Reporting>,
}

/// The jobs of `sections` with `overrides` replacing their own options, and the warnings about options.
///
/// # Errors
/// An option is unknown to fio, or its value is invalid or cannot be honoured.
pub fn jobs(file: &str, sections: &[Section], overrides: &[Entry]) -> Result<(Vec<FioJob>, Vec<Warning>), InputError> {
    let mut warnings = Vec::new();
    let mut globals: Vec<&Entry> = Vec::new();
    let mut jobs = Vec::new();
    for judgement in judge(sections, overrides) {
        warnings.extend(judgement.warnings);
        judgement.error.map_or(Ok(()), Err)?;
    }
    for section in sections {
        if section.is_global() {
            globals.extend(&section.entries);
        } else {
            let entries = globals.iter().copied().chain(&section.entries).chain(overrides);
            let mut job = Options::of(section, entries).read(&mut warnings)?;
            job.reporting = Arc::new(Reporting::read(&section.name, &globals, &section.entries, overrides)?);
            jobs.push(job);
        }
    }
    if jobs.is_empty() {
        let valid = "a section that is not [global], such as [drive-a] with filename=/dev/nvme0n1".into();
        return Err(InputError::new(&Place::file(file), "", Problem::Missing { valid }));
    }
    Ok((jobs, warnings))
}

/// The options of one job. The last option of each name holds.
struct Options<'a> {
    section: &'a Section,
    by_name: BTreeMap<&'a str, &'a Entry>,
    kb_base: u64,
}

impl<'a> Options<'a> {
    fn of(section: &'a Section, entries: impl Iterator<Item = &'a Entry>) -> Self {
        let name = |entry: &'a Entry| {
            let key = entry.setting.key.as_str();
            options::canonical(key.strip_prefix("job.").unwrap_or(key))
        };
        Self { section, by_name: entries.map(|entry| (name(entry), entry)).collect(), kb_base: 1024 }
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

    fn missing(&self, key: &str, valid: &str) -> InputError {
        let key = format!("[{}] {key}", self.section.name);
        InputError::new(&self.section.place, key, Problem::Missing { valid: valid.into() })
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
        let (engine, polled_by) = self.engine()?;
        let iodepth = self.number("iodepth", 1, 1..=65_536)?;
        let (batch_submit, batch_complete_min, batch_complete_max) = self.batches(iodepth)?;
        Ok(FioJob {
            name: self.section.name.clone(),
            place: self.section.place.clone(),
            filename: self.filename()?,
            numjobs: self.number("numjobs", 1, 1..=4096)?,
            cpus: match self.get("cpus_allowed") {
                Some(entry) => Some((entry.cpus()?, entry.setting.clone())),
                None => None,
            },
            split: self.split()?,
            engine,
            polled_by,
            pattern: self.pattern()?,
            block_bytes: self.block()?,
            fsync: self.number("fsync", 0, 0..=1 << 30)?,
            fdatasync: self.number("fdatasync", 0, 0..=1 << 30)?,
            iodepth,
            batch_submit,
            batch_complete_min,
            batch_complete_max,
            think_ns: self.get("thinktime").map_or(Ok(0), |entry| entry.time_ns(1_000))?,
            think_blocks: self.number("thinktime_blocks", 1, 1..=1_000_000)?,
            runtime_ns: self.get("runtime").map(|entry| entry.time_ns(1_000_000_000)).transpose()?,
            ramp_ns: self.get("ramp_time").map_or(Ok(0), |entry| entry.time_ns(1_000_000_000))?,
            reporting: Arc::default(),
        })
    }

    /// fio's default is buffered I/O; the simulation has direct I/O only.
    fn check_direct(&self, warnings: &mut Vec<Warning>) -> Result<(), InputError> {
        match self.get("direct") {
            Some(entry) => entry.flag().map(|_| ()),
            None => {
                warnings.push(Warning {
                    place: self.section.place.clone(),
                    key: "direct".into(),
                    meaning: "not given: fio would go through the page cache, the simulated job does not (direct=1)"
                        .into(),
                });
                Ok(())
            }
        }
    }

    fn filename(&self) -> Result<Setting, InputError> {
        let valid = "the drive's name: filename=/dev/nvme0n1";
        let entry = self.get("filename").ok_or_else(|| self.missing("filename", valid))?;
        if entry.text(valid)?.contains(':') {
            return Err(entry.wrong("names several drives", "one drive a job section"));
        }
        Ok(entry.setting.clone())
    }

    fn engine(&self) -> Result<(IoEngine, Option<Setting>), InputError> {
        let valid = "libaio or io_uring";
        let Some(entry) = self.get("ioengine") else {
            return Err(self.missing("ioengine", valid));
        };
        match engine_name(entry.text(valid)?) {
            "libaio" => Ok((IoEngine::Libaio, None)),
            "io_uring" => {
                let polled = self.flag("hipri")?;
                let engine = IoEngine::IoUring {
                    fixed_buffers: self.flag("fixedbufs")?,
                    registered_files: self.flag("registerfiles")?,
                    polled,
                };
                let polled_by = self.get("hipri").filter(|_| polled).map(|entry| entry.setting.clone());
                Ok((engine, polled_by))
            }
            _ => Err(entry.wrong("is an engine that is not modelled", valid)),
        }
    }

    /// Batch sizes: I/Os submitted at once, completions waited for, completions taken at once. Each is limited to the
    /// depth, as in fio.
    fn batches(&self, iodepth: u32) -> Result<(u32, u32, u32), InputError> {
        let submit = match self.number("iodepth_batch", 1, 0..=65_536)? {
            0 => iodepth,
            submit => submit.min(iodepth),
        };
        let min = self.number("iodepth_batch_complete_min", 1, 0..=65_536)?.min(iodepth);
        let max = self.number("iodepth_batch_complete_max", 0, 0..=65_536)?;
        Ok((submit, min, max.max(min).max(1)))
    }

    fn split(&self) -> Result<bool, InputError> {
        let valid = "shared or split";
        let Some(entry) = self.get("cpus_allowed_policy") else { return Ok(false) };
        match entry.text(valid)? {
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
        let (random, read_percent, trims) = match entry.text(valid)? {
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

    fn mix(&self) -> Result<u8, InputError> {
        let read = self.number("rwmixread", 50, 0..=100)?;
        match self.get("rwmixwrite") {
            Some(entry) => {
                let write = entry.number(0..=100, self.kb_base)? as u32;
                if self.get("rwmixread").is_some() && read + write != 100 {
                    return Err(entry.wrong(format!("and rwmixread={read} do not add up"), (100 - read).to_string()));
                }
                Ok((100 - write) as u8)
            }
            None => Ok(read as u8),
        }
    }

    /// `bs=4k`, or the same size for reads, writes and trims: `4k,4k,4k`.
    fn block(&self) -> Result<u32, InputError> {
        let Some(entry) = self.get("bs") else { return Ok(4096) };
        let parts: Vec<&str> = entry.setting.text.split(',').filter(|part| !part.is_empty()).collect();
        let sizes: Vec<u64> = parts
            .iter()
            .map(|part| {
                let setting = Setting { text: (*part).to_owned(), ..entry.setting.clone() };
                Entry { setting, bare: false }.number(512..=16 << 20, self.kb_base)
            })
            .collect::<Result<_, _>>()?;
        match sizes[..] {
            [] => Err(entry.wrong("has no value", "one size: bs=4k")),
            [first, ..] if sizes.iter().all(|&size| size == first) => Ok(first as u32),
            _ => Err(entry.wrong("has different sizes for reads and writes, which is not modelled", "one size: bs=4k")),
        }
    }
}
