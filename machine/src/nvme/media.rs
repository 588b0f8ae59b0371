//! How writes reach the media: through a cache or directly, at the media's own rate; and flushes, which wait for them.
//!
//! The media take writes one after another, each for its bytes at the rate of a sequential stream or of scattered
//! writes. With a cache, a write ends when the cache has taken its data; a full cache keeps it waiting until the media
//! have made room. Without a cache, or with FUA, a write ends when the media have programmed it.

use super::config::Writes;
use super::latency::draw;
use super::{Counters, Nvme, code};
use crate::time::Ps;
use crate::world::World;
use std::collections::VecDeque;

/// Number of sequential streams that the drive tells apart.
const STREAMS: usize = 32;

/// What lies between the data of writes and the media.
pub(super) struct Media {
    /// The media are busy with the writes that they have accepted, until then.
    busy_until: Ps,
    /// Bytes in the cache that the media have not accepted yet.
    cached: u64,
    /// The media have accepted all that the cache took, then. They program it for a time more.
    cache_accepted: Ps,
    /// Writes that the full cache keeps waiting: ticket, and the time of arrival.
    waiting: VecDeque<(u64, Ps)>,
    /// The blocks at which the latest writes ended.
    stream_ends: [u64; STREAMS],
    stream_next: usize,
}

impl Media {
    pub(super) fn new() -> Self {
        Self {
            busy_until: Ps(0),
            cached: 0,
            cache_accepted: Ps(0),
            waiting: VecDeque::new(),
            stream_ends: [u64::MAX; STREAMS],
            stream_next: 0,
        }
    }

    /// Commands that wait are gone; their number. What the cache holds stays and reaches the media.
    pub(super) fn reset(&mut self) -> usize {
        self.waiting.drain(..).count()
    }

    /// Bytes in the cache that the media have not accepted yet.
    pub(super) fn cached(&self) -> u64 {
        self.cached
    }

    /// Whether a write from `lba` on continues a stream; remembers where it ends.
    fn continues(&mut self, lba: u64, end: u64) -> bool {
        if let Some(stream) = self.stream_ends.iter_mut().find(|stream| **stream == lba) {
            *stream = end;
            return true;
        }
        self.stream_ends[self.stream_next] = end;
        self.stream_next = (self.stream_next + 1) % STREAMS;
        false
    }
}

/// The media's time for a write of `bytes` that begins `first_byte` bytes from the drive's beginning. Scattered writes
/// cost whole units; the writes of a stream fill units together. Zero at the rate 0, which means no limit.
fn media_time(writes: &Writes, first_byte: u64, bytes: u64, is_sequential: bool) -> Ps {
    let unit = u64::from(writes.unit_bytes.max(1));
    let (bytes, rate) = if is_sequential {
        (bytes, writes.sequential_bytes_per_second)
    } else {
        let units = (first_byte + bytes).div_ceil(unit) - first_byte / unit;
        (units * unit, writes.random_bytes_per_second)
    };
    if rate == 0 {
        return Ps(0);
    }
    Ps((u128::from(bytes) * 1_000_000_000_000 / u128::from(rate)) as u64)
}

impl Counters {
    /// A command begins to use the media.
    pub(super) fn enter_media(&mut self, now: Ps) {
        self.media_slots += 1;
        self.media_slot_ps = self.media_slot_ps.wrapping_sub(now.0);
    }

    /// A command uses them no more.
    pub(super) fn leave_media(&mut self, now: Ps) {
        self.media_slots -= 1;
        self.media_slot_ps = self.media_slot_ps.wrapping_add(now.0);
    }
}

impl Nvme {
    /// The data of a write are in the drive.
    pub(super) fn write_arrived(&mut self, world: &mut World<'_>, index: u16) {
        let slot = self.slots.get(index);
        let (bytes, ticket, through) = (u64::from(slot.data.bytes), slot.ticket(index), slot.fua || !self.caches());
        self.counters.enter_media(world.now());
        if through {
            let begins = self.media.busy_until.max(world.now());
            let accepted = self.accept(world, index);
            let programmed = begins + draw(world, self.config.timing.write);
            self.media_ends(world, ticket, accepted.max(programmed), world.now());
        } else if self.media.waiting.is_empty() && self.fits(bytes) {
            self.cache(world, index, world.now());
        } else {
            self.media.waiting.push_back((ticket, world.now()));
        }
    }

