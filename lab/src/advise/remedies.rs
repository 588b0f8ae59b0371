//! The one table of remedies. A new remedy is a line of [`REMEDIES`] and its function.
//!
//! A remedy is what an administrator could do to a server: each of its steps is a variant or settings of the same
//! experiment. It knows what `lscpu`, sysfs and the job say, and nothing that only the machine's models know.

use super::needs::Need;
use crate::kinds::accelerator::Accelerator;
use crate::kinds::network::Network;
use crate::kinds::rdma::{Moderation, Rdma};
use crate::kinds::storage::{IoEngine, Storage, StorageVariant};
use crate::kinds::threaded::Threaded;
use crate::plan::Plan;
use crate::report::figure::counted;
use Need::{Application, CustomKernel, Device, Kernel, Posting};

/// A family of remedies.
pub struct Remedy {
    /// Its name, for `--among`.
    pub id: &'static str,
    /// What it does, in a few words.
    pub about: &'static str,
    /// What to try on a plan, or why it does not apply there.
    pub steps: fn(&Subject<'_>) -> Steps,
}

/// The steps of a remedy, at least one; or the reason why it does not apply.
pub type Steps = Result<Vec<Step>, String>;

/// What a remedy is told of the server as it is today.
pub struct Subject<'a> {
    /// The experiment in today's variant.
    pub plan: &'a Plan,
    /// The name of that variant.
    pub today: &'a str,
}

/// One way to apply a remedy.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// Its name in tables.
    pub name: String,
    /// The variant that it runs in; none: today's.
    pub delivery: Option<String>,
    /// Settings that it changes, as `--set` takes them.
    pub sets: Vec<String>,
    /// What it needs, beside what the model itself refuses.
    pub needs: Vec<Need>,
    /// How it is switched on: commands, parameters.
    pub how: &'static str,
    /// It gives CPU time to polling.
    pub polls: bool,
    /// Why this step alone does not apply.
    pub not_here: Option<String>,
}

/// Every remedy that the lab has.
pub static REMEDIES: [Remedy; 15] = [
    Remedy { id: "posted", about: "posted MSI: one notification for several messages", steps: posted },
    Remedy { id: "coalescing", about: "NVMe feature 08h: the drive gathers entries", steps: coalescing },
    Remedy { id: "check", about: "a look at the completion queue after each submission", steps: check },
    Remedy { id: "polled", about: "polled queues: no interrupts", steps: polled },
    Remedy { id: "queues", about: "another number of queues a drive", steps: queues },
    Remedy { id: "rq_affinity", about: "the CPU on which an I/O completes", steps: rq_affinity },
    Remedy { id: "threaded", about: "completions in the interrupt's thread", steps: threaded },
    Remedy { id: "batch", about: "I/Os submitted and taken by one call", steps: batch },
    Remedy { id: "passes", about: "harvest passes of a notification", steps: passes },
    Remedy { id: "budget", about: "a bound on the time of a notification", steps: budget },
    Remedy { id: "self-ipi", about: "a notification sends each vector to its CPU", steps: self_ipi },
    Remedy { id: "moderation", about: "moderation of completion queues", steps: moderation },
    Remedy { id: "interrupts", about: "several interrupts for a virtio device", steps: interrupts },
    Remedy { id: "threads", about: "a polling thread for each queue of a guest's card", steps: threads },
    Remedy { id: "eoimode1", about: "a threaded line that stays active instead of masked", steps: eoimode1 },
];

const POSTED: &str = "kernel parameter intremap=posted_msi";

impl Subject<'_> {
    fn storage(&self) -> Option<&Storage> {
        self.plan.storage()
    }

    fn is<K: crate::kinds::Kind>(&self) -> bool {
        self.plan.work.of::<K>().is_some()
    }

    /// The storage experiment, or why there is none.
    fn of_drives(&self) -> Result<&Storage, String> {
        self.storage().ok_or_else(|| "it is for jobs on drives".to_owned())
    }

    /// Refuses all loads but those of `K`.
    fn only<K: crate::kinds::Kind>(&self, of: &str) -> Result<(), String> {
        if self.is::<K>() { Ok(()) } else { Err(format!("it is for {of}")) }
    }

    /// Refuses today's deliveries that are not `valid`.
    fn today_in(&self, valid: &[&str]) -> Result<(), String> {
        match valid.contains(&self.today) {
            true => Ok(()),
            false => Err(format!("today's delivery is {}; it needs {}", self.today, valid.join(" or "))),
        }
    }
}

