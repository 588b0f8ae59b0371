//! blktrace's records: what `blkparse` prints by default, and the kernel's own form (`struct blk_io_trace`).
//!
//! Of each I/O its queueing (Q) is repeated, as fio does. A trace that has no Q is repeated by its dispatches (D). A device
//! is the drive `/dev/block/MAJOR:MINOR`, its name under Linux.

use super::{Reader, number, words};
use crate::input::InputError;
use crate::kinds::storage::load::Replayed;

const SECTOR_BYTES: u64 = 512;

/// Of a record, what a replay needs.
struct Record {
    at: (u32, u32),
    time_ns: u64,
    device: (u64, u64),
    kind: Kind,
    sector: u64,
    bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Io(usize),
    Flush,
    Other,
}

/// Adds a record to the log.
fn repeat(reader: &mut Reader<'_>, record: &Record) -> Result<(), InputError> {
    let gap_ns = reader.wait_until(record.time_ns / 1_000);
    let (major, minor) = record.device;
    match record.kind {
        Kind::Io(direction) if record.bytes > 0 && !reader.replay.skip[direction] => {
            let file = reader.add(&format!("/dev/block/{major}:{minor}"));
            reader.push_gap(gap_ns);
            let bytes = record.bytes.checked_next_multiple_of(reader.replay.align).unwrap_or(u64::MAX);
            let Some(offset) = record.sector.checked_mul(SECTOR_BYTES) else {
                return Err(reader.wrong(record.at, format!("sector `{}` is beyond any drive", record.sector)));
            };
            reader.io(record.at, (direction, file), (offset, bytes))
        }
        Kind::Flush if !reader.replay.skip[3] => {
            let file = reader.add(&format!("/dev/block/{major}:{minor}"));
            reader.push_gap(gap_ns);
            reader.entries.push(Replayed::Sync(file));
            Ok(())
        }
        _ => Ok(()),
    }
}

/// True if some line near the beginning is one of `blkparse`'s.
pub(super) fn is_text(bytes: &[u8]) -> bool {
    let lines = bytes.split(|&byte| byte == b'\n').take(LINES_BEFORE);
    lines.map(String::from_utf8_lossy).any(|line| is_event(&words(&line)))
}

/// Lines in which the first event must stand.
const LINES_BEFORE: usize = 64;

/// `8,0  3  1  0.000000000  697  Q  W ...`: device, CPU, sequence, time, process, action, kind.
fn is_event(words: &[(u32, &str)]) -> bool {
    let [device, _, _, time, _, _, ..] = words else { return false };
    device_of(device.1).is_some() && time_ns(time.1).is_some()
}

