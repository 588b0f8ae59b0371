//! `cargo xtask mutants --random N`: changes that chance chooses, out of all that cargo-mutants can make in the rooms that
//! kernels embed. `mutants/` holds defects that somebody thought of; this measures what nobody thought of.
//!
//! Nothing is left out: no exclusion, no skip attribute. A change that does not compile is no change, and the next one is
//! drawn. All are built at once behind a switch ([`batch`]); what cannot be switched is built alone. Check runs first, for
//! `--minutes` on one core; what survives it meets the tests of its crate and the conformance tests, for [`TESTS_LIMIT`] in
//! all. The results file makes a run resumable: what it holds is not run again.

mod batch;
mod blame;
mod catalogue;
mod results;
mod switch;
mod tests;

use super::build::{self, NOT_BUILT};
use super::copy::Copy;
use super::hunter::Hunter;
use super::{Kill, Options, mix};
pub(super) use batch::Batch;
use catalogue::Drawn;
use results::{Outcome, Results, Row};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;
pub(super) use switch::VARIABLE;

/// How long the tests may look for a change that check did not find.
const TESTS_LIMIT: Duration = Duration::from_secs(300);

/// The least share of the changes that must be found, and by check alone, in per cent; and the most that may be equivalent.
const FOUND_MIN: f64 = 90.0;
const BY_CHECK_MIN: f64 = 70.0;
const EQUIVALENT_MAX: f64 = 5.0;
/// The least number of changes for these shares to mean something.
const SAMPLE_MIN: usize = 200;

/// Draws `count` changes by `seed` and looks for each; returns what is not as it should be.
pub(super) fn run(root: &Path, count: usize, seed: u64, options: &Options) -> Result<Vec<String>, String> {
    let copy = Copy::named(root, "switched")?;
    let mut drawn = catalogue::list(&copy.root)?;
    let print = catalogue::fingerprint(&drawn);
    println!("{} changes can be made in {}", drawn.len(), catalogue::PACKAGES.join(", "));
    if let Some(only) = &options.only {
        drawn.retain(|change| change.name.contains(only.as_str()));
    }
    drawn.sort_by_key(|change| mix(seed, &change.name));
    let equivalents = catalogue::equivalents(root)?;
    let results = Results::open(options.json.as_deref(), seed, print)?;
    let batch = switched(copy, &drawn, &equivalents, &results, count, options)?;
    let draws = Mutex::new(Draws { drawn: drawn.iter(), results, under_way: 0, count });
    let work = |job| -> Result<(), String> {
        let hunter = |batch| Hunter::of_switched(batch, job, seed, options).map(|hunter| (batch, hunter));
        let switched = batch.as_ref().map(hunter).transpose()?;
        let mut hunters = Hunters { switched, unchanged: Copy::new(root, job)?, alone: None };
        work_through(&draws, |change| match equivalents.get(&change.name) {
            Some(reason) => Ok(Row::of(change, Outcome::Equivalent(reason.clone()), Duration::ZERO)),
            None => hunters.look(change, || Hunter::new(root, job, seed, options)),
        })?;
        hunters.troubles().for_each(|trouble| println!("{trouble}"));
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..options.jobs).map(|job| scope.spawn(move || work(job))).collect();
        workers.into_iter().try_for_each(|worker| worker.join().unwrap_or(Err("a job died".into())))
    })?;
    let results = draws.into_inner().expect(ALIVE).results;
    print_survivors(&results);
    Ok(verdict(&results, options.only.is_some() || results.judged() < SAMPLE_MIN))
}

/// Builds the changes that are next, with some to spare for those that do not compile. None: there is nothing to build at once.
fn switched(
    copy: Copy,
    drawn: &[Drawn],
    equivalents: &BTreeMap<String, String>,
    results: &Results,
    count: usize,
    options: &Options,
) -> Result<Option<Batch>, String> {
    let missing = count.saturating_sub(results.judged());
    let is_new = |change: &&Drawn| !results.has(&change.name) && !equivalents.contains_key(&change.name);
    let next: Vec<_> = drawn.iter().filter(is_new).take(missing + missing / SPARE + 1).collect();
    if next.is_empty() || missing == 0 || options.alone {
        Ok(None)
    } else {
        Batch::build(copy, &next, options).map(Some)
    }
}