fn step(name: impl Into<String>, how: &'static str) -> Step {
    Step { name: name.into(), how, ..Step::default() }
}

/// Posted where interrupts are remapped or plain, and the way back where they are posted.
fn posted(of: &Subject<'_>) -> Steps {
    if !(of.is::<Storage>() || of.is::<Accelerator>()) {
        return Err("it is for jobs on drives, or on an accelerator".into());
    }
    if of.today == "polled" {
        return Err("today's queues are polled, and send no interrupts".into());
    }
    let needs = vec![Posting, Kernel(6, 10)];
    match of.today.split_once(' ').map_or((of.today, None), |(first, rest)| (first, Some(rest))) {
        // How a notification is handled, or how long its update takes, has no meaning without posting.
        ("posted", rest) => {
            let kept = rest.filter(|rest| matches!(*rest, "threaded" | "ours"));
            let name = kept.map_or("remapped".to_owned(), |rest| format!("remapped {rest}"));
            Ok(vec![Step {
                delivery: Some(name.clone()),
                ..step(name, "without the kernel parameter intremap=posted_msi")
            }])
        }
        ("remapped", Some(rest)) => {
            let name = format!("posted {rest}");
            Ok(vec![Step { delivery: Some(name.clone()), needs, ..step(name, POSTED) }])
        }
        _ => Ok(vec![Step { delivery: Some("posted".into()), needs, ..step("posted", POSTED) }]),
    }
}

/// Feature 08h: entries and units of 100 us.
const COALESCING: [(u16, u16); 5] = [(2, 1), (4, 1), (8, 1), (32, 1), (32, 4)];

const FEATURE_08H: &str =
    "nvme set-feature /dev/nvme0 -f 8 -v V, V = 256 x (time / 100 us) + entries - 1, for each drive";

/// Steps of coalescing; where a drive coalesces already, also the way back.
fn coalescing(of: &Subject<'_>) -> Steps {
    let storage = of.of_drives()?;
    if of.today == "polled" {
        return Err("today's queues are polled, and send no interrupts".into());
    }
    let set = |entries: u16, time_us: u16| {
        vec![format!("drives.coalescing_entries={entries}"), format!("drives.coalescing_time={time_us}us")]
    };
    let of_steps = |(entries, steps): (u16, u16)| Step {
        sets: set(entries, steps * 100),
        needs: vec![Device("the drive honours feature 08h", "nvme get-feature /dev/nvme0 -f 8 after setting it")],
        ..step(format!("coalescing {entries}, {} µs", steps * 100), FEATURE_08H)
    };
    let is_on = storage.drives.iter().any(|drive| drive.coalescing.is_some());
    let off =
        Step { sets: set(1, 0), ..step("coalescing off", "nvme set-feature /dev/nvme0 -f 8 -v 0, for each drive") };
    Ok(is_on.then_some(off).into_iter().chain(COALESCING.into_iter().map(of_steps)).collect())
}

fn check(of: &Subject<'_>) -> Steps {
    of.of_drives()?;
    of.today_in(&["remapped", "posted"])?;
    Ok(vec![Step {
        delivery: Some(format!("{} ours", of.today)),
        sets: vec!["options.check_queue=auto".into()],
        needs: vec![CustomKernel("a driver that looks at the completion queue after a submission")],
        ..step("completion check", "the look of docs/check-queue.md in the kernel's NVMe driver")
    }])
}

fn polled(of: &Subject<'_>) -> Steps {
    let storage = of.of_drives()?;
    if of.today == "polled" {
        return Err("today's queues are polled already".into());
    }
    let is_uring = storage.jobs.iter().all(|job| matches!(job.engine, IoEngine::IoUring { .. }));
    let sets = if is_uring { Vec::new() } else { vec!["job.ioengine=io_uring".into()] };
    let needs = if is_uring { Vec::new() } else { vec![Application("io_uring instead of its engine")] };
    Ok(vec![Step {
        delivery: Some(StorageVariant::Polled.to_string()),
        sets,
        needs,
        polls: true,
        ..step("polled queues", "module parameter nvme.poll_queues=N (a queue for each polling CPU); the job: hipri=1")
    }])
}

