//! Notifications with a time limit, so that other work of the CPU need not wait for all requests.

use super::descriptor::{Deliverable, Descriptor, Harvest, OUTSTANDING, Served};
use crate::Vector;
use hal::{Word, Work};
use spec::vtd::posted::PIR_WORDS;

/// The result of a notification with a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limited {
    /// The result of one notification.
    pub served: Served,
    /// Set if the limit was reached with requests left. They are in the descriptor again and ON is set. The caller
    /// must now send the notification vector to its own CPU. The next harvest begins with this vector.
    pub resume: Option<Vector>,
}

impl<W: Word> Descriptor<'_, W> {
    /// As [`Descriptor::serve`], but stops when `is_late`. It asks `is_late` before each vector except the first,
    /// which it always dispatches, so that every notification makes progress.
    ///
    /// Vectors are dispatched in ascending order from `from` on, then those below `from`. A caller that passes the
    /// last value of [`Limited::resume`] serves all vectors in turn. If every notification began at the lowest vector,
    /// a busy one would starve those above it.
    ///
    /// When the time is over, harvested requests without a dispatch are put back, and ON stays set or is set again.
    /// Posters then do not notify. The notification that the caller sends to itself finds everything.
    #[inline]
    pub fn serve_until(
        self,
        passes: u32,
        deliverable: &Deliverable,
        from: Vector,
        mut is_late: impl FnMut() -> bool,
        mut name: impl FnMut(Work),
        mut dispatch: impl FnMut(Vector),
    ) -> Limited {
        let mut served = Served::default();
        for _ in 0..passes {
            let taken = self.harvest(|| name(Work::PirHarvest));
            if taken.is_empty() {
                break;
            }
            if let Some(resume) =
                self.dispatch_until(taken, deliverable, from, &mut is_late, &mut dispatch, &mut served)
            {
                return Limited { served, resume: Some(resume) };
            }
        }
        name(Work::PidClearOn);
        self.clear_outstanding();
        let taken = self.harvest(|| name(Work::PirHarvest));
        if taken.is_empty() {
            return Limited { served, resume: None };
        }
        let resume = self.dispatch_until(taken, deliverable, from, &mut is_late, &mut dispatch, &mut served);
        if resume.is_some() {
            // ON is set after the requests: an earlier post notifies once more, a later post is found with them.
            self.set_outstanding();
        }
        Limited { served, resume }
    }

    /// Dispatches harvested requests until it is late. Then puts the rest back and returns the vector to resume at.
    fn dispatch_until(
        self,
        taken: Harvest,
        deliverable: &Deliverable,
        from: Vector,
        is_late: &mut impl FnMut() -> bool,
        dispatch: &mut impl FnMut(Vector),
        served: &mut Served,
    ) -> Option<Vector> {
        let (mut left, stray) = taken.deliverable(deliverable);
        served.passes += 1;
        served.stray += stray;
        while let Some(vector) = next(&left, from) {
            if served.vectors > 0 && is_late() {
                self.put_back(left);
                return Some(vector);
            }
            left[usize::from(vector.0 / 64)] &= !(1 << (vector.0 % 64));
            dispatch(vector);
            served.vectors += 1;
        }
        None
    }

    fn put_back(self, requests: [u64; PIR_WORDS]) {
        for (word, bits) in self.pir.iter().zip(requests) {
            if bits != 0 {
                word.fetch_or(bits);
            }
        }
    }

    fn set_outstanding(self) {
        self.control.fetch_or(OUTSTANDING);
    }
}

/// The first vector of `requests` from `from` on, else the first of all.
fn next(requests: &[u64; PIR_WORDS], from: Vector) -> Option<Vector> {
    let first =
        |index: usize, bits: u64| (bits != 0).then(|| Vector((index as u32 * 64 + bits.trailing_zeros()) as u8));
    let start = usize::from(from.0 / 64);
    first(start, requests[start] & u64::MAX << (from.0 % 64))
        .or_else(|| (start + 1..PIR_WORDS).find_map(|index| first(index, requests[index])))
        .or_else(|| (0..=start).find_map(|index| first(index, requests[index])))
}

#[cfg(test)]
mod tests;
