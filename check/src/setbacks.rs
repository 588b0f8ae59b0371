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

/// The kinds, from 1 on in the knob, and the names of their cases in [`crate::single`].
pub(crate) const KINDS: [(Setback, &str); 3] = [
    (Setback::NoMemory, "set-up-without-memory"),
    (Setback::Refusal, "set-up-refused"),
    (Setback::Stall, "set-up-stalled"),
];
/// So many of a hundred histories have each of the first two kinds.
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
    /// machines but those of [`crate::single`]. Devices that stall are not drawn: what a driver keeps because a device may be late
    /// stays allocated for good, and a search lasts for days.
    pub(crate) fn draw(knobs: &mut Knobs, may_be_set_back: bool) -> Self {
        let drawn = |draw: &mut Draw| match draw.below(100) / PERCENT {
            kind @ (0 | 1) => kind + 1,
            _ => 0,
        };
        let kind = knobs.number_with("setback", 0..=KINDS.len() as u64, 0, drawn).checked_sub(1);
        let spared = knobs.number_with("spared", 0..=SPARED_MAX, 0, |draw| draw.below(40)) as u32;
        let planned = |kind| Planned { kind, spared: AtomicU32::new(spared), is_over: AtomicBool::new(false) };
        let kind = kind.filter(|_| may_be_set_back).map(|index| KINDS[index as usize].0);
        Self(kind.map(|kind| Arc::new(planned(kind))))
    }

    /// Does what must succeed. If the setback makes it fail, it must succeed behind it.
    ///
    /// # Panics
    /// When it fails without a setback, or once more behind it; when it has kept memory that no device uses.
    pub(crate) fn meet<T, E: Display>(&self, what: &str, attempt: impl Fn() -> Result<T, E>) -> T {
        self.meet_mended(what, attempt, || ())
    }

    /// The same; where a device stalled, it must succeed behind `mend`.
    ///
    /// # Panics
    /// As [`Self::meet`].
    pub(crate) fn meet_mended<T, E: Display>(
        &self,
        what: &str,
        attempt: impl Fn() -> Result<T, E>,
        mend: impl Fn(),
    ) -> T {
        self.tried(what, &attempt).unwrap_or_else(|set_back| {
            if set_back == Some(Setback::Stall) {
                mend();
            }
            succeed(what, attempt())
        })
    }

    /// The first attempt, under the setback.
    ///
    /// # Errors
    /// Another attempt must be made: none was made yet, or it failed by this setback.
    fn tried<T, E: Display>(&self, what: &str, attempt: impl Fn() -> Result<T, E>) -> Result<T, Option<Setback>> {
        let is_due = |planned: &&Arc<Planned>| !planned.is_over.load(Relaxed);
        let planned = self.0.as_ref().filter(is_due).ok_or(None)?;
        let spared = planned.spared.load(Relaxed);
        machine::begin_setback(planned.kind, spared);
        let first = attempt();
        let endured = machine::end_setback();
        planned.spared.store(spared.saturating_sub(endured.acts), Relaxed);
        planned.is_over.store(endured.struck, Relaxed);
        match first {
            Ok(value) => Ok(value),
            Err(error) if !endured.struck => violate("bring-up", format!("{what}: {error}")),
            // What a device does not do in time it may do later, so its driver may keep what it was told of.
            Err(_) if planned.kind == Setback::Stall || endured.unused.is_empty() => Err(Some(planned.kind)),
            Err(error) => violate("bring-up", format!("{what} failed ({error}) and keeps {:x?}", endured.unused)),
        }
    }
}

fn succeed<T, E: Display>(what: &str, result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| violate("bring-up", format!("{what}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hal::{Hal as _, Regs as _};
    use machine::model::Model;
    use machine::time::Ps;
    use machine::world::World;
    use machine::{Machine, MachineConfig, SimHal};

    /// A device that ignores everything.
    struct Dull;

    impl Model for Dull {
        fn name(&self) -> &str {
            "dull"
        }
        fn event(&mut self, _: &mut World<'_>, _: u32, _: u64) {}
        fn read(&mut self, _: &mut World<'_>, _: u8, _: u32, _: u8) -> u64 {
            0
        }
        fn write(&mut self, _: &mut World<'_>, _: u8, _: u32, _: u8, _: u64) {}
        fn as_any(&mut self) -> &mut dyn std::any::Any {
            self
        }
    }

    /// Three operations, the second of which fails the first time: how often each was tried, and how often it was mended.
    fn after(kind: Option<Setback>) -> [(u32, u32); 3] {
        let mut machine = Machine::new(MachineConfig::default());
        let model = machine.add_model(|_| Box::new(Dull));
        let regs = machine.regs(model, 0);
        let boot = move || {
            let planned = |kind| Planned { kind, spared: AtomicU32::new(1), is_over: AtomicBool::new(false) };
            let setbacks = Setbacks(kind.map(|kind| Arc::new(planned(kind))));
            [false, true, false].map(|may_fail| {
                let (tries, mends) = (AtomicU32::new(0), AtomicU32::new(0));
                let attempt = || {
                    regs.write32(0, 0);
                    let failed = SimHal.dma_alloc(8, 8).is_err() || kind == Some(Setback::Stall);
                    let first = tries.fetch_add(1, Relaxed) == 0;
                    if may_fail && first && failed { Err("late") } else { Ok(()) }
                };
                setbacks.meet_mended("it", attempt, || _ = mends.fetch_add(1, Relaxed));
                (tries.into_inner(), mends.into_inner())
            })
        };
        machine.run_boot(Ps::from_ns(1_000_000), boot).expect("it ends")
    }

    /// Defect: what was to mend a device that had stalled was done before every operation, and behind lack of memory.
    #[test]
    fn only_what_a_stall_has_struck_is_mended() {
        assert_eq!(after(None), [(1, 0); 3]);
        assert_eq!(after(Some(Setback::NoMemory)), [(1, 0), (2, 0), (1, 0)]);
        assert_eq!(after(Some(Setback::Stall)), [(1, 0), (2, 1), (1, 0)]);
    }
}