/// One change to spare for so many.
const SPARE: usize = 3;

const ALIVE: &str = "a job died";

/// The changes in the order in which they were drawn. Jobs take them in that order, so the sample does not depend on how many
/// jobs there are.
struct Draws<'a> {
    drawn: std::slice::Iter<'a, Drawn>,
    results: Results,
    under_way: usize,
    count: usize,
}

impl<'a> Draws<'a> {
    /// The next change that has no result yet. None: with those under way there are enough.
    fn next(&mut self) -> Option<&'a Drawn> {
        if self.results.judged() + self.under_way >= self.count {
            return None;
        }
        let change = self.drawn.by_ref().find(|change| !self.results.has(&change.name))?;
        self.under_way += 1;
        Some(change)
    }

    fn done(&mut self, row: Result<Row, String>) -> Result<(), String> {
        self.under_way -= 1;
        let row = row?;
        let number = self.results.judged() + 1;
        println!("[{number:>3}/{}] {:<44} {}", self.count, row.outcome.to_string(), row.name);
        self.results.add(row)
    }
}

/// Looks for one change after the other until there are enough results. Other jobs can draw while `look` runs.
fn work_through(draws: &Mutex<Draws>, mut look: impl FnMut(&Drawn) -> Result<Row, String>) -> Result<(), String> {
    for change in std::iter::from_fn(|| draws.lock().expect(ALIVE).next()) {
        let row = look(change);
        draws.lock().expect(ALIVE).done(row)?;
    }
    Ok(())
}

/// A job's two ways to look for a change.
struct Hunters<'a> {
    /// The build of many, and who looks for one of them.
    switched: Option<(&'a Batch, Hunter)>,
    /// The tree without switches.
    unchanged: Copy,
    /// For changes that have to be built alone, in that tree; made when the first of them comes.
    alone: Option<Hunter>,
}

impl Hunters<'_> {
    fn look(&mut self, change: &Drawn, new: impl FnOnce() -> Result<Hunter, String>) -> Result<Row, String> {
        let switched = self.switched.as_mut();
        let numbered = switched.and_then(|(batch, hunter)| Some((batch.number(change)?, *batch, hunter)));
        let found = match numbered {
            Some((number, batch, hunter)) => find_switched(hunter, batch, change, number),
            None => {
                println!("building alone: {}", change.name);
                self.find_alone(change, new)
            }
        };
        let (outcome, ran) = found.map_err(|error| format!("{}: {error}", change.name))?;
        Ok(Row::of(change, outcome, ran))
    }

    /// Most changes that cannot be switched do not compile at all. The compiler says so long before the first such change that does
    /// has its build.
    fn find_alone(
        &mut self,
        change: &Drawn,
        new: impl FnOnce() -> Result<Hunter, String>,
    ) -> Result<(Outcome, Duration), String> {
        let checks = with(&self.unchanged, change, || build::checks(&self.unchanged, &change.package))?;
        if !checks {
            return Ok((Outcome::NotBuilt, Duration::ZERO));
        }
        let hunter = match &mut self.alone {
            Some(hunter) => hunter,
            none => none.insert(new()?),
        };
        let copy = hunter.copy.clone();
        with(&copy, change, || find(hunter, change))
    }

    fn troubles(&self) -> impl Iterator<Item = &String> {
        let hunters = self.switched.iter().map(|(_, hunter)| hunter).chain(&self.alone);
        hunters.flat_map(|hunter| &hunter.troubles)
    }
}

