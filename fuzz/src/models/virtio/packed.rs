//! A guest's packed virtqueues (VIRTIO 2.8), often nearly right.

use super::{BUFFERS, ENTRIES, QUEUE_BYTES, QUEUES, request, stretch};
use crate::models::host::Host;

const NEXT: u64 = 1;
const WRITE: u64 = 2;
const INDIRECT: u64 = 4;
/// The table of an indirect descriptor: in the second kilobyte of a queue's first page, behind the ring.
const TABLE: usize = 0x400;

/// Where the guest makes the next descriptor of each queue available: slot and wrap counter.
pub(super) struct Packed([(u16, bool); QUEUES as usize]);

impl Default for Packed {
    fn default() -> Self {
        Self([(0, true); QUEUES as usize])
    }
}

/// Descriptors without their place: address, length, flags.
type List = Vec<(u64, u64, u64)>;

impl Packed {
    /// Makes a list available: a request of a block device, a table of one, or a descriptor of any kind. Returns the queue.
    pub(super) fn offer(&mut self, host: &mut Host<'_>) -> u32 {
        let queue = u32::from(host.input.u8()) % u32::from(QUEUES);
        let base = queue as usize * QUEUE_BYTES;
        let list = match host.input.u8() % 4 {
            0 => block(host),
            1 => table(host, base),
            2 => {
                let (address, len) = stretch(host);
                vec![(address, len.into(), u64::from(host.input.u8() % 8))]
            }
            // As long as the queue, or longer.
            _ => {
                let count = usize::from(host.input.u8() % 10) + 1;
                let part = (host.address(BUFFERS + 0x100), 64, WRITE);
                (0..count).map(|place| (part.0, part.1, part.2 | if place + 1 < count { NEXT } else { 0 })).collect()
            }
        };
        let id = if host.input.one_in(16) { host.input.u16() } else { u16::from(host.input.u8() % ENTRIES as u8) };
        // The guest writes its first descriptor last, or it does not.
        let places: Vec<_> = list.iter().map(|_| self.next(queue as usize)).collect();
        let mut order: Vec<_> = (0..list.len()).collect();
        if !host.input.one_in(8) {
            order.reverse();
        }
        for place in order {
            let ((address, len, mut flags), (slot, mut wrap)) = (list[place], places[place]);
            wrap ^= host.input.one_in(32);
            flags |= if wrap { 1 << 7 } else { 1 << 15 };
            let words = [address, len | u64::from(id) << 32 | flags << 48];
            host.put(base / 8 + usize::from(slot) * 2, &words);
        }
        queue
    }

    fn next(&mut self, queue: usize) -> (u16, bool) {
        let (slot, wrap) = self.0[queue];
        self.0[queue] = if slot + 1 == ENTRIES { (0, !wrap) } else { (slot + 1, wrap) };
        (slot, wrap)
    }
}

/// Header, data, status.
fn block(host: &mut Host<'_>) -> List {
    let (writes, bytes) = request(host);
    vec![
        (host.address(BUFFERS), 16, NEXT),
        (host.address(BUFFERS + 0x100), bytes, NEXT | if writes { WRITE } else { 0 }),
        (host.address(BUFFERS + 0x20), 1, WRITE),
    ]
}

/// A table with such a list, and the descriptor that names it. Its length is sometimes wrong.
fn table(host: &mut Host<'_>, base: usize) -> List {
    let list = block(host);
    let words: Vec<_> = list.iter().flat_map(|&(address, len, flags)| [address, len | flags << 48]).collect();
    host.put((base + TABLE) / 8, &words);
    let len = if host.input.one_in(4) { host.input.u16().into() } else { 16 * list.len() as u64 };
    let more = if host.input.one_in(16) { NEXT } else { 0 };
    vec![(host.address((base + TABLE) as u64), len, INDIRECT | more)]
}
