//! Setbacks of the software that runs now.

use super::{Core, current};
use crate::board::Board;
use crate::event::{Event, ModelId};
use crate::observe::Fact;
use crate::setback::{Ended, Endured, STRUCK, Setback};
use core::ops::Range;

impl Board {
    /// An event that waited happens.
    #[cold]
    pub(super) fn dispatch_late(&self, event: Event) {
        self.dispatch(self.now(), event);
    }

    /// Tells of each model that still uses some of a buffer which was given back.
    pub(super) fn tell_of_use(&self, range: &Range<u64>) {
        for (device, model) in (0..).map(ModelId).zip(self.models()) {
            if let Some(address) = model.borrow_mut().given_back(range) {
                self.tell(|| Fact::GivenBack { device, address });
            }
        }
    }
}

impl Core {
    fn end_setback(&self) -> Endured {
        let board = &self.board;
        let Ended { held, released, allocated: mut unused, acts, struck } = board.setback.end();
        for event in held {
            board.dispatch_late(event);
            released.iter().for_each(|range| board.tell_of_use(range));
        }
        unused.retain(|range| !board.models().iter().any(|model| model.borrow().uses(range).is_some()));
        if struck {
            board.tell(|| Fact::Struck { source: ModelId(u32::MAX), fault: STRUCK });
        }
        Endured { acts, struck, unused }
    }
}

/// Begins a setback of this host thread's machine that spares so many acts. Ends the one before. Nothing happens without a machine.
pub fn begin_setback(setback: Setback, spared: u32) {
    end_setback();
    current::try_with(|core| core.board.setback.begin(setback, spared));
}

/// Ends the setback. What waited happens now, in its order; memory that was given back before, and that a model uses then, is told as
/// always.
pub fn end_setback() -> Endured {
    let mut endured = Endured::default();
    current::try_with(|core| endured = core.end_setback());
    endured
}

#[cfg(test)]
mod tests;
