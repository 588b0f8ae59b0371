//! A Perfetto/Chrome trace: JSON trace events with a named track per CPU, drive, IOMMU and root port.
//!
//! Format: "Trace Event Format" (Chromium project): complete events `X`, instants `i`, metadata `M`; times in µs.
//! Complete events of one track must nest. On a CPU they do: an interrupt lies on top of the work that it interrupted.
//! A drive has many requests open at once, so every other track is spread over as many lanes as requests overlap.

use std::io::{self, Write};

/// The actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Track {
    /// A CPU by its number.
    Cpu(u32),
    /// A drive by its place in the platform.
    Drive(u32),
    /// An IOMMU.
    Iommu(u32),
    /// A root port.
    Port(u32),
    /// A device that is no drive, by its place.
    Device(u32),
}

impl Track {
    /// Its process in the trace: id, which is also the order of display; the process's name; the track's name.
    fn group(self) -> (u32, &'static str, &'static str, u32) {
        match self {
            Self::Cpu(n) => (1, "CPUs", "CPU", n),
            Self::Drive(n) => (2, "Drives", "drive", n),
            Self::Iommu(n) => (3, "IOMMUs", "IOMMU", n),
            Self::Port(n) => (4, "Root ports", "root port", n),
            Self::Device(n) => (5, "Devices", "device", n),
        }
    }

    fn nests(self) -> bool {
        matches!(self, Self::Cpu(_))
    }
}

/// An event with a duration, or an instant if the duration is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRecord {
    /// When it began, in simulated ps.
    pub start_ps: u64,
    /// How long it took, in ps.
    pub duration_ps: u64,
    /// The actor.
    pub track: Track,
    /// What.
    pub name: &'static str,
    /// A number that distinguishes it from others of its name: a vector, a queue, a count.
    pub argument: u64,
}

/// The number of records written and dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceStats {
    /// In the file.
    pub written: u64,
    /// Over the limit, not in the file.
    pub dropped: u64,
}

/// Writes records as they come, up to a limit, so that neither memory nor file grows with the run.
#[derive(Debug)]
pub struct TraceWriter<W: Write> {
    out: W,
    limit: u64,
    stats: TraceStats,
    /// Lanes in the order of their first record; their place is the thread id.
    lanes: Vec<Lane>,
}

/// One row of the display: the end of the last record on it.
#[derive(Debug)]
struct Lane {
    track: Track,
    end_ps: u64,
}

impl<W: Write> TraceWriter<W> {
    /// Begins the file; at most `limit` records will be in it.
    ///
    /// # Errors
    /// The writer's errors.
    pub fn new(mut out: W, limit: u64) -> io::Result<Self> {
        out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
        Ok(Self { out, limit, stats: TraceStats::default(), lanes: Vec::new() })
    }

    /// Appends a record. Beyond the limit it only counts the record.
    ///
    /// # Errors
    /// The writer's error.
    pub fn record(&mut self, record: &TraceRecord) -> io::Result<()> {
        if self.stats.written == self.limit {
            self.stats.dropped += 1;
            return Ok(());
        }
        let (pid, tid) = (record.track.group().0, self.lane(record)?);
        let TraceRecord { start_ps, duration_ps, name, argument, .. } = *record;
        write!(self.out, ",\n{{\"name\":{},\"pid\":{pid},\"tid\":{tid},", quoted(name))?;
        write!(self.out, "\"ts\":{},\"args\":{{\"value\":{argument}}},", Microseconds(start_ps))?;
        match duration_ps {
            0 => write!(self.out, "\"ph\":\"i\",\"s\":\"t\"}}")?,
            _ => write!(self.out, "\"ph\":\"X\",\"dur\":{}}}", Microseconds(duration_ps))?,
        }
        self.stats.written += 1;
        Ok(())
    }

    /// Ends the file, flushes it and returns its content counts.
    ///
    /// # Errors
    /// The writer's errors.
    pub fn finish(mut self) -> io::Result<TraceStats> {
        let TraceStats { written, dropped } = self.stats;
        writeln!(self.out, "\n],\"otherData\":{{\"written\":{written},\"dropped\":{dropped}}}}}")?;
        self.out.flush()?;
        Ok(self.stats)
    }

    /// The thread id, from 1, of a lane that is free at the record's start. A lane gets its name when it is first
    /// used.
    fn lane(&mut self, record: &TraceRecord) -> io::Result<usize> {
        let TraceRecord { start_ps, duration_ps, track, .. } = *record;
        let free = |lane: &Lane| lane.track == track && (track.nests() || lane.end_ps <= start_ps);
        let at = match self.lanes.iter().position(free) {
            Some(at) => at,
            None => self.open_lane(track)?,
        };
        let end_ps = &mut self.lanes[at].end_ps;
        *end_ps = (*end_ps).max(start_ps.saturating_add(duration_ps));
        Ok(at + 1)
    }

