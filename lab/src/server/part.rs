//! The sections of a job file that made some of the jobs that ran.

use std::collections::BTreeMap;
use std::ops::Range;

/// Said where [`part`] has none.
pub(super) const AMBIGUOUS: &str = "the job file has several sections of one name, and which of them ran here is not known: the options that fio \
     printed are used instead; valid: a name of its own for each section";

/// The name of the section that begins in a line.
pub(super) fn section_of(line: &str) -> Option<&str> {
    line.trim().strip_prefix('[').and_then(|line| line.split(']').next())
}

/// The global sections of a job file, and those of its sections that made the jobs of group `at`. Of several sections with one
/// name, the first belongs to the first of the groups' jobs of that name, and so on. None where their numbers differ.
pub(super) fn part(text: &str, groups: &[Vec<String>], at: usize) -> Option<String> {
    let mut kept: BTreeMap<&str, Range<usize>> = BTreeMap::new();
    for name in &groups[at] {
        let count = |group: &Vec<String>| group.iter().filter(|known| *known == name).count();
        let sections = text.lines().filter(|line| section_of(line) == Some(name.as_str())).count();
        let before: usize = groups[..at].iter().map(count).sum();
        let rank = groups[..at].iter().filter(|group| group.contains(name)).count();
        let range = match sections {
            0 | 1 => 0..1,
            _ if groups.iter().map(count).sum::<usize>() == sections => before..before + count(&groups[at]),
            _ if groups.iter().filter(|group| group.contains(name)).count() == sections => rank..rank + 1,
            _ => return None,
        };
        kept.insert(name.as_str(), range);
    }
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let mut is_kept = true;
    let mut found = String::new();
    for line in text.lines() {
        if let Some(name) = section_of(line) {
            let number = seen.entry(name).or_default();
            is_kept = name.starts_with("global") || kept.get(name).is_some_and(|range| range.contains(number));
            *number += 1;
        }
        if is_kept {
            found += line;
            found.push('\n');
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::super::gather::{Parts, Server};

    #[test]
    fn sections_of_one_name_belong_to_the_groups_in_their_order() {
        let file = "[global]\nfilename=/dev/nvme0n1\n[a]\nrw=randread\n[a]\nstonewall\nrw=write\n";
        let job = |group: u32, direction: &str| {
            format!(
                r#"{{"jobname": "a", "groupid": {group}, "job options": {{"rw": "read", "filename": "/dev/sda"}}, "{direction}": {{"iops": 9,
                "total_ios": 9, "clat_ns": {{"mean": 5000, "max": 9}}}}}}"#
            )
        };
        let of = |file: &str| {
            let fio = format!(r#"{{"jobs": [{}, {}]}}"#, job(0, "read"), job(1, "write"));
            let mut server = Server::default();
            server.add("x", &Parts { fio: fio.as_bytes(), job: Some(file.as_bytes()), ..Parts::default() });
            (server.measurements.into_iter().map(|one| one.job).collect::<Vec<_>>(), server.notes.join("\n"))
        };
        let (jobs, notes) = of(file);
        assert_eq!(jobs.len(), 2, "{notes}");
        assert!(jobs[0].contains("randread") && !jobs[0].contains("rw=write"), "{}", jobs[0]);
        assert!(jobs[1].contains("rw=write") && !jobs[1].contains("randread"), "{}", jobs[1]);
        let (jobs, notes) = of(&format!("{file}[a]\n"));
        assert!(jobs[0].contains("/dev/sda") && notes.contains("several sections of one name"), "{jobs:?} {notes}");
    }
}
