//! The trace of a run: every message comes from the I/Os that it announces, and goes to the CPU that takes it.

mod common;

use lab::interrupt::StopFlag;
use lab::kinds::storage::StorageVariant;
use lab::report::trace::{Trace, TraceRecord, Track};
use std::collections::BTreeMap;

fn trace(scenario: &str, settings: &[&str], delivery: StorageVariant) -> Trace {
    let plan = common::plan(scenario, settings);
    let run = lab::run::run_one(&plan.trial(delivery).unwrap(), 1, true, &StopFlag::default()).unwrap();
    run.trace.expect("it was asked for")
}

fn of_name<'a>(trace: &'a Trace, name: &str) -> Vec<&'a TraceRecord> {
    trace.records.iter().filter(|record| record.name == name).collect()
}

#[test]
fn slices_of_a_cpu_nest() {
    for delivery in [StorageVariant::Remapped, StorageVariant::Posted] {
        let trace = trace("emr-4-drives", &["ramp=500us", "duration=500us"], delivery);
        let mut tracks: BTreeMap<Track, Vec<(u64, u64)>> = BTreeMap::new();
        for record in trace.records.iter().filter(|record| record.duration_ps > 0) {
            let slice = (record.start_ps, record.start_ps + record.duration_ps);
            tracks.entry(record.track).or_default().push(slice);
        }
        let cpus: Vec<_> = tracks.iter_mut().filter(|(track, _)| matches!(track, Track::Cpu(_))).collect();
        assert_eq!(cpus.len(), 32, "{delivery}: a track a CPU");
        for (track, slices) in cpus {
            slices.sort_by_key(|&(start, end)| (start, std::cmp::Reverse(end)));
            let mut open: Vec<(u64, u64)> = Vec::new();
            for &slice in &*slices {
                open.retain(|outer| outer.1 > slice.0);
                if let Some(outer) = open.last() {
                    assert!(slice.1 <= outer.1, "{delivery}, {track:?}: {slice:?} sticks out of {outer:?}");
                }
                open.push(slice);
            }
        }
        for track in [Track::Drive(3), Track::Iommu(0)] {
            assert!(tracks.contains_key(&track), "{delivery}: {track:?}");
        }
    }
}

#[test]
fn flows_lead_from_an_io_to_its_message_to_the_cpu_that_takes_it() {
    for (delivery, service, taken) in
        [(StorageVariant::Remapped, "remap", "taken"), (StorageVariant::Posted, "post", "harvested")]
    {
        let trace = trace("emr-4-drives", &["ramp=500us", "duration=500us"], delivery);
        let (reads, messages) = (of_name(&trace, "read"), of_name(&trace, "MSI"));
        let mut announced: BTreeMap<u64, u64> = BTreeMap::new();
        let mut sent: BTreeMap<u64, &TraceRecord> = BTreeMap::new();
        for message in &messages {
            announced.extend(message.ends.iter().map(|&io| (io, message.start_ps)));
            sent.extend(message.flows.iter().map(|&flow| (flow, *message)));
        }
        assert_eq!(sent.len(), messages.len(), "{delivery}: a flow a message");
        let followed = reads.iter().filter_map(|read| Some((read, announced.get(read.flows.first()?)?)));
        let delays: Vec<u64> = followed.map(|(read, at)| at - (read.start_ps + read.duration_ps)).collect();
        assert!(delays.len() * 100 > reads.len() * 95, "{delivery}: {} of {} I/Os", delays.len(), reads.len());
        let mut arrived = 0;
        for (name, least) in [(service, 90), (taken, 90)] {
            let records = of_name(&trace, name);
            let flows: Vec<u64> =
                records.iter().flat_map(|record| record.flows.iter().chain(&record.ends)).copied().collect();
            assert!(
                flows.len() * 100 > messages.len() * least,
                "{delivery}: {} of {} at {name}",
                flows.len(),
                messages.len()
            );
            for record in &records {
                for flow in &record.ends {
                    assert!(record.start_ps > sent[flow].start_ps, "{delivery}: no message is taken before it is sent");
                    arrived += 1;
                }
            }
        }
        assert!(arrived > 0);
    }
}

#[test]
fn a_drive_never_works_on_fewer_ios_than_none() {
    let trace = trace("emr-4-drives", &["ramp=500us", "duration=500us"], StorageVariant::Posted);
    let depths: Vec<_> = trace.counters.iter().filter(|counter| counter.unit == "I/Os").collect();
    assert_eq!(depths.len(), 4);
    for depth in depths {
        assert!(depth.points.iter().all(|&(_, value)| value >= 0) && depth.points.len() > 100, "{}", depth.name);
    }
    assert!(trace.counters.iter().any(|counter| counter.name == "ios per second"), "{:?}", trace.counters.len());
}

#[test]
fn jobs_with_phases_have_a_trace_too() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pages/phases.fio");
    let request = lab::scenario::Request {
        platform: Some("emr".into()),
        sets: vec!["duration=500us".into()],
        ..lab::scenario::Request::of(file)
    };
    let plan = request.plan().unwrap();
    let run = lab::run::run_one(&plan.trials()[0], 1, true, &StopFlag::default()).unwrap();
    let trace = run.trace.expect("it was asked for");
    let phases: Vec<_> = trace.records.iter().filter(|record| record.track == Track::Phases).collect();
    let names: Vec<&str> = run.outcome.phases.iter().map(|phase| phase.name.as_str()).collect();
    assert!(phases.iter().map(|phase| &*phase.name).eq(names), "{phases:?}");
    for phase in phases {
        let inside =
            |record: &&&TraceRecord| (phase.start_ps..phase.start_ps + phase.duration_ps).contains(&record.start_ps);
        assert!(of_name(&trace, "MSI").iter().filter(inside).count() > 10, "{}", phase.name);
    }
}
