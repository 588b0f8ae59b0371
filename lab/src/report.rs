//! The reports of runs: the terminal's tables, JSON, the HTML page, the trace.
//!
//! Everything here is a pure function of its input: the same input gives the same bytes.

use serde::{Serialize, Serializer};

use crate::manifest::Manifest;
use crate::outcome::{Estimate, Outcome, Quantity, Summary};
use crate::plan::Spans;
use crate::platform::Platform;

pub(crate) mod figure;
pub mod html;
pub mod json;
pub mod lines;
pub mod narrow;
pub(crate) mod plots;
mod rows_page;
mod study;
pub mod table;
pub mod trace;

pub use rows_page::rows_page;

/// The origin of a figure, printed beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Host time, instruction counts, accesses under an emulator.
    Measured,
    /// A row that the platform was calibrated with.
    Fitted,
    /// Simulated with a constant that was set with sight of the published value. Not fitted, and no prediction.
    Informed,
    /// Simulated with constants that were frozen before and not tuned to this figure.
    Predicted,
    /// Computed from other rows.
    Derived,
    /// A row of the reader's own that their platform was fitted to.
    YoursFitted,
    /// Simulated on a platform of the reader's own, or beside a row of theirs that nothing was fitted to.
    Yours,
}

impl Class {
    /// Every class, in the order of the tables, with its title there.
    pub(crate) const TITLES: [(Self, &str); 7] = [
        (Self::Fitted, "Fitted: rows that the constants were calibrated with"),
        (Self::Informed, "Informed: a constant was set with sight of the published value"),
        (Self::Predicted, "Predicted: constants frozen before, from an informed start"),
        (Self::Derived, "Derived: computed from the rows named beside, fitted and predicted ones"),
        (Self::Measured, "Measured"),
        (Self::YoursFitted, "Yours, fitted: your rows that your platform's constants were fitted to"),
        (Self::Yours, "Yours: your other rows"),
    ];
}

impl Class {
    /// The class of a plain figure of a platform.
    pub fn of(platform: &Platform) -> Self {
        if platform.is_own { Self::Yours } else { Self::Predicted }
    }

    /// The class of a row of the reader's own that would have this class if it were published.
    pub fn yours(self) -> Self {
        if self == Self::Fitted { Self::YoursFitted } else { Self::Yours }
    }

    /// As files and tables print it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Fitted => "simulated, fitted",
            Self::Informed => "simulated, informed",
            Self::Predicted => "simulated, predicted",
            Self::Derived => "simulated, derived",
            Self::YoursFitted => "yours, fitted",
            Self::Yours => "yours, simulated",
        }
    }
}

impl Serialize for Class {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// One figure beside its published value: an element of `reproduce --json`, in its order of keys.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// As published: `A1`.
    pub id: String,
    /// The platform whose constants were used.
    pub platform: String,
    /// The experiment, in words.
    pub scenario: String,
    /// How interrupts were delivered.
    pub delivery: String,
    /// As published: `iops_per_drive`.
    pub quantity: String,
    /// As published: `1/s`. Starting with `%` the figure is a share, and its error is in points.
    pub unit: String,
    /// Mean over the seeds, in `unit`.
    pub value: f64,
    /// Half-width of the 95 % confidence interval, in `unit`; null of a single seed.
    pub ci95: Option<f64>,
    /// The published value; null where it is withheld.
    pub published: Option<f64>,
    /// See [`Row::error_percent`]; null without a published value.
    pub error_percent: Option<f64>,
    /// The origin of the figure.
    pub class: Class,
    /// How many seeds were run.
    pub seeds: usize,
    /// The formula of a derived row, over the ids of others; null of all other rows.
    pub from: Option<String>,
    /// Where the figure lies if the constants move as far as the fitted rows let them; null if that was not asked for.
    pub interval: Option<Interval>,
}

/// The values of a prediction over the region in which the fitted rows stay within their tolerance.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// The least, in the row's unit.
    pub low: f64,
    /// The greatest.
    pub high: f64,
    /// Points of the region that were run.
    pub points: usize,
}

/// The content of a published row, without the simulated result.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// As published: `A1`.
    pub id: String,
    /// Platform's name.
    pub platform: String,
    /// The experiment, in words.
    pub scenario: String,
    /// How interrupts were delivered.
    pub delivery: String,
    /// As published.
    pub quantity: String,
    /// As published.
    pub unit: String,
    /// The published value; none where it is withheld.
    pub published: Option<f64>,
    /// Fitted if the row was used for calibration.
    pub class: Class,
    /// The formula of a derived row.
    pub from: Option<String>,
}

