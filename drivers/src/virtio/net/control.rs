//! The control queue (VIRTIO 5.1.6.5): one command at a time, in a thread, with a deadline.

use super::super::{Part, Queue, VirtioError};
use super::Net;
use hal::{Dma, Hal, Lock, Word};
use spec::virtio::net::{Ack, Class, MQ_VQ_PAIRS_SET};

/// Entries of the queue: one command of four parts at a time, and room to spare.
pub(super) const ENTRIES: u16 = 16;
/// How long a command may take, in nanoseconds: the standard names no limit.
const COMMAND_NS: u64 = 1_000_000_000;
/// Interval between two polls.
const POLL_NS: u64 = 2_000;
/// Longest data or result, in bytes.
const DATA_BYTES: usize = 16;
/// Offsets of data, answer and result in the buffer, behind class and command.
const DATA: usize = 8;
const ACK: usize = DATA + DATA_BYTES;
const RESULT: usize = ACK + 8;
const BYTES: usize = RESULT + DATA_BYTES;
/// Initial value of the answer's byte; shows whether the device has written one.
const UNANSWERED: u8 = 0xff;

pub(super) struct Control<H: Hal> {
    queue: Lock<H, Queue<H>>,
    buffer: H::Dma,
    /// 1 while a command is in progress, and for ever after a command without an answer.
    busy: H::Word,
}

impl<H: Hal> Control<H> {
    pub(super) fn new(hal: H, queue: Queue<H>) -> Result<Self, VirtioError> {
        Ok(Self { queue: Lock::new(hal, queue), buffer: hal.dma_alloc(BYTES, 64)?, busy: H::Word::new(0) })
    }

    /// Writes a command; its parts are head and data to read, answer and result to write.
    fn write(&self, class: Class, command: u8, data: &[u8], result_bytes: usize) -> [Part; 4] {
        self.buffer.write8(0, class.0);
        self.buffer.write8(1, command);
        for (offset, &byte) in data.iter().enumerate() {
            self.buffer.write8(DATA + offset, byte);
        }
        self.buffer.write8(ACK, UNANSWERED);
        let at = |offset: usize| self.buffer.device_address().offset(offset as u64);
        [
            Part::read(at(0), 2),
            Part::read(at(DATA), data.len() as u32),
            Part::write(at(ACK), 1),
            Part::write(at(RESULT), result_bytes as u32),
        ]
    }
}

impl<H: Hal> Net<H> {
    /// Sends a command of at most [`DATA_BYTES`] and waits for its answer. Its first `result_bytes` are the result.
    pub(super) fn command(
        &self,
        class: Class,
        command: u8,
        data: &[u8],
        result_bytes: usize,
    ) -> Result<[u8; DATA_BYTES], VirtioError> {
        let control = self.control.as_ref().ok_or(VirtioError::NoControl)?;
        if control.busy.compare_exchange(0, 1).is_err() {
            return Err(VirtioError::NoControl);
        }
        let parts = control.write(class, command, data, result_bytes);
        let count = if result_bytes > 0 { 4 } else { 3 };
        // Without an answer the device may still write the buffer. So the buffer stays busy and is not used again.
        self.exchange(control, &parts[..count])?;
        let ack = Ack(control.buffer.read8(ACK));
        let result = core::array::from_fn(|offset| control.buffer.read8(RESULT + offset));
        control.busy.swap(0);
        if ack == Ack::OK { Ok(result) } else { Err(VirtioError::Refused(class.0, command)) }
    }

    fn exchange(&self, control: &Control<H>, parts: &[Part]) -> Result<(), VirtioError> {
        let (number, notify) = {
            let mut queue = control.queue.lock();
            queue.add(0, parts).map_err(|_| VirtioError::NoControl)?;
            (queue.number(), queue.publish())
        };
        if notify {
            self.transport.notify(number);
        }
        let deadline_ns = self.hal.now_ns().saturating_add(COMMAND_NS);
        loop {
            // Reads the time first, so that one look at the device always follows the deadline.
            let late = self.hal.now_ns() >= deadline_ns;
            if control.queue.lock().take()?.is_some() {
                return Ok(());
            }
            if late {
                return Err(VirtioError::ControlTimeout(COMMAND_NS));
            }
            self.hal.delay_ns(POLL_NS);
        }
    }

    /// Makes the device spread received packets over this many pairs (VIRTIO 5.1.6.5.5).
    pub(super) fn set_pairs(&self, pairs: u16) -> Result<(), VirtioError> {
        self.command(Class::MQ, MQ_VQ_PAIRS_SET, &pairs.to_le_bytes(), 0).map(drop)
    }
}