/// Looks for the change of this number in the programs of `batch`.
fn find_switched(
    hunter: &mut Hunter,
    batch: &Batch,
    change: &Drawn,
    number: u32,
) -> Result<(Outcome, Duration), String> {
    let (by, ran) = hunter.find_switched(number, &change.mutant)?;
    if let Some(by) = by {
        return Ok((Outcome::Judged(Kill::Check(by)), ran));
    }
    let programs = batch.tests(&change.package);
    let (by, took) = tests::find(&programs, Some(number), &hunter.log(), TESTS_LIMIT)?;
    Ok((Outcome::Judged(by.map_or(Kill::None, Kill::Test)), ran + took))
}

/// What `act` returns with the change in the copy.
fn with<T>(copy: &Copy, change: &Drawn, act: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    change.mutant.apply(&copy.root)?;
    let done = act();
    change.mutant.mend(&copy.root)?;
    done
}

/// Builds a change that is in, and looks for it.
fn find(hunter: &mut Hunter, change: &Drawn) -> Result<(Outcome, Duration), String> {
    let by_check = match hunter.find(&change.mutant) {
        Err(error) if error.starts_with(NOT_BUILT) => return Ok((Outcome::NotBuilt, Duration::ZERO)),
        found => found?,
    };
    let (kill, _, ran) = by_check;
    if kill.is_one() {
        return Ok((Outcome::Judged(kill), ran));
    }
    let programs = match build::tests(&hunter.copy, &[&change.package, tests::CONFORMANCE]) {
        Err(error) if error.starts_with(NOT_BUILT) => return Ok((Outcome::NotBuilt, ran)),
        programs => programs?,
    };
    let (by, took) = tests::find(&programs.iter().collect::<Vec<_>>(), None, &hunter.log(), TESTS_LIMIT)?;
    Ok((Outcome::Judged(by.map_or(Kill::None, Kill::Test)), ran + took))
}

fn print_survivors(results: &Results) {
    let survivors: Vec<_> = results.rows().filter(|row| row.outcome == Outcome::Judged(Kill::None)).collect();
    if !survivors.is_empty() {
        println!("\nNothing finds:");
        survivors.iter().for_each(|row| println!("  {}", row.name));
    }
}

/// The shares, printed; what falls short, returned. A `part` of a sample is only printed.
fn verdict(results: &Results, part: bool) -> Vec<String> {
    let judged: Vec<_> = results.rows().filter(|row| row.outcome != Outcome::NotBuilt).collect();
    let equivalent = judged.iter().filter(|row| matches!(row.outcome, Outcome::Equivalent(_))).count();
    let share = |of: usize, all: usize| if all == 0 { 0.0 } else { 100.0 * of as f64 / all as f64 };
    let shares = |rows: &[&&Row]| {
        let kills: Vec<_> = rows.iter().filter_map(|row| row.outcome.kill()).collect();
        let found = kills.iter().filter(|kill| kill.is_one()).count();
        let by_check = kills.iter().filter(|kill| kill.is_by_check()).count();
        (kills.len(), share(found, kills.len()), share(by_check, kills.len()))
    };
    let mut kinds: BTreeMap<&str, Vec<&&Row>> = BTreeMap::new();
    judged.iter().for_each(|row| kinds.entry(&row.kind).or_default().push(row));
    println!();
    for (kind, rows) in &kinds {
        let (count, found, by_check) = shares(rows);
        println!("{kind}: {count} changes, {found:.1} % found, {by_check:.1} % by check alone");
    }
    let (count, found, by_check) = shares(&judged.iter().collect::<Vec<_>>());
    let equivalents = share(equivalent, judged.len());
    println!(
        "all: {count} changes, {found:.1} % found, {by_check:.1} % by check alone; {equivalent} equivalent ones beside them"
    );
    let mut findings = Vec::new();
    let mut demand = |holds: bool, what: String| {
        if !holds {
            findings.push(what);
        }
    };
    demand(found >= FOUND_MIN, format!("{found:.1} % of the random changes were found; {FOUND_MIN} % are to be"));
    demand(by_check >= BY_CHECK_MIN, format!("{by_check:.1} % were found by check alone; {BY_CHECK_MIN} % are to be"));
    demand(
        equivalents <= EQUIVALENT_MAX,
        format!("{equivalents:.1} % are called equivalent; {EQUIVALENT_MAX} % may be"),
    );
    if part {
        findings.clear();
    }
    findings
}

