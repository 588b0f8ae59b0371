//! `campanile import`.

use super::{output, stop_flag, table, takes_standard_output, write_table};
use crate::atomic_file::say;
use crate::calibrate::{CalibrateError, rounded};
use crate::cli::{self, Failure, ImportArgs};
use crate::input::{InputError, Place, Problem, read_beginning, read_file};
use crate::inputs::{self, Given};
use crate::interrupt::StopFlag;
use crate::manifest::Manifest;
use crate::platform::{EMBEDDED, Platform, is_path};
use crate::report::figure::{are, counted};
use crate::server::facts::{self, Fact};
use crate::server::fit::{self, ImportError, Imported};
use crate::server::gather::{Parts, Server};
use crate::setting::Setting;
use import::archive::{self, Limits};
use import::kind::Kind;
use serde_json::json;
use std::path::{Path, PathBuf};

pub(super) fn import(args: &ImportArgs, arguments: &[String]) -> Result<(), Failure> {
    let json = output("--json", args.json.as_deref())?;
    let server = Read::of(args, arguments)?;
    let stop = stop_flag()?;
    let count = server.server.measurements.len();
    if count > 0 {
        say(format_args!("import: {}; fitting", counted(count, "measurement")));
    }
    let (found, manifest) = server.fit(args, &stop)?;
    if !takes_standard_output(json.as_ref()) {
        cli::print_wide(&text(&found))?;
    }
    write_table(json, manifest, &plain(&found))?;
    if found.decision.interrupted { Err(Failure::Interrupted) } else { Ok(()) }
}

/// The JSON of an import. Writes the folder, and prints nothing.
///
/// # Errors
/// As [`import`].
pub(super) fn answer(args: &ImportArgs, arguments: &[String], stop: &StopFlag) -> Result<String, Failure> {
    let (found, manifest) = Read::of(args, arguments)?.fit(args, stop)?;
    if found.decision.interrupted { Err(Failure::Interrupted) } else { Ok(table(manifest, &plain(&found))) }
}

/// A server whose measurements have been read.
struct Read {
    base: Platform,
    server: Server,
    manifest: Manifest,
}

impl Read {
    fn of(args: &ImportArgs, arguments: &[String]) -> Result<Self, Failure> {
        let (inputs, read) = inputs::noted(Given::default(), || {
            refuse_nothing(args)?;
            Ok::<_, Failure>((base(&args.base)?, gather(args)?))
        });
        let (base, server) = inputs?;
        let manifest = Manifest::new(arguments, &read).with("base", base.name.as_str());
        Ok(Self { base, server, manifest })
    }

    fn fit(self, args: &ImportArgs, stop: &StopFlag) -> Result<(Imported, Manifest), Failure> {
        let found = fit::import(self.server, &self.base, &args.out, stop).map_err(|error| match error {
            ImportError::Input(error) | ImportError::Fit(CalibrateError::Input(error)) => Failure::Input(error),
            ImportError::Fit(CalibrateError::Stopped) => Failure::Interrupted,
            ImportError::Fit(error) => Failure::Run(error.into()),
        })?;
        Ok((found, self.manifest))
    }
}

/// Refuses a command line without anything to import.
fn refuse_nothing(args: &ImportArgs) -> Result<(), InputError> {
    if args.archive.is_none() && args.fio_json.is_empty() {
        let why = "nothing to import; valid: an ARCHIVE, or --fio-json FILE".to_owned();
        return Err(InputError::new(&Place::option("import"), "", Problem::Syntax(why)));
    }
    Ok(())
}

/// The platform of `--base`. Of a file that is none, what it is, if it is something that another option takes.
fn base(name: &str) -> Result<Platform, InputError> {
    let setting = Setting::new(Place::option("--base"), "", name);
    let is_carried = EMBEDDED.iter().any(|(known, ..)| *known == name);
    if !is_carried && !is_path(name) && !Path::new(name).is_file() {
        return Err(setting.wrong("is no platform", bases()));
    }
    let platform = Platform::load(&setting).map_err(|error| {
        // The sections of a platform file with an error in it look like those of a job file.
        let bytes = if name.ends_with(".toml") { None } else { read_file(name).ok() };
        match bytes.and_then(|bytes| Kind::of(&bytes)) {
            Some(kind) => setting.wrong(format!("is {kind}{}", taken_by(kind)), "a platform's name or file"),
            None => error,
        }
    })?;
    match platform.drives.first() {
        Some(_) => Ok(platform),
        None => Err(setting.wrong("has no drive, whose constants an import needs", bases())),
    }
}

