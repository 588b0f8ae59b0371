//! The server of a unit: one request at a time.

use super::super::dispatch::Slot;
use super::request::{self, Entry, LapicMessage, Mode, Post, Refusal, Request, Route};
use super::{VtdUnit, code};
use crate::model::ModelId;
use crate::observe::{self, Fact};
use crate::time::Ps;
use crate::world::World;
use spec::apic::DeliveryMode;
use spec::vtd::irte;
use spec::vtd::posted::{CONTROL_WORD, Control, WORDS};
use spec::vtd::registers::FaultReason;

/// Notifications of one unit that wait at the dispatch unit at most. Assumed; ON bounds their number too, as one for each
/// descriptor. A further one holds the server.
pub(super) const NOTIFICATIONS_MAX: usize = 16;

/// A request and who sent it.
#[derive(Clone, Copy)]
pub(super) struct Pending {
    from: ModelId,
    request: Request,
    arrived: Ps,
    /// The request occupies a place of its port, or may; requesters without a port have none.
    placed: bool,
}

/// The request in service.
#[derive(Clone, Copy)]
pub(super) struct Service {
    pending: Pending,
    since: Ps,
    work: Work,
}

#[derive(Clone, Copy)]
enum Work {
    Deliver(LapicMessage),
    Post(Post),
    Refuse(Refusal),
}

/// Counters.
#[derive(Default)]
pub(super) struct Totals {
    pub(super) requests: u64,
    pub(super) plain: u64,
    pub(super) remapped: u64,
    pub(super) posted: u64,
    pub(super) notifications: u64,
    pub(super) refused: u64,
    pub(super) cache_misses: u64,
    pub(super) remap: Ps,
    pub(super) hold: Ps,
    pub(super) post: Ps,
    pub(super) dispatch: Ps,
    pub(super) queue: Ps,
    pub(super) merged: u64,
    /// The server was held by a notification that had no room at the dispatch unit.
    pub(super) full: Ps,
}

impl VtdUnit {
    /// A request arrives. Its place at the port stays taken until the unit is done with it. A request of a requester
    /// without places merges with an equal one that waits: so the number of those is bounded too.
    pub(super) fn accept(&mut self, world: &mut World<'_>, from: ModelId, requester: u16, address: u32, data: u32) {
        self.totals.requests += 1;
        let request = Request { requester, address, data };
        let is_equal = |other: &Pending| other.request == request && other.from == from;
        if !self.credits.covers(from) && self.waiting.iter().any(is_equal) {
            self.totals.merged += 1;
            world.tell(|| Fact::MessageMerged { at: world.me(), requester, address: address.into(), data });
            return;
        }
        self.waiting.push_back(Pending { from, request, arrived: world.now(), placed: true });
        if self.service.is_none() {
            self.serve_next(world);
        }
    }

    /// The server is free: it looks up the next request now, and serves it according to the current entry.
    fn serve_next(&mut self, world: &mut World<'_>) {
        let Some(pending) = self.waiting.pop_front() else { return };
        let now = world.now();
        self.totals.queue += now - pending.arrived;
        let requester = pending.request.requester;
        let (work, code, end) = match self.look_up(world, pending.request) {
            Ok(Route::Plain(delivery @ LapicMessage { destination, vector, .. })) => {
                self.totals.plain += 1;
                world.tell(|| Fact::Plain { requester, destination, vector });
                (Work::Deliver(delivery), code::REMAPPED, now)
            }
            Ok(Route::Remapped(delivery @ LapicMessage { destination, vector, .. }, index)) => {
                self.totals.remapped += 1;
                world.tell(|| Fact::Remapped { requester, index, destination, vector });
                (Work::Deliver(delivery), code::REMAPPED, now + world.jitter(self.config.remap_time))
            }
            Ok(Route::Posted(post)) => {
                self.totals.posted += 1;
                let cost = world.jitter(self.config.post_time);
                (Work::Post(post), code::POSTED, world.line_reserve(post.descriptor, now, cost))
            }
            Err(refusal) => (Work::Refuse(refusal), code::REFUSED, now + world.jitter(self.config.remap_time)),
        };
        self.service = Some(Service { pending, since: now, work });
        if end == now && code == code::REMAPPED {
            self.remapped(world);
        } else {
            world.schedule(end, code, 0);
        }
    }

    fn free_place(&self, world: &mut World<'_>, pending: &mut Pending) {
        if core::mem::take(&mut pending.placed) {
            self.credits.release(world, pending.from);
        }
    }

    fn mode(&self) -> Mode {
        Mode {
            remapping: self.status.interrupt_remapping(),
            compatibility: self.status.compatibility_format(),
            extended: self.table.extended_interrupt_mode(),
            posting: self.config.posted_interrupts,
            entries: 2 << self.table.size(),
        }
    }

