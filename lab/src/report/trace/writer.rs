//! Writes and reads the file.

use super::proto::{self, DebugAnnotation, Interned, TrackDescriptor, TrackEvent};
use super::{Counter, FLOWS_OF_RECORD, RECORDS_MAX, Trace, TraceRecord, Track};
use prost::Message;
use std::collections::BTreeMap;

/// The only writer of packets.
const SEQUENCE: u32 = 1;
/// The names of annotations, by their numbers from 1.
const ANNOTATIONS: [&str; 3] = ["value", "manifest", "left out"];
/// The track and the event that say where the file comes from.
const ORIGIN: &str = "campanile";
/// Flow ids of the deliveries are this far apart.
const FLOWS: u64 = 1 << 32;

/// The bytes of a file with `traces` side by side, each beginning at 0. Of more than [`RECORDS_MAX`] records each trace keeps its
/// first ones, in equal parts; the file says how many it left out.
pub fn write(mut traces: Vec<Trace>, manifest: &str) -> Vec<u8> {
    let share = share(traces.len());
    let mut writer = Writer { bytes: Vec::new(), tracks: 0 };
    traces.iter_mut().for_each(|trace| shorten(trace, share));
    let left_out = traces.iter().map(|trace| trace.left_out).sum();
    let names = writer.names(&traces);
    writer.origin(&names, manifest, left_out);
    for (index, trace) in traces.into_iter().enumerate() {
        Run { writer: &mut writer, names: &names, flows: index as u64 * FLOWS, start_ps: trace.start_ps }.write(trace);
    }
    writer.bytes
}

/// The records that each of so many traces has in a file.
pub fn share(traces: usize) -> usize {
    RECORDS_MAX / traces.max(1)
}

/// The manifest that a file keeps. None if the bytes are no such file.
pub fn manifest(bytes: &[u8]) -> Option<String> {
    // Packet by packet, each behind its tag (field 1, length-delimited): the manifest is in one of the first.
    let mut rest = bytes;
    while let Some((0x0a, packet)) = rest.split_first() {
        rest = packet;
        let packet = proto::TracePacket::decode_length_delimited(&mut rest).ok()?;
        let annotations = packet.track_event.into_iter().flat_map(|event| event.debug_annotations);
        let is_meant = |annotation: &DebugAnnotation| annotation.name_iid == Some(annotation_iid("manifest"));
        if let Some(text) = annotations.filter(is_meant).find_map(|annotation| annotation.string_value) {
            return Some(text);
        }
    }
    None
}

/// Leaves out what is beyond `share`, the latest first.
pub fn shorten(trace: &mut Trace, share: usize) {
    trace.records.sort_by_key(|record| (record.start_ps, std::cmp::Reverse(record.duration_ps)));
    let count =
        |trace: &Trace| trace.records.len() + trace.counters.iter().map(|counter| counter.points.len()).sum::<usize>();
    let all = count(trace);
    // Records and points end together.
    let records = trace.records.iter().flat_map(|record| std::iter::repeat_n(record.start_ps, weight(record)));
    let points = trace.counters.iter().flat_map(|counter| &counter.points).map(|&(at, _)| at);
    let mut times: Vec<u64> = records.chain(points).collect();
    if times.len() <= share {
        return;
    }
    let (_, &mut until_ps, _) = times.select_nth_unstable(share);
    drop(times);
    trace.records.retain(|record| record.start_ps < until_ps);
    trace.records.shrink_to_fit();
    for counter in &mut trace.counters {
        counter.points.retain(|&(at, _)| at < until_ps);
    }
    trace.left_out += all - count(trace);
}

/// How many records a record counts for.
fn weight(record: &TraceRecord) -> usize {
    let (own, further) = FLOWS_OF_RECORD;
    1 + (record.flows.len() + record.ends.len()).saturating_sub(own).div_ceil(further)
}

fn annotation_iid(name: &str) -> u64 {
    1 + ANNOTATIONS.iter().position(|known| *known == name).expect("it is listed") as u64
}