/// The platforms that can be a base: those with a drive.
fn bases() -> String {
    let has_drive = |(name, file, text): &(&str, &str, &str)| {
        Platform::read(name, file, text).is_ok_and(|platform| !platform.drives.is_empty())
    };
    let names: Vec<&str> = EMBEDDED.iter().filter(|one| has_drive(one)).map(|(name, ..)| *name).collect();
    format!("{}, or the path of a platform's file with a drive (./my.toml)", names.join(", "))
}

/// The server of the arguments.
fn gather(args: &ImportArgs) -> Result<Server, Failure> {
    let server = read_server(args)?;
    match &args.host {
        Some(host) if !server.has_host() => {
            let valid = "a host that fio's output names, or a folder of the archive";
            let why = "is the name of neither a host nor a folder here";
            Err(InputError::value(&Place::option("--host"), "", host, why, valid).into())
        }
        _ => Ok(server),
    }
}

/// The server of an archive, or of single files.
fn read_server(args: &ImportArgs) -> Result<Server, Failure> {
    let mut server = Server::on(args.host.as_deref());
    if let Some(path) = &args.archive {
        note_archive(path);
        let contents = archive::read(path, &Limits::SERVER).map_err(|error| {
            let kind = read_file(&path.to_string_lossy()).ok().and_then(|bytes| Kind::of(&bytes));
            let why = match kind.and_then(Kind::option).zip(kind) {
                Some((option, kind)) => format!("{error}, but {kind}, which {option} takes"),
                None => error.to_string(),
            };
            let valid = "an archive of scripts/measure-server or your own (.tar, .tar.gz, .tar.xz, .tar.zst, .zip), or its folder";
            InputError::value(&Place::option("import"), "", path.display(), why, valid)
        })?;
        return Ok(server.with_archive(&contents));
    }
    let job = args.job.as_deref().map(|path| read(Kind::Job, path)).transpose()?;
    let runs = args.fio_json.len();
    let (interrupts, stat) = (pairs(Kind::Interrupts, &args.interrupts, runs)?, pairs(Kind::Stat, &args.stat, runs)?);
    if let Some(lscpu) = &args.lscpu {
        server.about.insert("lscpu".into(), read(Kind::Lscpu, lscpu)?);
    }
    let cpus = facts::cpus(&facts::facts(&server.about));
    let mut known: Vec<(&Path, Vec<u8>)> = Vec::new();
    for (at, path) in args.fio_json.iter().enumerate() {
        let fio = read(Kind::Fio, path)?;
        // A measurement that is given twice would weigh twice.
        if let Some((same, _)) = known.iter().find(|(_, other)| *other == fio) {
            let note = format!("{} has the content of {}, and is left out", path.display(), same.display());
            server.notes.push(note);
            continue;
        }
        let name = path.file_stem().map_or("job".into(), |name| name.to_string_lossy().into_owned());
        let parts = Parts {
            fio: &fio,
            job: job.as_deref(),
            interrupts: pair_of(&interrupts, at),
            stat: pair_of(&stat, at),
            uptime: None,
            is_enclosed: [&interrupts, &stat].iter().all(|pairs| pairs.is_empty() || pairs.len() == runs),
            links: None,
            cpus,
        };
        server.add(&name, &parts);
        known.push((path, fio));
    }
    Ok(server)
}

/// Readings before and after a run.
type Pair = [Vec<u8>; 2];

/// The readings of an option: none, a pair, or one for each of fio's runs.
fn pairs(kind: Kind, paths: &[PathBuf], runs: usize) -> Result<Vec<Pair>, InputError> {
    let pairs: Vec<&[PathBuf]> = paths.chunks_exact(2).collect();
    if pairs.len() > 1 && pairs.len() != runs {
        let option = kind.option().unwrap_or("import");
        let why = format!(
            "stands {} times beside {runs} of --fio-json; valid: once, or as often, the n-th pair for the n-th of fio's outputs",
            pairs.len()
        );
        return Err(InputError::new(&Place::option(option), "", Problem::Syntax(why)));
    }
    let read = |pair: &[PathBuf]| Ok([read(kind, &pair[0])?, read(kind, &pair[1])?]);
    pairs.into_iter().map(read).collect()
}

/// The pair of run `at`: its own, or the only one.
fn pair_of(pairs: &[Pair], at: usize) -> Option<[&[u8]; 2]> {
    let pair = if pairs.len() == 1 { pairs.first() } else { pairs.get(at) };
    pair.map(|[before, after]| [before.as_slice(), after.as_slice()])
}

