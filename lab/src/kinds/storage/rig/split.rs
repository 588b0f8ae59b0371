//! Splits an I/O into commands, where and as Linux splits it.
//!
//! A command carries at most the smallest of three limits: what the controller takes (MDTS), what the block layer
//! allows (`max_sectors_kb`), and what fits the segments of a command (`max_segments`). Parts are as long as the limit
//! allows, in ascending order; the last one is the rest. (Linux 6.12: `bio_split_rw`, `blk_validate_limits`.)

use drivers::nvme::IoRequest;

/// A memory page. A buffer's pages lie apart from each other in memory, so each is a segment.
pub(super) const PAGE_BYTES: u32 = 4096;

/// The longest command, in bytes, for a controller that takes `transfer_bytes_max`. A whole number of pages, or of
/// blocks where the limit is below a page.
pub(in super::super) fn command_bytes_max(transfer_bytes_max: u32, max_sectors_bytes: u32, max_segments: u32) -> u32 {
    let segments = max_segments.saturating_mul(PAGE_BYTES);
    let most = transfer_bytes_max.min(max_sectors_bytes).min(segments);
    if most < PAGE_BYTES { most } else { most - most % PAGE_BYTES }
}

/// The number of commands of an I/O.
pub(in super::super) fn commands(io_bytes: u32, command_bytes_max: u32) -> u32 {
    io_bytes.div_ceil(command_bytes_max)
}

/// The commands of `io`, on blocks of `lba_bytes`. All carry its tag.
pub(super) fn split(io: IoRequest, command_bytes_max: u32, lba_bytes: u32) -> impl Iterator<Item = IoRequest> {
    (0..commands(io.len_bytes, command_bytes_max)).map(move |part| {
        let done = part * command_bytes_max;
        IoRequest {
            lba: io.lba + u64::from(done / lba_bytes),
            buffer: io.buffer.offset(done.into()),
            len_bytes: (io.len_bytes - done).min(command_bytes_max),
            ..io
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use drivers::nvme::IoOp;
    use hal::DeviceAddress;

    const KIB: u32 = 1024;

    #[test]
    fn the_smallest_limit_counts() {
        assert_eq!(command_bytes_max(128 * KIB, 1280 * KIB, 128), 128 * KIB, "MDTS");
        assert_eq!(command_bytes_max(2048 * KIB, 1280 * KIB, 128), 512 * KIB, "128 segments of a page");
        assert_eq!(command_bytes_max(2048 * KIB, 1280 * KIB, 1024), 1280 * KIB, "max_sectors_kb");
        assert_eq!(command_bytes_max(2048 * KIB, 10 * KIB, 128), 8 * KIB, "whole pages");
        assert_eq!(command_bytes_max(2048 * KIB, 512, 128), 512, "below a page");
    }

    #[test]
    fn parts_cover_the_io_without_gap_or_overlap() {
        for (len_bytes, most) in
            [(16384 * KIB, 512 * KIB), (1281 * KIB, 1280 * KIB), (512, 4096), (130 * KIB, 128 * KIB)]
        {
            let io = IoRequest { tag: 7, op: IoOp::Read, lba: 1000, buffer: DeviceAddress(0x10_0000), len_bytes };
            let parts: Vec<_> = split(io, most, 512).collect();
            assert_eq!(parts.len() as u32, commands(len_bytes, most));
            let mut done = 0;
            for part in &parts {
                assert_eq!((part.lba, part.buffer.0), (1000 + u64::from(done / 512), 0x10_0000 + u64::from(done)));
                assert!(part.len_bytes <= most && part.tag == 7);
                done += part.len_bytes;
            }
            assert_eq!(done, len_bytes);
        }
    }
}
