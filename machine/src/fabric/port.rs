//! A root port: one drive's link, and the order of its traffic.

use crate::model::{Model, ModelId, Upstream};
use crate::time::Ps;
use crate::world::World;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// The constants of a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RootPortConfig {
    /// Name in traces and faults.
    pub name: String,
    /// Payload bytes that the link carries a second.
    pub link_bytes_per_second: u64,
    /// Time for which a message delays later DMA of its drive, because DMA may not overtake it (PCI Express Base
    /// Specification, "Transaction Ordering Rules": a posted request never passes an earlier one).
    pub message_order_time: Ps,
    /// Maximum number of messages that wait at the IOMMU. One more message blocks the port.
    pub waiting_messages_max: u32,
}

/// Events of a port.
mod code {
    /// The last byte of the transfer on the link has passed.
    pub(super) const TRANSFERRED: u32 = 0;
    /// The IOMMU has taken a message while the port was blocked. The port continues.
    pub(super) const CREDIT: u32 = 1;
}

/// Credits of one port: places for its messages at the IOMMU.
struct Places {
    max: u32,
    taken: Cell<u32>,
    blocked: Cell<bool>,
}

/// Credits of all ports of an IOMMU. The IOMMU frees places and informs a port only when the port is blocked, so a
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

    /// The IOMMU has taken a message of `from`. Requesters without a port have no places to free.
    pub(crate) fn release(&self, world: &mut World<'_>, from: ModelId) {
        let table = self.0.borrow();
        let Some(Some(places)) = table.get(from.0 as usize) else { return };
        places.taken.set(places.taken.get() - 1);
        if places.blocked.replace(false) {
            world.schedule_for(from, world.now(), code::CREDIT, 0);
        }
    }
}

/// One link and the requests that wait for it.
///
/// A transfer occupies the link for its bytes. When the last byte has passed, the transfer's model gets its event.
/// Transfers run one after another. A message does not wait for data that the drive has not put on the link yet: it is
/// sent between transfers, goes to the IOMMU at once, and delays the following transfers for a time. When too many
/// messages wait at the IOMMU, the next message stays here, and no transfer starts until that message has gone.
pub struct RootPort {
    iommu: ModelId,
    config: RootPortConfig,
    places: Rc<Places>,
    /// Picoseconds per byte, times 2^20.
    byte_time_q20: u64,
    transfers: VecDeque<Transfer>,
    messages: VecDeque<Upstream>,
    /// Earliest start of the next transfer: the link is idle again, and messages are ordered.
    link_free: Ps,
    /// The transfer that is on the link, or that is next on it once messages are ordered.
    on_link: Option<Transfer>,
    blocked_since: Option<Ps>,
    bytes: u64,
    messages_passed: u64,
    link: Ps,
    order: Ps,
    blocked: Ps,
}

/// A waiting transfer, and the model that gets its end event.
struct Transfer {
    model: ModelId,
    bytes: u32,
    code: u32,
    arg: u64,
}

impl RootPort {
    /// A port with the number `id` in front of `iommu`. It uses `credits`.
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

    /// Passes the requests that may pass now.
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

    /// The message has a place at the IOMMU: it goes there, and the next transfer waits for its ordering time.
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

    /// `link_ps`: bytes on the link; `order_ps`: the link kept free behind messages; `blocked_ps`: the port was
    /// blocked.
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