/// The file of an option that takes this kind.
fn read(kind: Kind, path: &Path) -> Result<Vec<u8>, InputError> {
    let place = Place::option(kind.option().unwrap_or("import"));
    let wrong = |why, valid: &str| InputError::value(&place, "", path.display(), why, valid);
    let other = |other: Kind| wrong(format!("is {other}{}", taken_by(other)), &kind.to_string());
    let most = Limits::SERVER.file_bytes;
    let bytes = match read_beginning(&path.to_string_lossy(), most) {
        Err(error) => return Err(wrong(format!("cannot be read ({error})"), "a file")),
        Ok((_, true)) => return Err(wrong(format!("has more than {} MiB", most >> 20), "a shorter file")),
        Ok((bytes, false)) if Kind::Archive.is(&bytes) => match archive::only_file(&bytes, &Limits::SERVER) {
            Some(file) => file,
            // Within a plain archive a reader would find some of the texts, and would miss what belongs to them.
            None => return Err(other(Kind::Archive)),
        },
        Ok((bytes, false)) => bytes,
    };
    let found = if kind.is(&bytes) { None } else { Kind::of(&bytes) };
    match found {
        // What is nothing that is known here is left to its reader, which says what it lacks.
        None => Ok(bytes),
        Some(found) => Err(other(found)),
    }
}

/// How a file of this kind is given, as the rest of a sentence.
fn taken_by(kind: Kind) -> String {
    match (kind, kind.option()) {
        (Kind::Archive, _) => ", which stands without an option".to_owned(),
        (_, Some(option)) => format!(", which {option} takes"),
        (_, None) => String::new(),
    }
}

/// Most files of a folder whose hashes are noted; an archive of scripts/measure-server has some hundred.
const NOTED_MAX: usize = 4096;

/// Notes the files of an archive's folder, or the archive itself, by their hashes: they say too much of a server to be
/// repeated. What cannot be read is left to the reader of the archive.
fn note_archive(path: &Path) {
    let (mut pending, mut count, is_whole) = (vec![path.to_owned()], 0, path.is_file());
    while let Some(path) = pending.pop() {
        if count == NOTED_MAX {
            return;
        }
        count += 1;
        let is_folder = std::fs::symlink_metadata(&path).is_ok_and(|about| about.is_dir());
        let entries = is_folder.then(|| std::fs::read_dir(&path).ok()).flatten();
        match entries {
            Some(entries) => pending.extend(entries.flatten().map(|entry| entry.path())),
            None if is_whole => inputs::note_hash(&path),
            None => inputs::note_hash_within(&path),
        }
    }
}

fn text(found: &Imported) -> String {
    let Imported { name, folder, decision, rows, base, .. } = found;
    let mut text = format!("{name}: yours\n\nFitted to what was measured\n");
    for decided in &decision.decided {
        let rows: Vec<&str> = decided.rows.iter().take(2).map(|(id, _)| id.as_str()).collect();
        let (value, percent) = (decided.unit.format(decided.value), decided.uncertainty * 100.0);
        let range = range(found, &decided.key).map(|range| format!("{range}; ")).unwrap_or_default();
        text += &format!("  {:28} {value:>14}  ±{percent:<4.0} %  {range}{}\n", decided.key, rows.join(", "));
    }
    text += "\nStated by the kernel\n";
    let line = |Fact { key, value, reason, .. }: &Fact| format!("  {key:28} {value:>14}  {reason}\n");
    text.extend(found.facts.iter().filter(|fact| fact.is_stated).map(line));
    let mut named = found.facts.iter().filter(|fact| !fact.is_stated).map(line).peekable();
    if named.peek().is_some() {
        text += "\nNamed by a job\n";
        text.extend(named);
    }
    text += &format!("\nNot decided, and so borrowed from {base}; what would decide it\n");
    for key in &decision.undecided {
        let by = Imported::decided_by(key).unwrap_or("nothing that is measured here");
        let kept = if decision.kept.iter().any(|(kept, _)| kept == key) {
            "not borrowed: the measurements contradict it; "
        } else {
            ""
        };
        let range = range(found, key).map(|range| format!("{range} fits; ")).unwrap_or_default();
        text += &format!("  {key:28} {kept}{range}{by}\n");
    }
    text += &format!("\n{:44} {:>14} {:>9}\n", "Measured", "", "here");
    for (row, error) in rows.iter().zip(&decision.errors) {
        let value = row.published.unwrap_or(f64::NAN);
        text += &format!("  {:42} {value:>14.1} {:>+7.1} %  {}\n", row.id, error * 100.0, row.unit);
    }
    text += &missed(found);
    if !found.notes.is_empty() {
        text += "\nNoted\n";
        text.extend(found.notes.iter().map(|note| format!("  {note}\n")));
    }
    let folder = folder.display();
    text + &format!(
        "\nWritten: {folder}/{name}.toml (the platform), {folder}/rows.csv, a scenario for each measurement.\nNext: campanile run my-job.fio --platform {}\n",
        pasted(&format!("{folder}/{name}.toml"))
    )
}