    /// Whether writes end in the cache.
    fn caches(&self) -> bool {
        self.config.writes.cache_bytes > 0 && self.features.write_cache
    }

    /// Whether the cache has room. A write that is larger than the cache passes when it is empty.
    fn fits(&self, bytes: u64) -> bool {
        self.media.cached == 0 || self.media.cached + bytes <= self.config.writes.cache_bytes
    }

    /// The cache takes a write that arrived at `since`.
    fn cache(&mut self, world: &mut World<'_>, index: u16, since: Ps) {
        let slot = self.slots.get(index);
        let (bytes, ticket) = (slot.data.bytes, slot.ticket(index));
        let drained = self.accept(world, index);
        self.media.cache_accepted = drained;
        self.media.cached += u64::from(bytes);
        world.schedule(drained, code::DRAINED, bytes.into());
        let done = world.now() + draw(world, self.config.writes.cached);
        self.media_ends(world, ticket, done, since);
    }

    /// Queues a write at the media. Returns the time when they have taken it.
    fn accept(&mut self, world: &mut World<'_>, index: u16) -> Ps {
        let slot = self.slots.get(index);
        let (lba, bytes, shift) = (slot.lba, u64::from(slot.data.bytes), self.config.block_shift);
        let is_sequential = self.media.continues(lba, lba + (bytes >> shift));
        let time = media_time(&self.config.writes, lba << shift, bytes, is_sequential);
        let time = if time == Ps(0) { time } else { world.jitter(time) };
        self.counters.media_write_ps += time.0;
        self.media.busy_until = self.media.busy_until.max(world.now()) + time;
        self.counters.media_write_end_ps = self.media.busy_until.0;
        self.media.busy_until
    }

    fn media_ends(&mut self, world: &mut World<'_>, ticket: u64, at: Ps, since: Ps) {
        self.counters.media_ps += (at - since).0;
        world.schedule(at, code::MEDIA, ticket);
    }

    /// The media have accepted so many bytes of the cache: writes that waited for room may have it now.
    pub(super) fn drained(&mut self, world: &mut World<'_>, bytes: u64) {
        self.media.cached -= bytes;
        while let Some(&(ticket, since)) = self.media.waiting.front() {
            // An aborted write waits no more.
            let Some(index) = self.slots.redeem(ticket) else {
                self.media.waiting.pop_front();
                self.counters.leave_media(world.now());
                continue;
            };
            if !self.fits(u64::from(self.slots.get(index).data.bytes)) {
                return;
            }
            self.media.waiting.pop_front();
            self.cache(world, index, since);
        }
    }

    /// When the writes that ended before now are on the media. Power-loss protection makes a cache as good as the media.
    pub(super) fn durable_at(&mut self, world: &mut World<'_>) -> Ps {
        if !self.config.writes.is_volatile || self.media.cache_accepted == Ps(0) {
            return world.now();
        }
        let programmed = self.media.cache_accepted + draw(world, self.config.timing.write);
        programmed.max(world.now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITES: Writes = Writes {
        sequential_bytes_per_second: 4_096_000_000,
        random_bytes_per_second: 1_024_000_000,
        unit_bytes: 4096,
        ..Writes::DIRECT
    };

    #[test]
    fn scattered_writes_cost_whole_units_and_streams_their_bytes() {
        assert_eq!(media_time(&WRITES, 0, 4096, true), Ps::from_ns(1_000));
        assert_eq!(media_time(&WRITES, 0, 512, true), Ps::from_ns(125));
        assert_eq!(media_time(&WRITES, 0, 4096, false), Ps::from_ns(4_000));
        assert_eq!(media_time(&WRITES, 512, 512, false), Ps::from_ns(4_000), "a part of a unit");
        assert_eq!(media_time(&WRITES, 512, 4096, false), Ps::from_ns(8_000), "two units");
        assert_eq!(media_time(&Writes::DIRECT, 0, 1 << 20, false), Ps(0), "no limit");
    }

    #[test]
    fn a_stream_is_told_from_scattered_writes() {
        let mut media = Media::new();
        assert!(!media.continues(0, 8));
        assert!(!media.continues(1_000, 1_008), "another stream");
        assert!(media.continues(8, 16));
        assert!(media.continues(1_008, 1_016));
        assert!(!media.continues(8, 16), "not again");
        (0..32).for_each(|write| _ = media.continues(5_000 + write * 100, 5_001 + write * 100));
        assert!(!media.continues(16, 24), "forgotten behind 32 others");
    }
}
