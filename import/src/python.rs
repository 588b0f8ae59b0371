//! fio's JSON as Python prints the object that it was read into, and as programs print a text with its escapes.

/// A Python object that holds fio's results, as JSON. None if the text has no such object.
///
/// Sources: The Python Language Reference, 2.4.1 "String and Bytes literals"; RFC 8259, 7.
pub(crate) fn as_json(text: &str) -> Option<String> {
    let has_name = ["'fio version'", "'jobs'", "'client_stats'"].iter().any(|name| text.contains(name));
    has_name.then(|| converted(text))
}

fn converted(text: &str) -> String {
    let mut json = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let tail = &rest[first.len_utf8()..];
        let is_word_before = json.ends_with(|before: char| before.is_alphanumeric() || before == '_');
        let word = WORDS.iter().find(|(word, _)| {
            !is_word_before && rest.strip_prefix(word).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
        });
        rest = match first {
            // An apostrophe within a word of a message begins no string.
            '\'' | '"' if !is_word_before => string(tail, first, &mut json),
            'u' | 'b' if !is_word_before && tail.starts_with(['\'', '"']) => tail,
            '(' => pushed('[', &mut json, tail),
            ')' | ']' | '}' => {
                // Python may put a comma behind the last value.
                let end = json.trim_end().len();
                if json[..end].ends_with(',') {
                    json.truncate(end - 1);
                }
                pushed(if first == ')' { ']' } else { first }, &mut json, tail)
            }
            _ => match word {
                Some((word, of_json)) => {
                    json.push_str(of_json);
                    &rest[word.len()..]
                }
                None => pushed(first, &mut json, tail),
            },
        };
    }
    json
}

/// Python's words, and JSON's.
const WORDS: [(&str, &str); 3] = [("True", "true"), ("False", "false"), ("None", "null")];

fn pushed<'a>(sign: char, json: &mut String, tail: &'a str) -> &'a str {
    json.push(sign);
    tail
}

/// Adds the string that begins here as JSON's, and returns what follows it. One that does not end in its line is no string.
fn string<'a>(text: &'a str, quote: char, json: &mut String) -> &'a str {
    let start = json.len();
    json.push('"');
    let mut signs = text.char_indices();
    while let Some((at, sign)) = signs.next() {
        match sign {
            '\n' => break,
            _ if sign == quote => {
                json.push('"');
                return &text[at + quote.len_utf8()..];
            }
            '\\' => match signs.next() {
                Some((_, '\'')) => json.push('\''),
                // Two digits in Python, four in JSON.
                Some((_, 'x')) => json.push_str("\\u00"),
                Some((_, sign @ ('"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't' | 'u'))) => json.extend(['\\', sign]),
                Some((_, sign)) => json.extend(['\\', '\\', sign]),
                None => break,
            },
            '"' => json.push_str("\\\""),
            _ => json.push(sign),
        }
    }
    json.truncate(start);
    json.push(quote);
    text
}

/// A text without one layer of escapes, if fio's JSON stands in it as a string: `b'{\n  "fio version" : …'`, or
/// `"{\n \"fio version\" : …"`.
pub(crate) fn unescaped(text: &str) -> Option<String> {
    let is_one = text.contains("fio version") && text.contains("\\n");
    if !is_one {
        return None;
    }
    let mut plain = String::with_capacity(text.len());
    let mut signs = text.chars();
    while let Some(sign) = signs.next() {
        plain.push(match sign {
            '\\' => match signs.next()? {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                other => other,
            },
            _ => sign,
        });
    }
    // The quote before the first brace stands where fio's own line begins.
    Some(plain.replace("'{", "\n{").replace("\"{", "\n{"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_json() {
        for (text, expected) in [
            ("{'jobs': [{'a': 1.5, 'x': True}], 'y': None}", r#"{"jobs": [{"a": 1.5, "x": true}], "y": null}"#),
            ("{u'jobs': (1, b'a',), 'b': [2, ]}", r#"{"jobs": [1, "a"], "b": [2]}"#),
            (r#"{'jobs': "it's", 'b': 'a "b" \'c\' \x41\\'}"#, r#"{"jobs": "it's", "b": "a \"b\" 'c' \u0041\\"}"#),
            ("it's Noneish: {'jobs': []}", r#"it's Noneish: {"jobs": []}"#),
            ("{'jobs': 'cut", "{\"jobs\": 'cut"),
            ("{'jobs': '\\q\u{e9}\\", "{\"jobs\": '\\q\u{e9}\\"),
        ] {
            assert_eq!(as_json(text).as_deref(), Some(expected), "{text}");
        }
        assert_eq!(as_json("{\"jobs\": True}"), None);
    }

    #[test]
    fn a_string_loses_its_escapes() {
        let plain = |text: &str| unescaped(text).map(|text| text.trim_matches(['b', '\'', '"', '\n']).to_owned());
        let expected = Some("{\n \"fio version\" : \"a\"\n}");
        assert_eq!(plain(r#"b'{\n "fio version" : "a"\n}\n'"#).as_deref(), expected);
        assert_eq!(plain(r#""{\n \"fio version\" : \"a\"\n}""#).as_deref(), expected);
        assert_eq!([unescaped("{\"fio version\": 1}"), unescaped("fio version \\n \\")], [None, None]);
    }
}
