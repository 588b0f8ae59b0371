//! What the kernel says of the hardware. No fit is needed for it: each fact sets a constant, with the file as its
//! reason.

use super::gather::Measurement;
use crate::platform::Platform;
use import::lscpu;
use std::collections::BTreeMap;

/// A constant that a file of the server states.
#[derive(Clone, PartialEq, Debug)]
pub struct Fact {
    /// Its key; a drive's without the kind: `drive.block`.
    pub key: &'static str,
    /// In the base of its unit.
    pub value: f64,
    /// Which file says so.
    pub reason: String,
    /// False if no file of the kernel's states it, and it was taken from what jobs name.
    pub is_stated: bool,
}

/// CAP.PI: the unit posts interrupts (VT-d, "Capability Register", bit 59).
const POSTING: u64 = 1 << 59;
/// Payload of a link beside headers and acknowledgements, at the usual 256 bytes a packet: assumed.
const PAYLOAD: f64 = 0.85;

/// The facts of a server's files, each constant once.
pub fn facts(about: &BTreeMap<String, Vec<u8>>) -> Vec<Fact> {
    let mut facts = Vec::new();
    let mut fact = |key, value: Option<f64>, reason: &str| {
        facts.extend(value.map(|value| Fact { key, value, reason: reason.to_owned(), is_stated: true }));
    };
    let lscpu = about.get("lscpu").map_or(&[][..], Vec::as_slice);
    let online = text(about, "sys/devices/system/cpu/online");
    let cpuinfo = about.get("proc/cpuinfo").map_or(&[][..], Vec::as_slice);
    let cpus = lscpu::count(&online).or_else(|| lscpu::cpus(lscpu)).or_else(|| lscpu::cpus(cpuinfo));
    fact("fabric.cpus", cpus.map(f64::from), "the CPUs that are online");
    fact(
        "fabric.sockets",
        lscpu::sockets(lscpu).or_else(|| lscpu::sockets(cpuinfo)).map(f64::from),
        "what lscpu lists, or /proc/cpuinfo",
    );
    let shared = |end: &str| {
        let lists = about.iter().filter(|(path, _)| path.ends_with(end));
        lists.filter_map(|(_, list)| lscpu::count(&String::from_utf8_lossy(list))).max().map(f64::from)
    };
    let nodes = about.keys().filter(|path| path.ends_with("/cpulist") && path.contains("/node/")).count();
    let node = (nodes > 0).then(|| shared("/cpulist")).flatten();
    fact("fabric.node_cpus", node, "the largest memory node's cpulist");
    // A cache list is of the last level if no higher index has one.
    let level =
        (0..8).rev().find(|index| about.keys().any(|path| path.ends_with(&format!("index{index}/shared_cpu_list"))));
    let cache = level.and_then(|index| shared(&format!("index{index}/shared_cpu_list")));
    let cache = cache.map(|cpus| node.map_or(cpus, |node: f64| cpus.min(node)));
    fact("fabric.cache_cpus", cache, "the last cache's shared_cpu_list");
    let capability = about.iter().find(|(path, _)| path.ends_with("intel-iommu/cap"));
    let capability = capability.and_then(|(_, text)| {
        u64::from_str_radix(String::from_utf8_lossy(text).trim().trim_start_matches("0x"), 16).ok()
    });
    let posts = capability.map(|capability| f64::from(u8::from(capability & POSTING != 0)));
    fact("fabric.posted_capability", posts, "the IOMMU's capability register, bit 59");
    let of_drive = |end: &str| {
        about
            .iter()
            .find(|(path, _)| path.ends_with(end))
            .map(|(_, text)| String::from_utf8_lossy(text).trim().to_owned())
    };
    let number = |end: &str| of_drive(end)?.parse::<f64>().ok();
    fact("drive.block", number("/queue/logical_block_size"), "queue/logical_block_size");
    let transfer = number("/queue/max_hw_sectors_kb").map(|kib| kib * 1024.0).filter(|bytes| *bytes >= 8192.0);
    let transfer = transfer.map(|bytes| 2f64.powi(bytes.log2().floor() as i32).min(2_097_152.0));
    fact("drive.transfer", transfer, "queue/max_hw_sectors_kb");
    let vectors = of_drive("/msi_irqs").map(|list| list.split_whitespace().count() as f64);
    fact("drive.vectors", vectors.filter(|vectors| *vectors >= 2.0), "the vectors in the function's msi_irqs");
    let entries = number("/sqsize").map(|last| last + 1.0).filter(|entries| (2.0..=65_536.0).contains(entries));
    fact("drive.queue_entries", entries, "the controller's sqsize, which is 0's based");
    let cache = of_drive("/queue/write_cache").map(|kind| f64::from(u8::from(kind == "write back")));
    fact("drive.volatile_cache", cache, "queue/write_cache");
    let link = link_bytes_a_second(&of_drive("/current_link_speed").unwrap_or_default(), number("/current_link_width"));
    fact("drive.link", link, "current_link_speed and current_link_width, 85 % of them payload");
    facts
}

