//! The parts of a kind of experiment: the trait [`Kind`] and the types that it yields.

use super::Section;
use crate::document::Table;
use crate::input::InputError;
use crate::outcome::{Bottleneck, Headline, Outcome, Published, Quantity};
use crate::plan::{Load, Plan};
use crate::report::RunReport;
use crate::run::{Rig, RunError};
use crate::scenario::draft::Draft;
use crate::setting::Setting;
use serde::{Serialize, Serializer};
use std::any::Any;
use std::fmt;

/// A kind of experiment. The type that implements it is the experiment itself: the workload that all variants share.
pub trait Kind: Clone + PartialEq + fmt::Debug + Send + Sync + 'static {
    /// One way to run it: a column of the table.
    type Variant: Variant<Kind = Self>;
    /// The machine, up and loaded.
    type Rig: Rig<Outcome = Self::Outcome>;
    /// The measurements of one run that only this kind has.
    type Outcome: Measured + Into<Section>;

    /// Its name in messages: "a network experiment".
    const NAME: &'static str;

    /// The keys and tables by which a scenario file asks for it.
    const FORM: Form;

    /// An experiment of this kind with nothing set yet. `root` is the scenario file, and `valid` lists the kinds that
    /// a file can ask for.
    ///
    /// # Errors
    /// The value that asks for the kind has the wrong form.
    fn draft(root: &Table<'_, '_>, valid: &str) -> Result<Box<dyn Draft>, InputError>;

    /// Checks that the machine of `plan` can be built and the experiment runs on it in each of `variants`.
    ///
    /// # Errors
    /// The first problem, with its place and valid alternatives.
    fn validate(&self, plan: &Plan, variants: &[Self::Variant]) -> Result<(), InputError>;

    /// Builds the machine of a valid plan, brings it up and begins to load it.
    ///
    /// # Errors
    /// The machine does not come up.
    fn rig(&self, plan: &Plan, variant: Self::Variant, seed: u64, traced: bool) -> Result<Self::Rig, RunError>;

    /// True if `other` is the same experiment, even if the two come from different files.
    fn is_same(&self, other: &Self) -> bool {
        self == other
    }

    /// The experiment under less load, in ascending order up to its own load. Empty for a kind that is not swept.
    fn loads(&self) -> Vec<Load<Self>> {
        Vec::new()
    }
}

/// The keys and tables by which a scenario file asks for a kind and sets it.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// Keys whose content asks for the kind.
    pub work: &'static [&'static str],
    /// The valid content of `work`, for an error message.
    pub work_valid: &'static str,
    /// Tables of settings. If `work` is empty, the first table asks for the kind.
    pub tables: &'static [&'static str],
}

impl Form {
    /// The form of a kind that has a table of its own. The table asks for the kind and holds its settings.
    pub const fn table(name: &'static [&'static str; 1]) -> Self {
        Self { work: &[], work_valid: "", tables: name }
    }

    /// The table that asks for the kind, if one does.
    pub fn own_table(&self) -> Option<&'static str> {
        if self.work.is_empty() { self.tables.first().copied() } else { None }
    }
}

/// A kind's entry in the table, for the shared steps.
pub(crate) struct Entry {
    pub(crate) form: Form,
    pub(crate) draft: NewDraft,
}

/// [`Kind::draft`].
type NewDraft = fn(&Table<'_, '_>, &str) -> Result<Box<dyn Draft>, InputError>;

pub(super) const fn entry<K: Kind>() -> Entry {
    Entry { form: K::FORM, draft: K::draft }
}

/// One way to run an experiment. Its text is its name on the command line, in scenario files and in tables.
pub trait Variant: Copy + PartialEq + fmt::Debug + fmt::Display + Send + Sync + 'static {
    /// The kind that it is a variant of.
    type Kind: Kind<Variant = Self>;

    /// The variant of that name.
    ///
    /// # Errors
    /// No variant has that name; the error lists the valid names.
    fn read(name: &Setting) -> Result<Self, InputError>;
}

/// The measurements of one run that only its kind has, and their presentation.
pub trait Measured: Any {
    /// Every scalar of the kind, in the table's order.
    fn quantities(&self) -> Vec<Quantity>;

    /// The quantity that the page shows first.
    fn headline(&self) -> Headline;

    /// The kind's sections of the page.
    fn page(&self, report: &RunReport) -> String;

    /// The quantities whose published name or unit differs from ours.
    fn published(&self) -> &'static [Published] {
        &[]
    }

    /// The utilisation of the devices, as fractions. The device part nearest to the work comes first.
    fn devices(&self) -> Vec<(Bottleneck, f64)> {
        Vec::new()
    }

    /// The mean time of one piece of work that the load keeps under way, in ns, as a span tells it. None for a kind without
    /// such work.
    fn turn_ns(&self, _span_ns: u64) -> Option<f64> {
        None
    }

    /// Jobs that should have had work done in the span and had none.
    fn left_out(&self) -> u64 {
        0
    }

    /// Tables of the kind's own that the terminal shows under the table.
    fn tables(&self, _report: &RunReport) -> String {
        String::new()
    }

    /// A state at the end of the run that the terminal shows under the table.
    fn state(&self) -> Option<State> {
        None
    }

    /// What the columns of the table are, as one line under it.
    fn columns(&self) -> Option<&'static str> {
        None
    }

    /// Means over several runs of one variant that its summary has in addition to its figures.
    fn means(&self, _runs: &[Outcome]) -> Option<Means> {
        None
    }
}

/// A state at the end of a run, as text for people.
pub struct State {
    /// Its title; the same for every run of a kind.
    pub heading: &'static str,
    /// The state of this run.
    pub text: String,
}

/// Means over several runs. Files store them in a table of this name.
#[derive(Clone, Debug, PartialEq)]
pub struct Means {
    /// The table's name.
    pub name: &'static str,
    /// Each mean by its name, in order.
    pub fields: Vec<(&'static str, f64)>,
}

impl Serialize for Means {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Fields<'a>(&'a [(&'static str, f64)]);
        impl Serialize for Fields<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_map(self.0.iter().copied())
            }
        }
        serializer.collect_map([(self.name, Fields(&self.fields))])
    }
}
