//! The JSON documents of fio's in a text, as such texts are found: with lines before, behind and between the JSON, with
//! `nan`, with names that come twice, wrapped in a document of somebody else's, or cut off.

use crate::Note;
use crate::fio_json::FioJsonError;
use crate::json_text::{self, Clean};
use crate::python;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt;

/// Most documents that break before the search ends: braces in warnings.
const BROKEN_MAX: usize = 32;
/// How deep fio's document may stand in somebody else's.
const WRAPPED_MAX: usize = 6;
/// The names of the list of jobs.
const LISTS: [&str; 2] = ["jobs", "client_stats"];

/// The jobs of fio's document, or of its clients.
pub(crate) fn jobs(document: &Map<String, Value>) -> Option<&Vec<Value>> {
    LISTS.iter().find_map(|key| document.get(*key)?.as_array())
}

/// What a text holds.
#[derive(Clone)]
pub(crate) struct Found {
    /// Whole documents.
    pub documents: Vec<Map<String, Value>>,
    /// About the rest of the text.
    pub notes: Vec<Note>,
    /// The documents that it had: those of the same run are one of the above.
    pub printed: usize,
}

/// The whole documents of a text, one for each run of other jobs, and notes about the rest.
///
/// Documents of the same jobs with the same options are one run that `--status-interval` printed again, or a run that was
/// repeated: the last counts.
pub(crate) fn documents(text: &[u8]) -> Result<Found, FioJsonError> {
    let text = String::from_utf8_lossy(text);
    let found = of_json(text.as_bytes());
    let Err(error) = found else { return found };
    let others = [
        (python::as_json(&text), "a Python object, and is read as JSON"),
        (python::unescaped(&text), "a string with its escapes, and is read without them"),
    ];
    let found = others.into_iter().find_map(|(other, what)| Some((of_json(other?.as_bytes()).ok()?, what)));
    let (mut found, what) = found.ok_or(error)?;
    found.notes.push(format!("the text is {what}"));
    Ok(found)
}

/// The documents of a text whose values are JSON.
fn of_json(text: &[u8]) -> Result<Found, FioJsonError> {
    let Clean { text, beyond } = json_text::clean(text);
    let mut found = of_clean(&text)?;
    if beyond > 0 {
        found.notes.push(format!("numbers greater than any that can be read are left out: {beyond}"));
    }
    Ok(found)
}

fn of_clean(clean: &[u8]) -> Result<Found, FioJsonError> {
    let whole = search(clean, false);
    if let Ok(found) = whole {
        return Ok(found);
    }
    let (lines, dropped) = json_text::without_other_lines(clean);
    let again = if dropped > 0 { search(&lines, false) } else { whole.clone() };
    if let Ok(mut found) = again {
        found.notes.push(format!("lines that are not JSON are left out: {dropped}"));
        return Ok(found);
    }
    match whole {
        Err(FioJsonError::Broken(why)) => recovered(clean, &why).ok_or(FioJsonError::Broken(why)),
        other => other,
    }
}

/// fio's documents that follow each other. `is_printed`: the text is a string of a document, and no other is looked into.
fn search(clean: &[u8], is_printed: bool) -> Result<Found, FioJsonError> {
    let (mut from, mut failures, mut others) = (0, 0, false);
    let mut alone = Vec::new();
    let (mut found, mut notes, mut broken) = (Runs::default(), Vec::new(), None);
    while let Some(start) = object_at(clean, from) {
        let mut documents = serde_json::Deserializer::from_slice(&clean[start..]).into_iter::<Joined>();
        match documents.next() {
            Some(Ok(Joined(Value::Object(document)))) => {
                from = start + documents.byte_offset();
                if is_job_alone(&document) {
                    alone.push(Value::Object(document));
                    continue;
                }
                let (of_fio, path) = unwrapped(document, is_printed);
                others |= of_fio.is_empty();
                of_fio.into_iter().for_each(|document| found.add(document));
                if !path.is_empty() {
                    notes = vec![format!("fio's output stands below {path:?}")];
                }
            }
            Some(Err(error)) => {
                broken = Some(error.to_string());
                // A brace in a warning's line; the JSON may still come.
                from = start + 1;
                failures += 1;
                if found.count > 0 || error.is_eof() || failures == BROKEN_MAX {
                    break;
                }
            }
            _ => from = start + 1,
        }
    }
    if found.documents.is_empty() && broken.is_none() && !alone.is_empty() {
        return Ok(of_jobs(alone));
    }
    notes.extend(found.note());
    let Runs { documents, count: printed, .. } = found;
    match (documents.is_empty(), broken) {
        (false, None) => Ok(Found { documents, notes, printed }),
        (false, Some(why)) => {
            notes.push(format!("what follows the last whole document is broken ({why})"));
            Ok(Found { documents, notes, printed })
        }
        (true, Some(why)) => Err(FioJsonError::Broken(why)),
        (true, None) if others => Err(FioJsonError::NoJobs),
        (true, None) => Err(FioJsonError::NoJson),
    }
}

