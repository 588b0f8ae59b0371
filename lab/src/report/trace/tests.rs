use super::proto::{self, TracePacket};
use super::*;
use prost::Message;

fn record(start_ps: u64, duration_ps: u64, track: Track) -> TraceRecord {
    let (flows, ends) = (Vec::new(), Vec::new());
    TraceRecord { start_ps, duration_ps, track, name: "read".into(), argument: 33, flows, ends }
}

fn trace(records: Vec<TraceRecord>) -> Trace {
    Trace { delivery: "posted".into(), start_ps: 0, records, counters: Vec::new(), left_out: 0 }
}

fn packets(traces: &[Trace]) -> Vec<TracePacket> {
    proto::Trace::decode(&write(traces.to_vec(), "{}")[..]).expect("packets").packet
}

/// The events on the track of this name: type, ns.
fn events(packets: &[TracePacket], name: &str) -> Vec<(i32, u64)> {
    let tracks = packets.iter().filter_map(|packet| packet.track_descriptor.as_ref());
    let track = tracks.filter(|track| track.name.as_deref() == Some(name)).map(|track| track.uuid).next_back();
    let event = |packet: &TracePacket| {
        let event = packet.track_event.as_ref().filter(|event| event.track_uuid == track.flatten())?;
        Some((event.r#type?, packet.timestamp?))
    };
    packets.iter().filter_map(event).collect()
}

#[test]
fn slices_nest_on_a_cpu_and_take_lanes_elsewhere() {
    let (cpu, drive) = (Track::Cpu(7), Track::Drive(0));
    let written = packets(&[trace(vec![
        record(0, 100_000, cpu),
        record(50_000, 10_999, cpu),
        record(50_000, 0, cpu),
        record(0, 100_000, drive),
        record(50_000, 100_000, drive),
        record(100_000, 10_000, drive),
    ])]);
    let (begin, end, instant) = (proto::SLICE_BEGIN, proto::SLICE_END, proto::INSTANT);
    assert_eq!(events(&written, "CPU 7"), [(begin, 0), (begin, 50), (instant, 50), (end, 60), (end, 100)]);
    assert_eq!(events(&written, "drive 0"), [(begin, 0), (end, 100), (begin, 100), (end, 110)]);
    assert_eq!(events(&written, "drive 0 · 1"), [(begin, 50), (end, 150)]);
}

#[test]
fn deliveries_stand_side_by_side_from_the_beginning_of_counting() {
    let flows = |flow| vec![TraceRecord { flows: vec![flow], ..record(5_000, 10_000, Track::Iommu(0)) }];
    let counters = vec![Counter { name: "ios per second".into(), unit: "1/s", points: vec![(7_000, 9)] }];
    let late = Trace { delivery: "remapped".into(), start_ps: 6_000, counters, ..trace(flows(1)) };
    let written = packets(&[trace(flows(1)), late]);
    let names = written.iter().filter_map(|packet| packet.track_descriptor.as_ref()?.name.as_deref());
    let expected =
        ["campanile", "posted", "IOMMUs", "IOMMU 0", "remapped", "counters", "ios per second", "IOMMUs", "IOMMU 0"];
    assert!(names.eq(expected));
    assert_eq!(
        events(&written, "IOMMU 0"),
        [(proto::SLICE_BEGIN, 0), (proto::SLICE_END, 9)],
        "what began earlier is cut"
    );
    assert_eq!(events(&written, "ios per second"), [(proto::COUNTER, 1)]);
    let flows: Vec<u64> = written
        .iter()
        .filter_map(|packet| packet.track_event.as_ref())
        .flat_map(|event| event.flow_ids.clone())
        .collect();
    assert_ne!(flows[0], flows[1], "flows of two deliveries are not one");
}

#[test]
fn a_file_keeps_its_bound_and_says_what_it_left_out() {
    let long = |at: u64| TraceRecord {
        argument: u64::MAX,
        flows: vec![at],
        ends: vec![at, at + 1],
        ..record(u64::MAX - 5_000_000 + at, 1, Track::Cpu(0))
    };
    let records: Vec<TraceRecord> = (0..RECORDS_MAX as u64 + 7).map(long).collect();
    let bytes = write(vec![trace(records)], "{\"a\": 1}");
    assert!(bytes.len() < RECORDS_MAX * RECORD_BYTES_MAX, "{}", bytes.len());
    assert_eq!(manifest(&bytes).as_deref(), Some("{\"a\": 1}"));
    let left_out = proto::Trace::decode(&bytes[..])
        .unwrap()
        .packet
        .into_iter()
        .find_map(|packet| packet.track_event?.debug_annotations.get(1)?.uint_value);
    assert_eq!(left_out, Some(7));
    assert_eq!(manifest(b"{\"manifest\": {}}"), None);
    assert_eq!(manifest(&[]), None);
}

#[test]
fn messages_with_many_flows_keep_the_bound_too() {
    let many = |at: u64| TraceRecord {
        flows: vec![at],
        ends: (0..300).map(|io| (at << 9) + io).collect(),
        ..record(u64::MAX - 5_000_000_000 + at * 1000, 0, Track::Drive(0))
    };
    let records = 2 * RECORDS_MAX / 20;
    let written = |keep: usize| {
        let mut trace = trace((0..records as u64).map(many).collect());
        shorten(&mut trace, keep);
        (trace.records.len(), trace.left_out, write(vec![trace], "").len())
    };
    let (kept, left_out, bytes) = written(RECORDS_MAX);
    assert!(bytes < RECORDS_MAX * RECORD_BYTES_MAX, "{bytes}");
    assert!(kept > RECORDS_MAX / 25 && kept + left_out == records, "{kept} and {left_out}");
    // A share that was cut before says what it left out.
    let (kept, left_out, bytes) = written(share(2));
    assert!(kept + left_out == records && bytes < RECORDS_MAX / 2 * RECORD_BYTES_MAX, "{kept}, {left_out}, {bytes}");
}
