//! Drives whose completions a thread takes, and loads that posting must not harm. Each test reports its figures.

mod common;

use common::{mean, outcomes, plan, summary};
use lab::kinds::storage::StorageVariant::{
    self, Posted, PostedOurs, PostedThreaded, Remapped, RemappedOurs, RemappedThreaded,
};
use lab::outcome::Summary;

fn threaded(delivery: StorageVariant, sets: &[&str]) -> Summary {
    summary("emr-threaded", delivery, &[&["ramp=1ms", "duration=3ms"], sets].concat(), 1)
}

/// A wake and two switches for each interrupt: where CPUs are what is left, posting's gain shrinks. Where the remapping
/// unit is the bottleneck, idle CPUs pay for the threads.
#[test]
fn threads_cost_throughput_only_where_cpus_are_scarce() {
    let change = |from, to| mean(&threaded(to, &[]), "iops") / mean(&threaded(from, &[]), "iops") - 1.0;
    let (remapped, posted) = (change(Remapped, RemappedThreaded), change(Posted, PostedThreaded));
    eprintln!("threads change IOPS by {:+.1} % remapped, {:+.1} % posted", remapped * 100.0, posted * 100.0);
    assert!(remapped.abs() < 0.02, "{remapped}");
    assert!((-0.25..-0.10).contains(&posted), "{posted}");
}

/// The thread's costs are all that it loses by.
#[test]
fn threads_that_cost_nothing_lose_nothing() {
    let free = ["cpu.thread_wake=0ns", "cpu.context_switch=0ns"];
    let iops = |delivery, sets: &[&str]| mean(&threaded(delivery, sets), "iops");
    let (hard, thread) = (iops(Posted, &[]), iops(PostedThreaded, &free));
    assert!((thread / hard - 1.0).abs() < 0.01, "{thread} against {hard}");
}

/// At depth 1 each I/O waits for the thread: the wake, and the switch to it.
#[test]
fn a_single_io_waits_for_the_thread() {
    let clat = |delivery| mean(&threaded(delivery, &["job.iodepth=1", "duration=10ms"]), "clat");
    let (hard, thread) = (clat(Remapped), clat(RemappedThreaded));
    eprintln!("{hard:.0} ns in the interrupt, {thread:.0} ns in a thread");
    assert!((1_400.0..3_500.0).contains(&(thread - hard)), "{thread} against {hard}");
}

/// An interrupt whose entries the running thread has taken wakes nobody, and every completion is still taken.
#[test]
fn a_thread_takes_what_the_interrupt_would() {
    for delivery in [RemappedThreaded, PostedThreaded] {
        let plan = plan("emr-threaded", &["ramp=1ms", "duration=1ms", "options.verify_data=true", "job.bs=512"]);
        let outcome = outcomes(&plan, delivery, 1).remove(0);
        assert!(outcome.faults.is_empty(), "{delivery}: {:?}", outcome.faults);
        let summary = Summary::over(&[outcome]).unwrap();
        assert!(mean(&summary, "completions_per_interrupt") > 1.0, "{delivery}: entries gather while the thread runs");
        assert_eq!(mean(&summary, "local_completions"), 100.0, "{delivery}: the thread runs on the interrupt's CPU");
    }
}

/// Loads far below the path's limit: no variant is better or worse by half a per cent.
#[test]
fn posting_does_a_build_and_a_copy_no_harm() {
    for (scenario, spans) in
        [("emr-compile", ["ramp=2ms", "duration=8ms"]), ("emr-copy", ["ramp=20ms", "duration=40ms"])]
    {
        let iops = |delivery| mean(&summary(scenario, delivery, &spans, 1), "iops");
        let stock = iops(Remapped);
        for other in [Posted, RemappedOurs, PostedOurs] {
            let change = iops(other) / stock - 1.0;
            eprintln!("{scenario}, {other}: {:+.2} %", change * 100.0);
            assert!(change.abs() < 0.005, "{scenario}, {other}: {change}");
        }
    }
}
