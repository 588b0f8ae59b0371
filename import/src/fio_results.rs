//! The results of one run in what fio prints for people: with `--status-interval` it prints them again and again.

use crate::Note;
use crate::fio_json::FioJob;

/// The jobs of a run, of which the last results count.
#[derive(Default)]
pub(crate) struct Results {
    pub(crate) jobs: Vec<FioJob>,
    /// The sums of all jobs, or the disks, stand behind these jobs.
    is_ended: bool,
    /// The results before.
    before: Vec<FioJob>,
    /// How often results came again.
    repeated: usize,
}

impl Results {
    pub(crate) fn end(&mut self) {
        self.is_ended = true;
    }

    /// Adds a job's head. If its host's results have ended, and have such a job, they are printed again.
    pub(crate) fn begin(&mut self, job: FioJob) {
        let is_same = |before: &FioJob| (&before.name, &before.host, before.group) == (&job.name, &job.host, job.group);
        if self.is_ended && self.jobs.iter().any(is_same) {
            let (before, others) = self.jobs.drain(..).partition(|before| before.host == job.host);
            self.jobs = others;
            self.before.retain(|before| before.host != job.host);
            self.before.extend::<Vec<FioJob>>(before);
            self.before.retain(is_whole);
            self.repeated += 1;
        }
        self.is_ended = false;
        self.jobs.push(job);
    }

    /// The jobs that did something, each with its last whole results, and notes on the others.
    pub(crate) fn whole(self) -> (Vec<FioJob>, Vec<Note>) {
        let Self { mut jobs, before, repeated, .. } = self;
        let mut notes = Vec::new();
        let count = jobs.len();
        jobs.retain(is_whole);
        let is_of_these = |job: &FioJob| before.iter().any(|before| before.host == job.host);
        let is_cut = before.len() > jobs.iter().filter(|job| is_of_these(job)).count();
        if repeated > 0 {
            let which =
                if is_cut { "the last are cut off, and those before them are used" } else { "the last are used" };
            notes.push(format!("fio printed its results {} times (--status-interval); {which}", repeated + 1));
        }
        if is_cut {
            jobs.retain(|job| !is_of_these(job));
            jobs.extend(before);
        } else if jobs.len() < count {
            notes.push(format!("jobs that did nothing or are cut off: {} of {count}", count - jobs.len()));
        }
        (jobs, notes)
    }
}

fn is_whole(job: &FioJob) -> bool {
    job.error != 0 || job.user_percent.is_some() && job.directions.iter().any(|part| part.runtime_ms > 0.0)
}

#[cfg(test)]
mod tests {
    use crate::fio_json::FioOutput;

    #[test]
    fn results_that_are_printed_again_are_not_added() {
        let results = |name: &str, ios: u32| {
            format!(
                "{name}: (groupid=0, jobs=1): err= 0: pid=7: x\n  read: IOPS=1, BW=4KiB/s (4kB/s)(4KiB/1000msec)\n    \
                 clat (usec): min=1, max=9, avg=5.00, stdev=1\n  cpu          : usr=1.00%, sys=2.00%, ctx=1\n     \
                 issued rwts: total={ios},0,0,0 short=0,0,0,0\n"
            )
        };
        let end = "\nRun status group 0 (all jobs):\n   READ: bw=1\n\nDisk stats (read/write):\n  sda: ios=5/0, merge=0/0\n\n";
        let both = |ios: u32| [results("a", ios), results("a", ios), results("b", ios), end.to_owned()].concat();
        let of = |text: &str| {
            let found = FioOutput::parse(text.as_bytes()).unwrap();
            let ios: Vec<u64> = found.jobs.iter().map(|job| job.directions[0].ios).collect();
            (ios, found.notes.join("\n"))
        };
        assert_eq!(of(&both(7)).0, [7, 7, 7]);
        let (ios, notes) = of(&[both(7), both(8), both(9)].concat());
        assert!(
            ios == [9, 9, 9] && notes.contains("3 times") && notes.contains("the last are used"),
            "{ios:?} {notes}"
        );
        let last = both(9);
        let (ios, notes) = of(&[both(7), both(8), last[..last.len() / 3].to_owned()].concat());
        assert!(ios == [8, 8, 8] && notes.contains("are cut off, and those before"), "{ios:?} {notes}");
    }

    #[test]
    fn what_a_line_leaves_out_is_worked_out_or_noted() {
        let of = |bandwidth: &str, latencies: &str| {
            let text = format!(
                "a: (g=0): rw=randread, bs=(R) 4096B-4096B, (W) 4096B-4096B, (T) 4096B-4096B, ioengine=libaio, iodepth=1\n\
                 a: (groupid=0, jobs=1): err= 0: pid=7: x\n  read: IOPS=1000, BW={bandwidth}(4KiB/1000msec)\n{latencies}  cpu          \
                 : usr=1.00%, sys=2.00%, ctx=1\n     issued rwts: total=1000,0,0,0 short=0,0,0,0\n"
            );
            let found = FioOutput::parse(text.as_bytes()).unwrap();
            let read = found.jobs[0].directions[0].clone();
            (read.bandwidth_bps, read.clat_ns, found.notes.join("\n").contains("may pace it"))
        };
        let total =
            "    slat (usec): min=1, max=9, avg=5.00, stdev=1\n     lat (usec): min=1, max=9, avg=905.00, stdev=1\n";
        let slow = "    clat (usec): min=1, max=9, avg=100.00, stdev=1\n";
        assert_eq!(of("31.2Mibit/s (32.8Mbit/s)", total), (31.2 * 131_072.0, Some(900_000.0), false));
        assert_eq!(of("4096kB/s (4000KiB/s)", slow), (4_096_000.0, Some(100_000.0), true));
    }

    #[test]
    fn a_sum_behind_its_parts_does_not_stand_for_one() {
        let part = |name: &str, ios: u32, clat: u32| {
            format!(
                "  {name}: IOPS={ios}, BW={ios}KiB/s (1kB/s)(4KiB/1000msec)\n    clat (usec): min=1, max=9, avg={clat}.00, stdev=1\n"
            )
        };
        let text = format!(
            "a: (groupid=0, jobs=1): err= 0: pid=7: x\n{}{}{}  cpu          : usr=1.00%, sys=2.00%, ctx=1\n     issued rwts: \
             total=7,8,0,0 short=0,0,0,0\n",
            part("read", 7, 5),
            part("write", 8, 6),
            part("mixed", 0, 90)
        );
        let job = FioOutput::parse(text.as_bytes()).unwrap().jobs.remove(0);
        assert_eq!([0, 1].map(|at| job.directions[at].clat_ns), [Some(5000.0), Some(6000.0)]);
        assert!(!job.is_sum && job.directions[0].bandwidth_bps > 0.0, "{job:?}");
    }
}
