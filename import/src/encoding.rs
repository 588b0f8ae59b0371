//! Texts as other programs save and send them: systems, terminals, mail, and what collects the output of containers.

use serde_json::Value;
use std::borrow::Cow;

/// The text as UTF-8 without a byte order mark, a terminal's escape sequences and mail's escapes; each state of a line that
/// a carriage return replaced is a line. A shell of Windows saves what a program prints as UTF-16, and editors may as UTF-32.
///
/// Sources: The Unicode Standard, "Byte Order Mark (BOM)"; ECMA-48, 5.4; RFC 2045, 6.7.
pub(crate) fn plain(text: &[u8]) -> Cow<'_, [u8]> {
    let words = |bytes: &[u8], word: fn([u8; 2]) -> u16| {
        let words = bytes.chunks_exact(2).map(|pair| word([pair[0], pair[1]]));
        let text: String =
            char::decode_utf16(words).map(|found| found.unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
        Cow::Owned(text.into_bytes())
    };
    let wide = |bytes: &[u8], word: fn([u8; 4]) -> u32| {
        let signs = bytes.chunks_exact(4).map(|four| word([four[0], four[1], four[2], four[3]]));
        let text: String = signs.map(|sign| char::from_u32(sign).unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
        Cow::Owned(text.into_bytes())
    };
    let mut text = match text {
        [0xef, 0xbb, 0xbf, rest @ ..] => Cow::Borrowed(rest),
        // UTF-32 begins as UTF-16 does.
        [0xff, 0xfe, 0, 0, rest @ ..] => wide(rest, u32::from_le_bytes),
        [0, 0, 0xfe, 0xff, rest @ ..] => wide(rest, u32::from_be_bytes),
        [a, 0, 0, 0, b, 0, 0, 0, ..] if [a, b].iter().all(|byte| **byte != 0) => wide(text, u32::from_le_bytes),
        [0, 0, 0, a, 0, 0, 0, b, ..] if [a, b].iter().all(|byte| **byte != 0) => wide(text, u32::from_be_bytes),
        [0xff, 0xfe, rest @ ..] => words(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => words(rest, u16::from_be_bytes),
        // Without the mark: every other byte of plain letters is zero.
        [a, 0, b, 0, c, 0, d, 0, ..] if [a, b, c, d].iter().all(|byte| **byte != 0) => words(text, u16::from_le_bytes),
        [0, a, 0, b, 0, c, 0, d, ..] if [a, b, c, d].iter().all(|byte| **byte != 0) => words(text, u16::from_be_bytes),
        _ => Cow::Borrowed(text),
    };
    let has = |escape: &[u8]| text.windows(escape.len()).any(|part| part == escape);
    // Mail breaks lines that are too long. An option without a value ends with `=` too, but is short.
    let is_broken = |line: &[u8]| line.len() >= BROKEN_MIN && line.trim_ascii_end().ends_with(b"=");
    if has(b"=3D") || has(b"=20") && text.split(|byte| *byte == b'\n').any(is_broken) {
        text = Cow::Owned(without_mail_escapes(&text));
    }
    let has_narrow = || text.windows(2).any(|two| NARROW_REST.iter().any(|rest| rest == two));
    let has_blank = || text.windows(2).any(|two| two == NO_BREAK) || has_narrow();
    if text.iter().any(|byte| matches!(*byte, ESCAPE | b'\r')) || has_blank() {
        text = Cow::Owned(without_controls(&text));
    }
    text
}

/// The text of a file that somebody wrote by hand, such as a job file.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&plain(bytes)).into_owned()
}

/// The shortest line that mail breaks; most are of 72 to 76 letters.
const BROKEN_MIN: usize = 60;
const ESCAPE: u8 = 0x1b;
const BELL: u8 = 7;
/// A blank of web pages.
const NO_BREAK: [u8; 2] = [0xc2, 0xa0];
/// U+202F and U+2009 in UTF-8 begin so, and go on so.
const NARROW_FIRST: u8 = 0xe2;
const NARROW_REST: [[u8; 2]; 2] = [[0x80, 0xaf], [0x80, 0x89]];

fn without_controls(text: &[u8]) -> Vec<u8> {
    let mut clean = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        match byte {
            ESCAPE => {
                rest = behind_escape(tail);
                let most = 2 * text.len() + WIDTH_MAX;
                if clean.len() < most {
                    move_cursor(&tail[..tail.len() - rest.len()], &mut clean);
                }
            }
            b'\r' if tail.first() == Some(&b'\n') => {}
            b'\r' => clean.push(b'\n'),
            _ if [byte, tail.first().copied().unwrap_or(0)] == NO_BREAK => {
                clean.push(b' ');
                rest = &tail[1..];
            }
            // Narrow blanks group digits, and do nothing else.
            _ if byte == NARROW_FIRST && NARROW_REST.iter().any(|blank| tail.starts_with(blank)) => {
                rest = &tail[2..];
                let is_within =
                    clean.last().is_some_and(u8::is_ascii_digit) && rest.first().is_some_and(u8::is_ascii_digit);
                if !is_within {
                    clean.push(b' ');
                }
            }
            _ => clean.push(byte),
        }
    }
    clean
}