fn queues(of: &Subject<'_>) -> Steps {
    let most = of.of_drives()?.drives.iter().map(|drive| drive.queues).max().unwrap_or(0);
    if most < 2 {
        return Err("no drive has more than one queue".into());
    }
    let of_count = |count: u32| Step {
        sets: vec![format!("drives.queues={count}")],
        needs: vec![CustomKernel("the NVMe driver takes a queue for each CPU and has no parameter for fewer")],
        ..step(format!("{} a drive", counted(count, "queue")), "fewer I/O queues in the driver's request (feature 07h)")
    };
    Ok([most / 2, most / 4].into_iter().filter(|&count| count > 0).map(of_count).collect())
}

fn rq_affinity(of: &Subject<'_>) -> Steps {
    of.of_drives()?;
    let of_value = |value: u8| Step {
        sets: vec![format!("options.rq_affinity={value}")],
        ..step(format!("rq_affinity {value}"), "echo VALUE > /sys/block/nvme0n1/queue/rq_affinity, for each drive")
    };
    Ok([0, 1, 2].map(of_value).into())
}

/// Handlers in threads, and the way back where they are.
fn threaded(of: &Subject<'_>) -> Steps {
    of.of_drives()?;
    if let Some(back) = of.today.strip_suffix(" threaded") {
        let how = "without the module parameter nvme.use_threaded_interrupts";
        return Ok(vec![Step { delivery: Some(back.to_owned()), ..step("handlers in the interrupt", how) }]);
    }
    of.today_in(&["remapped", "posted"])?;
    Ok(vec![Step {
        delivery: Some(format!("{} threaded", of.today)),
        ..step("threaded handlers", "module parameter nvme.use_threaded_interrupts=1")
    }])
}

fn batch(of: &Subject<'_>) -> Steps {
    let depth = of.of_drives()?.jobs.iter().map(|job| job.iodepth).min().unwrap_or(0);
    let of_size = |size: u32| Step {
        sets: ["submit", "complete_min"].map(|part| format!("job.iodepth_batch_{part}={size}")).into(),
        needs: vec![Application("batches of that size")],
        not_here: (size > 1 && size * 2 > depth)
            .then(|| format!("a job has {} in flight; it needs {}", counted(depth, "I/O"), size * 2)),
        ..step(format!("batches of {size}"), "the job: iodepth_batch_submit and iodepth_batch_complete_min")
    };
    Ok([1, 8, 16, 32].map(of_size).into())
}

fn passes(of: &Subject<'_>) -> Steps {
    of.only::<Accelerator>("jobs on an accelerator")?;
    if !of.plan.platform.fabric.posted_capability.is_set() {
        return Err("the IOMMU does not post interrupts (capability register, bit 59)".into());
    }
    let of_count = |count: u32| Step {
        delivery: Some(format!("posted passes={count}")),
        needs: vec![Posting, CustomKernel("MAX_POSTED_MSI_COALESCING_LOOP is a constant of the kernel")],
        ..step(format!("posted, {count} passes"), POSTED)
    };
    Ok([1, 3, 4].map(of_count).into())
}

fn budget(of: &Subject<'_>) -> Steps {
    of.only::<Accelerator>("jobs on an accelerator")?;
    let needs = vec![Posting, CustomKernel("a notification's handler with a bound on its time")];
    Ok(vec![Step { delivery: Some("posted budget=2us".into()), needs, ..step("posted, at most 2 µs", POSTED) }])
}

fn self_ipi(of: &Subject<'_>) -> Steps {
    of.only::<Accelerator>("jobs on an accelerator")?;
    let needs = vec![Posting, CustomKernel("a notification's handler that sends each vector to its CPU")];
    Ok(vec![Step { delivery: Some("posted self-ipi".into()), needs, ..step("posted, self-IPI", POSTED) }])
}

