//! `cargo xtask mutants`: applies each known defect to a copy of the tree, builds it, and looks for a check that finds
//! it.
//!
//! `campanile check` runs first, with a new random seed in each run. If it finds nothing, the tests that the patch
//! names run. Copy and builds lie in `target/mutants/` and are kept.

mod build;
mod copy;
mod hunter;
mod judged;
mod kill;
mod patch;
mod random;
pub(crate) mod table;

use hunter::Hunter;
use patch::Mutant;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

pub(crate) const USAGE: &str =
    "       cargo xtask mutants [OPTIONS]   put each known defect in, and see that it is found
           --verify       only that every patch of mutants/ applies
           --sample N     so many, drawn by the seed
           --only NAME    those whose names hold this
           --seed S       of the draws; without it, from the clock
           --jobs N       so many side by side (1)
           --json FILE    what was found: [{mutant, killed_by, seconds}]
           --minutes M    how long check may look for a defect (1)
           --without check   ask the tests alone
           --random N     instead of them N changes that chance chooses, by the seed, out of all that cargo-mutants can make;
                          one build for all, --json FILE is where it goes on
           --alone        with --random: a build for each change
           --judge        put those of the notification path into our image, and ask the QEMU of judges/
           --table FILE…  write the table of docs/reliability.md from such files";

/// The least share of all mutants that must be killed, and by check alone, in per cent.
const KILLED_MIN: f64 = 95.0;
const BY_CHECK_MIN: f64 = 80.0;

/// The killer of a mutant.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Kill {
    /// `campanile check`, by this checker or exit code.
    Check(String),
    Test(String),
    None,
}

impl fmt::Display for Kill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Check(by) => write!(f, "check: {by}"),
            Self::Test(by) => write!(f, "test: {by}"),
            Self::None => f.write_str("none"),
        }
    }
}

impl Kill {
    fn read(text: &str) -> Self {
        match text.split_once(": ") {
            Some(("check", by)) => Self::Check(by.to_owned()),
            Some(("test", by)) => Self::Test(by.to_owned()),
            _ => Self::None,
        }
    }

    fn is_one(&self) -> bool {
        *self != Self::None
    }

    fn is_by_check(&self) -> bool {
        matches!(self, Self::Check(_))
    }
}

/// The result for a mutant.
#[derive(Clone, Debug)]
struct Killed {
    mutant: String,
    kill: Kill,
    /// Run time, without building.
    seconds: f64,
}

#[derive(Debug)]
struct Options {
    verify: bool,
    sample: Option<usize>,
    random: Option<usize>,
    only: Option<String>,
    seed: Option<u64>,
    jobs: usize,
    json: Option<PathBuf>,
    /// How long check may look for a defect; `campanile check` reads the number.
    minutes: String,
    without_check: bool,
    /// No build for several changes.
    alone: bool,
    judge: bool,
    table: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            verify: false,
            sample: None,
            random: None,
            only: None,
            seed: None,
            jobs: 1,
            json: None,
            minutes: "1".into(),
            without_check: false,
            alone: false,
            judge: false,
            table: Vec::new(),
        }
    }
}

fn parse(arguments: &[&str]) -> Result<Options, String> {
    let mut options = Options::default();
    let mut rest = arguments.iter();
    while let Some(&option) = rest.next() {
        let mut value = || rest.next().copied().ok_or(format!("{option} takes a value"));
        let number = |value: &str| value.parse().map_err(|_| format!("{option} takes a number, not {value:?}"));
        match option {
            "--verify" => options.verify = true,
            "--sample" => options.sample = Some(number(value()?)? as usize),
            "--random" => options.random = Some(number(value()?)? as usize),
            "--only" => options.only = Some(value()?.to_owned()),
            "--seed" => options.seed = Some(number(value()?)?),
            "--jobs" => options.jobs = number(value()?)?.max(1) as usize,
            "--json" => options.json = Some(value()?.into()),
            "--minutes" => options.minutes = value()?.to_owned(),
            "--without" if value()? == "check" => options.without_check = true,
            "--alone" => options.alone = true,
            "--judge" => options.judge = true,
            "--table" => options.table = rest.by_ref().map(|file| (*file).to_owned()).collect(),
            _ => return Err(format!("{option} is no option of `cargo xtask mutants`")),
        }
    }
    Ok(options)
}

/// Runs the request of `arguments`, and returns the failures.
pub(crate) fn run(root: &Path, arguments: &[&str]) -> Vec<String> {
    match parse(arguments).and_then(|options| act(root, &options)) {
        Ok(findings) => findings,
        Err(error) => vec![error],
    }
}

