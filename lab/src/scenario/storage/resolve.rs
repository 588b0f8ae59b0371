//! Jobs become threads on CPUs, filenames become drives, and nothing is left open.

use super::StorageDraft;
use crate::fio::FioJob;
use crate::input::{InputError, Warning};
use crate::plan::{Delivery, DrivePlan, Experiment, IoEngine, JobPlan, Spans, Storage, Variant};
use crate::scenario::Resolved;
use crate::scenario::draft::{Asked, Draft};
use crate::setting::Setting;
use hal::{CpuId, CpuSet};

/// The most threads of one experiment: 1,024 CPUs with 16 each.
const THREADS_MAX: u64 = 16_384;

/// Everything that a plan's part of storage is made of.
pub(super) struct Resolve<'a> {
    pub(super) draft: &'a Draft,
    pub(super) storage: &'a StorageDraft,
    pub(super) jobs: Vec<FioJob>,
    pub(super) warnings: Vec<Warning>,
    pub(super) asked: Option<Asked>,
}

impl Resolve<'_> {
    pub(super) fn finish(mut self) -> Result<Resolved, InputError> {
        let cpus = self.cpus()?;
        let deliveries = self.deliveries()?;
        let drives = self.drives(cpus)?;
        let jobs = self.threads(cpus, &drives)?;
        let spans = self.spans();
        let StorageDraft { check_queue, reap_bound, verify_data, rogue_msi_ns, .. } = *self.storage;
        Ok(Resolved {
            cpus,
            experiment: Experiment::Storage(Storage {
                drives,
                jobs,
                check_queue,
                reap_bound,
                verify_data,
                rogue_msi_ns,
            }),
            variants: deliveries.into_iter().map(Variant::Delivery).collect(),
            spans,
            warnings: self.warnings,
        })
    }

    /// The CPUs of the machine: those that are asked for, else as many as the jobs name, else the platform's.
    fn cpus(&self) -> Result<u32, InputError> {
        let last = |job: &FioJob| job.cpus.as_ref().map(|(set, _)| set.iter().last().map_or(0, |cpu| cpu.0 + 1));
        let named: Option<Vec<u32>> = self.jobs.iter().map(last).collect();
        self.draft.cpus_or(named.map(|named| named.into_iter().max().unwrap_or(1).max(1)))
    }

    /// What is compared: what was asked for, else polling when every job asks for it, else both kinds of interrupt.
    fn deliveries(&mut self) -> Result<Vec<Delivery>, InputError> {
        let all_polled = self.jobs.iter().all(|job| job.polled_by.is_some());
        let Some(asked) = &self.asked else {
            return Ok(if all_polled { vec![Delivery::Polled] } else { vec![Delivery::Remapped, Delivery::Posted] });
        };
        let (place, deliveries) = (&asked.place, asked.each(parse_delivery)?);
        if deliveries.contains(&Delivery::Polled)
            && let Some(job) = self.jobs.iter().find(|job| job.engine == IoEngine::Libaio)
        {
            let why = format!("cannot serve job [{}] ({}): libaio has no polled queues", job.name, job.place);
            return Err(InputError::value(place, "", Delivery::Polled, why, "ioengine=io_uring, or remapped, posted"));
        }
        if all_polled && deliveries.iter().any(|&delivery| delivery != Delivery::Polled) {
            for job in &mut self.jobs {
                if let IoEngine::IoUring { polled, .. } = &mut job.engine {
                    *polled = false;
                }
                let Some(setting) = job.polled_by.take() else { continue };
                let meaning =
                    format!("the deliveries asked for ({place}) stand over it: polled only where they say so");
                let warning = Warning { place: setting.place, key: "hipri".into(), meaning };
                if !self.warnings.contains(&warning) {
                    self.warnings.push(warning);
                }
            }
        }
        Ok(deliveries)
    }

    /// One drive a distinct filename, in the order of their first job.
    fn drives(&self, cpus: u32) -> Result<Vec<DrivePlan>, InputError> {
        let mut names: Vec<&str> = Vec::new();
        for job in &self.jobs {
            if !names.contains(&job.filename.text.as_str()) {
                names.push(&job.filename.text);
            }
        }
        self.storage.check_drive_names(&names)?;
        names.into_iter().map(|name| self.storage.drive(&self.draft.platform, name, cpus)).collect()
    }

    /// One entry a thread. Under `split` thread n of the whole file gets CPU n (modulo their number) of its set, as
    /// in fio, which counts threads over all jobs.
    fn threads(&self, cpus: u32, drives: &[DrivePlan]) -> Result<Vec<JobPlan>, InputError> {
        let mut threads = Vec::new();
        for job in &self.jobs {
            if threads.len() as u64 + u64::from(job.numjobs) > THREADS_MAX {
                let valid = format!("{THREADS_MAX} threads over all jobs");
                return Err(InputError::value(&job.place, "numjobs", job.numjobs, "makes too many threads", valid));
            }
            let allowed = allowed(job, cpus)?;
            let drive = drives.iter().position(|drive| drive.name == job.filename.text).expect("made from the jobs");
            for number in 0..job.numjobs {
                let cpus = if job.split {
                    let nth = threads.len() % allowed.len() as usize;
                    CpuSet::of(allowed.iter().nth(nth).expect("below its length"))
                } else {
                    allowed.clone()
                };
                let name = if job.numjobs == 1 { job.name.clone() } else { format!("{}.{number}", job.name) };
                threads.push(thread(job, name, drive, cpus));
            }
        }
        Ok(threads)
    }

    fn spans(&self) -> Spans {
        let asked_runtime_ns = self.jobs.iter().filter_map(|job| job.runtime_ns).max();
        let shortest = asked_runtime_ns.filter(|&runtime_ns| runtime_ns > 0).unwrap_or(u64::MAX);
        Spans {
            asked_ramp_ns: self.jobs.iter().map(|job| job.ramp_ns).max().unwrap_or(0),
            asked_runtime_ns,
            ..self.draft.spans(shortest)
        }
    }
}

/// Where a job may run: what it says, else everywhere.
fn allowed(job: &FioJob, cpus: u32) -> Result<CpuSet, InputError> {
    let Some((set, setting)) = &job.cpus else { return Ok(CpuSet::first(cpus)) };
    match set.iter().find(|cpu| cpu.0 >= cpus) {
        Some(CpuId(cpu)) => {
            Err(setting.wrong(format!("names CPU {cpu}, which does not exist"), format!("CPUs 0-{}", cpus - 1)))
        }
        None => Ok(set.clone()),
    }
}

fn thread(job: &FioJob, name: String, drive: usize, cpus: CpuSet) -> JobPlan {
    JobPlan {
        name,
        source: job.place.clone(),
        drive,
        cpus,
        engine: job.engine,
        pattern: job.pattern,
        block_bytes: job.block_bytes,
        iodepth: job.iodepth,
        batch_submit: job.batch_submit,
        batch_complete_min: job.batch_complete_min,
        batch_complete_max: job.batch_complete_max,
        think_ns: job.think_ns,
        think_blocks: job.think_blocks,
    }
}

/// A delivery by its name.
fn parse_delivery(setting: &Setting) -> Result<Delivery, InputError> {
    let found = Delivery::ALL.into_iter().find(|delivery| delivery.name() == setting.text.trim());
    found.ok_or_else(|| setting.wrong("is no delivery", "remapped, posted, polled"))
}