/// Adds what the measurements say of the CPUs: those that were online, where no file lists them, and those that jobs name,
/// where these are more or where the base has fewer. Of more than a platform has, a note says so. Returns those that were online, whose time counts.
pub(super) fn add_cpus(
    facts: &mut Vec<Fact>,
    measurements: &[Measurement],
    base: &Platform,
    notes: &mut Vec<String>,
) -> Option<u32> {
    let fabric = |name| base.fabric.iter().find(|(spec, _)| spec.name == name).expect("every platform has it");
    let (spec, of_base) = fabric("cpus");
    let at = facts.iter().position(|fact| fact.key == "fabric.cpus").unwrap_or(facts.len());
    let known = facts.get(at).map(|fact| fact.value as u32);
    let online = known.or_else(|| measurements.iter().filter_map(|one| one.online).max());
    let named = measurements.iter().filter_map(Measurement::cpus_named).max().unwrap_or(0);
    let of_jobs = (named, "the highest CPU that a job names, and all below it", false);
    let found = match online {
        Some(count) if named <= count => known.is_none().then_some((count, "the CPUs of /proc/interrupts", true)),
        // CPUs that are offline have numbers too.
        Some(count) => {
            notes.push(format!(
                "CPUs online: {count}; a job names CPU {}: {named} are taken, with those that were offline",
                named.saturating_sub(1)
            ));
            Some(of_jobs)
        }
        None => (f64::from(named) > of_base.value).then_some(of_jobs),
    };
    if let Some((count, reason, is_stated)) = found {
        let fact = Fact { key: "fabric.cpus", value: f64::from(count), reason: reason.to_owned(), is_stated };
        facts.splice(at..(at + 1).min(facts.len()), [fact]);
    }
    for (key, what, spec) in [("fabric.cpus", "CPUs", spec), ("fabric.sockets", "sockets", fabric("sockets").0)] {
        if let Some(fact) = facts.iter_mut().find(|fact| fact.key == key && fact.value > spec.max) {
            notes.push(format!(
                "the server has {} {what}, and a platform {} at most: these are taken",
                fact.value, spec.max
            ));
            fact.value = spec.max;
        }
    }
    online
}

/// A note on a text of lscpu's that is of several servers.
pub(super) fn of_several(about: &BTreeMap<String, Vec<u8>>) -> Option<String> {
    let others = lscpu::others(about.get("lscpu")?);
    (!others.is_empty()).then(|| {
        format!("lscpu: the text has several numbers of CPUs, and the first is taken (others: {})", others.join(", "))
    })
}

/// A note on a server that is a virtual machine, as lscpu says.
pub(super) fn guest(about: &BTreeMap<String, Vec<u8>>) -> Option<String> {
    let vendor = lscpu::field(about.get("lscpu")?, &["Hypervisor vendor", "Hypervisor"])?;
    (!vendor.is_empty()).then(|| {
        format!("lscpu: the server is a virtual machine ({vendor}): what its host does with interrupts and I/Os is not modelled")
    })
}

/// The server's CPUs, if the facts have them.
pub fn cpus(facts: &[Fact]) -> Option<u32> {
    facts.iter().find(|fact| fact.key == "fabric.cpus").map(|fact| fact.value as u32)
}

fn text(about: &BTreeMap<String, Vec<u8>>, path: &str) -> String {
    about.get(path).map(|text| String::from_utf8_lossy(text).into_owned()).unwrap_or_default()
}

/// The payload of a link: "32.0 GT/s PCIe" and its lanes.
fn link_bytes_a_second(speed: &str, lanes: Option<f64>) -> Option<f64> {
    let transfers: f64 = speed.split_whitespace().next()?.parse().ok()?;
    let lanes = lanes.filter(|lanes| (1.0..=32.0).contains(lanes))?;
    // 8b/10b until 5 GT/s, 128b/130b above.
    let coding = if transfers < 6.0 { 0.8 } else { 128.0 / 130.0 };
    Some(transfers * 1e9 / 8.0 * lanes * coding * PAYLOAD).filter(|rate| (1e6..1e12).contains(rate))
}

#[cfg(test)]
mod tests {
    use super::super::gather::Parts;
    use super::*;
    use crate::input::Place;
    use crate::setting::Setting;