#[cfg(test)]
mod verdicts {
    use super::*;

    /// Of 100 changes so many found by check, by tests, by nothing, and so many equivalent.
    fn findings(by_check: usize, by_test: usize, none: usize, equivalent: usize) -> Vec<String> {
        let mut results = Results::open(None, 1, 1).unwrap();
        let outcomes = [
            (by_check, Outcome::Judged(Kill::Check("ends".into()))),
            (by_test, Outcome::Judged(Kill::Test("irq: a".into()))),
            (none, Outcome::Judged(Kill::None)),
            (equivalent, Outcome::Equivalent("a log only".into())),
            (9, Outcome::NotBuilt),
        ];
        for (count, outcome) in outcomes {
            for number in 0..count {
                let (name, kind) = (format!("{outcome} {number}"), "behaves".to_owned());
                results.add(Row { name, kind, outcome: outcome.clone(), seconds: 0.0 }).unwrap();
            }
        }
        verdict(&results, false)
    }

    #[test]
    fn each_share_has_its_own_bound_and_what_was_not_built_counts_for_none() {
        assert_eq!(findings(70, 20, 10, 5), Vec::<String>::new());
        assert_eq!(findings(70, 19, 11, 0), ["89.0 % of the random changes were found; 90 % are to be"]);
        assert_eq!(findings(69, 21, 10, 0), ["69.0 % were found by check alone; 70 % are to be"]);
        assert_eq!(findings(94, 0, 0, 6), ["6.0 % are called equivalent; 5 % may be"]);
    }
}

#[cfg(test)]
mod draws {
    use super::*;

    #[test]
    fn other_jobs_can_draw_while_a_change_is_looked_for() {
        let drawn: Vec<_> = (0..9).map(|number| Drawn::named(&format!("irq/src/x.rs: change {number}"))).collect();
        let results = Results::open(None, 1, 1).unwrap();
        let draws = Mutex::new(Draws { drawn: drawn.iter(), results, under_way: 0, count: 3 });
        work_through(&draws, |change| {
            assert!(draws.try_lock().is_ok());
            Ok(Row::of(change, Outcome::Judged(Kill::None), Duration::ZERO))
        })
        .unwrap();
        assert_eq!(draws.into_inner().unwrap().results.judged(), 3);
    }

    #[test]
    fn jobs_take_the_first_changes_that_compile_in_the_drawn_order() {
        let drawn: Vec<_> = (0..9).map(|number| Drawn::named(&format!("irq/src/x.rs: change {number}"))).collect();
        let results = Results::open(None, 1, 1).unwrap();
        let mut draws = Draws { drawn: drawn.iter(), results, under_way: 0, count: 3 };
        let under_way: Vec<_> = std::iter::from_fn(|| draws.next()).collect();
        assert_eq!(under_way.len(), 3);
        // The first does not compile, so one more is drawn; the others come back in another order.
        let done = |change: &Drawn, outcome| Ok(Row::of(change, outcome, Duration::ZERO));
        draws.done(done(under_way[2], Outcome::Judged(Kill::None))).unwrap();
        draws.done(done(under_way[0], Outcome::NotBuilt)).unwrap();
        let further = draws.next().unwrap();
        assert!(draws.next().is_none());
        draws.done(done(under_way[1], Outcome::Judged(Kill::None))).unwrap();
        draws.done(done(further, Outcome::Judged(Kill::None))).unwrap();
        assert!(draws.next().is_none() && draws.results.has(&drawn[3].name) && !draws.results.has(&drawn[4].name));
    }
}
