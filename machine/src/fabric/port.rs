//! A root port: one drive's link, and the order of its traffic (PCI Express Base Specification 6.0, section 2.4.1, table
//! 2-42 "Ordering Rules Summary"; table 2-40 of revision 5.0).
//!
//! | may the row pass the column? | posted request (2) | read request (3) | non-posted with data (4) | completion (5) |
//! |---|---|---|---|---|
//! | posted request (A) | a) No, b) Y/N | Yes | Yes | a) Y/N, b) Yes |
//! | read request (B) | a) No, b) Y/N | Y/N | Y/N | Y/N |
//! | non-posted with data (C) | a) No, b) Y/N | Y/N | Y/N | Y/N |
//! | completion (D) | a) No, b) Y/N | Yes | Yes | a) Y/N, b) No |
//!
//! The case b) is in column 2 a request with Relaxed Ordering set (A, C, D) or of another requester with ID-based ordering
//! set (all rows), in A5 a bridge to conventional PCI, and in D5 completions of one read. The attribute of the row counts,
//! not that of the column. Left out here: rows and columns of non-posted requests with data, which no model sends up its
//! link, and requests of one requester with two PASIDs.
//!
//! Messages (MSI) are posted memory writes that never carry the Relaxed Ordering attribute (section 2.2.6.4). Attributes
//! "are hints that allow, but do not require, optimizations" (2.2.6.3). A port may even declare that it does not use the
//! relaxed one: No RO-enabled PR-PR Passing, in Device Capabilities 2 (7.5.3.15). Here the rows mean:
//! - A2a: a message passes no data that is on the link. It is sent when the transfer on the link has ended. Data that the
//!   device has not put on the link yet were not sent before it.
//! - A2a: data pass no message that waits for a place at the IOMMU, and follow a message that has gone by
//!   [`RootPortConfig::message_order_time`]. A2b: data with the Relaxed Ordering attribute do pass it where the port
//!   uses that permission ([`RootPortConfig::relaxed_ordering`]); the completion entry behind those data has no such
//!   attribute and waits.
//! - A2b: another requester's requests pass only with ID-based ordering ([`RootPortConfig::id_based_ordering`]).
//! - A3, A5a: messages and data do not wait for read requests and completions.
//! - B2a: a read request waits for the messages, and for the data on the link, that were sent before it.
//! - D2a: completions come down the link's other direction, where the posted requests are register writes; those arrive at
//!   once, so no completion meets one.

use super::outbox::{CREDIT, Message, Outbox, Rate};
use crate::model::{Model, ModelId, Traffic, Upstream};
use crate::time::Ps;
use crate::world::World;
use std::collections::VecDeque;

pub use super::outbox::Credits;

/// The constants of a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RootPortConfig {
    /// Name in traces and faults.
    pub name: String,
    /// Payload bytes that the link carries a second, in each direction.
    pub link_bytes_per_second: u64,
    /// Time for which a message delays later requests that may not pass it.
    pub message_order_time: Ps,
    /// Maximum number of messages at the IOMMU. One more message blocks the port.
    pub waiting_messages_max: u32,
    /// Data that carry the Relaxed Ordering attribute pass messages. The specification permits this (A2b) and demands it
    /// nowhere.
    pub relaxed_ordering: bool,
    /// Requests of one requester pass those of another: the devices set the ID-based ordering attribute, and the port
    /// uses that permission.
    pub id_based_ordering: bool,
}

/// The event of a port besides [`CREDIT`]: the last byte of the transfer on the link has passed. Argument: the number
/// of the transfer's last start.
const TRANSFERRED: u32 = 0;