/// Whether a document is one of fio's jobs, and not a run.
fn is_job_alone(document: &Map<String, Value>) -> bool {
    let has = |key: &str| document.get(key).is_some_and(Value::is_object);
    document.contains_key("jobname")
        && jobs(document).is_none()
        && ["read", "write", "trim", "mixed"].into_iter().any(has)
}

/// The run of jobs that somebody took out of fio's document.
fn of_jobs(jobs: Vec<Value>) -> Found {
    let note = format!(
        "the text holds {} of fio's jobs without the document around them, as `jq .jobs` prints them: they are taken as one run; \
         fio's version, the options of [global] and the statistics of disks are not in it",
        jobs.len()
    );
    let document = Map::from_iter([(LISTS[0].to_owned(), Value::Array(jobs))]);
    Found { documents: vec![document], notes: vec![note], printed: 1 }
}

/// Most runs of other jobs that one text may hold.
const RUNS_MAX: usize = 1000;

/// The runs of a text, each with its last document.
#[derive(Default)]
struct Runs {
    documents: Vec<Map<String, Value>>,
    /// Where the document of each run stands, by what tells runs apart.
    by_jobs: BTreeMap<String, usize>,
    /// The number of each document in the text, from 1.
    numbers: Vec<usize>,
    count: usize,
}

impl Runs {
    fn add(&mut self, document: Map<String, Value>) {
        self.count += 1;
        let of_job = |job: &Value| json!([job.get("jobname"), job.get("job options"), job.get("groupid")]);
        let jobs: Vec<Value> = jobs(&document).into_iter().flatten().map(of_job).collect();
        let key = json!([document.get("global options"), jobs]).to_string();
        match self.by_jobs.get(&key) {
            Some(&at) => (self.documents[at], self.numbers[at]) = (document, self.count),
            None if self.documents.len() < RUNS_MAX => {
                self.by_jobs.insert(key, self.documents.len());
                self.documents.push(document);
                self.numbers.push(self.count);
            }
            None => {}
        }
    }

    /// Which documents are used, if there are several.
    fn note(&self) -> Option<String> {
        let used = match self.documents.len() {
            _ if self.count < 2 => return None,
            1 => "all are of the same jobs, and the last is used".to_owned(),
            runs if runs == self.count => "each is of other jobs, and all are used".to_owned(),
            _ => {
                let numbers: Vec<String> = self.numbers.iter().take(20).map(ToString::to_string).collect();
                let more = if self.numbers.len() > 20 { ", …" } else { "" };
                format!("the last of each run of the same jobs is used: number {}{more}", numbers.join(", "))
            }
        };
        Some(format!("{} documents follow each other; {used}", self.count))
    }
}

/// fio's documents within a document, or in a text that a program printed, and where the last one stands; empty if it is
/// fio's itself.
fn unwrapped(document: Map<String, Value>, is_printed: bool) -> (Vec<Map<String, Value>>, String) {
    if jobs(&document).is_some() {
        return (vec![document], String::new());
    }
    let (mut found, mut path) = (Vec::new(), String::new());
    let mut pending = vec![(Value::Object(document), String::new(), 0)];
    while let Some((value, at, depth)) = pending.pop() {
        let below = |name: &str| if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") };
        match value {
            Value::Object(inner) if jobs(&inner).is_some_and(|jobs| jobs.iter().any(is_job)) => {
                found.push(inner);
                path = at;
            }
            // From the last on the stack, so that they are found in their order.
            Value::Object(inner) if depth < WRAPPED_MAX => {
                let inner = inner.into_iter().rev();
                pending.extend(inner.map(|(name, value)| (value, below(&name), depth + 1)));
            }
            // What a program printed, as Ansible and others keep it.
            Value::String(text) if text.contains("\"fio version\"") && !is_printed => {
                if let Ok(Found { documents, .. }) = search(&json_text::clean(text.as_bytes()).text, true) {
                    found.extend(documents);
                    path = at;
                }
            }
            Value::Array(inner) if depth < WRAPPED_MAX => {
                let inner = inner.into_iter().enumerate().rev();
                pending.extend(inner.map(|(index, value)| (value, below(&index.to_string()), depth + 1)));
            }
            _ => {}
        }
    }
    (found, path)
}