/// The file as far as it is written.
struct Writer {
    bytes: Vec<u8>,
    /// Tracks so far; their ids count from 1.
    tracks: u64,
}

impl Writer {
    fn packet(&mut self, packet: proto::TracePacket) {
        let packet = proto::TracePacket { trusted_packet_sequence_id: Some(SEQUENCE), ..packet };
        proto::Trace { packet: vec![packet] }.encode(&mut self.bytes).expect("a vector takes all");
    }

    /// Numbers every name that an event has.
    fn names(&mut self, traces: &[Trace]) -> BTreeMap<String, u64> {
        let names = traces.iter().flat_map(|trace| &trace.records).map(|record| &*record.name);
        let mut known: BTreeMap<String, u64> = BTreeMap::new();
        for name in names.chain([ORIGIN]) {
            if !known.contains_key(name) {
                known.insert(name.to_owned(), known.len() as u64 + 1);
            }
        }
        let interned = |(name, iid): (&str, u64)| Interned { iid: Some(iid), name: Some(name.to_owned()) };
        let data = proto::InternedData {
            event_names: known.iter().map(|(name, &iid)| interned((name, iid))).collect(),
            debug_annotation_names: ANNOTATIONS.iter().map(|name| interned((name, annotation_iid(name)))).collect(),
        };
        let (interned_data, sequence_flags) = (Some(data), Some(proto::STATE_CLEARED));
        self.packet(proto::TracePacket { interned_data, sequence_flags, ..Default::default() });
        known
    }

    /// A track with the file's origin.
    fn origin(&mut self, names: &BTreeMap<String, u64>, manifest: &str, left_out: usize) {
        let track = self.track(ORIGIN, None, 0, None);
        let text = DebugAnnotation { string_value: Some(manifest.to_owned()), ..annotation("manifest") };
        let number = DebugAnnotation { uint_value: Some(left_out as u64), ..annotation("left out") };
        let event = TrackEvent {
            r#type: Some(proto::INSTANT),
            name_iid: Some(names[ORIGIN]),
            debug_annotations: vec![text, number],
            ..TrackEvent::default()
        };
        self.event(0, track, event);
    }

    fn track(&mut self, name: &str, parent: Option<u64>, rank: i32, unit: Option<&str>) -> u64 {
        self.tracks += 1;
        let counter = unit.map(|unit| proto::CounterDescriptor { unit_name: Some(unit.to_owned()) });
        let descriptor = TrackDescriptor {
            uuid: Some(self.tracks),
            name: Some(name.to_owned()),
            parent_uuid: parent,
            counter,
            child_ordering: Some(proto::ORDER_EXPLICIT),
            sibling_order_rank: Some(rank),
        };
        self.packet(proto::TracePacket { track_descriptor: Some(descriptor), ..Default::default() });
        self.tracks
    }

    fn event(&mut self, ns: u64, track: u64, event: TrackEvent) {
        let event = TrackEvent { track_uuid: Some(track), ..event };
        self.packet(proto::TracePacket {
            timestamp: Some(ns),
            track_event: Some(event),
            sequence_flags: Some(proto::NEEDS_STATE),
            ..Default::default()
        });
    }
}

fn annotation(name: &str) -> DebugAnnotation {
    DebugAnnotation { name_iid: Some(annotation_iid(name)), ..DebugAnnotation::default() }
}

/// A run that is being written.
struct Run<'a> {
    writer: &'a mut Writer,
    names: &'a BTreeMap<String, u64>,
    flows: u64,
    start_ps: u64,
}

