//! The event queue: a calendar of narrow buckets, of which only the next is sorted.
//!
//! A heap pays a mispredicted comparison at every level; here an event is appended to the bucket of its time and
//! sorted with its few neighbours when that bucket comes up. Events beyond the ring wait in a heap.

use super::occupied::Occupied;
use super::sort::BucketSort;
use crate::time::Ps;
use core::cmp::Ordering;
use core::mem;
use std::collections::BinaryHeap;

#[cfg(test)]
mod tests;

/// A bucket is 2^16 ps wide: about 66 ns.
pub(super) const BUCKET_BITS: u32 = 16;
/// Buckets in the ring, which thus covers 268 µs: longer than a drive takes.
const RING: u64 = Occupied::LEN as u64;

/// A pending event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<T> {
    pub(super) at: Ps,
    sequence: u64,
    payload: T,
}

impl<T> Entry<T> {
    /// Time, then sequence number, as one number: compared without a branch.
    pub(super) fn key(&self) -> u128 {
        key(self.at, self.sequence)
    }

    fn bucket(&self) -> u64 {
        self.at.0 >> BUCKET_BITS
    }
}

/// A place in the order of (time, sequence number), as one number.
#[inline]
pub(crate) fn key(at: Ps, sequence: u64) -> u128 {
    (u128::from(at.0) << 64) | u128::from(sequence)
}

/// The time of a place in the order.
#[inline]
pub(crate) fn time(key: u128) -> Ps {
    Ps((key >> 64) as u64)
}

/// Ordered for a max-heap: the earliest is the greatest.
impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for Entry<T> {}

/// Pending events in the order of (time, sequence number).
///
/// Whenever any event is pending, `head` holds the events of the earliest bucket, so the next key is one load away. If
/// an event is pushed before that bucket, the head steps back without moving any event.
#[derive(Debug)]
pub struct Calendar<T> {
    /// The events of the earliest bucket, latest first.
    head: Vec<Entry<T>>,
    /// The number of that bucket; meaningless while `head` is empty.
    head_bucket: u64,
    /// The key popped last; no earlier key may be pushed.
    present: u128,
    /// Buckets `base()` to `base()` + `RING` − 1, unsorted, except the head.
    ring: Box<[Vec<Entry<T>>; Occupied::LEN]>,
    occupied: Occupied,
    /// Events beyond the ring.
    far: BinaryHeap<Entry<T>>,
    /// Storage of emptied buckets, kept for reuse.
    spare: Vec<Vec<Entry<T>>>,
    sort: BucketSort<T>,
    next_sequence: u64,
    len: usize,
}

impl<T: Copy> Default for Calendar<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Copy> Calendar<T> {
    /// An empty calendar at time 0.
    pub fn new() -> Self {
        Self {
            head: Vec::new(),
            head_bucket: 0,
            present: 0,
            ring: Box::new([const { Vec::new() }; Occupied::LEN]),
            occupied: Occupied::new(),
            far: BinaryHeap::new(),
            spare: Vec::new(),
            sort: BucketSort::new(),
            next_sequence: 0,
            len: 0,
        }
    }

    /// How many events are pending.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if no event is pending.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes the next sequence number, for an event that may be pushed later, or never.
    #[inline]
    pub fn reserve_sequence(&mut self) -> u64 {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        sequence
    }

    /// Adds an event at `at`, after those of the same time already there.
    ///
    /// # Panics
    /// When `at` is before the event popped last.
    #[inline]
    pub fn push(&mut self, at: Ps, payload: T) {
        let sequence = self.reserve_sequence();
        self.push_with_sequence(at, sequence, payload);
    }

    /// Adds an event under a number from [`Calendar::reserve_sequence`], which is used once.
    ///
    /// # Panics
    /// When (`at`, `sequence`) is before the event popped last.
    #[inline]
    pub fn push_with_sequence(&mut self, at: Ps, sequence: u64, payload: T) {
        // The entry is built in its final place. Built on the stack and copied whole, it would stall the host's CPU,
        // which cannot forward two small stores to one wide load.
        let key = key(at, sequence);
        if key < self.present {
            self.reject(at, sequence);
        }
        self.len += 1;
        let bucket = at.0 >> BUCKET_BITS;
        if self.head.is_empty() || bucket < self.head_bucket {
            self.step_back();
            self.head_bucket = bucket;
            self.head.push(Entry { at, sequence, payload });
        } else if bucket == self.head_bucket {
            let place = self.head.partition_point(|other| other.key() > key);
            self.head.insert(place, Entry { at, sequence, payload });
        } else if bucket - self.base() < RING {
            self.bucket_mut(bucket).push(Entry { at, sequence, payload });
        } else {
            self.far.push(Entry { at, sequence, payload });
        }
    }