/// A path as a shell's command line has it.
fn pasted(path: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+=:@%,".contains(c);
    if path.chars().all(is_plain) { path.to_owned() } else { format!("'{}'", path.replace('\'', r"'\''")) }
}

/// The rows that the platform misses, each with what may be the reason.
fn missed(found: &Imported) -> String {
    if found.misses.is_empty() {
        return String::new();
    }
    let noise = fit::NOISE * 100.0;
    let mut text = format!(
        "\nDOES NOT FIT: {} of {} {} off by more than the {noise:.0} % of noise; do not rely on figures of this platform\n",
        found.misses.len(),
        counted(found.rows.len(), "row"),
        are(found.misses.len())
    );
    for miss in &found.misses {
        text += &format!("  {:42} {:>+7.1} %  {}\n", miss.row, miss.error * 100.0, miss.reasons.join("; "));
    }
    text
}

/// How far the measurements leave a constant open: `52.1 us to 55.0 us`.
fn range(found: &Imported, key: &str) -> Option<String> {
    let range = found.ranges.iter().find(|range| range.key == key)?;
    let text = |value: f64| range.unit.format(rounded(value));
    Some(match range.ends {
        [Some(low), Some(high)] => format!("{} to {}", text(low), text(high)),
        [Some(low), None] => format!("{} or more", text(low)),
        [None, Some(high)] => format!("{} or less", text(high)),
        [None, None] => return None,
    })
}

