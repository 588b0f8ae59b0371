//! What fio checks of a whole job once its options are read: those that exclude or need each other (`fixup_options`,
//! `wait_for_ok` and `verify_per_group_options` of fio's `init.c`). `fio --parse-only` does not get so far.

use super::{FioJob, Options, split_names};
use crate::fio::Entry;
use crate::input::InputError;
use crate::kinds::storage::load::Amount;

/// fio's `dedupe_working_set_percentage` without the option.
const WORKING_SET_PERCENT: u32 = 5;

impl Options<'_> {
    /// # Errors
    /// fio would not run the job.
    pub(super) fn agree(&self, job: &FioJob) -> Result<(), InputError> {
        let files = job.filename.as_ref().map_or(job.nrfiles as usize, |names| split_names(&names.text).len());
        self.devices_agree()?;
        self.zones_agree()?;
        self.rates_agree(job)?;
        self.sizes_agree(job, files as u64)?;
        self.dedupe_agrees(files)?;
        match self.get("block_error_percentiles") {
            Some(entry) if files != 1 && entry.flag()? => Err(entry.wrong("is for one file", "a job with one file")),
            _ => Ok(()),
        }
    }

    fn zones_agree(&self) -> Result<(), InputError> {
        let size = self.get("zonesize").map(|entry| entry.number(0..=1 << 61, self.kb_base)).transpose()?;
        let mode = self.get("zonemode").map_or("none", Entry::word);
        match (self.get("zonemode"), self.get("zonesize")) {
            (_, Some(entry)) if mode == "none" && size > Some(0) => {
                Err(entry.wrong("is not for zonemode=none", "zonesize with zonemode=strided"))
            }
            (Some(entry), _) if mode == "strided" && size.unwrap_or(0) == 0 => {
                Err(entry.wrong("needs a zonesize", "zonemode=strided with zonesize=1g and the like"))
            }
            _ => Ok(()),
        }
    }

    fn rates_agree(&self, job: &FioJob) -> Result<(), InputError> {
        let pace = &job.load.pace;
        let is_set = |rates: &[u64; 3]| rates.iter().any(|&rate| rate > 0);
        let pairs =
            [(pace.bytes, "rate_iops", pace.ios, "rate"), (pace.bytes_min, "rate_iops_min", pace.ios_min, "rate_min")];
        for (bytes, name, ios, other) in pairs {
            if let Some(entry) = self.get(name).filter(|_| is_set(&bytes) && is_set(&ios)) {
                return Err(entry.wrong(format!("and {other} exclude each other"), format!("{name} or {other}")));
            }
        }
        for (name, rates, least) in
            [("rate_min", pace.bytes, pace.bytes_min), ("rate_iops_min", pace.ios, pace.ios_min)]
        {
            let is_more = rates.iter().zip(least).any(|(&rate, least)| rate > 0 && rate < least);
            if let Some(entry) = self.get(name).filter(|_| is_more) {
                return Err(entry.wrong("is more than the rate itself", "a rate that the job may fall to"));
            }
        }
        Ok(())
    }

    fn sizes_agree(&self, job: &FioJob, files: u64) -> Result<(), InputError> {
        let smallest = job.load.sizes.iter().map(|sizes| sizes.min).min().unwrap_or(0);
        let (size, file_size) = (job.load.files.size, job.load.files.file_size);
        let too_small = [
            ("size", matches!(size, Some(Amount::Bytes(bytes)) if bytes < smallest)),
            ("filesize", file_size.is_some_and(|(_, most)| most.saturating_mul(files) < smallest)),
        ];
        for (name, _) in too_small.into_iter().filter(|(_, is_too_small)| *is_too_small) {
            if let Some(entry) = self.get(name) {
                let as_read = entry.as_read(self.kb_base);
                let why = format!("is less than the smallest I/O of {smallest} bytes{as_read}");
                return Err(entry.wrong(why, format!("{smallest} or more")));
            }
        }
        Ok(())
    }

    fn dedupe_agrees(&self, files: usize) -> Result<(), InputError> {
        let Some(entry) = self.get("dedupe_mode").filter(|entry| entry.word() == "working_set") else {
            return Ok(());
        };
        let percent = self.number("dedupe_percentage", 0, 0..=100)?;
        let working_set = self.number("dedupe_working_set_percentage", WORKING_SET_PERCENT, 0..=100)?;
        match percent {
            0 => Ok(()),
            _ if self.get("size").is_none() => Err(entry.wrong("needs a size", "size=1g and the like")),
            _ if files != 1 => Err(entry.wrong("is for one file", "a job with one file")),
            _ if percent + working_set > 100 => {
                let why = format!("leaves no {percent} % beside the working set of {working_set} %");
                Err(entry.wrong(why, "percentages of 100 together"))
            }
            _ => Ok(()),
        }
    }

    /// The section that the job waits for: one of those before it, by its name or by its option `name`. None if it waits
    /// for one of `created`, which do nothing.
    pub(super) fn wait(&self, before: &[FioJob], created: &[String]) -> Result<Option<String>, InputError> {
        let Some(entry) = self.get("wait_for") else { return Ok(None) };
        let valid = "the name of a section before this one";
        let name = entry.text(valid)?;
        if name == self.section.name {
            return Err(entry.wrong("is the section itself", valid));
        }
        let mut found = before.iter().filter(|job| job.title == name);
        match (found.next(), found.next()) {
            (Some(job), None) => Ok(Some(job.name.clone())),
            (Some(_), Some(_)) => Err(entry.wrong("is the name of several sections", valid)),
            (None, _) if created.iter().any(|section| section == name) => Ok(None),
            (None, _) => Err(entry.wrong("is no section before this one", valid)),
        }
    }
}

