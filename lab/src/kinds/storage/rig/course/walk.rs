//! Which I/O a job makes next: direction, file, offset and size, by the rules of fio 3.33 (`io_u.c`).

use super::draw::Draw;
use super::files::{Extent, File, files};
use super::random::{Seeds, Use};
use super::streams::Streams;
use crate::kinds::storage::load::{DIRECTIONS, Distribution, Generator, Load, Service};
use crate::kinds::storage::{JobPlan, Trims};

/// Index of a direction.
pub(super) const READ: usize = 0;
pub(super) const WRITE: usize = 1;
pub(super) const TRIM: usize = 2;

/// An I/O as the walk chooses it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Next {
    pub(super) direction: usize,
    pub(super) file: usize,
    /// From the file's beginning, in bytes.
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// A job's way over its files.
pub(super) struct Walk {
    pub(super) files: Vec<File>,
    /// Bytes of a pass (fio's `size`).
    pub(super) size: u64,
    pub(super) load: Load,
    trims: Trims,
    is_random: bool,
    read_percent: u64,
    pub(super) directions: [bool; DIRECTIONS],
    /// I/Os issued by direction, over all passes.
    pub(super) issues: [u64; DIRECTIONS],
    /// The direction of a mix, and the number of its issues at which the next is drawn.
    mixed: (usize, u64),
    offsets_until_new: u32,
    /// The file in use, I/Os left to it, and the next in turn.
    service: (usize, u32, usize),
    served_by: Option<Draw>,
    /// Bytes done in the zone of a strided walk.
    zone_bytes: u64,
    draws: Streams,
}

impl Walk {
    /// `seeds`: the job's.
    pub(super) fn new(plan: &JobPlan, load: &Load, extents: &[Extent], seeds: &Seeds) -> Self {
        let (files, size) = files(load, extents, seeds, plan.pattern.random);
        let law = match load.files.service {
            Service::Zipf(theta) => Some(Distribution::Zipf(theta, None)),
            Service::Pareto(power) => Some(Distribution::Pareto(power, None)),
            Service::Normal(deviation) => Some(Distribution::Normal(deviation, None)),
            _ => None,
        };
        let seed = seeds.of_use(Use::File);
        let served_by = law.and_then(|law| Draw::new(&law, files.len() as u64, seed)).map(Draw::in_order);
        Self {
            size,
            trims: plan.pattern.trims,
            is_random: plan.pattern.random,
            read_percent: plan.pattern.read_percent.into(),
            directions: Load::directions(&plan.pattern),
            issues: [0; DIRECTIONS],
            // A mix begins with reads, and draws at once.
            mixed: (READ, 0),
            offsets_until_new: 1,
            service: (0, 0, 0),
            served_by,
            zone_bytes: 0,
            draws: Streams::new(plan, load, seeds),
            load: load.clone(),
            files,
        }
    }

    /// Begins another pass. With `randrepeat` it draws the same again, as fio does.
    pub(super) fn rewind(&mut self, plan: &JobPlan, seeds: &Seeds) {
        self.files.iter_mut().for_each(File::rewind);
        // The next file in turn stays the next.
        self.service.1 = 0;
        self.zone_bytes = 0;
        self.mixed.1 = 0;
        if self.load.order.repeats {
            self.draws = Streams::new(plan, &self.load, seeds);
        }
    }

    /// Counts its I/Os from here on, as fio does behind a ramp: what they are held against begins anew too.
    pub(super) fn count_anew(&mut self) {
        self.issues = [0; DIRECTIONS];
        self.mixed.1 = 0;
    }

    /// True for a job with reads and writes.
    pub(super) fn is_mixed(&self) -> bool {
        self.directions[READ] && self.directions[WRITE]
    }

    /// The direction of the next I/O, before a rate has its say.
    pub(super) fn direction(&mut self) -> usize {
        if self.is_mixed() {
            let (direction, until) = self.mixed;
            if self.issues[direction] >= until {
                let drawn = if self.draws.mix.percent() <= self.read_percent { READ } else { WRITE };
                if drawn != direction {
                    let other_percent = if direction == READ { 100 - self.read_percent } else { self.read_percent };
                    self.mixed.1 = self.issues[direction] * other_percent / 100;
                }
                self.mixed.0 = drawn;
            }
            return self.mixed.0;
        }
        match self.directions {
            [true, ..] => READ,
            [_, true, _] => WRITE,
            _ => TRIM,
        }
    }

    /// A rate has changed the direction.
    pub(super) fn turn_to(&mut self, direction: usize) {
        if self.is_mixed() {
            self.mixed.0 = direction;
        }
    }

    /// The next I/O in `direction`; none when no file has one.
    pub(super) fn next(&mut self, mut direction: usize) -> Option<Next> {
        loop {
            let file = self.next_file()?;
            if let Some(next) = self.fill(direction, file) {
                return Some(next);
            }
            // A file that has given nothing since it began has nothing to give.
            let has_given = self.files[file].last.iter().any(Option::is_some);
            if self.served_by.is_some() && has_given {
                self.files[file].reset();
            } else {
                self.files[file].is_done = true;
            }
            self.service.1 = 0;
            // The next file's I/O has a direction of its own.
            direction = self.direction();
        }
    }

