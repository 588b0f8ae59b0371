//! `campanile rerun`: makes a result again from its manifest, and compares.

use super::run::{self, Form};
use super::{stop_flag, sweep};
use crate::cli::{self, Cli, Command, Failure, RerunArgs};
use crate::fio::replay::BYTES_MAX;
use crate::input::{InputError, Place, Problem, read_beginning};
use crate::inputs::{Given, Input, sha256};
use crate::manifest::{Manifest, SCHEMA};
use crate::report::trace;
use crate::sweep::Sweep;
use clap::Parser;
use serde_json::Value;
use std::path::Path;

/// The largest result: far above a trace with all its records.
const RESULT_BYTES_MAX: u64 = 256 << 20;

/// Most differences that are printed.
const SHOWN_MAX: usize = 8;

pub(super) fn rerun(args: &RerunArgs) -> Result<(), Failure> {
    let path = args.result.to_string_lossy().into_owned();
    let (bytes, manifest, form) = result(&path)?;
    let mut text = origin(&manifest);
    let line = std::iter::once("campanile").chain(manifest.arguments.iter().map(String::as_str));
    let place = Place::file(&path);
    let wrong = |why: String| InputError::new(&place, "manifest", Problem::Syntax(why));
    let command = Cli::try_parse_from(line)
        .map_err(|error| wrong(format!("its command line is refused: {}", first_line(&error.to_string()))))?
        .command;
    let (given, changed) = inputs(&manifest);
    text += &changed;
    let stop = stop_flag()?;
    match command {
        Command::Run(args) => {
            let again = run::again(&args, manifest, given, &form, &stop)?;
            finish(text, &[("result", &bytes, &again)])
        }
        Command::Sweep(args) => {
            let mut again = Sweep::read(&args.file, &manifest.arguments, given)?;
            again.manifest = manifest;
            let folder = sweep::again(again, &stop)?;
            let read = |folder: &Path, name: &str| {
                let file = folder.join(name);
                let place = Place::file(file.display().to_string());
                std::fs::read(&file)
                    .map_err(|error| InputError::new(&place, "", Problem::Io(format!("cannot be read: {error}"))))
            };
            let beside = Path::new(&path).parent().unwrap_or(Path::new("."));
            let mut results = Vec::new();
            for name in ["results.csv", "results.parquet", "page.html"] {
                // The table may have been copied without its page.
                if name == "page.html" && !beside.join(name).exists() {
                    continue;
                }
                results.push((name, read(beside, name)?, read(folder.path(), name)?));
            }
            let results: Vec<_> = results.iter().map(|(name, then, now)| (*name, &then[..], &now[..])).collect();
            finish(text, &results)
        }
        _ => {
            Err(Failure::Input(wrong(format!("{} is not run again; valid: a result of run or sweep", manifest.schema))))
        }
    }
}

/// Says which of the results differ, and fails if one does.
fn finish(mut text: String, results: &[(&str, &[u8], &[u8])]) -> Result<(), Failure> {
    let mut is_same = true;
    for (name, before, now) in results {
        if before == now {
            text += &format!("{name}: the same {} bytes\n", now.len());
        } else {
            is_same = false;
            text += &format!("{name}: DIFFERS\n{}", differences(before, now));
        }
    }
    cli::print(&text)?;
    if is_same { Ok(()) } else { Err(Failure::Run("the result differs".into())) }
}

/// The bytes of a result, its manifest, and its form.
fn result(path: &str) -> Result<(Vec<u8>, Manifest, Form), InputError> {
    let place = Place::file(path);
    let valid = "valid: the JSON, the trace or fio's JSON of campanile run, or manifest.json of a sweep";
    if std::path::Path::new(path).is_dir() {
        return Err(InputError::new(&place, "", Problem::Io(format!("is a folder, and no result; {valid}"))));
    }
    let io = |why| InputError::new(&place, "", Problem::Io(format!("cannot be read: {why}")));
    let bytes = match read_beginning(path, RESULT_BYTES_MAX).map_err(io)? {
        (bytes, false) => bytes,
        (_, true) => return Err(io(format!("it has more than {RESULT_BYTES_MAX} bytes"))),
    };
    let syntax = |why: String| InputError::new(&place, "", Problem::Syntax(why));
    let (manifest, form) = match trace::manifest(&bytes) {
        Some(text) => (serde_json::from_str(&text).unwrap_or_default(), Form::Trace),
        None => {
            let parsed = serde_json::from_slice(&bytes);
            let found = manifest_of(parsed.map_err(|error| syntax(format!("is no JSON ({error}); {valid}")))?);
            found.or_else(|| Some((beside(path)?, Form::Json))).ok_or_else(|| {
                syntax(format!(
                    "has no manifest: it is a result of version 0.1.0 before manifests, or no result; {valid}"
                ))
            })?
        }
    };
    if let Some(version) = manifest.get("schema_version").and_then(Value::as_u64)
        && !(1..=u64::from(SCHEMA)).contains(&version)
    {
        let which = if version == 0 { "no program wrote" } else { "is newer than this program" };
        let why = format!("has form {version}, which {which}; valid: 1 to {SCHEMA}");
        return Err(InputError::new(&place, "manifest.schema_version", Problem::Syntax(why)));
    }
    let read = Manifest::deserialize_from(&manifest);
    let manifest = read.map_err(|error| InputError::new(&place, "manifest", Problem::Syntax(error)))?;
    Ok((bytes, manifest, form))
}

