//! The files of a job: how long they are, where they lie, and how far the job is in each. By the rules of fio 3.33's
//! `setup_files` and `get_start_offset`.

use super::draw::Draw;
use super::map::Map;
use super::random::{Random, Seeds, Use};
use crate::kinds::storage::load::{Amount, DIRECTIONS, Distribution, Generator, Load};

/// A file that a job uses.
pub(super) struct File {
    /// The file's length.
    pub(super) length: u64,
    /// The first byte that the job uses.
    pub(super) start: u64,
    /// The first byte of the zone that a strided walk is in; else `start`.
    pub(super) base: u64,
    /// Bytes that the job uses.
    pub(super) bytes: u64,
    /// Where the next sequential I/O of a direction begins.
    pub(super) next: [u64; DIRECTIONS],
    /// Where the last I/O of a direction began.
    pub(super) last: [Option<u64>; DIRECTIONS],
    pub(super) is_done: bool,
    /// Blocks that had their I/O in this pass, if they are to have one each.
    pub(super) map: Option<Map>,
    /// An uneven distribution.
    pub(super) draw: Option<Draw>,
}

impl File {
    /// Begins a pass over the file.
    pub(super) fn rewind(&mut self) {
        self.base = self.start;
        self.is_done = false;
        self.reset();
    }

    /// Forgets which blocks had their I/O, and goes back to the first byte (fio's `fio_file_reset`).
    pub(super) fn reset(&mut self) {
        self.next = [self.base; DIRECTIONS];
        self.last = [None; DIRECTIONS];
        if let Some(map) = &mut self.map {
            map.clear();
        }
    }
}

/// Where an extent lies: index of the target, first byte, and the bytes of the drive behind it.
#[derive(Clone, Copy)]
pub(super) struct Extent {
    pub(super) target: u32,
    pub(super) base: u64,
    /// The drive's bytes for a drive; none for a file that does not exist yet.
    pub(super) real: Option<u64>,
}

/// The files of a job, and the bytes that a pass over them takes (fio's `size`).
pub(super) fn files(load: &Load, extents: &[Extent], seeds: &Seeds, is_random: bool) -> (Vec<File>, u64) {
    let smallest = smallest(load);
    let wide = load.order.generator == Generator::Tausworthe64;
    let mut file_sizes = seeds.stream(Use::FileSize, wide);
    let count = extents.len().max(1) as u64;
    let size = match load.files.size {
        Some(Amount::Bytes(bytes)) => bytes,
        _ => 0,
    };
    let each = size / count;
    let mut extra = if load.files.file_size.is_none() { (size - each * count) / smallest } else { 0 };
    let mut total = 0;
    let mut files = Vec::new();
    for (index, extent) in extents.iter().enumerate() {
        let own = |more: bool| each + if more { smallest } else { 0 };
        let start = start_of(load, extent.real.unwrap_or(each));
        let more = extra > 0 && load.files.file_size.is_none();
        extra -= u64::from(more);
        let mut bytes = match (load.files.file_size, extent.real) {
            (None, real) => match own(more) {
                0 => real.unwrap_or(0).saturating_sub(start),
                bytes => bytes,
            },
            (Some((least, most)), real) if real.is_none_or(|real| real < least || real > most) => {
                random_size(&mut file_sizes, least, most, smallest).saturating_sub(start)
            }
            (Some(_), real) => real.unwrap_or(0).saturating_sub(start),
        };
        if let Some(Amount::Percent(percent)) = load.files.size {
            let whole = bytes + start;
            bytes = share(whole, percent).min(whole - start);
            bytes -= bytes % smallest;
        }
        // A drive ends where it ends; a file grows.
        let length = extent.real.unwrap_or(u64::MAX).min(start + bytes);
        let counted = match load.ends.io_size {
            Some(Amount::Percent(percent)) => share(bytes, percent),
            _ => bytes,
        };
        total += counted;
        let blocks = load.order.zones.map_or(bytes, |zones| zones.range.min(bytes)) / smallest;
        let is_even = matches!(
            load.order.distribution,
            Distribution::Even | Distribution::Zoned(_) | Distribution::ZonedAbsolute(_)
        );
        let has_map = load.order.map || load.order.generator == Generator::Lfsr;
        let align = load.sizes[0].align.max(1);
        let seed = seeds.of_use(Use::Mix).wrapping_add(index as u64);
        files.push(File {
            length: extent.real.map_or(length, |real| real.max(length)),
            start,
            base: start,
            bytes,
            next: [start; DIRECTIONS],
            last: [None; DIRECTIONS],
            is_done: false,
            map: (is_random && is_even && has_map).then(|| Map::new(blocks)),
            draw: if is_random { Draw::new(&load.order.distribution, (bytes / align).max(1), seed) } else { None },
        });
    }
    let size = if size == 0 || (total > 0 && size > total) { total } else { size };
    (files, size)
}

/// A place behind the end of every file.
const START_MAX: u64 = 1 << 62;

/// So many per cent of `bytes`.
fn share(bytes: u64, percent: u8) -> u64 {
    (u128::from(bytes) * u128::from(percent) / 100) as u64
}

fn random_size(random: &mut Random, least: u64, most: u64, smallest: u64) -> u64 {
    if least == most {
        return least;
    }
    let bytes = least + ((most - least) as f64 * random.fraction()) as u64;
    bytes - bytes % smallest
}

/// Bytes of the smallest I/O of the job.
fn smallest(load: &Load) -> u64 {
    load.sizes.iter().map(|sizes| sizes.min).min().unwrap_or(4096).max(1)
}

/// The first byte in a file of so many bytes: `offset` and `offset_increment`; shares are rounded up to a whole block.
pub(crate) fn start_of(load: &Load, length: u64) -> u64 {
    let files = &load.files;
    let of = |amount: Amount| match amount {
        Amount::Bytes(bytes) => (bytes, false),
        Amount::Percent(percent) => (share(length, percent), percent > 0),
    };
    let ((offset, is_share), (increment, steps_by_share)) = (of(files.offset), of(files.increment));
    let start = offset.saturating_add(increment.saturating_mul(files.clone.into())).min(START_MAX);
    if is_share || steps_by_share {
        let align = if files.offset_align > 0 { files.offset_align } else { smallest(load) };
        return start.div_ceil(align) * align;
    }
    start
}

/// The bytes that a file of the load has on its drive, as far as the options tell; to lay files out beside each other.
pub(super) fn length_on_drive(load: &Load, capacity: u64) -> u64 {
    let count = load.files.list.len().max(1) as u64;
    let start = start_of(load, 0);
    let bytes = match (load.files.size, load.files.file_size, load.ends.io_size) {
        (_, Some((_, most)), _) => most,
        (Some(Amount::Bytes(bytes)), ..) => bytes / count + (1 << 20),
        // Without a size, fio takes the file that exists: here a share of the drive.
        _ => capacity / 4 / count,
    };
    start.saturating_add(bytes)
}
