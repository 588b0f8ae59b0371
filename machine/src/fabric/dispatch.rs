//! The unit of a socket that delivers interrupt messages to the socket's LAPICs.

use crate::time::Ps;
use crate::world::World;
use std::cell::Cell;
use std::rc::Rc;

/// One server, first come first served, shared by the IOMMUs of a socket. Clones are the same unit.
///
/// IOMMUs request service in the order of events. So the unit serves messages in the order in which they became ready,
/// and no IOMMU can reserve it ahead of time.
#[derive(Clone)]
pub struct Dispatch(Rc<State>);

struct State {
    time: Ps,
    free_at: Cell<Ps>,
    busy: Cell<Ps>,
    served: Cell<u64>,
}

/// Times at which the unit serves a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Slot {
    /// Time at which the unit takes the message from the sender.
    pub(super) taken: Ps,
    /// Time at which the message arrives at the LAPIC.
    pub(super) delivered: Ps,
}

impl Dispatch {
    /// A unit that needs `time` for a message on average.
    pub fn new(time: Ps) -> Self {
        let (free_at, busy, served) = (Cell::default(), Cell::default(), Cell::default());
        Self(Rc::new(State { time, free_at, busy, served }))
    }

    /// Reserves the next free time for a message that is ready now.
    pub(super) fn take(&self, world: &mut World<'_>) -> Slot {
        let taken = self.0.free_at.get().max(world.now());
        let length = world.jitter(self.0.time) + world.message_delay();
        self.0.free_at.set(taken + length);
        self.0.busy.set(self.0.busy.get() + length);
        self.0.served.set(self.0.served.get() + 1);
        Slot { taken, delivered: taken + length }
    }

    /// Total reserved time of the unit. Divided by the elapsed time it is the unit's utilisation.
    pub fn busy(&self) -> Ps {
        self.0.busy.get()
    }

    /// Messages served.
    pub fn served(&self) -> u64 {
        self.0.served.get()
    }
}
