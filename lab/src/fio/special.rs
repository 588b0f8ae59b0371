//! Values with a grammar of their own: what fio checks in them when it reads a file.

use super::kind::Wrong;
use super::lines::is_blank;
use super::number::{Number, Unit, float, integer};

/// The most entries of a list of sizes that fio keeps.
const SPLITS_MAX: usize = 64;

/// Why a value is refused, the rest of "`value` …", and what would be valid.
type Doubt = (&'static str, &'static str);

/// One direction's sizes with their percentages.
type Split = Vec<(u64, u32)>;

/// Checks the value of the option `name` beyond its type, and returns what is odd in a value that fio takes.
///
/// # Errors
/// fio refuses the value.
pub(super) fn check(name: &str, text: &str, kb_base: u64) -> Result<Vec<String>, Wrong> {
    refusal(name, text, kb_base)?;
    let odd = match name {
        "rw" => text.split_once(':').and_then(|(word, nth)| odd_nth(word, nth)),
        "cpus_allowed" => odd_cpus(text),
        "steadystate" => text.split_once(':').and_then(|(name, limit)| odd_limit(name, limit)),
        _ => None,
    };
    Ok(odd.into_iter().collect())
}

/// The leading whole number of a text, 0 without one: the C library's `atoi`.
pub(super) fn leading(text: &str) -> i64 {
    let text = text.trim_start_matches(is_blank);
    let is_part = |(at, c): &(usize, char)| c.is_ascii_digit() || (*at == 0 && matches!(c, '+' | '-'));
    let end = text.char_indices().take_while(is_part).last().map_or(0, |(at, _)| at + 1);
    text[..end].parse().unwrap_or(0)
}

/// A number behind `rw=` that is not what it looks like.
fn odd_nth(word: &str, nth: &str) -> Option<String> {
    let number = leading(nth);
    match word.starts_with("rand") {
        true if number as u32 == 0 => {
            Some(format!("fio reads `{}` as 0: no offset is random, each follows the last", nth.trim_matches(is_blank)))
        }
        true if nth.trim_matches(is_blank).bytes().any(|c| !c.is_ascii_digit()) => {
            Some(format!("fio reads `{}` as {number}", nth.trim_matches(is_blank)))
        }
        _ => None,
    }
}

/// A list of CPUs that is more than numbers and ranges.
fn odd_cpus(text: &str) -> Option<String> {
    let is_part = |item: &str| {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        [first, last].iter().all(|end| !end.is_empty() && end.bytes().all(|c| c.is_ascii_digit()))
    };
    let is_plain = text.trim_matches(is_blank).split(',').all(is_part);
    (!is_plain).then(|| "fio reads the leading digits of each part, up to the first empty part".into())
}

/// A limit of a steady state with letters behind it.
fn odd_limit(name: &str, limit: &str) -> Option<String> {
    let (number, rest) = limit.split_once('%').unwrap_or((limit, ""));
    if !limit.contains('%') && name.starts_with("bw") {
        return Number::read(limit.trim_matches(is_blank), Unit::Bytes, 1024).ok()?.odd;
    }
    let is_plain = number.trim_matches(is_blank).bytes().all(|c| c.is_ascii_digit() || c == b'.') && rest.is_empty();
    (!is_plain).then(|| format!("fio reads the number at the start of `{limit}` alone"))
}