    #[test]
    fn facts_are_read_from_files() {
        let about = |files: &[(&str, &str)]| {
            files.iter().map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec())).collect()
        };
        let found = facts(&about(&[
            ("lscpu", "Architecture: x86_64\nCPU(s):   8\nSocket(s):  2\n"),
            ("sys/devices/system/cpu/online", "0-5,7\n"),
            ("sys/devices/system/node/node0/cpulist", "0-3\n"),
            ("sys/devices/system/node/node1/cpulist", "4-5,7\n"),
            ("sys/devices/system/cpu/cpu0/cache/index2/shared_cpu_list", "0-1\n"),
            ("sys/devices/system/cpu/cpu0/cache/index3/shared_cpu_list", "0-7\n"),
            ("sys/class/iommu/dmar0/intel-iommu/cap", "0x8ed008c40780466\n"),
            ("sys/class/block/nvme0n1/queue/max_hw_sectors_kb", "1000"),
            ("drive/nvme0n1/current_link_speed", "16.0 GT/s PCIe\n"),
            ("drive/nvme0n1/current_link_width", "4\n"),
            ("drive/nvme0n1/msi_irqs", "40\n41\n42\n"),
        ]));
        let value = |key: &str| found.iter().find(|fact| fact.key == key).map(|fact| fact.value);
        assert_eq!((value("fabric.cpus"), value("fabric.sockets")), (Some(7.0), Some(2.0)));
        assert_eq!((value("fabric.node_cpus"), value("fabric.cache_cpus")), (Some(4.0), Some(4.0)));
        assert_eq!(value("fabric.posted_capability"), Some(1.0));
        assert_eq!((value("drive.transfer"), value("drive.vectors")), (Some(524_288.0), Some(3.0)));
        assert!((value("drive.link").unwrap() / 6.695e9 - 1.0).abs() < 1e-3);
        assert_eq!(value("drive.block"), None);
    }

    #[test]
    fn measurements_tell_of_the_cpus() {
        let base = Platform::load(&Setting::new(Place::option("test"), "", "emr")).unwrap();
        let fio =
            br#"{"jobs": [{"jobname": "a", "read": {"iops": 9, "total_ios": 9, "clat_ns": {"mean": 5, "max": 9}}}]}"#;
        let of = |files: &[(&str, &str)], cpus: &str, columns: u32| {
            let about = files.iter().map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec())).collect();
            let job = format!("[a]\nfilename=/dev/nvme0n1\n{cpus}\n");
            let header: String = (0..columns).map(|cpu| format!(" CPU{cpu}")).collect();
            let reading = format!("{header}\n");
            let interrupts = (columns > 0).then_some([reading.as_bytes(); 2]);
            let parts = Parts { fio, job: Some(job.as_bytes()), interrupts, ..Parts::default() };
            let (mut found, mut notes) = (facts(&about), Vec::new());
            add_cpus(&mut found, &[Measurement::read("x", &parts).unwrap().0], &base, &mut notes);
            let is_stated = found.iter().all(|fact| fact.is_stated);
            assert_eq!(is_stated, !cpus_of(&found).is_some_and(|cpus| [12, 121, 128].contains(&cpus)));
            (cpus_of(&found), notes.len())
        };
        fn cpus_of(facts: &[Fact]) -> Option<u32> {
            assert!(facts.iter().filter(|fact| fact.key == "fabric.cpus").count() <= 1);
            cpus(facts)
        }
        assert_eq!(of(&[], "", 96), (Some(96), 0));
        assert_eq!(of(&[], "cpus_allowed=0-7", 0), (None, 0), "the base's");
        assert_eq!(of(&[], "cpus_allowed=0-127", 0), (Some(128), 0));
        assert_eq!(of(&[], "cpus_allowed=120", 16), (Some(121), 1), "others are offline");
        let lscpu = [("lscpu", "CPU(s): 8\n")];
        assert_eq!((of(&lscpu, "cpus_allowed=3", 4), of(&lscpu, "cpus_allowed=11", 4)), ((Some(8), 0), (Some(12), 1)));
        assert_eq!(of(&[], "", 1152), (Some(1024), 1));
        assert_eq!(of(&[("lscpu", "CPU(s): 96\nSocket(s): 24\n")], "", 0), (Some(96), 1));
    }

    #[test]
    fn damaged_files_state_nothing() {
        let files = ["lscpu", "sys/devices/system/cpu/online", "x/queue/write_cache", "drive/a/current_link_speed"];
        for junk in ["", "\0", "-", "9-3", "0-99999999999", "GT/s", "é"] {
            let about = files.iter().map(|path| ((*path).to_owned(), junk.as_bytes().to_vec())).collect();
            assert!(facts(&about).iter().all(|fact| fact.key == "drive.volatile_cache"), "{junk:?}");
        }
    }
}