fn plain(found: &Imported) -> serde_json::Value {
    let decision = &found.decision;
    let fact = |fact: &Fact| json!({ "key": fact.key, "value": fact.value, "reason": fact.reason });
    json!({
        "name": found.name,
        "base": found.base,
        "decided": decision.decided.iter().map(|decided| json!({
            "key": decided.key, "value": decided.unit.format(decided.value), "uncertainty": decided.uncertainty,
            "rows": decided.rows, "range": range(found, &decided.key),
        })).collect::<Vec<_>>(),
        "stated": found.facts.iter().filter(|fact| fact.is_stated).map(fact).collect::<Vec<_>>(),
        "named_by_a_job": found.facts.iter().filter(|fact| !fact.is_stated).map(fact).collect::<Vec<_>>(),
        "undecided": decision.undecided.iter().map(|key| json!({
            "key": key, "range": range(found, key), "decided_by": Imported::decided_by(key), "kept": decision.kept.iter().any(|(kept, _)| kept == key),
        })).collect::<Vec<_>>(),
        "rows": found.rows.iter().zip(&decision.errors).map(|(row, error)| json!({
            "id": row.id, "measured": row.published, "unit": row.unit, "error": error,
        })).collect::<Vec<_>>(),
        "misses": found.misses.iter().map(|miss| json!({
            "id": miss.row, "error": miss.error, "reasons": miss.reasons,
        })).collect::<Vec<_>>(),
        "notes": found.notes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    const FIO: &str = r#"{"jobs": [{"jobname": "a", "read": {"iops": 9}}]}"#;

    /// Why a command line is refused, in which `FOLDER` is a folder with some files.
    fn refused(line: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let header = |name: &str| {
            let mut header = [0; 512];
            header[..name.len()].copy_from_slice(name.as_bytes());
            header[124..135].copy_from_slice(format!("{:011o}", FIO.len()).as_bytes());
            header[257..263].copy_from_slice(b"ustar ");
            header[148..156].fill(b' ');
            let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
            header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
            header
        };
        let content = [FIO.as_bytes(), &vec![0; 512 - FIO.len()]].concat();
        let tar = [&header("a.json")[..], &content, &header("b.json"), &content, &[0; 1024]].concat();
        for (name, bytes) in [("f.json", FIO.as_bytes()), ("a.tar", &tar), ("p.toml", b"[fabric]\nx y\n")] {
            std::fs::write(folder.path().join(name), bytes).unwrap();
        }
        let line = line.replace("FOLDER", folder.path().to_str().unwrap());
        let command = Cli::try_parse_from(format!("campanile {line}").trim().split(' ')).unwrap().command;
        let Command::Import(args) = command else { panic!("an import") };
        let refused = Read::of(&args, &[]).err().expect("refused").to_string();
        refused.replace(folder.path().to_str().unwrap(), "FOLDER")
    }

    #[test]
    fn a_command_line_without_anything_to_import_is_refused() {
        for line in ["import", "import --host a"] {
            assert_eq!(refused(line), "import: nothing to import; valid: an ARCHIVE, or --fio-json FILE");
        }
        let lone = Cli::try_parse_from(["campanile", "import", "--interrupts", "b", "a"]).unwrap_err().to_string();
        assert!(lone.contains("--fio-json <FILE>") && !lone.contains("  <ARCHIVE>"), "{lone}");
    }

    #[test]
    fn an_archive_behind_an_option_is_refused() {
        for (line, valid) in [
            ("--fio-json FOLDER/a.tar", "what fio printed"),
            ("--fio-json FOLDER/f.json --job FOLDER/a.tar", "a job file of fio's"),
            ("--fio-json FOLDER/f.json --interrupts FOLDER/a.tar FOLDER/a.tar", "/proc/interrupts"),
            ("--fio-json FOLDER/f.json --stat FOLDER/a.tar FOLDER/a.tar", "/proc/stat"),
            ("--fio-json FOLDER/f.json --lscpu FOLDER/a.tar", "what lscpu prints"),
        ] {
            let said = refused(&format!("import {line}"));
            let expected = format!(": `FOLDER/a.tar` is an archive, which stands without an option; valid: {valid}");
            assert!(said.ends_with(&expected), "{said}");
        }
    }

    #[test]
    fn pairs_of_readings_are_one_or_one_for_each_run() {
        let one = "import --fio-json FOLDER/f.json --stat FOLDER/s FOLDER/s --stat FOLDER/s FOLDER/s";
        let expected = "--stat: stands 2 times beside 1 of --fio-json; valid: once, or as often, the n-th pair for the n-th of fio's outputs";
        assert_eq!(refused(one), expected);
        let pairs = [["a", "b"], ["c", "d"]].map(|pair| pair.map(|text| text.as_bytes().to_vec()));
        assert_eq!(pair_of(&pairs, 1), Some([&b"c"[..], b"d"]));
        assert_eq!(pair_of(&pairs[..1], 1), Some([&b"a"[..], b"b"]));
        assert_eq!(pair_of(&[], 0), None);
    }

    #[test]
    fn an_output_that_is_given_twice_is_one_measurement() {
        let folder = tempfile::tempdir().unwrap();
        let fio = r#"{"jobs": [{"jobname": "a", "job options": {"ioengine": "libaio", "direct": "1", "rw": "randread", "bs": "4k",
            "iodepth": "8", "filename": "/dev/nvme0n1"}, "read": {"iops": 9000, "total_ios": 90000, "runtime": 10000}}]}"#;
        let paths = ["a.json", "b.json"].map(|name| folder.path().join(name));
        paths.iter().for_each(|path| std::fs::write(path, fio).unwrap());
        let [a, b] = paths.each_ref().map(|path| path.to_str().unwrap());
        for second in [a, b] {
            let line = ["campanile", "import", "--fio-json", a, "--fio-json", second];
            let Command::Import(args) = Cli::try_parse_from(line).unwrap().command else { panic!("an import") };
            let server = read_server(&args).unwrap();
            assert_eq!(server.measurements.len(), 1, "{:?}", server.notes);
            assert_eq!(server.notes[..1], [format!("{second} has the content of {a}, and is left out")]);
        }
    }

    #[test]
    fn a_base_needs_a_drive() {
        let valid = "valid: emr, spr, optane, azure, dsa-loops, dsa-headline, or the path of a platform's file with a drive (./my.toml)";
        for (name, why) in [("nosuch", "is no platform"), ("altra", "has no drive, whose constants an import needs")] {
            let said = refused(&format!("import --fio-json FOLDER/f.json --base {name}"));
            assert_eq!(said, format!("--base: `{name}` {why}; {valid}"));
        }
    }

    #[test]
    fn a_path_is_pasted_as_one_word() {
        assert_eq!(pasted("a-b/é.toml"), "a-b/é.toml");
        assert_eq!(pasted("a b/it's.toml"), r"'a b/it'\''s.toml'");
    }

    #[test]
    fn a_base_that_is_no_platform_is_named_with_what_it_is() {
        let said = refused("import --fio-json FOLDER/f.json --base FOLDER/f.json");
        let expected =
            "--base: `FOLDER/f.json` is what fio printed, which --fio-json takes; valid: a platform's name or file";
        assert_eq!(said, expected);
        let said = refused("import --fio-json FOLDER/f.json --base FOLDER/p.toml");
        assert!(said.starts_with("FOLDER/p.toml:2: "), "{said}");
    }
}
