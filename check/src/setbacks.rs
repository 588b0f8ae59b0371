//! Setbacks of the stack while it comes up ([`machine::setback`]): what then fails must leave nothing behind, and succeed once nothing is
//! in the way. All that follows runs on hardware that has had a set-up that failed half-way.

use crate::draw::{Draw, Knobs};
use crate::verdict::violate;
use machine::setback::Setback;
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// More acts than any bring-up has.
const SPARED_MAX: u64 = 1_000;

/// The kinds, from 1 on in the knob.
const KINDS: [Setback; 2] = [Setback::NoMemory, Setback::Stall];
/// So many of a hundred histories have one.
const PERCENT: u64 = 15;

/// The setback of a history, if it has one, for all operations that bring its stack up. It strikes once.
#[derive(Clone, Default, Debug)]
pub struct Setbacks(Option<Arc<Planned>>);

#[derive(Debug)]
struct Planned {
    kind: Setback,
    /// So many acts go well before it.
    spared: AtomicU32,
    is_over: AtomicBool,
}

impl Setbacks {
    /// Draws whether there is one, and behind how many acts. Histories that are compared with each other have none, nor have small
    /// machines but those of [`crate::single`]. Devices that stall are never drawn: what a driver keeps because a device may be late
    /// stays allocated for good, and a search lasts for days.
    pub(crate) fn draw(knobs: &mut Knobs, may_fall_back: bool) -> Self {
        let drawn = |draw: &mut Draw| u64::from(draw.percent(PERCENT));
        let kind = knobs.number_with("setback", 0..=KINDS.len() as u64, 0, drawn).checked_sub(1);
        let spared = knobs.number_with("spared", 0..=SPARED_MAX, 0, |draw| draw.below(40)) as u32;
        let planned = |kind| Planned { kind, spared: AtomicU32::new(spared), is_over: AtomicBool::new(false) };
        let kind = kind.filter(|_| may_fall_back).map(|index| KINDS[index as usize]);
        Self(kind.map(|kind| Arc::new(planned(kind))))
    }

    /// Does what must succeed. If the setback makes it fail, it must succeed behind it; where a device stalled, behind `mend`.
    ///
    /// # Panics
    /// When it fails without a setback, or once more behind it; when it has kept memory that no device uses.
    pub(crate) fn meet<T, E: Display>(&self, what: &str, attempt: impl Fn() -> Result<T, E>, mend: impl Fn()) -> T {
        self.tried(what, None, &attempt).unwrap_or_else(|| {
            if self.0.as_ref().is_some_and(|planned| planned.is_over.load(Relaxed) && planned.kind == Setback::Stall) {
                mend();
            }
            succeed(what, attempt())
        })
    }

    /// The same where only memory can run out: behind a command without an answer a device is not to be mended so simply.
    pub(crate) fn meet_without_memory<T, E: Display>(&self, what: &str, attempt: impl Fn() -> Result<T, E>) -> T {
        self.tried(what, Some(Setback::NoMemory), &attempt).unwrap_or_else(|| succeed(what, attempt()))
    }

    /// The first attempt, under the setback, if it is of this kind. None if another attempt must be made.
    fn tried<T, E: Display>(&self, what: &str, only: Option<Setback>, attempt: impl Fn() -> Result<T, E>) -> Option<T> {
        let planned = self.0.as_ref().filter(|planned| !planned.is_over.load(Relaxed))?;
        if only.is_some_and(|only| only != planned.kind) {
            return None;
        }
        let spared = planned.spared.load(Relaxed);
        machine::begin_setback(planned.kind, spared);
        let first = attempt();
        let endured = machine::end_setback();
        planned.spared.store(spared.saturating_sub(endured.acts), Relaxed);
        planned.is_over.store(endured.struck, Relaxed);
        match first {
            Ok(value) => Some(value),
            Err(error) if !endured.struck => violate("bring-up", format!("{what}: {error}")),
            // What a device does not do in time it may do later, so its driver may keep what it was told of.
            Err(_) if planned.kind == Setback::Stall || endured.unused.is_empty() => None,
            Err(error) => violate("bring-up", format!("{what} failed ({error}) and keeps {:x?}", endured.unused)),
        }
    }
}

fn succeed<T, E: Display>(what: &str, result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| violate("bring-up", format!("{what}: {error}")))
}
