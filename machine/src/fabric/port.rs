//! A root port: one drive's link, and the order of what passes it.

use crate::model::{Model, ModelId, Upstream};
use crate::time::Ps;
use crate::world::World;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// The constants of a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RootPortConfig {
    /// Shown in traces and faults.
    pub name: String,
    /// Payload bytes that the link carries a second.
    pub link_bytes_per_second: u64,
    /// For how long a message keeps later DMA of its drive back, because it may not be overtaken (PCI Express Base
    /// Specification, "Transaction Ordering Rules": a posted request never passes an earlier one).
    pub message_order_time: Ps,
    /// Messages that may wait at the IOMMU; a further one blocks the port.
    pub waiting_messages_max: u32,
}

/// Events of a port.
mod code {
    /// The last byte of the transfer on the link has passed.
    pub(super) const TRANSFERRED: u32 = 0;
    /// The IOMMU has taken a message while the port was blocked.
    pub(super) const CREDIT: u32 = 1;
}

/// The places of one port's messages at the IOMMU.
struct Places {
    max: u32,
    taken: Cell<u32>,
    blocked: Cell<bool>,
}

/// The places of all ports of an IOMMU: it frees them, and tells a port only when that is blocked, so that a message
/// costs no event for its credit. Clones are the same table.
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

    /// The IOMMU has taken a message of `from`. Requesters without a port have no places.
    pub(crate) fn release(&self, world: &mut World<'_>, from: ModelId) {
        let table = self.0.borrow();
        let Some(Some(places)) = table.get(from.0 as usize) else { return };
        places.taken.set(places.taken.get() - 1);
        if places.blocked.replace(false) {
            world.schedule_for(from, world.now(), code::CREDIT, 0);
        }
    }
}

/// One link, and what waits for it.
///
/// A transfer occupies the link for its bytes; when its last byte has passed, its model gets its event. Transfers go in
/// turn. A message does not wait for data that the drive has not put on the link yet: it is sent between them, goes to
/// the IOMMU at once, and keeps the following transfers back for a time. When too many messages wait there, the next
/// one stays here, and no transfer starts before it has gone.
pub struct RootPort {
    iommu: ModelId,
    config: RootPortConfig,
    places: Rc<Places>,
    /// Picoseconds a byte, times 2^20.
    byte_time_q20: u64,
    transfers: VecDeque<Transfer>,
    messages: VecDeque<Upstream>,
    /// When the next transfer may start: the link has carried what was put on it, and messages are ordered.
    link_free: Ps,
    /// The transfer that is on the link, or next on it once messages are ordered.
    on_link: Option<Transfer>,
    blocked_since: Option<Ps>,
    bytes: u64,
    messages_passed: u64,
    link: Ps,
    order: Ps,
    blocked: Ps,
}

/// A transfer that waits, and whom its end concerns.
struct Transfer {
    model: ModelId,
    bytes: u32,
    code: u32,
    arg: u64,
}

impl RootPort {
    /// A port with the number `id` in front of `iommu`, whose `credits` it uses.
    pub fn new(id: ModelId, iommu: ModelId, config: RootPortConfig, credits: &Credits) -> Self {
        let places = credits.register(id, config.waiting_messages_max);
        let byte_time_q20 = (1_000_000_000_000 << 20) / u128::from(config.link_bytes_per_second.max(1));
        Self {
            iommu,
            config,
            places,
            byte_time_q20: u64::try_from(byte_time_q20).unwrap_or(u64::MAX),
            transfers: VecDeque::new(),
            messages: VecDeque::new(),
            link_free: Ps::default(),
            on_link: None,
            blocked_since: None,
            bytes: 0,
            messages_passed: 0,
            link: Ps::default(),
            order: Ps::default(),
            blocked: Ps::default(),
        }
    }

    /// Lets pass what may pass now.
    fn advance(&mut self, world: &mut World<'_>) {
        while let Some(&message) = self.messages.front() {
            if self.places.taken.get() >= self.places.max {
                self.places.blocked.set(true);
                self.blocked_since.get_or_insert(world.now());
                return;
            }
            self.messages.pop_front();
            self.pass(world, message);
        }
        if let Some(since) = self.blocked_since.take() {
            let blocked = world.now() - since;
            self.blocked += blocked;
            world.trace("blocked", since, blocked, 0);
        }
        if self.on_link.is_none()
            && let Some(transfer) = self.transfers.pop_front()
        {
            let length = Ps(((u128::from(transfer.bytes) * u128::from(self.byte_time_q20)) >> 20) as u64);
            self.link += length;
            self.bytes += u64::from(transfer.bytes);
            self.link_free = self.link_free.max(world.now()) + length;
            world.schedule(self.link_free, code::TRANSFERRED, 0);
            self.on_link = Some(transfer);
        }
    }

    /// A message has its place: it goes, and the next transfer waits for its order.
    fn pass(&mut self, world: &mut World<'_>, message: Upstream) {
        let stall = world.jitter(self.config.message_order_time);
        self.places.taken.set(self.places.taken.get() + 1);
        self.messages_passed += 1;
        self.order += stall;
        self.link_free = self.link_free.max(world.now()) + stall;
        world.upstream(self.iommu, message);
    }
}

impl Model for RootPort {
    fn name(&self) -> &str {
        &self.config.name
    }

    fn event(&mut self, world: &mut World<'_>, code: u32, _arg: u64) {
        if code == code::TRANSFERRED
            && let Some(transfer) = self.on_link.take()
        {
            world.chain(transfer.model, transfer.code, transfer.arg);
        }
        self.advance(world);
    }

    fn read(&mut self, world: &mut World<'_>, region: u8, offset: u32, _width_bytes: u8) -> u64 {
        world.fault("read of a root port, which has no registers", region.into(), format!("offset {offset:#x}"));
        u64::MAX
    }

    fn write(&mut self, world: &mut World<'_>, region: u8, offset: u32, _width_bytes: u8, _value: u64) {
        world.fault("write to a root port, which has no registers", region.into(), format!("offset {offset:#x}"));
    }

    fn upstream(&mut self, world: &mut World<'_>, _from: ModelId, request: Upstream) {
        match request {
            Upstream::Transfer { model, bytes, code, arg } => {
                self.transfers.push_back(Transfer { model, bytes, code, arg });
            }
            Upstream::Message { .. } => self.messages.push_back(request),
        }
        self.advance(world);
    }

    /// `link_ps`: bytes on the link; `order_ps`: the link kept free behind messages; `blocked_ps`: the port stood.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("bytes", self.bytes),
            ("messages", self.messages_passed),
            ("link_ps", self.link.0),
            ("order_ps", self.order.0),
            ("blocked_ps", self.blocked.0),
        ]
    }

    fn as_any(&mut self) -> &mut dyn core::any::Any {
        self
    }
}
