//! Sorts one bucket. Comparisons are often mispredicted, so a full bucket is first distributed over time slots.

use super::calendar::{BUCKET_BITS, Entry};

/// Up to this many entries are sorted by insertion alone.
const SMALL: usize = 8;
/// The most slots that a bucket is spread over.
const SLOTS_MAX: usize = 1024;

/// Sorts the entries of one bucket, latest first. Reuses its working memory.
#[derive(Debug)]
pub(super) struct BucketSort<T> {
    scratch: Vec<Entry<T>>,
    /// For each time slot, latest first, the end of its entries.
    ends: Vec<u32>,
}

impl<T: Copy> BucketSort<T> {
    pub(super) const fn new() -> Self {
        Self { scratch: Vec::new(), ends: Vec::new() }
    }

    /// Sorts `entries`, all of one bucket, latest key first.
    pub(super) fn sort(&mut self, entries: &mut [Entry<T>]) {
        if entries.len() <= SMALL {
            insertion_sort(entries);
        } else {
            self.spread(entries);
        }
    }

    /// Distributes the entries over about one slot per entry, then sorts each slot. Within a slot the arrival order is
    /// reversed. For equal times nothing else is needed, unless a sequence number was reserved early.
    fn spread(&mut self, entries: &mut [Entry<T>]) {
        let slots = entries.len().next_power_of_two().min(SLOTS_MAX);
        let shift = BUCKET_BITS - slots.trailing_zeros();
        let slot_of = |entry: &Entry<T>| slots - 1 - ((entry.at.0 >> shift) as usize & (slots - 1));
        self.ends.clear();
        self.ends.resize(slots, 0);
        for entry in entries.iter() {
            self.ends[slot_of(entry)] += 1;
        }
        let (mut sum, mut fullest) = (0, 0);
        for end in &mut self.ends {
            fullest = fullest.max(*end);
            sum += *end;
            *end = sum;
        }
        self.scratch.clear();
        self.scratch.extend_from_slice(entries);
        for entry in &self.scratch {
            let end = &mut self.ends[slot_of(entry)];
            *end -= 1;
            entries[*end as usize] = *entry;
        }
        if fullest as usize <= SMALL {
            insertion_sort(entries);
        } else {
            // Crowded slots. Usually all entries have one time and are already in order; this sort detects that in one
            // pass.
            entries.sort_unstable_by_key(|entry| core::cmp::Reverse(entry.key()));
        }
    }
}

/// Each entry moves up by as many places as there are earlier ones before it.
fn insertion_sort<T: Copy>(entries: &mut [Entry<T>]) {
    for index in 1..entries.len() {
        let entry = entries[index];
        let mut hole = index;
        while hole > 0 && entries[hole - 1].key() < entry.key() {
            entries[hole] = entries[hole - 1];
            hole -= 1;
        }
        entries[hole] = entry;
    }
}
