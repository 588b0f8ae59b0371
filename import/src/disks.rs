//! fio's statistics of disks, and which of them are drives: a RAID, an LVM volume or a dm-crypt device stands beside the
//! disks that it is made of.
//!
//! fio prints sums over the members (`aggrios=`, JSON: `aggr_read_ios`) for a device that has some, and lists the members
//! behind it. Source: fio, `print_disk_util` and `json_array_add_disk_util` in `diskutil.c`.

use crate::Note;
use crate::fio_json::{Direction, FioOutput};
use serde_json::{Map, Value};

/// Least I/Os that tell whether disks did them.
const OF_CACHE_MIN: f64 = 100.0;

/// The time at a run's end that the disks' counters may lack.
const UNSEEN_MS: f64 = 1200.0;

/// A disk of the statistics.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Disk {
    /// As the kernel names it: `nvme0n1`, `dm-0`.
    pub name: String,
    /// Reads and writes that were done, those included that the kernel merged into them. The time of a ramp counts too.
    pub ios: [u64; 2],
    /// The host that it belongs to, where a client of fio's asked there.
    pub host: String,
    /// It is made of other disks.
    pub is_array: bool,
}

impl Disk {
    /// `nvme0n1: ios=11558/4030, merge=0/1, ticks=1715/2779, in_queue=4494, util=52.61%`
    pub(crate) fn of_line(line: &str) -> Option<Self> {
        let (name, values) = line.trim().split_once(": ios=")?;
        let pair = |text: &str| -> Option<[u64; 2]> {
            let (reads, writes) = text.split(',').next()?.split_once('/')?;
            Some([reads.trim().parse().ok()?, writes.trim().parse().ok()?])
        };
        let merged = values.split_once(" merge=").and_then(|(_, rest)| pair(rest)).unwrap_or_default();
        let done = pair(values).unwrap_or_default();
        let ios = [0, 1].map(|at| done[at].saturating_add(merged[at]));
        Some(Self { name: name.to_owned(), ios, host: String::new(), is_array: values.contains("aggrios=") })
    }

    /// An entry of `disk_util`.
    pub(crate) fn of_json(entry: &Value) -> Option<Self> {
        let entry: &Map<String, Value> = entry.as_object()?;
        let number = |key: &str| entry.get(key).and_then(Value::as_u64).unwrap_or(0);
        let sum = |kind: &str| number(&format!("{kind}_ios")).saturating_add(number(&format!("{kind}_merges")));
        Some(Self {
            name: entry.get("name")?.as_str()?.to_owned(),
            ios: [sum("read"), sum("write")],
            host: entry.get("hostname").and_then(Value::as_str).unwrap_or_default().to_owned(),
            is_array: entry.contains_key("aggr_read_ios"),
        })
    }
}

/// What the I/O reaches: disks that are not made of others, or else the arrays themselves.
pub fn reached(disks: &[Disk]) -> Vec<&Disk> {
    let drives: Vec<&Disk> = disks.iter().filter(|disk| !disk.is_array).collect();
    if drives.is_empty() { disks.iter().collect() } else { drives }
}

/// The disks that a device is made of; none if it is no array, or nothing names them.
pub fn members(disks: &[Disk], device: &str) -> Option<Vec<String>> {
    let name = device.strip_prefix("/dev/")?;
    let at = disks.iter().position(|disk| disk.name == name);
    // A partition counts as its disk.
    let is_drive = disks.iter().any(|disk| !disk.is_array && name.starts_with(&disk.name));
    if is_drive || disks.iter().all(|disk| !disk.is_array) {
        return None;
    }
    // fio lists an array's members behind it, but each disk once; and a volume may have a name that is not the kernel's.
    let behind = at.map_or(&[][..], |at| &disks[at..]);
    let arrays = behind.iter().take_while(|disk| disk.is_array).count();
    let mut found: Vec<&Disk> = behind[arrays..].iter().take_while(|disk| !disk.is_array).collect();
    if found.is_empty() {
        found = disks.iter().filter(|disk| !disk.is_array).collect();
    }
    (!found.is_empty()).then(|| found.into_iter().map(|disk| disk.name.clone()).collect())
}

/// A note on arrays whose members are taken in their place.
pub fn in_place_of(arrays: &str, members: &str) -> Note {
    format!(
        "{arrays} is made of {members}, taken as the drives in its place; what an array does (stripes, mirrors, parity, \
         encryption) is not modelled"
    )
}

