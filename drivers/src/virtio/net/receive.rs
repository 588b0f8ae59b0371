//! The receive side of a queue pair: buffers, the poll, reflection.

use super::super::transport::Transport;
use super::super::{Part, Queue, QueueFault, VirtioError};
use super::Net;
use alloc::sync::Arc;
use hal::{DeviceAddress, Dma, Hal, Work};
use irq::poll::Polled;
use spec::virtio::net::header;

/// Packets taken before the lock, and with it the CPU's interrupts, are let go once.
const BATCH: u32 = 16;

/// A packet where it lies.
pub struct Packet<'a, D> {
    /// The pair that received it.
    pub pair: u16,
    /// The memory it lies in.
    pub memory: &'a D,
    /// Offset in that memory, in bytes; a multiple of 4.
    pub offset_bytes: usize,
    /// How long it is, without virtio's header.
    pub len_bytes: u32,
}

/// The receiver's verdict on a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The receiver is done with it.
    Done,
    /// Send the packet back from its buffer (XDP_TX). Without a transmit queue, or with a full one, it is dropped.
    Reflect,
}

/// The receiver of packets.
pub trait Receiver<H: Hal>: Send + Sync {
    /// Packets wait on `pair`, and its interrupt is off: schedule its [`ReceivePoll`]. Runs in interrupt context.
    fn ready(&self, pair: u16);
    /// Looks at a packet, and may change it. Interrupts are off and the pair's receive side is locked.
    fn received(&self, packet: Packet<'_, H::Dma>) -> Verdict;
    /// A packet that was sent on `pair` has left its buffer. The pair's transmit side is locked.
    fn transmitted(&self, _pair: u16, _tag: u64) {}
}

/// Counters of a receive queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReceiveCounters {
    /// Packets.
    pub packets: u64,
    /// Their bytes, without headers.
    pub bytes: u64,
    /// Packets shorter than a header: the device's mistake.
    pub runts: u64,
    /// Packets sent back.
    pub reflected: u64,
    /// Packets dropped because the queue for sending back had no room.
    pub reflect_drops: u64,
    /// Interrupts that found packets.
    pub interrupts: u64,
    /// Interrupts that found no packet.
    pub empty_interrupts: u64,
    /// Polls.
    pub polls: u64,
    /// Times when packets came before the interrupt was on again.
    pub rearm_races: u64,
}

/// Written under its lock, by the poll of one CPU.
pub(super) struct ReceiveSide<H: Hal> {
    queue: Queue<H>,
    reflect: Option<Queue<H>>,
    buffers: H::Dma,
    buffer_bytes: u32,
    counters: ReceiveCounters,
}

impl<H: Hal> ReceiveSide<H> {
    pub(super) fn new(
        hal: H,
        queue: Queue<H>,
        reflect: Option<Queue<H>>,
        buffer_bytes: u32,
    ) -> Result<Self, VirtioError> {
        if buffer_bytes <= header::BYTES as u32 || !buffer_bytes.is_multiple_of(8) {
            return Err(VirtioError::Config("buffer_bytes", buffer_bytes.into()));
        }
        let buffers = hal.dma_alloc(usize::from(queue.memory().entries) * buffer_bytes as usize, 64)?;
        Ok(Self { queue, reflect, buffers, buffer_bytes, counters: ReceiveCounters::default() })
    }

    fn address(&self, buffer: u64) -> DeviceAddress {
        self.buffers.device_address().offset(buffer * u64::from(self.buffer_bytes))
    }

    /// Gives every buffer to the device, once.
    pub(super) fn fill(&mut self) {
        for buffer in 0..self.queue.memory().entries {
            self.give(buffer.into());
        }
    }

    /// Gives one buffer to the device. There is a descriptor for each, so only a stopped queue refuses.
    fn give(&mut self, buffer: u64) {
        let _ = self.queue.add(buffer, &[Part::write(self.address(buffer), self.buffer_bytes)]);
    }

    /// Makes the given buffers visible to the device.
    pub(super) fn publish(&mut self, transport: &dyn Transport) {
        for queue in [Some(&mut self.queue), self.reflect.as_mut()].into_iter().flatten() {
            if queue.publish() {
                transport.notify(queue.number());
            }
        }
    }

    pub(super) fn stop(&mut self) {
        for queue in [Some(&mut self.queue), self.reflect.as_mut()].into_iter().flatten() {
            queue.stop();
        }
    }

    /// Its interrupt came. True when there is something to poll for; the interrupt is off then.
    pub(super) fn interrupted(&mut self) -> bool {
        let ready = self.queue.has_used();
        if ready {
            self.queue.disable_notifications();
            self.counters.interrupts += 1;
        } else {
            self.counters.empty_interrupts += 1;
        }
        ready
    }

