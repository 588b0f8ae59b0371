//! The short run: every committed input of every target, then a few seconds of random ones. An input that once crashed
//! a target stays in the corpus.

use fuzz::{TARGETS, Target};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time for the random inputs of one target.
const SPAN: Duration = Duration::from_millis(700);
/// An input that runs at so many looks of the watchdog hangs. Looks and not a clock: a machine may stand still for minutes.
const LOOKS_MAX: u32 = 20;
/// Time between two looks.
const LOOK_SPAN: Duration = Duration::from_secs(1);
/// The largest corpus of a target, in files and bytes.
const FILES_MAX: usize = 70;
const BYTES_MAX: usize = 64 << 10;

fn folder(target: &Target) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name)
}

/// The corpus of a target by file name, in order.
fn corpus(target: &Target) -> BTreeMap<String, Vec<u8>> {
    let folder = folder(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    entries
        .map(|entry| {
            let entry = entry.expect("an entry");
            (entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path()).expect("a file"))
        })
        .collect()
}

/// The input that runs now, and how often the watchdog has seen it.
static RUNNING: Mutex<Option<(String, u32)>> = Mutex::new(None);

fn set_running(what: Option<String>) {
    *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) = what.map(|what| (what, 0));
}

/// Ends the process when an input hangs, and names the input.
fn watch() {
    std::thread::spawn(|| {
        loop {
            std::thread::sleep(LOOK_SPAN);
            let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((what, looks)) = &mut *running {
                *looks += 1;
                if *looks > LOOKS_MAX {
                    eprintln!("{what} has not ended after {:?}", LOOK_SPAN * LOOKS_MAX);
                    std::process::exit(1);
                }
            }
        }
    });
}

/// Runs one input. A failing input is written to a file, so that it can be replayed and kept.
fn run(target: &Target, what: &str, input: &[u8]) -> Result<(), String> {
    set_running(Some(format!("{} on {what}", target.name)));
    let ended = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    set_running(None);
    ended.map_err(|_| {
        let file = std::env::temp_dir().join(format!("campanile-fuzz-{}", target.name));
        let kept = fs::write(&file, input).map(|()| file.display().to_string());
        format!("{} fails on {what}; the input is in {}", target.name, kept.unwrap_or_else(|error| error.to_string()))
    })
}

/// An input made from others: some bytes changed, taken out, put in or repeated, or two of them joined.
fn mutated(random: &mut Xoshiro256PlusPlus, corpus: &[&Vec<u8>], bytes_max: usize) -> Vec<u8> {
    let mut below = |end: usize| (random.next_u64() % end.max(1) as u64) as usize;
    let mut input = corpus[below(corpus.len())].clone();
    for _ in 0..=below(6) {
        let at = below(input.len() + 1);
        match below(6) {
            0 if at < input.len() => input[at] = below(256) as u8,
            1 if at < input.len() => input[at] ^= 1 << below(8),
            2 if at < input.len() => _ = input.drain(at..(at + 1 + below(8)).min(input.len())),
            3 => {
                let other = corpus[below(corpus.len())];
                let from = below(other.len() + 1);
                input.truncate(at);
                input.extend(&other[from..]);
            }
            4 => {
                let end = (at + below(32)).min(input.len());
                let part = input[at..end].to_vec();
                input.splice(at..at, part);
            }
            _ => input.insert(at, below(256) as u8),
        }
    }
    input.truncate(bytes_max);
    input
}

#[test]
fn every_target_takes_its_corpus_and_random_inputs() {
    let seed = std::env::var("FUZZ_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    println!("seed {seed} (another with FUZZ_SEED), {} targets, {SPAN:?} of random inputs each", TARGETS.len());
    watch();
    let mut failures = Vec::new();
    for target in TARGETS {
        let corpus = corpus(target);
        let bytes: usize = corpus.values().map(Vec::len).sum();
        assert!(corpus.len() <= FILES_MAX && bytes <= BYTES_MAX, "the corpus of {} is not small", target.name);
        failures.extend(corpus.iter().filter_map(|(name, input)| run(target, name, input).err()));
        let start = Instant::now();
        let empty = Vec::new();
        let inputs: Vec<_> = corpus.values().chain([&empty]).collect();
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut count = 0;
        while start.elapsed() < SPAN {
            let input = mutated(&mut random, &inputs, target.input_bytes_max);
            count += 1;
            if let Err(failure) = run(target, &format!("random input {count}"), &input) {
                failures.push(failure);
                break;
            }
        }
        println!("{:24} {:3} files, {count} random inputs", target.name, corpus.len());
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn every_target_has_a_binary_and_a_corpus_and_nothing_else_has() {
    let names: Vec<_> = TARGETS.iter().map(|target| target.name.to_owned()).collect();
    let listed = |folder: &str| {
        let entries = fs::read_dir(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(folder)).expect("a folder");
        let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().trim_end_matches(".rs").to_owned();
        entries.map(|entry| name(entry.expect("an entry"))).collect::<Vec<_>>()
    };
    for folder in ["corpus", "fuzz_targets"] {
        let mut found = listed(folder);
        let mut wanted = names.clone();
        found.sort();
        wanted.sort();
        assert_eq!(found, wanted, "{folder}");
    }
}