fn act(root: &Path, options: &Options) -> Result<Vec<String>, String> {
    if !options.table.is_empty() {
        return table::write(root, &options.table).map(|()| Vec::new());
    }
    let mutants = patch::load(root)?;
    let stale: Vec<String> = mutants.iter().filter_map(|mutant| mutant.check(root).err()).collect();
    if options.verify || !stale.is_empty() {
        println!("{} of {} patches apply", mutants.len() - stale.len(), mutants.len());
        return Ok(stale);
    }
    let clock = || std::time::UNIX_EPOCH.elapsed().map_or(0, |now| now.as_nanos() as u64);
    let seed = options.seed.unwrap_or_else(clock);
    println!("mutants: --seed {seed}, {options:?}");
    if let Some(count) = options.random {
        return random::run(root, count, seed, options);
    }
    let chosen = choose(mutants, options, seed);
    if chosen.is_empty() {
        return Err("no mutant of that name".into());
    }
    if options.judge {
        return judged::run(root, &chosen, options);
    }
    let (killed, mut findings) = hunt(root, &chosen, options, seed)?;
    if options.sample.is_some() {
        // A defect of the tree itself is for the full run and for check's own run to report; it killed no mutant here.
        findings.drain(..).for_each(|finding| println!("{finding}"));
    }
    findings.extend(judge(root, &killed, options));
    Ok(findings)
}

/// The mutants that `arguments` name.
fn choose(mut mutants: Vec<Mutant>, options: &Options, seed: u64) -> Vec<Mutant> {
    if let Some(only) = &options.only {
        mutants.retain(|mutant| mutant.name.contains(only.as_str()));
    }
    if let Some(sample) = options.sample {
        mutants.sort_by_key(|mutant| mix(seed, &mutant.name));
        mutants.truncate(sample);
    }
    mutants
}

/// A number drawn from `seed` for `name` (splitmix64 behind FNV-1a).
fn mix(seed: u64, name: &str) -> u64 {
    let fnv = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    let mut z = name.bytes().fold(0xcbf2_9ce4_8422_2325, fnv) ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Runs the mutants, in as many copies as there are jobs. Also returns check's findings in the unchanged tree.
fn hunt(root: &Path, mutants: &[Mutant], options: &Options, seed: u64) -> Result<(Vec<Killed>, Vec<String>), String> {
    let jobs = options.jobs.min(mutants.len());
    let queue = Mutex::new(mutants.iter().enumerate());
    let (results, troubles) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let work = |job| -> Result<(), String> {
        let mut hunter = Hunter::new(root, job, seed, options)?;
        loop {
            let Some((number, mutant)) = queue.lock().expect("a job died").next() else {
                troubles.lock().expect("a job died").append(&mut hunter.troubles);
                return Ok(());
            };
            let killed = hunter.kill(mutant)?;
            let (count, Killed { kill, seconds, .. }) = (mutants.len(), &killed);
            println!("[{:>2}/{count}] {:<36} {seconds:5.1} s  {kill}", number + 1, mutant.name);
            let mut results = results.lock().expect("a job died");
            results.push((number, killed));
            if let Some(file) = &options.json {
                write_json(file, &results)?;
            }
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|job| scope.spawn(move || work(job))).collect();
        workers.into_iter().try_for_each(|worker| worker.join().unwrap_or(Err("a job died".into())))
    })?;
    let mut results = results.into_inner().expect("no job is left");
    results.sort_by_key(|&(number, _)| number);
    let killed = results.into_iter().map(|(_, killed)| killed).collect();
    Ok((killed, troubles.into_inner().expect("no job is left")))
}

/// Written after each mutant, so that an interrupted long run keeps its results.
fn write_json(file: &Path, results: &[(usize, Killed)]) -> Result<(), String> {
    let mut rows: Vec<_> = results.iter().collect();
    rows.sort_by_key(|(number, _)| *number);
    let text = table::to_json(rows.into_iter().map(|(_, killed)| killed));
    write_text(file, &text)
}

fn write_text(file: &Path, text: &str) -> Result<(), String> {
    std::fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))
}

/// The last lines of the output, and the failures.
fn judge(root: &Path, killed: &[Killed], options: &Options) -> Vec<String> {
    let share =
        |is: fn(&Kill) -> bool| 100.0 * killed.iter().filter(|row| is(&row.kill)).count() as f64 / killed.len() as f64;
    let (all, check) = (share(Kill::is_one), share(Kill::is_by_check));
    println!("{} mutants: {all:.1} % killed, {check:.1} % by check alone", killed.len());
    if options.sample.is_some() || options.only.is_some() {
        let known = table::survivors(root);
        let lives = killed.iter().filter(|row| !row.kill.is_one() && !known.contains(&row.mutant));
        return lives.map(|row| format!("{} survives", row.mutant)).collect();
    }
    let mut findings = Vec::new();
    if all < KILLED_MIN {
        findings.push(format!("{all:.1} % of the mutants were killed; {KILLED_MIN} % are to be"));
    }
    if !options.without_check && check < BY_CHECK_MIN {
        findings.push(format!("{check:.1} % of the mutants were killed by check alone; {BY_CHECK_MIN} % are to be"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        let options = parse(&["--sample", "3", "--seed", "7", "--without", "check"]).unwrap();
        assert_eq!((options.sample, options.seed, options.without_check), (Some(3), Some(7), true));
        assert_eq!(parse(&["--table", "a", "b"]).unwrap().table, ["a", "b"]);
        for wrong in [&["--sample"][..], &["--sample", "x"], &["--without", "tests"], &["x"]] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_draw_depends_on_seed_and_name() {
        let draws: std::collections::BTreeSet<_> =
            [(1, "a"), (1, "b"), (2, "a")].map(|(seed, name)| mix(seed, name)).into();
        assert_eq!(draws.len(), 3);
        assert_eq!(mix(5, "x"), mix(5, "x"));
    }
}