/// Each moderation; where one is on, also none.
fn moderation(of: &Subject<'_>) -> Steps {
    let work = of.plan.work.of::<Rdma>().ok_or_else(|| "it is for jobs on an RDMA card".to_owned())?;
    let last = work.experiment.levels.last();
    let controller = |name: &str, how, needs| Step { delivery: Some(name.into()), needs, ..step(name, how) };
    let mut steps = vec![
        controller("rdma_dim", "rdma dev set DEV adaptive-moderation on", vec![]),
        controller("net_dim", "the card's driver", vec![CustomKernel("net_dim serves network queues, not these")]),
        controller("irq-am", "the series of 2018", vec![CustomKernel("irq-am was not merged")]),
        controller("adaptive", "the controller of docs/moderation.md", vec![CustomKernel("this project's controller")]),
    ];
    let fixed = |level: usize| Step {
        delivery: Some(format!("level {level}")),
        needs: vec![CustomKernel("a fixed moderation in the user of the completion queue (ib_modify_cq)")],
        ..step(format!("level {level}"), "ib_modify_cq with that level's count and period")
    };
    steps.extend([last / 2, last].into_iter().filter(|&level| level > 0).map(fixed));
    let none = Moderation::None.to_string();
    if of.today != none {
        let how = "rdma dev set DEV adaptive-moderation off, and no other moderation";
        steps.push(Step { delivery: Some(none.clone()), ..step(none, how) });
    }
    Ok(steps)
}

fn interrupts(of: &Subject<'_>) -> Steps {
    of.only::<Network>("a virtio network card")?;
    if !of.today.ends_with("IRQ") {
        return Err(format!("today's delivery is {}; it needs 1 IRQ", of.today));
    }
    let extension = CustomKernel("host and guest with the extension of docs/virtio-mmio-multi-irq.md");
    let several = |name: String, queues: &str| Step {
        delivery: Some(format!("{name}{queues}")),
        needs: vec![extension],
        ..step(format!("{name}{queues}"), "a device with several interrupts on the MMIO transport")
    };
    let mut steps: Vec<Step> = ["2 IRQs", "4 IRQs", "8 IRQs"].map(|name| several(name.into(), "")).into();
    steps.extend(["ladder", "fixed"].map(|mapping| several("8 IRQs".into(), &format!(" mapping={mapping}"))));
    steps.push(Step {
        delivery: Some("virtio-pci".into()),
        needs: vec![Device("the monitor gives its guest a PCI bus", "lspci in the guest")],
        ..step("virtio-pci", "the device on the PCI transport, with a vector for each queue")
    });
    Ok(steps)
}

fn threads(of: &Subject<'_>) -> Steps {
    of.only::<Network>("a virtio network card")?;
    if !of.today.ends_with("IRQ") {
        return Err(format!("today's delivery is {}; it needs 1 IRQ", of.today));
    }
    Ok(vec![Step {
        delivery: Some(format!("{} polls=spread", of.today)),
        ..step("threaded NAPI", "echo 1 > /sys/class/net/eth0/threaded, each thread on a CPU of its own")
    }])
}

