//! Which drives the names of a job's files stand for: links, where something says what they point to, and the members of an
//! array in its place.

use crate::fio::{self, FioJob, drive_of};
use import::disks;
use import::fio_json::FioOutput;
use import::links::{self, Links};
use std::collections::BTreeSet;

/// The value of `filename` as it is simulated. What is taken in place of a name is a note.
pub(super) fn files(text: &str, fio: &FioOutput, known: Option<&Links>, notes: &mut Vec<String>) -> String {
    let names = fio::split_names(text);
    let found: Vec<String> = names.iter().flat_map(|file| devices(file, fio, known, notes)).collect();
    if found == names {
        return text.to_owned();
    }
    // A colon of a name keeps its backslash.
    let escaped = |name: &String| name.replace(':', "\\:");
    found.iter().map(escaped).collect::<Vec<_>>().join(":")
}

fn devices(file: &str, fio: &FioOutput, known: Option<&Links>, notes: &mut Vec<String>) -> Vec<String> {
    let mut file = file.to_owned();
    if let Some(target) = known.and_then(|known| known.target(&file)) {
        notes.push(format!("{file} is a link to {target}"));
        target.clone_into(&mut file);
    }
    if let Some(members) = disks::members(&fio.disks, &file) {
        notes.push(disks::in_place_of(&file, &members.join(", ")));
        return members.iter().map(|member| format!("/dev/{member}")).collect();
    }
    notes.extend(disks::as_one(&file));
    vec![file]
}

/// A note on links of which nothing says whether they are drives that the jobs also name otherwise. fio's statistics have
/// each disk once.
pub(super) fn perhaps_twice(sections: &[FioJob], fio: &FioOutput) -> Option<String> {
    let names = sections.iter().flat_map(|section| section.file_names(0));
    let drives: BTreeSet<String> = names.filter_map(|name| drive_of(&name)).collect();
    let link = drives.iter().find(|drive| links::is_link(drive))?;
    let disks = disks::reached(&fio.disks).len();
    (drives.len() > 1 && (disks == 0 || disks < drives.len())).then(|| {
        let said = if disks == 0 { String::new() } else { format!(", and fio's statistics have {disks}") };
        format!(
            "{link} is a link, and may be a drive that the jobs name otherwise: they are taken as {} drives{said}; valid: the \
             kernel's names (filename=/dev/nvme0n1), or an archive with what `ls -l /dev/disk/by-id` prints",
            drives.len()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::gather::{Parts, Server};
    use super::*;

    fn of(files: &str, disks: &str, listing: &str) -> (usize, String, String) {
        let fio = format!(
            r#"{{"jobs": [{{"jobname": "a", "read": {{"iops": 900, "total_ios": 900, "bw_bytes": 3686400, "runtime": 1000,
            "clat_ns": {{"mean": 5000, "max": 9}}}}}}], "disk_util": [{disks}]}}"#
        );
        let job = format!("[a]\ndirect=1\nrw=randread\niodepth=32\nioengine=libaio\nfilename={files}\n");
        let mut known = Links::default();
        known.read(listing.as_bytes());
        let mut server = Server::default();
        let parts = Parts { fio: fio.as_bytes(), job: Some(job.as_bytes()), links: Some(&known), ..Parts::default() };
        server.add("x", &parts);
        let found = server.measurements.first().unwrap_or_else(|| panic!("{:?}", server.notes));
        (found.drives(), found.job.clone(), server.notes.join("\n"))
    }

    const ONE: &str = r#"{"name": "nvme0n1", "read_ios": 900}"#;

    #[test]
    fn a_link_is_the_drive_that_it_points_to() {
        let listing = "/dev/disk/by-id:\nlrwxrwxrwx 1 root root 13 May 1 10:00 nvme-X -> ../../nvme0n1\n\
                       lrwxrwxrwx 1 root root 15 May 1 10:00 nvme-X-part1 -> ../../nvme0n1p1\n";
        let (drives, job, notes) = of("/dev/disk/by-id/nvme-X:/dev/nvme0n1:/dev/disk/by-id/nvme-X-part1", "", listing);
        assert_eq!(drives, 1, "{job}");
        assert!(notes.contains("/dev/disk/by-id/nvme-X is a link to /dev/nvme0n1"), "{notes}");
    }

    #[test]
    fn links_that_nothing_explains_are_named() {
        let two = "/dev/disk/by-id/nvme-X:/dev/nvme0n1";
        for (files, disks, count, is_noted) in [
            (two, "", 2, true),
            (two, ONE, 2, true),
            (two, &format!("{ONE}, {}", ONE.replace('0', "1")), 2, false),
            ("/dev/disk/by-id/nvme-X", "", 1, false),
            ("/dev/disk/by-id/nvme-X:/dev/disk/by-id/nvme-X-part2", "", 1, false),
            (r"/dev/disk/by-path/pci-0000\:01\:00.0-nvme-1", ONE, 1, false),
            ("/dev/nvme0n1:/dev/nvme1n1", ONE, 2, false),
        ] {
            let (drives, job, notes) = of(files, disks, "");
            assert_eq!((drives, notes.contains("is a link, and may be")), (count, is_noted), "{files}: {notes}");
            assert!(job.contains(&format!("filename={files}\n")), "{job}");
        }
    }
}