/// Why fio refuses a value.
fn refusal(name: &str, text: &str, kb_base: u64) -> Result<(), Wrong> {
    let wrong = |(why, valid): Doubt| (why.to_owned(), valid.to_owned());
    match name {
        "bssplit" => splits(text, kb_base).map(|_| ()).map_err(wrong),
        "random_distribution" => distribution(text, kb_base).map_err(wrong),
        "file_service_type" => {
            distribution(text.strip_prefix("gauss").map_or(text, |_| "normal"), kb_base).map_err(wrong)
        }
        "steadystate" => steady_state(text, kb_base).map_err(wrong),
        "buffer_pattern" => pattern(text, false).map_err(wrong),
        "verify_pattern" => pattern(text, true).map_err(wrong),
        "cmdprio_bssplit" => priorities(text, kb_base).map_err(wrong),
        "numa_mem_policy" => memory_policy(text).map_err(wrong),
        "ignore_error" => ignored_errors(text).map_err(wrong),
        "replay_skip" => skipped(text).map_err(wrong),
        "io_size" => match Number::read(text, Unit::Bytes, kb_base) {
            Ok(number) if number.is_percent && number.value > 100 => {
                Err(wrong(("is more than fio can count", "a size, or up to 100%")))
            }
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

/// Sizes and their percentages, for reads, writes and trims: `4k/60:8k/40,64k`.
///
/// # Errors
/// fio refuses the text: why, and what is valid.
pub(super) fn splits(text: &str, kb_base: u64) -> Result<[Split; 3], Doubt> {
    let valid = "sizes and percentages such as 4k/60:8k/40";
    let mut parts = text.trim_matches(is_blank).splitn(3, ',');
    let reads = split(parts.next().unwrap_or_default(), kb_base).map_err(|why| (why, valid))?;
    let writes = parts.next().map_or(Ok(reads.clone()), |part| split(part, kb_base)).map_err(|why| (why, valid))?;
    let trims = parts.next().map_or(Ok(writes.clone()), |part| split(part, kb_base)).map_err(|why| (why, valid))?;
    Ok([reads, writes, trims])
}

/// One direction's sizes. Entries without a percentage share what is left.
fn split(text: &str, kb_base: u64) -> Result<Split, &'static str> {
    let mut entries: Vec<(u64, Option<u32>)> = Vec::new();
    for entry in text.split(':').take_while(|entry| !entry.is_empty()).take(SPLITS_MAX) {
        let (size, percent) = entry.split_once('/').map_or((entry, None), |(size, percent)| (size, Some(percent)));
        let percent = percent.map(|percent| integer(percent).map_or(0, |(value, _)| value.clamp(0, 100) as u32));
        let size = Number::read(size, Unit::Bytes, kb_base)?.value;
        entries.push((u64::try_from(size).map_err(|_| "has a negative size")?, percent.filter(|&percent| percent > 0)));
    }
    let given: u32 = entries.iter().filter_map(|&(_, percent)| percent).sum();
    let missing = entries.iter().filter(|(_, percent)| percent.is_none()).count() as u32;
    if given > 100 && missing > 1 {
        return Err("has percentages of more than 100 together");
    }
    let left = 100u32.saturating_sub(given) / missing.max(1);
    Ok(entries.into_iter().map(|(size, percent)| (size, percent.unwrap_or(left))).collect())
}

fn distribution(text: &str, kb_base: u64) -> Result<(), Doubt> {
    let (name, rest) = text.split_once(':').map_or((text, None), |(name, rest)| (name, Some(rest)));
    if name == "zoned" || name == "zoned_abs" {
        return zones(rest.unwrap_or_default(), name == "zoned_abs", kb_base);
    }
    if !matches!(name, "zipf" | "pareto" | "normal") {
        return Ok(());
    }
    let valid = "zipf:1.2, pareto:0.9, normal:20, each with :0.5 for its centre";
    let Some(rest) = rest else { return Ok(()) };
    let mut numbers = rest.splitn(2, ':');
    let value = numbers.next().and_then(float).ok_or(("has no number after the `:`", valid))?;
    if let Some(center) = numbers.next() {
        let center = float(center).ok_or(("has a centre that is no number", valid))?;
        if center != -1.0 && !(0.0..=1.0).contains(&center) {
            return Err(("has its centre outside 0 to 1", valid));
        }
    }
    match name {
        "zipf" if value == 1.0 => {
            Err(("has the theta 1, which the distribution does not have", "zipf:1.1 or zipf:0.9"))
        }
        "pareto" if value <= 0.0 || value >= 1.0 => Err(("is out of bounds", "pareto: more than 0, less than 1")),
        "normal" if !(0.0..100.0).contains(&value) => Err(("is out of bounds", "normal: from 0, less than 100")),
        _ => Ok(()),
    }
}

/// `60/10:40/90`: the accesses' percentage, then the zone's percentage or size, for up to three directions.
fn zones(text: &str, is_absolute: bool, kb_base: u64) -> Result<(), Doubt> {
    let valid = "shares of accesses and of the space such as zoned:60/10:40/90, the accesses adding up to 100";
    for part in text.trim_matches(is_blank).splitn(3, ',') {
        let (mut accesses, mut space, mut count) = (0i64, 0i64, 0);
        for entry in part.split(':').take_while(|entry| !entry.is_empty()) {
            let (access, size) = entry.split_once('/').map_or((entry, None), |(access, size)| (access, Some(size)));
            let bad = |why: &'static str| (why, valid);
            accesses += Number::read(access, Unit::Bytes, kb_base).map_err(bad)?.value;
            match size {
                Some(size) if is_absolute => drop(Number::read(size, Unit::Bytes, kb_base).map_err(bad)?),
                // A zone without a share has what is left.
                Some(size) => space += integer(size).map_or(0, |(value, _)| value.clamp(0, 100)),
                None => {}
            }
            count += 1;
        }
        if count > 0 && (accesses != 100 || space > 100) {
            return Err(("has shares that do not add up to 100", valid));
        }
    }
    Ok(())
}

fn steady_state(text: &str, kb_base: u64) -> Result<(), Doubt> {
    let valid = "iops:2%, iops_slope:0.3%, bw:10m and the like";
    let (name, limit) = text.split_once(':').ok_or(("has no limit", valid))?;
    let is_number = match limit.split_once('%') {
        Some((percent, _)) => float(percent).is_some(),
        None if name.starts_with("iops") => float(limit).is_some(),
        None => Number::read(limit.trim_matches(is_blank), Unit::Bytes, kb_base).is_ok(),
    };
    if is_number { Ok(()) } else { Err(("has a limit that is no number", valid)) }
}

/// Quoted texts, files, numbers, and offsets (`%o`) where `with_offsets`.
fn pattern(text: &str, with_offsets: bool) -> Result<(), Doubt> {
    let valid = "a number such as 0xdeadbeef, or a text in \"quotes\"";
    let mut rest = text;
    if text.is_empty() {
        return Err(("has no value", valid));
    }
    while let Some(first) = rest.chars().next() {
        rest = match first {
            '"' | '\'' => {
                let (quoted, behind) = rest[1..].split_once(first).ok_or(("has a quote without its end", valid))?;
                match first {
                    '"' if quoted.is_empty() => return Err(("has an empty text, at which fio crashes", valid)),
                    '\'' if !has_bytes(quoted) => {
                        return Err(("names a file that is missing or empty", "the path of a file in 'quotes'"));
                    }
                    _ => behind,
                }
            }
            '%' if with_offsets && rest.starts_with("%o") => &rest[2..],
            _ => pattern_number(rest).ok_or(("is no pattern", valid))?,
        };
    }
    Ok(())
}

/// True if a pattern can be read from the file.
fn has_bytes(path: &str) -> bool {
    std::fs::metadata(path).is_ok_and(|file| !file.is_dir() && (!file.is_file() || file.len() > 0))
}

/// What follows the number at the start of a pattern.
fn pattern_number(text: &str) -> Option<&str> {
    if let Some(hex) = text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        let end = hex.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(hex.len());
        if end > 0 {
            // The 0 of another 0x belongs to that one.
            let is_next = hex[end..].starts_with(['x', 'X']) && hex[..end].ends_with('0');
            return Some(&hex[if is_next { end - 1 } else { end }..]);
        }
    }
    let end = text.to_ascii_lowercase().find("0x").filter(|&end| end > 0).unwrap_or(text.len());
    let (value, rest) = integer(&text[..end])?;
    i32::try_from(value).ok()?;
    Some(&text[end - rest.len()..])
}

/// `4k/50:8k/30/2/5`: size, percentage, class and level.
fn priorities(text: &str, kb_base: u64) -> Result<(), Doubt> {
    let valid = "sizes and percentages such as 4k/50, or 4k/50/2/5 with a class and a level";
    for part in text.trim_matches(is_blank).splitn(3, ',') {
        for entry in part.split(':').take_while(|entry| !entry.is_empty()) {
            let words: Vec<&str> = entry.split('/').collect();
            Number::read(words[0], Unit::Bytes, kb_base).map_err(|why| (why, valid))?;
            if words.len() == 3 {
                return Err(("has a class without a level", valid));
            }
        }
    }
    Ok(())
}

/// `bind:0-1` and the like; `prefer` names one node, `default` and `local` none.
fn memory_policy(text: &str) -> Result<(), Doubt> {
    let (name, nodes) = text.split_once(':').map_or((text, None), |(name, nodes)| (name, Some(nodes)));
    match (name, nodes) {
        ("default" | "local", None) | ("interleave", _) | ("bind", Some(_)) => Ok(()),
        ("prefer", Some(node)) if node.bytes().all(|digit| digit.is_ascii_digit()) => Ok(()),
        _ => Err(("is no memory policy", "default, local, prefer:0, bind:0-1 or interleave:0-1")),
    }
}

/// Errors of reads, writes and verification that do not end the job: `EIO:28,ENOSPC`.
fn ignored_errors(text: &str) -> Result<(), Doubt> {
    const NAMES: &str = "EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT \
                         ENOTBLK EBUSY EEXIST EXDEV ENODEV ENOTDIR EISDIR EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG \
                         ENOSPC ESPIPE EROFS EMLINK EPIPE EDOM ERANGE";
    let valid = "errors such as EIO or 28, of reads, writes and verification: EIO,ENOSPC:28";
    if text.split(',').count() > 3 {
        return Err(("has more than three kinds of errors", valid));
    }
    let is_known = |error: &str| match error.starts_with('E') {
        true => NAMES.split_whitespace().any(|name| name == error),
        false => integer(error).is_some_and(|(number, _)| number != 0),
    };
    let kinds =
        text.trim_matches(is_blank).split(',').flat_map(|kind| kind.split(':').take_while(|error| !error.is_empty()));
    if kinds.into_iter().all(is_known) { Ok(()) } else { Err(("has an error that fio does not know", valid)) }
}

fn skipped(text: &str) -> Result<(), Doubt> {
    if text.split(',').all(|kind| matches!(kind, "read" | "write" | "trim" | "sync")) {
        return Ok(());
    }
    Err(("names a kind of I/O that no log has", "read, write, trim and sync, separated by commas"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_share_what_is_left() {
        let [reads, writes, trims] = splits("4k/60:8k:16k,64k", 1024).unwrap();
        assert_eq!(reads, [(4096, 60), (8192, 20), (16384, 20)]);
        assert_eq!((writes.as_slice(), trims), ([(65536, 100)].as_slice(), writes.clone()));
        assert!(splits("4k/60:8k/60:1k:2k", 1024).is_err());
        assert!(splits("foo", 1024).is_err());
    }

    #[test]
    fn values_with_a_grammar_are_judged_as_fio_does() {
        let good = [
            ("random_distribution", "zipf:1.2:0.5"),
            ("random_distribution", "zoned:60/10:30/20:8/30:2/40"),
            ("random_distribution", "zoned:50/5:30/15:20/"),
            ("random_distribution", "zoned_abs:60/10g:40/200g"),
            ("steadystate", "iops:2%"),
            ("buffer_pattern", "0xff0x14\"text\"12"),
            ("verify_pattern", "%o"),
            ("cmdprio_bssplit", "4k/50/2/5"),
            ("buffer_pattern", "0xff'Cargo.toml'"),
            ("numa_mem_policy", "bind:0-1"),
            ("ignore_error", "EIO:5,,28"),
            ("replay_skip", "read,sync"),
        ];
        let bad = [
            ("random_distribution", "zipf:1"),
            ("random_distribution", "pareto:1.5"),
            ("random_distribution", "zoned:60/10"),
            ("random_distribution", "zoned_abs:60/10g:40/"),
            ("steadystate", "iops"),
            ("buffer_pattern", "abcd"),
            ("buffer_pattern", "%o"),
            ("io_size", "150%"),
            ("buffer_pattern", "'no such file'"),
            ("verify_pattern", "0xff''"),
            ("buffer_pattern", "\"\""),
            ("numa_mem_policy", "bind"),
            ("numa_mem_policy", "prefer:0-1"),
            ("numa_mem_policy", "first"),
            ("ignore_error", "EFOO"),
            ("ignore_error", "EIO,,,"),
            ("replay_skip", "read,none"),
        ];
        for (name, text) in good {
            assert_eq!(check(name, text, 1024), Ok(Vec::new()), "{name}={text}");
        }
        for (name, text) in bad {
            assert!(check(name, text, 1024).is_err(), "{name}={text}");
        }
    }
}
