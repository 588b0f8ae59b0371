//! Scenarios of many small trials. A trial draws an input, gives it to a part of the drivers that needs no machine of its
//! own, and compares the answer with one that the checker composed. A history runs trials as load and as steps of managers,
//! and each trial once more as its last load, so that seeds, replays and shrinking are those of every scenario.

mod rig;

pub use rig::TrialRig;

use crate::draw::Draw;
use crate::subject::{Build, Subject};
use machine::time::Ps;
use std::fmt;

/// One kind of trial.
pub struct Trial {
    /// Its name; the transition that counts it, too.
    pub name: &'static str,
    /// Draws an input and judges the answer. The error says what was wrong.
    pub run: fn(&mut Draw) -> Result<(), String>,
}

/// A scenario of trials.
pub struct Trials {
    /// Its name, and the checker's.
    pub name: &'static str,
    /// A description in one line.
    pub about: &'static str,
    /// The kinds of trial.
    pub list: &'static [Trial],
    /// Their names.
    pub names: &'static [&'static str],
}

/// One trial of a manager.
#[derive(Clone)]
pub struct TrialStep {
    trial: &'static Trial,
    seed: u64,
}

impl fmt::Display for TrialStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "trial of {} with seed {:#x}", self.trial.name, self.seed)
    }
}

/// Nothing disturbs a trial.
#[derive(Clone)]
pub enum NoFault {}

impl fmt::Display for NoFault {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

impl Subject for &'static Trials {
    type Step = TrialStep;
    type Fault = NoFault;
    type Rig = TrialRig;

    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn transitions(&self) -> &'static [&'static str] {
        self.names
    }

    fn draw_step(&self, draw: &mut Draw) -> TrialStep {
        TrialStep { trial: draw.pick(self.list), seed: draw.below(u64::MAX) }
    }

    fn draw_fault(&self, kind: &'static str, _: &mut Draw) -> NoFault {
        unreachable!("no fault is of the kind {kind}")
    }

    fn build(&self, build: &mut Build<'_, NoFault>) -> TrialRig {
        TrialRig::build(self, build)
    }

    fn bound(&self) -> Ps {
        Ps::from_ns(10_000_000)
    }
}

/// An error that names what was expected and what came.
pub(crate) fn differs(what: &str, expected: &impl fmt::Debug, found: &impl fmt::Debug) -> String {
    format!("{what}: {found:x?}; expected {expected:x?}")
}

/// Both are the same, or the error says which came.
pub(crate) fn same<T: PartialEq + fmt::Debug>(what: &str, expected: &T, found: &T) -> Result<(), String> {
    if expected == found { Ok(()) } else { Err(differs(what, expected, found)) }
}

/// Runs each kind of trial often, without a machine.
#[cfg(test)]
pub(crate) fn often(trials: &Trials, times: u32) {
    let names: Vec<_> = trials.list.iter().map(|trial| trial.name).collect();
    assert_eq!(names, trials.names);
    for trial in trials.list {
        for index in 0..times {
            if let Err(text) = (trial.run)(&mut Draw::new(1, trial.name, index)) {
                panic!("{}, {index}: {text}", trial.name);
            }
        }
    }
}
