//! The NVMe drives of a Linux guest with several, and what they hold.

use crate::aio::{BLOCK, Page};
use crate::system::{Outcome, open_disk};
use std::fs::File;

/// Blocks of a drive that are used, read in passes.
pub(crate) const BLOCKS: usize = 64;

/// What block `index` of a drive holds.
pub(crate) fn content(drive: usize, index: usize) -> Page {
    let mut page = [0; BLOCK];
    for (at, bytes) in page.chunks_exact_mut(8).enumerate() {
        let word = ((drive * BLOCKS + index) << 16 | at) as u64;
        bytes.copy_from_slice(&word.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    }
    Page(page)
}

/// Waits for a drive and opens it.
pub(crate) fn open(drive: usize) -> Outcome<File> {
    open_disk(&format!("/dev/nvme{drive}n1"))
}