fn eoimode1(of: &Subject<'_>) -> Steps {
    of.only::<Threaded>("threaded interrupts behind a GIC")?;
    if !of.today.starts_with("mask") {
        return Err(format!("today's delivery is {}; it needs one that masks", of.today));
    }
    Ok(vec![
        Step {
            delivery: Some("eoimode1".into()),
            needs: vec![CustomKernel("the series of 2021 was not merged")],
            ..step("EOImode 1", "a GIC driver that deactivates the line after its thread")
        },
        Step {
            delivery: Some("ours".into()),
            needs: vec![CustomKernel("this project's GIC driver")],
            ..step("EOImode 1, ours", "the driver of docs/gic.md")
        },
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Request;

    fn steps_of(request: &Request) -> Vec<(&'static str, Step)> {
        let plan = request.plan().unwrap();
        let today = plan.work.names()[0].clone();
        let of = Subject { plan: &plan, today: &today };
        let all = REMEDIES.iter().filter_map(|remedy| Some((remedy.id, (remedy.steps)(&of).ok()?)));
        all.flat_map(|(id, steps)| steps.into_iter().map(move |step| (id, step))).collect()
    }

    fn steps(scenario: &str) -> Vec<(&'static str, Step)> {
        steps_of(&Request::of(scenario))
    }

    #[test]
    fn each_kind_has_its_remedies_and_each_step_says_how() {
        for (scenario, wanted) in [
            ("emr-4-drives", &["posted", "coalescing", "check", "polled", "rq_affinity", "threaded", "batch"][..]),
            ("dsa-headline", &["posted", "passes", "budget", "self-ipi"]),
            ("rdma-vm", &["moderation"]),
            ("virtio-irqs", &["interrupts", "threads"]),
            ("gic-altra", &["eoimode1"]),
        ] {
            let steps = steps(scenario);
            for id in wanted {
                assert!(steps.iter().any(|(known, _)| known == id), "{scenario}: {id}");
            }
            for (id, step) in &steps {
                assert!(!step.how.is_empty() && !step.name.is_empty(), "{scenario}: {id}");
            }
        }
    }

    #[test]
    fn a_remedy_that_is_in_use_is_not_offered() {
        assert!(steps("emr-polled").iter().all(|(id, _)| !matches!(*id, "polled" | "posted")));
    }

    /// A server that posts or coalesces already was never asked whether it should.
    #[test]
    fn what_is_switched_on_already_has_a_way_back() {
        for (today, back) in [
            ("posted", "remapped"),
            ("posted threaded", "remapped threaded"),
            ("posted update=150ns", "remapped"),
            ("remapped ours", "posted ours"),
        ] {
            let request = Request { deliveries: Some(vec![today.into()]), ..Request::of("emr-4-drives") };
            let steps = steps_of(&request);
            let found: Vec<_> =
                steps.iter().filter(|(id, _)| *id == "posted").map(|(_, step)| &step.delivery).collect();
            assert_eq!(found, [&Some(back.to_owned())], "{today}");
        }
        let sets = vec!["drives.coalescing_entries=8".into(), "drives.coalescing_time=100us".into()];
        let steps = steps_of(&Request { sets, ..Request::of("emr-4-drives") });
        let off = steps.iter().find(|(_, step)| step.name == "coalescing off").unwrap();
        assert!(off.1.needs.is_empty() && off.1.sets == ["drives.coalescing_entries=1", "drives.coalescing_time=0us"]);
        assert!(steps_of(&Request::of("emr-4-drives")).iter().all(|(_, step)| step.name != "coalescing off"));
    }

    #[test]
    fn threads_and_moderations_have_a_way_back() {
        let back = |scenario: &str, today: &str, id: &str| {
            let request = Request { deliveries: Some(vec![today.into()]), ..Request::of(scenario) };
            let steps = steps_of(&request).into_iter().filter(|(known, step)| *known == id && step.needs.is_empty());
            steps.filter_map(|(_, step)| step.delivery).collect::<Vec<_>>()
        };
        for (today, back_to) in [("remapped threaded", "remapped"), ("posted threaded", "posted")] {
            assert_eq!(back("emr-4-drives", today, "threaded"), [back_to]);
        }
        assert_eq!(back("emr-4-drives", "posted", "threaded"), ["posted threaded"]);
        for today in ["rdma_dim", "level 2"] {
            assert_eq!(back("rdma-vm", today, "moderation"), ["rdma_dim", "no moderation"], "{today}");
        }
        assert_eq!(back("rdma-vm", "no moderation", "moderation"), ["rdma_dim"]);
    }

    #[test]
    fn a_remedy_says_why_it_does_not_apply() {
        let plan = Request::of("emr-polled").plan().unwrap();
        let of = Subject { plan: &plan, today: "polled" };
        let why = |id: &str| (REMEDIES.iter().find(|remedy| remedy.id == id).unwrap().steps)(&of).unwrap_err();
        assert_eq!(why("posted"), "today's queues are polled, and send no interrupts");
        assert_eq!(why("threaded"), "today's delivery is polled; it needs remapped or posted");
        assert_eq!(why("eoimode1"), "it is for threaded interrupts behind a GIC");
    }
}
