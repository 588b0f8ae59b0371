//! Counts the transitions of the protocols that were seen.

use std::borrow::Cow;
use std::collections::BTreeMap;

/// Counts by the name of a transition. A transition that was named and never seen counts 0.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Coverage(BTreeMap<Cow<'static, str>, u64>);

impl Coverage {
    /// Adds `times` to the count of `transition`; 0 only names it.
    pub fn add(&mut self, transition: &'static str, times: u64) {
        *self.0.entry(Cow::Borrowed(transition)).or_default() += times;
    }

    /// Names transitions that can be seen.
    pub fn name(&mut self, transitions: &[&'static str]) {
        transitions.iter().for_each(|transition| self.add(transition, 0));
    }

    /// Adds another's counts.
    pub fn merge(&mut self, other: &Self) {
        other.0.iter().for_each(|(transition, times)| *self.0.entry(transition.clone()).or_default() += times);
    }

    /// How often `transition` was seen.
    pub fn times(&self, transition: &str) -> u64 {
        self.0.get(transition).copied().unwrap_or(0)
    }

    /// All, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(transition, times)| (transition.as_ref(), *times))
    }

    /// Transitions that were named and never seen.
    pub fn missing(&self) -> impl Iterator<Item = &str> {
        self.iter().filter(|(_, times)| *times == 0).map(|(transition, _)| transition)
    }
}