/// Most columns of a terminal.
const WIDTH_MAX: usize = 1000;

/// What a sequence that moves the cursor stands for: programs that draw a screen (`watch`) send it in place of the ends of
/// lines, of blanks, and of a character that is repeated (ECMA-48, 8.3: CUP, HVP, VPA, CNL, CUD, CUF, CHA, REP).
fn move_cursor(sequence: &[u8], clean: &mut Vec<u8>) {
    let [b'[', numbers @ .., end] = sequence else { return };
    let number = std::str::from_utf8(numbers).ok().and_then(|number| number.parse::<usize>().ok());
    let count = number.unwrap_or(1).min(WIDTH_MAX);
    let before = clean.last().copied().unwrap_or(b'\n');
    match end {
        b'H' | b'f' | b'd' | b'E' | b'B' if before != b'\n' => clean.push(b'\n'),
        b'C' => clean.resize(clean.len() + count, b' '),
        b'G' => clean.push(b' '),
        b'b' => clean.resize(clean.len() + count, before),
        _ => {}
    }
}

/// What follows an escape sequence.
fn behind_escape(text: &[u8]) -> &[u8] {
    let is_end: fn(&u8) -> bool = match text.first() {
        Some(b'[') => |byte| (0x40..0x7f).contains(byte),
        Some(b']') => |byte| matches!(*byte, BELL | ESCAPE),
        Some(b'(' | b')') => |_| true,
        _ => return text.get(1..).unwrap_or_default(),
    };
    // A line's end is in no sequence: one without an end would swallow the text.
    let end = text.iter().skip(1).position(|byte| is_end(byte) || *byte == b'\n');
    let behind = end.map_or(text.len(), |end| if text[end + 1] == b'\n' { end + 1 } else { end + 2 });
    &text[behind..]
}

/// `=3D` for `=`, and lines that `=` at their end joins to the next.
fn without_mail_escapes(text: &[u8]) -> Vec<u8> {
    let mut clean = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, tail)) = rest.split_first() {
        let digits = tail.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let code = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        rest = match (byte, tail, code) {
            (b'=', [b'\r', b'\n', next @ ..] | [b'\n', next @ ..], _) => next,
            (b'=', _, Some(code)) => {
                clean.push(code);
                &tail[2..]
            }
            _ => {
                clean.push(byte);
                tail
            }
        };
    }
    clean
}

/// The text without what was put before each of its lines (`> `, `fio_1  | `, `[pod/a/b] `, a time, a host), or the lines
/// that a log has in JSON (`{"log": "…"}`). None if nothing was.
///
/// Lines of one kind begin alike by themselves, such as those of one device: only for a text that makes no sense as it is.
pub(crate) fn bare(text: &[u8]) -> Option<Vec<u8>> {
    let text = String::from_utf8_lossy(text);
    of_log(&text).or_else(|| with_quotes(&text)).or_else(|| without_prefix(&text)).map(String::into_bytes)
}

