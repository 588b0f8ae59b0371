//! The network device (VIRTIO 5.1) with several queue pairs, a control queue and notification coalescing; its back end,
//! and flows that keep it busy.
//!
//! Absent: offloads, filters, receive buffers that are merged, steering by hash.

mod coalescing;
mod control;
mod flow;
mod frame;
mod worker;

pub use coalescing::{Coalescing, CoalescingSupport};
pub use flow::{FlowCounts, Flows};
pub use worker::Workers;

use super::device::{Bus, Device};
use crate::time::Ps;
use coalescing::Coalescer;
use flow::Flow;
use spec::virtio::DeviceId;
use spec::virtio::feature::{Feature, Features};
use spec::virtio::net::{self as layout, LinkStatus, control_queue, receive_queue, transmit_queue};
use std::collections::VecDeque;
use worker::Worker;

/// Events of the device.
pub mod code {
    /// A worker's packet is done, or it wakes.
    pub(super) const WORK: u32 = 0;
    /// A sender's next packet. Argument: which run of the flows, and the flow.
    pub(super) const SEND: u32 = 1;
    /// A coalescing time has run down.
    pub(super) const COALESCED: u32 = 2;
    /// The flows start (argument 1) or stop (0): [`crate::Machine::poke`].
    pub const FLOWS: u32 = 3;
    /// [`super::Net::inject`] has put packets into the backlog of the pair that the argument names.
    pub const INJECTED: u32 = 4;
}

/// The host's side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostConfig {
    /// Threads.
    pub workers: Workers,
    /// The thread's cost of a packet into the guest.
    pub receive: Ps,
    /// The thread's cost of a packet out of the guest.
    pub transmit: Ps,
    /// From a kick, or a packet, to the thread's first step.
    pub wake: Ps,
    /// Packets that wait for a receive queue at most.
    pub backlog: u16,
    /// Packets that are published together at most.
    pub batch: u16,
    /// Packets after which a thread turns to its next queue.
    pub weight: u16,
    /// The flows of packets.
    pub flows: Flows,
}

impl Default for HostConfig {
    /// No costs and no flows. The lengths are those of Linux's tap (500) and vhost-net (64 and 256).
    fn default() -> Self {
        Self {
            workers: Workers::PerPair,
            receive: Ps(0),
            transmit: Ps(0),
            wake: Ps(0),
            backlog: 500,
            batch: 64,
            weight: 256,
            flows: Flows::default(),
        }
    }
}

/// The description of one network device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NetConfig {
    /// Queue pairs, 1 to 0x7fff.
    pub pairs: u16,
    /// Most entries of each queue.
    pub queue_entries: u16,
    /// Its address.
    pub mac: [u8; 6],
    /// How it takes settings of its coalescing.
    pub coalescing: CoalescingSupport,
    /// The back end.
    pub host: HostConfig,
    /// It offers packed virtqueues.
    pub packed: bool,
    /// Its link is up.
    pub link_up: bool,
}

impl Default for NetConfig {
    fn default() -> Self {
        Self {
            pairs: 1,
            queue_entries: 256,
            mac: [0x52, 0x54, 0, 0x12, 0x34, 0x56],
            coalescing: CoalescingSupport::Absent,
            host: HostConfig::default(),
            packed: false,
            link_up: true,
        }
    }
}

/// Entries of the control queue, as of Linux's and QEMU's.
const CONTROL_ENTRIES: u16 = 64;

#[derive(Default)]
struct Counters {
    received: u64,
    transmitted: u64,
    commands: u64,
}

/// A network device and its host.
pub struct Net {
    config: NetConfig,
    /// Queue pairs that the driver uses.
    active_pairs: u16,
    /// Packets that wait for each receive queue on the host's side (a tap's ring).
    backlogs: Box<[VecDeque<Vec<u8>>]>,
    /// Packets wait, and the receive queue has no buffer.
    starved: Box<[bool]>,
    workers: Box<[Worker]>,
    /// Of each queue except the control queue.
    coalescers: Box<[Coalescer]>,
    unpublished: Box<[u16]>,
    flows: Box<[Flow]>,
    flows_run: bool,
    flow_runs: u32,
    /// Packets that the guest sent and that belong to no flow.
    received: Vec<(u16, Vec<u8>)>,
    /// Counts resets; an event of an earlier life is stale.
    epoch: u32,
    counters: Counters,
}

impl Net {
    /// A device without a driver.
    pub fn new(config: NetConfig) -> Self {
        let config = NetConfig { pairs: config.pairs.clamp(1, layout::QUEUE_PAIRS_MAX - 1), ..config };
        let flows = (0..config.host.flows.count).map(|_| Flow::default()).collect();
        let backlogs = (0..config.pairs).map(|_| VecDeque::new()).collect();
        let mut net = Self {
            config,
            active_pairs: 1,
            backlogs,
            starved: Box::default(),
            workers: Box::default(),
            coalescers: Box::default(),
            unpublished: Box::default(),
            flows,
            flows_run: false,
            flow_runs: 0,
            received: Vec::new(),
            epoch: 0,
            counters: Counters::default(),
        };
        net.reset();
        net
    }

