//! `campanile._native`: the commands for Python, as text in and text out. `campanile/__init__.py` makes it pleasant.
//!
//! Each function hands its work to a thread of its own and waits without the interpreter's lock. While it waits it looks
//! for signals: Ctrl-C sets the stop flag that the command has too.

mod interruptible;

use interruptible::interruptible;
use lab::commands::{answer, check, sweep};
use lab::inputs::Given;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::collections::BTreeMap;
use std::sync::Arc;

pyo3::create_exception!(campanile, Error, PyException, "Why there is no result. The base of this module's errors.");
pyo3::create_exception!(
    campanile,
    InputError,
    Error,
    "The input is wrong: its place, its key, and what would be valid."
);
pyo3::create_exception!(campanile, RunError, Error, "The run failed, or its results could not be written.");

/// The JSON of `run`, `advise` and `import`, or the folder of `sweep`, for a command line behind `campanile`.
#[pyfunction(name = "answer")]
fn answer_of(py: Python<'_>, arguments: Vec<String>) -> PyResult<String> {
    interruptible(py, move |stop| answer::answer(&arguments, stop))
}

/// The program: carries out a command line, the program's name first, and returns the exit code.
#[pyfunction]
fn main(py: Python<'_>, line: Vec<std::ffi::OsString>) -> u8 {
    py.detach(|| lab::commands::main(line))
}

/// The JSON of a search, its exit code, and the shortest history that fails: its line and its text.
type Found = (String, u8, Option<(String, String)>);

/// A search for lost interrupts.
#[pyclass(frozen)]
struct Search(check::Search);

fn found(answer: check::Answer) -> Found {
    (answer.json, answer.exit_code, answer.shortest)
}

#[pymethods]
impl Search {
    /// Reads the command line behind `campanile`.
    #[new]
    fn new(py: Python<'_>, arguments: Vec<String>) -> PyResult<Self> {
        interruptible(py, move |_| check::Search::read(&arguments)).map(Self)
    }

    /// Seed of the first round of histories.
    fn first_seed(&self) -> u64 {
        self.0.first_seed()
    }

    /// How many there are; None: as many as fit into a time.
    fn histories(&self) -> Option<u64> {
        self.0.histories()
    }

    /// Searches on this machine.
    fn run(&self, py: Python<'_>) -> PyResult<Found> {
        let search = self.0.clone();
        interruptible(py, move |stop| search.run(stop)).map(found)
    }

    /// Searches `count` histories from number `start` on one thread.
    fn part(&self, py: Python<'_>, start: u64, count: u64) -> PyResult<String> {
        let search = self.0.clone();
        interruptible(py, move |stop| search.part(start, count, stop))
    }

    /// Puts parts together, in the order of their histories.
    fn merge(&self, py: Python<'_>, parts: Vec<String>, seconds: f64, jobs: usize) -> PyResult<Found> {
        let search = self.0.clone();
        interruptible(py, move |stop| search.merge(&parts, seconds, jobs, stop)).map(found)
    }
}

/// The arguments of [`sweep_part`] before the runs.
type Inputs<'py> = (String, String, BTreeMap<String, Bound<'py, PyBytes>>, BTreeMap<String, String>);

/// A sweep whose runs are carried out elsewhere.
#[pyclass]
struct Sweep(Option<sweep::Remote>);

impl Sweep {
    fn open(&mut self) -> PyResult<&mut sweep::Remote> {
        self.0.as_mut().ok_or_else(|| Error::new_err("the sweep has ended"))
    }
}

#[pymethods]
impl Sweep {
    /// Opens the sweep and its folder.
    #[new]
    fn new(py: Python<'_>, arguments: Vec<String>) -> PyResult<Self> {
        interruptible(py, move |_| sweep::Remote::open(&arguments)).map(|remote| Self(Some(remote)))
    }

    /// Its file, its identity, and the files and variables that a machine needs which has neither.
    fn inputs<'py>(&mut self, py: Python<'py>) -> PyResult<Inputs<'py>> {
        let remote = self.open()?;
        let (file, identity) = remote.name();
        let given = remote.given();
        let files = given.files.iter().map(|(path, bytes)| (path.clone(), PyBytes::new(py, bytes))).collect();
        Ok((file, identity, files, given.variables.clone().unwrap_or_default()))
    }

    /// The runs that are not done; each list shares a plan.
    fn pending(&mut self) -> PyResult<Vec<Vec<u64>>> {
        Ok(self.open()?.pending())
    }

    /// Keeps what `sweep_part` returned.
    fn keep(&mut self, lines: &str) -> PyResult<()> {
        self.open()?.keep(lines).map_err(interruptible::error)
    }

    /// Writes the table, and returns the folder.
    fn finish(&mut self, py: Python<'_>) -> PyResult<String> {
        let remote = self.0.take().ok_or_else(|| Error::new_err("the sweep has ended"))?;
        interruptible(py, move |_| remote.finish())
    }
}

/// Carries out runs of a sweep on one thread, and returns a line for each.
#[pyfunction]
fn sweep_part(
    py: Python<'_>,
    file: String,
    identity: String,
    files: BTreeMap<String, Vec<u8>>,
    variables: BTreeMap<String, String>,
    runs: Vec<u64>,
) -> PyResult<String> {
    let files = files.into_iter().map(|(path, bytes)| (path, Arc::from(bytes))).collect();
    let given = Given { files, variables: Some(variables) };
    interruptible(py, move |stop| sweep::part(&file, &identity, given, &runs, stop))
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("Error", py.get_type::<Error>())?;
    module.add("InputError", py.get_type::<InputError>())?;
    module.add("RunError", py.get_type::<RunError>())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<Search>()?;
    module.add_class::<Sweep>()?;
    module.add_function(wrap_pyfunction!(answer_of, module)?)?;
    module.add_function(wrap_pyfunction!(main, module)?)?;
    module.add_function(wrap_pyfunction!(sweep_part, module)?)
}