impl Run<'_> {
    fn write(mut self, trace: Trace) {
        let rank = self.writer.tracks as i32;
        let root = self.writer.track(&trace.delivery, None, rank, None);
        let mut tracks: BTreeMap<Track, Vec<TraceRecord>> = BTreeMap::new();
        for record in trace.records {
            tracks.entry(record.track).or_default().push(record);
        }
        if !trace.counters.is_empty() {
            let group = self.writer.track("counters", Some(root), i32::MAX, None);
            trace.counters.iter().enumerate().for_each(|(rank, counter)| self.counter(group, rank as i32, counter));
        }
        let mut groups: BTreeMap<i32, u64> = BTreeMap::new();
        for (track, records) in tracks {
            let (order, group, name) = track.group();
            let parent = *groups.entry(order).or_insert_with(|| self.writer.track(group, Some(root), order, None));
            self.records(track, parent, &name, records);
        }
    }

    /// The lanes of a track, each with its slices.
    fn records(&mut self, track: Track, parent: u64, name: &str, records: Vec<TraceRecord>) {
        // Records come in the order of their beginnings.
        let mut lanes: Vec<(u64, Vec<TraceRecord>)> = Vec::new();
        let mut messages = Vec::new();
        for record in records {
            let end_ps = record.start_ps.saturating_add(record.duration_ps);
            if track.nests() {
                if lanes.is_empty() {
                    lanes.push((0, Vec::new()));
                }
                lanes[0].1.push(record);
            } else if record.duration_ps == 0 {
                messages.push(record);
            } else if let Some(lane) = lanes.iter_mut().find(|(busy_ps, _)| *busy_ps <= record.start_ps) {
                *lane = (end_ps, std::mem::take(&mut lane.1));
                lane.1.push(record);
            } else {
                lanes.push((end_ps, vec![record]));
            }
        }
        for (number, (_, records)) in lanes.into_iter().enumerate() {
            let name = if number == 0 { name.to_owned() } else { format!("{name} · {number}") };
            self.lane(parent, &name, records);
        }
        if !messages.is_empty() {
            self.lane(parent, &format!("{name}, messages"), messages);
        }
    }

    fn lane(&mut self, parent: u64, name: &str, records: Vec<TraceRecord>) {
        let rank = self.writer.tracks as i32;
        let track = self.writer.track(name, Some(parent), rank, None);
        let mut open: Vec<u64> = Vec::new();
        for record in records {
            let mut end_ps = record.start_ps.saturating_add(record.duration_ps);
            while let Some(ended_ps) = open.pop_if(|end_ps| *end_ps <= record.start_ps) {
                self.end(track, ended_ps);
            }
            if let Some(&outer_ps) = open.last() {
                end_ps = end_ps.min(outer_ps);
            }
            let (is_instant, start_ns) = (record.duration_ps == 0, self.ns(record.start_ps));
            let event = self.begin(record);
            self.writer.event(start_ns, track, event);
            if !is_instant {
                open.push(end_ps);
            }
        }
        while let Some(end_ps) = open.pop() {
            self.end(track, end_ps);
        }
    }

    fn begin(&self, record: TraceRecord) -> TrackEvent {
        let flow = |id: u64| self.flows + id;
        TrackEvent {
            r#type: Some(if record.duration_ps == 0 { proto::INSTANT } else { proto::SLICE_BEGIN }),
            name_iid: Some(self.names[&*record.name]),
            debug_annotations: vec![DebugAnnotation { uint_value: Some(record.argument), ..annotation("value") }],
            flow_ids: record.flows.into_iter().map(flow).collect(),
            terminating_flow_ids: record.ends.into_iter().map(flow).collect(),
            ..TrackEvent::default()
        }
    }

    fn end(&mut self, track: u64, end_ps: u64) {
        let event = TrackEvent { r#type: Some(proto::SLICE_END), ..TrackEvent::default() };
        let ns = self.ns(end_ps);
        self.writer.event(ns, track, event);
    }

    fn counter(&mut self, parent: u64, rank: i32, counter: &Counter) {
        let track = self.writer.track(&counter.name, Some(parent), rank, Some(counter.unit));
        for &(at_ps, value) in &counter.points {
            let event =
                TrackEvent { r#type: Some(proto::COUNTER), counter_value: Some(value), ..TrackEvent::default() };
            let ns = self.ns(at_ps);
            self.writer.event(ns, track, event);
        }
    }

    fn ns(&self, at_ps: u64) -> u64 {
        at_ps.saturating_sub(self.start_ps) / 1000
    }
}
