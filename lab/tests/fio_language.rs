//! Real fio judges the language: files drawn from a grammar of the whole of it, and the list of options.
//!
//! A few hundred files; 10,000 with FIO_FILES=10000, as `scripts/test --all` sets it. Without fio 3.33 on the path the tests
//! are skipped with a line that says so.

use lab::fio::kind::ValueKind;
use lab::fio::options::{self, FioOption, Meaning};
use lab::interrupt::StopFlag;
use lab::lint::lint;
use lab::run;
use lab::scenario::Request;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The engines of which files are drawn.
const ENGINES: [&str; 8] = ["libaio", "io_uring", "sync", "psync", "vsync", "pvsync", "pvsync2", "posixaio"];

/// Files that one process of fio reads.
const FILES_OF_FIO: usize = 50;
/// Of the files that are refused here, fio judges each of so many.
const REFUSED_EACH: usize = 5;

/// What fio prints, if fio 3.33 is here.
fn fio(arguments: &[&str]) -> Option<String> {
    let output = Command::new("fio").args(arguments).stdin(Stdio::null()).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn has_fio() -> bool {
    let is_here = fio(&["--version"]).is_some_and(|version| version.trim() == "fio-3.33");
    if !is_here {
        println!("skipped: there is no fio 3.33 (Debian: apt-get install fio)");
    }
    is_here
}

/// Whether fio takes all of the files, read by one process: each has its own `[global]` there. A fio that crashes does not.
fn fio_takes(files: &[PathBuf]) -> bool {
    let mut command = Command::new("fio");
    command.arg("--parse-only").args(files).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let status = command.status();
    status.expect("fio starts").success()
}

/// Those of the files that fio refuses. A process of fio waits 65 ms for its clock, so that it reads many files.
fn fio_refuses(files: &[PathBuf]) -> Vec<PathBuf> {
    match files {
        _ if fio_takes(files) => Vec::new(),
        [_] => files.to_vec(),
        _ => {
            let (first, second) = files.split_at(files.len() / 2);
            [fio_refuses(first), fio_refuses(second)].concat()
        }
    }
}

/// One option with a value of its type, good or bad.
fn value(option: &'static FioOption) -> BoxedStrategy<String> {
    let name = prop_oneof![Just(option.name), Just(option.alias.unwrap_or(option.name))];
    let number = prop_oneof![
        12 => (0u64..200).prop_map(|number| number.to_string()),
        6 => "[1-9][0-9]{0,3}[kKmM]?b?",
        2 => "[1-9]{1,2}(kib|KiB|g|G|t|%|x|z|us|ms|s|m|h|sec)",
        1 => "0x[0-9a-f]{1,4}",
        1 => "-[1-9]{1,3}",
        1 => "[a-z ]{0,3}",
        1 => "[0-9]{1,22}",
    ];
    let list = prop::collection::vec(number.clone(), 1..4);
    let separated = (list, prop_oneof![4 => Just(","), 1 => Just(":"), 1 => Just("-")])
        .prop_map(|(numbers, separator)| numbers.join(separator));
    let word = |values: &[&'static str]| {
        let values: Vec<&'static str> = values.iter().copied().chain(["bogus"]).collect();
        (prop::sample::select(values), prop_oneof![12 => Just(""), 1 => Just(":8"), 1 => Just("x"), 1 => Just(":0.5")])
            .prop_map(|(word, end)| format!("{word}{end}"))
            .boxed()
    };
    let text = match &option.kind {
        ValueKind::Values(values) => word(values),
        ValueKind::Multi(values) => (word(values), word(values)).prop_map(|(a, b)| format!("{a},{b}")).boxed(),
        ValueKind::Numbers { .. } | ValueKind::Size => prop_oneof![3 => number, 1 => separated].boxed(),
        ValueKind::Range => (number.clone(), number).prop_map(|(low, high)| format!("{low}-{high}")).boxed(),
        ValueKind::Floats { .. } => {
            prop::collection::vec("[0-9]{1,3}(\\.[0-9])?|x", 1..4).prop_map(|numbers| numbers.join(":")).boxed()
        }
        ValueKind::Bool | ValueKind::Set => prop_oneof![6 => Just("1".to_owned()), 6 => Just("0".to_owned()),
            1 => Just("2".to_owned()), 1 => Just("yes".to_owned()), 1 => Just("1x".to_owned())]
        .boxed(),
        ValueKind::Text | ValueKind::Store | ValueKind::Deprecated(_) => text(option.name),
    };
    let separator = prop_oneof![40 => Just("="), 2 => Just(" ="), 1 => Just(" = ")];
    let (is_set, bare_most) = (option.kind == ValueKind::Set, 60u8);
    (name, separator, text, 0..bare_most)
        .prop_map(
            move |(name, separator, text, bare)| {
                if bare == 0 || (is_set && bare < 24) { name.to_owned() } else { format!("{name}{separator}{text}") }
            },
        )
        .boxed()
}

/// Texts with a grammar of their own.
fn text(name: &'static str) -> BoxedStrategy<String> {
    let of = |values: &'static [&'static str]| prop::sample::select(values).prop_map(str::to_owned).boxed();
    match name {
        "bssplit" | "cmdprio_bssplit" => {
            of(&["4k/50:8k/50", "4k/50:64k", "4k:8k,16k", "foo", "4k/90:8k/90:1k:2k", "8k"])
        }
        "ioengine" => of(&ENGINES),
        "filename" => of(&["/dev/nvme0n1", "/dev/nvme1n1:/dev/nvme2n1", "data", "/mnt/a\\:b", "/dev/sdb"]),
        "directory" | "opendir" => of(&["/tmp", "."]),
        "cpus_allowed" => of(&["0", "0-1", "0,1", "1"]),
        "buffer_pattern" | "verify_pattern" => {
            of(&["0xdeadbeef", "\"abc\"", "12", "abcd", "%o", "0xff%o\"x\"-2", "\"x"])
        }
        "replay_skip" => of(&["read", "write,trim"]),
        "ignore_error" => of(&["EIO", "ENOSPC:5"]),
        "numa_mem_policy" => of(&["default", "local"]),
        _ => prop_oneof![4 => Just("x1".to_owned()), 1 => Just(String::new()), 1 => Just("a b".to_owned())].boxed(),
    }
}

