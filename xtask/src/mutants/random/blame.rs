//! Finds the changes that the compiler's errors are about.

use super::switch::Branch;
use crate::mutants::build;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The changes by file, with the positions in the files that were built.
pub(super) type Branches = BTreeMap<String, Vec<Branch>>;

/// The numbers of the changes at fault, out of cargo's messages.
pub(super) fn at_fault(messages: &str, branches: &Branches) -> BTreeSet<u32> {
    build::errors(messages).flat_map(|error| of_error(&error, branches)).collect()
}

/// The changes whose text the error points at; or else, all changes of the functions that it points at.
fn of_error(message: &Value, branches: &Branches) -> BTreeSet<u32> {
    let mut spans = Vec::new();
    collect(message, &mut spans);
    let primary: Vec<_> = spans.iter().filter(|span| span.is_primary).collect();
    let all: Vec<_> = spans.iter().collect();
    let within = |spans: &[&Span], range: fn(&Branch) -> &std::ops::Range<usize>| -> BTreeSet<u32> {
        let touched = spans.iter().flat_map(|span| {
            let of_file = branches.get(&span.file).into_iter().flatten();
            of_file.filter(|branch| range(branch).start <= span.at && span.at < range(branch).end)
        });
        touched.map(|branch| branch.number).collect()
    };
    let attempts = [
        within(&primary, |branch| &branch.body),
        within(&all, |branch| &branch.body),
        within(&all, |branch| &branch.function),
    ];
    attempts.into_iter().find(|numbers| !numbers.is_empty()).unwrap_or_default()
}

/// A place that the compiler names.
struct Span {
    file: String,
    at: usize,
    is_primary: bool,
}

/// The spans of `message`, of its notes, and of the macros that they stand in.
fn collect(message: &Value, spans: &mut Vec<Span>) {
    for span in message.get("spans").and_then(Value::as_array).into_iter().flatten() {
        let is_primary = span.get("is_primary").and_then(Value::as_bool).unwrap_or(false);
        let mut next = Some(span);
        while let Some(span) = next {
            let file = span.get("file_name").and_then(Value::as_str);
            let at = span.get("byte_start").and_then(Value::as_u64);
            if let (Some(file), Some(at)) = (file, at) {
                spans.push(Span { file: file.to_owned(), at: at as usize, is_primary });
            }
            next = span.get("expansion").and_then(|expansion| expansion.get("span"));
        }
    }
    for child in message.get("children").and_then(Value::as_array).into_iter().flatten() {
        let from = spans.len();
        collect(child, spans);
        spans[from..].iter_mut().for_each(|span| span.is_primary = false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn branches() -> Branches {
        let branch = |number, body, function| Branch { number, body, function };
        [(
            "irq/src/x.rs".to_owned(),
            vec![branch(1, 20..30, 10..100), branch(2, 40..50, 10..100), branch(3, 210..220, 200..300)],
        )]
        .into()
    }

    fn span(at: u64, is_primary: bool) -> Value {
        json!({ "file_name": "irq/src/x.rs", "byte_start": at, "byte_end": at + 1, "is_primary": is_primary })
    }

    fn blamed(level: &str, spans: &[Value]) -> Vec<u32> {
        let message =
            json!({ "reason": "compiler-message", "message": { "level": level, "spans": spans, "children": [] } });
        at_fault(&format!("{message}\nno json\n"), &branches()).into_iter().collect()
    }

    #[test]
    fn an_error_is_of_the_change_it_stands_in_and_else_of_its_function() {
        assert_eq!(blamed("error", &[span(25, true), span(45, false)]), [1]);
        assert_eq!(blamed("error", &[span(60, true), span(45, false)]), [2]);
        assert_eq!(blamed("error", &[span(60, true)]), [1, 2]);
        assert_eq!(blamed("error", &[span(150, true)]), [0; 0]);
        assert_eq!(blamed("warning", &[span(25, true)]), [0; 0]);
        let in_macro = json!({ "file_name": "core/macros.rs", "byte_start": 9, "is_primary": true, "expansion": { "span": span(215, false) } });
        assert_eq!(blamed("error", &[in_macro]), [3]);
    }
}