/// The manifest of a list, which has no place for it: a file of its own beside it.
fn beside(path: &str) -> Option<Value> {
    let (bytes, _) = read_beginning(&format!("{path}.manifest.json"), BYTES_MAX).ok()?;
    serde_json::from_slice(&bytes).ok().filter(is_manifest)
}

/// Whether a JSON file is a manifest itself: a sweep's, or that of a list. A run's stands within its result.
fn is_manifest(value: &Value) -> bool {
    let schema = value.get("schema").and_then(Value::as_str);
    schema.is_some_and(|schema| schema.starts_with("campanile ") && schema != "campanile run")
        && value.get("manifest").is_none()
}

/// The manifest of a JSON file: a sweep's, a run's, or that of a run in fio's form.
fn manifest_of(mut value: Value) -> Option<(Value, Form)> {
    if is_manifest(&value) {
        return Some((value, Form::Json));
    }
    if let Some(manifest) = value.get_mut("manifest") {
        return Some((manifest.take(), Form::Json));
    }
    let origin = value.get_mut("campanile")?;
    let delivery = origin.get("delivery")?.as_str()?.to_owned();
    Some((origin.get_mut("manifest")?.take(), Form::FioJson(delivery)))
}

/// The program that made the result, if it is not this one.
fn origin(manifest: &Manifest) -> String {
    let name = |manifest: &Manifest| match &manifest.commit {
        Some(commit) => format!("{} ({commit})", manifest.version),
        None => manifest.version.clone(),
    };
    let (then, now) = (name(manifest), name(&Manifest::new(&[], &Default::default())));
    if then == now { String::new() } else { format!("version: {then} made it; this is {now}\n") }
}

/// The inputs as the manifest has them, and a line for each that is another now.
fn inputs(manifest: &Manifest) -> (Given, String) {
    let mut text = String::new();
    for input in manifest.inputs.iter().filter(|input| !input.built_in && input.path != "-") {
        let Input { path, sha256: then, .. } = input;
        let kept = if input.text.is_some() { "its content then is used" } else { "its content then is not kept" };
        match read_beginning(path, BYTES_MAX + 1).map(|(bytes, _)| bytes) {
            Ok(bytes) if sha256(&bytes) == *then => {}
            Ok(bytes) => text += &format!("input {path}: CHANGED, {then} then, {} now; {kept}\n", sha256(&bytes)),
            Err(why) => text += &format!("input {path}: is not there ({why}); {kept}\n"),
        }
    }
    (manifest.given(), text)
}

/// The first places where two results differ.
fn differences(before: &[u8], now: &[u8]) -> String {
    let (Ok(before), Ok(now)) = (serde_json::from_slice(before), serde_json::from_slice(now)) else {
        let at = before.iter().zip(now).take_while(|(a, b)| a == b).count();
        return format!("  from byte {at}\n");
    };
    let mut found = Vec::new();
    compare("", &before, &now, &mut found);
    let count = found.len();
    let mut text: String = found.into_iter().take(SHOWN_MAX).map(|line| format!("  {line}\n")).collect();
    if count > SHOWN_MAX {
        text += &format!("  and {} others\n", count - SHOWN_MAX);
    }
    if count == 0 { "  only in its white space\n".into() } else { text }
}

/// Notes each value that is not in both.
fn compare(path: &str, before: &Value, now: &Value, found: &mut Vec<String>) {
    match (before, now) {
        (Value::Object(before), Value::Object(now)) => {
            let keys: std::collections::BTreeSet<&String> = before.keys().chain(now.keys()).collect();
            for key in keys {
                let of = |map: &serde_json::Map<String, Value>| map.get(key).cloned().unwrap_or(Value::Null);
                compare(&format!("{path}.{key}"), &of(before), &of(now), found);
            }
        }
        (Value::Array(before), Value::Array(now)) if before.len() == now.len() => {
            for (index, (before, now)) in before.iter().zip(now).enumerate() {
                compare(&format!("{path}[{index}]"), before, now, found);
            }
        }
        _ if before == now => {}
        _ => {
            let short = |value: &Value| value.to_string().chars().take(60).collect::<String>();
            found.push(format!("{}: {} then, {} now", path.trim_start_matches('.'), short(before), short(now)));
        }
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_named_by_their_places() {
        let before = br#"{"a": [1, 2], "b": {"c": "x"}}"#;
        let now = br#"{"a": [1, 3], "b": {}}"#;
        assert_eq!(differences(before, now), "  a[1]: 2 then, 3 now\n  b.c: \"x\" then, null now\n");
        assert_eq!(differences(b"one", b"ono"), "  from byte 2\n");
    }
}