fn line() -> BoxedStrategy<String> {
    let known: Vec<&FioOption> = options::all().iter().filter(|option| option.meaning != Meaning::Foreign).collect();
    let common = ["rw", "bs", "iodepth", "direct", "numjobs", "size", "runtime", "time_based", "rate_iops", "bssplit"];
    let common: Vec<&FioOption> = common.iter().filter_map(|name| options::find(name)).collect();
    prop_oneof![
        6 => prop::sample::select(known).prop_flat_map(value),
        3 => prop::sample::select(common).prop_flat_map(value),
        1 => "[;#][ -~]{0,12}",
        1 => Just("iodepth=$ncpus*2".to_owned()),
        1 => Just("size=${FIO_LANGUAGE_SIZE}".to_owned()),
        1 => prop_oneof![2 => Just(String::new()), 1 => "[a-z_]{1,8}=[0-9]{1,3}"],
    ]
    .boxed()
}

/// A file: sections of lines, with the habits of people who write them.
fn file() -> BoxedStrategy<String> {
    let name = prop_oneof![8 => "[a-z][a-z0-9-]{0,6}", 1 => "[a-z]{1,3} [a-z]{1,3}", 1 => Just("Global".to_owned())];
    let few = |most| prop::collection::vec(line(), 0..most);
    let section = (name, prop::sample::select(&ENGINES[..]), few(5));
    let habits = (0u8..10, 0u8..8, prop_oneof![6 => Just("\n"), 1 => Just("\r\n")]);
    (few(3), prop::collection::vec(section, 1..4), habits)
        .prop_map(|(globals, sections, (has_global, engine, end))| {
            let mut text = String::new();
            if has_global > 2 {
                let engine = ENGINES[usize::from(engine) % ENGINES.len()];
                let _ = write!(text, "[global]{end}ioengine={engine}{end}{}{end}", globals.join(end));
            }
            for (name, engine, lines) in sections {
                let engine = if has_global > 5 { String::new() } else { format!("ioengine={engine}{end}") };
                let _ = write!(text, "[{name}]{end}filename=/dev/nvme0n1{end}{engine}{}{end}", lines.join(end));
            }
            text
        })
        .boxed()
}

/// Runs the file for a moment: the error of a run that fails.
fn runs(request: &Request) -> Result<(), String> {
    let plan = request.plan().map_err(|error| error.to_string())?;
    run::run_all(&plan, false, &StopFlag::default()).map(|_| ()).map_err(|error| error.to_string())
}

/// What was found out about some drawn files.
#[derive(Default)]
struct Tally {
    /// Files that run here.
    ran: usize,
    /// Files that do not, of which fio was asked, and those of them that it takes.
    asked: usize,
    asked_taken: usize,
    /// Why files that fio takes are refused here.
    reasons: BTreeMap<String, u32>,
    wrong: Vec<String>,
}