    fn look_up(&mut self, world: &World<'_>, request: Request) -> Result<Route, Refusal> {
        let mode = self.mode();
        let table = self.table.page() << 12;
        let (cache, misses) = (&mut self.cache, &mut self.totals.cache_misses);
        request::route(request, mode, |index| {
            if let Some(bits) = cache.get(index) {
                return Ok(Entry { bits, checked: true });
            }
            *misses += 1;
            let at = table.wrapping_add(u64::from(index) * irte::SIZE as u64);
            let [low, high] = world.read_words(at).map_err(drop)?;
            let bits = u128::from(high) << 64 | u128::from(low);
            let checked = irte::Common::from_bits(bits).present() && request::well_formed(bits, mode);
            if checked {
                cache.keep(index, bits);
            }
            Ok(Entry { bits, checked })
        })
    }

    /// Ends the service and starts the next request.
    fn finish(&mut self, world: &mut World<'_>) {
        self.service = None;
        if self.draining {
            self.draining = false;
            self.drain(world);
        }
        self.serve_next(world);
    }

    /// A request is ready for delivery and holds the server until it is delivered.
    pub(super) fn remapped(&mut self, world: &mut World<'_>) {
        let Some(Service { mut pending, since, work: Work::Deliver(delivery) }) = self.service else { return };
        let now = world.now();
        let slot = self.dispatch.take(world);
        self.totals.remap += now - since;
        self.totals.hold += slot.delivered - now;
        self.totals.dispatch += slot.delivered - slot.taken;
        self.last_delivery = self.last_delivery.max(slot.delivered);
        if slot.taken == now {
            self.free_place(world, &mut pending);
        } else if pending.placed {
            world.schedule(slot.taken, code::TAKEN, pending.from.0.into());
        }
        world.schedule(slot.delivered, code::SERVED, delivery.pack());
        world.trace("remap", since, slot.delivered - since, pending.request.requester.into());
    }

    /// The request was delivered.
    pub(super) fn served(&mut self, world: &mut World<'_>, packed: u64) {
        self.deliver(world, packed);
        self.finish(world);
    }

    /// The time until which the dispatch unit takes no further notification of this unit. None: it takes one now.
    fn notifications_full_until(&mut self, now: Ps) -> Option<Ps> {
        while self.notifications.pop_front_if(|taken| *taken <= now).is_some() {}
        let excess = (self.notifications.len() + 1).checked_sub(NOTIFICATIONS_MAX + 1)?;
        self.notifications.get(excess).copied()
    }

    /// Sends a notification that has room at the dispatch unit.
    fn notify(&mut self, world: &mut World<'_>, notification: LapicMessage) {
        let slot = self.send(world, notification);
        self.notifications.push_back(slot.taken);
    }

    /// A notification that held the server has room now.
    pub(super) fn notified(&mut self, world: &mut World<'_>, packed: u64) {
        self.notify(world, LapicMessage::unpack(packed));
        self.finish(world);
    }

    /// Sends a message that does not hold the server: a notification, or one of the unit's events.
    pub(super) fn send(&mut self, world: &mut World<'_>, delivery: LapicMessage) -> Slot {
        let slot = self.dispatch.take(world);
        self.totals.dispatch += slot.delivered - slot.taken;
        self.last_delivery = self.last_delivery.max(slot.delivered);
        world.schedule(slot.delivered, code::DELIVERED, delivery.pack());
        slot
    }

    /// The message arrives at the LAPICs. Logical destinations have x2APIC format with derived ids: cluster in 31:16,
    /// one bit for each of the cluster's 16 CPUs in 15:0 (SDM vol. 3, "Deriving Logical x2APIC ID"). Lowest priority
    /// selects the first.
    pub(super) fn deliver(&mut self, world: &mut World<'_>, packed: u64) {
        let delivery = LapicMessage::unpack(packed);
        let arbitrated = delivery.mode == DeliveryMode::LOWEST_PRIORITY;
        if delivery.mode != DeliveryMode::FIXED && !arbitrated {
            let text = format!("{delivery:x?}");
            world.fault("delivery mode that no LAPIC here takes", delivery.destination.into(), text);
        } else if delivery.logical {
            let base = delivery.destination >> 16 << 4;
            let mut members = (0..16).filter(|bit| delivery.destination >> bit & 1 != 0);
            let first = if arbitrated { members.next() } else { None };
            first
                .into_iter()
                .chain(members.filter(|_| !arbitrated))
                .for_each(|bit| arrive(world, base + bit, delivery));
        } else {
            arrive(world, delivery.destination, delivery);
        }
    }

    /// The update of a descriptor happens (VT-d, "Interrupt-Posting Hardware Operation").
    pub(super) fn posted(&mut self, world: &mut World<'_>) {
        let Some(Service { mut pending, since, work: Work::Post(post) }) = self.service else { return };
        let (now, requester) = (world.now(), pending.request.requester);
        self.totals.post += now - since;
        world.trace("post", since, now - since, requester.into());
        self.free_place(world, &mut pending);
        match self.update(world, requester, post) {
            Ok(Some(notification)) => {
                self.totals.notifications += 1;
                if let Some(room_from) = self.notifications_full_until(now) {
                    self.totals.full += room_from - now;
                    return world.schedule(room_from, code::NOTIFIED, notification.pack());
                }
                self.notify(world, notification);
            }
            Ok(None) => {}
            Err(reason) => {
                let refusal = Refusal { reason, index: post.index, silent: post.fault_disable };
                self.refuse(world, pending.request, refusal);
            }
        }
        self.finish(world);
    }