    fn next_file(&mut self) -> Option<usize> {
        if self.files.iter().all(|file| file.is_done) {
            return None;
        }
        let (current, left, mut turn) = self.service;
        let is_open = !self.files[current].is_done;
        if is_open && left > 0 {
            if self.load.files.service != Service::Sequential {
                self.service.1 = left - 1;
            }
            return Some(current);
        }
        let count = self.files.len();
        let chosen = loop {
            let file = match self.load.files.service {
                Service::RoundRobin | Service::Sequential => {
                    let file = turn;
                    turn = (turn + 1) % count;
                    file
                }
                Service::Random => (count as f64 * self.draws.file.fraction()) as usize,
                _ => self.served_by.as_mut().map_or(0, Draw::next) as usize,
            };
            if !self.files[file].is_done {
                break file;
            }
        };
        let left = if self.load.files.service == Service::Sequential { 1 } else { self.load.files.service_ios - 1 };
        self.service = (chosen, left, turn);
        Some(chosen)
    }

    fn fill(&mut self, wanted: usize, index: usize) -> Option<Next> {
        let file = &self.files[index];
        let direction = match self.trims {
            Trims::ThenWrite if file.last[WRITE] == file.last[TRIM] => TRIM,
            Trims::ThenWrite => WRITE,
            _ => wanted,
        };
        self.stride(index, direction);
        let writes_trimmed = self.trims == Trims::ThenWrite && self.is_random && direction == WRITE;
        let new_offset = self.has_new_offset();
        let (offset, is_random, marks) = if writes_trimmed {
            let file = &self.files[index];
            (file.last[TRIM]? - file.base, true, false)
        } else {
            self.offset(index, direction, new_offset)?
        };
        let file = &self.files[index];
        if offset >= file.bytes || offset + file.base >= file.length {
            return None;
        }
        let offset = offset + file.base;
        let mut bytes = if writes_trimmed {
            file.next[TRIM] - file.last[TRIM]?
        } else {
            self.size_of(direction, is_random, index, offset)?
        };
        let file = &mut self.files[index];
        if offset + bytes > file.length {
            return None;
        }
        if self.trims == Trims::ThenWrite && self.is_random && direction == TRIM && file.last[TRIM] == Some(offset) {
            file.last[WRITE] = None;
        }
        let smallest = self.load.sizes[direction].min.max(1);
        if let Some(map) = &mut file.map
            && marks
        {
            if self.load.order.generator == Generator::Lfsr {
                // A shift register yields each block once, and knows nothing of sizes.
                map.mark((offset - file.base) / smallest, 1);
            } else {
                let blocks = map.mark((offset - file.base) / smallest, bytes.div_ceil(smallest)).max(1);
                bytes = bytes.min(blocks * smallest);
            }
        }
        file.last[direction] = Some(offset);
        file.next[direction] = offset + bytes;
        self.issues[direction] += 1;
        self.zone_bytes += bytes;
        Some(Next { direction, file: index, offset, bytes })
    }

    /// Whether the next offset is a new one, or follows the last one.
    fn has_new_offset(&mut self) -> bool {
        let every = self.load.order.offset_every;
        if every == 0 {
            return false;
        }
        self.offsets_until_new -= 1;
        let hit = self.offsets_until_new == 0;
        if hit {
            self.offsets_until_new = every;
        }
        hit
    }

    /// Moves to the next zone of a strided walk, and begins a zone again that has had all its bytes.
    fn stride(&mut self, index: usize, direction: usize) {
        let Some(zones) = self.load.order.zones else { return };
        let file = &mut self.files[index];
        if self.zone_bytes >= zones.size {
            self.zone_bytes = 0;
            let next = file.base.saturating_add(zones.range).saturating_add(zones.skip);
            file.base = if next >= file.length { file.start } else { next };
            file.next[direction] = file.base;
        }
        if file.next[direction] >= file.base.saturating_add(zones.range) {
            file.next[direction] = file.base;
        }
        if self.zone_bytes.is_multiple_of(zones.range.max(1)) {
            file.reset();
        }
    }

    /// An offset from the job's first byte in the file; whether it is a random one; whether the map counts it.
    fn offset(&mut self, index: usize, direction: usize, is_new: bool) -> Option<(u64, bool, bool)> {
        let align = self.load.sizes[direction].align.max(1);
        // In place of a sequential one, a random offset counts as sequential, and the map does not count it.
        let random = |walk: &mut Self, is_random: bool| {
            let block = walk.random_block(index, direction)?;
            Some((block * align, is_random, is_random))
        };
        if is_new && self.is_random {
            let percent = u64::from(self.load.order.random_percent[direction]);
            if percent == 100 || self.draws.order[direction].percent() <= percent {
                return random(self, true);
            }
            return match self.sequential(index, direction) {
                Some(offset) => Some((offset, false, false)),
                None => random(self, false),
            };
        }
        if is_new {
            return self.sequential(index, direction).map(|offset| (offset, false, false));
        }
        if self.load.order.identical {
            let file = &self.files[index];
            return Some((file.last[direction].map_or(0, |last| last - file.base), false, false));
        }
        match self.sequential(index, direction) {
            Some(offset) => Some((offset, false, false)),
            None => random(self, false),
        }
    }