/// Text as a word processor or a web page has it, with quotes again.
fn with_quotes(text: &str) -> Option<String> {
    let is_typographic = |c: char| matches!(c, '\u{201c}'..='\u{201f}' | '\u{ab}' | '\u{bb}');
    let has_entities = ["&quot;", "&#34;"].iter().any(|entity| text.contains(entity));
    let plain =
        || text.replace(is_typographic, "\"").replace("&quot;", "\"").replace("&#34;", "\"").replace("&gt;", ">");
    (has_entities || text.contains(is_typographic)).then(plain)
}

/// Names of the text in a log's entry: Docker's, journald's, and others'.
const MESSAGES: [&str; 5] = ["log", "MESSAGE", "message", "msg", "textPayload"];

/// Most bytes of an entry, which JSON takes many times as much memory for.
const ENTRY_MAX: usize = 4 << 20;

fn of_log(text: &str) -> Option<String> {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty()).peekable();
    let entry = |line: &str| if line.len() > ENTRY_MAX { None } else { serde_json::from_str::<Value>(line).ok() };
    let first = lines.peek().and_then(|line| entry(line))?;
    let name = MESSAGES.into_iter().find(|name| first.get(name).is_some_and(Value::is_string))?;
    let message = |line: &str| Some(entry(line)?.get(name)?.as_str()?.trim_end_matches('\n').to_owned() + "\n");
    Some(lines.filter_map(message).collect())
}

/// Most lines that are looked at for what they begin with.
const LOOKED_AT_MAX: usize = 20_000;
/// Least lines that begin alike by no chance.
const ALIKE_MIN: usize = 4;
/// Shares of the lines that have the prefix, in per cent: the first that gives one holds. The others are a program's own.
const SHARES: [usize; 4] = [100, 97, 90, 80];

fn without_prefix(text: &str) -> Option<String> {
    let lines = text.lines().filter(|line| !line.trim().is_empty()).take(LOOKED_AT_MAX);
    let mut shapes: Vec<Vec<char>> =
        lines.map(|line| shape(line).into_iter().map(|(sign, _)| sign).collect()).collect();
    if shapes.len() < ALIKE_MIN {
        return None;
    }
    shapes.sort_unstable();
    // In their order, lines that begin alike are neighbours.
    let prefix = SHARES.into_iter().find_map(|share| {
        let count = (shapes.len() * share).div_ceil(100);
        let prefixes = shapes.windows(count).map(|lines| common(&lines[0], &lines[count - 1]));
        prefixes.max_by_key(|prefix| prefix.len()).filter(|prefix| prefix.iter().any(|sign| *sign != ' '))
    })?;
    let rest = |line: &str| {
        let shape = shape(line);
        let is_so =
            shape.len() >= prefix.len() && shape.iter().zip(prefix).all(|((sign, _), of_prefix)| sign == of_prefix);
        let from = if is_so { shape[prefix.len() - 1].1 } else { 0 };
        format!("{}\n", &line[from..])
    };
    Some(text.lines().map(rest).collect())
}

/// Most signs of a line's beginning.
const SIGNS_MAX: usize = 120;

/// The beginning of a line with a digit for each number and a blank for several, since times and lengths differ; each with
/// where it ends.
fn shape(line: &str) -> Vec<(char, usize)> {
    let mut shape: Vec<(char, usize)> = Vec::new();
    for (at, found) in line.char_indices().take(2 * SIGNS_MAX) {
        let sign = match found {
            '0'..='9' => '0',
            '\t' => ' ',
            other => other,
        };
        let end = at + found.len_utf8();
        let is_full = shape.len() == SIGNS_MAX;
        match shape.last_mut() {
            Some((last, last_end)) if *last == sign && matches!(sign, '0' | ' ') => *last_end = end,
            _ if is_full => break,
            _ => shape.push((sign, end)),
        }
    }
    shape
}

