//! The back end: host threads that move packets between the backlogs and the guest's queues, as vhost does.
//!
//! A thread serves its queues in turn: one until it is empty or its weight is used up, then the next. While it works on
//! a queue it asks for no kicks there; before it leaves an empty one it asks for them and looks once more. Used buffers
//! are published, and the guest notified, once a batch and when a queue is left.

use super::coalescing::Verdict;
use super::{Net, code};
use crate::time::Ps;
use crate::virtio::Bus;
use crate::virtio::ring::Chain;
use spec::virtio::net::{NOTF_COAL, VQ_NOTF_COAL, header, receive_queue};
use std::collections::VecDeque;

/// How queues are shared out to host threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Workers {
    /// A thread for each pair of queues, as vhost-net has.
    #[default]
    PerPair,
    /// One for all.
    PerDevice,
}

/// One host thread.
#[derive(Default)]
pub(super) struct Worker {
    /// Queues with work, in turn.
    runnable: VecDeque<u16>,
    /// The queue it works on, and packets moved since it took it up.
    current: Option<(u16, u16)>,
    /// The packet in its hands.
    step: Option<Step>,
    awake: bool,
    /// The thread is busy until this time with interrupts that it sends.
    free_at: Ps,
}

/// A packet on its way.
struct Step {
    queue: u16,
    chain: Chain,
    /// Into the guest; none: out of it.
    packet: Option<Vec<u8>>,
}

fn is_receive(queue: u16) -> bool {
    queue.is_multiple_of(2)
}

impl Net {
    fn worker_of(&self, queue: u16) -> usize {
        match self.config.host.workers {
            Workers::PerPair => usize::from(queue / 2),
            Workers::PerDevice => 0,
        }
    }

    /// The backlog of receive queue `pair` has packets.
    pub(super) fn wake_receive(&mut self, bus: &mut Bus<'_, '_>, pair: u16) {
        if bus.is_running() && bus.is_ready(receive_queue(pair)) {
            self.wake(bus, receive_queue(pair));
        }
    }

    /// There may be work on `queue`.
    pub(super) fn wake(&mut self, bus: &mut Bus<'_, '_>, queue: u16) {
        let index = self.worker_of(queue);
        let worker = &mut self.workers[index];
        let working = worker.current.is_some_and(|(current, _)| current == queue);
        if working || worker.runnable.contains(&queue) {
            return;
        }
        // A receive queue without buffers waits for a kick, not for more packets.
        if is_receive(queue) && self.starved[usize::from(queue / 2)] {
            return;
        }
        worker.runnable.push_back(queue);
        if !std::mem::replace(&mut worker.awake, true) {
            let at = (bus.now() + self.config.host.wake).max(worker.free_at);
            self.schedule_work(bus, index, at);
        }
    }

    fn schedule_work(&self, bus: &mut Bus<'_, '_>, worker: usize, at: Ps) {
        let delay = at.saturating_sub(bus.now());
        bus.schedule(delay, code::WORK, self.stamped(worker as u64));
    }

    /// A packet is done, or the thread wakes: the next one.
    pub(super) fn work(&mut self, bus: &mut Bus<'_, '_>, index: usize) {
        if let Some(step) = self.workers[index].step.take() {
            self.finish(bus, step);
            self.flush_batch(bus, index);
        }
        loop {
            let worker = &mut self.workers[index];
            let Some((queue, moved)) = worker.current.or_else(|| Some((worker.runnable.pop_front()?, 0))) else {
                worker.awake = false;
                return;
            };
            worker.current = Some((queue, moved));
            if moved >= self.config.host.weight {
                self.flush(bus, queue);
                let worker = &mut self.workers[index];
                worker.current = None;
                worker.runnable.push_back(queue);
            } else if let Some((step, cost)) = self.start(bus, queue) {
                let cost = bus.world().jitter(cost);
                let worker = &mut self.workers[index];
                worker.current = Some((queue, moved + 1));
                worker.step = Some(step);
                let at = worker.free_at.max(bus.now()) + cost.max(Ps(1));
                return self.schedule_work(bus, index, at);
            } else {
                self.flush(bus, queue);
                if self.leave(bus, queue) {
                    self.workers[index].current = None;
                }
            }
        }
    }

    /// Takes the next packet of `queue`, at its cost. None when there is no packet, or no buffer for it.
    fn start(&mut self, bus: &mut Bus<'_, '_>, queue: u16) -> Option<(Step, Ps)> {
        let mut chain = Chain::default();
        let host = &self.config.host;
        if !is_receive(queue) {
            bus.want_kicks(queue, false);
            let taken = bus.take(queue, &mut chain);
            return taken.then_some((Step { queue, chain, packet: None }, host.transmit));
        }
        let backlog = &mut self.backlogs[usize::from(queue / 2)];
        if backlog.is_empty() || !bus.is_running() {
            return None;
        }
        bus.want_kicks(queue, false);
        if !bus.take(queue, &mut chain) {
            return None;
        }
        let packet = backlog.pop_front();
        Some((Step { queue, chain, packet }, host.receive))
    }