/// With `group_reporting`, all jobs of a group have percentiles of total latency, or none has.
pub(super) fn groups_agree(jobs: &[FioJob]) -> Result<(), InputError> {
    let has = |job: &FioJob| job.reporting.has_percentiles[2] && !job.reporting.is_disabled[2];
    let mut first = 0;
    for (index, job) in jobs.iter().enumerate() {
        if job.begins_group {
            first = index;
        }
        if job.reporting.is_grouped && jobs[first..index].iter().any(|other| has(other) != has(job)) {
            let value = if has(job) { "1" } else { "0" };
            let why = "differs from the jobs before it in its reporting group";
            return Err(InputError::value(&job.place, "lat_percentiles", value, why, "one value for a group"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::fio;

    /// Why fio would not run the job `[b]` with these lines, which follows `[a]`; its name and its waiting if it would.
    fn with(lines: &str) -> Result<Option<String>, String> {
        let text = format!("[a]\nioengine=null\nfilename=x\nsize=64k\n[b]\nioengine=null\nfilename=x\n{lines}");
        let sections = fio::sections("j.fio", text.as_bytes(), &|_, _| Err("no".into())).unwrap();
        let (jobs, _) = fio::jobs("j.fio", &sections, &[]).map_err(|error| error.to_string())?;
        Ok(jobs.last().unwrap().load.start.wait_for.clone())
    }

    #[test]
    fn what_fio_does_not_run_is_refused() {
        let refused = [
            ("rate_iops=100\nrate_iops_min=200", "rate_iops_min: `200` is more than the rate itself"),
            ("rate=1m,2m\nrate_min=1m,4m", "rate_min: `1m,4m` is more than the rate itself"),
            ("rate=1m\nrate_iops=10", "rate_iops: `10` and rate exclude each other"),
            ("rate_min=1m\nrate_iops_min=10", "rate_iops_min: `10` and rate_min exclude each other"),
            ("zonesize=4k", "zonesize: `4k` is not for zonemode=none"),
            ("zonemode=strided", "zonemode: `strided` needs a zonesize"),
            ("size=4095", "size: `4095` is less than the smallest I/O of 4096 bytes"),
            ("bs=4k,1k\nsize=1000", "size: `1000` is less than the smallest I/O of 1024 bytes"),
            ("filesize=1k", "filesize: `1k` is less than the smallest I/O"),
            ("dedupe_percentage=50\ndedupe_mode=working_set", "dedupe_mode: `working_set` needs a size"),
            (
                "size=1m\ndedupe_percentage=50\ndedupe_mode=working_set\ndedupe_working_set_percentage=60",
                "dedupe_mode: `working_set` leaves no 50 %",
            ),
            ("filename=y\nblock_error_percentiles=1", "block_error_percentiles: `1` is for one file"),
            ("wait_for=b", "wait_for: `b` is the section itself"),
            ("wait_for=c\n[c]\nfilename=x", "wait_for: `c` is no section before this one"),
            ("name=a\n[c]\nfilename=x\nwait_for=a", "wait_for: `a` is the name of several sections"),
            ("group_reporting\nlat_percentiles=1", "lat_percentiles: `1` differs from the jobs before it"),
            ("cpumask=0", "cpumask: `0` names no CPU"),
        ];
        for (lines, why) in refused {
            let error = with(lines).unwrap_err();
            assert!(error.contains(why), "{lines}: {error}");
        }
    }

    #[test]
    fn what_fio_runs_is_taken() {
        for lines in [
            "rate_iops=100\nrate_iops_min=100",
            "rate=1m,,\nrate_min=1m",
            "rate=1m\nrate_iops=0",
            "zonemode=strided\nzonesize=4k",
            "zonesize=0",
            "size=4k",
            "filesize=2k\nfilename=y",
            "dedupe_mode=working_set",
            "block_error_percentiles=1",
            "group_reporting\nlat_percentiles=1\nnew_group",
            "group_reporting\nlat_percentiles=1\ndisable_lat=1",
        ] {
            assert_eq!(with(lines), Ok(None), "{lines}");
        }
        assert_eq!(with("wait_for=a"), Ok(Some("a".into())));
        assert_eq!(with("name=first\n[c]\nfilename=x\nwait_for=first"), Ok(Some("b".into())), "by the option `name`");
        assert_eq!(with("create_only=1\n[c]\nfilename=x\nwait_for=b"), Ok(None), "what does nothing has no end");
    }
}
