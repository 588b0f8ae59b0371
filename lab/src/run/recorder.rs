//! Follows messages from the I/Os that they announce to the CPUs that take them, for a trace.
//!
//! It is told the facts of the hardware in the order of their effects ([`machine::observe`]), and nothing by the drivers.

use super::Rig;
use crate::outcome::Timeline;
use crate::report::trace::{Counter, RECORDS_MAX, Trace, TraceRecord, Track};
use hal::Work;
use machine::Machine;
use machine::model::ModelId;
use machine::observe::{Arrival, Fact};
use machine::time::Ps;
use machine::trace::Span;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

/// Between two points of a counter of I/Os in a drive.
const COUNTER_PS: u64 = 1_000_000;
/// Offset of the control word of a posted descriptor: NDST is its upper half (VT-d, "Posted Interrupt Descriptor").
const PID_CONTROL: u64 = 32;

/// Records a machine for a trace.
pub(super) struct Recorder {
    path: Rc<RefCell<Path>>,
    start: Ps,
}

impl Recorder {
    /// Installs the observer. Recording is off.
    pub(super) fn new(machine: &mut Machine) -> Self {
        let path = Rc::new(RefCell::new(Path::default()));
        let hears = path.clone();
        machine.set_observer(move |at, fact| hears.borrow_mut().hear(at, &fact));
        Self { path, start: Ps(0) }
    }

    /// Recording begins.
    pub(super) fn begin(&mut self, machine: &mut Machine) {
        self.start = machine.now();
        *self.path.borrow_mut() = Path { is_on: true, ..Path::default() };
        machine.take_spans();
        machine.set_tracing(true);
    }

    /// Recording ends.
    pub(super) fn end(&mut self, machine: &mut Machine) {
        machine.set_tracing(false);
        self.path.borrow_mut().is_on = false;
    }

    /// What was recorded up to `until`. A span that is still open then is cut there. `timelines` have the time at which each
    /// begins.
    pub(super) fn trace<R: Rig>(self, rig: &mut R, until: Ps, timelines: &[(Ps, &Timeline)]) -> Trace {
        let mut path = self.path.take();
        let spans = rig.machine().take_spans();
        // A full list ends early: what else is known of later times would stand alone.
        let until = if spans.len() < RECORDS_MAX { until } else { spans[spans.len() - 1].start.min(until) };
        let until = path.full_at.map_or(until, |full| full.min(until));
        let mut records = Vec::new();
        for span in spans.iter().filter(|span| span.start < until) {
            let track = match span.track {
                machine::trace::Track::Cpu(cpu) => Some(Track::Cpu(cpu)),
                machine::trace::Track::Model(id) => rig.track(id),
            };
            let Some(track) = track else { continue };
            let duration_ps = span.duration.min(until - span.start).0;
            let flows = path.flows_of(span);
            let own = instant(span.start, track, span.name, span.argument);
            records.push(TraceRecord { duration_ps, flows, ..own });
        }
        for Sent { at, device, vector, flow, ios } in path.sent.into_iter().filter(|sent| sent.at < until) {
            let Some(track) = rig.track(device) else { continue };
            records.push(TraceRecord { flows: vec![flow], ends: ios, ..instant(at, track, "MSI", vector.into()) });
        }
        for Taken { at, cpu, vector, name, flows } in path.taken.into_iter().filter(|taken| taken.at < until) {
            records.push(TraceRecord { ends: flows, ..instant(at, Track::Cpu(cpu), name, vector.into()) });
        }
        let mut counters = rates(timelines);
        for (device, depth) in path.depths {
            let Some(Track::Drive(number)) = rig.track(device) else { continue };
            let points = depth.points(self.start, until);
            counters.push(Counter { name: format!("drive {number}: I/Os in work"), unit: "I/Os", points });
        }
        Trace { delivery: String::new(), start_ps: self.start.0, records, counters, left_out: 0 }
    }
}

fn instant(at: Ps, track: Track, name: &'static str, argument: u64) -> TraceRecord {
    let (flows, ends) = (Vec::new(), Vec::new());
    TraceRecord { start_ps: at.0, duration_ps: 0, track, name: name.into(), argument, flows, ends }
}

/// The counts of timelines as rates.
fn rates(timelines: &[(Ps, &Timeline)]) -> Vec<Counter> {
    let mut counters: BTreeMap<&str, Vec<(u64, i64)>> = BTreeMap::new();
    for (start, timeline) in timelines {
        let bucket_ns = timeline.bucket_ns.max(1);
        for (name, counts) in &timeline.counts {
            let points = counters.entry(name).or_default();
            let at = |bucket: usize| start.0 + bucket as u64 * bucket_ns * 1000;
            let rate = |count: u64| (u128::from(count) * 1_000_000_000 / u128::from(bucket_ns)) as i64;
            points.extend(counts.iter().enumerate().map(|(bucket, &count)| (at(bucket), rate(count))));
            points.push((at(counts.len()), 0));
        }
    }
    let counter = |(name, points): (&str, _)| Counter { name: format!("{name} per second"), unit: "1/s", points };
    counters.into_iter().map(counter).collect()
}

