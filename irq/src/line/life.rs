//! The stages of a line's life, and where the line is delivered in each.

use crate::hardware::Hardware;
use crate::{Irq, IrqError, Target};
use alloc::sync::Arc;

/// A line's life: from allocation to the last vector that can still arrive.
pub(crate) enum Life {
    /// No line. The storage may be given to the next line.
    Free,
    /// A line with hardware.
    Allocated { hardware: Arc<Hardware>, stage: Stage },
}

/// The stage of an allocated line.
#[derive(Clone, Copy)]
pub(crate) enum Stage {
    /// The line delivers interrupts.
    Live(Place),
    /// The line was freed, but its vectors may still be pending somewhere.
    BeingFreed,
}

/// Where a live line is delivered.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    /// To a target of its own.
    At(Target),
    /// Still to this target: the affinity has changed, but the line has not moved yet.
    Leaving(Target),
    /// Where its parent line is delivered, or on every CPU: no level can move the line.
    Unmovable,
    /// Nowhere: the line is managed and none of its CPUs is online.
    ShutDown(Shutdown),
}

/// The state of the hardware of a line that is shut down.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shutdown {
    /// The line is new, and was never pointed anywhere: no level is active.
    New,
    /// The line is masked, and still points at the CPU that goes offline.
    Masked,
    /// The hardware lets no interrupt of the line reach a CPU.
    Deactivated,
}

impl Life {
    /// The hardware, until the line's storage is free.
    #[inline]
    pub(crate) fn hardware(&self) -> Option<&Arc<Hardware>> {
        match self {
            Self::Free => None,
            Self::Allocated { hardware, .. } => Some(hardware),
        }
    }

    /// The hardware of a line that is not being freed.
    pub(crate) fn live(&self, irq: Irq) -> Result<Arc<Hardware>, IrqError> {
        match self {
            Self::Allocated { hardware, stage: Stage::Live(_) } => Ok(hardware.clone()),
            _ => Err(IrqError::NoLine(irq)),
        }
    }

    #[inline]
    pub(crate) fn is_live(&self) -> bool {
        matches!(self, Self::Allocated { stage: Stage::Live(_), .. })
    }

    pub(crate) fn is_being_freed(&self) -> bool {
        matches!(self, Self::Allocated { stage: Stage::BeingFreed, .. })
    }

    pub(crate) fn is_free(&self) -> bool {
        matches!(self, Self::Free)
    }

    /// Where the line is delivered, if it has a target of its own.
    #[inline]
    pub(crate) fn target(&self) -> Option<Target> {
        match self {
            Self::Allocated { stage: Stage::Live(Place::At(target) | Place::Leaving(target)), .. } => Some(*target),
            _ => None,
        }
    }

    /// True if the line has a target, and its affinity asks for another.
    #[inline]
    pub(crate) fn move_wanted(&self) -> bool {
        matches!(self, Self::Allocated { stage: Stage::Live(Place::Leaving(_)), .. })
    }

    /// Records whether the affinity asks for another target. Has no effect on a line without a target.
    pub(crate) fn want_move(&mut self, wanted: bool) {
        if let Some(target) = self.target() {
            self.place(if wanted { Place::Leaving(target) } else { Place::At(target) });
        }
    }

    #[inline]
    pub(crate) fn shutdown(&self) -> Option<Shutdown> {
        match self {
            Self::Allocated { stage: Stage::Live(Place::ShutDown(shutdown)), .. } => Some(*shutdown),
            _ => None,
        }
    }

    pub(crate) fn is_shut_down(&self) -> bool {
        self.shutdown().is_some()
    }

    /// Changes the place where a live line is delivered. Returns the former target.
    pub(crate) fn place(&mut self, new: Place) -> Option<Target> {
        let old = self.target();
        if let Self::Allocated { stage: Stage::Live(place), .. } = self {
            *place = new;
        }
        old
    }

    /// Begins to free a live line. Returns the target that it had.
    pub(crate) fn end(&mut self) -> Option<Target> {
        let old = self.target();
        if let Self::Allocated { stage, .. } = self {
            *stage = Stage::BeingFreed;
        }
        old
    }
}