    /// Takes up to `most` packets. A queue that the device broke gives none and keeps the fault.
    fn take(&mut self, net: &Net<H>, pair: u16, most: u32) -> u32 {
        self.take_back();
        let mut taken = 0;
        while taken < most
            && let Ok(Some(used)) = self.queue.take()
        {
            taken += 1;
            let back = match used.written_bytes.checked_sub(header::BYTES as u32) {
                Some(len_bytes) => self.receive(net, pair, used.tag, len_bytes) == Verdict::Reflect,
                None => {
                    self.counters.runts += 1;
                    false
                }
            };
            if !(back && self.send_back(used.tag, used.written_bytes)) {
                self.give(used.tag);
            }
        }
        net.hal.work(Work::ReapEntry, taken);
        taken
    }

    /// Buffers that were sent return to the receive queue. A broken queue keeps its buffers, and receiving continues.
    fn take_back(&mut self) {
        while let Some(Ok(Some(used))) = self.reflect.as_mut().map(Queue::take) {
            self.give(used.tag);
        }
    }

    fn receive(&mut self, net: &Net<H>, pair: u16, buffer: u64, len_bytes: u32) -> Verdict {
        self.counters.packets += 1;
        self.counters.bytes += u64::from(len_bytes);
        let offset_bytes = buffer as usize * self.buffer_bytes as usize + header::BYTES;
        net.receiver.received(Packet { pair, memory: &self.buffers, offset_bytes, len_bytes })
    }

    /// Clears a buffer's header and puts the buffer into the transmit queue. False when that is not possible, or when
    /// it is the receive queue's last buffer. With all buffers in the transmit queue nothing could be received and no
    /// interrupt would come, so nobody would take the buffers back.
    fn send_back(&mut self, buffer: u64, len_bytes: u32) -> bool {
        if self.queue.in_flight() == 0 {
            self.take_back();
        }
        let part = Part::read(self.address(buffer), len_bytes);
        let first = buffer as usize * self.buffer_bytes as usize;
        for offset in (0..header::BYTES).step_by(4) {
            self.buffers.write32(first + offset, 0);
        }
        let is_last = self.queue.in_flight() == 0;
        let sent = !is_last && self.reflect.as_mut().is_some_and(|reflect| reflect.add(buffer, &[part]).is_ok());
        self.counters.reflected += u64::from(sent);
        self.counters.reflect_drops += u64::from(!sent);
        sent
    }

    fn rearm(&mut self) -> bool {
        let missed = self.queue.enable_notifications();
        if missed {
            self.queue.disable_notifications();
            self.counters.rearm_races += 1;
        }
        missed
    }
}

impl<H: Hal> Net<H> {
    /// Takes up to `weight` packets of `pair`, refills the queue, and sends the reflected packets.
    pub fn poll_receive(&self, pair: u16, weight: u32) -> u32 {
        let Some(side) = self.receive.get(usize::from(pair)) else { return 0 };
        self.hal.work(Work::PollLook, 1);
        let mut done = 0;
        while done < weight {
            let batch = BATCH.min(weight - done);
            let mut side = side.lock();
            side.counters.polls += u64::from(done == 0);
            let taken = side.take(self, pair, batch);
            side.publish(&*self.transport);
            done += taken;
            if taken < batch {
                break;
            }
        }
        done
    }

    /// Turns the interrupt of `pair` on again. True if packets came before: they raise no interrupt, so poll again.
    pub fn rearm_receive(&self, pair: u16) -> bool {
        self.receive.get(usize::from(pair)).is_some_and(|side| side.lock().rearm())
    }

    /// Counters of receive queue `pair`.
    pub fn receive_counters(&self, pair: u16) -> Option<ReceiveCounters> {
        Some(self.receive.get(usize::from(pair))?.lock().counters)
    }

    /// The device's violation that broke receive queue `pair` or its reflection queue, if any.
    pub fn receive_fault(&self, pair: u16) -> Option<QueueFault> {
        let side = self.receive.get(usize::from(pair))?.lock();
        side.queue.fault().or(side.reflect.as_ref().and_then(Queue::fault))
    }
}

/// One pair, for a list of polled devices.
pub struct ReceivePoll<H: Hal> {
    net: Arc<Net<H>>,
    pair: u16,
}

impl<H: Hal> ReceivePoll<H> {
    /// The poll of `pair`.
    pub fn new(net: Arc<Net<H>>, pair: u16) -> Self {
        Self { net, pair }
    }
}

impl<H: Hal> Polled for ReceivePoll<H> {
    fn poll(&self, weight: u32) -> u32 {
        self.net.poll_receive(self.pair, weight)
    }

    fn rearm(&self) -> bool {
        self.net.rearm_receive(self.pair)
    }
}
