//! How the interrupts of a measurement's drives came: from two readings of `/proc/interrupts`.

use super::chips;
use super::elapsed::Elapsed;
use super::used::{self, Used};
use import::fio_json::FioOutput;
use import::interrupts::{Difference, Interrupts, Line};
use std::collections::BTreeSet;

/// The interrupts between two readings.
#[derive(Clone, PartialEq, Debug)]
pub struct Delivered {
    /// Of the NVMe queues that the job used, a second; none if that is not known.
    pub per_second: Option<f64>,
    /// NVMe queues that had one: the job's, where it is known which are.
    pub vectors: usize,
    /// How they came: the name of a variant.
    pub delivery: &'static str,
}

impl Delivered {
    /// The interrupts of the NVMe queues that a job used, between two readings. What the readings lack, and what is taken in its
    /// place, are notes.
    pub(super) fn between(
        [before, after]: [&Interrupts; 2],
        used: &Used,
        elapsed: Elapsed,
        notes: &mut Vec<String>,
    ) -> Option<Self> {
        notes.extend(before.notes.iter().chain(&after.notes).map(|note| format!("interrupts: {note}")));
        if before.is_behind(after) {
            notes.push("interrupts: the counts fall: the two readings are not in their order".to_owned());
            return None;
        }
        let found = delivered(&before.until(after), [before, after], (used, elapsed), notes)?;
        let is_part = [before, after].iter().any(|reading| reading.lines.iter().all(|line| line.chip().is_some()));
        if is_part && found.delivery == "remapped" {
            notes.push(
                "interrupts: the kernel's own counters are missing: a line PMN would tell posted messages from remapped ones, which are assumed"
                    .to_owned(),
            );
        }
        Some(found)
    }

    /// Leaves a rate out that the job's I/Os cannot have, and says why: an interrupt serves those that are in flight, and no more.
    pub(super) fn without_what_cannot_be(&mut self, fio: &FioOutput) -> Option<String> {
        let rate = self.per_second?;
        // Without latencies it is not known.
        let in_flight = Some(fio.in_flight()).filter(|in_flight| *in_flight > 0.0)?.max(1.0);
        let iops = fio.iops();
        if rate * in_flight * SHARED_SLACK >= iops {
            return None;
        }
        self.per_second = None;
        Some(format!(
            "interrupts: {rate:.0} a second are too few for {iops:.0} I/Os of which {in_flight:.0} were in flight: the I/Os were \
             polled, or the interrupts are of other drives; there is no rate"
        ))
    }
}

/// An interrupt may serve so many times what was in flight, for drives go on while a handler looks.
const SHARED_SLACK: f64 = 4.0;

/// Most interrupts that a note names.
const NAMED_MAX: usize = 8;

