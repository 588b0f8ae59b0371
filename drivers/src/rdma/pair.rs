//! Queue pairs: posting of sends and receives.

use super::{MemoryKey, RdmaError, Refusal};
use crate::register::Typed as _;
use alloc::sync::Arc;
use hal::{DeviceAddress, Dma, Hal, Lock, Word};
use spec::rdma::registers::{QP, QP_STRIDE, QpControl, doorbell, qp};
use spec::rdma::{Operation, RECEIVE_BYTES, SEND_BYTES, Send, SendHead};
use spec::register::{ReadWrite, Register, WriteOnly};

/// A request for the send queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PostSend {
    /// Comes back in the completion.
    pub id: u64,
    /// Memory of this end.
    pub local: DeviceAddress,
    /// Bytes.
    pub bytes: u32,
    /// The target: a posted receive, or memory that the other end lent.
    pub remote: Option<(MemoryKey, DeviceAddress)>,
    /// Requests a completion. A request without one ends with the next request that has one. Every queue must request
    /// one from time to time, at least once in each half of its entries.
    pub signalled: bool,
}

/// A receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PostReceive {
    /// Comes back in the completion.
    pub id: u64,
    /// Buffer for the message.
    pub local: DeviceAddress,
    /// Bytes of room.
    pub bytes: u32,
}

/// One direction of a queue pair.
#[derive(Clone, Copy)]
struct Posted {
    /// Requests so far, modulo 2^32.
    count: u32,
    /// Of them, requests that the user has reported as ended.
    ended: u32,
    /// The last value of the doorbell.
    rung: u32,
}

struct Side {
    connected: bool,
    send: Posted,
    receive: Posted,
}

/// A queue pair. Its user counts: [`QueuePair::sends_ended`] and [`QueuePair::receives_ended`] make room as completions
/// come.
pub struct QueuePair<H: Hal> {
    number: u16,
    send_shift: u8,
    receive_shift: u8,
    sends: H::Dma,
    receives: H::Dma,
    regs: Arc<H::Regs>,
    doorbells: Arc<H::Regs>,
    side: Lock<H, Side>,
}

impl<H: Hal> QueuePair<H> {
    pub(super) fn new(
        hal: H,
        number: u16,
        (send_shift, receive_shift): (u8, u8),
        regs: Arc<H::Regs>,
        doorbells: Arc<H::Regs>,
    ) -> Result<Self, RdmaError> {
        let posted = Posted { count: 0, ended: 0, rung: 0 };
        Ok(Self {
            number,
            send_shift,
            receive_shift,
            sends: hal.dma_alloc(SEND_BYTES << send_shift, 64)?,
            receives: hal.dma_alloc(RECEIVE_BYTES << receive_shift, 64)?,
            regs,
            doorbells,
            side: Lock::new(hal, Side { connected: false, send: posted, receive: posted }),
        })
    }

    /// Its number, for the other end's [`QueuePair::connect`].
    pub fn number(&self) -> u16 {
        self.number
    }

    pub(super) fn addresses(&self) -> (u64, u64) {
        (self.sends.device_address().0, self.receives.device_address().0)
    }

    fn register(&self, register: Register<u32, ReadWrite>) -> Register<u32, ReadWrite> {
        register.behind(QP + u32::from(self.number) * QP_STRIDE)
    }

    /// Binds it to the other end's queue pair and turns it on.
    ///
    /// # Errors
    /// [`RdmaError::Rejected`] when the device does not turn it on.
    pub fn connect(&self, remote: u16) -> Result<(), RdmaError> {
        self.regs.write(self.register(qp::REMOTE), remote.into());
        self.regs.write(self.register(qp::CONTROL), QpControl::new().with_enable(true).into_bits());
        let control = self.regs.read(self.register(qp::CONTROL));
        if !QpControl::from_bits(control).enable() {
            return Err(RdmaError::Rejected("queue pair", control));
        }
        self.side.lock().connected = true;
        Ok(())
    }

    /// True when the device has stopped the queue pair.
    pub fn has_failed(&self) -> bool {
        QpControl::from_bits(self.regs.read(self.register(qp::CONTROL))).error()
    }

