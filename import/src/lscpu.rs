//! What `lscpu` prints: lines, or JSON with `-J`.
//!
//! util-linux indents the fields of a CPU's model since version 2.37, and nests them in JSON. The fields' names are those of
//! the C locale. Source: util-linux, `sys-utils/lscpu.c`.

use crate::encoding::plain;
use serde_json::Value;

/// Most bytes of a text.
const BYTES_MAX: usize = 1 << 20;

/// The value of the first of these fields that is there, without its colon.
pub fn field(text: &[u8], names: &[&str]) -> Option<String> {
    let text = plain(&text[..text.len().min(BYTES_MAX)]).into_owned();
    if let Ok(json) = serde_json::from_slice::<Value>(&text) {
        return names.iter().find_map(|name| in_json(json.get("lscpu")?, name));
    }
    let text = String::from_utf8_lossy(&text);
    let value = |name: &str| {
        text.lines().find_map(|line| line.trim().strip_prefix(name)?.trim_start().strip_prefix(':').map(str::trim))
    };
    names.iter().find_map(|name| value(name)).map(str::to_owned)
}

/// Lists of fields, each perhaps with others below it; the parser bounds their depth.
fn in_json(fields: &Value, name: &str) -> Option<String> {
    fields.as_array()?.iter().find_map(|field| {
        let is_meant = field.get("field").and_then(Value::as_str).is_some_and(|key| key.trim_end_matches(':') == name);
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