/// A message that a device sent.
struct Sent {
    at: Ps,
    device: ModelId,
    vector: u16,
    flow: u64,
    /// The I/Os that it announces.
    ios: Vec<u64>,
}

/// Messages that a CPU took.
struct Taken {
    at: Ps,
    cpu: u32,
    vector: u8,
    name: &'static str,
    flows: Vec<u64>,
}

/// A message on its way: address, data, and the flows that it has become.
type Way = (u64, u32, Vec<u64>);

/// I/Os that a drive works on.
#[derive(Default)]
struct Depth {
    begun: BTreeSet<(u16, u16)>,
    /// Those that began before the recording, and ended in it.
    earlier: i64,
    changes: Vec<(u64, i64)>,
}

impl Depth {
    fn begin(&mut self, at: Ps, sqid: u16, cid: u16) {
        self.begun.insert((sqid, cid));
        self.change(at, 1);
    }

    fn end(&mut self, at: Ps, sqid: u16, cid: u16) {
        self.earlier += i64::from(!self.begun.remove(&(sqid, cid)));
        self.change(at, -1);
    }

    fn change(&mut self, at: Ps, by: i64) {
        let value = self.changes.last().map_or(0, |&(_, value)| value) + by;
        match self.changes.last_mut() {
            Some(last) if at.0 < last.0 + COUNTER_PS => last.1 = value,
            _ => self.changes.push((at.0, value)),
        }
    }

    fn points(self, start: Ps, until: Ps) -> Vec<(u64, i64)> {
        let changes = self.changes.into_iter().filter(|&(at, _)| at < until.0);
        std::iter::once((start.0, 0)).chain(changes).map(|(at, value)| (at, value + self.earlier)).collect()
    }
}

/// Where each message is.
#[derive(Default)]
struct Path {
    is_on: bool,
    /// When it stopped because it held [`RECORDS_MAX`] of what a file has.
    full_at: Option<Ps>,
    flows: u64,
    signalled: Option<(ModelId, u16)>,
    /// I/Os whose entries no message has announced, by device and vector.
    unannounced: BTreeMap<(ModelId, u16), Vec<u64>>,
    /// Messages before the decision on them, by requester, in the order of their sending.
    ways: BTreeMap<u16, VecDeque<Way>>,
    /// Remapped messages on their way to a CPU, by CPU and vector.
    remapped: BTreeMap<(u32, u8), Vec<u64>>,
    /// Messages that wait in a local APIC, by CPU and vector.
    pending: BTreeMap<(u32, u8), Vec<u64>>,
    /// Messages in posted descriptors, by CPU, address of the descriptor, and vector.
    posted: BTreeMap<(u32, u64, u8), Vec<u64>>,
    /// I/Os by drive and time of their entry.
    entries: BTreeMap<(ModelId, Ps), VecDeque<u64>>,
    /// Messages by requester and the time of the decision.
    decided: BTreeMap<(u16, Ps), Vec<u64>>,
    sent: Vec<Sent>,
    taken: Vec<Taken>,
    depths: BTreeMap<ModelId, Depth>,
}

impl Path {
    fn hear(&mut self, at: Ps, fact: &Fact) {
        if !self.is_on {
            return;
        }
        if self.is_full() {
            (self.is_on, self.full_at) = (false, Some(at));
            return;
        }
        match *fact {
            Fact::Fetched { device, sqid, cid } if sqid > 0 => {
                self.depths.entry(device).or_default().begin(at, sqid, cid)
            }
            Fact::EntryPosted { device, sqid, cid, vector, .. } if sqid > 0 => {
                self.depths.entry(device).or_default().end(at, sqid, cid);
                if let Some(vector) = vector {
                    let io = self.flow();
                    self.entries.entry((device, at)).or_default().push_back(io);
                    self.unannounced.entry((device, vector)).or_default().push(io);
                }
            }
            Fact::Signalled { device, vector } => self.signalled = Some((device, vector)),
            Fact::Message { from, requester, address, data, .. } => {
                if let Some((device, vector)) = self.signalled.take_if(|(device, _)| *device == from) {
                    let (flow, ios) = (self.flow(), self.unannounced.remove(&(device, vector)).unwrap_or_default());
                    self.sent.push(Sent { at, device, vector, flow, ios });
                    self.ways.entry(requester).or_default().push_back((address, data, vec![flow]));
                }
            }
            Fact::MessageMerged { requester, address, data, .. } => self.merged(requester, address, data),
            Fact::Blocked { requester, .. } => _ = self.decided(requester, at),
            Fact::Remapped { requester, destination, vector, .. } | Fact::Plain { requester, destination, vector } => {
                let flows = self.decided(requester, at);
                self.remapped.entry((destination, vector)).or_default().extend(flows);
            }
            Fact::Posted { requester, descriptor, vector, .. } => {
                let flows = self.decided(requester, at);
                let cpu = machine::peek64(descriptor + PID_CONTROL).map_or(0, |control| (control >> 32) as u32);
                self.posted.entry((cpu, descriptor, vector)).or_default().extend(flows);
            }
            Fact::Raised { cpu, vector, arrival, .. } => {
                let flows = self.remapped.remove(&(cpu, vector)).unwrap_or_default();
                if arrival != Arrival::Refused {
                    self.pending.entry((cpu, vector)).or_default().extend(flows);
                }
            }
            Fact::Accepted { cpu, vector } => {
                let flows = self.pending.remove(&(cpu, vector)).unwrap_or_default();
                self.take(at, cpu, vector, "taken", flows);
            }
            Fact::Worked { cpu, work: Work::PirHarvest, .. } | Fact::Returned { cpu, .. } => self.harvested(at, cpu),
            _ => {}
        }
    }

