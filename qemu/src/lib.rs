//! Runs QEMU: builds the images of `boot/`, runs them and Linux guests, and judges the counts.
//!
//! An image prints `count NAME VALUE` lines and `pass` or `fail: REASON`. QEMU's own trace counts the accesses to the
//! interrupt controller. Two runs of different length are traced and subtracted, so that boot and bring-up cancel out.
//! Time is never judged; a deadline only ends a run that hangs.

mod disk;
mod document;
mod image;
mod judges;
mod launch;
mod lent;
mod matrix;
mod monitor;
mod path;
mod peer;
mod pinned;
mod plugin;
mod process;
mod report;
mod run;
mod symbols;
mod trace;

pub use document::{Document, DocumentError, document};
pub use image::Missing;
pub use matrix::{CASES, Case};
pub use report::{Row, json, table};

use image::{Image, Tools, X86_64};
use peer::Peers;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::path::{Path, PathBuf};

/// The cases to run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Selection {
    /// Every machine of one case.
    One(Case),
    /// Instruction counts of reads, ours and Linux's.
    Path,
    /// Linux and our image on the QEMU of `judges/`, posted and remapped; quick: with fewer reads and moves.
    Judges {
        /// At most five minutes.
        quick: bool,
    },
    /// Of those, only Linux and virtio devices on that QEMU.
    JudgesVirtio {
        /// At most a minute.
        quick: bool,
    },
    /// One built image of ours on the QEMU of `judges/`, posted, without Linux.
    JudgedImage(PathBuf),
    /// Every case on every machine, a million reads, and the instruction counts of reads.
    All,
    /// One or two machines for each case, and the instruction counts of reads.
    Quick,
}

/// The reason why no case could be judged.
#[derive(Debug)]
pub enum BootError {
    /// A prerequisite is missing.
    Missing(Missing),
    /// An image or a guest does not build; the text is the output of cargo or of the script.
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

/// The outcome of a selection of cases.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Outcome {
    /// Every count with its verdict.
    pub rows: Vec<Row>,
    /// The skipped cases with the reason. Only quick selections skip cases, apart from those that need a network of their
    /// own, or programs for arm64 that are built on request only; figures of Linux may be left out for the latter reason.
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

/// Runs the selected cases, one QEMU at a time.
///
/// `campanile` is the program whose `serve` command lends devices to QEMU. Once `is_stopped` is true, no further case
/// begins. `tell` gets the name of each case as it begins.
///
/// # Errors
/// [`BootError`]; a case that fails is no error but a row that does not pass.
pub fn run(
    selection: &Selection,
    campanile: &Path,
    is_stopped: impl Fn() -> bool,
    tell: impl Fn(&str),
) -> Result<Outcome, BootError> {
    let mut outcome = Outcome::default();
    if let Selection::Judges { quick } | Selection::JudgesVirtio { quick } = *selection {
        if matches!(selection, Selection::Judges { .. }) {
            match judges::measure(quick, &is_stopped, &tell) {
                Err(BootError::Missing(missing)) if quick => outcome.skip(&missing),
                rows => outcome.rows = rows?,
            }
        }
        match judges::measure_virtio(quick, is_stopped, tell) {
            Err(BootError::Missing(missing)) if quick => outcome.skip(&missing),
            result => {
                let (rows, missing) = result?;
                outcome.rows.extend(rows);
                missing.iter().for_each(|missing| outcome.skip(missing));
            }
        }
        return Ok(outcome);
    }
    if let Selection::JudgedImage(image) = selection {
        outcome.rows = judges::image(image, tell)?;
        return Ok(outcome);
    }
    let mut peers = Peers::default();
    let mut images: HashMap<Tools, Option<Image>> = HashMap::new();
    for setting in matrix::select(selection) {
        if is_stopped() {
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
            let mut rows = run::measure(&setting, image, campanile)?;
            match peers.join(&setting, &mut rows) {
                Err(BootError::Missing(missing)) if *selection == Selection::Quick => outcome.skip(&missing),
                result => result?.iter().for_each(|missing| outcome.skip(missing)),
            }
            outcome.rows.extend(rows);
        }
    }
    if !matches!(selection, Selection::One(_)) && !is_stopped() {
        match Image::build(X86_64).and_then(|image| path::measure(&image, tell)) {
            Err(BootError::Missing(missing)) if *selection == Selection::Quick => outcome.skip(&missing),
            rows => outcome.rows.extend(rows?),
        }
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