    /// Sets PIR\[vector\]; if ON is 0 and (the entry is urgent or SN is 0), sets ON and notifies NDST with NV.
    fn update(&self, world: &mut World<'_>, requester: u16, post: Post) -> Result<Option<LapicMessage>, FaultReason> {
        let at = |word: usize| post.descriptor + word as u64 * 8;
        let access = |_| FaultReason::DESCRIPTOR_ACCESS;
        let [control, others @ ..] = world.read_words::<{ WORDS - CONTROL_WORD }>(at(CONTROL_WORD)).map_err(access)?;
        let control = Control::from_bits(control);
        let reserved = others.iter().fold(control.into_bits() & Control::RESERVED, |bits, word| bits | word);
        let extended = self.table.extended_interrupt_mode();
        if reserved != 0 || !extended && control.destination() & !0xff00 != 0 {
            return Err(FaultReason::DESCRIPTOR_RESERVED);
        }
        let bit = 1u64 << (post.vector % 64);
        let earlier = world.update64(at(usize::from(post.vector / 64)), |requests| requests | bit).map_err(access)?;
        let outcome = match control {
            _ if control.outstanding() => observe::Post::Outstanding,
            _ if control.suppress() && !post.urgent => observe::Post::Suppressed,
            _ => observe::Post::Notified,
        };
        let Post { descriptor, vector, .. } = post;
        world.tell(|| Fact::Posted { requester, descriptor, vector, again: earlier & bit != 0, post: outcome });
        if outcome != observe::Post::Notified {
            return Ok(None);
        }
        let with_on = control.with_outstanding(true).into_bits();
        world.write64(at(CONTROL_WORD), with_on).map_err(access)?;
        let destination = if extended { control.destination() } else { control.destination() >> 8 };
        let (vector, mode) = (control.notification_vector(), DeliveryMode::FIXED);
        Ok(Some(LapicMessage { destination, vector, level: false, logical: false, mode }))
    }

    /// A refused request leaves the unit.
    pub(super) fn refused(&mut self, world: &mut World<'_>) {
        let Some(Service { mut pending, since, work: Work::Refuse(refusal) }) = self.service else { return };
        self.totals.remap += world.now() - since;
        self.free_place(world, &mut pending);
        self.refuse(world, pending.request, refusal);
        self.finish(world);
    }

    /// Records a fault for the report, and also for software unless the entry forbids it.
    fn refuse(&mut self, world: &mut World<'_>, request: Request, refusal: Refusal) {
        self.totals.refused += 1;
        world.tell(|| Fact::Blocked {
            requester: request.requester,
            index: refusal.index,
            reason: refusal.reason.0,
            recorded: !refusal.silent,
        });
        if !refusal.silent {
            let due = self.faults.record(request.requester, refusal);
            self.announce_fault(world, due);
        }
        let text = format!(
            "index {:#x}, address {:#x}, data {:#x}, fault reason {:#x}{}",
            refusal.index,
            request.address,
            request.data,
            refusal.reason.0,
            if refusal.silent { ", not recorded (FPD)" } else { "" }
        );
        world.fault(kind(refusal.reason), request.requester.into(), text);
    }

    /// An invalidation continues when all requests looked up before it have arrived.
    pub(super) fn drain(&mut self, world: &mut World<'_>) {
        if self.service.is_some() {
            self.draining = true;
        } else {
            world.schedule(self.last_delivery.max(world.now()), code::DRAINED, self.queue.epoch);
        }
    }
}

fn arrive(world: &mut World<'_>, apic_id: u32, delivery: LapicMessage) {
    if !world.interrupt(apic_id, delivery.vector, delivery.level) {
        world.fault("interrupt that no LAPIC took", apic_id.into(), format!("vector {:#x}", delivery.vector));
    }
}

/// The reason in words, for the report.
fn kind(reason: FaultReason) -> &'static str {
    match reason {
        FaultReason::REQUEST_RESERVED => "interrupt request refused: reserved bits in the request",
        FaultReason::INDEX => "interrupt request refused: index beyond the table",
        FaultReason::NOT_PRESENT => "interrupt request refused: entry not present",
        FaultReason::TABLE_ACCESS => "interrupt request refused: no memory at the table",
        FaultReason::IRTE_RESERVED => "interrupt request refused: reserved bits in the entry",
        FaultReason::COMPATIBILITY_BLOCKED => "interrupt request refused: compatibility format",
        FaultReason::SOURCE => "interrupt request refused: wrong requester",
        FaultReason::DESCRIPTOR_ACCESS => "interrupt request refused: no memory at the posted descriptor",
        _ => "interrupt request refused: reserved bits in the posted descriptor",
    }
}