    /// Adds an event as [`Calendar::push`] does if that takes no call: if it belongs behind the head, and its bucket
    /// has room. Otherwise returns false and adds nothing.
    ///
    /// Most events go this way. A call, even one that is not made, would make this path save registers.
    #[inline]
    pub(crate) fn push_behind(&mut self, at: Ps, payload: T) -> bool {
        let bucket = at.0 >> BUCKET_BITS;
        if self.head.is_empty() || bucket <= self.head_bucket || bucket - self.base() >= RING {
            return false;
        }
        let position = (bucket % RING) as usize;
        let events = &mut self.ring[position];
        if events.capacity() == 0 {
            let Some(spare) = self.spare.pop() else { return false };
            // Without memory, the bucket's own vector needs no drop.
            mem::forget(mem::replace(events, spare));
        }
        if events.len() == events.capacity() {
            return false;
        }
        if events.is_empty() {
            self.occupied.insert(position);
        }
        events.push(Entry { at, sequence: self.next_sequence, payload });
        self.next_sequence += 1;
        self.len += 1;
        true
    }

    /// The key of the next event: one load.
    #[inline]
    pub fn next_key(&self) -> Option<(Ps, u64)> {
        self.head.last().map(|entry| (entry.at, entry.sequence))
    }

    /// The time of the next event; `Ps::MAX` when nothing is pending.
    #[inline]
    pub(crate) fn next_time(&self) -> Ps {
        self.head.last().map_or(Ps::MAX, |entry| entry.at)
    }

    /// Takes the next event, which becomes the present.
    #[inline]
    pub fn pop(&mut self) -> Option<(Ps, u64, T)> {
        let entry = self.head.pop()?;
        let base = self.base();
        self.len -= 1;
        self.present = entry.key();
        if self.base() != base && !self.far.is_empty() {
            self.admit_far();
        }
        if self.head.is_empty() && self.len != 0 {
            self.advance();
        }
        Some((entry.at, entry.sequence, entry.payload))
    }

    /// Takes the next event if its key is less than `limit`.
    #[inline]
    pub fn pop_before(&mut self, limit: (Ps, u64)) -> Option<(Ps, u64, T)> {
        self.pop_before_key(key(limit.0, limit.1))
    }

    /// The same for a limit as one number: time in the upper half, sequence number in the lower.
    #[inline]
    pub(crate) fn pop_before_key(&mut self, limit: u128) -> Option<(Ps, u64, T)> {
        let next = self.head.last()?;
        if next.key() < limit { self.pop() } else { None }
    }

    /// The bucket of the present, which is the first of the ring.
    fn base(&self) -> u64 {
        (self.present >> (64 + BUCKET_BITS)) as u64
    }

    /// The events of a ring bucket to which an event is about to be added.
    #[inline]
    fn bucket_mut(&mut self, bucket: u64) -> &mut Vec<Entry<T>> {
        let position = (bucket % RING) as usize;
        let events = &mut self.ring[position];
        if events.is_empty() {
            *events = self.spare.pop().unwrap_or_default();
            self.occupied.insert(position);
        }
        events
    }

    /// Returns the head's events to their bucket, because an earlier bucket is about to become the head.
    #[cold]
    fn step_back(&mut self) {
        if self.head.is_empty() {
            return;
        }
        let empty = self.spare.pop().unwrap_or_default();
        let mut events = mem::replace(&mut self.head, empty);
        if self.head_bucket - self.base() >= RING {
            self.far.extend(events.drain(..));
            self.spare.push(events);
        } else {
            let position = (self.head_bucket % RING) as usize;
            self.ring[position] = events;
            self.occupied.insert(position);
        }
    }

    /// Moves events from the far heap into the ring, as far as the ring now reaches.
    #[cold]
    fn admit_far(&mut self) {
        let end = self.base() + RING;
        while let Some(first) = self.far.peek()
            && first.bucket() < end
            && let Some(entry) = self.far.pop()
        {
            debug_assert!(self.head.is_empty() || entry.bucket() > self.head_bucket, "the head takes a bucket whole");
            self.bucket_mut(entry.bucket()).push(entry);
        }
    }

    /// Makes the earliest bucket the head; the head is empty.
    #[inline]
    fn advance(&mut self) {
        let base = self.base();
        if let Some(distance) = self.occupied.distance_from((base % RING) as usize) {
            self.head_bucket = base + distance as u64;
            let position = (self.head_bucket % RING) as usize;
            self.occupied.remove(position);
            let events = mem::take(&mut self.ring[position]);
            self.spare.push(mem::replace(&mut self.head, events));
            if self.head.len() > 1 {
                self.sort.sort(&mut self.head);
            }
            return;
        }
        self.advance_beyond_ring();
    }

    /// Makes the earliest bucket beyond the ring the head.
    #[cold]
    fn advance_beyond_ring(&mut self) {
        let Some(first) = self.far.peek() else { return };
        self.head_bucket = first.bucket();
        while let Some(next) = self.far.peek()
            && next.bucket() == self.head_bucket
        {
            self.head.extend(self.far.pop());
        }
        self.head.reverse();
    }

    #[cold]
    fn reject(&self, at: Ps, sequence: u64) -> ! {
        let present = Ps((self.present >> 64) as u64);
        panic!("event {sequence} pushed at {at}, before the present: event {} at {present}", self.present as u64);
    }
}
