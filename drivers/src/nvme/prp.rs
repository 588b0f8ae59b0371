//! Physical region pages (Base 4.1.1): how a command names its buffer.

/// Bytes of a memory page: CC.MPS is 0.
pub(super) const PAGE_BYTES: u64 = 4096;
/// Bytes of a PRP entry.
pub(super) const ENTRY_BYTES: usize = 8;
/// The longest transfer whose list fits in one page for every offset in its first page.
pub(super) const TRANSFER_BYTES_MAX: u32 = (PAGE_BYTES as u32 / ENTRY_BYTES as u32) * PAGE_BYTES as u32;

/// How many list entries a buffer of `len_bytes` needs at most: all pages but the first, which PRP1 names. A buffer
/// that touches one or two pages needs no list.
pub(super) fn list_entries(len_bytes: u32) -> usize {
    len_bytes.div_ceil(PAGE_BYTES as u32) as usize
}

/// PRP1 and PRP2 of a buffer of `len_bytes` (above 0) at `address`. A buffer that touches more than two pages puts
/// every page but the first into the list at `list`, one `put(index, page)` each.
pub(super) fn build(address: u64, len_bytes: u32, list: u64, mut put: impl FnMut(usize, u64)) -> (u64, u64) {
    let first = address & !(PAGE_BYTES - 1);
    let pages = (address - first + u64::from(len_bytes)).div_ceil(PAGE_BYTES);
    match pages {
        1 => (address, 0),
        2 => (address, first + PAGE_BYTES),
        _ => {
            for page in 1..pages {
                put(page as usize - 1, first + page * PAGE_BYTES);
            }
            (address, list)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const LIST: u64 = 0x7777_0100;

    fn built(address: u64, len_bytes: u32) -> (u64, u64, Vec<u64>) {
        let mut list = Vec::new();
        let (prp1, prp2) = build(address, len_bytes, LIST, |index, page| {
            assert_eq!(index, list.len());
            list.push(page);
        });
        (prp1, prp2, list)
    }

    #[test]
    fn the_three_forms() {
        assert_eq!(built(0x1000, 4096), (0x1000, 0, Vec::new()));
        assert_eq!(built(0x1200, 512), (0x1200, 0, Vec::new()));
        assert_eq!(built(0x1200, 4096), (0x1200, 0x2000, Vec::new()));
        assert_eq!(built(0x1000, 8192), (0x1000, 0x2000, Vec::new()));
        assert_eq!(built(0x1004, 8192), (0x1004, LIST, [0x2000, 0x3000].into()));
        assert_eq!(built(0x1000, 128 << 10).2.len(), 31);
        assert_eq!(built(0x1ffc, TRANSFER_BYTES_MAX).2.len(), 512);
    }

    proptest! {
        /// The bytes that the device reaches through its list of pages are those of the buffer.
        #[test]
        fn a_device_that_follows_the_pages_reaches_every_byte(
            page in 1_u64..1 << 40, offset in (0_u64..1024).prop_map(|dwords| dwords * 4), len_bytes in 1..=TRANSFER_BYTES_MAX,
        ) {
            let address = page * 4096 + offset;
            let (prp1, prp2, list) = built(address, len_bytes);
            prop_assert!(list.len() <= list_entries(len_bytes));
            let mut told: Vec<u64> = [prp1].into();
            if list.is_empty() { told.push(prp2) } else { prop_assert_eq!(prp2, LIST); told.extend(&list) }
            let mut place = address;
            let mut left = u64::from(len_bytes);
            for entry in told {
                if left == 0 {
                    prop_assert_eq!(entry, 0);
                    break;
                }
                prop_assert_eq!(entry, place);
                let here = (4096 - entry % 4096).min(left);
                place += here;
                left -= here;
            }
            prop_assert_eq!(left, 0);
        }
    }
}
