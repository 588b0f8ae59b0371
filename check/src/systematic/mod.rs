//! The systematic search: small machines, and every order of a few operations.
//!
//! The random search hardly ever brings two operations together within a hundred nanoseconds. Here two or three agents do
//! one operation each, and every preemption at their points of the seam is tried, up to a bound
//! ([`machine::unrest::turns`]). All checkers listen, and the history ends as any other does: repair, last load, audit.
//! Nothing is drawn, so the same tree has the same schedules and verdicts.

mod command;
mod explore;
mod search;

pub(crate) use command::execute;
pub use explore::{BOUND, Explored, explore};
pub use search::{Search, Verdict, document, run};
pub(crate) use search::{one, replay_line};

use crate::run::Scenario;
use crate::single::Case;
use crate::subject::Bench;
use std::fmt;

/// A fault strikes at one of so many things that it meets first.
const STRIKES_MAX: u32 = 4;

/// A small machine and the names of its operations.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BenchNames {
    name: &'static str,
    operations: Vec<&'static str>,
    pairs: Option<Vec<[usize; 2]>>,
    triples: Vec<[usize; 3]>,
}

impl BenchNames {
    /// The names of `bench`.
    ///
    /// # Panics
    /// At a pair or a triple of an operation that it does not have.
    pub(crate) fn of<T>(bench: &Bench<T>) -> Self {
        let operations: Vec<_> = bench.operations.iter().map(|(name, _)| *name).collect();
        let index = |name| operations.iter().position(|other| *other == name).expect("an operation of this machine");
        let pairs = bench.pairs.as_ref().map(|pairs| pairs.iter().map(|pair| pair.map(index)).collect());
        let triples = bench.triples.iter().map(|triple| triple.map(index)).collect();
        Self { name: bench.name, operations, pairs, triples }
    }

    /// The machine's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Its pairs and its triples.
    fn sets(&self) -> Vec<Vec<usize>> {
        let count = self.operations.len();
        let every = || (0..count).flat_map(|one| (one..count).map(move |other| [one, other])).collect();
        let pairs = self.pairs.clone().unwrap_or_else(every);
        let triples = self.triples.iter().map(|triple| triple.to_vec());
        pairs.iter().map(|pair| pair.to_vec()).chain(triples).collect()
    }
}

impl fmt::Display for BenchNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "operations of {}: {}", self.name, self.operations.join(", "))
    }
}

/// Operations that are done at the same time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Task {
    /// Which machine of the scenario.
    pub bench: usize,
    /// Which of its operations, by agent.
    pub operations: Vec<usize>,
    /// A fault that strikes once meanwhile.
    pub strike: Option<Strike>,
    name: String,
}

/// A fault that strikes once while operations are done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Strike {
    /// The machine and the fault.
    pub(crate) case: Case,
    /// At which of the things that it meets in a schedule, from 1 on.
    pub(crate) number: u32,
}

impl Strike {
    /// The name of the fault.
    fn fault(&self) -> &str {
        self.case.name.split_once('/').map_or("", |(_, fault)| fault)
    }
}

/// Fault and number: `no-memory:1`.
impl fmt::Display for Strike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.fault(), self.number)
    }
}

impl Task {
    /// All tasks of a scenario.
    pub fn all(scenario: &dyn Scenario) -> Vec<Self> {
        let task = |bench: usize, names: &BenchNames, operations: Vec<usize>| {
            let each: Vec<_> = operations.iter().map(|&index| names.operations[index]).collect();
            Self { bench, name: format!("{}/{}", names.name, each.join("+")), operations, strike: None }
        };
        let benches = scenario.benches().into_iter().enumerate();
        benches.flat_map(|(bench, names)| names.sets().into_iter().map(move |set| task(bench, &names, set))).collect()
    }

    /// All tasks of a scenario, each under each fault that tells what it meets.
    pub fn under_faults(scenario: &dyn Scenario) -> Vec<Self> {
        let cases: Vec<_> = scenario.singles().into_iter().filter(Case::tells).collect();
        let under = |task: Self| {
            let cases = cases.iter().filter(|case| case.bench == task.bench);
            let strikes = cases.map(|case| Strike { case: case.clone(), number: 1 });
            strikes.map(|strike| Self { strike: Some(strike), ..task.clone() }).collect::<Vec<_>>()
        };
        Self::all(scenario).into_iter().flat_map(under).collect()
    }

    /// Machine and operations alone: `edge/move+disable`.
    pub(crate) fn operations_name(&self) -> &str {
        &self.name
    }
}

/// Machine and operations, and what strikes meanwhile: `edge/move+disable`, `edge/move+disable under no-memory:1`.
impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        self.strike.iter().try_for_each(|strike| write!(f, " under {strike}"))
    }
}
