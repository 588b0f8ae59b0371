//! The buffers of the disk's requests, each with a sector of its own.
//!
//! A buffer belongs to a request until the driver says that it has ended. Nobody may write there afterwards: a seal lies in it,
//! and must be whole when another request takes the buffer, and at the end. A read finds what the last write that was done
//! wrote to the sector, or one that failed since (VIRTIO 5.2.6).

use crate::checkers::scatter;
use crate::verdict::violate;
use drivers::virtio::block::BlockOp;
use hal::{DeviceAddress, Dma as _, Hal, Word as _};
use machine::SimHal;
use std::collections::VecDeque;
use std::sync::Mutex;

/// More than requests can be in flight.
const BUFFERS: u64 = 64;
/// Of each, one sector.
pub(super) const BYTES: usize = 512;
const WORDS: usize = BYTES / 8;
/// The words that are looked at.
const ENDS: [usize; 2] = [0, WORDS - 1];

/// A request's place.
#[derive(Clone, Copy)]
pub(super) struct Room {
    pub(super) address: DeviceAddress,
    pub(super) sector: u64,
}

struct Buffer {
    /// Its words, while no request has it.
    seal: u64,
    request: Option<(u64, BlockOp)>,
    /// What the sector may hold.
    held: Vec<u64>,
}

struct Inner {
    buffers: Vec<Buffer>,
    /// The one that has rested longest first.
    free: VecDeque<usize>,
}

/// All of them.
pub(super) struct Buffers {
    memory: <SimHal as Hal>::Dma,
    /// The device lies about what it has done.
    hostile: bool,
    inner: Mutex<Inner>,
}

impl Buffers {
    pub(super) fn new(memory: <SimHal as Hal>::Dma, hostile: bool) -> Self {
        let buffers = (0..BUFFERS).map(|_| Buffer { seal: 0, request: None, held: vec![0] }).collect();
        let inner = Inner { buffers, free: (0..BUFFERS as usize).collect() };
        Self { memory, hostile, inner: Mutex::new(inner) }
    }

    /// Bytes of the memory that [`Self::new`] needs.
    pub(super) const fn bytes() -> usize {
        BUFFERS as usize * BYTES
    }

    fn write(&self, index: usize, value: u64) {
        ENDS.into_iter().for_each(|word| self.memory.words()[index * WORDS + word].set(value));
    }

    fn read(&self, index: usize) -> [u64; 2] {
        ENDS.map(|word| self.memory.words()[index * WORDS + word].get())
    }

    /// A buffer for request `tag`, a read or a write.
    pub(super) fn take(&self, tag: u64, op: BlockOp) -> Room {
        let (index, seal) = {
            let mut inner = self.inner.lock().expect("one host thread");
            let index = inner.free.pop_front().expect("more than requests in flight");
            inner.buffers[index].request = Some((tag, op));
            (index, inner.buffers[index].seal)
        };
        self.check_seal(index, seal);
        self.write(index, scatter(tag | 1 << 63));
        let address = self.memory.device_address().offset((index * BYTES) as u64);
        Room { address, sector: index as u64 }
    }

    /// Request `tag` has ended: done, or with an error. One without a buffer is no concern.
    pub(super) fn end(&self, tag: u64, is_done: bool) {
        self.finish(tag, Some(is_done));
    }

    /// Request `tag` was not accepted.
    pub(super) fn refuse(&self, tag: u64) {
        self.finish(tag, None);
    }

    fn finish(&self, tag: u64, end: Option<bool>) {
        let mut inner = self.inner.lock().expect("one host thread");
        let is_its = |buffer: &Buffer| buffer.request.is_some_and(|(of, _)| of == tag);
        let Some(index) = inner.buffers.iter().position(is_its) else { return };
        let found = self.read(index);
        let buffer = &mut inner.buffers[index];
        let (_, op) = buffer.request.take().expect("it was found by it");
        let written = scatter(tag | 1 << 63);
        let mut is_right = true;
        match (op, end) {
            (BlockOp::Write, Some(true)) => buffer.held = vec![written],
            (BlockOp::Write, Some(false)) => buffer.held.push(written),
            (BlockOp::Read, Some(true)) => {
                is_right = found[0] == found[1] && buffer.held.contains(&found[0]);
            }
            _ => {}
        }
        buffer.seal = !written;
        let (seal, held) = (buffer.seal, buffer.held.clone());
        self.write(index, seal);
        inner.free.push_back(index);
        drop(inner);
        if !(is_right || self.hostile) {
            let text = format!("request {tag} has read {found:x?} from sector {index}, which holds one of {held:x?}");
            violate("commands", text);
        }
    }

    fn check_seal(&self, index: usize, seal: u64) {
        let found = self.read(index);
        if found != [seal; 2] && !self.hostile {
            let text = format!("somebody wrote {found:x?} to buffer {index}, whose last request had ended: {seal:x}");
            violate("commands", text);
        }
    }

    /// Nothing is in flight: every buffer is as its last request left it.
    pub(super) fn check(&self) {
        for index in 0..BUFFERS as usize {
            let (seal, is_free) = {
                let inner = self.inner.lock().expect("one host thread");
                (inner.buffers[index].seal, inner.buffers[index].request.is_none())
            };
            if is_free {
                self.check_seal(index, seal);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catch::panics;
    use machine::{Machine, MachineConfig};

    /// What `act` is told on the buffers of a new machine.
    fn told(act: impl FnOnce(&Buffers)) -> Option<String> {
        let _machine = Machine::new(MachineConfig::default());
        let memory = SimHal.dma_alloc(Buffers::bytes(), 4096).expect("room");
        let buffers = Buffers::new(memory, false);
        panics(|| act(&buffers)).err().map(|failure| failure.text)
    }

    #[test]
    fn a_buffer_belongs_to_nobody_once_its_request_has_ended() {
        assert_eq!(
            told(|buffers| {
                let room = buffers.take(1, BlockOp::Write);
                assert_eq!(room.sector, 0);
                buffers.end(1, true);
                buffers.check();
            }),
            None
        );
        let late = told(|buffers| {
            buffers.take(1, BlockOp::Read);
            buffers.end(1, false);
            buffers.memory.words()[WORDS - 1].set(0);
            buffers.check();
        });
        assert!(late.expect("seen").contains("somebody wrote"));
    }

    #[test]
    fn a_read_finds_what_was_written_or_what_may_have_been() {
        let round = |first: bool, value: fn(u64, u64) -> u64| {
            told(move |buffers| {
                buffers.take(1, BlockOp::Write);
                buffers.end(1, first);
                // Until the first buffer comes again.
                for tag in 2..=BUFFERS + 1 {
                    buffers.take(tag, BlockOp::Read);
                    let found = if tag == BUFFERS + 1 { value(0, scatter(1 | 1 << 63)) } else { 0 };
                    buffers.write((tag as usize - 1) % BUFFERS as usize, found);
                    buffers.end(tag, true);
                }
            })
        };
        assert_eq!(round(true, |_, new| new), None);
        assert_eq!(round(false, |_, new| new), None);
        assert_eq!(round(false, |old, _| old), None);
        assert!(round(true, |old, _| old).expect("a lost write").contains("has read"));
    }
}