    fn open_lane(&mut self, track: Track) -> io::Result<usize> {
        let (pid, process, kind, index) = track.group();
        let number = self.lanes.iter().filter(|lane| lane.track == track).count() as u32;
        let at = self.lanes.len();
        let separator = if at == 0 { "" } else { "," };
        if !self.lanes.iter().any(|lane| lane.track.group().0 == pid) {
            writeln!(self.out, "{separator}")?;
            metadata(&mut self.out, "process_name", pid, 0, format_args!("\"name\":\"{process}\""))?;
            writeln!(self.out, ",")?;
            metadata(&mut self.out, "process_sort_index", pid, 0, format_args!("\"sort_index\":{pid}"))?;
            writeln!(self.out, ",")?;
        } else {
            writeln!(self.out, "{separator}")?;
        }
        let tid = at + 1;
        let order = u64::from(index) << 16 | u64::from(number);
        match number {
            0 => metadata(&mut self.out, "thread_name", pid, tid, format_args!("\"name\":\"{kind} {index}\""))?,
            n => metadata(&mut self.out, "thread_name", pid, tid, format_args!("\"name\":\"{kind} {index} · {n}\""))?,
        }
        writeln!(self.out, ",")?;
        metadata(&mut self.out, "thread_sort_index", pid, tid, format_args!("\"sort_index\":{order}"))?;
        self.lanes.push(Lane { track, end_ps: 0 });
        Ok(at)
    }
}

/// Writes all records to `out`; at most `limit` of them.
///
/// # Errors
/// The writer's errors.
pub fn write<W: Write>(out: W, records: impl IntoIterator<Item = TraceRecord>, limit: u64) -> io::Result<TraceStats> {
    let mut writer = TraceWriter::new(out, limit)?;
    for record in records {
        writer.record(&record)?;
    }
    writer.finish()
}

fn metadata(
    out: &mut impl Write,
    name: &str,
    pid: u32,
    tid: usize,
    argument: std::fmt::Arguments<'_>,
) -> io::Result<()> {
    write!(out, "{{\"ph\":\"M\",\"name\":\"{name}\",\"pid\":{pid},\"tid\":{tid},\"args\":{{{argument}}}}}")
}

/// A name as a JSON string.
fn quoted(name: &str) -> String {
    serde_json::Value::from(name).to_string()
}

/// Picoseconds, printed as µs with all six decimals.
struct Microseconds(u64);

impl std::fmt::Display for Microseconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn record(start_ps: u64, duration_ps: u64, track: Track) -> TraceRecord {
        TraceRecord { start_ps, duration_ps, track, name: "read \"4K\"", argument: 33 }
    }

    fn written(records: &[TraceRecord], limit: u64) -> (Vec<Value>, TraceStats) {
        let mut bytes = Vec::new();
        let stats = write(&mut bytes, records.iter().copied(), limit).unwrap();
        let trace: Value = serde_json::from_slice(&bytes).expect("valid JSON");
        assert_eq!(trace["otherData"]["dropped"], stats.dropped);
        (trace["traceEvents"].as_array().unwrap().clone(), stats)
    }

    #[test]
    fn tracks_are_named_and_times_keep_their_picoseconds() {
        let (events, stats) =
            written(&[record(1_234_567, 500, Track::Cpu(7)), record(2_000_000, 0, Track::Iommu(0))], 10);
        assert_eq!(stats, TraceStats { written: 2, dropped: 0 });
        let named = |what: &str| -> Vec<&str> {
            let of_kind = events.iter().filter(|e| e["name"] == what);
            of_kind.map(|e| e["args"]["name"].as_str().unwrap()).collect()
        };
        assert_eq!(named("process_name"), ["CPUs", "IOMMUs"]);
        assert_eq!(named("thread_name"), ["CPU 7", "IOMMU 0"]);
        let complete = events.iter().find(|e| e["ph"] == "X").unwrap();
        assert_eq!((complete["ts"].as_f64(), complete["dur"].as_f64()), (Some(1.234567), Some(0.0005)));
        assert_eq!((&complete["name"], &complete["args"]["value"]), (&Value::from("read \"4K\""), &Value::from(33)));
        assert_eq!(events.iter().filter(|e| e["ph"] == "i").count(), 1);
    }

    #[test]
    fn overlapping_requests_take_lanes_and_interrupts_nest() {
        let drive = Track::Drive(0);
        let cpu = Track::Cpu(0);
        let records = [record(0, 100, drive), record(50, 100, drive), record(100, 10, drive)];
        let (events, _) = written(&records, 10);
        let threads = |events: &[Value]| -> Vec<u64> {
            events.iter().filter(|e| e["ph"] == "X").map(|e| e["tid"].as_u64().unwrap()).collect()
        };
        assert_eq!(threads(&events), [1, 2, 1]);
        let (events, _) = written(&[record(0, 100, cpu), record(50, 10, cpu)], 10);
        assert_eq!(threads(&events), [1, 1]);
    }

    #[test]
    fn the_limit_holds_and_an_empty_trace_is_valid() {
        let (events, stats) = written(&[record(0, 1, Track::Port(1)); 5], 2);
        assert_eq!(stats, TraceStats { written: 2, dropped: 3 });
        assert_eq!(events.iter().filter(|e| e["ph"] == "X").count(), 2);
        assert!(written(&[], 2).0.is_empty());
    }
}
