//! A VT-d unit: interrupt remapping and posting, register by register.
//!
//! Implemented: the interrupt side of the Intel Virtualization Technology for Directed I/O specification. That is the
//! remapping table with its cache, posted descriptors, source validation, queued invalidation, fault recording and the
//! unit's two events. Not implemented: address translation (DMA passes), page requests, device TLBs, advanced fault
//! logging and register-based invalidation. CAP and ECAP announce none of them.
//!
//! One server handles a unit's requests, first come first served:
//! - a remapped request takes the remapping time and then holds the server until the socket's [`Dispatch`] has
//!   delivered it; its place at the port is free when the dispatch unit takes it;
//! - a posted request takes one atomic update of its descriptor, serial with every other update of that cache line, and
//!   more if the line has to be taken from another agent; its place at the port is free after the update; a notification
//!   goes to the dispatch unit without holding the server, unless too many of this unit wait there;
//! - a request in compatibility format, or with remapping off, takes no remapping time, only the dispatch unit;
//! - a refused request takes the remapping time and is dropped.

mod cache;
mod event;
mod fault;
mod queue;
mod registers;
mod request;
mod service;

use self::cache::EntryCache;
use self::event::EventRegisters;
use self::fault::Faults;
use self::queue::Queue;
use self::service::{Pending, Service, Totals};
use super::dispatch::Dispatch;
use super::port::Credits;
use crate::model::{Model, ModelId, Upstream};
use crate::time::Ps;
use crate::world::World;
use core::ops::Range;
use spec::vtd::registers::{GlobalStatus, TableAddress};
use std::collections::VecDeque;

/// The constants and options of a unit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VtdConfig {
    /// Name in traces and faults.
    pub name: String,
    /// CAP.PI: the unit can post.
    pub posted_interrupts: bool,
    /// ECAP.EIM: 32-bit APIC ids.
    pub extended_interrupt_mode: bool,
    /// Fault recording registers, 1 to 256.
    pub fault_records: u16,
    /// Mean time to remap a request, without its delivery.
    pub remap_time: Ps,
    /// Mean time of the atomic update of a descriptor.
    pub post_time: Ps,
    /// Mean time from a global command to its status.
    pub command_time: Ps,
    /// Mean time to fetch and execute an invalidation descriptor.
    pub invalidation_time: Ps,
    /// A fault of the invalidation queue.
    pub invalidation_fault: InvalidationFault,
}

/// Faults of the invalidation queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum InvalidationFault {
    /// No fault.
    #[default]
    None,
    /// Every descriptor takes this much longer.
    Late(Ps),
    /// The fetch after this many descriptors fails, once: the queue stops with IQE.
    FetchFails(u64),
    /// After this many descriptors the queue stops for ever and reports no error.
    Hangs(u64),
    /// A fault for a limited time.
    Within {
        /// The fault begins at this time.
        from: Ps,
        /// The fault ends at this time.
        until: Ps,
        /// The fault in between.
        trouble: InvalidationTrouble,
    },
}

/// A temporary fault of an invalidation queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InvalidationTrouble {
    /// A descriptor takes this much longer.
    Late(Ps),
    /// Every fetch of a descriptor fails: the queue stops with IQE again each time that software clears it.
    FetchFails,
    /// The first fetch of each descriptor fails. The one behind it, when software has cleared IQE, does not.
    FirstFetchFails,
    /// The queue stops. When the fault ends, the queue continues by itself.
    Stands,
}

/// Events of a unit.
/// The event of an Invalidate Completion (PCI Express, "ATS Invalidations") by the requester in its argument. This unit asks for none, so
/// each is an error.
pub const COMPLETION: u32 = 1 << 8;

mod code {
    /// A request was remapped, and is ready for the dispatch unit.
    pub(super) const REMAPPED: u32 = 0;
    /// The dispatch unit took a request: its place (argument: the requester's model) is free.
    pub(super) const TAKEN: u32 = 1;
    /// The dispatch unit delivered a request that held the server. Argument: the packed delivery.
    pub(super) const SERVED: u32 = 2;
    /// The dispatch unit delivered a notification or an event of the unit.
    pub(super) const DELIVERED: u32 = 3;
    /// The update of a descriptor takes place.
    pub(super) const POSTED: u32 = 4;
    /// A refused request leaves the unit.
    pub(super) const REFUSED: u32 = 5;
    /// A global command takes effect. Argument: its value.
    pub(super) const COMMAND: u32 = 6;
    /// The descriptor at the head of the invalidation queue is executed. Argument: the epoch.
    pub(super) const INVALIDATE: u32 = 7;
    /// An invalidation waited for requests, and they have drained. Argument: the epoch.
    pub(super) const DRAINED: u32 = 8;
    /// The dispatch unit has room for a notification that holds the server. Argument: the packed delivery.
    pub(super) const NOTIFIED: u32 = 9;
}

/// A VT-d unit.
pub struct VtdUnit {
    config: VtdConfig,
    dispatch: Dispatch,
    credits: Credits,
    // Registers.
    status: GlobalStatus,
    table_register: u64,
    table: TableAddress,
    invalidation_done: bool,
    faults: Faults,
    fault_event: EventRegisters,
    invalidation_event: EventRegisters,
    queue: Queue,
    // Internal state behind the registers.
    cache: EntryCache,
    waiting: VecDeque<Pending>,
    service: Option<Service>,
    /// Times at which the dispatch unit takes this unit's notifications.
    notifications: VecDeque<Ps>,
    /// Arrival time of the last delivery scheduled so far.
    last_delivery: Ps,
    /// An invalidation waits for the request in service.
    draining: bool,
    commands_pending: u32,
    descriptors: u64,
    /// That number when a fetch failed last.
    refused_at: Option<u64>,
    totals: Totals,
}