impl Row {
    /// Sets an estimate, in the reference's unit, beside its published value.
    pub fn new(reference: Reference, estimate: Estimate) -> Self {
        let Reference { id, platform, scenario, delivery, quantity, unit, published, class, from } = reference;
        let error_percent = published.and_then(|published| Self::error_percent(&unit, estimate.mean, published));
        let Estimate { mean: value, ci95, seeds } = estimate;
        Self {
            id,
            platform,
            scenario,
            delivery,
            quantity,
            unit,
            value,
            ci95,
            published,
            error_percent,
            class,
            seeds,
            from,
            interval: None,
        }
    }

    /// The deviation in per cent of the published value; of a share, in points. None if it has no meaning.
    fn error_percent(unit: &str, value: f64, published: f64) -> Option<f64> {
        let error = if unit.starts_with('%') { value - published } else { (value / published - 1.0) * 100.0 };
        error.is_finite().then_some(error)
    }

    /// Whether the figure is a share, compared in points.
    pub fn is_share(&self) -> bool {
        self.unit.starts_with('%')
    }
}

/// One point of throughput and latency against load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LoadPoint {
    /// How interrupts were delivered.
    pub delivery: String,
    /// I/Os kept in flight, all jobs together.
    pub in_flight: u64,
    /// I/Os a second, together.
    pub iops: f64,
    /// Mean completion latency, in ns.
    pub mean_ns: f64,
    /// 99th percentile of the completion latency, in ns.
    pub p99_ns: f64,
}

/// One constant of the platform, as the page lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConstantRow {
    /// Group and name: `fabric.remap_service`.
    pub name: String,
    /// With its unit: `53 ns`.
    pub value: String,
    /// Why this value.
    pub reason: String,
    /// Whether calibration varies it.
    pub free: bool,
}

/// Everything that `campanile run` reports.
#[derive(Clone, Debug, Serialize)]
pub struct RunReport {
    /// The scenario's name.
    pub scenario: String,
    /// The platform's name.
    pub platform: String,
    /// The origin of the figures that no row of `published` names.
    pub class: Class,
    /// True if the run was stopped early. The figures then cover the completed part.
    pub interrupted: bool,
    /// Warnings about the input, as the terminal shows them.
    pub warnings: Vec<String>,
    /// Where raising a cost made a variant faster: the coalescing behind it.
    pub notes: Vec<String>,
    /// One summary per delivery, in the order of their first outcomes. The others are compared with the first.
    pub summaries: Vec<Summary>,
    /// Every run.
    pub outcomes: Vec<Outcome>,
    /// Published figures of this scenario beside the simulated ones.
    pub published: Vec<Row>,
    /// Throughput and latency against load, if swept.
    pub load: Vec<LoadPoint>,
    /// The platform's constants.
    pub constants: Vec<ConstantRow>,
    /// The spans that were simulated, and those that the jobs ask for.
    pub spans: Option<Spans>,
    /// What makes this result again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manifest: Option<Manifest>,
}

impl RunReport {
    /// Summarises the outcomes, grouped by delivery. The other lists start empty: fill what is at hand.
    pub fn new(scenario: &str, platform: &str, class: Class, outcomes: Vec<Outcome>) -> Self {
        let mut groups: Vec<Vec<Outcome>> = Vec::new();
        for outcome in &outcomes {
            match groups.iter_mut().find(|group| group[0].delivery == outcome.delivery) {
                Some(group) => group.push(outcome.clone()),
                None => groups.push(vec![outcome.clone()]),
            }
        }
        Self {
            scenario: scenario.into(),
            platform: platform.into(),
            class,
            interrupted: false,
            warnings: Vec::new(),
            notes: Vec::new(),
            summaries: groups.iter().filter_map(|group| Summary::over(group)).collect(),
            outcomes,
            published: Vec::new(),
            load: Vec::new(),
            constants: Vec::new(),
            spans: None,
            manifest: None,
        }
    }

    /// The spans, if what ran is shorter than what was asked for: jobs with a pace are simulated until they have their I/Os.
    pub(crate) fn shortened_spans(&self) -> Option<Spans> {
        let ran_ns = self.outcomes.iter().map(|outcome| outcome.span_ns).min().unwrap_or(0);
        self.spans
            .filter(|spans| spans.is_shortened() && spans.asked_runtime_ns.is_some_and(|asked_ns| ran_ns < asked_ns))
    }