/// A note on a device that is probably an array, and taken as one drive.
pub fn as_one(device: &str) -> Option<Note> {
    has_array_name(device)
        .then(|| format!("{device} is taken as one drive: fio's statistics do not say what it is made of"))
}

/// Whether the kernel names an array so.
fn has_array_name(device: &str) -> bool {
    let name = device.strip_prefix("/dev/").unwrap_or(device);
    let numbered =
        |start| name.strip_prefix(start).is_some_and(|rest: &str| rest.starts_with(|c: char| c.is_ascii_digit()));
    numbered("md") || numbered("dm-") || name.starts_with("mapper/")
}

impl FioOutput {
    /// The I/Os of a direction, and how many of them the disks did, if those are far fewer: the page cache answered.
    pub fn of_cache(&self) -> Option<(u64, u64)> {
        // fio reads the disks' counters four times a second, and not always at the end.
        let seen = |one: &Direction| (one.runtime_ms - UNSEEN_MS).max(0.0) / one.runtime_ms.max(1.0);
        let of = |at: usize| {
            let all = || self.jobs.iter().map(|job| &job.directions[at]);
            // Arrays and their members count the same I/Os.
            let [drives, arrays] = [false, true].map(|arrays| -> u64 {
                let disks = self.disks.iter().filter(|disk| disk.is_array == arrays);
                disks.map(|disk| disk.ios[at]).fold(0, u64::saturating_add)
            });
            let reached = drives.max(arrays);
            let expected: f64 = all().map(|one| one.ios as f64 * seen(one)).sum();
            let did = all().map(|one| one.ios).fold(0, u64::saturating_add);
            (expected >= OF_CACHE_MIN && (reached as f64) < expected / 2.0).then_some((did, reached))
        };
        of(0).or(of(1)).filter(|_| !self.disks.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const VOLUME: &str =
        "    dm-0: ios=10/12, merge=0/0, ticks=7/8, in_queue=9, util=99.21%, aggrios=5/6, aggrmerge=0/1";

    fn disks(names: &[&str]) -> Vec<Disk> {
        let disk = |name: &&str| Disk { name: (*name).to_owned(), is_array: has_array_name(name), ..Disk::default() };
        names.iter().map(disk).collect()
    }

    #[test]
    fn both_outputs_say_the_same_of_a_disk() {
        let array = Disk { name: "dm-0".to_owned(), ios: [10, 12], is_array: true, ..Disk::default() };
        assert_eq!(Disk::of_line(VOLUME), Some(array.clone()));
        let entry = json!({"name": "dm-0", "read_ios": 10, "write_ios": 12, "read_merges": 0, "aggr_read_ios": 5});
        assert_eq!(Disk::of_json(&entry), Some(array));
        let drive = Disk::of_line("  sda: ios=7/8, merge=1/2, ticks=1/2, in_queue=3, util=9%").unwrap();
        assert_eq!((drive.ios, drive.is_array), ([8, 10], false));
        let old = json!({"name": "sda", "read_ios": 7, "write_ios": 8, "read_merges": 1, "write_merges": 2});
        assert_eq!(Disk::of_json(&old), Some(drive));
        assert_eq!(
            (Disk::of_line("READ: bw=1"), Disk::of_json(&json!([1])), Disk::of_json(&json!({}))),
            (None, None, None)
        );
    }

    #[test]
    fn the_io_reaches_the_members() {
        let names = |disks: &[Disk]| reached(disks).iter().map(|disk| disk.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&disks(&["md0", "nvme0n1", "nvme1n1"])), ["nvme0n1", "nvme1n1"]);
        assert_eq!(names(&disks(&["md0"])), ["md0"], "as one, where nothing names the members");
    }

    #[test]
    fn an_array_has_the_disks_behind_it() {
        let of = |names: &[&str], device: &str| members(&disks(names), device).map(|members| members.join(" "));
        let two = ["md0", "a", "b", "dm-3", "md1", "c", "md2"];
        for (device, expected) in [
            ("/dev/md0", Some("a b")),
            ("/dev/md1", Some("c")),
            ("/dev/dm-3", Some("c")),
            ("/dev/md2", Some("a b c")),
            ("/dev/mapper/x", Some("a b c")),
            ("/dev/ap1", None),
            ("/mnt/a", None),
        ] {
            assert_eq!(of(&two, device).as_deref(), expected, "{device}");
        }
        assert_eq!((of(&["md0"], "/dev/md0"), of(&["a"], "/dev/mapper/x"), of(&[], "/dev/md0")), (None, None, None));
    }
}