    /// Leaves a queue without work. False if new work has arrived in between.
    fn leave(&mut self, bus: &mut Bus<'_, '_>, queue: u16) -> bool {
        let pair = usize::from(queue / 2);
        if is_receive(queue) {
            if self.backlogs[pair].is_empty() {
                return true;
            }
            self.starved[pair] = true;
        }
        let again = bus.want_kicks(queue, true) && bus.is_running();
        if is_receive(queue) && again {
            self.starved[pair] = false;
        }
        !again
    }

    /// A packet has been moved.
    fn finish(&mut self, bus: &mut Bus<'_, '_>, step: Step) {
        let Step { queue, chain, packet } = step;
        let written = match packet {
            Some(packet) => {
                self.counters.received += 1;
                receive(bus, &chain, &packet)
            }
            None => {
                let bytes = chain.readable_bytes();
                if bytes < header::BYTES as u64 || bytes > PACKET_BYTES_MAX {
                    return bus
                        .fail("virtio-net packet without a header, or beyond all bounds", format!("{bytes} bytes"));
                }
                let mut packet = vec![0; bytes as usize - header::BYTES];
                // Checked when the chain was taken: it is memory.
                let _ = chain.read(bus.world(), header::BYTES as u64, &mut packet);
                self.deliver(queue / 2, packet, bus.now());
                0
            }
        };
        bus.fill(queue, chain.head, written);
        self.unpublished[usize::from(queue)] += 1;
    }

    /// Publishes what the worker has done, once a batch. A guest that coalesces counts packets, so then each by itself.
    fn flush_batch(&mut self, bus: &mut Bus<'_, '_>, index: usize) {
        let coalesces = bus.has(NOTF_COAL) || bus.has(VQ_NOTF_COAL);
        let batch = if coalesces { 1 } else { self.config.host.batch.max(1) };
        if let Some((queue, _)) = self.workers[index].current
            && self.unpublished[usize::from(queue)] >= batch
        {
            self.flush(bus, queue);
        }
    }

    fn flush(&mut self, bus: &mut Bus<'_, '_>, queue: u16) {
        self.unpublished[usize::from(queue)] = 0;
        let packets = bus.publish(queue);
        if packets == 0 {
            return;
        }
        match self.coalescers[usize::from(queue)].published(packets) {
            Verdict::Notify => self.notify(bus, queue),
            Verdict::Wait => {}
            Verdict::Start(generation) => {
                let wait = u64::from(self.coalescers[usize::from(queue)].setting.max_usecs);
                let arg = self.stamped(u64::from(generation) << 16 | u64::from(queue));
                bus.schedule(Ps::from_ns(wait * 1000), code::COALESCED, arg);
            }
        }
    }

    /// A coalescing time has run down.
    pub(super) fn coalesced(&mut self, bus: &mut Bus<'_, '_>, arg: u64) {
        let queue = arg as u16;
        if self.coalescers[usize::from(queue)].timer((arg >> 16) as u16) {
            self.notify(bus, queue);
        }
    }

    fn notify(&mut self, bus: &mut Bus<'_, '_>, queue: u16) {
        let cost = bus.notify(queue);
        if cost > Ps(0) {
            let index = self.worker_of(queue);
            let worker = &mut self.workers[index];
            worker.free_at = worker.free_at.max(bus.now()) + cost;
        }
    }

    /// The driver has reset `queue`: the device no longer owns buffers of it that a worker holds.
    pub(super) fn forget_queue(&mut self, queue: u16) {
        let index = self.worker_of(queue);
        let worker = &mut self.workers[index];
        worker.step.take_if(|step| step.queue == queue);
        worker.runnable.retain(|&runnable| runnable != queue);
        worker.current.take_if(|current| current.0 == queue);
        self.unpublished[usize::from(queue)] = 0;
        self.coalescers[usize::from(queue)] = Default::default();
        if is_receive(queue) {
            self.starved[usize::from(queue / 2)] = false;
        }
    }
}

/// The longest packet that is taken from a guest: 64 KiB and its header.
const PACKET_BYTES_MAX: u64 = 65_536 + header::BYTES as u64;

/// Writes header and packet; returns how many bytes. A buffer that is too short comes back empty.
fn receive(bus: &mut Bus<'_, '_>, chain: &Chain, packet: &[u8]) -> u32 {
    let mut bytes = vec![0; header::BYTES];
    bytes[header::NUM_BUFFERS] = 1;
    bytes.extend_from_slice(packet);
    if chain.writable_bytes() < bytes.len() as u64 {
        return 0;
    }
    // Checked when the chain was taken: it is memory.
    let _ = chain.write(bus.world(), 0, &bytes);
    bytes.len() as u32
}