fn is_job(value: &Value) -> bool {
    value.get("jobname").is_some()
}

/// The document of a text that breaks behind its list of jobs: nothing that follows the list is needed.
fn recovered(clean: &[u8], why: &str) -> Option<Found> {
    let (at, name, jobs) = LISTS.iter().find_map(|name| {
        let (at, jobs) = value_of(clean, name)?;
        jobs.as_array().is_some_and(|jobs| jobs.iter().any(is_job)).then_some((at, *name, jobs))
    })?;
    let mut document = Map::from_iter([(name.to_owned(), jobs)]);
    for name in ["fio version", "global options"] {
        let quoted = format!("\"{name}\"");
        let is_there = clean[..at].windows(quoted.len()).any(|window| window == quoted.as_bytes());
        let value = value_of(&clean[..at], name).map(|(_, value)| (name.to_owned(), value));
        // Without these options the jobs would be others.
        if is_there && value.is_none() {
            return None;
        }
        document.extend(value);
    }
    let notes = vec![format!("the JSON is broken behind its jobs ({why}); they are whole, and are used")];
    Some(Found { documents: vec![document], notes, printed: 1 })
}

/// The value behind the last `"name" :`, if it is whole, and where the name stands.
fn value_of(clean: &[u8], name: &str) -> Option<(usize, Value)> {
    let quoted = format!("\"{name}\"");
    let at = clean.windows(quoted.len()).rposition(|window| window == quoted.as_bytes())?;
    let rest = clean[at + quoted.len()..].trim_ascii_start().strip_prefix(b":")?;
    let Joined(value) = serde_json::Deserializer::from_slice(rest).into_iter().next()?.ok()?;
    Some((at, value))
}

/// Whether a text begins with a field that only fio's documents begin with.
fn is_first_field(text: &[u8]) -> bool {
    ["\"fio version\"", "\"jobs\"", "\"client_stats\""].iter().any(|field| text.starts_with(field.as_bytes()))
}

/// The next brace that begins a line or a list, from `from` on, as fio's objects do, or that stands before fio's first field
/// behind a line without an end.
fn object_at(text: &[u8], from: usize) -> Option<usize> {
    (from..text.len()).find(|&at| {
        let mut before = text[..at].iter().rev();
        let mut begins = || {
            before
                .find(|byte| !matches!(byte, b' ' | b'\t'))
                .is_none_or(|byte| matches!(byte, b'\n' | b'\r' | b'}' | b'[' | b',' | 0))
        };
        text[at] == b'{' && (is_first_field(text[at + 1..].trim_ascii_start()) || begins())
    })
}

/// A value in which an option that comes twice has both values.
///
/// fio prints an option as often as it was given. Of `filename`, fio uses all; of every other, the last.
struct Joined(Value);

impl<'de> Deserialize<'de> for Joined {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Joining).map(Self)
    }
}

struct Joining;

