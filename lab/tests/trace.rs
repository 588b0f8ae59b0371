//! The trace of a run: every CPU's slices nest, every track has its name.

mod common;

use lab::interrupt::StopFlag;
use lab::kinds::storage::StorageVariant;
use lab::report::trace;
use serde_json::Value;
use std::collections::BTreeMap;

fn events(delivery: StorageVariant) -> Vec<Value> {
    let plan = common::plan("emr-4-drives", &["ramp=500us", "duration=500us"]);
    let run = lab::run::run_one(&plan.trial(delivery).unwrap(), 1, true, &StopFlag::default()).unwrap();
    let mut bytes = Vec::new();
    let stats = trace::write(&mut bytes, run.trace, u64::MAX).unwrap();
    assert_eq!(stats.dropped, 0);
    let trace: Value = serde_json::from_slice(&bytes).expect("valid JSON");
    trace["traceEvents"].as_array().unwrap().clone()
}

/// Start, end, name.
type Slice = (u64, u64, String);

/// A time of the file, in ps.
fn ps(event: &Value, key: &str) -> u64 {
    (event[key].as_f64().unwrap() * 1e6).round() as u64
}

#[test]
fn slices_nest_and_tracks_have_names() {
    for delivery in [StorageVariant::Remapped, StorageVariant::Posted] {
        let events = events(delivery);
        let mut names = BTreeMap::new();
        let mut tracks: BTreeMap<(u64, u64), Vec<Slice>> = BTreeMap::new();
        for event in &events {
            let track = (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
            match (event["ph"].as_str().unwrap(), event["name"].as_str().unwrap()) {
                ("M", "thread_name") => {
                    names.insert(track, event["args"]["name"].as_str().unwrap().to_owned());
                }
                ("X", name) => {
                    let (start, end) = (ps(event, "ts"), ps(event, "ts") + ps(event, "dur"));
                    tracks.entry(track).or_default().push((start, end, name.into()));
                }
                _ => {}
            }
        }
        let cpus = names.values().filter(|name| name.starts_with("CPU ")).count();
        assert_eq!(cpus, 32, "{delivery}: a track a CPU");
        for kind in ["drive 3", "IOMMU 0"] {
            assert!(names.values().any(|name| name == kind), "{delivery}: {kind}");
        }
        for (track, mut slices) in tracks {
            let name = &names[&track];
            slices.sort_by_key(|&(start, end, _)| (start, std::cmp::Reverse(end)));
            let mut open: Vec<Slice> = Vec::new();
            for slice in slices {
                open.retain(|outer| outer.1 > slice.0);
                if let Some(outer) = open.last() {
                    assert!(slice.1 <= outer.1, "{delivery}, {name}: {slice:?} sticks out of {outer:?}");
                }
                open.push(slice);
            }
        }
    }
}
