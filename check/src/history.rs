//! A history: a seed, the values set by hand, and the parts left out.

use crate::draw::Knob;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// How to make one history. Two equal recipes make equal histories, to the last event.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Recipe {
    /// The seed of every draw.
    pub seed: u64,
    /// Knobs that were set by hand, by name.
    pub set: BTreeMap<String, String>,
    /// The numbers of the events that are kept; none: all.
    pub keep: Option<BTreeSet<u32>>,
    /// Kinds of fault that may be drawn; none: all that the subject has.
    pub faults: Option<BTreeSet<String>>,
    /// Kinds of unrest that are switched off.
    pub without: BTreeSet<String>,
    /// Parts of the history that are drawn from another seed: one of [`PARTS`], or the number of an event.
    pub reseed: BTreeMap<String, u64>,
    /// Events that happen at another time than the drawn one: by number, in ns since the start of the history.
    pub at: BTreeMap<u32, u64>,
    /// Whether to find out what it reaches ([`crate::reach`]).
    pub reaches: bool,
    /// Spans kept for a trace.
    pub trace_spans_max: usize,
}

/// The parts that can have a seed of their own.
pub const PARTS: [&str; 5] = ["machine", "load", "steps", "faults", "unrest"];

impl Recipe {
    /// The complete history of a seed.
    pub fn of(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// The seed of a part.
    pub fn seed_of(&self, part: &str) -> u64 {
        self.reseed.get(part).copied().unwrap_or(self.seed)
    }

    /// The seed of event `number`, which belongs to `part`.
    pub fn seed_of_event(&self, number: u32, part: &str) -> u64 {
        match self.reseed.is_empty() {
            true => self.seed,
            false => self.reseed.get(&number.to_string()).copied().unwrap_or_else(|| self.seed_of(part)),
        }
    }

    /// Whether event `number` happens.
    pub fn keeps(&self, number: u32) -> bool {
        self.keep.as_ref().is_none_or(|keep| keep.contains(&number))
    }
}

/// The recipe as options of the command line.
impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--replay {:#x}", self.seed)?;
        let list = |items: &mut dyn Iterator<Item = String>| {
            let text = items.collect::<Vec<_>>().join(",");
            if text.is_empty() { "none".into() } else { text }
        };
        if let Some(faults) = &self.faults {
            write!(f, " --faults {}", list(&mut faults.iter().cloned()))?;
        }
        if !self.set.is_empty() {
            write!(f, " --set {}", list(&mut self.set.iter().map(|(name, value)| format!("{name}={value}"))))?;
        }
        if !self.reseed.is_empty() {
            let parts = &mut self.reseed.iter().map(|(part, seed)| format!("{part}={seed:#x}"));
            write!(f, " --reseed {}", list(parts))?;
        }
        if !self.at.is_empty() {
            write!(f, " --at {}", list(&mut self.at.iter().map(|(number, ns)| format!("{number}={ns}"))))?;
        }
        if let Some(keep) = &self.keep {
            write!(f, " --keep {}", list(&mut keep.iter().map(u32::to_string)))?;
        }
        if !self.without.is_empty() {
            write!(f, " --without {}", list(&mut self.without.iter().cloned()))?;
        }
        Ok(())
    }
}

/// One thing that is done to a machine: a manager's step, or a fault.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// Its number in the history, for `--keep`.
    pub number: u32,
    /// Since the start of the history, in ns.
    pub at_ns: u64,
    /// Until when, for a fault.
    pub until_ns: Option<u64>,
    /// Which manager does it, or none for a fault.
    pub manager: Option<u32>,
    /// A description of the step or fault.
    pub text: String,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = |ns: u64| format!("{}.{:03} µs", ns / 1000, ns % 1000);
        write!(f, "{:>4}  {:>13}", self.number, us(self.at_ns))?;
        match (self.manager, self.until_ns) {
            (Some(manager), _) => write!(f, "  manager {manager}: {}", self.text),
            (None, Some(until_ns)) => write!(f, "  fault until {}: {}", us(until_ns), self.text),
            (None, None) => write!(f, "  fault: {}", self.text),
        }
    }
}

/// A history as it was drawn.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct History {
    /// The machine and its load.
    pub knobs: Vec<Knob>,
    /// Kinds of unrest that disturbed it.
    pub unrest: Vec<&'static str>,
    /// The steps, in order.
    pub events: Vec<Event>,
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let knobs: Vec<_> = self.knobs.iter().map(Knob::to_string).collect();
        writeln!(f, "  machine: {}", knobs.join(" "))?;
        let unrest = if self.unrest.is_empty() { "none".into() } else { self.unrest.join(", ") };
        writeln!(f, "  unrest: {unrest}")?;
        self.events.iter().try_for_each(|event| writeln!(f, "{event}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recipe_prints_as_the_options_that_make_it() {
        assert_eq!(Recipe::of(0x5eed).to_string(), "--replay 0x5eed");
        let recipe = Recipe {
            keep: Some([9, 3].into()),
            faults: Some([].into()),
            without: ["preempt".into()].into(),
            set: [("cpus".into(), "2".into())].into(),
            reseed: [("load".into(), 7), ("9".into(), 16)].into(),
            at: [(3, 250)].into(),
            ..Recipe::of(1)
        };
        let options =
            "--replay 0x1 --faults none --set cpus=2 --reseed 9=0x10,load=0x7 --at 3=250 --keep 3,9 --without preempt";
        assert_eq!(recipe.to_string(), options);
        assert_eq!((recipe.seed_of("load"), recipe.seed_of("steps")), (7, 1));
        assert_eq!((recipe.seed_of_event(9, "steps"), recipe.seed_of_event(3, "load")), (16, 7));
        assert!(recipe.keeps(3) && !recipe.keeps(4));
    }

    #[test]
    fn an_event_prints_with_its_time() {
        let step =
            Event { number: 7, at_ns: 12_345, until_ns: None, manager: Some(1), text: "move queue 2 to CPU 1".into() };
        assert_eq!(step.to_string(), "   7      12.345 µs  manager 1: move queue 2 to CPU 1");
        let fault = Event { until_ns: Some(20_000), manager: None, ..step };
        assert!(fault.to_string().contains("fault until 20.000 µs"));
    }
}
