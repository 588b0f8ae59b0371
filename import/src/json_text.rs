//! JSON as C programs print it and as people paste it, made readable for a parser: `nan`, control characters, numbers that
//! no variable holds, and lines between the JSON.

use serde_json::Value;

/// Lines that may begin a document; a shell's prompt or a log before it may have a brace too.
const BEGINNINGS_MAX: usize = 8;

/// The first object in a text that has this key. A shell's prompts and other lines may stand around it.
pub(crate) fn object_with(text: &str, key: &str) -> Option<Value> {
    let starts = text.match_indices('{').map(|(at, _)| at);
    let begins_line = |at: &usize| text[..*at].rsplit('\n').next().is_some_and(|before| before.trim().is_empty());
    let read = |at| serde_json::Deserializer::from_str(&text[at..]).into_iter::<Value>().next()?.ok();
    let mut objects = starts.filter(begins_line).take(BEGINNINGS_MAX).filter_map(read);
    objects.find(|object| object.get(key).is_some())
}

/// A text that a parser reads.
pub(crate) struct Clean {
    pub(crate) text: Vec<u8>,
    /// Numbers that are greater than any variable holds, such as `1e400`. They are null.
    pub(crate) beyond: usize,
}

/// The text without lines that no JSON of fio's has, such as its messages, and their number.
pub(crate) fn without_other_lines(text: &[u8]) -> (Vec<u8>, usize) {
    let is_json = |line: &&[u8]| {
        let line = line.trim_ascii_start();
        let word = [&b"null"[..], b"true", b"false"].iter().any(|word| line.starts_with(word));
        word || line
            .first()
            .is_none_or(|byte| matches!(byte, b'{' | b'}' | b'[' | b']' | b'"' | b',' | b'-' | b'0'..=b'9'))
    };
    let lines: Vec<&[u8]> = text.split(|&byte| byte == b'\n').collect();
    let kept: Vec<&[u8]> = lines.iter().copied().filter(is_json).collect();
    (kept.join(&b'\n'), lines.len() - kept.len())
}

/// The text with `nan` and `inf`, which are no JSON, and numbers beyond all bounds replaced by null outside strings, and with
/// control characters, which fio does not escape, replaced by blanks within strings.
pub(crate) fn clean(text: &[u8]) -> Clean {
    let mut clean = Vec::with_capacity(text.len());
    let (mut quoted, mut escaped, mut beyond) = (false, false, 0);
    let mut rest = text;
    while let Some((&byte, tail)) = rest.split_first() {
        if !quoted {
            // Only as a value: behind a colon or a comma.
            let is_value = || {
                let mut before = clean.iter().rev().filter(|byte: &&u8| !byte.is_ascii_whitespace());
                before.next().is_some_and(|byte| matches!(byte, b':' | b',' | b'['))
            };
            let no_number = not_a_number(rest).map(|length| (length, 0));
            let found = no_number.or_else(|| Some((beyond_bounds(rest)?, 1)));
            if let Some((length, count)) = found.filter(|_| is_value()) {
                clean.extend_from_slice(b"null");
                beyond += count;
                rest = &rest[length..];
                continue;
            }
        }
        match (byte, quoted, escaped) {
            (_, true, true) => escaped = false,
            (b'\\', true, false) => escaped = true,
            (b'"', _, false) => quoted = !quoted,
            // No string of fio's runs over the end of a line, but an apostrophe in a warning may open one.
            (b'\n', true, false) => quoted = false,
            _ => {}
        }
        clean.push(if quoted && byte < b' ' { b' ' } else { byte });
        rest = tail;
    }
    Clean { text: clean, beyond }
}

/// Most letters of one.
const NO_NUMBER_MAX: usize = 16;

/// The length of a `nan` or `inf`, as C libraries print them: `-nan`, `-nan(ind)`, `Infinity`, `1.#QNAN0`.
fn not_a_number(text: &[u8]) -> Option<usize> {
    let unsigned = text.strip_prefix(b"-").unwrap_or(text);
    let begins = |word: &[u8]| unsigned.len() >= word.len() && unsigned[..word.len()].eq_ignore_ascii_case(word);
    let is_end = |byte: &u8| matches!(byte, b',' | b'}' | b']') || byte.is_ascii_whitespace();
    let is_so = [&b"nan"[..], b"inf", b"1.#"].into_iter().any(begins);
    is_so.then(|| text.iter().take(NO_NUMBER_MAX).position(is_end).unwrap_or(NO_NUMBER_MAX.min(text.len())))
}

/// Digits of the greatest number, some more than 308.
const DIGITS_MAX: usize = 400;

/// The length of a number that is greater than any variable holds.
fn beyond_bounds(text: &[u8]) -> Option<usize> {
    text.first().filter(|byte| byte.is_ascii_digit() || **byte == b'-')?;
    let is_part = |byte: &&u8| byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E');
    let length = text.iter().take_while(is_part).count();
    let is_long = length > DIGITS_MAX || text[..length].iter().any(|byte| matches!(byte, b'e' | b'E'));
    let number: f64 = std::str::from_utf8(&text[..length]).ok().filter(|_| is_long)?.parse().ok()?;
    number.is_infinite().then_some(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_no_variable_holds_are_null() {
        let long = "9".repeat(DIGITS_MAX + 1);
        for (text, expected) in [
            ("{\"a\": 1e400, \"b\": [-2.5E+999,1e3]}", ("{\"a\": null, \"b\": [null,1e3]}", 2)),
            ("{\"1e400\": \"1e400\", \"a\":1e-400}", ("{\"1e400\": \"1e400\", \"a\":1e-400}", 0)),
            (&format!("[1,{long}]"), ("[1,null]", 1)),
            ("at 1e400 {\"a\":1}", ("at 1e400 {\"a\":1}", 0)),
            ("[--1e400, 1e, -]", ("[--1e400, 1e, -]", 0)),
        ] {
            let Clean { text: found, beyond } = clean(text.as_bytes());
            assert_eq!((String::from_utf8_lossy(&found).as_ref(), beyond), expected, "{text}");
        }
    }
}