/// What both begin with, up to the end of a word; no JSON.
fn common<'a>(a: &'a [char], b: &[char]) -> &'a [char] {
    let is_of_both = |(a, b): &(&char, &char)| a == b && !matches!(a, '"' | '{' | '}');
    let same = a.iter().zip(b).take_while(is_of_both).count();
    let end = a[..same].iter().rposition(|sign| !sign.is_alphanumeric()).map_or(0, |at| at + 1);
    &a[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_go_and_utf_16_is_read() {
        assert_eq!(&*plain("\u{feff}a\u{b5}".as_bytes()), "aµ".as_bytes());
        assert_eq!(&*plain(&[0xff, 0xfe, b'a', 0, 0xb5, 0, 7]), "aµ".as_bytes());
        assert_eq!(&*plain(&[0xfe, 0xff, 0, b'a', 0xd8, 0]), "a\u{fffd}".as_bytes());
        for (mark, word) in [
            ("", u32::to_le_bytes as fn(u32) -> [u8; 4]),
            ("\u{feff}", u32::to_le_bytes),
            ("", u32::to_be_bytes),
            ("\u{feff}", u32::to_be_bytes),
        ] {
            let wide: Vec<u8> = format!("{mark}a\u{b5}\n").chars().flat_map(|sign| word(sign.into())).collect();
            assert_eq!(&*plain(&wide), "a\u{b5}\n".as_bytes());
        }
        assert_eq!(&*plain(&[0xff, 0xfe, 0, 0, 0, 0xd8, 0, 0, 7]), "\u{fffd}".as_bytes());
        assert_eq!(&*plain(b"\xffa"), b"\xffa");
        assert_eq!(&*plain(&[]), b"");
    }

    #[test]
    fn terminals_and_mail_leave_nothing() {
        for (text, expected) in [
            ("\x1b[32ma\x1b[0m\r\nb\x1b[?2004h", "a\nb"),
            ("eta 5s\reta 0s\rdone\r\n", "eta 5s\neta 0s\ndone\n"),
            ("\x1b]0;root@host\x07$ a\x1b(B", "$ a"),
            ("\x1b[3\na\x1b", "\na"),
            ("a\u{a0}b\u{a0}", "a b "),
            ("rw=3Dread, io=\n=3Dlibaio=\r\n=20x=", "rw=read, io=libaio x="),
            (
                " 40:       4050          0          0  IR-PCI-MSIX-0000:01:00.=\n0=20=20nvme0q1\n",
                " 40:       4050          0          0  IR-PCI-MSIX-0000:01:00.0  nvme0q1\n",
            ),
            ("a=b", "a=b"),
            ("size=20\nfilename=\n", "size=20\nfilename=\n"),
        ] {
            assert_eq!(String::from_utf8_lossy(&plain(text.as_bytes())), expected, "{text:?}");
        }
    }

    #[test]
    fn what_stands_before_each_line_goes() {
        let text = "{\n  \"a\" : [\n    1,\n    22\n  ],\n  \"b\" : {\n  \"c\" : 3\n }\n}\n";
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        for prefix in [
            "> ",
            ">> ",
            "fio_1  | ",
            "[pod/bench-7d9f/fio] ",
            "2026-11-23T13:02:5#.12#4567Z stdout F ",
            "Nov 23 13:02:5# host fio[#123]: ",
            "node1: ",
            "[   1#.345] ",
            "#\t",
            "> [pod/x/y] > ",
        ] {
            let numbers = [7, 12, 3, 4567].iter().cycle();
            let lines = text.lines().zip(numbers);
            let put = |(line, number): (&str, &i32)| format!("{}{line}\n", prefix.replace('#', &number.to_string()));
            let long: String = lines.map(put).collect();
            let found = bare(long.as_bytes()).map(|text| String::from_utf8(text).unwrap());
            assert_eq!(found.as_deref().map(words), Some(words(text)), "{prefix}");
            let found = bare(format!("{long}exited with code 0\n").as_bytes()).unwrap();
            assert!(String::from_utf8(found).unwrap().ends_with("}\nexited with code 0\n"), "{prefix}");
        }
        let log: String =
            text.lines().map(|line| format!("{}\n", serde_json::json!({"log": format!("{line}\n")}))).collect();
        assert_eq!(bare(log.as_bytes()).as_deref(), Some(text.as_bytes()));
        assert_eq!([text, "", "a\nb\n", "{\"log\": 3}\n"].map(|text| bare(text.as_bytes())), [None, None, None, None]);
    }
}
