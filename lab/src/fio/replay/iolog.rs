//! fio's own logs, as `write_iolog` writes them: version 3 with a time stamp in µs before each line, version 2 with waits.

use super::{Reader, number, words};
use crate::input::InputError;
use crate::kinds::storage::load::Replayed;

/// The first line without its number.
const HEAD: [&[u8]; 2] = [b"fio version ", b" iolog"];

/// The version that the first line names.
pub(super) fn version(bytes: &[u8]) -> Option<u32> {
    let rest = bytes.strip_prefix(HEAD[0])?;
    let (&version, rest) = rest.split_first()?;
    (matches!(version, b'2' | b'3') && rest.starts_with(HEAD[1])).then(|| u32::from(version - b'0'))
}

/// Reads the lines behind the first.
pub(super) fn read(reader: &mut Reader<'_>, version: u32, bytes: &[u8]) -> Result<(), InputError> {
    for (index, line) in bytes.split(|&byte| byte == b'\n').enumerate().skip(1) {
        let line = String::from_utf8_lossy(line);
        if line.trim().is_empty() {
            continue;
        }
        if reader.is_full() {
            break;
        }
        record(reader, version, index as u32 + 1, &line)?;
    }
    Ok(())
}

/// One line: `[time] file action [offset length]`.
fn record(reader: &mut Reader<'_>, version: u32, line: u32, text: &str) -> Result<(), InputError> {
    let all = words(text);
    let (stamp, fields) = if version == 3 { all.split_at(1) } else { all.split_at(0) };
    let gap_ns = match stamp {
        [stamp] => {
            let stamp = number(reader, line, *stamp, "time in microseconds")?;
            reader.wait_until(stamp)
        }
        _ => 0,
    };
    match fields {
        [(_, name), (at, action)] => {
            match *action {
                "add" => {
                    reader.add(name);
                }
                "open" | "close" => {
                    known(reader, line, fields[0])?;
                }
                _ => return Err(wrong_action(reader, (line, *at), action, "add, open or close")),
            }
            reader.push_gap(gap_ns);
            Ok(())
        }
        [_, (at, action), offset, length, ..] => {
            let offset = number(reader, line, *offset, "offset")?;
            let bytes = number(reader, line, *length, "number of bytes")?;
            let direction = match *action {
                "read" => 0,
                "write" => 1,
                "trim" => 2,
                "sync" | "datasync" => {
                    let file = known(reader, line, fields[0])?;
                    // fio skips syncs, and never a datasync.
                    if *action == "datasync" || !reader.replay.skip[3] {
                        reader.push_gap(gap_ns);
                        reader.entries.push(Replayed::Sync(file));
                    }
                    return Ok(());
                }
                "wait" if version == 2 => {
                    if !reader.replay.no_stall {
                        reader.entries.push(Replayed::Until(offset.saturating_mul(1_000_000)));
                    }
                    return Ok(());
                }
                // fio takes no notice of a wait beside time stamps.
                "wait" => return Ok(()),
                _ => {
                    return Err(wrong_action(reader, (line, *at), action, "read, write, trim, sync, datasync or wait"));
                }
            };
            let file = known(reader, line, fields[0])?;
            if reader.replay.skip[direction] {
                return Ok(());
            }
            reader.push_gap(gap_ns);
            reader.io((line, length.0), (direction, file), (offset, bytes))
        }
        _ => {
            let valid = if version == 3 { "time file action offset length" } else { "file action offset length" };
            let column = fields.first().or(all.first()).map_or(1, |(column, _)| *column);
            let why = format!("`{}` is no record; valid: {valid}, or without the last two", text.trim());
            Err(reader.wrong((line, column), why))
        }
    }
}

fn known(reader: &Reader<'_>, line: u32, (column, name): (u32, &str)) -> Result<usize, InputError> {
    let why = || format!("`{name}` is a file that no line before has added; valid: a line `{name} add` before it");
    reader.file(name).ok_or_else(|| reader.wrong((line, column), why()))
}

fn wrong_action(reader: &Reader<'_>, at: (u32, u32), action: &str, valid: &str) -> InputError {
    reader.wrong(at, format!("`{action}` is no action of such a line; valid: {valid}"))
}