/// The interrupts of NVMe queues in a difference; none if there are none.
fn delivered(
    differences: &[Difference],
    [before, after]: [&Interrupts; 2],
    (used, elapsed): (&Used, Elapsed),
    notes: &mut Vec<String>,
) -> Option<Delivered> {
    // The admin queue, 0, has no I/O.
    let is_queue = |difference: &&Difference| difference.line.nvme_queue().is_some_and(|(_, queue)| queue > 0);
    let queues: Vec<&Difference> = differences.iter().filter(is_queue).filter(|queue| queue.total() > 0).collect();
    if queues.is_empty() {
        let mut of_devices = after.lines.iter().filter(|line| line.is_numbered()).peekable();
        let why = if of_devices.peek().is_some() && of_devices.all(|line| line.actions().is_empty()) {
            "no line of the readings has a device's name: they end before it; valid: whole lines of /proc/interrupts"
        } else if before == after {
            "both readings of /proc/interrupts are the same; valid: one before the run, and one after it"
        } else if after.lines.iter().all(|line| line.nvme_queue().is_none()) {
            "no line of the readings is of an NVMe queue (nvme0q1)"
        } else {
            "no interrupt of an NVMe queue (nvme0q1) came between the readings"
        };
        notes.push(why.to_owned());
        return None;
    }
    let is_called = |queue: &&&Difference| queue.line.is_called_by_vmd();
    let called_count = queues.iter().filter(is_called).count();
    let used::Own { queues, mut is_exact } = used.own(queues, [before, after], notes);
    let (called, own): (Vec<&Difference>, Vec<_>) =
        queues.iter().copied().partition(|queue| queue.line.is_called_by_vmd());
    let passed: Vec<&Difference> = own.iter().copied().filter(|queue| queue.line.is_behind_vmd()).collect();
    if !passed.is_empty() {
        notes.push(format!("{}: it passes their interrupts on, which are counted as they are", behind_vmd(&passed)));
    }
    if !called.is_empty() && called.len() < called_count {
        notes.push(
            "interrupts: those of the VMD are also of drives that the job did not use: there is no rate".to_owned(),
        );
        is_exact = false;
    }
    let of_vmd = if called.is_empty() { Vec::new() } else { of_vmd(differences, &called, notes) };
    let interrupts: Vec<&Difference> = own.iter().chain(&of_vmd).copied().collect();
    interrupts.first()?;
    let notifications = differences.iter().find(|difference| difference.line.id == "PMN").map_or(0, Difference::total);
    let of_chips = chips::delivery(&interrupts, after, notes);
    let delivery = if notifications > 0 { "posted" } else { of_chips };
    let anew: Vec<&str> =
        interrupts.iter().filter(|one| one.is_anew).map(|one| one.line.id.as_str()).take(NAMED_MAX).collect();
    if !anew.is_empty() {
        notes.push(format!(
            "interrupts: counts of {} fell between the readings: they were set up anew, and how many came is not known",
            anew.join(", ")
        ));
    }
    let lacks = shared(&own, used).or_else(|| lacking(before, after, &interrupts));
    let is_whole = is_exact && anew.is_empty() && lacks.is_none();
    notes.extend(lacks);
    let count: u64 = interrupts.iter().fold(0, |sum, one| sum.saturating_add(one.total()));
    let per_second = if is_whole { elapsed.per_second(count, notes) } else { None };
    Some(Delivered { per_second, vectors: queues.len(), delivery })
}

/// What else has a line of the job's queues, so that how many of its interrupts are the job's is not known.
fn shared(queues: &[&Difference], used: &Used) -> Option<String> {
    queues.iter().find_map(|queue| {
        let of_others = |controllers: &BTreeSet<u32>| {
            let on_line: BTreeSet<u32> = queue.line.nvme_queues().into_iter().map(|(at, _)| at).collect();
            // With native multipath the line's controller may have none of the job's numbers.
            let own = if on_line.is_disjoint(controllers) {
                used::controller(queue).into_iter().collect()
            } else {
                controllers.clone()
            };
            on_line.difference(&own).map(|at| format!("nvme{at}")).collect()
        };
        let mut others: Vec<String> = match used {
            Used::Drives { controllers, .. } => of_others(controllers),
            Used::Untold => Vec::new(),
        };
        others.extend(queue.line.other_actions().into_iter().map(str::to_owned));
        others.truncate(NAMED_MAX);
        let line = &queue.line.id;
        (!others.is_empty()).then(|| {
            format!("interrupts: line {line} is also of {}: how many were the job's is not known", others.join(", "))
        })
    })
}

/// What is missing in one of the readings, so that how many interrupts came is not known: a count that only the second has is
/// that of all the time since the system started.
fn lacking(before: &Interrupts, after: &Interrupts, counted: &[&Difference]) -> Option<String> {
    let only = |of: &Interrupts, not: &Interrupts| of.cpus.iter().find(|cpu| !not.cpus.contains(cpu)).copied();
    // The VMD's interrupts are of all controllers.
    let of_vmd = counted.iter().any(|one| used::controller(one).is_none());
    let is_counted = |at: u32| of_vmd || counted.iter().any(|one| used::controller(one) == Some(at));
    let is_queue = |line: &&Line| line.nvme_queue().is_some_and(|(at, queue)| queue > 0 && is_counted(at));
    let has = |reading: &Interrupts, line: &Line| {
        reading.lines.iter().any(|known| known.id == line.id && known.nvme_queue() == line.nvme_queue())
    };
    let missing =
        |of: &Interrupts, not: &Interrupts| of.lines.iter().filter(is_queue).filter(|line| !has(not, line)).count();
    let is_cut = |reading: &Interrupts| {
        let counted = reading.lines.iter().filter(|line| counted.iter().any(|one| one.line.id == line.id));
        counted.into_iter().any(|line| line.counts.len() < reading.cpus.len())
    };
    let [gone, come] = [missing(before, after), missing(after, before)];
    let why = match (only(before, after), only(after, before)) {
        (Some(cpu), _) => format!("CPU{cpu} was online at the first reading alone"),
        (_, Some(cpu)) => format!("CPU{cpu} was online at the second reading alone"),
        _ if gone > 0 => format!("queues in the first reading alone: {gone}"),
        _ if come > 0 => format!("queues in the second reading alone: {come}"),
        _ if before.has_several || after.has_several => {
            "a file holds several readings, and which one is meant is not known; valid: one each, or both in one file that is given twice".to_owned()
        }
        _ if before.is_cut || after.is_cut => "a reading ends within a line".to_owned(),
        _ if is_cut(before) || is_cut(after) => "a line has fewer counts than there are CPUs".to_owned(),
        _ => return None,
    };
    Some(format!("interrupts: {why}: how many came is not known"))
}