fn device_of(word: &str) -> Option<(u64, u64)> {
    let (major, minor) = word.split_once(',')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn time_ns(word: &str) -> Option<u64> {
    let (seconds, rest) = word.split_once('.')?;
    if rest.is_empty() || rest.len() > 9 || !rest.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let ns: u64 = format!("{rest:0<9}").parse().ok()?;
    seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(ns)
}

/// Reads the events; the sums at the end are not looked at.
pub(super) fn text(reader: &mut Reader<'_>, bytes: &[u8]) -> Result<(), InputError> {
    let lines = || bytes.split(|&byte| byte == b'\n').map(String::from_utf8_lossy).enumerate();
    let has_queued = lines().any(|(_, line)| {
        let words = words(&line);
        is_event(&words) && words[5].1 == "Q"
    });
    let action = if has_queued { "Q" } else { "D" };
    for (index, line) in lines() {
        let words = words(&line);
        // Messages and sums stand between and behind the events.
        if !is_event(&words) || words[5].1 != action {
            continue;
        }
        if reader.is_full() {
            break;
        }
        let record = event(reader, index as u32 + 1, &words)?;
        repeat(reader, &record)?;
    }
    Ok(())
}

/// A line with an event: behind the kind, `sector + sectors`; an empty flush has neither.
fn event(reader: &Reader<'_>, line: u32, words: &[(u32, &str)]) -> Result<Record, InputError> {
    let [(at, device), _, _, (_, time), _, _, rest @ ..] = words else {
        return Err(reader.wrong((line, 1), "is no event"));
    };
    let Some(&(column, flags)) = rest.first() else {
        let why = "ends before the kind of the I/O; valid: R, W, D or F, with S, A, M or F behind it";
        return Err(reader.wrong((line, *at), why));
    };
    let (device, time_ns) = (device_of(device).unwrap_or((0, 0)), time_ns(time).unwrap_or(0));
    let range = match rest {
        [_, sector, (_, "+"), sectors, ..] => {
            Some((number(reader, line, *sector, "sector")?, number(reader, line, *sectors, "number of sectors")?))
        }
        _ => None,
    };
    let kind = kind_of(flags).ok_or_else(|| {
        let why = format!("`{flags}` is no kind of I/O; valid: R, W, D or F, with S, A, M or F behind it");
        reader.wrong((line, column), why)
    })?;
    let (sector, sectors) = range.unwrap_or((0, 0));
    let is_empty_flush = sectors == 0 && flags.starts_with('F');
    let at = match rest {
        [_, _, _, (column, _), ..] => (line, *column),
        _ => (line, column),
    };
    let bytes = sectors.saturating_mul(SECTOR_BYTES);
    Ok(Record { at, time_ns, device, kind: if is_empty_flush { Kind::Flush } else { kind }, sector, bytes })
}

/// The kernel's letters (`blk_fill_rwbs`): F before the operation is a flush of its own, F behind it is FUA.
fn kind_of(flags: &str) -> Option<Kind> {
    let rest = flags.strip_prefix('F').unwrap_or(flags);
    let has_flush = rest.len() < flags.len();
    let kind = match rest.chars().next() {
        Some('R') => Kind::Io(0),
        Some('W') => Kind::Io(1),
        Some('D') => Kind::Io(2),
        None | Some('N' | 'F' | 'S' | 'M' | 'A') if has_flush => Kind::Flush,
        Some('N') => Kind::Other,
        // An application's own command, and operations on zones.
        Some('P' | 'Z' | 'B' | 'E') => Kind::Other,
        _ => return None,
    };
    let is_known = rest.chars().skip(1).all(|letter| "SAMFEVPBRZLTNI".contains(letter));
    is_known.then_some(kind)
}

/// `struct blk_io_trace`: 48 bytes, then `pdu_len` more.
const RECORD_BYTES: usize = 48;
/// Magic and version 7.
const MAGIC: u32 = 0x6561_7407;
/// In the upper half of `action`: the classes of the operation.
const CLASS_WRITE: u32 = 1 << 17;
const CLASS_FLUSH: u32 = 1 << 18;
const CLASS_NOTIFY: u32 = 1 << 26;
const CLASS_DISCARD: u32 = 1 << 29;
/// In the lower half.
const ACTION_QUEUE: u32 = 1;
const ACTION_ISSUE: u32 = 7;
/// Bits of the minor number.
const MINOR_BITS: u32 = 20;

/// True for records of either order of bytes.
pub(super) fn is_binary(bytes: &[u8]) -> bool {
    let Some(first) = bytes.first_chunk::<4>() else { return false };
    [u32::from_le_bytes(*first), u32::from_be_bytes(*first)].iter().any(|magic| magic >> 8 == MAGIC >> 8)
}

/// The fields of a record.
struct Raw<'a> {
    bytes: &'a [u8],
    is_big: bool,
}

impl Raw<'_> {
    fn field<const N: usize>(&self, at: usize) -> u64 {
        let part = &self.bytes[at..at + N];
        let add = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
        if self.is_big { part.iter().fold(0, add) } else { part.iter().rev().fold(0, add) }
    }
}

/// Reads the kernel's records. An error names the record as its line.
pub(super) fn binary(reader: &mut Reader<'_>, bytes: &[u8]) -> Result<(), InputError> {
    let is_big = bytes.starts_with(&[(MAGIC >> 24) as u8]);
    let has_queued = records(bytes, is_big).any(|raw| {
        let action = raw.field::<4>(28) as u32;
        action & (0xffff | CLASS_NOTIFY) == ACTION_QUEUE
    });
    let wanted = if has_queued { ACTION_QUEUE } else { ACTION_ISSUE };
    let mut count = 0;
    for raw in records(bytes, is_big) {
        count += 1;
        let magic = raw.field::<4>(0) as u32;
        if magic != MAGIC {
            let why = format!("record {count} begins with {magic:#x}; valid: {MAGIC:#x}, blktrace's version 7");
            return Err(reader.wrong((count, 1), why));
        }
        let action = raw.field::<4>(28) as u32;
        if action & 0xffff != wanted || action & CLASS_NOTIFY != 0 {
            continue;
        }
        if reader.is_full() {
            break;
        }
        let (device, length) = (raw.field::<4>(36), raw.field::<4>(24));
        let kind = match action {
            _ if action & CLASS_DISCARD != 0 => Kind::Io(2),
            _ if action & CLASS_FLUSH != 0 && length == 0 => Kind::Flush,
            _ if action & CLASS_WRITE != 0 => Kind::Io(1),
            _ => Kind::Io(0),
        };
        let record = Record {
            at: (count, 1),
            time_ns: raw.field::<8>(8),
            device: (device >> MINOR_BITS, device & ((1 << MINOR_BITS) - 1)),
            kind,
            sector: raw.field::<8>(16),
            bytes: length,
        };
        repeat(reader, &record)?;
    }
    Ok(())
}

/// The records; a last one that is cut off is left out, as by fio.
fn records(bytes: &[u8], is_big: bool) -> impl Iterator<Item = Raw<'_>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (record, behind) = rest.split_at_checked(RECORD_BYTES)?;
        let raw = Raw { bytes: record, is_big };
        let more = raw.field::<2>(46) as usize;
        rest = behind.get(more..).unwrap_or_default();
        Some(raw)
    })
}
