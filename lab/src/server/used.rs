//! Whose the interrupts of NVMe queues are: those of the controllers that the job used, or of other work.

use crate::fio::{FioJob, drive_of};
use import::disks;
use import::fio_json::FioOutput;
use import::interrupts::{Difference, Interrupts};
use std::collections::BTreeSet;

/// What a job's I/Os reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Used {
    /// Nothing tells: files, arrays and links whose drives nothing names.
    Untold,
    /// These drives.
    Drives {
        /// Numbers of NVMe controllers, as in `nvme0n1`. With native multipath that number may be another controller's.
        controllers: BTreeSet<u32>,
        /// Names of drives that are no NVMe drives.
        others: BTreeSet<String>,
    },
}

/// The interrupts that are taken as a job's.
pub(super) struct Own<'a> {
    /// Lines of NVMe queues.
    pub queues: Vec<&'a Difference>,
    /// All of the job's interrupts, and no others: their number is the job's.
    pub is_exact: bool,
}

/// What a drive's name says of its interrupts.
enum Behind {
    Controller(u32),
    /// No NVMe drive.
    Other,
    Unknown,
}

impl Used {
    /// By the drives that the job names; where it names something else, by fio's statistics of disks.
    pub(super) fn of(sections: &[FioJob], fio: &FioOutput) -> Self {
        let named = sections.iter().flat_map(|section| section.file_names(0)).map(|name| drive_of(&name));
        let by_names = named.collect::<Option<Vec<String>>>().and_then(|drives| Self::of_drives(&drives));
        by_names.or_else(|| Self::of_drives(&busy_disks(fio))).unwrap_or(Self::Untold)
    }

    /// None if there are no drives, or one of them is behind something else.
    fn of_drives(drives: &[String]) -> Option<Self> {
        let (mut controllers, mut others) = (BTreeSet::new(), BTreeSet::new());
        for drive in drives {
            let name = drive.strip_prefix("/dev/").unwrap_or(drive);
            match behind(name) {
                Behind::Controller(number) => controllers.insert(number),
                Behind::Other => others.insert(name.to_owned()),
                Behind::Unknown => return None,
            };
        }
        (!drives.is_empty()).then_some(Self::Drives { controllers, others })
    }

    /// Of the queues that had interrupts, those that are taken as the job's. What is left out, and what is not known, is a note.
    pub(super) fn own<'a>(
        &self,
        queues: Vec<&'a Difference>,
        readings: [&Interrupts; 2],
        notes: &mut Vec<String>,
    ) -> Own<'a> {
        let Self::Drives { controllers: named, others } = self else { return Own { queues, is_exact: true } };
        let busy: BTreeSet<u32> = queues.iter().filter_map(|queue| controller(queue)).collect();
        if !others.is_empty() {
            let others: Vec<&str> = others.iter().map(String::as_str).collect();
            notes.push(format!(
                "interrupts: the job used {}, whose interrupts are not those of an NVMe queue: how many its I/Os had is not \
                 known, and there is no rate",
                others.join(", ")
            ));
            return Own { queues, is_exact: false };
        }
        if busy.is_subset(named) || named.is_subset(&busy) {
            let (own, left_out): (Vec<_>, Vec<_>) =
                queues.into_iter().partition(|queue| controller(queue).is_some_and(|at| named.contains(&at)));
            if !left_out.is_empty() {
                let count = left_out.iter().map(|queue| queue.total()).fold(0, u64::saturating_add);
                notes.push(format!(
                    "interrupts: {count} of {} are left out: the job used {}",
                    names(&busy.difference(named).copied().collect()),
                    names(named)
                ));
            }
            return Own { queues: own, is_exact: true };
        }
        let lines = || readings.iter().flat_map(|reading| &reading.lines).filter_map(|line| line.nvme_queue());
        let is_without_lines = !lines().any(|(at, _)| named.contains(&at));
        let why = "with native multipath a drive's number need not be its controller's";
        if is_without_lines && busy.len() == 1 {
            notes.push(format!(
                "interrupts: the job used {}, of which there is no line; those of {}, which alone had some, are taken as its own \
                 ({why})",
                names(named),
                names(&busy)
            ));
            return Own { queues, is_exact: true };
        }
        notes.push(format!(
            "interrupts: the job used {}, and those that came are of {}: which are the job's is not known ({why}), and there is \
             no rate; valid: readings while no other drive is busy",
            names(named),
            names(&busy)
        ));
        Own { queues, is_exact: false }
    }
}

/// The disks of fio's statistics that did I/Os; all of them where it counted none.
fn busy_disks(fio: &FioOutput) -> Vec<String> {
    let reached = disks::reached(&fio.disks);
    let is_counted = reached.iter().any(|disk| disk.ios != [0, 0]);
    reached.into_iter().filter(|disk| !is_counted || disk.ios != [0, 0]).map(|disk| disk.name.clone()).collect()
}

/// The number of the controller whose queue a line is.
pub(super) fn controller(queue: &Difference) -> Option<u32> {
    queue.line.nvme_queue().map(|(controller, _)| controller)
}

/// Controllers, for a note.
pub(super) fn names(controllers: &BTreeSet<u32>) -> String {
    let names: Vec<String> = controllers.iter().map(|at| format!("nvme{at}")).collect();
    names.join(", ")
}