    /// A line about a run time that was shortened.
    fn shortened(&self) -> String {
        let Some(first) = self.outcomes.first() else { return String::new() };
        if !first.phases.is_empty() || first.timeline.is_phase {
            return self.shortened_phases(first);
        }
        let Some(spans) = self.shortened_spans() else { return String::new() };
        format!("Shortened: {spans}. --set duration=runtime simulates it, up to 10 s.\n")
    }

    /// A line for each phase of the first run that stands for a longer time than was simulated.
    fn shortened_phases(&self, first: &Outcome) -> String {
        let line = |name: &str, phase: &Outcome| {
            let asked_ns = phase.timeline.stands_for_ns.filter(|&asked_ns| asked_ns > phase.span_ns)?;
            let [ran, asked] = [phase.span_ns, asked_ns].map(|ns| figure::duration(ns as f64));
            Some(format!("Shortened{name}: simulated {ran}, standing for {asked}"))
        };
        let phases = first.phases.iter().enumerate();
        let of_phase = phases.filter_map(|(index, phase)| line(&format!(", phase {}", index + 1), &phase.outcome));
        let mut lines: Vec<String> = of_phase.chain(line("", first).filter(|_| first.phases.is_empty())).collect();
        if let Some(last) = lines.last_mut() {
            *last += ". --set duration=runtime simulates it, up to 10 s";
        }
        lines.into_iter().map(|line| line + ".\n").collect()
    }

    /// A report of each phase, of an experiment that has several: its name and its summaries.
    pub(crate) fn phases(&self) -> Vec<Self> {
        let count = self.outcomes.iter().map(|outcome| outcome.phases.len()).max().unwrap_or(0);
        let of = |index: usize| {
            let phases = || self.outcomes.iter().filter_map(move |outcome| outcome.phases.get(index));
            let name = phases().next().map_or("", |phase| phase.name.as_str());
            let title = format!("Phase {} of {count}: {name}", index + 1);
            Self::new(&title, &self.platform, self.class, phases().map(|phase| phase.outcome.clone()).collect())
        };
        (0..count).map(of).collect()
    }

    /// Every quantity of the experiment's kind, in the order of the summaries' figures.
    fn quantities(&self) -> Vec<Quantity> {
        self.outcomes.first().map_or_else(Vec::new, |outcome| outcome.section.measured().quantities())
    }

    /// The first outcome of a delivery, whose interrupt table and timeline are shown.
    pub(crate) fn first_outcome(&self, delivery: &str) -> Option<&Outcome> {
        self.outcomes.iter().find(|outcome| outcome.delivery == delivery)
    }

    /// How the system of a delivery's runs delivers messages: the same in all of them.
    pub(crate) fn policy(&self, delivery: &str) -> Option<&str> {
        self.first_outcome(delivery)?.policy.as_deref()
    }

    /// Every outcome of a delivery.
    pub(crate) fn outcomes_of(&self, delivery: &str) -> Vec<Outcome> {
        self.outcomes.iter().filter(|outcome| outcome.delivery == delivery).cloned().collect()
    }

    /// A line for each variant whose span does not show a steady state.
    fn unsteady(&self) -> String {
        let line = |summary: &Summary| {
            let text = summary.steadiness.as_ref()?.to_string();
            (!text.is_empty()).then(|| format!("NOT STEADY, {}: {text}.\n", summary.delivery))
        };
        self.summaries.iter().filter_map(line).collect()
    }

    /// Two lines with the origin of the figures, the number of seeds, the span and the platform.
    fn provenance(&self) -> String {
        let seeds = self.summaries.iter().map(|s| s.seeds.len()).min().unwrap_or(0);
        let span = self.summaries.iter().map(|s| s.span_ns).min().unwrap_or(0);
        let confidence = if seeds > 1 { "± is the 95 % confidence of the mean" } else { "one seed: no confidence" };
        let exception = if self.published.is_empty() { "" } else { " unless stated beside the published value" };
        format!(
            "Platform {}; figures: {}{exception}.\n{} of {} each; {confidence}.",
            self.platform,
            self.class.name(),
            figure::counted(seeds, "seed"),
            figure::duration(span as f64),
        )
    }
}

#[cfg(test)]
pub(crate) mod tests;