/// Lints and runs the files, then asks fio.
fn tally(texts: &[String], folder: &Path) -> Tally {
    let mut tally = Tally::default();
    let mut runs_here = Vec::new();
    for (number, text) in texts.iter().enumerate() {
        // fio replaces a variable that is not set by nothing, so it gets the file with the value.
        let judged = folder.join(format!("{number}.judged"));
        std::fs::write(&judged, text.replace("${FIO_LANGUAGE_SIZE}", "1m")).unwrap();
        let path = folder.join("j.fio");
        std::fs::write(&path, text).unwrap();
        let request = Request {
            deliveries: Some(vec!["remapped".into()]),
            seeds: Some(1),
            sets: ["ramp=1us", "duration=100us", "cpus=2"].map(String::from).to_vec(),
            defines: vec!["FIO_LANGUAGE_SIZE=1m".into()],
            ..Request::of(path.to_str().expect("a path in text"))
        };
        let ours = lint(&request);
        if ours.runs {
            tally.ran += 1;
            runs_here.push(judged);
            if let Err(error) = runs(&request) {
                tally.wrong.push(format!("does not run: {error}\n{text}"));
            }
        } else if number % REFUSED_EACH == 0 {
            tally.asked += 1;
            if fio_takes(&[judged]) {
                tally.asked_taken += 1;
                let refused = ours.findings.iter().find(|finding| finding.level == "refused");
                let why = refused.map_or(String::new(), |finding| format!("{}: {}", finding.option, finding.text));
                *tally.reasons.entry(why).or_default() += 1;
            }
        }
    }
    let refused: Vec<PathBuf> = runs_here.chunks(FILES_OF_FIO).flat_map(fio_refuses).collect();
    let text = |path: PathBuf| format!("fio refuses:\n{}", std::fs::read_to_string(path).unwrap());
    tally.wrong.extend(refused.into_iter().map(text));
    tally
}

#[test]
fn what_fio_refuses_is_refused_and_what_is_taken_runs() {
    if !has_fio() {
        return;
    }
    let files: usize = std::env::var("FIO_FILES").ok().and_then(|files| files.parse().ok()).unwrap_or(250);
    let mut runner = TestRunner::new(Config { rng_seed: RngSeed::Fixed(33), ..Config::default() });
    let file = file();
    let mut draw = || file.new_tree(&mut runner).expect("the grammar has files").current();
    let texts: Vec<String> = (0..files).map(|_| draw()).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let folder = tempfile::tempdir().unwrap();
        let mut own = Vec::new();
        // A few files at a time: one that takes long holds no others back.
        while let Some(texts) = texts.chunks(FILES_OF_FIO).nth(next.fetch_add(1, Ordering::Relaxed)) {
            own.push(tally(texts, folder.path()));
        }
        own
    };
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let tallies: Vec<Tally> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        all.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let sum = |of: fn(&Tally) -> usize| tallies.iter().map(of).sum::<usize>();
    let (ran, asked, taken) = (sum(|tally| tally.ran), sum(|tally| tally.asked), sum(|tally| tally.asked_taken));
    println!("{files} files: {ran} run; of {asked} others fio takes {taken}");
    tallies.iter().flat_map(|tally| &tally.reasons).for_each(|(why, count)| println!("{count} not: {why}"));
    let wrong: Vec<&String> = tallies.iter().flat_map(|tally| &tally.wrong).collect();
    let shown: Vec<&str> = wrong.iter().take(5).map(|text| text.as_str()).collect();
    assert!(wrong.is_empty(), "{} of {files}:\n{}", wrong.len(), shown.join("\n----\n"));
    // Of the files that fio takes, more than 70 % run.
    let others = taken * (files - ran) / asked.max(1);
    assert!(ran * 10 > files * 3 && others * 7 < ran * 3, "{ran} run, about {others} that fio takes do not");
}

#[test]
fn the_table_has_every_option_of_fio_with_its_values() {
    if !has_fio() {
        return;
    }
    let names = |text: &str| -> Vec<String> {
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        lines.map(|(name, _)| name.trim().to_owned()).filter(|name| !name.contains(' ')).collect()
    };
    let all = names(&fio(&["--cmdhelp=all"]).unwrap());
    assert!(all.len() > 200);
    for name in &all {
        let option = options::find(name).unwrap_or_else(|| panic!("{name} is not in the table"));
        let help = fio(&[&format!("--cmdhelp={name}")]).unwrap();
        let Some((_, values)) = help.split_once("valid values: ") else { continue };
        let values: Vec<&str> =
            values.lines().filter_map(|line| line.trim_start_matches([' ', ':']).split(' ').next()).collect();
        if let ValueKind::Values(known) | ValueKind::Multi(known) = &option.kind {
            let values: Vec<&str> = values.into_iter().filter(|value| !value.is_empty()).collect();
            assert_eq!(*known, values, "{name}");
        }
    }
    for engine in ENGINES {
        for name in names(&fio(&[&format!("--enghelp={engine}")]).unwrap()) {
            let option = options::find(&name).unwrap_or_else(|| panic!("{name} of {engine} is not in the table"));
            assert!(option.is_of(engine), "{name} of {engine}");
        }
    }
    let removed = ["percentage_sequential", "verifysort", "verifysort_nr", "rwmixcycle", "flow_watermark"];
    let of_profile = Meaning::NoEffect("only of a profile");
    let ours = options::all().iter().filter(|option| option.engines.is_empty() && option.meaning != of_profile);
    for name in ours.map(|option| option.name).filter(|name| !all.iter().any(|known| known == name)) {
        // The list leaves some out that fio knows by name.
        let is_known = fio(&[&format!("--cmdhelp={name}")]).unwrap().contains("type:");
        assert!(is_known || removed.contains(&name), "fio has no {name}");
    }
}