    /// Puts a packet in front of receive queue `pair`; the event [`code::INJECTED`] then tells the device.
    pub fn inject(&mut self, pair: u16, packet: Vec<u8>) {
        if let Some(backlog) = self.backlogs.get_mut(usize::from(pair)) {
            backlog.push_back(packet);
        }
    }

    /// Takes the packets of no flow that the guest has sent since the last call, with their queue pair; 1024 at most.
    pub fn take_received(&mut self) -> Vec<(u16, Vec<u8>)> {
        std::mem::take(&mut self.received)
    }

    /// The counts of each flow.
    pub fn flows(&self) -> Vec<FlowCounts> {
        self.flows.iter().map(|flow| flow.counts).collect()
    }

    /// The coalescing of a queue, as the device applies it. None for a queue that is neither transmit nor receive.
    pub fn coalescing(&self, queue: u16) -> Option<Coalescing> {
        self.coalescers.get(usize::from(queue)).map(|coalescer| coalescer.setting)
    }

    fn stamped(&self, arg: u64) -> u64 {
        u64::from(self.epoch) << 32 | arg
    }
}

/// Whether `queue` is one of `pairs` pairs.
fn transmit_or_receive(queue: u16, pairs: u16) -> bool {
    queue < 2 * pairs
}

impl Device for Net {
    fn id(&self) -> DeviceId {
        DeviceId::NET
    }

    fn features(&self) -> Features {
        let features = Features::of(&[layout::MAC, layout::STATUS, layout::CTRL_VQ, layout::MQ]);
        let features = if self.config.packed { features.with(Feature::RING_PACKED) } else { features };
        match self.config.coalescing {
            CoalescingSupport::Absent => features,
            _ => features.with(layout::NOTF_COAL).with(layout::VQ_NOTF_COAL),
        }
    }

    fn queue_entries(&self) -> Vec<u16> {
        let mut entries = vec![self.config.queue_entries; 2 * usize::from(self.config.pairs)];
        entries.push(CONTROL_ENTRIES);
        entries
    }

    fn config(&self) -> Vec<u8> {
        let mut bytes = self.config.mac.to_vec();
        bytes.extend_from_slice(&LinkStatus::new().with_link_up(self.config.link_up).into_bits().to_le_bytes());
        bytes.extend_from_slice(&self.config.pairs.to_le_bytes());
        bytes
    }

    fn started(&mut self, bus: &mut Bus<'_, '_>) {
        for pair in 0..self.config.pairs {
            // Buffers made available earlier are noticed without a kick; later buffers need a kick.
            if bus.is_ready(transmit_queue(pair)) {
                self.wake(bus, transmit_queue(pair));
            }
            if !self.backlogs[usize::from(pair)].is_empty() && bus.is_ready(receive_queue(pair)) {
                self.wake(bus, receive_queue(pair));
            }
        }
    }

    fn kicked(&mut self, bus: &mut Bus<'_, '_>, queue: u16) {
        // VIRTIO 5.1.2: without MQ there is one pair, and the control queue follows it.
        let pairs = if bus.has(layout::MQ) { self.config.pairs } else { 1 };
        if queue == control_queue(pairs) {
            return self.serve_control(bus, queue);
        }
        if let Some(starved) = self.starved.get_mut(usize::from(queue / 2))
            && queue.is_multiple_of(2)
        {
            *starved = false;
        }
        if transmit_or_receive(queue, pairs) {
            self.wake(bus, queue);
        }
    }

    fn event(&mut self, bus: &mut Bus<'_, '_>, code: u32, arg: u64) {
        let is_current = arg >> 32 == self.epoch.into();
        match code {
            code::WORK if is_current => self.work(bus, arg as u32 as usize),
            code::COALESCED if is_current => self.coalesced(bus, arg & 0xffff_ffff),
            code::WORK | code::COALESCED => {}
            code::SEND => self.send(bus, arg),
            code::FLOWS => self.run_flows(bus, arg == 1),
            code::INJECTED if arg < self.config.pairs.into() => self.wake_receive(bus, arg as u16),
            _ => bus.fail("virtio-net event that means nothing", format!("code {code}, argument {arg:#x}")),
        }
    }

    fn queue_reset(&mut self, queue: u16) {
        if transmit_or_receive(queue, self.config.pairs) {
            self.forget_queue(queue);
        }
    }

    fn reset(&mut self) {
        let pairs = usize::from(self.config.pairs);
        self.epoch = self.epoch.wrapping_add(1);
        self.active_pairs = 1;
        self.starved = vec![false; pairs].into();
        self.workers = (0..pairs).map(|_| Worker::default()).collect();
        self.coalescers = vec![Coalescer::default(); 2 * pairs].into();
        self.unpublished = vec![0; 2 * pairs].into();
    }

    /// Packets that reached the guest, that left it, and control commands.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        let Counters { received, transmitted, commands } = self.counters;
        vec![("received", received), ("transmitted", transmitted), ("commands", commands)]
    }
}
