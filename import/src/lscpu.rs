//! What `lscpu` prints: lines, or JSON with `-J`.
//!
//! util-linux indents the fields of a CPU's model since version 2.37, and nests them in JSON. The fields' names are those of
//! the C locale, or of another language. Source: util-linux, `sys-utils/lscpu.c` and the translations in `po/`.

use crate::encoding::plain;
use serde_json::Value;

/// Most bytes of a text.
const BYTES_MAX: usize = 1 << 20;

/// A colon, and the wide one of Chinese.
const COLONS: [char; 2] = [':', '：'];
/// Number of CPUs, as util-linux names it in its languages.
const CPUS: [&str; 11] = [
    "CPU(s)",
    "CPU (s)",
    "CPU",
    "CPUs",
    "CPU's",
    "CPU(er)",
    "Processeur(s)",
    "Počet CPU",
    "İşlemciler",
    "Процесори",
    "Процессоры",
];
/// Number of sockets, likewise.
const SOCKETS: [&str; 17] = [
    "Socket(s)",
    "CPU socket(s)",
    "Sockel",
    "«Socket(s)»",
    "Soquete(s)",
    "Gniazd",
    "Gniazda",
    "Сокетов",
    "Сокети",
    "座",
    "通訊端",
    "ソケット数",
    "소켓",
    "Patic",
    "CPU-voeten",
    "Uttag",
    "Soket(ler)",
];

/// CPUs that are online; all, where the text does not list them.
pub fn cpus(text: &[u8]) -> Option<u32> {
    let online = field(text, &["On-line CPU(s) list"]).and_then(|list| count(&list));
    online.or_else(|| field(text, &CPUS)?.parse().ok()).filter(|cpus| *cpus > 0)
}

/// Sockets.
pub fn sockets(text: &[u8]) -> Option<u32> {
    field(text, &SOCKETS)?.parse().ok().filter(|sockets| *sockets > 0)
}

/// The number of CPUs in `0-3,8`.
pub fn count(list: &str) -> Option<u32> {
    let mut count: u32 = 0;
    for item in list.trim().split(',') {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        count = count.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    (1..=65_536).contains(&count).then_some(count)
}

/// The value of the first of these fields that is there, without its colon.
pub fn field(text: &[u8], names: &[&str]) -> Option<String> {
    let text = plain(&text[..text.len().min(BYTES_MAX)]).into_owned();
    if let Ok(json) = serde_json::from_slice::<Value>(&text) {
        return names.iter().find_map(|name| in_json(json.get("lscpu")?, name));
    }
    let text = String::from_utf8_lossy(&text);
    let value = |name: &str| {
        let value =
            |line: &str| Some(line.trim().strip_prefix(name)?.trim_start().strip_prefix(COLONS)?.trim().to_owned());
        text.lines().find_map(value)
    };
    names.iter().find_map(|name| value(name))
}

/// Lists of fields, each perhaps with others below it; the parser bounds their depth.
fn in_json(fields: &Value, name: &str) -> Option<String> {
    fields.as_array()?.iter().find_map(|field| {
        let is_meant = field
            .get("field")
            .and_then(Value::as_str)
            .is_some_and(|key| key.trim_end_matches(COLONS).trim_end() == name);
        let value = field.get("data").and_then(Value::as_str).filter(|_| is_meant);
        value.map(str::to_owned).or_else(|| in_json(field.get("children")?, name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_in_every_form() {
        let old = "Architecture:          x86_64\nCPU(s):                16\nOn-line CPU(s) list:   0-15\nCPU socket(s):         2\n";
        let new = "CPU(s):                  16\n  On-line CPU(s) list:   0-15\n  Model name:            M\n    Socket(s):           2\n";
        let flat = r#"{"lscpu": [{"field": "CPU(s):", "data": "16"}, {"field": "Socket(s):", "data": "2"}]}"#;
        let nested = r#"{"lscpu": [{"field": "CPU(s):", "data": "16", "children": [{"field": "On-line", "data": "0"}]},
            {"field": "Vendor ID:", "data": "V", "children": [{"field": "Model name:", "data": "M",
             "children": [{"field": "Socket(s):", "data": "2"}]}]}]}"#;
        for text in [old, new, flat, nested] {
            assert_eq!(field(text.as_bytes(), &["CPU(s)"]).as_deref(), Some("16"), "{text}");
            assert_eq!(field(text.as_bytes(), &["Socket(s)", "CPU socket(s)"]).as_deref(), Some("2"), "{text}");
        }
    }

    #[test]
    fn other_languages_and_cpus_that_are_offline() {
        for (text, expected) in [
            (
                "CPU(s):               20\nOn-line CPU(s) list:  1-5,8-19\nOff-line CPU(s) list: 0,6,7\nSocket(s):   2\n",
                (Some(17), Some(2)),
            ),
            (
                "CPU(s):                             8\r\nListe der Online-CPU(s):            0-7\r\n  Sockel:     1\r\n",
                (Some(8), Some(1)),
            ),
            (
                "Processeur(s) :                         12\nSocket(s) :                             1\n",
                (Some(12), Some(1)),
            ),
            (
                "CPU:                             4\n在线 CPU 列表：                  0-3\n座：                             1\n",
                (Some(4), Some(1)),
            ),
            ("On-line CPU(s) list: junk\nCPU(s): 0\nSocket(s): -\n", (None, None)),
        ] {
            assert_eq!((cpus(text.as_bytes()), sockets(text.as_bytes())), expected, "{text}");
        }
        assert_eq!([count("0-3,8"), count("9-3"), count("0-4294967295"), count("")], [Some(5), None, None, None]);
    }

    #[test]
    fn damage_has_no_fields() {
        for text in [
            "",
            "{",
            "[]",
            "{\"lscpu\": 3}",
            "{\"lscpu\": [[], 4, {\"field\": 1, \"children\": 2}]}",
            "Socket(s)",
            "Socket(s) 2",
        ] {
            assert_eq!(field(text.as_bytes(), &["Socket(s)"]), None, "{text}");
        }
    }
}