    /// True once there is more than a file holds. Each I/O and each message is a flow, and has a record of its own; a polled
    /// job has I/Os alone.
    fn is_full(&self) -> bool {
        let points: usize = self.depths.values().map(|depth| depth.changes.len()).sum();
        self.flows as usize + points + self.taken.len() >= RECORDS_MAX
    }

    fn flow(&mut self) -> u64 {
        self.flows += 1;
        self.flows
    }

    /// The latest of these messages became one with the one before it.
    fn merged(&mut self, requester: u16, address: u64, data: u32) {
        let Some(ways) = self.ways.get_mut(&requester) else { return };
        let is_equal = |way: &Way| (way.0, way.1) == (address, data);
        let Some(last) = ways.iter().rposition(is_equal) else { return };
        let (.., flows) = ways.remove(last).expect("it was found");
        if let Some(earlier) = ways.iter_mut().rev().find(|way| is_equal(way)) {
            earlier.2.extend(flows);
        }
    }

    /// The IOMMU decides on the requester's oldest message.
    fn decided(&mut self, requester: u16, at: Ps) -> Vec<u64> {
        let Some((.., flows)) = self.ways.get_mut(&requester).and_then(VecDeque::pop_front) else { return Vec::new() };
        self.decided.entry((requester, at)).or_default().extend(&flows);
        flows
    }

    /// Messages whose bits have left the CPU's descriptor have been taken.
    fn harvested(&mut self, at: Ps, cpu: u32) {
        let is_left = |&(_, descriptor, vector): &(u32, u64, u8)| {
            let word = machine::peek64(descriptor + u64::from(vector / 64) * 8).unwrap_or(0);
            word >> (vector % 64) & 1 == 0
        };
        let own = self.posted.range((cpu, 0, 0)..(cpu + 1, 0, 0)).map(|(key, _)| *key);
        let gone: Vec<_> = own.filter(is_left).collect();
        for key in gone {
            let flows = self.posted.remove(&key).unwrap_or_default();
            self.take(at, cpu, key.2, "harvested", flows);
        }
    }

    fn take(&mut self, at: Ps, cpu: u32, vector: u8, name: &'static str, flows: Vec<u64>) {
        if !flows.is_empty() {
            self.taken.push(Taken { at, cpu, vector, name, flows });
        }
    }

    /// The flows that begin with a span, or pass it: an I/O of a drive, a message at an IOMMU.
    fn flows_of(&mut self, span: &Span) -> Vec<u64> {
        let machine::trace::Track::Model(id) = span.track else { return Vec::new() };
        let end = span.start + span.duration;
        if let Some(ios) = self.entries.get_mut(&(id, end)) {
            return ios.pop_front().into_iter().collect();
        }
        let at = match span.name {
            "remap" => span.start,
            "post" => end,
            _ => return Vec::new(),
        };
        self.decided.remove(&(span.argument as u16, at)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_ends_when_a_file_is_full() {
        let device = ModelId(3);
        let mut path = Path { is_on: true, ..Path::default() };
        // As of a polled job: no I/O has a message.
        for io in 0..2 * RECORDS_MAX as u64 {
            path.hear(Ps(io * COUNTER_PS), &Fact::Fetched { device, sqid: 1, cid: io as u16 });
        }
        assert_eq!((path.is_on, path.full_at), (false, Some(Ps(RECORDS_MAX as u64 * COUNTER_PS))));
        assert_eq!(path.depths[&device].changes.len(), RECORDS_MAX);
    }
}