/// What stands behind a drive, by the kernel's name of it. `nvme0c1n1` is the path of subsystem 0 over controller 1.
fn behind(name: &str) -> Behind {
    if let Some(rest) = name.strip_prefix("nvme") {
        let number = |text: &str| text.split(|c: char| !c.is_ascii_digit()).next().and_then(|text| text.parse().ok());
        let path = rest.trim_start_matches(|c: char| c.is_ascii_digit()).strip_prefix('c');
        return path.map_or_else(|| number(rest), number).map_or(Behind::Unknown, Behind::Controller);
    }
    let is_letter = |rest: &str| rest.starts_with(|c: char| c.is_ascii_lowercase());
    let is_scsi = ["sd", "hd", "vd", "xvd", "dasd"].iter().any(|kind| name.strip_prefix(kind).is_some_and(is_letter));
    let is_numbered = ["mmcblk", "pmem", "nbd", "rbd", "sg"]
        .iter()
        .any(|kind| name.strip_prefix(kind).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())));
    if is_scsi || is_numbered { Behind::Other } else { Behind::Unknown }
}

#[cfg(test)]
mod tests {
    use super::super::gather::{Measurement, Parts};

    /// The interrupts a second and the notes of a job on these files, where queues of these controllers had so many in 2 s.
    fn of(files: &str, disks: &[(&str, u32)], controllers: &[(u32, u32)]) -> (Option<f64>, String) {
        let at = |is_after: bool| {
            let line = |(controller, count): &(u32, u32)| {
                let count = if is_after { 5 + count } else { 5 };
                format!(" 4{controller}: 0 {count} IR-PCI-MSIX-0000:0{controller}:00.0 1-edge nvme{controller}q1\n")
            };
            let local = if is_after { 900 } else { 7 };
            let lines: String = controllers.iter().map(line).collect();
            format!("CPU0 CPU1\n{lines} LOC: {local} {local} Local\n PMN: 0 0 Posted\n")
        };
        let disks: Vec<String> =
            disks.iter().map(|(name, ios)| format!(r#"{{"name": "{name}", "read_ios": {ios}}}"#)).collect();
        let fio = format!(
            r#"{{"jobs": [{{"jobname": "a", "read": {{"iops": 1000, "total_ios": 2000, "runtime": 2000,
            "clat_ns": {{"mean": 5000, "max": 9}}}}}}], "disk_util": [{}]}}"#,
            disks.join(", ")
        );
        let job = format!("[a]\ndirect=1\nrw=randread\niodepth=32\nioengine=libaio\nsize=1g\n{files}\n");
        let [before, after] = [at(false), at(true)];
        let parts = Parts {
            fio: fio.as_bytes(),
            job: Some(job.as_bytes()),
            interrupts: Some([before.as_bytes(), after.as_bytes()]),
            uptime: Some([b"10.0 1", b"12.0 1"]),
            ..Parts::default()
        };
        let (found, notes) = Measurement::read("x", &parts).unwrap();
        (found.interrupts.and_then(|interrupts| interrupts.per_second), notes.join("\n"))
    }

    #[test]
    fn interrupts_are_those_of_the_drives_that_the_job_used() {
        let one = [(0, 2000)];
        let two = [(0, 2000), (1, 6000)];
        let named = "filename=/dev/nvme0n1";
        for (files, disks, controllers, rate, said) in [
            (named, &[][..], &one[..], Some(1000.0), ""),
            (named, &[], &two, Some(1000.0), "6000 of nvme1 are left out: the job used nvme0"),
            ("filename=/dev/nvme0n1:/dev/nvme1n1p2", &[], &two, Some(4000.0), ""),
            // One of its drives had none.
            ("filename=/dev/nvme0n1:/dev/nvme1n1", &[], &[(0, 2000), (1, 0)], Some(1000.0), ""),
            // Multipath: no line has that number.
            ("filename=/dev/nvme4n1", &[], &one, Some(1000.0), "of which there is no line; those of nvme0"),
            ("filename=/dev/nvme4n1", &[], &two, None, "used nvme4, and those that came are of nvme0, nvme1"),
            ("filename=/dev/nvme1n1", &[], &[(0, 2000), (1, 0)], None, "which are the job's is not known"),
            ("filename=/dev/sda", &[], &one, None, "the job used sda, whose interrupts are not those of an NVMe queue"),
            ("filename=/dev/sda:/dev/nvme0n1", &[], &one, None, "the job used sda"),
            // Files, arrays and links: fio's statistics, or all.
            ("directory=/mnt", &[], &two, Some(4000.0), ""),
            ("directory=/mnt", &[("nvme1n1", 2000), ("nvme0n1", 0)], &two, Some(3000.0), "2000 of nvme0 are left out"),
            ("directory=/mnt", &[("sdb", 2000)], &two, None, "the job used sdb"),
            ("directory=/mnt", &[("nvme0c1n1", 2000)], &two, Some(3000.0), "the job used nvme1"),
            ("filename=/dev/md0", &[], &two, Some(4000.0), ""),
            ("filename=/dev/disk/by-id/nvme-x", &[("nvme0n1", 2000)], &two, Some(1000.0), "of nvme1 are left out"),
        ] {
            let (found, notes) = of(files, disks, controllers);
            assert_eq!(found, rate, "{files} {disks:?} {controllers:?}: {notes}");
            assert!(notes.contains(said), "{files} {disks:?}: {notes}");
            assert_eq!(notes.contains("interrupts: "), !said.is_empty(), "{files}: {notes}");
        }
    }
}
