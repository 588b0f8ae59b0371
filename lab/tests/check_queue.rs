//! The look after submissions on whole servers: it helps in some cases, and costs nothing in the others.

mod common;

use common::{mean, outcomes, plan, summary};
use lab::kinds::storage::StorageVariant::{self, Remapped};
use lab::outcome::Summary;

fn run(scenario: &str, sets: &[&str]) -> Summary {
    summary(scenario, Remapped, sets, 2)
}

/// The driver finds the setting itself; the published patch needs to be told.
#[test]
fn it_is_automatic_where_the_drive_coalesces_undeclared() {
    // The driver needs sixteen interrupts of half a millisecond each to decide; the start of the load takes as many
    // again.
    let span = ["ramp=20ms", "duration=10ms"];
    let iops = |check: &str| mean(&run("azure-one-job", &[&span[..], &[check]].concat()), "iops");
    let (off, on, auto) =
        (iops("options.check_queue=off"), iops("options.check_queue=on"), iops("options.check_queue=auto"));
    assert!(on > 3.0 * off, "{off} without, {on} with");
    assert!((auto / on - 1.0).abs() < 0.005, "{auto} found out, {on} told");
}

/// The published rows: own queues on honest drives. No queue is checked, and not an event differs.
#[test]
fn it_stays_off_on_queues_of_one_cpu() {
    let span = ["ramp=1ms", "duration=1ms"];
    for (scenario, delivery) in
        [("emr-4-drives", Remapped), ("emr-4-drives", StorageVariant::Posted), ("optane-4-drives", Remapped)]
    {
        let of = |check: &str| {
            let plan = plan(scenario, &[&span[..], &[check]].concat());
            outcomes(&plan, delivery, 1).remove(0)
        };
        let (auto, off) = (of("options.check_queue=auto"), of("options.check_queue=off"));
        assert_eq!(auto.interrupts.looks, 0, "{scenario}, {delivery}");
        assert_eq!(
            (auto.engine.digest, auto.interrupts),
            (off.engine.digest, off.interrupts),
            "{scenario}, {delivery}"
        );
    }
}

/// The look is forced upon drives that it cannot help. Every look pays for the cache line that the device writes.
#[test]
fn forced_it_costs_less_than_half_a_per_cent() {
    for sets in [
        // Latency at depth 1, where there is nothing to find.
        &["duration=20ms", "job.iodepth=1", "job.iodepth_batch_submit=1", "job.iodepth_batch_complete_min=1"][..],
        // Throughput of a saturated CPU.
        &["duration=10ms"],
    ] {
        let of = |check: &str| run("optane-4-drives", &[sets, &[check]].concat());
        let (off, on) = (of("options.check_queue=off"), of("options.check_queue=on"));
        let change = |id: &str| mean(&on, id) / mean(&off, id) - 1.0;
        let looks = mean(&on, "look_hits");
        eprintln!(
            "{sets:?}: IOPS {:+.3} %, latency {:+.3} %, {looks:.1} % of the looks hit",
            change("iops") * 100.0,
            change("clat") * 100.0
        );
        assert!(change("iops") > -0.005, "{sets:?}: IOPS {:+.3} %", change("iops") * 100.0);
        assert!(change("clat") < 0.005, "{sets:?}: latency {:+.3} %", change("clat") * 100.0);
    }
}

/// With many CPUs and few queues, every CPU reaps for itself; without the look, one CPU's interrupts reap for all.
#[test]
fn several_cpus_on_a_queue_share_its_completions() {
    let sets = ["ramp=1ms", "duration=2ms", "drives.queues=4"];
    let of = |check: &str| {
        let plan = plan("emr-4-drives", &[&sets[..], &[check]].concat());
        outcomes(&plan, Remapped, 1).remove(0)
    };
    let (off, auto) = (of("options.check_queue=off"), of("options.check_queue=auto"));
    assert_eq!((off.interrupts.looks, off.interrupts.reaped_by_check), (0, 0));
    assert!(auto.interrupts.reaped_by_check > auto.interrupts.reaped_by_interrupt, "{:?}", auto.interrupts);
    let ios =
        |outcome: &lab::outcome::Outcome| outcome.storage().unwrap().drives.iter().map(|drive| drive.ios).sum::<u64>();
    eprintln!("{} I/Os without, {} with: {:#?}", ios(&off), ios(&auto), auto.interrupts);
    assert!(ios(&auto) > ios(&off), "{} against {}", ios(&auto), ios(&off));
    assert_eq!(auto.storage().unwrap().drives.iter().map(|drive| drive.errors).sum::<u64>(), 0);
}

/// Reproduces the soft lockup: one CPU takes a drive's whole rate, and its completions take longer than the drive. An
/// interrupt that runs for as long as it finds entries then never returns. The driver's bound and the look each end
/// it.
#[test]
fn an_unbounded_interrupt_keeps_its_cpu_for_as_long_as_others_submit() {
    let longest_ns = |duration: &str, options: &[&str]| {
        // A microsecond for each completion on another CPU of the queue. These share a cache here.
        let sets = [&[duration, "cpu.near_completion=1us"], options].concat();
        let outcome = outcomes(&plan("azure-80-cpus", &sets), Remapped, 1).remove(0);
        outcome.interrupts.longest_ns.expect("under a watchdog")
    };
    let (off, on) = ("options.check_queue=off", "options.check_queue=auto");
    for (duration, span_ns) in [("duration=8ms", 8_000_000), ("duration=16ms", 16_000_000)] {
        let neither = longest_ns(duration, &[off, "options.reap_bound=none"]);
        assert!(neither > span_ns, "{neither} ns, from the ramp to the end of the run");
        for options in [&[off][..], &[on], &[on, "options.reap_bound=none"]] {
            let longest = longest_ns(duration, options);
            assert!(longest * 2 < span_ns, "{options:?}: {longest} ns of {span_ns}");
        }
    }
}

/// The watchdog reports what it is told to, and the look leaves it less to report.
#[test]
fn fewer_interrupts_are_long() {
    let of = |check: &str, limit: &str| {
        let plan = plan("azure-80-cpus", &["duration=3ms", check, limit]);
        let outcome = outcomes(&plan, Remapped, 1).remove(0);
        let long = outcome.faults.iter().filter(|fault| fault.kind == "interrupt longer than its limit");
        (long.map(|fault| fault.count).sum::<u64>(), outcome.interrupts.longest_ns.expect("under a watchdog"))
    };
    let limit = "options.interrupt_limit=60us";
    let (off, longest_ns) = of("options.check_queue=off", limit);
    let (auto, _) = of("options.check_queue=auto", limit);
    eprintln!("{off} over 60 us without, {auto} with; the longest {longest_ns} ns");
    assert!(auto * 2 < off, "{auto} with the look, {off} without");
    assert_eq!(of("options.check_queue=off", "options.interrupt_limit=1ms").0, 0);
}