    fn sequential(&mut self, index: usize, direction: usize) -> Option<u64> {
        let skip = self.load.order.skip_bytes;
        let goes_round = self.load.ends.time_based && self.files.len() == 1;
        let file = &mut self.files[index];
        if goes_round && file.next[direction] >= file.start + file.bytes {
            file.next[direction] = file.base;
        }
        let next = file.next[direction];
        if next >= file.length {
            return None;
        }
        if skip < 0 && next == file.base && file.base > 0 {
            file.next[direction] = file.length.min(file.bytes);
        }
        let offset = file.next[direction].saturating_sub(file.base);
        if offset == 0 || skip == 0 {
            return Some(offset);
        }
        match offset.checked_add_signed(skip) {
            Some(moved) if moved < file.length => Some(moved),
            _ if skip > 0 => Some(file.base),
            _ => file.length.min(file.bytes).checked_add_signed(skip),
        }
    }

    fn random_block(&mut self, index: usize, direction: usize) -> Option<u64> {
        if let Some(block) = self.drawn_block(index, direction) {
            return Some(block);
        }
        if self.load.ends.time_based || self.served_by.is_some() {
            self.files[index].reset();
            return self.drawn_block(index, direction);
        }
        None
    }

    fn drawn_block(&mut self, index: usize, direction: usize) -> Option<u64> {
        if let Some(draw) = &mut self.files[index].draw {
            return Some(draw.next());
        }
        let sizes = &self.load.sizes[direction];
        let align = sizes.align.max(1);
        let file = &self.files[index];
        let range = self.load.order.zones.map_or(file.bytes.min(file.length), |zones| zones.range);
        let blocks = range.saturating_sub(sizes.min.saturating_sub(align)) / align;
        if blocks == 0 {
            return None;
        }
        let (first, count) = match &self.load.order.distribution {
            Distribution::Zoned(zones) if !zones[direction].is_empty() => {
                let (before, own) = zone_at(&zones[direction], self.draws.zones.percent());
                (blocks * before / 100, blocks * u64::from(own) / 100)
            }
            Distribution::ZonedAbsolute(zones) if !zones[direction].is_empty() => {
                let (before, own) = zone_at(&zones[direction], self.draws.zones.percent());
                if (before + own) / align > blocks {
                    return None;
                }
                (before / align, own / align)
            }
            _ => (0, blocks),
        };
        let block = first + (count as f64 * self.draws.offsets.fraction()) as u64;
        match &self.files[index].map {
            Some(map) if map.is_marked(block) => map.next_free(block),
            _ => Some(block),
        }
    }

    /// Bytes of an I/O at `offset`; none if not even the smallest fits.
    fn size_of(&mut self, direction: usize, is_random: bool, index: usize, offset: u64) -> Option<u64> {
        let direction = match self.load.order.sizes_by_order {
            true if is_random => WRITE,
            true => READ,
            false => direction,
        };
        let sizes = &self.load.sizes[direction];
        if sizes.min == sizes.max {
            return Some(sizes.min);
        }
        let file = &self.files[index];
        let fits = |bytes: u64| offset + bytes <= file.bytes + file.start;
        // A size without a share is never drawn.
        let is_drawn = |&(bytes, share): &(u64, u8)| share > 0 && fits(bytes);
        if !fits(sizes.min) || !sizes.split.is_empty() && !sizes.split.iter().any(is_drawn) {
            return None;
        }
        let random = &mut self.draws.sizes[direction];
        loop {
            let mut bytes = if sizes.split.is_empty() {
                sizes.min + (sizes.max as f64 * random.fraction()) as u64
            } else {
                let drawn = random.next();
                let mut percent = 0;
                let mut bytes = sizes.min;
                for (size, share) in sizes.split.iter().filter(|(_, share)| *share > 0) {
                    bytes = *size;
                    percent += u64::from(*share);
                    if drawn / percent <= random.max() / 100 && fits(bytes) {
                        break;
                    }
                }
                bytes
            };
            if !self.load.order.unaligned {
                bytes -= bytes % sizes.min;
            }
            bytes = bytes.min(sizes.max);
            if fits(bytes) {
                return Some(bytes);
            }
        }
    }
}

/// The zone that has the `percent`th per cent of the accesses: the sizes before it, and its own.
fn zone_at<S: Copy + Into<u64>>(zones: &[(u8, S)], percent: u64) -> (u64, S) {
    let (mut before, mut share) = (0, 0);
    let mut last = zones[0].1;
    for &(accesses, size) in zones {
        share += u64::from(accesses);
        if percent <= share {
            return (before, size);
        }
        before += size.into();
        last = size;
    }
    (before, last)
}

#[cfg(test)]
#[path = "walk_tests.rs"]
mod tests;