    /// Writes a request; [`QueuePair::ring_sends`] tells the device.
    ///
    /// # Errors
    /// [`Refusal`]; nothing is written then.
    pub fn post_send(&self, request: &PostSend) -> Result<(), Refusal> {
        validate(request.local, request.bytes)?;
        let mut side = self.side.lock();
        let index = side.place(Direction::Send, self.send_shift)?;
        let operation = if request.remote.is_some() { Operation::WRITE } else { Operation::SEND };
        let head =
            SendHead::new().with_operation(operation.0).with_signalled(request.signalled).with_length(request.bytes);
        let (key, remote) = request.remote.map_or((0, 0), |(key, address)| (key.0, address.0));
        let send = Send { head, id: request.id, local: request.local.0, remote, key: key.into(), reserved: [0; 3] };
        write(&self.sends, index * SEND_BYTES, send.to_words().into_iter().take(5));
        Ok(())
    }

    /// Rings the send doorbell if anything was posted since it last rang.
    pub fn ring_sends(&self) {
        let mut side = self.side.lock();
        self.ring(&mut side.send, doorbell::SEND);
    }

    /// Writes a receive; [`QueuePair::ring_receives`] tells the device.
    ///
    /// # Errors
    /// [`Refusal`]; nothing is written then.
    pub fn post_receive(&self, receive: &PostReceive) -> Result<(), Refusal> {
        validate(receive.local, receive.bytes)?;
        let mut side = self.side.lock();
        let index = side.place(Direction::Receive, self.receive_shift)?;
        write(&self.receives, index * RECEIVE_BYTES, [receive.id, receive.local.0, receive.bytes.into()].into_iter());
        Ok(())
    }

    /// Rings the receive doorbell if anything was posted since it last rang.
    pub fn ring_receives(&self) {
        let mut side = self.side.lock();
        self.ring(&mut side.receive, doorbell::RECEIVE);
    }

    fn ring(&self, posted: &mut Posted, doorbell: Register<u32, WriteOnly>) {
        if posted.rung != posted.count {
            posted.rung = posted.count;
            self.doorbells.write(doorbell::qp(self.number.into(), doorbell), posted.count);
        }
    }

    /// Reports this many ended sends, including those without a completion of their own.
    pub fn sends_ended(&self, count: u32) {
        self.side.lock().send.end(count);
    }

    /// So many receives have ended.
    pub fn receives_ended(&self, count: u32) {
        self.side.lock().receive.end(count);
    }
}

#[derive(Clone, Copy)]
enum Direction {
    Send,
    Receive,
}

impl Side {
    /// The place of the next entry, which is taken.
    fn place(&mut self, direction: Direction, shift: u8) -> Result<usize, Refusal> {
        let posted = match direction {
            Direction::Send => &mut self.send,
            Direction::Receive => &mut self.receive,
        };
        if posted.count.wrapping_sub(posted.ended) >> shift != 0 {
            return Err(Refusal::Full(1 << shift));
        }
        let index = (posted.count & ((1 << shift) - 1)) as usize;
        // Receives may be posted before the connection. The device learns of them after it.
        if !self.connected && matches!(direction, Direction::Send) {
            return Err(Refusal::NotConnected);
        }
        posted.count = posted.count.wrapping_add(1);
        Ok(index)
    }
}

impl Posted {
    /// Caps the count, so that a user's wrong count never ends more requests than were posted.
    fn end(&mut self, count: u32) {
        let open = self.count.wrapping_sub(self.ended);
        self.ended = self.ended.wrapping_add(count.min(open));
    }
}

fn validate(local: DeviceAddress, bytes: u32) -> Result<(), Refusal> {
    if bytes == 0 || !bytes.is_multiple_of(8) || !local.0.is_multiple_of(8) {
        return Err(Refusal::Length(bytes));
    }
    Ok(())
}

fn write<D: Dma>(memory: &D, at: usize, words: impl Iterator<Item = u64>) {
    for (word, value) in memory.words()[at / 8..].iter().zip(words) {
        word.set(value);
    }
}