/// One link and the requests that wait for it.
///
/// A transfer occupies the link for its bytes. When the last byte has passed, the transfer's model gets its event.
/// Writes run one after another up the link, and reads' data run down it. A message does not wait for data that the
/// drive has not put on the link yet: it is sent between transfers. A message without a place at the IOMMU stays here,
/// and nothing starts that may not pass it.
pub struct RootPort {
    config: RootPortConfig,
    rate: Rate,
    outbox: Outbox,
    /// Writes that are not on the link yet, in their devices.
    writes: VecDeque<Transfer>,
    /// Reads whose requests may not pass a message that waits.
    reads: VecDeque<Transfer>,
    /// The write that is on the link, or that is next on it once messages are ordered.
    on_link: Option<OnLink>,
    /// Starts so far: an event of an earlier start is stale.
    starts: u64,
    /// Writes whose completion entries wait behind messages.
    held: VecDeque<(u64, Transfer)>,
    /// The last write's end.
    idle_from: Ps,
    /// Requests that may not pass the last message start from here on.
    ordered_from: Ps,
    /// The last message's requester.
    ordered_by: u16,
    /// End of the last read.
    down_idle_from: Ps,
    bytes: u64,
    link: Ps,
    down: Ps,
    order: Ps,
}

/// A waiting transfer, and the model that gets its end event.
#[derive(Clone, Copy)]
struct Transfer {
    model: ModelId,
    requester: u16,
    relaxed: bool,
    bytes: u32,
    code: u32,
    arg: u64,
    /// When the link was free for it, if it was.
    ready: Option<Ps>,
}

/// The write on the link.
struct OnLink {
    transfer: Transfer,
    start: Ps,
    end: Ps,
    /// The number of the last message that it passed; its completion entry does not.
    entry_after: u64,
}

impl RootPort {
    /// A port with the number `id` in front of `iommu`. It uses `credits`.
    pub fn new(id: ModelId, iommu: ModelId, config: RootPortConfig, credits: &Credits) -> Self {
        Self {
            rate: Rate::new(config.link_bytes_per_second),
            outbox: Outbox::new(id, iommu, config.waiting_messages_max, credits),
            config,
            writes: VecDeque::new(),
            reads: VecDeque::new(),
            on_link: None,
            starts: 0,
            held: VecDeque::new(),
            idle_from: Ps::default(),
            ordered_from: Ps::default(),
            ordered_by: 0,
            down_idle_from: Ps::default(),
            bytes: 0,
            link: Ps::default(),
            down: Ps::default(),
            order: Ps::default(),
        }
    }

    /// Passes the requests that may pass now.
    fn advance(&mut self, world: &mut World<'_>) {
        self.pass_messages(world);
        if !self.reads.is_empty() {
            self.pass_reads(world);
        }
        if self.on_link.is_none() && !self.writes.is_empty() {
            self.start_write(world);
        }
    }

    fn pass_messages(&mut self, world: &mut World<'_>) {
        while let Some(&Message { requester, .. }) = self.outbox.first() {
            if let Some(on_link) = &self.on_link {
                if on_link.start > world.now() {
                    self.take_back();
                } else if !self.is_unrelated(on_link.transfer.requester, requester) {
                    return;
                }
            }
            if !self.outbox.pass_first(world) {
                return;
            }
            let stall = world.jitter(self.config.message_order_time);
            self.ordered_from = self.ordered_from.max(self.idle_from).max(world.now()) + stall;
            self.ordered_by = requester;
            self.release_entries(world);
        }
    }

    /// The next write has not begun, so it was not sent before a message that comes now.
    fn take_back(&mut self) {
        if let Some(OnLink { transfer, .. }) = self.on_link.take() {
            self.starts += 1;
            self.writes.push_front(transfer);
        }
    }

    /// Read requests that may pass the messages which wait. Their data follow each other down the link.
    fn pass_reads(&mut self, world: &mut World<'_>) {
        for _ in 0..self.reads.len() {
            let Some(read) = self.reads.pop_front() else { return };
            if !self.outbox.requesters().all(|requester| self.is_unrelated(read.requester, requester)) {
                self.reads.push_back(read);
                continue;
            }
            let behind_write = self.on_link.as_ref().map_or(Ps(0), |on_link| on_link.end);
            let behind_message =
                if self.is_unrelated(read.requester, self.ordered_by) { Ps(0) } else { self.ordered_from };
            let time = self.rate.time(read.bytes);
            self.down_idle_from = self.down_idle_from.max(world.now()).max(behind_write).max(behind_message) + time;
            self.down += time;
            self.bytes += u64::from(read.bytes);
            world.schedule_for(read.model, self.down_idle_from, read.code, read.arg);
        }
    }

