//! Bare metal: builds the images of `boot/`, runs them under QEMU, and judges what was counted.
//!
//! An image prints `count NAME VALUE` lines and `pass` or `fail: REASON`. Accesses to the interrupt controller are counted
//! by QEMU itself, from its trace: two runs of different length, and the difference between them, so that boot and
//! bring-up fall out. Nothing is judged by time; a deadline only ends a run that hangs.

mod image;
mod lent;
mod matrix;
mod path;
mod peer;
mod pinned;
mod plugin;
mod process;
mod qemu;
mod report;
mod run;
mod symbols;
mod trace;

pub use image::Missing;
pub use matrix::{CASES, Case};
pub use report::{Row, json, table};

use crate::interrupt::StopFlag;
use image::{Image, Tools, X86_64};
use peer::Peers;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;

/// What is to be run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Selection {
    /// Every machine of one case.
    One(Case),
    /// The instructions of reads, ours and Linux's.
    Path,
    /// Every case on every machine, a million reads, and the instructions of reads.
    All,
    /// A machine or two for each case.
    Quick,
}

/// Why nothing could be judged.
#[derive(Debug)]
pub enum BootError {
    /// What cannot be had.
    Missing(Missing),
    /// An image or a guest does not build; what cargo or the script said.
    Build(String),
    /// A file or a process could not be handled.
    Io(String, std::io::Error),
}

impl fmt::Display for BootError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(missing) => write!(f, "{missing}"),
            Self::Build(said) => write!(f, "a guest does not build:\n{said}"),
            Self::Io(what, error) => write!(f, "{what}: {error}"),
        }
    }
}

impl std::error::Error for BootError {}

/// What was run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Outcome {
    /// What was counted, and whether it is what it must be.
    pub rows: Vec<Row>,
    /// What was left out, and why; only [`Selection::Quick`] leaves anything out.
    pub skipped: Vec<String>,
}

impl Outcome {
    /// Whether every row passes.
    pub fn passes(&self) -> bool {
        self.rows.iter().all(|row| row.pass)
    }

    fn skip(&mut self, missing: &Missing) {
        let why = missing.to_string();
        if !self.skipped.contains(&why) {
            self.skipped.push(why);
        }
    }
}

/// Runs the selected cases, one QEMU at a time. `tell` hears of each as it begins.
///
/// # Errors
/// [`BootError`]; a case that fails is no error but a row that does not pass.
pub fn run(selection: &Selection, stop: &StopFlag, tell: impl Fn(&str)) -> Result<Outcome, BootError> {
    let mut outcome = Outcome::default();
    let mut peers = Peers::default();
    let mut images: HashMap<Tools, Option<Image>> = HashMap::new();
    for setting in matrix::select(selection) {
        if stop.is_set() {
            break;
        }
        let image = match images.entry(setting.machine.tools()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let image = image(*new.key(), selection, &mut outcome)?;
                new.insert(image)
            }
        };
        if let Some(image) = image {
            tell(&setting.to_string());
            let mut rows = run::measure(&setting, image)?;
            match peers.join(&setting, &mut rows) {
                Err(BootError::Missing(missing)) if *selection == Selection::Quick => outcome.skip(&missing),
                result => result?,
            }
            outcome.rows.extend(rows);
        }
    }
    if matches!(selection, Selection::Path | Selection::All) && !stop.is_set() {
        outcome.rows.extend(path::measure(&Image::build(X86_64)?, tell)?);
    }
    Ok(outcome)
}

fn image(tools: Tools, selection: &Selection, outcome: &mut Outcome) -> Result<Option<Image>, BootError> {
    match Image::build(tools) {
        Err(BootError::Missing(missing)) if *selection == Selection::Quick => {
            outcome.skip(&missing);
            Ok(None)
        }
        result => result.map(Some),
    }
}