impl<'de> Visitor<'de> for Joining {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Joined(value)) = list.next_element()? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut values = Map::new();
        while let Some((name, Joined(value))) = fields.next_entry::<String, Joined>()? {
            let value = match (values.get(&name).and_then(Value::as_str), value.as_str()) {
                (Some(first), Some(second)) if name == "filename" => format!("{first}:{second}").into(),
                _ => value,
            };
            values.insert(name, value);
        }
        Ok(Value::Object(values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIO: &str = "{\n \"fio version\" : \"fio-3.1\",\n \"global options\" : { \"bs\" : \"4k\" },\n \"jobs\" : [\n  {\n   \
                       \"jobname\" : \"a\",\n   \"read\" : { \"iops\" : 7 }\n  },\n  {\n   \"jobname\" : \"b\"\n  }\n ],\n \
                       \"disk_util\" : [\n  {\n   \"name\" : \"sda\"\n  }\n ]\n}\n";

    fn names(text: &str) -> Result<(Vec<String>, Vec<Note>), FioJsonError> {
        let Found { documents, notes, .. } = documents(text.as_bytes())?;
        let names = jobs(documents.last().unwrap())
            .unwrap()
            .iter()
            .map(|job| job["jobname"].as_str().unwrap_or_default().to_owned());
        Ok((names.collect(), notes))
    }

    #[test]
    fn a_text_that_breaks_behind_its_jobs_is_used() {
        let end = FIO.find("],").unwrap();
        for length in 0..FIO.len() - 2 {
            match names(&FIO[..length]) {
                Ok((names, notes)) => {
                    assert!(length > end && names == ["a", "b"] && notes[0].contains("broken behind"))
                }
                Err(error) => assert!(length <= end, "{length}: {error}"),
            }
        }
        // Damage in the middle, with whole jobs behind it, is not a list of those jobs.
        let middle = FIO.replace(" : { \"iops\"", " : { iops");
        assert!(matches!(names(&middle), Err(FioJsonError::Broken(_))));
        let behind = FIO.replace("\"name\" : \"sda\"", "\"name\" \"sda\"");
        assert_eq!(names(&behind).unwrap().0, ["a", "b"]);
    }

    #[test]
    fn jobs_without_their_document_are_a_run() {
        let job = |name: &str| format!("{{\"jobname\": \"{name}\", \"read\": {{\"iops\": 7}}}}");
        for text in [
            format!("[{}, {}]", job("a"), job("b")),
            format!("[\n  {},\n  {}\n]\n", job("a"), job("b")),
            format!("{}\n{}\n", job("a"), job("b")),
        ] {
            let (found, notes) = names(&text).unwrap();
            assert_eq!(found, ["a", "b"], "{text}");
            assert!(notes.len() == 1 && notes[0].contains("2 of fio's jobs without the document"), "{notes:?}");
        }
        assert!(names(&format!("[{}, {}", job("a"), &job("b")[..20])).is_err(), "a job is missing");
        assert_eq!(names(&format!("{}\n{FIO}", job("c"))).unwrap().0, ["a", "b"], "beside a whole document");
        assert!(names("[{\"jobname\": \"a\"}]").is_err(), "no job that ran");
    }

    #[test]
    fn lines_between_the_json_are_left_out() {
        let mixed = FIO.replace(" \"disk_util\"", "fio: terminating on signal 2\n \"disk_util\"");
        let (found, notes) = names(&mixed).unwrap();
        assert_eq!((found.len(), notes.as_slice()), (2, &["lines that are not JSON are left out: 1".to_owned()][..]));
    }

    #[test]
    fn an_output_within_another_document_is_found() {
        let (found, notes) = names(&format!("{{\"host\": \"x\", \"results\": [{FIO}]}}")).unwrap();
        assert_eq!((found.len(), notes.as_slice()), (2, &["fio's output stands below \"results.0\"".to_owned()][..]));
        let compact = format!("[{0},{0}]", FIO.replace('\n', ""));
        assert!(names(&compact).unwrap().1.iter().any(|note| note.starts_with("2 documents follow each other")));
        assert_eq!(names("{\"jobs\": 3}\n{\"a\": {\"jobs\": [1]}}"), Err(FioJsonError::NoJobs));
    }

    #[test]
    fn of_each_run_of_other_jobs_the_last_document_counts() {
        let run = |size: &str, iops: u32| FIO.replace("4k", size).replace(" 7 }", &format!(" {iops} }}"));
        let found = |text: &str| {
            let Found { documents, notes, .. } = documents(text.as_bytes()).unwrap();
            let iops = documents.iter().map(|document| jobs(document).unwrap()[0]["read"]["iops"].as_u64().unwrap());
            (iops.collect::<Vec<_>>(), notes.join("\n"))
        };
        let (iops, note) = found(&[run("4k", 1), run("8k", 2)].concat());
        assert_eq!(iops, [1, 2]);
        assert!(note.contains("2 documents") && note.contains("all are used"), "{note}");
        let (iops, note) = found(&[run("4k", 1), run("4k", 2), run("8k", 3), run("8k", 4)].concat());
        assert_eq!(iops, [2, 4]);
        assert!(note.ends_with("number 2, 4"), "{note}");
        let (iops, note) = found(&[run("4k", 1), run("4k", 2)].concat());
        assert_eq!(iops, [2]);
        assert!(note.contains("the last is used"), "{note}");
        let (iops, _) = found(&format!("[{}, {}]", run("4k", 1), run("8k", 2)));
        assert_eq!(iops, [1, 2], "in somebody's own list");
        let (iops, note) = found(&[&run("4k", 1), &run("8k", 2), &FIO[..80]].concat());
        assert!(iops == [1, 2] && note.contains("is broken"), "{note}");
        let many: String = (0..RUNS_MAX + 5).map(|run_of| run(&run_of.to_string(), 1)).collect();
        assert_eq!(found(&many).0.len(), RUNS_MAX);
    }

    #[test]
    fn files_that_come_twice_are_all_kept() {
        let text = "{\"jobs\": [{\"job options\": {\"filename\": \"/dev/a\", \"bs\": \"1k\", \"filename\": \"/dev/b\", \"bs\": \"4k\"}}]}";
        let Found { documents, .. } = documents(text.as_bytes()).unwrap();
        let options = &jobs(&documents[0]).unwrap()[0]["job options"];
        assert_eq!((options["filename"].as_str(), options["bs"].as_str()), (Some("/dev/a:/dev/b"), Some("4k")));
    }

    #[test]
    fn characters_that_are_no_json_are_read() {
        let mut text = b"\0\0{\"jobs\": [{\"jobname\": \"a\tb \xe9\", \"x\": -NaN}]}\0\0\0".to_vec();
        let Found { documents: found, .. } = documents(&text).unwrap();
        assert_eq!(jobs(&found[0]).unwrap()[0]["jobname"], "a b \u{fffd}");
        text.truncate(8);
        assert!(documents(&text).is_err());
    }

    #[test]
    fn braces_without_end_are_answered_soon() {
        let begun = std::time::Instant::now();
        for piece in ["{\n", "{\"a\":\n", "[{", "{}\n", "{\"jobs\":[\n", "x\n", "{ x\n"] {
            let text = piece.repeat((1 << 20) / piece.len());
            assert!(documents(text.as_bytes()).is_err(), "{piece:?}");
        }
        assert!(begun.elapsed().as_secs() < 60, "{:?}", begun.elapsed());
    }

    #[test]
    fn what_c_libraries_print_for_no_number_is_null() {
        for word in ["nan", "-nan", "-nan(ind)", "NaN", "-inf", "Infinity", "1.#QNAN0", "-1.#IND00"] {
            let text = FIO.replace("\"iops\" : 7", &format!("\"mean\" : {word}, \"iops\":{word},\n\"all\": [{word}]"));
            let Found { documents, .. } = documents(text.as_bytes()).unwrap_or_else(|error| panic!("{error}: {word}"));
            assert!(documents[0]["jobs"][0]["read"]["iops"].is_null(), "{word}");
        }
    }

    #[test]
    fn what_a_program_printed_is_read() {
        let printed = format!("fio: warning\n{FIO}");
        let kept =
            json!({"results": [{"rc": 0, "stdout": printed, "stdout_lines": printed.lines().collect::<Vec<_>>()}]});
        let Found { documents: found, notes, .. } = documents(kept.to_string().as_bytes()).unwrap();
        assert_eq!((found.len(), found[0]["jobs"][1]["jobname"].as_str()), (1, Some("b")));
        assert!(notes[0].contains("results.0.stdout"), "{notes:?}");
        // A string within a string is not looked into.
        let deeper = json!({ "log": kept.to_string() });
        assert!(documents(deeper.to_string().as_bytes()).is_err());
    }

    #[test]
    fn jobs_without_their_options_are_not_used() {
        let damaged = FIO.replace("\"4k\"", "\"4k\",,");
        assert!(matches!(documents(damaged.as_bytes()), Err(FioJsonError::Broken(_))));
    }
}