/// The interrupts of Intel's VMD in place of those of the queues that its handler calls. The queues share the VMD's vectors,
/// and the handler calls all queues of a vector at each interrupt: their counts are not those of interrupts.
fn of_vmd<'a>(differences: &'a [Difference], called: &[&Difference], notes: &mut Vec<String>) -> Vec<&'a Difference> {
    let found: Vec<&Difference> = differences.iter().filter(|one| one.line.is_vmd() && one.total() > 0).collect();
    let how = match found.is_empty() {
        true => "no interrupt of the VMD itself (vmd0) came between the readings, and theirs are not used",
        false => "the VMD's own interrupts are counted in place of theirs; what its handler costs is not modelled",
    };
    notes.push(format!("{}: {how}", behind_vmd(called)));
    found
}

/// The drives of queues behind a VMD, for a note.
fn behind_vmd(queues: &[&Difference]) -> String {
    let controllers: BTreeSet<u32> = queues.iter().filter_map(|queue| used::controller(queue)).collect();
    let names = used::names(&controllers);
    format!("interrupts: {names} behind Intel's VMD ({})", queues[0].line.chip().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::super::gather::tests::FIO;
    use super::super::gather::{Measurement, Parts};
    use super::*;

    fn of_lines(before: &str, after: &str) -> (Option<Delivered>, String) {
        let [before, after] = [before, after].map(|lines| format!("CPU0 CPU1\n{lines}"));
        let parts = Parts {
            fio: FIO.as_bytes(),
            interrupts: Some([before.as_bytes(), after.as_bytes()]),
            uptime: Some([b"10.0 1", b"12.0 1"]),
            ..Parts::default()
        };
        let (found, notes) = Measurement::read("x", &parts).unwrap();
        (found.interrupts, notes.join("\n"))
    }

    #[test]
    fn the_delivery_is_what_the_kernel_counts() {
        let of = |chip: &str, notifications: u32| {
            let at = |count: u32, pmn: u32| format!(" 40: 0 {count} {chip} 1-edge nvme0q1\n PMN: {pmn} 0 Posted\n");
            of_lines(&at(5, 9), &at(2005, 9 + notifications)).0.unwrap()
        };
        assert_eq!(of("IR-PCI-MSIX", 0), Delivered { per_second: Some(1000.0), vectors: 1, delivery: "remapped" });
        assert_eq!(of("PCI-MSIX", 0).delivery, "plain");
        assert_eq!(of("vIR-PCI-MSIX-0000:01:00.0", 0).delivery, "remapped");
        assert_eq!(of("IR-PCI-MSIX", 7).delivery, "posted");
    }

    #[test]
    fn what_did_not_come_is_told_apart_from_what_is_not_there() {
        let of = |name: &str, more: u32| {
            let at = |count: u32, other: u32| {
                format!(" 40: {count} 0 IR-PCI-MSIX 1-edge {name}\n 41: {other} 0 IO-APIC 2-edge x\n")
            };
            of_lines(&at(5, 1), &at(5 + more, 2)).1
        };
        assert!(of("nvme0q1", 0).contains("no interrupt of an NVMe queue (nvme0q1) came"));
        assert!(of("eth0", 9).contains("no line of the readings is of an NVMe queue"), "{}", of("eth0", 9));
    }

    #[test]
    fn drives_behind_a_vmd_have_its_interrupts() {
        let of = |of_vmd: &str, of_queue: &str, pmn: u32| {
            let at = |count: u32, pmn: u32| {
                let queues: String =
                    (1..4).map(|queue| format!(" {}: {count} 0 {of_queue} nvme2q{queue}\n", 50 + queue)).collect();
                format!(" 40: 0 {count} {of_vmd}\n{queues} PMN: {pmn} 0 Posted\n")
            };
            of_lines(&at(5, 9), &at(2005, 9 + pmn))
        };
        for (of_vmd, of_queue, pmn, delivery) in [
            ("IR-PCI-MSIX-0000:64:00.5 1-edge vmd0", "VMD-PCI-MSIX-10000:01:00.0 1-edge", 0, "remapped"),
            ("IR-PCI-MSI 229376-edge vmd0", "VMD-MSI 126", 4, "posted"),
            ("PCI-MSI 229376-edge vmd", "VMD-MSI", 0, "plain"),
        ] {
            let (found, notes) = of(of_vmd, of_queue, pmn);
            let expected = Delivered { per_second: Some(1000.0), vectors: 3, delivery };
            assert_eq!(found, Some(expected), "{of_vmd}: {notes}");
            assert!(notes.contains("nvme2 behind Intel's VMD (VMD-"), "{notes}");
        }
        // Other drives behind it are busy.
        let at = |count: u32| {
            let queue = |at: u32| format!(" 5{at}: {count} 0 VMD-MSI 126 nvme{at}q1\n");
            format!(" 40: 0 {count} IR-PCI-MSI 229376-edge vmd0\n{}{} PMN: 0 0 Posted\n", queue(0), queue(1))
        };
        let (found, notes) = of_lines(&at(5), &at(2005));
        assert_eq!(found, Some(Delivered { per_second: None, vectors: 1, delivery: "remapped" }), "{notes}");
        assert!(notes.contains("also of drives that the job did not use"), "{notes}");
        let (found, notes) = of("IR-PCI-MSI 7-edge eth0", "VMD-MSI 126", 0);
        assert!(found.is_none() && notes.contains("no interrupt of the VMD itself"), "{notes}");
        // A VMD that passes messages on unchanged.
        let (found, notes) = of("IR-PCI-MSI 229376-edge eth0", "IR-PCI-MSIX-10000:01:00.0 1-edge", 0);
        assert_eq!(found.unwrap().per_second, Some(3000.0));
        assert!(notes.contains("nvme2 behind Intel's VMD (IR-PCI-MSIX-10000:01:00.0): it passes"), "{notes}");
    }

    #[test]
    fn a_line_that_other_devices_share_is_no_rate() {
        let at = |count: u32, names: &str| format!(" 10: {count} 0 IO-APIC 10-fasteoi {names}\n");
        for (names, why) in [
            ("virtio5, nvme0q0, nvme0q1, virtio0", "line 10 is also of virtio5, virtio0: how many"),
            ("nvme0q0, nvme0q1, nvme1q0, nvme1q1", "line 10 is also of nvme1: how many"),
            ("nvme0q0, nvme0q1", ""),
        ] {
            let (found, notes) = of_lines(&at(5, names), &at(2005, names));
            let rate = found.unwrap().per_second;
            assert_eq!(rate, why.is_empty().then_some(1000.0), "{names}: {notes}");
            assert!(notes.contains(why), "{names}: {notes}");
        }
    }

    #[test]
    fn fewer_interrupts_than_the_ios_need_are_no_rate() {
        let at = |count: u32| format!(" 41: {count} 0 IR-PCI-MSIX 1-edge nvme0q1\n LOC: 1 1 Local\n PMN: 0 0 Posted\n");
        let parts = |count: u32, clat_ns: u32| {
            let fio = format!(
                r#"{{"jobs": [{{"jobname": "a", "job options": {{"filename": "/dev/nvme0n1", "rw": "randread", "direct": "1",
                "iodepth": "32", "ioengine": "libaio"}}, "read": {{"iops": 100000, "total_ios": 200000, "runtime": 2000,
                "clat_ns": {{"mean": {clat_ns}, "max": 900000}}}}}}]}}"#
            );
            let [before, after] = [at(5), at(5 + count)].map(|lines| format!("CPU0 CPU1\n{lines}"));
            let parts = Parts {
                fio: fio.as_bytes(),
                interrupts: Some([before.as_bytes(), after.as_bytes()]),
                uptime: Some([b"10.0 1", b"12.0 1"]),
                ..Parts::default()
            };
            let (found, notes) = Measurement::read("x", &parts).unwrap();
            (found.interrupts.unwrap().per_second, notes.join("\n"))
        };
        // Coalesced: 16 of the 31 in flight each.
        assert_eq!(parts(12_500, 310_000).0, Some(6250.0));
        let (rate, notes) = parts(100, 310_000);
        assert!(rate.is_none() && notes.contains("50 a second are too few for 100000 I/Os of which 31"), "{notes}");
    }

    #[test]
    fn counts_that_fell_are_no_rate() {
        let at = |of_first: u32, of_others: u32| {
            let others: String =
                (2..5).map(|at| format!(" 4{at}: {of_others} 0 IR-PCI-MSIX {at}-edge nvme0q{at}\n")).collect();
            format!(" 41: {of_first} 0 IR-PCI-MSIX 1-edge nvme0q1\n{others} LOC: {of_others} 0 Local\n")
        };
        let (found, notes) = of_lines(&at(900, 5), &at(7, 2005));
        assert_eq!(found, Some(Delivered { per_second: None, vectors: 4, delivery: "remapped" }));
        assert!(notes.contains("counts of 41 fell"), "{notes}");
    }

    #[test]
    fn a_reading_that_is_given_twice_is_named() {
        let one = " 1: 5 0 IR-PCI-MSIX 1-edge nvme0q1\n";
        let (found, notes) = of_lines(one, one);
        assert!(found.is_none() && notes.contains("both readings of /proc/interrupts are the same"), "{notes}");
    }

    #[test]
    fn what_one_reading_lacks_is_no_rate() {
        let line = |id: u32, count: u32| format!(" {id}: {count} 0 IR-PCI-MSIX {id}-edge nvme0q{id}\n");
        let whole = |count: u32| line(1, count) + &line(2, count);
        let cut = |count: u32| line(1, count) + &format!(" 2: {count}\n");
        for (before, after, why) in [
            (whole(5), line(1, 2005), "queues in the first reading alone: 1"),
            (line(1, 5), whole(2005), "queues in the second reading alone: 1"),
            (whole(5), format!("{} 2: 2005", line(1, 2005)), "queues in the first reading alone: 1"),
            (whole(5), line(1, 2005).replace(" 0 ", " ") + &line(2, 2005), "fewer counts"),
            (cut(5), cut(2005), ""),
            (whole(5), whole(2005), ""),
        ] {
            let (found, notes) = of_lines(&before, &after);
            let rate = found.unwrap().per_second;
            assert!(rate.is_none() != why.is_empty() && notes.contains(why), "{after}: {rate:?} {notes}");
        }
        let at = |cpus: &str, counts: &str| format!("{cpus}\n 1: {counts} IR-PCI-MSIX 1-edge nvme0q1\n");
        let (one, two) = (at("CPU0", "5"), at("CPU0 CPU1", "7 900"));
        for (before, after, why) in
            [(&one, &two, "CPU1 was online at the second"), (&two, &one.replace('5', "9999"), "at the first")]
        {
            let [before, after] = [before, after].map(|text| Interrupts::parse(text.as_bytes()));
            let mut notes = Vec::new();
            let found = Delivered::between([&before, &after], &Used::Untold, Elapsed::Uptime(2.0), &mut notes);
            assert!(
                found.is_none_or(|found| found.per_second.is_none()) && notes.join("\n").contains(why),
                "{notes:?}"
            );
        }
    }

    #[test]
    fn readings_that_are_swapped_say_nothing() {
        let at = |count: u32| format!(" 40: {count} 0 IR-PCI-MSIX 1-edge nvme0q1\n");
        let (found, notes) = of_lines(&at(9), &at(5));
        assert!(found.is_none() && notes.lines().count() == 1 && notes.contains("not in their order"), "{notes:?}");
    }
}