impl VtdUnit {
    /// A unit after reset, in front of `dispatch`. It frees the ports' places in `credits`.
    pub fn new(config: VtdConfig, dispatch: Dispatch, credits: Credits) -> Self {
        let faults = Faults::new(usize::from(config.fault_records.clamp(1, 256)));
        Self {
            config,
            dispatch,
            credits,
            status: GlobalStatus::new(),
            table_register: 0,
            table: TableAddress::new(),
            invalidation_done: false,
            faults,
            fault_event: EventRegisters::new(),
            invalidation_event: EventRegisters::new(),
            queue: Queue::default(),
            cache: EntryCache::default(),
            waiting: VecDeque::new(),
            service: None,
            notifications: VecDeque::new(),
            last_delivery: Ps::default(),
            draining: false,
            commands_pending: 0,
            descriptors: 0,
            refused_at: None,
            totals: Totals::default(),
        }
    }

    /// Sets the fault of the invalidation queue from now on. A hanging queue continues, once the fault is gone, with
    /// the next write of its tail.
    pub fn set_invalidation_fault(&mut self, fault: InvalidationFault) {
        self.config.invalidation_fault = fault;
    }

    /// Bus address of the remapping table, as the unit uses it.
    pub fn table_address(&self) -> u64 {
        self.table.page() << 12
    }

    /// The cache of entries has so many places, and forgets the oldest entry when it needs one; 0: no bound.
    pub fn with_cache_places(mut self, places: usize) -> Self {
        self.cache.set_places(places);
        self
    }

    /// A register of 32 bits, as it is.
    pub fn held(&self, offset: u32) -> u32 {
        self.read_register(offset)
    }

    /// Faults that were recorded for software so far. Those that found no free record are not among them.
    pub fn faults_recorded(&self) -> u64 {
        self.faults.recorded
    }

    /// The entry that the unit remembers for this interrupt index, if it remembers one.
    pub fn cached_entry(&self, index: u16) -> Option<u128> {
        self.cache.get(index)
    }
}

impl Model for VtdUnit {
    fn name(&self) -> &str {
        &self.config.name
    }

    fn event(&mut self, world: &mut World<'_>, code: u32, arg: u64) {
        match code {
            code::REMAPPED => self.remapped(world),
            code::TAKEN => self.credits.release(world, ModelId(arg as u32)),
            code::SERVED => self.served(world, arg),
            code::DELIVERED => self.deliver(world, arg),
            code::POSTED => self.posted(world),
            code::REFUSED => self.refused(world),
            code::COMMAND => self.command(world, arg as u32),
            code::INVALIDATE => self.invalidate(world, arg),
            code::NOTIFIED => self.notified(world, arg),
            COMPLETION => self.completed(world, arg as u16),
            _ => self.drained(world, arg),
        }
    }

    /// Registers of 32 bits. A wider access is two such accesses, the lower first.
    fn read(&mut self, _world: &mut World<'_>, _region: u8, offset: u32, width_bytes: u8) -> u64 {
        let low = u64::from(self.read_register(offset));
        if width_bytes == 8 { low | u64::from(self.read_register(offset.wrapping_add(4))) << 32 } else { low }
    }

    fn write(&mut self, world: &mut World<'_>, _region: u8, offset: u32, width_bytes: u8, value: u64) {
        self.write_register(world, offset, value as u32);
        if width_bytes == 8 {
            self.write_register(world, offset.wrapping_add(4), (value >> 32) as u32);
        }
    }

    /// The table and the invalidation queue.
    fn uses(&self, range: &Range<u64>) -> Option<u64> {
        self.used_memory().into_iter().flatten().find(|address| range.contains(address))
    }

    /// Messages into the interrupt range are requests. Other messages are writes of 32 bits to memory. A transfer
    /// comes from a device inside the root complex, which has no link: it is done at once.
    fn upstream(&mut self, world: &mut World<'_>, from: ModelId, request: Upstream) {
        match request {
            Upstream::Message { requester, address, data } if address >> 20 == 0xfee => {
                self.accept(world, from, requester, address as u32, data);
            }
            Upstream::Message { requester, address, data } => {
                self.credits.release(world, from);
                if world.write32(address, data).is_err() {
                    let text = format!("message of {data:#x} to {address:#x}");
                    world.fault("write to where no memory is", requester.into(), text);
                }
            }
            Upstream::Transfer { model, code, arg, .. } => world.schedule_for(model, world.now(), code, arg),
        }
    }

    /// `remap_ps`, `hold_ps` and `post_ps` are server times: remapping, held by the dispatch unit, updating a
    /// descriptor. Their sum is the server's busy time. `dispatch_ps` is the dispatch unit's time for this unit.
    /// `queue_ps` is the sum of the requests' waiting times. `full_ps` is server time too: a notification had no room at
    /// the dispatch unit. `merged` counts requests that met an equal one, `waiting` those here now.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        let totals = &self.totals;
        vec![
            ("requests", totals.requests),
            ("plain", totals.plain),
            ("remapped", totals.remapped),
            ("posted", totals.posted),
            ("notifications", totals.notifications),
            ("refused", totals.refused),
            ("faults_dropped", self.faults.dropped),
            ("cache_misses", totals.cache_misses),
            ("invalidations", self.descriptors),
            ("remap_ps", totals.remap.0),
            ("hold_ps", totals.hold.0),
            ("post_ps", totals.post.0),
            ("dispatch_ps", totals.dispatch.0),
            ("queue_ps", totals.queue.0),
            ("merged", totals.merged),
            ("waiting", self.waiting.len() as u64),
            ("full_ps", totals.full.0),
        ]
    }

    fn as_any(&mut self) -> &mut dyn core::any::Any {
        self
    }
}