    /// The first write that may start takes the link.
    fn start_write(&mut self, world: &mut World<'_>) {
        let Some(transfer) = self.take_write() else { return };
        let now = self.idle_from.max(world.now());
        let free = self.passes_messages(&transfer) || self.is_unrelated(transfer.requester, self.ordered_by);
        let start = if free { now } else { now.max(self.ordered_from) };
        let end = start + self.rate.time(transfer.bytes);
        let entry_after = if self.passes_messages(&transfer) { self.outbox.last_number() } else { 0 };
        self.starts += 1;
        world.schedule(end, TRANSFERRED, self.starts);
        let transfer = Transfer { ready: transfer.ready.or(Some(now)), ..transfer };
        self.on_link = Some(OnLink { transfer, start, end, entry_after });
    }

    /// The first write that no message holds back.
    fn take_write(&mut self) -> Option<Transfer> {
        if self.outbox.is_empty() {
            return self.writes.pop_front();
        }
        let may_start = |write: &Transfer| {
            self.passes_messages(write) || self.outbox.requesters().all(|of| self.is_unrelated(write.requester, of))
        };
        let next = self.writes.iter().position(may_start)?;
        self.writes.remove(next)
    }

    /// A2b: the write carries the Relaxed Ordering attribute, and the port uses it.
    fn passes_messages(&self, write: &Transfer) -> bool {
        self.config.relaxed_ordering && write.relaxed
    }

    /// A2b, B2b: requests of two requesters, with ID-based ordering.
    fn is_unrelated(&self, one: u16, other: u16) -> bool {
        self.config.id_based_ordering && one != other
    }

    /// The write on the link has ended. What its device writes next has no attribute: it follows the messages that the
    /// data passed.
    fn transferred(&mut self, world: &mut World<'_>) {
        let Some(OnLink { transfer, start, end, entry_after }) = self.on_link.take() else { return };
        self.idle_from = end;
        self.link += end - start;
        self.order += start - transfer.ready.unwrap_or(start);
        self.bytes += u64::from(transfer.bytes);
        if entry_after > self.outbox.passed || !self.held.is_empty() {
            self.held.push_back((entry_after, transfer));
        } else if self.passes_messages(&transfer) && self.ordered_from > world.now() {
            world.schedule_for(transfer.model, self.ordered_from, transfer.code, transfer.arg);
        } else {
            world.chain(transfer.model, transfer.code, transfer.arg);
        }
    }

    /// A message has gone: the entries that waited for it follow.
    fn release_entries(&mut self, world: &mut World<'_>) {
        while let Some((_, transfer)) = self.held.pop_front_if(|(after, _)| *after <= self.outbox.passed) {
            world.schedule_for(transfer.model, self.ordered_from, transfer.code, transfer.arg);
        }
    }
}

impl Model for RootPort {
    fn name(&self) -> &str {
        &self.config.name
    }

    fn event(&mut self, world: &mut World<'_>, code: u32, arg: u64) {
        debug_assert!(code == TRANSFERRED || code == CREDIT, "an event of a port");
        if code == TRANSFERRED {
            if arg != self.starts || self.on_link.is_none() {
                return;
            }
            self.transferred(world);
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
            Upstream::Transfer { model, requester, traffic, bytes, code, arg } => {
                let relaxed = traffic == Traffic::Write { relaxed: true };
                let transfer = Transfer { model, requester, relaxed, bytes, code, arg, ready: None };
                if traffic == Traffic::Read { self.reads.push_back(transfer) } else { self.writes.push_back(transfer) }
            }
            Upstream::Message { requester, address, data } => {
                self.outbox.put(world, Message { requester, address, data });
            }
        }
        self.advance(world);
    }

    /// `link_ps`: writes on the link; `order_ps`: the link kept free behind messages although a write waited;
    /// `blocked_ps`: a message had no place; `merged`: messages that met an equal one here; `waiting`: messages here now;
    /// `down_ps`: reads' data on the link.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("bytes", self.bytes),
            ("messages", self.outbox.passed),
            ("link_ps", self.link.0),
            ("order_ps", self.order.0),
            ("blocked_ps", self.outbox.blocked.0),
            ("merged", self.outbox.merged),
            ("waiting", self.outbox.len() as u64),
            ("down_ps", self.down.0),
        ]
    }

    fn as_any(&mut self) -> &mut dyn core::any::Any {
        self
    }
}
