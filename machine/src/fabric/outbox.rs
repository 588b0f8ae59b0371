//! The way of messages to an IOMMU: a place there for each, and a bounded queue for those that have none yet.

use crate::model::{ModelId, Upstream};
use crate::observe::Fact;
use crate::time::Ps;
use crate::world::World;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// Places of one port at its IOMMU.
struct Places {
    max: u32,
    taken: Cell<u32>,
    blocked: Cell<bool>,
}

/// Places of all ports of an IOMMU. The IOMMU frees places and informs a port only when the port is blocked, so a
/// message's credit costs no event. Clones are the same table.
#[derive(Clone, Default)]
pub struct Credits(Rc<RefCell<Vec<Option<Rc<Places>>>>>);

impl Credits {
    fn register(&self, port: ModelId, max: u32) -> Rc<Places> {
        let places = Rc::new(Places { max, taken: Cell::new(0), blocked: Cell::new(false) });
        let mut table = self.0.borrow_mut();
        let index = port.0 as usize;
        if table.len() <= index {
            table.resize(index + 1, None);
        }
        table[index] = Some(places.clone());
        places
    }

    /// The IOMMU is done with a message of `from`. Requesters without a port have no places to free.
    pub(crate) fn release(&self, world: &mut World<'_>, from: ModelId) {
        let table = self.0.borrow();
        let Some(Some(places)) = table.get(from.0 as usize) else { return };
        places.taken.set(places.taken.get() - 1);
        if places.blocked.replace(false) {
            world.schedule_for(from, world.now(), CREDIT, 0);
        }
    }

    /// True if the messages of `from` take places.
    pub(super) fn covers(&self, from: ModelId) -> bool {
        matches!(self.0.borrow().get(from.0 as usize), Some(Some(_)))
    }
}

/// The event that an IOMMU sends a port: a place is free again.
pub(super) const CREDIT: u32 = 1;

/// A message on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Message {
    pub(super) requester: u16,
    pub(super) address: u64,
    pub(super) data: u32,
}

/// Messages in front of an IOMMU, first come first served.
///
/// A message leaves when it has a place at the IOMMU. A device has one request of each of its vectors at most: a message
/// equal to one that waits here merges with it. So at most as many messages wait as the devices have vectors.
pub(super) struct Outbox {
    iommu: ModelId,
    places: Rc<Places>,
    waiting: VecDeque<Message>,
    blocked_since: Option<Ps>,
    /// Messages that have left.
    pub(super) passed: u64,
    /// Messages that merged with one that waited.
    pub(super) merged: u64,
    /// Time in which the first message waited for a place.
    pub(super) blocked: Ps,
}

impl Outbox {
    /// The outbox of model `id`, with `places_max` places at `iommu`.
    pub(super) fn new(id: ModelId, iommu: ModelId, places_max: u32, credits: &Credits) -> Self {
        let places = credits.register(id, places_max);
        let (waiting, blocked) = (VecDeque::new(), Ps::default());
        Self { iommu, places, waiting, blocked_since: None, passed: 0, merged: 0, blocked }
    }

    /// Takes a message of a device.
    pub(super) fn put(&mut self, world: &mut World<'_>, message: Message) {
        if self.waiting.contains(&message) {
            self.merged += 1;
            let Message { requester, address, data } = message;
            world.tell(|| Fact::MessageMerged { at: world.me(), requester, address, data });
        } else {
            self.waiting.push_back(message);
        }
    }

    /// The message that leaves next.
    pub(super) fn first(&self) -> Option<&Message> {
        self.waiting.front()
    }

    /// Requesters of the messages that wait.
    pub(super) fn requesters(&self) -> impl Iterator<Item = u16> + '_ {
        self.waiting.iter().map(|message| message.requester)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Messages that wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// The number of the last message that waits, in the order of leaving; messages that have left count from 1.
    pub(super) fn last_number(&self) -> u64 {
        self.passed + self.waiting.len() as u64
    }

    /// Sends the first message if it has a place. False: there is no message, or no place; then [`CREDIT`] comes.
    pub(super) fn pass_first(&mut self, world: &mut World<'_>) -> bool {
        let Some(&Message { requester, address, data }) = self.waiting.front() else { return false };
        if self.places.taken.get() >= self.places.max {
            self.places.blocked.set(true);
            self.blocked_since.get_or_insert(world.now());
            return false;
        }
        self.waiting.pop_front();
        self.places.taken.set(self.places.taken.get() + 1);
        self.passed += 1;
        if let Some(since) = self.blocked_since.take() {
            let blocked = world.now() - since;
            self.blocked += blocked;
            world.trace("blocked", since, blocked, 0);
        }
        world.upstream(self.iommu, Upstream::Message { requester, address, data });
        true
    }
}

/// The time that bytes take on a link.
pub(super) struct Rate {
    /// Picoseconds per byte, times 2^20.
    byte_time_q20: u64,
}

impl Rate {
    pub(super) fn new(bytes_per_second: u64) -> Self {
        let byte_time_q20 = (1_000_000_000_000 << 20) / u128::from(bytes_per_second.max(1));
        Self { byte_time_q20: u64::try_from(byte_time_q20).unwrap_or(u64::MAX) }
    }

    pub(super) fn time(&self, bytes: u32) -> Ps {
        Ps(((u128::from(bytes) * u128::from(self.byte_time_q20)) >> 20) as u64)
    }
}
